"""The machine code of cryptography, in Python, as far as it is here: hashes, HMAC, PBKDF2, Scrypt, HKDF,
AES in the modes ECB, CBC, CTR and GCM, and padding, which is what Fernet needs. What isn't here can be
imported, and is an `UnsupportedAlgorithm` when it is called.

None of it hides its timing.
"""

import enum
import hashlib
import hmac
import os
import types

__version__ = "50.0.2"


class _Lacking(type):
    """Something that is machine code: a class without instances, whose parts are the same."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _lacking(f"{cls.__name__}.{name}")

    def __call__(cls, *arguments, **named):
        raise _unsupported(f"{cls.__name__} is machine code, which the sandbox can't run")


def _lacking(name):
    return _Lacking(name, (), {"__module__": __name__})


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _lacking(name)


class _Part(types.ModuleType):
    """A module of this one, which lacks what it isn't made with."""

    def __init__(self, name, **contents):
        super().__init__(f"{__name__}.{name}")
        self.__dict__.update(contents)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _lacking(f"{self.__name__.removeprefix(__name__ + '.')}.{name}")


_REASONS = (
    "BACKEND_MISSING_INTERFACE UNSUPPORTED_HASH UNSUPPORTED_CIPHER UNSUPPORTED_PADDING UNSUPPORTED_MGF"
    " UNSUPPORTED_PUBLIC_KEY_ALGORITHM UNSUPPORTED_ELLIPTIC_CURVE UNSUPPORTED_SERIALIZATION UNSUPPORTED_X509"
    " UNSUPPORTED_EXCHANGE_ALGORITHM UNSUPPORTED_DIFFIE_HELLMAN UNSUPPORTED_MAC"
)
_Reasons = enum.Enum("_Reasons", _REASONS, module="cryptography.hazmat.bindings._rust.exceptions", start=0)
exceptions = _Part("exceptions", _Reasons=_Reasons)


class _Choice(enum.Enum):
    def __repr__(self):
        return str(self)


Encoding = _Choice("Encoding", "PEM DER OpenSSH Raw X962 SMIME", module=__name__)
PrivateFormat = _Choice("PrivateFormat", "PKCS8 TraditionalOpenSSL Raw OpenSSH PKCS12", module=__name__)
PublicFormat = _Choice(
    "PublicFormat", "SubjectPublicKeyInfo PKCS1 OpenSSH Raw CompressedPoint UncompressedPoint", module=__name__
)
ParameterFormat = _Choice("ParameterFormat", "PKCS3", module=__name__)


def _unsupported(message, reason=None):
    from cryptography.exceptions import UnsupportedAlgorithm

    return UnsupportedAlgorithm(message, reason)


def _finalized():
    from cryptography.exceptions import AlreadyFinalized

    return AlreadyFinalized("Context was already finalized.")


def _bytes(data):
    try:
        return bytes(memoryview(data).cast("B"))
    except TypeError:
        hint = "\nDid you mean to pass a bytestring instead?" if isinstance(data, str) else ""
        raise TypeError(f'Cannot convert "{type(data)}" instance to a buffer.{hint}') from None


def _check_types(**values):
    """Checks what has to be bytes, and sizes, which are a machine's unsigned integers."""
    for name, value in values.items():
        if isinstance(value, str) or not hasattr(value, "__index__") and not isinstance(value, bytes):
            kind = type(value).__name__
            if name in ("salt", "signature"):
                raise TypeError(f"'{kind}' object is not an instance of 'bytes'")
            raise TypeError(f"'{kind}' object cannot be interpreted as an integer")
        if not isinstance(value, bytes) and value < 0:
            raise OverflowError("can't convert negative int to unsigned")


class ObjectIdentifier:
    __slots__ = ("dotted_string",)

    def __init__(self, value):
        self.dotted_string = value

    @property
    def _name(self):
        from cryptography.hazmat._oid import _OID_NAMES

        return _OID_NAMES.get(self, "Unknown OID")

    def __eq__(self, other):
        return isinstance(other, ObjectIdentifier) and self.dotted_string == other.dotted_string

    def __hash__(self):
        return hash(self.dotted_string)

    def __repr__(self):
        return f"<ObjectIdentifier(oid={self.dotted_string}, name={self._name})>"


