"""`hashlib.pbkdf2_hmac` and `hashlib.scrypt`, which CPython takes from OpenSSL: this build has none.

They compute the same, but `scrypt` is slow: 0.1 ms for each block of 64 bytes (there are 4·n·r·p).
"""

import operator
from struct import Struct

WORDS = Struct("<16I")
# The quarter-rounds of Salsa20, by columns and by rows, and how far each of their steps rotates.
QUARTERS = (0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11)
QUARTERS += (0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)
ROTATIONS = 7, 9, 13, 18
DOUBLE_ROUNDS = 4


def adapt(module):
    if not hasattr(module, "new"):
        return  # the program's own module
    for function in (functions := functions_for(module.new)):
        if not hasattr(module, function.__name__):
            setattr(module, function.__name__, function)
    if isinstance(getattr(module, "__all__", None), tuple):
        module.__all__ += tuple(f.__name__ for f in functions if f.__name__ not in module.__all__)


def functions_for(new):
    def pbkdf2_hmac(hash_name, password, salt, iterations, dklen=None):
        """Password based key derivation function 2 (PKCS #5 v2.0) with HMAC as pseudorandom function."""
        if not isinstance(hash_name, str):
            raise TypeError(f"pbkdf2_hmac() argument 'hash_name' must be str, not {type(hash_name).__name__}")
        inner, outer = new(hash_name), new(hash_name)
        password, salt = bytes(memoryview(password)), bytes(memoryview(salt))
        iterations = operator.index(iterations)
        if iterations < 1:
            raise ValueError("iteration value must be greater than 0.")
        size = inner.digest_size
        dklen = size if dklen is None else operator.index(dklen)
        if dklen < 1:
            raise ValueError("key length must be greater than 0.")
        if len(password) > inner.block_size:
            password = new(hash_name, password).digest()
        password = password.ljust(inner.block_size, b"\0")
        inner.update(password.translate(bytes(byte ^ 0x36 for byte in range(256))))
        outer.update(password.translate(bytes(byte ^ 0x5C for byte in range(256))))

        def hmac(message):
            one, other = inner.copy(), outer.copy()
            one.update(message)
            other.update(one.digest())
            return other.digest()

        key = b""
        for block in range(1, -(-dklen // size) + 1):
            last = hmac(salt + block.to_bytes(4))
            mixed = int.from_bytes(last)
            for _ in range(iterations - 1):
                last = hmac(last)
                mixed ^= int.from_bytes(last)
            key += mixed.to_bytes(size)
        return key[:dklen]

    def scrypt(password, *, salt, n, r, p, maxmem=0, dklen=64):
        """scrypt password-based key derivation function."""
        n, r, p = operator.index(n), operator.index(r), operator.index(p)
        if n < 2 or n & n - 1:
            raise ValueError("n must be a power of 2.")
        if r < 1 or p < 1 or r * p >= 1 << 30:
            raise ValueError("Invalid parameter combination for n, r, p, maxmem.")
        if not 0 <= maxmem < 1 << 31:
            raise ValueError(f"maxmem must be positive and smaller than {(1 << 31) - 1}")
        if 128 * r * (n + p + 2) > (maxmem or 32 << 20):
            raise ValueError("memory limit exceeded")
        if dklen < 1:
            raise ValueError("dklen must be greater than 0 and smaller than 2147483647")
        size = 128 * r
        mixed = pbkdf2_hmac("sha256", password, salt, 1, size * p)
        mixed = b"".join(mix(mixed[at : at + size], n) for at in range(0, size * p, size))
        return pbkdf2_hmac("sha256", password, mixed, 1, dklen)

    return pbkdf2_hmac, scrypt


def mix(block, n):
    """ROMix of RFC 7914, section 5."""
    seen, size = [], len(block)
    for _ in range(n):
        seen.append(block)
        block = mix_block(block)
    for _ in range(n):
        chosen = seen[int.from_bytes(block[-64:-60], "little") % n]
        block = (int.from_bytes(block) ^ int.from_bytes(chosen)).to_bytes(size)
        block = mix_block(block)
    return block


def mix_block(block):
    """BlockMix, section 4."""
    last = block[-64:]
    halves = [], []
    for at in range(0, len(block), 64):
        mixed = int.from_bytes(last) ^ int.from_bytes(block[at : at + 64])
        last = WORDS.pack(*salsa(*WORDS.unpack(mixed.to_bytes(64))))
        halves[at // 64 % 2].append(last)
    return b"".join(halves[0] + halves[1])


def compiled_salsa():
    """Returns Salsa20/8, section 3, without a loop over its words."""
    lines = []
    for quarter in QUARTERS:
        for step, turn in enumerate(ROTATIONS):
            to, one, other = (quarter[(step + ahead) % 4] for ahead in (1, 0, 3))
            lines.append(f"t = x{one} + x{other} & 0xffffffff; x{to} ^= t << {turn} & 0xffffffff | t >> {32 - turn}")
    names = [f"x{word}" for word in range(16)]
    given = [f"g{word}" for word in range(16)]
    source = (
        f"def salsa({', '.join(given)}):\n {', '.join(names)} = {', '.join(given)}\n"
        f" for _ in range({DOUBLE_ROUNDS}):\n  " + "\n  ".join(lines) + "\n"
        f" return {', '.join(f'x{word} + g{word} & 0xffffffff' for word in range(16))}\n"
    )
    made = {}
    exec(compile(source, mix.__code__.co_filename, "exec"), made)
    return made["salsa"]


salsa = compiled_salsa()
ADAPT = {"hashlib": adapt}
