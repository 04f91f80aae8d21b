# SPDX-License-Identifier: Apache-2.0
"""Fast Fourier transforms of cuFFT, rocFFT and MKL, through PyTorch."""

from __future__ import annotations

import math

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import promotion_rank

FAMILY = "Fourier transform"
CONVENTION = "5·N·log2 N operations a transform, the convention of FFT benchmarks, not what a library runs"
_PARTS = {
    "c10::complex<float>": "float",
    "c10::complex<double>": "double",
    "float": "c10::complex<float>",
    "double": "c10::complex<double>",
}
"""The type of a complex number's parts, and the complex type of a real one."""


@cost_model(FAMILY, r"aten::_fft_(?:c2c|r2c|c2r)")
def fourier_transform(call: Call) -> Cost:
    """Transforms of all N points along some dimensions, over the others; real where one side is real.

    FLOPs: 5·log2 N an element, N the product of the transformed sizes; half of it where one side is real
    Bytes: the input; the result, of real signals the half that is not redundant
    Source: fftw.org/speed: mflops = 5 N log2(N) / t, 2.5 for real; native_functions.yaml: _fft_c2c(self, dim,
    normalization, forward), _fft_r2c(self, dim, normalization, onesided), _fft_c2r(self, dim, normalization,
    last_dim_size)
    """
    x, axes = call.tensor(0), call.value(1)
    if not isinstance(axes, tuple) or not axes or x.dtype not in _PARTS:
        raise NoModel("its dimensions or element type are not recorded")
    real = "c2c" not in call.name
    shape = list(x.shape)
    if call.name.endswith("c2r"):
        shape[axes[-1]] = call.value(3)
    points, elements = math.prod(shape[axis] for axis in axes), math.prod(shape)
    result = Tensor(tuple(shape), _PARTS[x.dtype] if real else x.dtype)
    if call.name.endswith("r2c") and call.value(3):
        shape[axes[-1]] = shape[axes[-1]] // 2 + 1
        result = Tensor(tuple(shape), _PARTS[x.dtype])
    part = x.dtype if promotion_rank(x.dtype) < 3 else _PARTS[x.dtype]
    return Cost.from_tensors(
        flops=round((2.5 if real else 5) * elements * math.log2(points)),
        precision="fp64" if part == "double" else "fp32",
        reads=(x,),
        writes=(result,),
        assumes=CONVENTION,
    )