# Hashes


def _name_of(algorithm, error=None):
    """Returns hashlib's name of an algorithm."""
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

    if not isinstance(algorithm, HashAlgorithm):
        raise TypeError("Expected instance of hashes.HashAlgorithm.")
    name = algorithm.name.replace("-", "_") if algorithm.name.startswith("sha3") else algorithm.name
    if name not in hashlib.algorithms_guaranteed or name.startswith("shake"):
        raise _unsupported(
            f"{algorithm.name} is not a supported hash on this backend.", _Reasons.UNSUPPORTED_HASH
        )
    return name


def hash_supported(algorithm):
    return algorithm.name.replace("-", "_") in hashlib.algorithms_guaranteed


class _Context:
    """A hash or a message authentication code that takes data until it is finalized."""

    def __init__(self, algorithm, context):
        self.algorithm, self._context = algorithm, context

    def _open(self):
        if self._context is None:
            raise _finalized()
        return self._context

    def update(self, data):
        self._open().update(_bytes(data))

    def finalize(self):
        digest, self._context = self._open().digest(), None
        return digest

    def copy(self):
        copy = object.__new__(type(self))
        _Context.__init__(copy, self.algorithm, self._open().copy())
        return copy


class Hash(_Context):
    def __init__(self, algorithm, backend=None):
        super().__init__(algorithm, hashlib.new(_name_of(algorithm)))

    @staticmethod
    def hash(algorithm, data):
        return hashlib.new(_name_of(algorithm), _bytes(data)).digest()


class HMAC(_Context):
    def __init__(self, key, algorithm, backend=None):
        super().__init__(algorithm, hmac.new(_bytes(key), None, _name_of(algorithm)))

    def verify(self, signature):
        from cryptography.exceptions import InvalidSignature

        _check_types(signature=signature)
        if not hmac.compare_digest(self.finalize(), signature):
            raise InvalidSignature("Signature did not match digest.")


# Keys


class _Derivation:
    """Derives one key."""

    _used = False

    def derive(self, key_material):
        if self._used:
            raise _finalized()
        self._used = True
        return self._derived(_bytes(key_material)) if self._length else b""

    def derive_into(self, key_material, buffer):
        view = memoryview(buffer).cast("B")
        if len(view) != self._length:
            raise ValueError(f"buffer must be {self._length} bytes")
        view[:] = self.derive(key_material)
        return self._length

    def verify(self, key_material, expected_key):
        from cryptography.exceptions import InvalidKey

        if not hmac.compare_digest(self.derive(key_material), expected_key):
            raise InvalidKey("Keys do not match.")


class PBKDF2HMAC(_Derivation):
    def __init__(self, algorithm, length, salt, iterations, backend=None):
        try:
            self._hash = _name_of(algorithm)
        except Exception as error:
            if isinstance(error, TypeError):
                raise
            text = f"{algorithm.name} is not supported for PBKDF2."
            raise _unsupported(text, _Reasons.UNSUPPORTED_HASH) from None
        _check_types(length=length, salt=salt, iterations=iterations)
        if iterations < 1:
            raise ValueError("iterations must be greater than or equal to 1.")
        self._length, self._salt, self._iterations = length, salt, iterations

    def _derived(self, key):
        return hashlib.pbkdf2_hmac(self._hash, key, self._salt, self._iterations, self._length)


class Scrypt(_Derivation):
    def __init__(self, salt, length, n, r, p, backend=None):
        _check_types(salt=salt, length=length, n=n, r=r, p=p)
        if n < 2 or n & n - 1:
            raise ValueError("n must be greater than 1 and be a power of 2.")
        if r < 1:
            raise ValueError("r must be greater than or equal to 1.")
        if p < 1:
            raise ValueError("p must be greater than or equal to 1.")
        self._length, self._sizes = length, {"salt": salt, "n": n, "r": r, "p": p}

    def _derived(self, key):
        return hashlib.scrypt(key, **self._sizes, maxmem=2**31 - 1, dklen=self._length)


