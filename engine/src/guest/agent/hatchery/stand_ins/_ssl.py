"""TLS that the host does: Python's own `ssl` imports from here, and data stays in the clear.

The host verifies each certificate with its own roots, whatever the settings of a program are.
An object over buffers knows no socket. So it sends its server's name as data, and the socket that
gets it asks the host (`_sockets.py`). The numbers are those of OpenSSL 3.0, as CPython on Linux has them.
"""

import os
import weakref

import _socket
from hatchery import _sockets
from hatchery._sockets import HELLO, STREAMS

NO_TLS = "the build has no TLS, so nothing connects that way"
NO_CHAIN = "the host does TLS, and has no certificate of the program to show: don't load one"
NO_SERVER = "the sandbox accepts no connections, so there is no TLS for servers"

OPENSSL_VERSION_INFO = _OPENSSL_API_VERSION = (3, 0, 0, 0, 0)
OPENSSL_VERSION_NUMBER = 0x30000000
OPENSSL_VERSION = "OpenSSL 3.0.0 (constants only: the build has no TLS)"
_DEFAULT_CIPHERS = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"

HAS_SNI = HAS_ECDH = HAS_ALPN = HAS_TLSv1 = HAS_TLSv1_1 = HAS_TLSv1_2 = HAS_TLSv1_3 = HAS_TLS_UNIQUE = True
HAS_NPN = HAS_SSLv2 = HAS_SSLv3 = HAS_PSK = HAS_PSK_TLS13 = HAS_PHA = False
ENCODING_PEM, ENCODING_DER = 1, 2
# The constants by what their names begin with.
NUMBERS = {
    "CERT_": "NONE 0 OPTIONAL 1 REQUIRED 2",
    "PROTOCOL_": "SSLv23 2 TLS 2 TLS_CLIENT 16 TLS_SERVER 17 TLSv1 3 TLSv1_1 4 TLSv1_2 5",
    "PROTO_": "MINIMUM_SUPPORTED -2 MAXIMUM_SUPPORTED -1 SSLv3 768 TLSv1 769 TLSv1_1 770 TLSv1_2 771 TLSv1_3 772",
    "OP_": "ALL 2147483728 NO_SSLv2 0 NO_SSLv3 33554432 NO_TLSv1 67108864 NO_TLSv1_1 268435456 NO_TLSv1_2 134217728"
    " NO_TLSv1_3 536870912 CIPHER_SERVER_PREFERENCE 4194304 SINGLE_DH_USE 0 SINGLE_ECDH_USE 0 NO_TICKET 16384"
    " NO_COMPRESSION 131072 ENABLE_MIDDLEBOX_COMPAT 1048576 NO_RENEGOTIATION 1073741824 IGNORE_UNEXPECTED_EOF 128"
    " ENABLE_KTLS 8 LEGACY_SERVER_CONNECT 4",
    "VERIFY_": "DEFAULT 0 CRL_CHECK_LEAF 4 CRL_CHECK_CHAIN 12 X509_STRICT 32 ALLOW_PROXY_CERTS 64"
    " X509_TRUSTED_FIRST 32768 X509_PARTIAL_CHAIN 524288",
    "HOSTFLAG_": "ALWAYS_CHECK_SUBJECT 1 NO_WILDCARDS 2 NO_PARTIAL_WILDCARDS 4 MULTI_LABEL_WILDCARDS 8"
    " SINGLE_LABEL_SUBDOMAINS 16 NEVER_CHECK_SUBJECT 32",
    "SSL_ERROR_": "SSL 1 WANT_READ 2 WANT_WRITE 3 WANT_X509_LOOKUP 4 SYSCALL 5 ZERO_RETURN 6 WANT_CONNECT 7 EOF 8"
    " INVALID_ERROR_CODE 10",
    "ALERT_DESCRIPTION_": "CLOSE_NOTIFY 0 UNEXPECTED_MESSAGE 10 BAD_RECORD_MAC 20 RECORD_OVERFLOW 22"
    " DECOMPRESSION_FAILURE 30 HANDSHAKE_FAILURE 40 BAD_CERTIFICATE 42 UNSUPPORTED_CERTIFICATE 43"
    " CERTIFICATE_REVOKED 44 CERTIFICATE_EXPIRED 45 CERTIFICATE_UNKNOWN 46 ILLEGAL_PARAMETER 47 UNKNOWN_CA 48"
    " ACCESS_DENIED 49 DECODE_ERROR 50 DECRYPT_ERROR 51 PROTOCOL_VERSION 70 INSUFFICIENT_SECURITY 71"
    " INTERNAL_ERROR 80 USER_CANCELLED 90 NO_RENEGOTIATION 100 UNSUPPORTED_EXTENSION 110"
    " CERTIFICATE_UNOBTAINABLE 111 UNRECOGNIZED_NAME 112 BAD_CERTIFICATE_STATUS_RESPONSE 113"
    " BAD_CERTIFICATE_HASH_VALUE 114 UNKNOWN_PSK_IDENTITY 115",
}
for _beginning, _numbers in NUMBERS.items():
    _words = _numbers.split()
    for _name, _number in zip(_words[::2], _words[1::2]):
        globals()[_beginning + _name] = int(_number)
