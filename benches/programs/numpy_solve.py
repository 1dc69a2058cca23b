"""NumPy: linear algebra by LAPACK: a system of equations, a decomposition, singular values."""

import numpy as np

from measure import measure

DRAW = np.random.default_rng(4)
# A heavy diagonal keeps the system far from singular, so that engines agree on the digits.
A = DRAW.random((160, 160)) + 160 * np.eye(160)
B = DRAW.random((160, 8))


def work(scale):
    total = 0.0
    for _ in range(max(1, round(40 * scale))):
        x = np.linalg.solve(A, B)
        q, r = np.linalg.qr(A)
        values = np.linalg.svd(A[:80, :80], compute_uv=False)
        total += np.abs(x).sum() + np.abs(np.diag(r)).sum() + values.sum()
    return f"{total:.6e}"


measure(work)