class HKDFExpand(_Derivation):
    def __init__(self, algorithm, length, info, backend=None):
        self._hash, self._length, self._info = _name_of(algorithm), length, info or b""
        if length > 255 * algorithm.digest_size:
            raise ValueError(f"Cannot derive keys larger than {255 * algorithm.digest_size} octets.")

    def _derived(self, key):
        key_bytes, block, count = b"", b"", 0
        while len(key_bytes) < self._length:
            count += 1
            block = hmac.digest(key, block + self._info + bytes([count]), self._hash)
            key_bytes += block
        return key_bytes[: self._length]


class HKDF(HKDFExpand):
    def __init__(self, algorithm, length, salt, info, backend=None):
        super().__init__(algorithm, length, info)
        self._algorithm, self._salt = algorithm, salt

    @staticmethod
    def extract(algorithm, salt, key_material):
        return hmac.digest(salt or bytes(algorithm.digest_size), _bytes(key_material), _name_of(algorithm))

    def _derived(self, key):
        return super()._derived(self.extract(self._algorithm, self._salt, key))


# AES


def _times_two(byte):
    return byte << 1 ^ (0x11B if byte & 0x80 else 0)


def _tables():
    """Returns the substitution of bytes, its inverse, and one round of each for one byte as a word."""
    logs, powers, value = [0] * 256, [], 1
    for exponent in range(255):
        logs[value] = exponent
        powers.append(value)
        value ^= _times_two(value)

    def times(a, b):
        return powers[(logs[a] + logs[b]) % 255] if a and b else 0

    there = [0x63] * 256
    for byte in range(1, 256):
        inverse = powers[-logs[byte] % 255] * 0x101
        for shift in range(5):
            there[byte] ^= inverse >> 8 - shift & 0xFF
    back = [there.index(byte) for byte in range(256)]
    encrypt, decrypt = (
        [sum(times(box[byte], factor) << 24 - 8 * at for at, factor in enumerate(column)) for byte in range(256)]
        for box, column in ((there, (2, 1, 1, 3)), (back, (14, 9, 13, 11)))
    )
    return there, back, *([[word >> 8 * n | word << 32 - 8 * n & 0xFFFFFFFF for word in table] for n in range(4)]
                          for table in (encrypt, decrypt))


_THERE, _BACK, _ENCRYPT, _DECRYPT = _tables()


class _AES:
    """AES with one key, block by block."""

    def __init__(self, key):
        words = [int.from_bytes(key[at : at + 4]) for at in range(0, len(key), 4)]
        size, constant = len(words), 1
        for at in range(size, 4 * (size + 7)):
            word = words[-1]
            if at % size == 0:
                word = self._substituted(word << 8 & 0xFFFFFFFF | word >> 24) ^ constant << 24
                constant = _times_two(constant)
            elif size > 6 and at % size == 4:
                word = self._substituted(word)
            words.append(words[-size] ^ word)
        self._keys = [words[at : at + 4] for at in range(0, len(words), 4)]
        self._back_keys = [self._keys[-1], *(
            [self._mixed(word) for word in key] for key in self._keys[-2:0:-1]
        ), self._keys[0]]

    @staticmethod
    def _substituted(word):
        return int.from_bytes(_THERE[byte] for byte in word.to_bytes(4))

    @staticmethod
    def _mixed(word):
        a, b, c, d = word.to_bytes(4)
        zero, one, two, three = _DECRYPT
        return zero[_THERE[a]] ^ one[_THERE[b]] ^ two[_THERE[c]] ^ three[_THERE[d]]

    def encrypt(self, block):
        return self._run(block, self._keys, _ENCRYPT, _THERE, 1)

    def decrypt(self, block):
        return self._run(block, self._back_keys, _DECRYPT, _BACK, 3)

    @staticmethod
    def _run(block, keys, tables, box, step):
        """Shifts rows by `step` columns, which is 1 there and 3 back."""
        whole = int.from_bytes(block)
        first = keys[0]
        a, b, c, d = (whole >> 96) ^ first[0], whole >> 64 & 0xFFFFFFFF, whole >> 32 & 0xFFFFFFFF, whole & 0xFFFFFFFF
        words = [a, b ^ first[1], c ^ first[2], d ^ first[3]]
        zero, one, two, three = tables
        for key in keys[1:-1]:
            words = [
                zero[words[at] >> 24] ^ one[words[at + step & 3] >> 16 & 0xFF]
                ^ two[words[at + 2 & 3] >> 8 & 0xFF] ^ three[words[at - step & 3] & 0xFF] ^ key[at]
                for at in (0, 1, 2, 3)
            ]
        return b"".join(
            (
                (box[words[at] >> 24] << 24 | box[words[at + step & 3] >> 16 & 0xFF] << 16
                 | box[words[at + 2 & 3] >> 8 & 0xFF] << 8 | box[words[at - step & 3] & 0xFF]) ^ keys[-1][at]
            ).to_bytes(4)
            for at in (0, 1, 2, 3)
        )