# The purposes of certificates that `ssl.Purpose` names.
OBJECTS = (
    (129, "serverAuth", "TLS Web Server Authentication", "1.3.6.1.5.5.7.3.1"),
    (130, "clientAuth", "TLS Web Client Authentication", "1.3.6.1.5.5.7.3.2"),
)
PROTOCOLS = PROTOCOL_TLS, PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER, PROTOCOL_TLSv1, PROTOCOL_TLSv1_1, PROTOCOL_TLSv1_2
STATISTICS = "number connect connect_good connect_renegotiate accept accept_good accept_renegotiate hits misses timeouts cache_full"


class SSLError(OSError):
    """An error occurred in the SSL implementation."""

    library = reason = None

    def __str__(self):
        return str(self.strerror if isinstance(self.strerror, str) else self.args)


def _error(name, *more):
    return type(name, (SSLError, *more), {"__module__": "ssl"})


SSLError.__module__ = "ssl"
SSLZeroReturnError, SSLWantReadError = _error("SSLZeroReturnError"), _error("SSLWantReadError")
SSLWantWriteError, SSLSyscallError = _error("SSLWantWriteError"), _error("SSLSyscallError")
SSLEOFError, SSLCertVerificationError = _error("SSLEOFError"), _error("SSLCertVerificationError", ValueError)


def RAND_bytes(n, /):
    return os.urandom(n)


def RAND_pseudo_bytes(n, /):  # until 3.11
    return os.urandom(n), True


def RAND_status():
    return True


def RAND_add(string, entropy, /):
    pass


def get_sigalgs():
    return []


def get_default_verify_paths():
    return "SSL_CERT_FILE", "/usr/lib/ssl/cert.pem", "SSL_CERT_DIR", "/usr/lib/ssl/certs"


def _looked_up(field, value):
    for known in OBJECTS:
        if known[field] == value:
            return known
    raise ValueError(f"unknown object {str(value)[:100]!r}")


def txt2obj(txt, name=False):
    return _looked_up(1 if name and "." not in txt else 3, txt)


def nid2obj(nid, /):
    return _looked_up(0, nid)


class MemoryBIO:
    def __init__(self):
        self._data, self._is_over = bytearray(), False

    pending = property(lambda self: len(self._data))
    eof = property(lambda self: self._is_over and not self._data)

    def read(self, size=-1, /):
        size = len(self._data) if size < 0 else size
        read, self._data = bytes(self._data[:size]), self._data[size:]
        return read

    def write(self, b, /):
        if self._is_over:
            raise SSLError("cannot write() after write_eof()")
        self._data += b
        return memoryview(b).nbytes

    def write_eof(self):
        self._is_over = True


class SSLSession:
    """A session that was negotiated: there are none."""

    def __new__(cls):
        raise TypeError("cannot create '_ssl.SSLSession' instances")


