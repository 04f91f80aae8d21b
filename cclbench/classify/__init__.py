# SPDX-License-Identifier: Apache-2.0
"""The one taxonomy of kernels and collectives: ordered rules, data not code.

`kernel_category` says what a kernel or op does, `collective_name` which collective of which library it is,
and `base_name` what to call all instances of a kernel; `arithmetic.kernel_arithmetic` tells precision,
tensor cores and
alignment of kernels of products.  Each looks at the name alone, so call it once for each unique name.
`kind_of` and `element_bytes` read what frameworks call collectives and element types; `bus_factor` is what a
kind puts on the bus.
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
"""Names one state of the rules: what was classified by another is read again."""