def _xor(one, other):
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))


class CipherContext:
    """Takes whole blocks at a time, and keeps the rest of the data until it has them."""

    def __init__(self, cipher, encrypts, last=b""):
        self._cipher, self._encrypts, self._last, self._rest = cipher, encrypts, last, b""

    def update(self, data):
        if self._rest is None:
            raise _finalized()
        data = self._rest + _bytes(data)
        end = len(data) // self._block_bytes * self._block_bytes
        self._rest = data[end:]
        size = self._block_bytes
        return b"".join(self._turned(data[at : at + size]) for at in range(0, end, size))

    _block_bytes = 16

    def update_into(self, data, buf):
        least = len(data) + self._block_bytes - 1
        if len(buf) < least:
            raise ValueError(f"buffer must be at least {least} bytes for this payload")
        result = self.update(data)
        memoryview(buf).cast("B")[: len(result)] = result
        return len(result)

    def finalize(self):
        if self._rest is None:
            raise _finalized()
        if self._rest:
            raise ValueError("The length of the provided data is not a multiple of the block length.")
        self._rest = None
        return b""

    def reset_nonce(self, nonce):
        text = "This algorithm or mode does not support resetting the nonce."
        raise _unsupported(text, _Reasons.UNSUPPORTED_CIPHER)

    def _turned(self, block):
        return self._cipher.encrypt(block) if self._encrypts else self._cipher.decrypt(block)


class _CBC(CipherContext):
    def _turned(self, block):
        if self._encrypts:
            self._last = self._cipher.encrypt(_xor(block, self._last))
            return self._last
        last, self._last = self._last, block
        return _xor(self._cipher.decrypt(block), last)


