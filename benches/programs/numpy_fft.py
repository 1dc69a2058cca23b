"""NumPy: Fourier transforms, of real and complex signals, and a filter."""

import numpy as np

from measure import measure

SIGNAL = np.random.default_rng(5).random(1 << 16)
ROWS = SIGNAL.reshape(64, 1024)


def work(scale):
    total = 0.0
    for _ in range(max(1, round(40 * scale))):
        spectrum = np.fft.rfft(SIGNAL)
        spectrum[4_096:] = 0
        smooth = np.fft.irfft(spectrum)
        total += np.abs(np.fft.fft(ROWS, axis=1)[:, 1]).sum() + smooth.std()
    return f"{total:.6e}"


measure(work)
