# SPDX-License-Identifier: Apache-2.0
"""Taxonomy of kernels and collectives: ordered rules, data not code.

`kernel_category` returns the category of a kernel or op, `collective_name` the kind and library of a
collective, `base_name` the common name of all instances of a kernel, and `arithmetic.kernel_arithmetic`
precision, tensor cores and alignment of matrix kernels.  Each depends on the name alone, so call it once per
unique name.  `kind_of` and `element_bytes` parse frameworks' names of collectives and element types;
`bus_factor` is busbw / algbw of a kind.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

from cclbench.classify.collectives import CollectiveName, bus_factor, collective_name, kind_of
from cclbench.classify.dtypes import element_bytes
from cclbench.classify.kernels import kernel_category
from cclbench.classify.names import base_name

__all__ = [
    "TAXONOMY",
    "CollectiveName",
    "base_name",
    "bus_factor",
    "collective_name",
    "element_bytes",
    "kernel_category",
    "kind_of",
]

TAXONOMY: Final = sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()[:12]
"""Identifies the version of the rules; traces classified by another one are read again."""