class _CTR(CipherContext):
    """Data is combined with encrypted counts: all 16 bytes count, or in GCM 4."""

    _count_bits, _stream = 128, b""

    def update(self, data):
        if self._rest is None:
            raise _finalized()
        data = _bytes(data)
        stream = [self._stream]
        for _ in range(-(-max(0, len(data) - len(self._stream)) // 16)):
            stream.append(self._cipher.encrypt(self._last))
            count, mask = int.from_bytes(self._last), (1 << self._count_bits) - 1
            self._last = (count & ~mask | count + 1 & mask).to_bytes(16)
        stream = b"".join(stream)
        self._stream = stream[len(data) :]
        return _xor(data, stream[: len(data)])

    def reset_nonce(self, nonce):
        if len(nonce) != 16:
            raise ValueError("Nonce must be 16 bytes long")
        self._last, self._stream = _bytes(nonce), b""


class _GCM(_CTR):
    _count_bits, _given, _text, _begun = 32, b"", b"", False

    def __init__(self, cipher, encrypts, nonce, tag=None, least_tag_bytes=16):
        self._tag, self._least = tag, least_tag_bytes
        key = int.from_bytes(cipher.encrypt(bytes(16)))
        self._multiples = []
        for _ in range(128):
            self._multiples.append(key)
            key = key >> 1 ^ (0xE1 << 120 if key & 1 else 0)
        count = nonce + b"\0\0\0\1" if len(nonce) == 12 else self._hashed(b"", nonce)
        super().__init__(cipher, encrypts, count)
        self._mask = super().update(bytes(16))

    def _hashed(self, *parts):
        padded = b"".join(part + bytes(-len(part) % 16) for part in parts)
        padded += b"".join((8 * len(part)).to_bytes(8) for part in parts)
        value = 0
        for at in range(0, len(padded), 16):
            value ^= int.from_bytes(padded[at : at + 16])
            product = 0
            for multiple in self._multiples:
                if value >> 127:
                    product ^= multiple
                value = value << 1 & (1 << 128) - 1
            value = product
        return value.to_bytes(16)

    def authenticate_additional_data(self, data):
        if self._rest is None:
            raise _finalized()
        if self._begun:
            from cryptography.exceptions import AlreadyUpdated

            raise AlreadyUpdated("Update has been called on this context.")
        self._given += _bytes(data)

    def update(self, data):
        result, self._begun = super().update(data), True
        self._text += result if self._encrypts else _bytes(data)
        return result

    def finalize(self):
        super().finalize()
        tag = _xor(self._hashed(self._given, self._text), self._mask)
        if self._encrypts:
            self._tag = tag
        elif self._tag is None:
            raise ValueError("Authentication tag must be provided when decrypting.")
        elif not hmac.compare_digest(tag[: len(self._tag)], self._tag):
            from cryptography.exceptions import InvalidTag

            raise InvalidTag()
        return b""


class AEADEncryptionContext(_GCM):
    @property
    def tag(self):
        if self._tag is None:
            from cryptography.exceptions import NotYetFinalized

            raise NotYetFinalized("You must finalize encryption before getting the tag.")
        return self._tag


class AEADDecryptionContext(_GCM):
    def finalize_with_tag(self, tag):
        if len(tag) < self._least:
            raise ValueError(f"Authentication tag must be {self._least} bytes or longer.")
        if len(tag) > 16:
            raise ValueError("Authentication tag cannot be more than 16 bytes.")
        self._tag = tag
        return self.finalize()


def cipher_supported(algorithm, mode):
    return algorithm.name == "AES" and getattr(mode, "name", None) in ("ECB", "CBC", "CTR", "GCM")


def _cipher_context(algorithm, mode, encrypts):
    if not cipher_supported(algorithm, mode):
        what = f"cipher {algorithm.name} in {mode.name if mode else mode} mode is not supported "
        raise _unsupported(what + "by this backend." * bool(mode), _Reasons.UNSUPPORTED_CIPHER)
    cipher = _AES(_bytes(algorithm.key))
    if mode.name == "GCM":
        kind = AEADEncryptionContext if encrypts else AEADDecryptionContext
        return kind(cipher, encrypts, _bytes(mode.initialization_vector), mode.tag, mode._min_tag_length)
    if mode.name == "ECB":
        return CipherContext(cipher, encrypts)
    if mode.name == "CBC":
        return _CBC(cipher, encrypts, _bytes(mode.initialization_vector))
    return _CTR(cipher, encrypts, _bytes(mode.nonce))


def create_encryption_ctx(algorithm, mode):
    return _cipher_context(algorithm, mode, True)


def create_decryption_ctx(algorithm, mode):
    return _cipher_context(algorithm, mode, False)


class AESGCM:
    def __init__(self, key):
        if len(key) not in (16, 24, 32):
            raise ValueError("AESGCM key must be 128, 192, or 256 bits.")
        self._cipher = _AES(_bytes(key))

    @staticmethod
    def generate_key(bit_length):
        if bit_length not in (128, 192, 256):
            raise ValueError("bit_length must be 128, 192, or 256")
        return os.urandom(bit_length // 8)

    def _context(self, encrypts, nonce, associated_data, tag=None):
        if not 8 <= len(nonce) <= 128:
            raise ValueError("Nonce must be between 8 and 128 bytes")
        kind = AEADEncryptionContext if encrypts else AEADDecryptionContext
        context = kind(self._cipher, encrypts, _bytes(nonce), tag)
        context.authenticate_additional_data(associated_data or b"")
        return context

    def encrypt(self, nonce, data, associated_data):
        context = self._context(True, nonce, associated_data)
        text = context.update(data) + context.finalize()
        return text + context.tag

    def decrypt(self, nonce, data, associated_data):
        data = _bytes(data)
        if len(data) < 16:
            from cryptography.exceptions import InvalidTag

            raise InvalidTag()
        context = self._context(False, nonce, associated_data, data[-16:])
        return context.update(data[:-16]) + context.finalize()


# Padding


class PKCS7PaddingContext:
    def __init__(self, block_size):
        self._size, self._bytes = block_size // 8, 0

    def _check(self):
        if self._bytes is None:
            raise _finalized()

    def update(self, data):
        self._check()
        data = _bytes(data)
        self._bytes += len(data)
        return data

    def finalize(self):
        self._check()
        count, self._bytes = self._size - self._bytes % self._size, None
        return self._filled(count)

    @staticmethod
    def _filled(count):
        return bytes([count]) * count


class ANSIX923PaddingContext(PKCS7PaddingContext):
    @staticmethod
    def _filled(count):
        return bytes(count - 1) + bytes([count])


class PKCS7UnpaddingContext:
    """Keeps the last whole block, which may be padding."""

    _padded = PKCS7PaddingContext

    def __init__(self, block_size):
        self._size, self._data = block_size // 8, b""

    def update(self, data):
        if self._data is None:
            raise _finalized()
        data = self._data + _bytes(data)
        end = max(0, len(data) - 1) // self._size * self._size
        self._data = data[end:]
        return data[:end]

    def finalize(self):
        if self._data is None:
            raise _finalized()
        data, self._data = self._data, None
        count = data[-1] if data else 0
        if len(data) != self._size or not 0 < count <= self._size or not data.endswith(self._padded._filled(count)):
            raise ValueError("Invalid padding bytes.")
        return data[:-count]


class ANSIX923UnpaddingContext(PKCS7UnpaddingContext):
    _padded = ANSIX923PaddingContext


class _Library:
    """The library OpenSSL, without any of what it may have."""

    CRYPTOGRAPHY_PACKAGE_VERSION, OpenSSL_version_num = __version__.encode(), int

    def __dir__(self):
        return ()

    def __getattr__(self, name):
        return 0


_openssl = _Part("_openssl", ffi=types.SimpleNamespace(string=bytes), lib=_Library())
openssl = _Part(
    "openssl",
    hashes=_Part("openssl.hashes", Hash=Hash, hash_supported=hash_supported),
    hmac=_Part("openssl.hmac", HMAC=HMAC),
    kdf=_Part("openssl.kdf", PBKDF2HMAC=PBKDF2HMAC, Scrypt=Scrypt, HKDF=HKDF, HKDFExpand=HKDFExpand),
    ciphers=_Part(
        "openssl.ciphers", create_encryption_ctx=create_encryption_ctx, create_decryption_ctx=create_decryption_ctx,
        cipher_supported=cipher_supported, CipherContext=CipherContext,
        AEADEncryptionContext=AEADEncryptionContext, AEADDecryptionContext=AEADDecryptionContext,
    ),
    aead=_Part("openssl.aead", AESGCM=AESGCM),
    openssl_version=lambda: 0,
    openssl_version_text=lambda: "none: Hatchery's stand-in",
    is_fips_enabled=lambda: False,
    _legacy_provider_loaded=False,
    CRYPTOGRAPHY_IS_LIBRESSL=False,
    CRYPTOGRAPHY_IS_BORINGSSL=False,
    CRYPTOGRAPHY_IS_AWSLC=False,
)
