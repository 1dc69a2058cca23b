"""Decodes baseline JPEG as the standard describes it, to judge the encoder; not built for speed."""

import numpy as np


def read(data):
    """Returns the components of a picture, each as large as the picture."""
    assert data[:2] == b"\xff\xd8" and data[-2:] == b"\xff\xd9", "begin and end"
    quantization, codes, at = {}, {}, 2
    while True:
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        assert data[at] == 0xFF
        body, at = data[at + 4 : at + 2 + size], at + 2 + size
        if marker == 0xDB:
            quantization[body[0]] = np.array(list(body[1:65]))
        elif marker == 0xC0:
            height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
            parts = [(body[i + 1] >> 4, body[i + 1] & 15, body[i + 2]) for i in range(6, len(body), 3)]
        elif marker == 0xC4:
            codes[body[0]] = table(body[1:17], body[17:])
        elif marker == 0xDA:
            tables = [body[i] for i in range(2, 1 + 2 * body[0], 2)]
            break
    bits = Bits(data[at:-2].replace(b"\xff\0", b"\xff"))
    across, down = max(h for h, *_ in parts), max(v for _, v, _ in parts)
    wide, high = -(-width // (8 * across)), -(-height // (8 * down))
    planes = [np.zeros((high * v * 8, wide * h * 8)) for h, v, _ in parts]
    last = [0] * len(parts)
    for unit in range(wide * high):
        for index, (h, v, q) in enumerate(parts):
            for block in range(h * v):
                y, x = unit // wide * v + block // h, unit % wide * h + block % h
                here = coefficients(bits, codes[tables[index] >> 4], codes[16 | tables[index] & 15])
                here[0] = last[index] = last[index] + here[0]
                pixels = INVERSE.T @ unfold(here * quantization[q]) @ INVERSE + 128
                planes[index][y * 8 : y * 8 + 8, x * 8 : x * 8 + 8] = pixels
    larger = lambda plane, h, v: plane.repeat(down // v, 0).repeat(across // h, 1)
    planes = [larger(plane, h, v)[:height, :width] for plane, (h, v, _) in zip(planes, parts)]
    return np.stack(planes, -1).clip(0, 255)


def table(counts, symbols):
    codes, code, at = {}, 0, 0
    for length, count in enumerate(counts, 1):
        for symbol in symbols[at : at + count]:
            codes[length, code] = symbol
            code += 1
        at += count
        code <<= 1
    return codes


class Bits:
    def __init__(self, data):
        self.bits, self.at = np.unpackbits(np.frombuffer(data, np.uint8)).tolist(), 0

    def take(self, count):
        value = 0
        for bit in self.bits[self.at : self.at + count]:
            value = value << 1 | bit
        self.at += count
        return value

    def symbol(self, codes):
        code = 0
        for length in range(1, 17):
            code = code << 1 | self.take(1)
            if (length, code) in codes:
                return codes[length, code]
        raise ValueError("no such code")

    def number(self, size):
        value = self.take(size)
        return value if size == 0 or value >> size - 1 else value - (1 << size) + 1


def coefficients(bits, dc, ac):
    here, at = np.zeros(64), 1
    here[0] = bits.number(bits.symbol(dc))
    while at < 64:
        symbol = bits.symbol(ac)
        if symbol == 0:
            break
        at += symbol >> 4
        if symbol & 15:
            here[at] = bits.number(symbol & 15)
        at += 1
    return here


def unfold(row):
    block, y, x = np.zeros((8, 8)), 0, 0
    for value in row:
        block[y, x] = value
        if (x + y) % 2 == 0:
            y, x = (y + 1, x) if x == 7 else (max(y - 1, 0), x + 1)
        else:
            y, x = (y, x + 1) if y == 7 else (y + 1, max(x - 1, 0))
    return block


INVERSE = np.cos(np.outer(np.arange(8), 2 * np.arange(8) + 1) * np.pi / 16) / 2
INVERSE[0] /= np.sqrt(2)
