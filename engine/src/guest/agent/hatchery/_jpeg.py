"""A JPEG encoder for Pillow, whose own is machine code that this build lacks.

It writes baseline JPEG of 8 bits, with Huffman codes made for each picture. Pillow supports
encoders in Python for this purpose.
"""

import heapq

# The divisors at a quality of 50, for brightness and for colour: annex K of the standard.
LUMINANCE = (
    "16 11 10 16 24 40 51 61 12 12 14 19 26 58 60 55 14 13 16 24 40 57 69 56 14 17 22 29 51 87 80 62"
    " 18 22 37 56 68 109 103 77 24 35 55 64 81 104 113 92 49 64 78 87 103 121 120 101"
    " 72 92 95 98 112 100 103 99"
)
CHROMINANCE = (
    "17 18 24 47 99 99 99 99 18 21 26 66 99 99 99 99 24 26 56 99 99 99 99 99 47 66 99 99 99 99 99 99"
    + " 99" * 32
)
DEFAULT_QUALITY = 75
# The approximate number of pixels in a chunk, whose bits take a byte each while they are joined.
CHUNK_PIXELS = 1 << 20
LONGEST_CODE = 16
# The symbols that end a block and that stand for the longest run of zeroes.
END_OF_BLOCK, SIXTEEN_ZEROES = 0x00, 0xF0
# Takes the code that consists of ones, which no symbol may have.
NO_SYMBOL = 256


def adapt_pillow(module):
    image = getattr(module, "Image", None)
    if image is None or hasattr(getattr(image, "core", None), "jpeg_encoder"):
        return  # the program's own module, or a Pillow with an encoder

    class JpegEncoder(module.ImageFile.PyEncoder):
        _pushes_fd = True

        def encode(self, bufsize):
            return 0, 1, encode(image.Image()._new(self.im), *self.args)

    image.register_encoder("jpeg", JpegEncoder)