def failure(text, is_of_certificate):
    """Returns the exception for a handshake that failed in the host."""
    error = (SSLCertVerificationError if is_of_certificate else SSLError)(SSL_ERROR_SSL, text)
    error.library, error.reason = "SSL", "CERTIFICATE_VERIFY_FAILED" if is_of_certificate else "HANDSHAKE_FAILURE"
    error.verify_code, error.verify_message = 1, text
    return error


def _elements(data):
    """Yields the tags and contents of what is encoded by ASN.1's distinguished rules."""
    at = 0
    while at < len(data):
        tag, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            at, size = at + (size & 0x7F), int.from_bytes(data[at : at + (size & 0x7F)], "big")
        yield tag, data[at : at + size]
        at += size


def _name(data):
    pairs = ([[part for _, part in _elements(pair)] for _, pair in _elements(one)] for _, one in _elements(data))
    return tuple(
        tuple((NAMES.get(kind[2:], kind.hex()), str(text, "utf-8", "replace")) for kind, text in one) for one in pairs
    )


def _time(tag, text):
    text = str(text, "ascii")
    if tag == 0x17:
        text = ("20" if text < "50" else "19") + text
    year, month, day, hour, minute, second = text[:4], *(text[at : at + 2] for at in range(4, 14, 2))
    return f"{MONTHS[int(month) * 3 - 3 : int(month) * 3]} {int(day):2} {hour}:{minute}:{second} {year} GMT"


def _described(certificate):
    """Returns what `getpeercert` tells of a certificate."""
    try:
        return _decoded(certificate)
    except (IndexError, StopIteration, ValueError):
        raise SSLError(SSL_ERROR_SSL, "not a certificate") from None


def _decoded(certificate):
    [(_, whole)] = _elements(certificate)
    fields = list(_elements(next(_elements(whole))[1]))
    version = next(_elements(fields.pop(0)[1]))[1][0] + 1 if fields[0][0] == 0xA0 else 1
    (_, serial), _, (_, issuer), (_, validity), (_, subject), *more = fields
    before, after = (_time(*moment) for moment in _elements(validity))
    told = {
        "subject": _name(subject), "issuer": _name(issuer), "version": version,
        "serialNumber": (serial.lstrip(b"\0") or b"\0").hex().upper(), "notBefore": before, "notAfter": after,
    }
    for tag, extensions in more:
        for _, extension in _elements(next(_elements(extensions))[1] if tag == 0xA3 else b""):
            (_, kind), *_, (_, value) = _elements(extension)
            if kind == b"\x55\x1d\x11":
                names = _elements(next(_elements(value))[1])
                told["subjectAltName"] = tuple(
                    (KINDS[tag], ".".join(map(str, name)) if tag == 0x87 else str(name, "ascii", "replace"))
                    for tag, name in names
                    if tag in KINDS
                )
    return told


NAMES = {
    bytes([number]): name
    for number, name in {
        3: "commonName", 5: "serialNumber", 6: "countryName", 7: "localityName", 8: "stateOrProvinceName",
        10: "organizationName", 11: "organizationalUnitName",
    }.items()
}
KINDS = {0x81: "email", 0x82: "DNS", 0x86: "URI", 0x87: "IP Address"}
MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


