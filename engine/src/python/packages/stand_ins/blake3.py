"""The machine code of blake3, in Python: the same digests, without its speed."""

import operator
import os

__version__ = "1.0.11"
__all__ = ["__version__", "blake3"]
_IV = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
_PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_MIXED = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
_MASK = 0xFFFFFFFF
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT, _KEYED, _CONTEXT, _MATERIAL = (1 << bit for bit in range(7))
_CHUNK_BYTES, _BLOCK_BYTES = 1024, 64


def _words(data):
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def _compress(value, block, count, length, flags):
    """Returns 16 words; the first 8 are the value to chain."""
    state = [*value, *_IV[:4], count & _MASK, count >> 32, length, flags]
    for _ in range(7):
        for (a, b, c, d), one, two in zip(_MIXED, block[::2], block[1::2]):
            for word, right, left in ((one, 16, 12), (two, 8, 7)):
                state[a] = state[a] + state[b] + word & _MASK
                turned = state[d] ^ state[a]
                state[d] = turned >> right | turned << 32 - right & _MASK
                state[c] = state[c] + state[d] & _MASK
                turned = state[b] ^ state[c]
                state[b] = turned >> left | turned << 32 - left & _MASK
        block = [block[at] for at in _PERMUTATION]
    return [a ^ b for a, b in zip(state, state[8:])] + [a ^ b for a, b in zip(state[8:], value)]


def _chunk(key, data, count, flags):
    """Returns what compresses the last block of a chunk."""
    value, start = key, _CHUNK_START
    while len(data) > _BLOCK_BYTES:
        value = _compress(value, _words(data[:_BLOCK_BYTES]), count, _BLOCK_BYTES, flags | start)[:8]
        data, start = data[_BLOCK_BYTES:], 0
    return value, _words(data.ljust(_BLOCK_BYTES, b"\0")), count, len(data), flags | start | _CHUNK_END


class blake3:
    AUTO = -1
    block_size, digest_size, key_size, name = _BLOCK_BYTES, 32, 32, "blake3"
    __module__ = "blake3.blake3"

    def __init__(self, data=b"", /, *, key=None, derive_key_context=None, max_threads=1, usedforsecurity=True):
        if max_threads < 1 and max_threads != self.AUTO:
            raise ValueError("not a valid number of threads")
        self._key, self._flags = _IV, 0
        if key is not None:
            key = _bytes(key)
            if len(key) != 32:
                raise ValueError(f"expected a 32-byte key, found {len(key)}")
            if derive_key_context is not None:
                raise ValueError("cannot use key and derive_key_context at the same time")
            self._key, self._flags = _words(key), _KEYED
        elif derive_key_context is not None:
            if not isinstance(derive_key_context, str):
                raise TypeError(f"'{type(derive_key_context).__name__}' object is not an instance of 'str'")
            context = blake3(derive_key_context.encode())
            context._flags = _CONTEXT
            self._key, self._flags = _words(context.digest()), _MATERIAL
        self.reset()
        self.update(data)

    def reset(self):
        # The values of whole subtrees, from the left, and what comes after them.
        self._subtrees, self._chunks, self._rest = [], 0, b""

    def update(self, data, /):
        self._rest += _bytes(data)
        while len(self._rest) > _CHUNK_BYTES:
            chunk, self._rest = self._rest[:_CHUNK_BYTES], self._rest[_CHUNK_BYTES:]
            value = _compress(*_chunk(self._key, chunk, self._chunks, self._flags))[:8]
            self._chunks += 1
            whole = self._chunks
            while not whole & 1:
                value, whole = _compress(*self._parent(self._subtrees.pop(), value))[:8], whole >> 1
            self._subtrees.append(value)
        return self

    def update_mmap(self, path):
        with open(os.fspath(path), "rb") as file:
            return self.update(file.read())

    def _parent(self, left, right):
        return self._key, left + right, 0, _BLOCK_BYTES, self._flags | _PARENT

    def copy(self):
        copy = blake3.__new__(blake3)
        vars(copy).update(vars(self), _subtrees=self._subtrees[:])
        return copy

    def digest(self, length=32, *, seek=0):
        length, seek = operator.index(length), operator.index(seek)
        if length < 0 or seek < 0:
            raise OverflowError("can't convert negative int to unsigned")
        output = _chunk(self._key, self._rest, self._chunks, self._flags)
        for left in reversed(self._subtrees):
            output = self._parent(left, _compress(*output)[:8])
        value, block, _, size, flags = output
        first, last = seek // _BLOCK_BYTES, -(-(seek + length) // _BLOCK_BYTES)
        words = (word for at in range(first, last) for word in _compress(value, block, at, size, flags | _ROOT))
        begin = seek - first * _BLOCK_BYTES
        return b"".join(word.to_bytes(4, "little") for word in words)[begin : begin + length]

    def hexdigest(self, length=32, *, seek=0):
        return self.digest(length, seek=seek).hex()


def _bytes(data):
    try:
        return bytes(memoryview(data).cast("B"))
    except TypeError:
        raise TypeError(f"a bytes-like object is required, not '{type(data).__name__}'") from None