def encode(
    picture,
    rawmode,
    quality,
    is_progressive,
    smoothing,
    is_optimized,
    keeps_rgb,
    stream_type,
    dpi,
    subsampling,
    restart_blocks,
    restart_rows,
    tables,
    comment,
    extra,
    exif,
):
    """Returns the bytes of a JPEG file; the arguments are those of Pillow's own encoder."""
    import numpy

    width, height = picture.size
    if picture.mode in ("1", "L"):
        samples = numpy.asarray(picture.convert("L"))[:, :, None]
    elif picture.mode == "CMYK":
        samples = 255 - numpy.asarray(picture)
    elif keeps_rgb and picture.mode == "RGB":
        samples = numpy.asarray(picture)
    else:
        samples = numpy.asarray(picture.convert("YCbCr"))
    count = samples.shape[2]
    is_subsampled = count == 3 and not keeps_rgb
    across, down = {0: (1, 1), 1: (2, 1)}.get(subsampling, (2, 2)) if is_subsampled else (1, 1)
    divisors = quantization(numpy, tables, quality)
    of_colour = [int(is_subsampled and index > 0) for index in range(count)]

    tokens = Tokens(numpy, (across, down), divisors, of_colour)
    rows = max(1, CHUNK_PIXELS // (width * 8 * down)) * 8 * down
    for top in range(0, height, rows):
        tokens.add(samples[top : top + rows])
    codes = {name: code_of(counts) for name, counts in tokens.counts.items()}

    order = tokens.zigzag
    out = [b"\xff\xd8"]
    if count == 4 or keeps_rgb:
        out.append(segment(0xEE, b"Adobe\0\x64\0\0\0\0\0"))
    else:
        unit, density = (1, dpi) if all(dpi) else (0, (1, 1))
        words = b"".join(number.to_bytes(2, "big") for number in density)
        out.append(segment(0xE0, b"JFIF\0\1\1" + bytes([unit]) + words + b"\0\0"))
    if exif:
        out.append(segment(0xE1, exif))
    out.append(extra)
    if comment:
        out.append(segment(0xFE, comment))
    for index in sorted(set(of_colour)):
        out.append(segment(0xDB, bytes([index, *divisors[index][order].tolist()])))
    frame = b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([count])
    for index, colour in enumerate(of_colour):
        sampling = across << 4 | down if is_subsampled and not index else 0x11
        frame += bytes([index + 1, sampling, colour])
    out.append(segment(0xC0, frame))
    for (is_ac, colour), (symbols, lengths, _) in codes.items():
        per_length = [lengths.count(length) for length in range(1, LONGEST_CODE + 1)]
        out.append(segment(0xC4, bytes([is_ac << 4 | colour, *per_length, *symbols])))
    scan = bytes([count]) + b"".join(bytes([i + 1, c << 4 | c]) for i, c in enumerate(of_colour))
    out.append(segment(0xDA, scan + b"\0\x3f\0"))
    out += [tokens.bits(codes).replace(b"\xff", b"\xff\0"), b"\xff\xd9"]
    return b"".join(out)


def segment(marker, contents):
    return bytes([0xFF, marker]) + (len(contents) + 2).to_bytes(2, "big") + bytes(contents)


def quantization(numpy, tables, quality):
    """Returns the divisors of coefficients, for brightness and for colour, in natural order."""
    if quality <= 0:
        quality = 100 if tables else DEFAULT_QUALITY
    quality = min(quality, 100)
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    tables = tables or [[int(n) for n in text.split()] for text in (LUMINANCE, CHROMINANCE)]
    tables = [tables[0], tables[min(1, len(tables) - 1)]]
    scaled = (numpy.array(tables, dtype=numpy.intp) * scale + 50) // 100
    return numpy.clip(scaled, 1, 255)


def code_of(counts):
    """Returns a Huffman code for symbols with these counts.

    It consists of the symbols, the lengths of their codes, and the codes, the shortest first.
    """
    while True:
        # The rarest, so it has the longest code; being last, the one that consists of ones.
        heap = [(0, NO_SYMBOL, [NO_SYMBOL])]
        heap += [(count, symbol, [symbol]) for symbol, count in counts.items()]
        heapq.heapify(heap)
        lengths = dict.fromkeys([NO_SYMBOL, *counts], 0)
        while len(heap) > 1:
            (one, _, left), (other, tie, right) = heapq.heappop(heap), heapq.heappop(heap)
            for symbol in left + right:
                lengths[symbol] += 1
            heapq.heappush(heap, (one + other, tie, left + right))
        if max(lengths.values()) <= LONGEST_CODE:
            break
        counts = {symbol: count + 1 >> 1 for symbol, count in counts.items()}
    symbols = sorted(lengths, key=lambda symbol: (lengths[symbol], symbol))
    codes, code, before = [], 0, 0
    for symbol in symbols:
        code <<= lengths[symbol] - before
        before = lengths[symbol]
        codes.append(code)
        code += 1
    symbols.pop()
    return symbols, [lengths[symbol] for symbol in symbols], codes[:-1]


class Tokens:
    """The symbols to encode, each with the bits that follow it, in the file's order."""

    def __init__(self, numpy, sampling, divisors, of_colour):
        self._numpy, self._sampling, self._of_colour = numpy, sampling, of_colour
        angles = numpy.outer(numpy.arange(8), 2 * numpy.arange(8) + 1) * (numpy.pi / 16)
        self._cosines = (numpy.cos(angles) / 2).astype(numpy.float32)
        self._cosines[0] /= numpy.sqrt(2)
        self._divisors = divisors.reshape(2, 8, 8).astype(numpy.float32)
        diagonals = lambda at: (at // 8 + at % 8, at // 8 if (at // 8 + at % 8) % 2 else at % 8)
        self.zigzag = numpy.array(sorted(range(64), key=diagonals))
        self._last = [0] * len(of_colour)
        # The counts of symbols by kind: whether they are for varying coefficients (AC), and whether
        # they are for colour.
        self.counts = {}
        self._chunks = []

    def add(self, samples):
        """Adds rows of the picture: all that are left, or as many as make whole units."""
        numpy = self._numpy
        across, down = self._sampling
        blocks, colours = [], []
        for index, colour in enumerate(self._of_colour):
            plane = padded(numpy, samples[:, :, index], 8 * across, 8 * down).astype(numpy.float32)
            high, wide = plane.shape
            if index > 0 and self._sampling != (1, 1):
                plane = plane.reshape(high // down, down, wide // across, across).mean((1, 3))
                unit = (1, 1)
            else:
                unit = (down, across)
            blocks.append(self._units(plane - 128, unit, colour))
            colours += [colour] * (unit[0] * unit[1])
        self._difference(blocks)
        blocks = numpy.concatenate(blocks, axis=1)
        colours = numpy.tile(numpy.array(colours, dtype=numpy.intp), len(blocks))
        self._tokenize(blocks.reshape(-1, 64), colours)

    def _units(self, plane, unit, colour):
        """Returns the quantized coefficients of blocks, grouped into units."""
        numpy = self._numpy
        high, wide = plane.shape
        blocks = plane.reshape(high // 8, 8, wide // 8, 8).transpose(0, 2, 1, 3)
        blocks = self._cosines @ blocks @ self._cosines.T
        blocks = numpy.rint(blocks / self._divisors[colour]).astype(numpy.int32)
        blocks = blocks.reshape(high // 8, wide // 8, 64)[:, :, self.zigzag]
        down, across = unit
        blocks = blocks.reshape(high // 8 // down, down, wide // 8 // across, across, 64)
        return blocks.transpose(0, 2, 1, 3, 4).reshape(-1, down * across, 64)

    def _difference(self, blocks):
        """Replaces the first coefficient of each block by its difference from the one before."""
        for index, of_plane in enumerate(blocks):
            firsts = of_plane[:, :, 0].copy()
            differences = self._numpy.diff(firsts.reshape(-1), prepend=self._last[index])
            of_plane[:, :, 0] = differences.reshape(firsts.shape)
            self._last[index] = int(firsts[-1, -1])

    def _tokenize(self, blocks, colours):
        numpy = self._numpy
        block, at = numpy.nonzero(blocks[:, 1:])
        at += 1
        values = blocks[block, at]
        is_first = numpy.diff(block, prepend=-1) != 0
        zeroes = at - numpy.where(is_first, 0, numpy.roll(at, 1)) - 1
        sizes = bit_lengths(numpy, values)
        # The place of each token: a run comes before the coefficient that ends it.
        runs = zeroes >> 4
        dc = numpy.arange(len(blocks)) * 256
        dc_sizes = bit_lengths(numpy, blocks[:, 0])
        ends = dc[blocks[:, 63] == 0] + 255
        places = [dc, numpy.repeat(block * 256 + at * 2, runs), block * 256 + at * 2 + 1, ends]
        symbols = [
            dc_sizes,
            numpy.full(int(runs.sum()), SIXTEEN_ZEROES),
            (zeroes & 15) << 4 | sizes,
            numpy.full(len(ends), END_OF_BLOCK),
        ]
        none = lambda items: numpy.zeros(len(items), dtype=numpy.intp)
        bits = [ones_complement(numpy, blocks[:, 0], dc_sizes), none(symbols[1])]
        bits += [ones_complement(numpy, values, sizes), none(ends)]
        lengths = [dc_sizes, none(symbols[1]), sizes, none(ends)]
        is_ac = [none(dc)] + [none(items) + 1 for items in symbols[1:]]
        order = numpy.argsort(numpy.concatenate(places), kind="stable")
        together = lambda parts: numpy.concatenate(parts)[order]
        kinds = together(is_ac) * 2 + colours[numpy.concatenate(places)[order] >> 8]
        chunk = kinds * 256 + together(symbols), together(bits), together(lengths)
        for symbol, count in zip(*numpy.unique(chunk[0], return_counts=True)):
            kind = int(symbol) >> 9, int(symbol) >> 8 & 1
            counts = self.counts.setdefault(kind, {})
            counts[int(symbol) & 255] = counts.get(int(symbol) & 255, 0) + int(count)
        self._chunks.append(chunk)

    def bits(self, codes):
        """Returns all tokens in these codes, as bytes; the last one is padded with ones."""
        numpy = self._numpy
        code_at, length_at = numpy.zeros((2, 1024), dtype=numpy.intp)
        for (is_ac, colour), (symbols, lengths, of_symbols) in codes.items():
            places = (is_ac * 2 + colour) * 256 + numpy.array(symbols)
            code_at[places], length_at[places] = of_symbols, lengths
        pieces = []
        for symbols, bits, lengths in self._chunks:
            words = code_at[symbols] << lengths | bits
            lengths = lengths + length_at[symbols]
            ends = numpy.repeat(numpy.cumsum(lengths), lengths)
            shifts = ends - 1 - numpy.arange(len(ends))
            pieces.append((numpy.repeat(words, lengths) >> shifts & 1).astype(numpy.uint8))
        pieces.append(numpy.ones(-sum(map(len, pieces)) % 8, dtype=numpy.uint8))
        return numpy.packbits(numpy.concatenate(pieces)).tobytes()


def padded(numpy, plane, across, down):
    """Repeats the last column and row of the plane until it consists of whole units."""
    high, wide = plane.shape
    return numpy.pad(plane, ((0, -high % down), (0, -wide % across)), mode="edge")


def bit_lengths(numpy, values):
    return numpy.frexp(numpy.abs(values).astype(numpy.float64))[1].astype(numpy.intp)


def ones_complement(numpy, values, sizes):
    """Returns values in as many bits as their sizes say, negative ones less one."""
    values = values.astype(numpy.intp)
    return numpy.where(values < 0, values + (1 << sizes) - 1, values)


ADAPT = {"PIL.JpegImagePlugin": adapt_pillow}
