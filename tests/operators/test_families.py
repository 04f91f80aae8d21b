# SPDX-License-Identifier: Apache-2.0
"""One small call or more of each family, worked out by hand: FLOPs, bytes read, bytes written, precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import MODELS, cost_of, model_of
from cclbench.operators.families.attention import EMULATED


def t(*shape: int, dtype: str = "float", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, dtype, strides)


def tensor_type(dtype: str) -> Callable[..., Tensor]:
    return lambda *shape: Tensor(shape, dtype)


bf16, fp8, f32 = tensor_type("c10::BFloat16"), tensor_type("c10::Float8_e4m3fn"), tensor_type("f32")
i64, i32, i8, u8, b8 = map(tensor_type, ("long int", "int", "signed char", "unsigned char", "bool"))
complex64, e4m3 = tensor_type("c10::complex<float>"), tensor_type("f8e4m3fn")


GROUPS = Tensor((2,), "s32")
BLOCK = (Tensor((1, 1, 1), "int"), Tensor((1, 1, 1, 1), "int"))
"""Of flex attention without a mask: one block, at index 0."""
MASKED = (Tensor((1, 1, 2), "int"), Tensor((1, 1, 2, 2), "int"))
Q, K = bf16(1, 4, 6, 8), bf16(1, 2, 6, 8)
"""4 heads of 6 queries share 2 heads of 6 keys: 4·36 = 144 pairs, causal 4·6·7/2 = 84."""
CONV: tuple[Any, ...] = ((2, 2), (1, 1), (1, 1))
IMAGE, FILTERS = t(1, 2, 5, 5), t(4, 2, 3, 3)
LATER = (bf16(1, 6, 4, 8), bf16(1, 6, 2, 8), bf16(1, 6, 2, 8))
SHORT = (bf16(1, 2, 4, 8), bf16(1, 6, 4, 8), bf16(1, 6, 4, 8))
EQUAL, PACKED_11 = (bf16(1, 6, 4, 8),) * 3, (bf16(11, 2, 8),) * 3
STATISTICS = (t(1, 4, 6), t(1, 4, 6))
SEQUENCES: tuple[Any, ...] = (i32(4), i32(4), 4, 4)
"""3 sequences of at most 4."""
WINDOW: tuple[Any, ...] = ((1, 2), (0, 1, 2), (1, 2), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
"""Of XLA: features last, output features of the kernel first; 3 · 3 positions, padding 1."""
VARLEN, XFORMERS = "flash_attn::_flash_attn_varlen_forward", "xformers_flash::flash_fwd"
FLASH, FLEX = "aten::_scaled_dot_product_flash_attention", "triton_tem_fused_flex_attention_0"
BATCH_NORM, POOL = "aten::native_batch_norm", "aten::max_pool2d_with_indices"
TWELVE, UNMASKED = (bf16(12, 2, 8),) * 3, (None, None, None, 6, 6)
BATCHED: tuple[Any, ...] = (f32(2, 3, 5), f32(2, 5, 7), (2,), (1,), (0,), (0,), "f32")
"""a[2,3,5]·b[2,5,7] over 5, by the first dimension."""
ADAM = "void multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"
FOREACH = "void multi_tensor_apply_kernel<TensorListMetadata<3>, BinaryOpListAlphaFunctor<c10::BFloat16, 3>>"
CAT = "void at::native::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int>"

Costs = tuple[int, int, int, str | None]


def call(name: str, arguments: tuple[Any, ...]) -> Callable[..., tuple[str, tuple[Any, ...], Costs]]:
    """A call of an operator; what it is then called with are its FLOPs, bytes read and written, precision."""
    return lambda *costs: (name, arguments, costs)


WORKED = [
    # 2·2·4·3; (6 + 12)·4, 8·4
    call("aten::mm", (t(2, 3), t(3, 4)))(48, 72, 32, "fp32"),
    # the bias of 4 numbers, expanded by strides of 0, and beta 0
    call("aten::addmm", (t(4), t(2, 3), t(3, 4), 1, 1))(48, 88, 32, "fp32"),
    call("aten::addmm", (t(2, 4, strides=(0, 1)), t(2, 3), t(3, 4), 1, 1))(48, 88, 32, "fp32"),
    call("aten::addmm", (t(2, 4), t(2, 3), t(3, 4), 0, 1))(48, 72, 32, "fp32"),
    # 5 times 2·2·4·3
    call("aten::bmm", (bf16(5, 2, 3), bf16(5, 3, 4)))(240, 180, 80, "bf16"),
    call("aten::baddbmm", (bf16(5, 2, 4), bf16(5, 2, 3), bf16(5, 3, 4), 1, 1))(240, 260, 80, "bf16"),
    # two products of one result: 2·2·4·(5·3)
    call("aten::addbmm", (t(2, 4), t(5, 2, 3), t(5, 3, 4), 1, 1))(240, 392, 32, "fp32"),
    # K² = 6·12/8 = 9; a bias and a mask beside the operands, the weight as it is stored
    call("triton_tem_fused_mm_3", (t(2, 3), t(3, 4), t(2, 4)))(48, 72, 32, "fp32"),
    call("triton_tem_fused_addmm_relu_3", (bf16(4), bf16(1, 2, 3), bf16(4, 3), bf16(1, 2, 4), 2, 4, 3))(
        48, 44, 16, "bf16"
    ),
    # of XLA; then a[5,3]·b[7,5] over 5, bf16 results
    call("dot_general", BATCHED)(420, 400, 168, "fp32"),
    call("dot_general", (e4m3(5, 3), e4m3(7, 5), (0,), (1,), (), (), "bf16"))(210, 50, 42, "fp8"),
    # the first with tanh of its result, of operands in bf16 that the fusion converts
    call("dot_general", (*BATCHED, "fused", 42, 200, 168))(462, 200, 168, "fp32"),
    # 2 images of 4 · 4 and 3 channels, 5 filters of 3 · 3, padding 1: 10 = 3·4 − 2 positions along a side
    call(
        "conv_general_dilated",
        (bf16(2, 4, 4, 3), bf16(5, 3, 3, 3), bf16(5), "output", (2, 4, 4, 5), "bf16", *WINDOW),
    )(2 * 2 * 5 * 3 * 100, 2 * (96 + 135 + 5), 320, "bf16"),
    # its gradients: of the input from the result's, of the filters
    call(
        "conv_general_dilated", (bf16(2, 4, 4, 5), bf16(5, 3, 3, 3), "input", (2, 4, 4, 3), "bf16", *WINDOW)
    )(2 * 2 * 5 * 3 * 100, 2 * (160 + 135), 192, "bf16"),
    call(
        "conv_general_dilated", (bf16(2, 4, 4, 3), bf16(2, 4, 4, 5), "kernel", (5, 3, 3, 3), "bf16", *WINDOW)
    )(2 * 2 * 5 * 3 * 100, 2 * (96 + 160), 270, "bf16"),
    # 2 sequences of 3 heads: of 4 queries and 4 keys 10 pairs; within a window of 2, 7
    call(
        "dot_product_attention_fwd",
        (bf16(2, 4, 3, 8), bf16(2, 4, 3, 8), bf16(2, 4, 3, 16), "CAUSAL", 0, (2, 3, 4, 4), 768),
    )(2 * 60 * 24, 2 * 768, 768, "bf16"),
    call(
        "dot_product_attention_bwd",
        (bf16(2, 4, 3, 8), bf16(2, 4, 3, 8), bf16(2, 4, 3, 8), "CAUSAL", 2, (2, 3, 4, 4), 1152),
    )(2 * 42 * 40, 3 * 384, 1152, "bf16"),
    call("cholesky", (f32(2, 3, 3), (2, 3, 3)))(18, 48, 72, "fp32"),
    # X·A = B: 3 an element
    call("triangular_solve", (f32(3, 3), f32(2, 3), (2, 3)))(18, 48, 24, "fp32"),
    # each of 2: 4·3² − 3³/3 = 27
    call("lu", (f32(2, 4, 3), (2, 4, 3)))(54, 96, 120, "fp32"),
    # 2·4·3² − 2·3³/3, tall or wide
    call("geqrf", (f32(4, 3), (4, 3)))(54, 48, 60, "fp32"),
    call("geqrf", (f32(3, 4), (3, 4)))(54, 48, 60, "fp32"),
    # 4·4·3·3 − 2·7·9 + 4·27/3; all of 4 columns: 4·4·4·3 − 2·8·9 + 36
    call("householder_product", (f32(4, 3), f32(3), (4, 3)))(54, 60, 48, "fp32"),
    call("householder_product", (f32(4, 4), f32(3), (4, 4)))(84, 76, 64, "fp32"),
    # 6 rows in 2 groups, each times its 3 by 4; the inner 6 in 2 groups, two results of 3 by 4; a batch of 2
    call(
        "ragged_dot_general", (bf16(6, 3), bf16(2, 3, 4), GROUPS, (1,), (1,), (), (), (0,), (6, 4), "f32", "")
    )(144, 36 + 48 + 8, 96, "bf16"),
    call(
        "ragged_dot_general", (bf16(6, 3), bf16(6, 4), GROUPS, (0,), (0,), (), (), (), (2, 3, 4), "f32", "")
    )(144, 36 + 48 + 8, 96, "bf16"),
    call(
        "ragged_dot_general",
        (
            *(bf16(2, 6, 3), bf16(2, 3, 4), GROUPS, (2,), (1,), (0,), (0,), (), (2, 6, 4), "f32"),
            "DOT_BF16_BF16_F32",
        ),
    )(288, 72 + 48 + 8, 192, "bf16"),
    # K² = 36·12/48: 2·48·3, from either side of the weight
    call("te_gemm", (bf16(2, 6, 3), t(1), bf16(3, 4), (2, 6, 4), "bf16"))(288, 100, 96, "bf16"),
    call("te_gemm", (bf16(2, 6, 3), t(1), bf16(4, 3), (2, 6, 4), "bf16"))(288, 100, 96, "bf16"),
    call("te_gemm", (bf16(2, 6, 3), t(1), bf16(4, 3), t(1), bf16(4), (2, 6, 4), "bf16"))(
        288, 112, 96, "bf16"
    ),
    # no mask: 144 pairs of 8 and 8; a float per query and head twice
    call(FLEX, (Q, K, K, *STATISTICS, *BLOCK, t(0), t(0), Q, 1, 1, 4))(
        2 * 144 * 16, 384 + 2 * 192, 2 * 96 + 384, "bf16"
    ),
    call(
        "triton_tem_fused_flex_attention_backward_1",
        (Q, K, K, *STATISTICS, Q, Q, K, *BLOCK, *BLOCK, *(t(0),) * 4, K, 1, 1, 4),
    )(2 * 144 * 40, 2 * 384 + 2 * 192 + 2 * 96, 384 + 2 * 192, "bf16"),
    # 5·3 an element of 2·8; half of it of the real numbers
    call("fft", (t(2, 8, dtype="c64"), (8,), (2, 8), "c64"))(240, 128, 128, "fp32"),
    call("fft", (f32(2, 8), (8,), (2, 5), "c64"))(120, 64, 80, "fp32"),
    call("fft", (t(2, 5, dtype="c128"), (8,), (2, 8), "f64"))(120, 160, 128, "fp64"),
    # 6 rows of 3 times (5, 3), in two groups, with biases: 2·6·5·3; (18 + 2·15 + 2·5)·2, 30·2
    call("_GroupedLinear", (bf16(6, 3), bf16(5, 3), bf16(5, 3), bf16(5), bf16(5)))(180, 116, 60, "bf16"),
    # LSTM of 2 layers, both directions: 2·(4·4·(3 + 4) + 4·4·(8 + 4)) = 608 weights and 128 biases for
    # 5 steps of 2; states 4·(4 + 4) a sequence, result 5·2·8
    call(
        "aten::_cudnn_rnn",
        (t(5, 2, 3), None, 4, None, t(4, 2, 4), t(4, 2, 4), 2, 4, 0, 2, False, 0.0, True, True, ()),
    )(2 * 10 * 608, (30 + 736 + 64) * 4, (80 + 64) * 4, "fp32"),
    # the same with states projected to 2, one layer and direction, no biases, packed: 4·4·(3 + 2) + 2·4
    call(
        "aten::_cudnn_rnn",
        (t(7, 3), None, 3, None, t(1, 2, 2), t(1, 2, 4), 2, 4, 2, 1, False, 0.0, True, False, (2, 2, 2, 1)),
    )(2 * 7 * 88, (21 + 88 + 12) * 4, (14 + 12) * 4, "fp32"),
    # GRU, batch first: 3·4·(3 + 4) = 84 and 24 biases, both gradients of 2·5 steps
    call(
        "aten::miopen_rnn_backward",
        (
            *(t(2, 5, 3), None, 4, None, t(1, 2, 4), None, t(2, 5, 4), t(2, 5, 4), None, None),
            *(3, 4, 1, True, 0.0, True, False, (), None, None, (True, False, False, True)),
        ),
    )(2 * 2 * 10 * 84, (30 + 108 + 2 * (8 + 40)) * 4, (30 + 8 + 108) * 4, "fp32"),
    # 2·10·(48 + 64); one layer and direction of an LSTM on a CPU
    call("aten::mkldnn_rnn_layer", (t(5, 2, 3), t(16, 3), t(16, 4), t(16), t(16), t(2, 4), t(2, 4)))(
        2240, (30 + 48 + 64 + 32 + 16) * 4, (40 + 16) * 4, "fp32"
    ),
    # 5·16·log2 8 for two transforms of 8; 2.5·64·log2 64 of 8 × 8, half of it real
    call("aten::_fft_c2c", (complex64(2, 8), (1,), 0, True))(240, 128, 128, "fp32"),
    call("aten::_fft_r2c", (t(8, 8), (0, 1), 0, True))(960, 256, 320, "fp32"),
    call("aten::_fft_c2r", (t(8, 5, dtype="c10::complex<double>"), (0, 1), 2, 8))(960, 640, 512, "fp64"),
    # 2 tables of 6 columns, 4 bags of each: 7 rows; unpooled, weighted
    call(
        "fbgemm::dense_embedding_codegen_lookup_function",
        (t(60, dtype="c10::Half"), i64(2), i32(3), 12, 6, i64(3), 5, i64(7), i64(9), 0),
    )(42, 7 * 8 + 9 * 8 + 84, 4 * 12 * 4, "fp32"),
    call(
        "fbgemm::split_embedding_codegen_lookup_adagrad_function",
        (*(t(0), t(60), t(0), t(0, 0), i32(2), i64(2), i32(3), 12, 6, i64(3), 5), *(i64(7), i64(9), 1, t(7))),
    )(84, 56 + 72 + 28 + 168, 192, "fp32"),
    call("fbgemm::permute_pooled_embs_auto_grad", (t(4, 12), i64(3)))(0, 192, 192, None),
    call("fbgemm::permute_2D_sparse_data", (i32(2), i32(2, 5), i64(9), None))(0, 8 + 40 + 72, 112, None),
    call("aten::mv", (t(2, 3), t(3)))(12, 36, 8, "fp32"),
    call("aten::addmv", (t(2), t(2, 3), t(3), 1, 1))(12, 44, 8, "fp32"),
    call("aten::dot", (t(3), t(3)))(6, 24, 4, "fp32"),
    # (5, 2, 3)·(3,) is (5, 2); (5, 2, 3)·(3, 4) broadcasts
    call("aten::matmul", (t(5, 2, 3), t(3)))(60, 132, 40, "fp32"),
    call("aten::matmul", (t(5, 2, 3), t(3, 4)))(240, 168, 160, "fp32"),
    call("aten::matmul", (t(3), t(3, 4)))(24, 60, 16, "fp32"),
    call("aten::linear", (bf16(2, 2, 3), bf16(4, 3), bf16(4)))(96, 56, 32, "bf16"),
    call("vllm::rocm_unquantized_gemm", (bf16(2, 3), bf16(4, 3), None))(48, 36, 16, "bf16"),
    # otype 15 is bfloat16, 6 float
    call("aiter::gemm_a16w16", (bf16(2, 3), bf16(4, 3), None, 15))(48, 36, 16, "bf16"),
    call("aiter::gemm_a16w16", (bf16(2, 3), bf16(4, 3), None, 6))(48, 36, 32, "bf16"),
    # 6 + 12 bytes, scales of 2 and 4 floats; bfloat16 out
    call("aiter::gemm_a8w8", (fp8(2, 3), fp8(4, 3), t(2, 1), t(1, 4), None, 15))(48, 42, 16, "fp8"),
    # bytes of two numbers: K is 6
    call("aiter::gemm_a4w4", (u8(2, 3), u8(4, 3)))(96, 18, 16, "fp4"),
    call("aten::_scaled_mm", (fp8(2, 3), fp8(3, 4), t(), t(), None, None, 15))(48, 26, 16, "fp8"),
    call("sgl_kernel::fp8_scaled_mm", (fp8(2, 3), fp8(3, 4), t(2, 1), t(1, 4), 15))(48, 42, 16, "fp8"),
    # bytes at their own size: weights of 8 bits, and of 4 bits in 6 bytes with 2·4·2 numbers beside
    call("aten::_weight_int8pack_mm", (bf16(2, 3), i8(4, 3), bf16(4)))(48, 32, 16, "bf16"),
    # 12 + 6 + 32
    call("aten::_weight_int4pack_mm", (bf16(2, 3), u8(1, 1, 6, 1), 2, bf16(2, 4, 2)))(48, 50, 16, "bf16"),
    call("_C::cutlass_scaled_mm", (bf16(2, 4), fp8(2, 3), fp8(3, 4), t(), t()))(48, 26, 16, "fp8"),
    call("_rocm_C::wvSplitK", (bf16(4, 3), bf16(2, 3)))(48, 36, 16, "bf16"),
    call("LigerSiLUMulFunction", (bf16(2, 3), bf16(2, 3), 1.0, 1.0))(30, 24, 12, "fp32"),
    call("LigerGELUMulFunction", (bf16(2, 3), bf16(2, 3)))(60, 24, 12, "fp32"),
    # x of 2 rows and 16 inner numbers times 16 x 8, in 4 bits 64 bytes; 2 groups of 8 scales, and zeros in 8
    # 64 + 64 + 32 + 8
    call("_C::awq_gemm", (bf16(2, 16), i32(16, 1), bf16(2, 8), i32(2, 1), 8))(512, 168, 32, "bf16"),
    call("_C::gptq_gemm", (bf16(2, 16), i32(2, 8), i32(2, 1), bf16(2, 8), i32(16), True, 4))(
        512, 64 + 64 + 8 + 32 + 64, 32, "bf16"
    ),
    # the same in Marlin's layout: the result given or not, no zeros or orders, a workspace that counts not
    call(
        "_C::marlin_gemm",
        (
            *(bf16(2, 16), bf16(2, 8), i32(1, 16), None, bf16(2, 8)),
            *(*(None,) * 5, i32(99), 7, 2, 8, 16, True, False, True, False),
        ),
    )(512, 64 + 64 + 32, 32, "bf16"),
    call(
        "_C::gptq_marlin_gemm",
        (*(bf16(2, 16), i32(1, 16), bf16(2, 8), *(i32(0),) * 3), *(i32(99), 7, 2, 8, 16, True, False, True)),
    )(512, 64 + 64 + 32, 32, "bf16"),
    # 32 + 128 + 8 + 32 + 16
    call("fbgemm::f8f8bf16_rowwise", (fp8(2, 16), fp8(8, 16), t(2), t(8), bf16(8), True))(
        512, 216, 32, "fp8"
    ),
    call("fbgemm::f8f8bf16_tensorwise", (fp8(2, 16), fp8(8, 16), 0.5))(512, 32 + 128, 32, "fp8"),
    # 64 + 64 + 32 + 32
    call("fbgemm::bf16i4bf16_rowwise", (bf16(2, 16), i8(8, 8), bf16(2, 8), bf16(2, 8)))(512, 192, 32, "bf16"),
    call("bitsandbytes::int8_linear_matmul", (i8(2, 16), i8(8, 16)))(512, 32 + 128, 64, "int8"),
    # blocks of 64 numbers, and a table of 16
    call("bitsandbytes::gemv_4bit", (bf16(1, 1, 16), u8(64, 1), (8, 16), t(2), t(16), 64))(
        256, 32 + 64 + 8 + 64, 16, "bf16"
    ),
    call("aten::_int_mm", (i8(2, 3), i8(3, 4)))(48, 18, 32, "int8"),
    # 7 rows in 2 groups, each with a (3, 4) of its own; offsets of 2 int32
    call("aten::_grouped_mm", (bf16(7, 3), bf16(2, 3, 4), i32(2)))(2 * 7 * 3 * 4, 42 + 48 + 8, 56, "bf16"),
    # the weight's gradient: an inner dimension of 7 cut into 2 groups, a (3, 4) each
    call("aten::_grouped_mm", (bf16(3, 7), bf16(7, 4), i32(2)))(2 * 7 * 3 * 4, 42 + 56 + 8, 48, "bf16"),
    # (5 + 2 − 2 − 1)/2 + 1 = 3 a side: 2·(1·4·9) elements of 2·9 products; 50·4, 72·4, 4·4; 36·4
    # 2·36·18; 200 + 288 + 16
    call("aten::convolution", (IMAGE, FILTERS, t(4), *CONV, False, (0, 0), 1))(1296, 504, 144, "fp32"),
    # two groups: half the products
    call(
        "aten::cudnn_convolution",
        (t(1, 2, 5, 5), t(4, 1, 3, 3), (1, 1), (2, 2), (1, 1), 2, False, False, True),
    )(2 * 36 * 9, 200 + 144, 144, "fp32"),
    # transposed: (3 − 1)·2 − 2 + 2 + 1 + 1 = 6 a side; each of 2·9 elements meets 4·9 weights
    call("aten::convolution", (t(1, 2, 3, 3), t(2, 4, 3, 3), None, *CONV, True, (1, 1), 1))(
        2 * 18 * 36, 72 + 288, 4 * 36 * 4, "fp32"
    ),
    # dilation 2: 5 − 2·2 = 1 a side: 2·4·18; 200 + 288
    call("aten::mkldnn_convolution", (IMAGE, FILTERS, None, (0, 0), (1, 1), (2, 2), 1))(144, 488, 16, "fp32"),
    call("aten::cudnn_convolution_add_relu", (IMAGE, FILTERS, t(1, 4, 3, 3), 1, t(4), *CONV, 1))(
        2 * 36 * 18 + 3 * 36, 200 + 288 + 16 + 144, 144, "fp32"
    ),
    # both gradients, then the weight's alone, which reads no weight
    call(
        "aten::convolution_backward",
        (t(1, 4, 3, 3), t(1, 2, 5, 5), t(4, 2, 3, 3), (4,), *CONV, False, (0, 0), 1, (True, True, True)),
    )(2 * 2 * 36 * 18, 144 + 200 + 288, 200 + 288 + 16, "fp32"),
    call(
        "aten::convolution_backward",
        (t(1, 4, 3, 3), t(1, 2, 5, 5), t(4, 2, 3, 3), (0,), *CONV, False, (0, 0), 1, (False, True, False)),
    )(2 * 36 * 18, 144 + 200, 288, "fp32"),
    call("aten::cudnn_convolution_backward_weight", ((4, 2, 3, 3), t(1, 4, 3, 3), t(1, 2, 5, 5), *CONV, 1))(
        2 * 36 * 18, 144 + 200, 288, "fp32"
    ),
    # 144 pairs of 8 + 8; query and result 384 bytes, key and value 192 each; 24 floats
    call(FLASH, (Q, K, K, 0.0, False, False, None))(2 * 144 * 16, 384 + 384, 384 + 96, "bf16"),
    call(FLASH, (Q, K, K, 0.0, True, False, None))(2 * 84 * 16, 384 + 384, 384 + 96, "bf16"),
    call(
        "aten::_scaled_dot_product_efficient_attention", (Q, K, K, bf16(1, 4, 6, 6), False, 0.0, False, None)
    )(2 * 144 * 16, 384 + 384 + 288, 384, "bf16"),
    # 5 products: 3·8 + 2·8; gradient, query, result 384 each, key and value 192, statistics 96
    call(
        "aten::_scaled_dot_product_flash_attention_backward",
        (Q, Q, K, K, Q, t(1, 4, 6), None, None, 6, 6, 0.0, False, i64(), i64(), None),
    )(2 * 144 * 40, 3 * 384 + 2 * 192 + 96, 384 + 2 * 192, "bf16"),
    # lengths before heads, and a window of the key itself and one before: 6 + 5 pairs a head
    call("flash_attn::_flash_attn_forward", (*LATER, 0.0, 0.35, True, 1, 0, 0.0, None, False))(
        2 * 4 * 11 * 16, 384 + 384, 384 + 96, "bf16"
    ),
    # 2 queries at the end of 6 keys see 5 and 6 of them
    call("aten::_flash_attention_forward", (*SHORT, None, None, 2, 6, 0.0, True, False, None))(
        2 * 4 * 11 * 16, 128 + 768, 128 + 32, "bf16"
    ),
    # mask type 1, from the first key: they see 1 and 2 of them
    call("aten::_efficient_attention_forward", (*SHORT, None, None, None, None, None, 0.0, 1, True))(
        2 * 4 * 3 * 16, 128 + 768, 128 + 32, "bf16"
    ),
    # 12 tokens in 3 sequences of at most 4: all have 4, and 3·2·16 pairs
    call(VARLEN, (*TWELVE, *SEQUENCES, 0.0, 1.0, False))(2 * 96 * 16, 3 * 384, 384 + 96, "bf16"),
    # 7 of each of 6 elements; 24 + 12 + 12 read, 24 + 2·2·4 written
    call("aten::native_layer_norm", (t(2, 3), (3,), t(3), t(3), 1e-5))(42, 48, 40, "fp32"),
    call(
        "aten::native_layer_norm_backward",
        (t(2, 3), t(2, 3), (3,), t(2, 1), t(2, 1), t(3), t(3), (True, True, True)),
    )(13 * 6, 24 + 24 + 8 + 8 + 12, 24 + 12 + 12, "fp32"),
    call("aten::_fused_rms_norm", (t(2, 3), (3,), t(3), None))(24, 36, 32, "fp32"),
    call("_C::rms_norm", (bf16(2, 3), bf16(2, 3), bf16(3), 1e-6))(24, 18, 12, "fp32"),
    call("_C::fused_add_rms_norm", (bf16(2, 3), bf16(2, 3), bf16(3), 1e-6))(30, 30, 24, "fp32"),
    call("aiter::rmsnorm2d_fwd_with_add_ck", (*[bf16(2, 3)] * 4, bf16(3), 1e-5, 0))(30, 30, 24, "fp32"),
    # 24 elements, 3 channels: four vectors of 12 bytes read; running and saved statistics written
    call(BATCH_NORM, (t(2, 3, 4), t(3), t(3), t(3), t(3), True, 0.1, 1e-5))(5 * 24, 96 + 48, 96 + 48, "fp32"),
    call(BATCH_NORM, (t(2, 3, 4), t(3), t(3), t(3), t(3), False, 0.1, 1e-5))(48, 144, 96, "fp32"),
    call(
        "aten::native_batch_norm_backward",
        (t(2, 3, 4), t(2, 3, 4), t(3), t(3), t(3), t(3), t(3), True, 1e-5, (True, True, True)),
    )(9 * 24, 96 + 96 + 36, 96 + 24, "fp32"),
    call("aten::native_group_norm", (t(2, 4, 3), t(4), t(4), 2, 4, 3, 2, 1e-5))(120, 128, 96 + 32, "fp32"),
    call("aten::_softmax", (t(2, 3), -1, False))(30, 24, 24, "fp32"),
    call("aten::_log_softmax_backward_data", (t(2, 3), t(2, 3), -1, 6))(24, 48, 24, "fp32"),
    # one element of 4 bytes and one target of 8 each; loss and weight
    call("aten::nll_loss_forward", (t(2, 3), i64(2), None, 1, -100))(2, 24, 8, "fp32"),
    call("aten::nll_loss_backward", (t(), t(2, 3), i64(2), None, 1, -100, t()))(2, 24, 8, "fp32"),
    call("aten::mse_loss_backward", (t(), t(2, 3), t(2, 3), 1))(18, 52, 24, "fp32"),
    # 3 rows of 4 numbers and 3 indices
    call("aten::embedding", (bf16(100, 4), i64(3), -1))(0, 24 + 24, 24, None),
    # 300 indices of a table of 100 rows: no more than all of it
    call("aten::embedding", (bf16(100, 4), i64(300), -1))(0, 2400 + 800, 2400, None),
    call("aten::embedding_dense_backward", (bf16(3, 4), i64(3), 100, -1, False))(12, 48, 24, "fp32"),
    call("aten::index_select", (t(9, 4), 0, i64(2)))(0, 16 + 32, 32, None),
    call("aten::gather", (t(9, 4), 1, i64(9, 1), False))(0, 72 + 36, 36, None),
    call("aten::scatter_add_", (t(9), 0, i64(4), t(4)))(4, 32 + 16 + 16, 16, "fp32"),
    call("sglang::store_cache", (bf16(2, 8), bf16(2, 8), fp8(9, 8), fp8(9, 8), i64(2)))(0, 80, 32, None),
    # of heads of 8 the first 4 are rotated: half of 32 + 16 elements, in bf16; two rows of 4, two positions
    # 3·24; 16 + 16 + 48
    call("_C::rotary_embedding", (i64(2), bf16(2, 16), bf16(2, 8), 8, bf16(99, 4), True))(72, 80, 48, "fp32"),
    call("aten::sum", (t(2, 3), (1,), False, None))(6, 24, 8, "fp32"),
    call("aten::sum", (t(2, 3), None))(6, 24, 4, "fp32"),
    # old traces record no dimensions: the result is left out, and the cost says so
    call("aten::sum", (t(2, 3), None, None, None))(6, 24, 0, "fp32"),
    call("aten::mean", (t(2, 3), (0, 1), True, None))(6, 24, 4, "fp32"),
    call("aten::sum", (i32(2, 3), (1,), False, None))(0, 24, 16, None),
    call("aten::argmax", (t(2, 3), -1, False))(6, 24, 16, "fp32"),
    call("aten::max", (t(2, 3), 1, False))(6, 24, 8 + 16, "fp32"),
    call("aten::any", (b8(2, 3),))(0, 6, 1, None),
    call("aten::linalg_vector_norm", (t(2, 3), 2, None, False, None))(12, 24, 4, "fp32"),
    call("aten::cumsum", (t(2, 3), 1, None))(6, 24, 24, "fp32"),
    call("aten::topk", (t(2, 9), 2, -1, True, True))(0, 72, 16 + 32, None),
    call("aten::sort", (t(2, 3), -1, False))(0, 24, 24 + 48, None),
    # broadcasting (2, 1) with (3,); alpha 2; into place; a number of its own in memory
    call("aten::add", (t(2, 1), t(3), 1))(6, 20, 24, "fp32"),
    call("aten::add", (t(2, 1), t(3), 2))(12, 20, 24, "fp32"),
    call("aten::add_", (bf16(2, 3), bf16(2, 3), 1))(6, 24, 12, "fp32"),
    call("aten::mul", (bf16(2, 3), t(dtype="double")))(6, 20, 12, "fp32"),
    call("aten::mul", (t(2, 3), t(2, 3), t(2, 3)))(6, 48, 24, "fp32"),
    call("aten::mul", (bf16(2, 3), t(2, 3)))(6, 36, 24, "fp32"),
    call("aten::mul", (t(2, 3, dtype="double"), 2))(6, 48, 48, "fp64"),
    call("aten::add", (i64(2), i64(2), 1))(0, 32, 16, None),
    call("aten::div", (i64(2), 2))(2, 16, 8, "fp32"),
    # an expanded operand has 2 elements of its own
    call("aten::div", (t(2, 5, strides=(1, 0)), 5))(10, 8, 40, "fp32"),
    call("aten::exp", (t(2, 3),))(6, 24, 24, "fp32"),
    call("aten::silu", (bf16(2, 3),))(24, 12, 12, "fp32"),
    call("aten::clamp", (t(2, 3), 0, None))(6, 24, 24, "fp32"),
    call("aten::clamp_min_", (t(2, 3), 0))(6, 24, 24, "fp32"),
    call("aten::gt", (t(2, 3), 0))(6, 24, 6, "fp32"),
    call("aten::where", (b8(2, 3), t(2, 3), t()))(0, 6 + 24 + 4, 24, None),
    call("aten::softplus_backward", (t(2, 3), t(2, 3), 1, 20))(30, 48, 24, "fp32"),
    call("aten::gelu", (t(2, 3), "tanh"))(54, 24, 24, "fp32"),
    call("aten::gelu_backward", (t(2, 3), t(2, 3), "none"))(66, 48, 24, "fp32"),
    call("sgl_kernel::silu_and_mul", (bf16(2, 3), bf16(2, 6)))(30, 24, 12, "fp32"),
    call("aten::native_dropout", (t(2, 3), 0.1, True))(12, 24, 24 + 6, "fp32"),
    call("aten::native_dropout_backward", (t(2, 3), b8(2, 3), 1.1))(12, 30, 24, "fp32"),
    call("_C::static_scaled_fp8_quant", (fp8(2, 3), bf16(2, 3), t(1)))(18, 16, 6, "fp32"),
    call("_C::dynamic_per_token_scaled_fp8_quant", (fp8(2, 3), bf16(2, 3), t(2, 1)))(30, 12, 14, "fp32"),
    call("sgl_kernel::sgl_per_token_quant_fp8", (bf16(2, 3), fp8(2, 3), t(2, 1)))(30, 12, 14, "fp32"),
    call("aten::copy_", (bf16(2, 3), t(2, 3), False))(0, 24, 12, None),
    call("aten::fill_", (bf16(2, 3), 0))(0, 0, 12, None),
    call("aten::arange", (0, 10, 3, i64(0)))(0, 0, 32, None),
    call("aten::flip", (t(2, 3), (0,)))(0, 24, 24, None),
    call("aten::view", (t(2, 3), (6,)))(0, 0, 0, None),
    # windows of 3·3, (5 − 3)/2 + 1 = 2 a side
    call(POOL, (t(1, 1, 5, 5), (3, 3), (2, 2), (0, 0), (1, 1), False))(36, 100, 48, "fp32"),
    call(
        "aten::max_pool2d_with_indices_backward",
        (t(1, 1, 2, 2), t(1, 1, 5, 5), (3, 3), (2, 2), (0, 0), (1, 1), False, i64(1, 1, 2, 2)),
    )(4, 48, 100, "fp32"),
    call("aten::avg_pool2d", (t(1, 1, 4, 4), (2, 2), (), (0, 0), False, True, None))(16, 64, 16, "fp32"),
    call("aten::avg_pool2d_backward", (t(1, 1, 2, 2), t(1, 1, 4, 4), (2, 2)))(16, 16, 64, "fp32"),
    call("aten::_adaptive_avg_pool2d", (t(1, 3, 4, 4), (1, 1)))(48, 192, 12, "fp32"),
    call("aten::_adaptive_avg_pool2d_backward", (t(1, 3, 1, 1), t(1, 3, 4, 4)))(48, 12, 192, "fp32"),
    # 2 tokens of 4 with 2 of 8 experts each; inner 3 with a gate: 4·(6·4 + 4·3) products; 4 experts read
    call("vllm::inplace_fused_experts", (bf16(2, 4), bf16(8, 6, 4), bf16(8, 4, 3), t(2, 2), i32(2, 2)))(
        2 * 4 * 36, 16 + 16 + 16 + 4 * 36 * 2, 16, "bf16"
    ),
    # weights of fp8 and use_fp8_w8a8: the tokens are recorded before they are quantised
    call(
        "vllm::inplace_fused_experts",
        (bf16(2, 4), fp8(8, 6, 4), fp8(8, 4, 3), t(2, 2), i32(2, 2), "silu", False, True, False),
    )(2 * 4 * 36, 16 + 16 + 16 + 4 * 36, 16, "fp8"),
    # without a flag they are converted to the tokens' type
    call(
        "vllm::inplace_fused_experts",
        (bf16(2, 4), fp8(8, 6, 4), fp8(8, 4, 3), t(2, 2), i32(2, 2), "silu", False, False, False),
    )(2 * 4 * 36, 16 + 16 + 16 + 4 * 36, 16, "bf16"),
    # the same with two weights a byte: bytes of the experts are a quarter
    call("vllm::inplace_fused_experts", (bf16(2, 4), u8(8, 8, 2), u8(8, 4, 2), t(2, 2), i64(2, 2)))(
        2 * 4 * (8 * 4 + 4 * 4), 16 + 16 + 32 + 4 * (16 + 8), 16, "bf16"
    ),
    call("_moe_C::topk_softmax", (t(2, 2), i32(2, 2), i32(2, 2), t(2, 8)))(80, 64, 48, "fp32"),
    call("_moe_C::moe_sum", (bf16(2, 3, 4), bf16(2, 4)))(24, 48, 16, "fp32"),
    call("triton_poi_fused__to_copy_1", (t(2, 3), bf16(2, 3), 6))(0, 24, 12, None),
    # in_out_ptr0 and a bias of 3: the bias is no result, so the first is; addmm's addend and relu 2 a point
    call("triton_poi_fused_addmm_relu_0", (bf16(2, 3), bf16(3), 6))(12, 18, 12, "fp32"),
    # the product's result is 2-D, what is computed from its view 3-D, the first alone: silu 4, mul 1
    call("triton_poi_fused__unsafe_view_mul_silu_2", (bf16(2, 3, 4), bf16(6, 4), 24))(120, 96, 48, "fp32"),
    call("triton_poi_fused__unsafe_view_add_3", (*[bf16(2, 3, 4)] * 2, bf16(6, 4), 24))(24, 144, 48, "fp32"),
    # a 3-D result is the last
    call("triton_poi_fused__unsafe_view_mul_silu_4", (*[bf16(6, 4)] * 2, bf16(2, 3, 4), 24))(
        120, 96, 48, "fp32"
    ),
    # a slice of 8 of 24 elements is added to itself as converted
    call("triton_poi_fused__to_copy_add_slice_1", (bf16(2, 12), t(2, 4), 8))(8, 16, 32, "fp32"),
    # two sizes, 2 · 4 points, of a bias of 4 broadcast; a symbol of dynamic shapes before one size of 8
    call("triton_poi_fused_add_transpose_1", (t(2, 4), t(4), t(4, 2), 2, 4))(8, 48, 32, "fp32"),
    call("triton_poi_fused_add_1", (t(2, 4), t(4), t(2, 4), 2, 8))(8, 48, 32, "fp32"),
    # 6 rows of 4 are read and summed: add 1, sum 1, of 24 points
    call("triton_red_fused_add_sum_0", (t(6, 4), t(4), t(6), 6, 4))(48, 112, 24, "fp32"),
    # a reduction whose last operand has fewer elements than rows: the first is overwritten
    call("triton_per_fused_add_mul_sum_0", (t(6, 4), t(6, 4), t(4), 6, 4))(72, 208, 96, "fp32"),
    # gradients of a table are scattered into less than the 8 points
    call("triton_poi_fused_embedding_dense_backward_1", (i64(2), t(2, 4), t(1, 4), 8))(0, 48, 16, None),
    # one that only fills
    call("triton_poi_fused_zeros_1", (t(2, 4), 8))(0, 0, 32, None),
    call("_Linear", (bf16(4, 3), bf16(2, 3), bf16(4)))(48, 44, 16, "bf16"),
    call("_LayerNormLinear", (bf16(2, 3), bf16(3), bf16(3), bf16(4, 3), bf16(4)))(48, 56, 16, "bf16"),
    # 2·6·6 elements of 9; of 4 neighbours two operations each; the nearest element copies or adds
    call("aten::upsample_bilinear2d", (bf16(1, 2, 3, 3), (6, 6), False))(648, 36, 144, "fp32"),
    call("aten::upsample_bilinear2d_backward", (bf16(1, 2, 6, 6), (6, 6), (1, 2, 3, 3)))(
        576, 144, 36, "fp32"
    ),
    call("aten::upsample_bicubic2d", (t(1, 1, 2, 2), (4, 4), True))(560, 16, 64, "fp32"),
    call("aten::upsample_trilinear3d", (t(1, 1, 2, 2, 2), (4, 4, 4), True))(1344, 32, 256, "fp32"),
    call("aten::upsample_nearest2d", (t(1, 1, 4, 4), (2, 2)))(0, 16, 16, None),
    call("aten::_upsample_nearest_exact1d_backward", (t(1, 1, 4), (4,), (1, 1, 2)))(4, 16, 8, "fp32"),
    # 2·6³/3, triangles of 21; 4·3² − 3³/3, 3 pivots; Q·R of 4·3: 2·4·3² − 2·3³/3 for each, R of 6 numbers
    call("aten::linalg_cholesky_ex", (t(2, 6, 6), False, False))(144, 168, 288, "fp32"),
    call("aten::linalg_lu_factor_ex", (t(4, 3), True, False))(27, 48, 60, "fp32"),
    call("aten::linalg_qr", (t(4, 3), "reduced"))(108, 48, 72, "fp32"),
    # of 3·4: 2·4·3² − 2·3³/3 for R with 9 numbers, 2·3·3² − 2·3³/3 for Q
    call("aten::linalg_qr", (t(3, 4), None))(90, 48, 72, "fp32"),
    # 3 an element of B, triangle of 6; both triangles; B on the left
    call("aten::linalg_solve_triangular", (t(3, 3), t(3, 2), False, True, False))(18, 48, 24, "fp32"),
    call("aten::linalg_solve_triangular", (t(3, 3), t(2, 3), False, False, False))(18, 48, 24, "fp32"),
    call("aten::linalg_lu_solve", (t(3, 3), i32(3), t(3, 2), True, False))(36, 72, 24, "fp32"),
    call("aten::_cholesky_solve_helper", (t(3, 2), t(3, 3), False))(36, 60, 24, "fp32"),
    # 3 indices, a bag each, rows of 4; zeros, which it calls, fills the table
    call("aten::_embedding_bag_dense_backward", (t(2, 4), i64(3), i64(3), i64(2), i64(0), 9, False, 0))(
        12, 80, 48, "fp32"
    ),
    # 12 numbers are added to 12 elements, or written; 3 slices of 4, 6 elements, 2 slices of 4
    call("aten::_index_put_impl_", (t(9, 4), None, t(3, 4), True, True))(12, 96, 48, "fp32"),
    call("aten::index_put_", (t(9, 4), None, t(3, 4), False))(0, 48, 48, None),
    call("aten::index_add", (t(9, 4), 0, i64(3), t(3, 4), 1))(12, 120, 48, "fp32"),
    call("aten::scatter", (t(3, 4), 1, i64(3, 2), t(3, 2)))(0, 72, 24, None),
    call("aten::index_fill_", (t(5, 4), 0, i64(2), 1.0))(0, 16, 32, None),
    call("aten::nonzero", (b8(5),))(0, 5, 0, None),
    call("aten::histc", (t(7), 4, 0, 3))(0, 28, 16, None),
    call("aten::bincount", (i64(7), None, 4))(0, 56, 32, None),
    call("aten::isneginf", (t(3),))(3, 12, 3, "fp32"),
    call("aten::tril_", (t(3, 3), 0))(0, 36, 36, None),
    call("aten::_assert_async", (b8(), "text"))(0, 0, 0, None),
    # rows of 5 have 8 bytes and a scale of 8; one byte a number
    call("fbgemm::FloatToFP8RowwiseQuantized", (t(2, 5), True))(50, 40, 32, "fp32"),
    call("fbgemm::FP8RowwiseQuantizedToFloat", (u8(2, 16), True))(16, 32, 64, "fp32"),
    call("fbgemm::FloatToHFP8Quantized", (t(6), 4, 14, 0.9))(18, 24, 6, "fp32"),
    call("fbgemm::HFP8QuantizedToFloat", (u8(6), 4, 14))(6, 6, 24, "fp32"),
    call("fbgemm::bounds_check_indices", (i64(2), i64(7), i64(9), 1, i64(1)))(0, 144, 0, None),
    call("fbgemm::asynchronous_complete_cumsum", (i32(5),))(0, 20, 24, None),
    # query, key and value of 8 numbers, each in 8 bits with a scale
    call("sage_quant_kernel_0", (bf16(1, 1, 2, 4), i8(1, 1, 2, 4), t(1, 1, 1)) * 3)(120, 48, 36, "fp32"),
    call("aiter::_groupnorm_run", (bf16(1, 4, 2, 2), 2, bf16(4), bf16(4), 1e-6))(80, 48, 32, "fp32"),
    # 11 tokens in 3 sequences of at most 4: equally long ones have 4, 4 and 3, 2 heads: 82 pairs, causal 52
    call(VARLEN, (*PACKED_11, *SEQUENCES, 0.0, 1.0, False))(2 * 82 * 16, 1056, 352 + 88, "bf16"),
    call(VARLEN, (*PACKED_11, *SEQUENCES, 0.0, 1.0, True))(2 * 52 * 16, 1056, 352 + 88, "bf16"),
    # 4 heads of 6 queries: causal 21 pairs each, 11 of them in a window of one key before the query
    call(XFORMERS, (*EQUAL, *UNMASKED, 0.0, 1.0, True, -1, -1, False, None))(
        2 * 84 * 16, 1152, 384 + 96, "bf16"
    ),
    call(XFORMERS, (*EQUAL, *UNMASKED, 0.0, 1.0, True, 1, 0, False, None))(
        2 * 44 * 16, 1152, 384 + 96, "bf16"
    ),
    # without seqused_k; 12 tokens in 3 sequences of at most 4
    call(XFORMERS, (*TWELVE, *SEQUENCES, 0.0, 1.0, False, -1, -1, False))(
        2 * 96 * 16, 3 * 384, 384 + 96, "bf16"
    ),
    call(
        "xformers_flash::flash_bwd",
        (*(bf16(1, 6, 4, 8),) * 5, t(1, 4, 6), *EQUAL, *(None, None, 6, 6, 0.0, 1.0, True, -1, -1, None)),
    )(2 * 84 * 40, 5 * 384 + 96, 1152, "bf16"),
]


@pytest.mark.parametrize(("name", "arguments", "worked"), WORKED)
def test_a_cost_is_what_the_formula_gives_by_hand(
    name: str, arguments: tuple[Any, ...], worked: tuple[int, int, int, str | None]
) -> None:
    cost = cost_of(Call(name, arguments))
    assert (cost.flops, cost.read_bytes, cost.written_bytes, cost.precision) == worked


LISTS: list[tuple[str, tuple[Any, ...], str, tuple[int, int, int, str | None]]] = [
    # 7 elements of 2 bytes, read twice, written once; alpha is not 1
    ("aten::_foreach_add_", ((t(3, dtype=""), t(4, dtype="")),) * 2 + (-0.1,), FOREACH, (14, 28, 14, "fp32")),
    ("aten::_foreach_copy_", ((t(3, dtype=""),), (t(3, dtype=""),), False), FOREACH, (0, 6, 6, None)),
    (
        "aten::_amp_foreach_non_finite_check_and_unscale_",
        ((t(3, dtype=""),), t(1), t(1)),
        FOREACH,
        (6, 6 + 4, 6 + 4, "fp32"),
    ),
    ("aten::_foreach_norm", ((t(3, dtype=""),), 2), FOREACH, (6, 6, 2, "fp32")),
    # parameters, gradients, two states and a step count each: 13 and 1 with weight decay, of 5 elements
    (
        "aten::_fused_adamw_",
        ((t(5, dtype=""),),) * 4 + (None, (t(dtype=""),), 0.1, 0.9, 0.99, 0.01, 1e-8, False, False),
        ADAM,
        (70, 84, 60, "fp32"),
    ),
    # of the gradients alone: as many lists as the kernel takes, and a step count each only of its kind
    (
        "aten::_fused_adamw_",
        (None, (t(5, dtype=""),), None, None, None, None, 0.1, 0.9, 0.99, 0.01, 1e-8, False, False),
        ADAM,
        (70, 84, 60, "fp32"),
    ),
    (
        "aten::_fused_sgd_",
        (None, (t(5, dtype=""),), None, 0.0, 0.9, 0.1, 0.0, False, False, False),
        "void multi_tensor_apply_kernel<TensorListMetadata<3>, FusedSgdMathFunctor<float, 3>>",
        (20, 60, 40, "fp32"),
    ),
    ("aten::cat", ((t(2, 3, dtype=""), t(2, 1, dtype="")), 1), CAT, (0, 16, 16, None)),
]


def test_an_optimizer_of_unknown_lists_has_no_cost() -> None:
    """Its kernel does not say how many lists it takes."""
    arguments = (None, (t(5),), None, None, None, None, 0.1, 0.9, 0.99, 0.01)
    call = Call("aten::_fused_adamw_", arguments, kernels=("void adam<float>()",))
    with pytest.raises(NoModel, match="the sizes of its tensors are not recorded"):
        cost_of(call)


@pytest.mark.parametrize(("name", "arguments", "kernel", "worked"), LISTS)
def test_lists_of_tensors_have_the_type_of_their_kernel(
    name: str, arguments: tuple[Any, ...], kernel: str, worked: tuple[int, int, int, str | None]
) -> None:
    cost = cost_of(Call(name, arguments, (kernel,)))
    assert (cost.flops, cost.read_bytes, cost.written_bytes, cost.precision) == worked
    with pytest.raises(NoModel, match="element type"):
        cost_of(Call(name, arguments))


@pytest.mark.parametrize(
    ("kernel", "precision", "assumed"),
    [
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", "tf32", EMULATED),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm75", "fp32", None),
    ],
)
def test_fp32_attention_of_cutlass_is_3_of_tf32(kernel: str, precision: str, assumed: str | None) -> None:
    """144 pairs of 8 and 8; before sm80 without tensor cores."""
    query, key = t(1, 4, 6, 8), t(1, 4, 6, 8)
    arguments = (query, key, key, None, True, 0.0, False)
    cost = cost_of(Call("aten::_scaled_dot_product_efficient_attention", arguments, (kernel,)))
    assert (cost.flops, cost.precision, cost.assumes) == (2 * 144 * 16, precision, assumed)


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [
        ("ampere_sgemm_128x64_nn", "fp32"),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>", "fp32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4>", "tf32"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", "tf32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8", "fp32"),
    ],
)
def test_kernels_tell_tf32_from_fp32(kernel: str, precision: str) -> None:
    assert cost_of(Call("aten::mm", (t(2, 3), t(3, 4)), (kernel,))).precision == precision
    assert cost_of(Call("aten::mm", (bf16(2, 3), bf16(3, 4)), (kernel,))).precision == "bf16"


PACKED = i32(1, 16)
WITHOUT: list[tuple[str, tuple[Any, ...], str]] = [
    ("aten::mm", (t(2, 3), t(4, 5)), "inner sizes .* 3 and 4"),
    ("aten::mm", (t(2, 3), None), "no tensor is recorded as argument 1"),
    ("aten::mm", (t(2, 3, 4), t(4, 5)), "batch dimensions"),
    ("aten::mm", (complex64(2, 3), t(3, 5)), "complex"),
    ("aten::convolution", (IMAGE, FILTERS, None), "stride, padding and dilation are not recorded"),
    ("aten::miopen_convolution", (IMAGE, FILTERS, None), "stride is not recorded"),
    ("aten::convolution_backward", (t(1, 4, 3, 3), IMAGE, FILTERS), "which gradients"),
    (FLASH, (Q, K, K), "whether its mask is causal"),
    ("vllm::unified_attention_with_output", (Q, K, K, Q), "how many keys .* no trace records it"),
    (VARLEN, (bf16(11, 2, 8), bf16(9, 2, 8), bf16(9, 2, 8), *SEQUENCES, 0.0, 1.0, False), "differ in length"),
    ("aten::mul", (complex64(3), 2), "complex"),
    ("sage_fwd_1", (Q, K, K), "whether the mask of sage_fwd_1 is causal"),
    ("aten::where", (b8(3),), "how many elements are true"),
    ("aten::index", (t(9, 4), None), "indices of aten::index"),
    ("aten::index_put_", (t(9, 4), None, t(), False), "its one value may fill any number"),
    ("aten::masked_select", (t(9), b8(9)), "size of the result of aten::masked_select"),
    ("aten::_linalg_eigh", (t(9, 9), "L", True), "number of iterations"),
    ("aten::linalg_qr", (t(9, 9), "r"), "mode r is not modelled"),
    ("aten::upsample_nearest2d", (t(1, 1, 2, 2), None, (2.0, 2.0)), "size of its result is not recorded"),
    (FLEX, (Q, K, K, *STATISTICS, *MASKED, *MASKED, Q), r"all pairs take 4.61e\+03 FLOPs"),
    # also a mask of one block has a list of whole ones
    (FLEX, (Q, K, K, *STATISTICS, *BLOCK, *BLOCK, Q), "which blocks of keys"),
    (FLEX, (bf16(1, 6, 4, 8), K, K, *STATISTICS, *BLOCK, Q), "recorded as stored"),
    ("lu", (t(3, 3, dtype="c64"), (3, 3)), "complex numbers"),
    ("eigh", (t(3, 3), (3, 3)), "number of iterations of eigh"),
    ("ragged_dot_general", (bf16(6, 3), bf16(2, 3, 4), GROUPS), "its attributes are not recorded"),
    (XFORMERS, (*EQUAL, None, None, i32(1), 6, 6, 0.0, 1.0, True, -1, -1, False, None), "its cached keys"),
    # before it had a window: argument 10 is return_softmax
    (XFORMERS, (*TWELVE, *SEQUENCES, 0.0, 1.0, True, False), "its window is not recorded"),
    ("te_gemm", (bf16(6, 3), t(1), bf16(4, 4), (6, 4), "bf16"), "which dimensions it contracts"),
    ("aten::sum", (t(9, 4), "x", True, None), "dimensions that it reduces are not recorded"),
    ("dot_general", (t(2, 3), t(3, 4)), "its attributes are not recorded"),
    ("cholesky", (t(3, 3),), "its attributes are not recorded"),
    ("dot_product_attention_fwd", (Q, K, K, "PADDING", 0, (1, 2, 3, 4), 96), "lengths are in device memory"),
    ("reduce_sum", (t(3), "hlo", "the call of f has no cost model"), "the call of f has no cost model"),
    ("reduce_sum", (t(3), "hlo", 1), "malformed"),
    ("aten::mm", (), "a capture with record_shapes=True has them"),
    (BATCH_NORM, (t(2, 3, 4), t(3), t(3), t(3), t(3)), "whether it is in training mode"),
    ("vllm::moe_forward", (bf16(2, 4), bf16(2, 8)), "weights of its experts"),
    ("triton_poi_fused_add_embedding_1", (i64(2), t(5, 4), t(2, 4)), "one of its operands is of integers"),
    ("triton_tem_fused_bmm_3", (t(5, 2, 3), t(5, 3, 4), t(5, 2, 4)), "is a template kernel"),
    # of three square matrices every two could be meant; 3·4·4/8 is no square
    ("triton_tem_fused_mm_3", (t(2, 2), t(2, 2), t(2, 2), t(2, 2)), "which of its tensors are multiplied"),
    ("triton_tem_fused_mm_3", (t(3, 4), t(4, 1), t(2, 4)), "which of its tensors are multiplied"),
    ("aten::_cudnn_rnn", (t(5, 2, 3), None, 4, None, t(1, 2, 4), t(1, 2, 4)), "mode, sizes or number"),
    ("aten::_fft_c2c", (complex64(8), None, 0, True), "dimensions or element type"),
    (
        "fbgemm::dense_embedding_codegen_lookup_function",
        (t(60), i64(2), i32(3), 8, 6, i64(3), 5, i64(7), i64(9), 0),
        "differ in width",
    ),
    (
        "fbgemm::split_embedding_codegen_lookup_adagrad_function",
        (t(0), t(60), t(0), t(0, 0), t(2), i64(2), t(3), None, None),
        "widths of its tables are not recorded",
    ),
    ("fbgemm::permute_2D_sparse_data", (i32(3), i32(2, 5), i64(9)), "drops or repeats"),
    ("torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>", (t(8, 6),), "saved in its context"),
    ("_GroupedLinear", (bf16(6, 4), bf16(5, 3)), "weights are not recorded"),
    ("record_param_comms", (t(9),), "is communication"),
    ("_LinearBackward", (t(2, 3),), "no forward call has its sequence number"),
    ("FusedAttnFunc", (t(2, 3),), "saved in its context"),
    ("aten::add", (t(2, 3, dtype="int5"), t(2, 3)), "element size of type 'int5'"),
    ("mine::unheard_of", (t(2, 3),), "no cost model for this operator"),
    # of libraries, whose arguments disagree
    ("LigerSiLUMulFunction", (bf16(2, 3), bf16(2, 3), 0.5), "multipliers"),
    ("LigerSiLUMulFunction", (bf16(2, 3), bf16(3, 2)), "different sizes"),
    ("_C::awq_gemm", (bf16(2, 16), i32(16, 2), bf16(2, 8), PACKED), "other columns than its scales"),
    ("_C::awq_gemm", (bf16(2, 16), i32(8, 1), bf16(2, 8), PACKED), "inner sizes"),
    ("_C::marlin_gemm", (bf16(2, 16), None, PACKED, None, bf16(2, 8), PACKED), "sizes or its packed weight"),
    ("_C::marlin_gemm", (bf16(2, 16), None, PACKED, bf16(2, 8), PACKED, 7, 3, 8, 16), "not \\[3, 16\\]"),
    ("_C::marlin_gemm", (fp8(2, 16), None, PACKED, bf16(2, 8), PACKED, 7, 2, 8, 16), "type of its result"),
    ("fbgemm::bf16i4bf16_rowwise", (bf16(2, 16), i8(8, 16), bf16(2, 8)), "inner sizes"),
    ("bitsandbytes::gemv_4bit", (bf16(1, 16), i8(64, 1), None), "size of its weight"),
]


@pytest.mark.parametrize(
    ("dtype", "kernel", "precision"),
    [
        ("c10::Float8_e5m2", "nvjet_sm90_qrtst_96x128_128x7_1x2_h_bz_coopA_algo2_TNN", "fp8"),
        ("c10::BFloat16", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "bf16"),
        # bytes that hold two numbers of four bits, or what a kernel unpacks
        ("unsigned char", "nvjet_sm100_ootst_128x128_256x7_4x1_2cta_v_bx_Avec16UE4M3_Bvec16UE4M3_TNT", "fp4"),
        *(("c10::Float4_e2m1fn_x2", "unheard_of", "fp4"), ("unsigned char", "unheard_of", None)),
        ("signed char", "unheard_of", "int8"),
    ],
)
def test_a_product_is_of_the_type_its_kernel_takes(dtype: str, kernel: str, precision: str | None) -> None:
    a, b = t(2, 4, dtype=dtype), t(4, 3, dtype=dtype)
    assert cost_of(Call("aten::mm", (a, b), (kernel,))).precision == precision


FP8_PRODUCT = "nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_TNT"
BF16_PRODUCT = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
CAST = "void transformer_engine::cast_transpose_kernel<__nv_bfloat16>"


@pytest.mark.parametrize(
    ("kernels", "worked"),
    [
        # dx = dy·W and dW = dyᵀ·x, 2·2·4·3 each: dy (2, 4), x (2, 3), W (4, 3) in, the last two out
        ((CAST, BF16_PRODUCT, BF16_PRODUCT), (96, 52, 36, "bf16")),
        ((CAST, FP8_PRODUCT, FP8_PRODUCT), (96, 52, 36, "fp8")),
        # one product with its split sums: the input needs no gradient, so neither W nor dx moves
        ((FP8_PRODUCT, "void cublasLt::splitKreduce_kernel<32, 16, int>"), (48, 28, 24, "fp8")),
    ],
)
def test_gradients_of_transformer_engine_are_products_of_the_forward_calls_operands(
    kernels: tuple[str, ...], worked: tuple[int, int, int, str]
) -> None:
    weight, x = bf16(4, 3), bf16(2, 3)
    for forward in (
        Call("_Linear", (weight, x, bf16(4))),
        Call("_LayerNormLinear", (x, bf16(3), None, weight, None)),
    ):
        cost = cost_of(Call(f"{forward.name}Backward", (bf16(2, 4),), kernels, forward=forward))
        assert (cost.flops, cost.read_bytes, cost.written_bytes, cost.precision) == worked
    with pytest.raises(NoModel, match="its kernels are 0 products"):
        cost_of(Call("_LinearBackward", (bf16(2, 4),), (CAST,), forward=Call("_Linear", (weight, x, None))))


def test_both_products_of_an_mlp_of_transformer_engine() -> None:
    """x (2, 3), W₁ (8, 3), a gate halves its result, W₂ (3, 4): 2·2·(8·3 + 3·4) = 144; backward twice."""
    mlp = Call("_LayerNormMLP", (bf16(2, 3), bf16(3), bf16(3), bf16(8, 3), bf16(8), bf16(3, 4), bf16(3)))
    assert cost_of(mlp).flops == 144
    backward = Call("_LayerNormMLPBackward", (bf16(2, 3),), (FP8_PRODUCT,) * 4, forward=mlp)
    assert (cost_of(backward).flops, cost_of(backward).precision) == (288, "fp8")


def test_gradients_of_groups_of_transformer_engine() -> None:
    """6 rows of 3 and two weights (5, 3): 2·2·6·5·3; dy 60, x 36, weights 60 bytes in, x and weights out."""
    forward = Call("_GroupedLinear", (bf16(6, 3), bf16(5, 3), bf16(5, 3), bf16(5), bf16(5)))
    cost = cost_of(Call("_GroupedLinearBackward", (bf16(6, 5),), (FP8_PRODUCT,) * 4, forward=forward))
    assert (cost.flops, cost.read_bytes, cost.written_bytes, cost.precision) == (360, 156, 96, "fp8")


@pytest.mark.parametrize(("name", "arguments", "reason"), WITHOUT)
def test_what_is_not_recorded_is_a_reason(name: str, arguments: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(NoModel, match=reason):
        cost_of(Call(name, arguments))


def test_every_family_has_a_worked_call() -> None:
    worked = {name for name, *_ in (*WORKED, *LISTS, *WITHOUT)}
    with_example = {model.family for name in worked if (model := model_of(name))}
    assert with_example == {MODELS.get(name).family for name in MODELS}


@pytest.mark.parametrize(
    ("stated", "kernel", "precision"),
    [
        *(("DEFAULT", "gemm_fusion_dot_1", "tf32"), ("DEFAULT", "nvjet_sm90_sss_128x128", "tf32")),
        *(("DEFAULT", "sm80_xmma_gemm_f32f32_f32f32_f32_nn", "fp32"), ("DEFAULT", "dot.3", "fp32")),
        # kernels of AMD
        *(("DEFAULT", "gemm_fusion_dot_1.kd", "fp32"), ("DOT_BF16_BF16_F32_X3", "gemm_fusion_dot_1", "bf16")),
        *(("DOT_TF32_TF32_F32", "gemm_fusion_dot_1", "tf32"), ("", "gemm_fusion_dot_1", "fp32")),
    ],
)
def test_the_precision_of_a_compiled_product(stated: str, kernel: str, precision: str) -> None:
    """XLA's default lets fp32 be rounded to TF32; HIGHEST states nothing."""
    a, b = f32(2, 3), f32(3, 4)
    call = Call("dot_general", (a, b, (1,), (0,), (), (), "f32", stated, "fused", 0, 1, 2), (kernel,))
    assert cost_of(call).precision == precision
