"""NumPy: products of matrices of doubles, on one thread."""

import numpy as np

from measure import measure

A = np.random.default_rng(1).random((200, 200))


def work(scale):
    product = A
    for _ in range(max(1, round(150 * scale))):
        product = A @ product
        product /= product.max()
    return f"{product.sum():.6e}"


measure(work)
