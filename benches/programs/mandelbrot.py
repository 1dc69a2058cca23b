"""Complex arithmetic in a tight loop: points of the Mandelbrot set on a grid."""

from measure import measure


def steps(c, most):
    z = 0j
    for step in range(most):
        if z.real * z.real + z.imag * z.imag > 4.0:
            return step
        z = z * z + c
    return most


def work(scale):
    side = max(2, round(170 * scale**0.5))
    total = 0
    for row in range(side):
        for column in range(side):
            total += steps(complex(-2.0 + 2.5 * column / side, -1.25 + 2.5 * row / side), 60)
    return total


measure(work)