class _SSLSocket:
    """A connection for which the host does TLS, over a socket or over two buffers."""

    session, session_reused = None, False

    def __init__(self, context, is_server, name, socket=None, buffers=None):
        self.context, self.server_side, self.server_hostname = context, is_server, name
        # Not the socket itself, which has this object and is closed when it isn't used any more.
        self._socket, self._buffers = socket and weakref.ref(socket), buffers
        self._facts, self._is_begun = None, False

    def do_handshake(self):
        if self.server_side:
            raise SSLError(SSL_ERROR_SSL, NO_SERVER)
        if self.context._has_chain:
            raise SSLError(SSL_ERROR_SSL, NO_CHAIN)
        facts = self._handshake_of_buffers() if self._buffers else self._wait("start_tls", self.server_hostname or "")
        version, facts = facts[1 : 1 + facts[0]], facts[1 + facts[0] :]
        cipher, certificate = facts[1 : 1 + facts[0]], facts[1 + facts[0] :]
        self._facts = str(version, "ascii"), str(cipher, "ascii"), certificate

    def _handshake_of_buffers(self):
        if _socket.socket is not _sockets.Socket:
            raise SSLError(SSL_ERROR_SSL, NO_TLS)
        incoming, outgoing = self._buffers
        if not self._is_begun:
            self._is_begun = True
            outgoing.write(HELLO + (self.server_hostname or "").encode())
        head = len(HELLO) + 4
        size = head + int.from_bytes(incoming._data[len(HELLO) : head], "little")
        if head <= size <= len(incoming._data) and incoming._data.startswith(HELLO):
            return _sockets.read_answer(incoming.read(size)[head:])
        raise self._missing(incoming)

    def _missing(self, incoming):
        if incoming.eof:
            return SSLEOFError(SSL_ERROR_EOF, "EOF occurred in violation of protocol")
        return SSLWantReadError(SSL_ERROR_WANT_READ, "The operation did not complete (read)")

    def _wait(self, operation, argument):
        """Calls a method of the stream, which waits as long as the socket's timeout is."""
        socket = self._socket()
        stream = STREAMS.get(-1 if socket is None else socket.fileno())
        if stream is None:
            raise SSLError(SSL_ERROR_SSL, NO_TLS)
        try:
            return getattr(stream, operation)(argument, _sockets.end_of(socket.gettimeout()))
        except BlockingIOError:
            if operation == "send":
                raise SSLWantWriteError(SSL_ERROR_WANT_WRITE, "The operation did not complete (write)") from None
            raise SSLWantReadError(SSL_ERROR_WANT_READ, "The operation did not complete (read)") from None

    def read(self, size, buffer=None, /):
        if buffer is not None:
            size = size if 0 < size < len(buffer) else len(buffer)
        if self._buffers:
            incoming, _ = self._buffers
            data = incoming.read(size)
            if not data and size and not incoming.eof:
                raise self._missing(incoming)
        else:
            data = self._wait("receive", size)
        if buffer is None:
            return data
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def write(self, data, /):
        return self._buffers[1].write(data) if self._buffers else self._wait("send", data)

    def shutdown(self):
        return self._socket and self._socket()

    def verify_client_post_handshake(self):
        raise NotImplementedError(NO_SERVER)

    def pending(self):
        return 0

    def getpeercert(self, binary_form=False, /):
        if self._facts is None:
            raise ValueError("handshake not done yet")
        if binary_form:
            return self._facts[2] or None
        return _described(self._facts[2]) if self.context.verify_mode != CERT_NONE and self._facts[2] else {}

    def version(self):
        return self._facts and self._facts[0]

    def cipher(self):
        return self._facts and (self._facts[1], self._facts[0], 128 if "128" in self._facts[1] else 256)

    def selected_alpn_protocol(self):
        return "http/1.1" if self._facts and b"\x08http/1.1" in self.context._alpn else None

    def shared_ciphers(self, *args):
        return None

    compression = get_channel_binding = shared_ciphers

    def get_verified_chain(self):
        return []

    get_unverified_chain = get_verified_chain


