"""Tests sockets, TLS and clients of HTTP against a host of streams (`network_double.py`)."""

import importlib.util
import json
import pathlib
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

from network_double import URLS, network

CLIENTS = pathlib.Path(__file__).parents[4] / "tests/all/clients"


@unittest.skipUnless(sys.platform == "linux", "the double's sockets are Linux's")
class NetworkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.double = cls.enterClassContext(network())
        if cls.double.secure is None:
            raise unittest.SkipTest("openssl, which makes the certificates, is missing")

    def setUp(self):
        self.double.drop()

    def use(self, client):
        if not CLIENTS.is_dir():
            self.skipTest("not in a checkout")
        if client != "standard" and importlib.util.find_spec(client) is None:
            self.skipTest(f"{client} isn't installed")
        self.double.run((CLIENTS / f"use_{client}.py").read_text(), json.dumps(URLS))
        self.assertEqual(self.double.streams, {})

    def test_the_standard_library(self):
        self.use("standard")

    def test_requests(self):
        self.use("requests")

    def test_urllib3(self):
        self.use("urllib3")

    def test_httpx(self):
        self.use("httpx")

    def test_aiohttp(self):
        self.use("aiohttp")

    def test_names_and_addresses(self):
        self.double.run("""
import socket
from socket import AF_INET, AF_INET6, SOCK_STREAM, getaddrinfo
[(family, kind, protocol, canonical, (address, port))] = getaddrinfo("api.test", "https", flags=socket.AI_CANONNAME)
assert (family, kind, protocol, canonical, port) == (AF_INET, SOCK_STREAM, 6, "api.test", 443)
assert address == socket.gethostbyname("api.test") == "198.18.193.128" != socket.gethostbyname("other.test")
assert socket.getnameinfo((address, 80), 0) == ("api.test", "80") and socket.gethostbyaddr(address)[0] == "api.test"
assert socket.gethostbyname("127.1") == socket.gethostbyname("localhost") == "127.0.0.1"
assert getaddrinfo("localhost", 80)[0][4][0].startswith("127.18.")
assert getaddrinfo("127.0.0.1", 80)[0][4] == ("127.0.0.1", 80) and getaddrinfo(None, b"80")[0][4] == ("127.0.0.1", 80)
assert getaddrinfo("::1", 80)[0][0::4] == (AF_INET6, ("::1", 80, 0, 0))
assert getaddrinfo("\\u00e4.test", 80, flags=socket.AI_CANONNAME)[0][3] == "xn--4ca.test"
for number, call in (
    (socket.EAI_FAMILY, lambda: getaddrinfo("api.test", 80, AF_INET6)), (socket.EAI_SERVICE, lambda: getaddrinfo("a", "x")),
    (socket.EAI_NONAME, lambda: getaddrinfo("api.test", 80, flags=socket.AI_NUMERICHOST)),
):
    try:
        print(call())
    except socket.gaierror as error:
        assert error.errno == number, error
for to in ("localhost", 80), ("127.0.0.1", 8080), getaddrinfo("localhost", 80)[0][4]:
    with socket.create_connection(to) as connection:
        assert connection.getpeername()[1] == to[1]
""")

    def test_what_sockets_do_and_refuse(self):
        self.double.run("""
import errno, select, selectors, socket
def fails(number, call, *args):
    try:
        call(*args)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(call)
with socket.socket() as s:
    fails(errno.ENOTCONN, s.recv, 1)
    fails(errno.ENOTCONN, s.getpeername)
    s.setblocking(False)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1 and s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == s.type
    fails(errno.EINPROGRESS, s.connect, ("api.test", 80))
    assert select.select([], [s], [], 10) == ([], [s], []) and s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    fails(errno.EISCONN, s.connect, ("api.test", 80))
    fails(errno.EAGAIN, s.recv, 1)
    assert select.select([s], [s], [], 0) == ([], [s], [])
    poll = select.poll()
    poll.register(s, 0)
    assert poll.poll(1) == []
    s.settimeout(0.05)
    try:
        s.recv(1)
    except TimeoutError as error:
        assert str(error) == "timed out"
    s.settimeout(None)
    assert s.send(b"") == 0 and s.sendmsg([b"GET /last HTTP/1.1\\r\\n", b"Host: a\\r\\n\\r\\n"]) == 31
    poll = select.poll()
    poll.register(s, select.POLLIN)
    assert poll.poll(10000) == [(s.fileno(), select.POLLIN)]
    assert s.recv(4, socket.MSG_PEEK) == s.recv(4) == b"HTTP"
    buffer = bytearray(4)
    assert s.recv_into(buffer) == 4 and buffer == b"/1.1" and s.recvfrom(4) == (b" 200", s.getpeername())
    with s.makefile("rb") as file:
        assert file.read().endswith(b"last")
    assert s.recv(1) == b""
    s.shutdown(socket.SHUT_WR)
    fd = s.detach()
    with socket.socket(fileno=fd) as same:
        assert same.getpeername()[1] == 80
    fails(errno.EBADF, socket.socket, -1, -1, -1, fd)
with socket.socket() as s:
    s.setblocking(False)
    assert s.connect_ex(("closed.test", 80)) == errno.EINPROGRESS
    with selectors.DefaultSelector() as selector:
        selector.register(s, selectors.EVENT_WRITE)
        assert [key.fileobj for key, _ in selector.select(10)] == [s]
    fails(errno.ECONNREFUSED, s.getsockopt, socket.SOL_SOCKET, socket.SO_ERROR)
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    fails(errno.EOPNOTSUPP, s.bind, ("", 0))
fails(errno.EBADF, s.recv, 1)
fails(errno.EPROTONOSUPPORT, socket.socket, socket.AF_INET, socket.SOCK_DGRAM)
fails(errno.EOPNOTSUPP, socket.create_server, ("", 0))
socket.setdefaulttimeout(0.05)
try:
    socket.create_connection(("slow.test", 80))
except TimeoutError as error:
    assert str(error) == "timed out"
""")

    def test_tls_tells_what_the_host_found(self):
        seen = self.double.run("""
import asyncio, socket, ssl, sys
context = ssl.create_default_context()
context.set_alpn_protocols(["h2", "http/1.1"])
def told(tls):
    assert tls.version() == "TLSv1.3" and tls.cipher()[1:] == ("TLSv1.3", 256) and tls.selected_alpn_protocol() == "http/1.1"
    return tls.getpeercert()
with socket.create_connection(("api.test", 443)) as plain, context.wrap_socket(plain, server_hostname="api.test") as tls:
    first = told(tls)
    print(repr(first))
    print(ssl.DER_cert_to_PEM_cert(tls.getpeercert(True)))
async def main():
    reader, writer = await asyncio.open_connection("api.test", 443)
    await writer.start_tls(context, server_hostname="api.test")
    assert told(writer.get_extra_info("ssl_object")) == first
    writer.close()
asyncio.run(main())
def fails(text, purpose, **options):
    own = ssl.create_default_context(purpose)
    own.load_cert_chain(sys.argv[0])
    with socket.create_connection(("api.test", 443)) as plain:
        try:
            own.wrap_socket(plain, **options)
        except ssl.SSLError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
fails("no certificate of the program", ssl.Purpose.SERVER_AUTH, server_hostname="api.test")
fails("accepts no connections", ssl.Purpose.CLIENT_AUTH, server_side=True)
with socket.create_connection(("api.test", 443)) as plain:
    plain.setblocking(False)
    with context.wrap_socket(plain, server_hostname="api.test", do_handshake_on_connect=False) as tls:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            tls.setblocking(True)
            tls.do_handshake()
        assert told(tls) == first
""")
        facts, certificate = seen.split("\n", 1)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(certificate)
            file.flush()
            self.assertEqual(eval(facts), ssl._ssl._test_decode_cert(file.name))

    def test_threads_and_loops_wait_beside_each_other(self):
        self.double.run("""
import asyncio, http.client, selectors, socket, threading
def plain(number):
    connection = http.client.HTTPSConnection("api.test")
    connection.request("GET", f"/last?{number}")
    assert connection.getresponse().read() == b"last"
    connection.close()
async def last():
    reader, writer = await asyncio.open_connection("api.test", 443, ssl=True)
    writer.write(b"GET /last HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n")
    assert (await reader.read()).endswith(b"last")
    writer.close()
async def both():
    await asyncio.gather(*(asyncio.to_thread(plain, number) for number in range(8)), *(last() for _ in range(8)))
def select():
    sockets = {socket.create_connection(("api.test", 80)) for _ in range(3)}
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            selector.register(one, selectors.EVENT_READ)
            one.sendall(b"GET /last HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
        while sockets:
            for key, _ in selector.select(10):
                if not key.fileobj.recv(100):
                    selector.unregister(key.fileobj)
                    sockets.discard(key.fileobj)
                    key.fileobj.close()
threads = [threading.Thread(target=one) for one in (lambda: asyncio.run(both()), select, select)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""")

    def test_an_interrupt_ends_each_wait(self):
        program = """
import asyncio, http.client, select, socket, sys, urllib.request
async def later():
    reader, writer = await asyncio.open_connection("api.test", 443, ssl=True)
    writer.write(b"GET /slow HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n")
    await reader.read()
connections = [socket.create_connection(("api.test", 80)) for _ in range(2)]
wait = {
    "plain": lambda: urllib.request.urlopen("http://api.test/slow"),
    "tls": lambda: urllib.request.urlopen("https://api.test/slow"),
    "connect": lambda: socket.create_connection(("slow.test", 80)),
    "select": lambda: select.select(connections, [], []),
    "asyncio": lambda: asyncio.run(later()),
}[sys.argv[1]]
try:
    # On a busy machine the interrupt may come before the wait has begun.
    print("begins", flush=True)
    sys.stdin.readline()
    wait()
except KeyboardInterrupt:
    print(urllib.request.urlopen("https://api.test/last").read())
"""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(program)
            file.flush()
            for kind in "plain", "tls", "connect", "select", "asyncio":
                command = self.double.command(file.name, kind)
                # Where a shell started this in the background, interrupts are ignored from the start.
                options = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), "text": True}
                pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
                with subprocess.Popen(command, **options, **pipes) as process:
                    process.stdout.readline()
                    before = self.double.waits
                    process.stdin.write("\n")
                    process.stdin.flush()
                    # A shorter wait may be one for the connection, or of a program that has just ended.
                    while self.double.waits < before + 4:
                        time.sleep(0.001)
                    process.send_signal(signal.SIGINT)
                    out, errors = process.communicate(timeout=30)
                    self.assertEqual(out, "b'last'\n", f"{kind}: {errors}")

    def test_streams_end_with_their_turn(self):
        self.double.run("""
import errno, select, socket
from hatchery._host import bridge
first, poll = socket.create_connection(("api.test", 80)), select.poll()
poll.register(first)
assert poll.poll(0) == [(first.fileno(), select.POLLOUT)]
bridge.begin_turn(True)
assert poll.poll(0) == [(first.fileno(), select.POLLIN | select.POLLOUT)]
for call in lambda: first.recv(1), lambda: first.sendall(b"GET / HTTP/1.1"):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.EBADF, error
first.close()
with socket.create_connection(("api.test", 80)) as second:
    second.sendall(b"GET /last HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    assert second.recv(12) == b"HTTP/1.1 200"
""")


if __name__ == "__main__":
    unittest.main()
