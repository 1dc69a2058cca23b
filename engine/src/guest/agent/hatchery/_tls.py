"""Adapts the module `ssl` of Pyodide, which leaves TLS to JavaScript, to the host's TLS.

That of CPython itself needs nothing: it imports our `_ssl`.
"""

# What both kinds of objects ask the connection below them.
ASKED = (
    "version cipher selected_alpn_protocol getpeercert compression shared_ciphers get_channel_binding pending"
    " get_verified_chain get_unverified_chain verify_client_post_handshake read write do_handshake"
).split()


def asking(name):
    def method(self, *args, **named):
        return getattr(self._sslobj, name)(*args, *named.values())

    method.__name__ = method.__qualname__ = name
    return method


def adapt_ssl(module):
    """Gives sockets, objects over buffers and contexts what they lack."""
    import _ssl

    context, sockets, objects = module.SSLContext, module.SSLSocket, module.SSLObject
    if issubclass(context, _ssl._SSLContext):
        return
    plain, create = module.socket, sockets._create.__func__

    def set_alpn_protocols(self, alpn_protocols):
        self._alpn = b"".join(bytes([len(name)]) + name.encode("ascii") for name in alpn_protocols)

    def wrap_bio(self, incoming, outgoing, server_side=False, server_hostname=None, session=None):
        made = self.sslobject_class.__new__(self.sslobject_class)
        name = self._encode_hostname(server_hostname)
        made._sslobj = _ssl._SSLSocket(self, server_side, name, buffers=(incoming, outgoing))
        return made

    module.HAS_NEVER_CHECK_COMMON_NAME = True
    context._has_chain, context._alpn = False, b""
    context.set_alpn_protocols, context.wrap_bio = set_alpn_protocols, wrap_bio
    context.load_cert_chain = _ssl._SSLContext.load_cert_chain

    def wrapped(cls, sock, server_side=False, do_handshake_on_connect=True, *args, context, server_hostname=None, **named):
        if context.check_hostname and not server_hostname:
            raise ValueError("check_hostname requires server_hostname")
        timeout = sock.gettimeout()
        made = create(cls, sock, server_side, False, *args, context=context, server_hostname=server_hostname, **named)
        made.settimeout(timeout)
        made._sslobj = _ssl._SSLSocket(context, server_side, context._encode_hostname(server_hostname), made)
        made._handshakes = do_handshake_on_connect
        try:
            made.getpeername()
        except OSError:
            return made  # it connects later
        made._begin()
        return made

    def begin(self):
        if self._handshakes and self.gettimeout() == 0:
            raise ValueError("do_handshake_on_connect should not be specified for non-blocking sockets")
        try:
            if self._handshakes:
                self.do_handshake()
        except (OSError, ValueError):
            self.close()
            raise

    def connect(self, addr):
        plain.connect(self, addr)
        self._begin()

    def do_handshake(self, block=False):
        timeout = self.gettimeout()
        try:
            if block and timeout == 0:
                self.settimeout(None)
            self._sslobj.do_handshake()
        finally:
            self.settimeout(timeout)

    def sendall(self, data, flags=0):
        data = memoryview(data).cast("B")
        while data:
            data = data[self._sslobj.write(data) :]

    def recv_into(self, buffer, nbytes=None, flags=0):
        return self._sslobj.read(nbytes or len(buffer), buffer)

    for kind in (sockets, objects):
        for name in ASKED:
            setattr(kind, name, asking(name))
        kind.unwrap = lambda self: self._sslobj.shutdown()
        for name in ("context", "server_side", "server_hostname", "session", "session_reused"):
            setattr(kind, name, property(lambda self, name=name: getattr(self._sslobj, name)))
    sockets._create, sockets._begin, sockets.connect = classmethod(wrapped), begin, connect
    sockets.do_handshake, sockets.shutdown = do_handshake, plain.shutdown
    sockets.recv = lambda self, buflen=1024, flags=0: self._sslobj.read(buflen)
    sockets.send = lambda self, data, flags=0: self._sslobj.write(data)
    sockets.sendall, sockets.recv_into = sendall, recv_into


ADAPT = {"ssl": adapt_ssl}