class _SSLContext:
    num_tickets = security_level = 2
    sni_callback = keylog_filename = _msg_callback = None
    _has_chain, post_handshake_auth, _host_flags = False, False, HOSTFLAG_NO_PARTIAL_WILDCARDS

    def __new__(cls, protocol, /):
        if protocol not in PROTOCOLS:
            raise ValueError(f"invalid or unsupported protocol version {protocol}")
        self = super().__new__(cls)
        self._settings = {
            "options": OP_ALL | OP_NO_SSLv3 | OP_CIPHER_SERVER_PREFERENCE | OP_NO_COMPRESSION | OP_ENABLE_MIDDLEBOX_COMPAT,
            "verify_flags": VERIFY_X509_TRUSTED_FIRST, "minimum_version": PROTO_TLSv1_2,
            "maximum_version": PROTO_MAXIMUM_SUPPORTED, "check_hostname": protocol == PROTOCOL_TLS_CLIENT,
            "verify_mode": CERT_REQUIRED if protocol == PROTOCOL_TLS_CLIENT else CERT_NONE,
        }
        self._protocol, self._certificates, self._alpn = protocol, [], b""
        return self

    def _setting(name, check=None):
        def put(self, value):
            value = int(value)
            if check is not None:
                check(self._settings, value)
            self._settings[name] = value

        return property(lambda self: self._settings[name], put)

    def _check_mode(settings, mode):
        if mode not in (CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED):
            raise ValueError("invalid value for verify_mode")
        if mode == CERT_NONE and settings["check_hostname"]:
            raise ValueError("Cannot set verify_mode to CERT_NONE when check_hostname is enabled.")

    def _check_version(settings, version):
        if not (PROTO_SSLv3 <= version <= PROTO_TLSv1_3 or version in (PROTO_MINIMUM_SUPPORTED, PROTO_MAXIMUM_SUPPORTED)):
            raise ValueError(f"Unsupported TLS/SSL version {version:#x}")

    options, verify_flags = _setting("options"), _setting("verify_flags")
    minimum_version = _setting("minimum_version", _check_version)
    maximum_version = _setting("maximum_version", _check_version)
    verify_mode = _setting("verify_mode", _check_mode)
    protocol = property(lambda self: self._protocol)

    @property
    def check_hostname(self):
        return self._settings["check_hostname"]

    @check_hostname.setter
    def check_hostname(self, is_checked):
        self._settings["check_hostname"] = bool(is_checked)
        if is_checked and self._settings["verify_mode"] == CERT_NONE:
            self._settings["verify_mode"] = CERT_REQUIRED

    def set_ciphers(self, cipherlist, /):
        if not isinstance(cipherlist, str):
            raise TypeError(f"set_ciphers() argument must be str, not {type(cipherlist).__name__}")

    def get_ciphers(self):
        return []

    def load_cert_chain(self, certfile, keyfile=None, password=None):
        for path in (certfile, keyfile):
            if path is not None:
                open(path, "rb").close()
        self._has_chain = True

    def load_verify_locations(self, cafile=None, capath=None, cadata=None):
        if cafile is None and capath is None and cadata is None:
            raise TypeError("cafile, capath and cadata cannot be all omitted")
        if capath is not None:
            os.stat(capath)
        if cafile is not None:
            with open(cafile, encoding="ascii", errors="replace") as file:
                self._load(file.read())
        if isinstance(cadata, str):
            self._load(cadata)
        elif cadata is not None:
            self._certificates.append(bytes(cadata))

    def _load(self, text):
        import ssl

        pieces = text.split(ssl.PEM_HEADER)[1:]
        if not pieces:
            raise SSLError(0, "not enough data: cadata does not contain a certificate")
        for piece in pieces:
            piece = ssl.PEM_HEADER + piece[: piece.find(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
            self._certificates.append(ssl.PEM_cert_to_DER_cert(piece))

    def get_ca_certs(self, binary_form=False):
        return self._certificates[:] if binary_form else [_described(one) for one in self._certificates]

    def cert_store_stats(self):
        return {"x509": len(self._certificates), "crl": 0, "x509_ca": len(self._certificates)}

    def session_stats(self):
        return dict.fromkeys(STATISTICS.split(), 0)

    def set_default_verify_paths(self):
        pass

    def load_dh_params(self, path, /):
        open(path, "rb").close()

    def set_ecdh_curve(self, name, /):
        pass

    def _set_alpn_protocols(self, protocols, /):
        self._alpn = bytes(protocols)

    def set_psk_client_callback(self, callback):
        raise NotImplementedError("the build has no TLS")

    set_psk_server_callback = set_psk_client_callback

    def _wrap_socket(self, sock, server_side, server_hostname=None, *, owner=None, session=None):
        return _SSLSocket(self, server_side, server_hostname, socket=sock)

    def _wrap_bio(self, incoming, outgoing, server_side, server_hostname=None, *, owner=None, session=None):
        return _SSLSocket(self, server_side, server_hostname, buffers=(incoming, outgoing))
