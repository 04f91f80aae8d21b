# SPDX-License-Identifier: Apache-2.0
"""Factorisations of matrices and solutions of systems of equations.

FLOPs are the leading terms of LAPACK's counts (LAPACK Working Note 41, appendix C); B is the batch, m and n
are rows and columns, k the smaller and l the larger of the two.
"""

from __future__ import annotations

import math

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import matrix_precision

FAMILY = "linear algebra"


def matrix_sizes(a: Tensor) -> tuple[int, int, int]:
    """Batch, rows and columns."""
    *batch, rows, columns = a.shape
    return math.prod(batch), rows, columns


def triangle(a: Tensor) -> Tensor:
    """The elements of one triangle of a square matrix, with its diagonal."""
    batch, n, _ = matrix_sizes(a)
    return Tensor((batch, n * (n + 1) // 2), a.dtype)


def solved_cost(call: Call, factor: Tensor, b: Tensor, *others: Tensor, passes: int, left: object) -> Cost:
    """Cost of `passes` solutions with an n by n triangle for each column (`left` false: row) of b."""
    if left not in (True, False):
        raise NoModel("on which side its matrix stands is not recorded")
    _, n, _ = matrix_sizes(factor)
    if b.shape[-2 if left else -1] != n:
        raise NoModel("the sizes of its operands do not fit")
    return Cost.from_tensors(
        flops=passes * n * b.elements,
        precision=matrix_precision(call, b),
        reads=(triangle(factor) if passes == 1 else factor, b, *others),
        writes=(Tensor(b.shape, b.dtype),),
    )


@cost_model(FAMILY, r"aten::linalg_cholesky_ex", r"aten::_?cholesky")
def cholesky(call: Call) -> Cost:
    """The triangle L with L·Lᵀ = A.

    FLOPs: B·n³/3
    Bytes: a triangle of the matrix; the result, whole
    Source: native_functions.yaml: linalg_cholesky_ex(self, upper, check_errors); LAPACK potrf
    """
    a = call.tensor(0)
    batch, n, _ = matrix_sizes(a)
    return Cost.from_tensors(
        flops=batch * n**3 // 3,
        precision=matrix_precision(call, a),
        reads=(triangle(a),),
        writes=(Tensor(a.shape, a.dtype),),
    )


@cost_model(FAMILY, r"aten::linalg_lu_factor_ex", r"aten::_lu_with_info")
def lu_factorisation(call: Call) -> Cost:
    """The triangles L and U with P·L·U = A, and the rows' exchanges.

    FLOPs: B·(l·k² − k³/3)
    Bytes: the matrix; the triangles in its place, k pivots in int32
    Source: native_functions.yaml: linalg_lu_factor_ex(A, pivot, check_errors); LAPACK getrf
    """
    a = call.tensor(0)
    batch, rows, columns = matrix_sizes(a)
    k, larger = min(rows, columns), max(rows, columns)
    return Cost.from_tensors(
        flops=batch * (3 * larger * k**2 - k**3) // 3,
        precision=matrix_precision(call, a),
        reads=(a,),
        writes=(Tensor(a.shape, a.dtype), Tensor((batch, k), "int32")),
    )


@cost_model(FAMILY, r"aten::linalg_lu_solve", r"aten::(?:lu_solve|_lu_solve_helper)")
def lu_solution(call: Call) -> Cost:
    """The solution of A·X = B from the triangles of A (elsewhere the triangles' solutions in it are counted).

    FLOPs: 2·n an element of B
    Bytes: triangles, pivots, B; X
    Source: native_functions.yaml: linalg_lu_solve(LU, pivots, B, left, adjoint); LAPACK getrs
    Tested: no trace
    """
    if "linalg" in call.name:
        factor, pivots, b, left = call.tensor(0), call.tensor(1), call.tensor(2), call.value(3)
        return solved_cost(call, factor, b, pivots, passes=2, left=left)
    return solved_cost(call, call.tensor(1), call.tensor(0), call.tensor(2), passes=2, left=True)


@cost_model(FAMILY, r"aten::linalg_solve_triangular")
def triangular_solution(call: Call) -> Cost:
    """The solution of A·X = B for a triangle A.

    FLOPs: n an element of B
    Bytes: the triangle, B; X
    Source: native_functions.yaml: linalg_solve_triangular(self, B, upper, left, unitriangular); BLAS trsm
    """
    return solved_cost(call, call.tensor(0), call.tensor(1), passes=1, left=call.value(3))


@cost_model(FAMILY, r"aten::_cholesky_solve_helper")
def cholesky_solution(call: Call) -> Cost:
    """The solution of A·X = B from A's Cholesky triangle.

    FLOPs: 2·n an element of B
    Bytes: the triangle, B; X
    Source: native_functions.yaml: _cholesky_solve_helper(self, A, upper); LAPACK potrs
    Tested: no trace
    """
    return solved_cost(call, call.tensor(1), call.tensor(0), passes=2, left=True)


def reflections_cost(call: Call) -> Cost:
    """Cost of the triangle R and of the reflections whose product is Q, in the place of the matrix."""
    a = call.tensor(0)
    batch, rows, columns = matrix_sizes(a)
    k, larger = min(rows, columns), max(rows, columns)
    return Cost.from_tensors(
        flops=batch * (6 * larger * k**2 - 2 * k**3) // 3,
        precision=matrix_precision(call, a),
        reads=(a,),
        writes=(Tensor(a.shape, a.dtype), Tensor((batch, k), a.dtype)),
    )


def orthonormal_columns_cost(call: Call) -> Cost:
    """Cost of the m by n matrix Q from k reflections and their factors."""
    a, factors = call.tensor(0), call.tensor(1)
    batch, m, n = matrix_sizes(a)
    k = factors.shape[-1]
    return Cost.from_tensors(
        flops=batch * (12 * m * n * k - 6 * (m + n) * k**2 + 4 * k**3) // 3,
        precision=matrix_precision(call, a),
        reads=(a, factors),
        writes=(Tensor(a.shape, a.dtype),),
    )


@cost_model(FAMILY, r"aten::linalg_qr")
def qr_factorisation(call: Call) -> Cost:
    """Orthonormal columns Q and a triangle R with Q·R = A.

    FLOPs: B·(2·l·k² − 2·k³/3) for R, and B·(2·m·k² − 2·k³/3) to form Q
    Bytes: the matrix; Q (m, k), the triangle R
    Source: native_functions.yaml: linalg_qr(A, mode); LAPACK geqrf and orgqr
    """
    a, mode = call.tensor(0), call.value(1)
    if mode not in (None, "reduced"):
        raise NoModel(f"a QR factorisation of mode {mode} is not modelled")
    batch, rows, columns = matrix_sizes(a)
    k, larger = min(rows, columns), max(rows, columns)
    return Cost.from_tensors(
        flops=batch * (2 * (larger + rows) * k**2 * 3 - 4 * k**3) // 3,
        precision=matrix_precision(call, a),
        reads=(a,),
        writes=(
            Tensor((batch, rows, k), a.dtype),
            Tensor((batch, k * (k + 1) // 2 + k * (columns - k)), a.dtype),
        ),
        assumes=None if mode else "its mode, which is not recorded, is reduced",
    )


@cost_model(FAMILY, r"aten::_?linalg_(?:eigh?|eigvalsh?|svd\w*)", r"aten::_linalg_(?:eigh|eigvals|svd)")
def iterative_factorisation(call: Call) -> Cost:
    """Eigenvalues and singular values, by iterations whose number depends on the matrix.

    FLOPs: none stated
    Bytes: none stated
    Source: LAPACK syevd, gesdd
    Tested: no trace
    """
    raise NoModel(f"the number of iterations of {call.name} depends on the values of its matrix")
