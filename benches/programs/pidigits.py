"""Large integers: the digits of pi, one after another."""

from measure import measure


def digits():
    """Yield the digits by a continued fraction in integers."""
    q, r, t, k, digit, x = 1, 0, 1, 1, 3, 3
    while True:
        if 4 * q + r - t < digit * t:
            yield digit
            q, r, digit = 10 * q, 10 * (r - digit * t), (10 * (3 * q + r)) // t - 10 * digit
        else:
            q, r, t, k, digit, x = (
                q * k,
                (2 * q + r) * x,
                t * x,
                k + 1,
                (q * (7 * k + 2) + r * x) // (t * x),
                x + 2,
            )


def work(scale):
    count = max(1, round(1_400 * scale**0.5))
    checksum = 0
    for place, digit in zip(range(count), digits()):
        checksum = (checksum * 31 + digit + place) % 1_000_000_007
    return checksum


measure(work)
