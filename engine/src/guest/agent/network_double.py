"""A host of streams for tests: it connects to a server of HTTP in this process, on loopback.

A guest is a process of CPython with the stand-ins in place of its sockets (`GUEST`). Its frames come
through a socket for each of its threads. The names that it may reach are those of `Double.hosts`.
"""

import asyncio
import contextlib
import gzip
import http.server
import json
import marshal
import os
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from hatchery._wire import ALARM, CANCEL, NET, WAIT, WAKE

FOLDER = os.path.dirname(os.path.abspath(__file__))
# The names of what fails, by the numbers of the host.
EAGAIN, EACCES, EAI_NONAME, ECONNREFUSED, ECONNRESET, EPIPE, EBADF, ECERT = 1, 2, 3, 4, 7, 8, 9, 12
DONE, MOST_BUFFERED = b"\0", 256 << 10
# What programs that use clients of HTTP are told.
URLS = {
    "http": "http://api.test", "https": "https://api.test", "closed": "http://closed.test/", "unknown": "http://unknown.test/",
    "wrong": "https://wrong.test/", "denied": "https://denied.test/", "slow": "http://slow.test/",
}
# What makes a process a guest: a build without sockets and TLS, and a call that reaches the host.
GUEST = """
import _socket, _thread, select, sys, types
sys.path.insert(0, sys.argv[1])
path, Plain, local = sys.argv[2], _socket.socket, _thread._local()
del _socket.socketpair
for name in "epoll kqueue devpoll".split():
    select.__dict__.pop(name, None)
def exactly(connection, size):
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data)) or sys.exit("the host is gone")
    return data
def call(frame):
    connection, local.connection = getattr(local, "connection", None), None
    if connection is None:
        connection = Plain(_socket.AF_UNIX, _socket.SOCK_STREAM)
        connection.connect(path)
    try:
        connection.sendall(len(frame).to_bytes(4, "little") + frame)
        answer = exactly(connection, int.from_bytes(exactly(connection, 4), "little"))
    except BaseException:  # an interrupt
        connection.close()
        raise
    local.connection = connection
    return answer
import hatchery
hatchery._has_threads, hatchery._takes_turns = True, False
from hatchery import _late
from hatchery._host import bridge
bridge.connect(call)
_late.install({})
for name in "_socket", "select":
    _late.adapt(sys.modules[name])
module = sys.modules["_ssl"] = types.ModuleType("_ssl")
path_of_ssl = sys.argv[1] + "/hatchery/stand_ins/_ssl.py"
with open(path_of_ssl) as file:
    exec(compile(file.read(), path_of_ssl, "exec"), module.__dict__)
program, sys.argv = sys.argv[3], sys.argv[3:]
with open(program) as file:
    code = compile(file.read(), program, "exec")
exec(code)
"""


def failed(code, text):
    return bytes([1, code]) + text.encode()


class Stream(asyncio.Protocol):
    """A connection of the guest's."""

    def __init__(self, host):
        self.host, self.data, self.is_over, self.failure = host, bytearray(), False, None
        self.is_full, self.watchers, self.transport, self.sent = False, [], None, 0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        if len(self.data) > MOST_BUFFERED:
            self.transport.pause_reading()
        self.notify()

    def eof_received(self):
        self.is_over = True
        self.notify()
        return self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, error):
        self.is_over = self.is_lost = True
        if error is not None:
            self.failure = failed(ECONNRESET, "Connection reset by peer")
        self.notify()

    def pause_writing(self):
        self.is_full = True

    def resume_writing(self):
        self.is_full = False
        self.notify()

    def events(self, interest):
        is_readable = self.data or self.is_over or self.failure
        return interest & (bool(is_readable) | (not self.is_full or bool(self.failure)) << 1)

    def notify(self):
        for watcher in self.watchers[:]:
            interest, end = watcher
            if events := self.events(interest):
                self.watchers.remove(watcher)
                end(DONE + bytes([events]))


class Double:
    """The host. `hosts` has the real ports by name and port."""

    def __init__(self, hosts, roots=None):
        self.hosts, self.streams, self.ended, self.pending = hosts, {}, {}, {}
        self.count, self.is_woken, self.condition = 0, False, threading.Condition()
        # How many waits found nothing, and how many streams were opened.
        self.waits = self.opened = 0
        self.tls = ssl.create_default_context(cafile=roots)
        self.folder = tempfile.TemporaryDirectory()
        self.path = f"{self.folder.name}/host"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(50)
        # Not the guest's, which another test may have installed.
        self.loop = asyncio.selector_events.BaseSelectorEventLoop()
        for run in (self.loop.run_forever, self.accept):
            threading.Thread(target=run, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as file:
            while head := file.read(4):
                answer = self.call(file.read(int.from_bytes(head, "little")), connection)
                connection.sendall(len(answer).to_bytes(4, "little") + answer)

    def close(self):
        self.listener.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.folder.cleanup()

    def call(self, frame, connection):
        kind, body = frame[:1], frame[1:]
        if kind == WAIT:
            timeout, ticket = int.from_bytes(body[:8], "little", signed=True), int.from_bytes(body[8:], "little")
            return self.wait(timeout, ticket, connection)
        if kind == NET:
            return asyncio.run_coroutine_threadsafe(self.operate(body[0], body[1:]), self.loop).result()
        with self.condition:
            if kind == CANCEL:
                ticket = int.from_bytes(body, "little")
                self.ended.pop(ticket, None)
                if task := self.pending.pop(ticket, None):
                    self.loop.call_soon_threadsafe(task.cancel)
            elif kind == WAKE:
                self.is_woken = True
                self.condition.notify_all()
            else:
                assert kind == ALARM, frame
        return b""

    def wait(self, nanoseconds, ticket, connection):
        end = None if nanoseconds < 0 else time.monotonic() + nanoseconds / 1e9
        with self.condition:
            # An interrupt in the guest closes the connection.
            while not select.select([connection], [], [], 0)[0]:
                found = [one for one in self.ended if ticket in (0, one)]
                left = None if end is None else end - time.monotonic()
                if found:
                    return marshal.dumps([[one, True, self.ended.pop(one)] for one in found])
                if left is not None and left <= 0 or not ticket and self.is_woken or ticket and ticket not in self.pending:
                    self.is_woken = bool(ticket) and self.is_woken
                    return b""
                self.waits += 1
                self.condition.wait(0.05 if left is None else min(left, 0.05))
        return b""

    def begin(self, task):
        """Begins what ends later, if it takes time: returns a ticket."""
        self.count += 1
        ticket = self.count
        with self.condition:
            self.pending[ticket] = task

        def end(task):
            with self.condition:
                if self.pending.pop(ticket, None):
                    self.ended[ticket] = task.result()
                    self.condition.notify_all()

        task.add_done_callback(end)
        return b"\2" + ticket.to_bytes(4, "little")

    async def operate(self, operation, body):
        stream = None if operation == 1 else self.streams.get(int.from_bytes(body[:4], "little"))
        if operation == 1:
            host = str(body[6:], "utf-8")
            return self.begin(self.loop.create_task(self.open(host, int.from_bytes(body[4:6], "little"))))
        if operation == 7:
            if self.streams.pop(int.from_bytes(body[:4], "little"), None):
                stream.transport.abort()
            return DONE
        if stream is None:
            return failed(EBADF, "no such stream")
        if operation == 2:
            return self.begin(self.loop.create_task(self.start_tls(stream, str(body[4:], "utf-8"))))
        if operation == 5:
            if events := stream.events(body[4]):
                return DONE + bytes([events])
            ready = self.loop.create_future()
            stream.watchers.append((body[4], lambda answer: ready.done() or ready.set_result(answer)))
            return self.begin(ready)
        if operation == 6:
            stream.transport.can_write_eof() and stream.transport.write_eof()
            return DONE
        if operation == 3:
            return self.write(stream, body[4:])
        if stream.data:
            most = int.from_bytes(body[4:8], "little")
            data = bytes(stream.data[:most])
            del stream.data[:most]
            if len(stream.data) <= MOST_BUFFERED:
                with contextlib.suppress(RuntimeError):
                    stream.transport.resume_reading()
            return DONE + data
        return stream.failure or (DONE if stream.is_over else failed(EAGAIN, "nothing to read"))

    def write(self, stream, data):
        if stream.failure or getattr(stream, "is_lost", False):
            return stream.failure or failed(EPIPE, "Broken pipe")
        if b" /forbidden " in data:
            text = f"no rule allows GET https://{stream.host}/forbidden: add --allow-http 'GET https://{stream.host}/forbidden'"
            stream.failure = failed(EACCES, text)
            stream.notify()
        elif stream.is_full:
            return failed(EAGAIN, "no room")
        else:
            stream.transport.write(data)
        stream.sent += len(data)
        return DONE + len(data).to_bytes(4, "little")

    async def open(self, host, port):
        if host == "unknown.test":
            return failed(EAI_NONAME, "unknown.test has no address")
        if host == "slow.test":
            await asyncio.sleep(60)
        if (host, port) not in self.hosts:
            return failed(EACCES, f"no rule allows {host}:{port}: add --allow-http 'GET https://{host}:{port}/*'")
        stream = Stream(host)
        try:
            await self.loop.create_connection(lambda: stream, "127.0.0.1", self.hosts[host, port])
        except ConnectionRefusedError:
            return failed(ECONNREFUSED, f"nothing listens at {host}:{port}")
        self.opened += 1
        self.streams[self.opened] = stream
        return DONE + self.opened.to_bytes(4, "little")

    async def start_tls(self, stream, name):
        assert name == stream.host and not stream.sent, (name, stream.host)
        try:
            transport = await self.loop.start_tls(stream.transport, stream, self.tls, server_hostname=name)
        except ssl.SSLCertVerificationError as error:
            return failed(ECERT, f"the certificate of {name} isn't valid: {error.verify_message}")
        stream.transport = transport
        tls = transport.get_extra_info("ssl_object")
        parts = tls.version().encode(), tls.cipher()[0].encode()
        return DONE + b"".join(bytes([len(part)]) + part for part in parts) + tls.getpeercert(True)

    def command(self, path, *args):
        """Returns the command that runs a program's file as in a guest."""
        return [sys.executable, "-B", "-c", GUEST, FOLDER, self.path, path, *args]

    def run(self, program, *args):
        """Runs the text of a program in a guest; returns what it printed, which is nothing on standard error."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(program)
            file.flush()
            process = subprocess.run(self.command(file.name, *args), capture_output=True, text=True, timeout=100)
        assert (process.returncode, process.stderr) == (0, ""), process.stdout + process.stderr
        return process.stdout

    def drop(self):
        """Ends all streams, as the end of a turn does."""

        async def end():
            for stream in self.streams.values():
                stream.transport.abort()
            self.streams.clear()

        asyncio.run_coroutine_threadsafe(end(), self.loop).result()


class Handler(http.server.BaseHTTPRequestHandler):
    """What clients' own documentations use: it tells what it got, and answers in each way."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, body=b"", status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_any(self):
        body, url = self.body(), urllib.parse.urlsplit(self.path)
        _, kind, *rest = url.path.split("/")
        self.server.requests.append((self.client_address[1], self.command, self.path))
        if kind == "status":
            self.answer(b"{}", int(rest[0]))
        elif kind == "redirect":
            left = int(rest[0]) - 1
            self.answer(status=302, Location=f"/redirect/{left}" if left else "/get")
        elif kind == "cookies" and rest:
            self.answer(status=302, Location="/cookies", Set_Cookie=f"{rest[1]}={rest[2]}; Path=/")
        elif kind == "gzip":
            self.answer(gzip.compress(b'{"gzipped": true}'), Content_Encoding="gzip", Content_Type="application/json")
        elif kind == "bytes":
            self.answer(b"x" * int(rest[0]))
        elif kind == "chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(int(rest[0])):
                line = b"line %d\n" % number
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        elif kind == "slow":
            self.server.released.wait(20)
            self.answer(b"late")
        elif kind == "hangup":
            self.close_connection = True
        elif kind == "last":
            self.answer(b"last", Connection="close")
            self.close_connection = True
        else:
            told = {
                "method": self.command, "args": dict(urllib.parse.parse_qsl(url.query)), "headers": dict(self.headers),
                "data": body[:1000].decode(errors="replace"), "size": len(body), "port": self.client_address[1],
            }
            self.answer(json.dumps(told).encode(), Content_Type="application/json")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = handle_any


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 200

    def __init__(self, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.released = [], threading.Event()
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.released.set()
        self.shutdown()
        self.server_close()


def certificates(folder):
    """Makes a root and a certificate of `api.test`; `None` if this machine has no OpenSSL to do it."""
    root, chain, key = (f"{folder}/{name}.pem" for name in ("root", "chain", "key"))
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subject = ["-subj", "/O=Tests/CN=api.test", "-addext", "subjectAltName=DNS:api.test,DNS:other.test,IP:127.0.0.1"]
    try:
        subprocess.run([*make, *subject, "-keyout", key, "-out", chain], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return chain, key


@contextlib.contextmanager
def network():
    """A host, and its servers of HTTP and HTTPS."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        certificate = certificates(folder)
        plain, tls = Server(), certificate and Server(certificate)
        hosts = {("api.test", 80): plain.server_port, ("localhost", 80): plain.server_port, ("127.0.0.1", 8080): plain.server_port}
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            hosts["closed.test", 80] = unused.getsockname()[1]
        if tls:
            hosts |= {("api.test", 443): tls.server_port, ("wrong.test", 443): tls.server_port}
            stack.callback(tls.close)
        stack.callback(plain.close)
        double = Double(hosts, certificate and certificate[0])
        stack.callback(double.close)
        double.plain, double.secure = plain, tls
        yield double
