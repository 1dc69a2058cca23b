"""TCP sockets over streams of the host, which looks up names, connects, does TLS and checks requests.

A socket has no address of its own, and a name gets an address that stands for it (`address_of`). The
operations and the answers of the host are those of `isolation/egress/src/lib.rs`. None of them waits:
what takes time gets a ticket of host functions, so an interrupt ends each wait.
"""

import _socket
import _thread
import binascii
import errno
import functools
import itertools
import os
import time

from hatchery import _system, _waits
from hatchery._host import bridge
from hatchery._system import NO_NETWORK
from hatchery._wire import NET

OPEN, START_TLS, WRITE, READ, READY, SHUTDOWN_WRITE, CLOSE = (bytes([number]) for number in range(1, 8))
DONE, FAILED = 0, 1
# What a program waits for.
READABLE, WRITABLE = 1, 2
# What failed, by the host's numbers, which begin with 1.
CODES = (
    "EAGAIN EACCES EAI_NONAME ECONNREFUSED EHOSTUNREACH ETIMEDOUT ECONNRESET EPIPE EBADF EINVAL EDQUOT ECERT ESSL EPROTO"
).split()
# The answer in place of those that a run's end leaves out.
GONE = bytes([FAILED, 1 + CODES.index("EBADF")]) + b"the run that opened this connection has ended"
# The most bytes that one operation moves, which a frame has room for.
MOST_BYTES = 60 << 10
# With other threads, a wait for several streams takes only so long at once.
SLICE_SECONDS = 0.05
# Addresses that stand for names: 198.18.0.0/15, which is for benchmarks of networks; of this machine 127.18.0.0/16.
STAND_INS, LOCAL = (0xC6120000, 1 << 17), (0x7F120000, 1 << 16)
MOST_NAMES = 1 << 15
# A TLS object over buffers sends it, with its server's name, and receives it with the host's answer.
HELLO = b"\x16\x03\x01" + os.urandom(16)
ONLY_TCP = "the sandbox's sockets are TCP connections to what the job was granted"

NONBLOCK, CLOEXEC = getattr(_socket, "SOCK_NONBLOCK", 0), getattr(_socket, "SOCK_CLOEXEC", 0)
STREAM_TYPES = {_socket.SOCK_STREAM | nonblock | cloexec for nonblock in (0, NONBLOCK) for cloexec in (0, CLOEXEC)}

# The streams by descriptor. The numbers are above those of files, and not used twice.
STREAMS = {}
numbers = itertools.count(1 << 10)
names, addresses = {}, {}


def refused(kind, number, text=NO_NETWORK, remedy="data"):
    """Returns the exception for what a job may not do, with what would help."""
    error = kind(number, text)
    error._hatchery_remedy = remedy
    return error


def failed(number):
    return OSError(number, os.strerror(number))


def require(kind=OSError, number=errno.ENETUNREACH):
    """Raises our message in a job that may connect to nothing."""
    try:
        is_granted = ask(CLOSE, bytes(4))[0] == DONE
    except Exception:  # a host without it
        is_granted = False
    if not is_granted:
        raise refused(kind, number)


class Pending:
    """An answer that the host gives later, among those to host functions."""

    def __init__(self, ticket):
        self.ticket, self.answer = ticket, None
        bridge.awaited[ticket] = self
        if ticket in bridge._strays:
            bridge.dispatch([bridge._strays.pop(ticket)])

    def done(self):
        return self.answer is not None

    def set_result(self, answer):
        self.answer = answer

    def set_exception(self, error):
        self.answer = GONE

    def wait(self, end):
        """Waits until then, if not `None`; returns whether the answer is there."""
        if end == 0 or self.answer is not None:
            return self.answer is not None
        return _waits.wait(self.part, None if end is None else max(end - time.monotonic(), 0))

    def part(self, seconds):
        if self.answer is None:
            bridge.dispatch(bridge.wait(seconds, self.ticket))
        return self.answer is not None

    def cancel(self):
        if bridge.awaited.get(self.ticket) is self:
            del bridge.awaited[self.ticket]
            bridge.cancel(self.ticket)
            # Another thread may wait for it.
            self.answer = GONE


class RunEnd:
    """Awaits the run's end among the calls that end with it: its streams are the next run's no more."""

    TICKET, NO_STREAM = -1, b"\xff" * 4

    def done(self):
        return False

    def set_exception(self, error):
        for stream in STREAMS.values():
            stream.handle = stream.handle and self.NO_STREAM


def ask(*parts):
    return bridge._call(b"".join((NET, *parts)))


def read_answer(answer):
    """Returns what an answer carries, or a `Pending`; raises what failed."""
    if answer[0] == DONE:
        return answer[1:]
    if answer[0] != FAILED:
        return Pending(int.from_bytes(answer[1:], "little"))
    name, text = CODES[answer[1] - 1], str(answer[2:], "utf-8", "replace")
    if name == "EAI_NONAME":
        raise _socket.gaierror(_socket.EAI_NONAME, text)
    if name in ("ECERT", "ESSL"):
        import _ssl

        raise _ssl.failure(text, name == "ECERT")
    raise OSError(getattr(errno, name), text)


def end_of(timeout):
    """Returns the time at which an operation ends: `None` for never, 0 if it doesn't wait."""
    return time.monotonic() + timeout if timeout else timeout


def have_ended(pending, end):
    """Raises what sockets raise unless the answer comes in time."""
    if pending is not None and not pending.wait(end):
        raise TimeoutError("timed out") if end else failed(errno.EAGAIN)


class Stream:
    """What a descriptor stands for: a connection, or what can become one."""

    def __init__(self, family, proto):
        self.family, self.proto, self.options = family, proto, {}
        # The host's number in bytes, and what was connected to; what failed meanwhile.
        self.handle = self.host = self.peer = self.error = None
        # What the host has yet to answer: the connection, TLS, and when which event is there.
        self.opening = self.tls = None
        self.waits = {}
        # What was received and not read, and whether TLS begins among the data.
        self.kept, self.is_over, self.greets = b"", False, False

    def connect(self, address, timeout):
        if self.connected(None):
            raise failed(errno.EISCONN)
        is_first, end = self.opening is None and self.error is None, end_of(timeout)
        if is_first:
            host, port = target_of(address)
            self.host = host
            # With a second more, so that the program's own timeout ends first, in CPython's words.
            limit = min(int(timeout * 1000) + 1000, (1 << 32) - 1) if timeout else 0
            self.peer = peer_of(host, port, self.family)
            fields = limit.to_bytes(4, "little") + port.to_bytes(2, "little")
            answer = read_answer(ask(OPEN, fields, host.encode()))
            bridge.awaited[RunEnd.TICKET] = RunEnd()
            self.opening, self.handle = (answer, None) if isinstance(answer, Pending) else (None, answer)
        if self.opening is not None and not self.opening.wait(end):
            if not end:
                raise failed(errno.EINPROGRESS if is_first else errno.EALREADY)
            self.close()
            raise TimeoutError("timed out")
        self.connected(None)
        self.raise_error()

    def connected(self, number=errno.ENOTCONN):
        """Returns the host's number, or `None` or an error if there is no connection."""
        if self.opening is not None and self.opening.done():
            opening, self.opening = self.opening, None
            try:
                self.handle = read_answer(opening.answer)
            except OSError as error:
                self.error = error
        if self.handle is None and number is not None:
            self.raise_error()
            raise failed(number)
        return self.handle

    def raise_error(self):
        error, self.error = self.error, None
        if error is not None:
            raise error

    def begin(self, event):
        """Returns what to wait for until an event is there; `None` if it is, or if the stream failed."""
        handle = self.connected(None)
        if handle is None:
            return self.opening
        self.finish_greeting()
        if event == READABLE and (self.kept or self.is_over):
            return None
        if self.greets:
            return self.tls
        wait = self.waits.get(event)
        if wait is None or wait.done():
            try:
                wait = read_answer(ask(READY, handle, bytes([event])))
            except OSError:
                return None
            if not isinstance(wait, Pending):
                return None
            self.waits[event] = wait
        return wait

    def receive(self, most, end, is_peek=False):
        while most:
            try:
                data = self.kept or self.read(most)
            except BlockingIOError:
                have_ended(self.begin(READABLE), end)
                continue
            self.kept = data if is_peek else data[most:]
            return data[:most]
        return b""

    def read(self, most):
        handle = self.connected()
        if self.is_over:
            return b""
        if self.greets:
            raise failed(errno.EAGAIN)
        return read_answer(ask(READ, handle, min(most, MOST_BYTES).to_bytes(4, "little")))

    def send(self, data, end):
        data = memoryview(data).cast("B")
        while data:
            handle = self.connected()
            if data[: len(HELLO)] == HELLO:
                self.greet(handle, data[len(HELLO) :])
                return len(data)
            try:
                return int.from_bytes(read_answer(ask(WRITE, handle, data[:MOST_BYTES])), "little")
            except BlockingIOError:
                have_ended(self.begin(WRITABLE), end)
        return 0

    def start_tls(self, name, end):
        """Does the handshake; returns the host's facts about it."""
        tls = self.tls or read_answer(ask(START_TLS, self.connected(), (name or self.host).encode()))
        if isinstance(tls, Pending):
            self.tls = tls  # a socket that doesn't wait asks again
            have_ended(tls, end)
            self.tls, tls = None, read_answer(tls.answer)
        return tls

    def greet(self, handle, name):
        """Begins TLS for an object over buffers, whose owner moves the host's answer to it."""
        answer = ask(START_TLS, handle, name or self.host.encode())
        self.greets = answer[0] not in (DONE, FAILED)
        if self.greets:
            self.tls = read_answer(answer)
        else:
            self.kept = greeting(answer)

    def finish_greeting(self):
        if self.greets and self.tls.done():
            self.kept, self.tls, self.greets = greeting(self.tls.answer), None, False

    def shutdown(self, how):
        handle = self.connected()
        if how != _socket.SHUT_RD:
            read_answer(ask(SHUTDOWN_WRITE, handle))
        if how != _socket.SHUT_WR:
            self.kept, self.is_over = b"", True

    def close(self):
        handle = self.connected(None)
        for pending in (self.opening, self.tls, *self.waits.values()):
            if isinstance(pending, Pending):
                pending.cancel()
        self.handle, self.opening, self.waits = None, None, {}
        if handle is not None:
            ask(CLOSE, handle)


def greeting(answer):
    return HELLO + len(answer).to_bytes(4, "little") + answer


def close(fd, /):
    stream = STREAMS.pop(fd, None)
    if stream is None:
        raise failed(errno.EBADF)
    stream.close()


class Socket:
    """Takes the place of `_socket.socket`, the base class of sockets."""

    __slots__ = "_fd", "_timeout"

    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        self._fd, self._timeout = -1, _socket.getdefaulttimeout()
        if fileno is not None:
            if fileno not in STREAMS:
                raise failed(errno.EBADF)
            self._fd = fileno
            return
        require()
        family = _socket.AF_INET if family == -1 else family
        if family not in (_socket.AF_INET, _socket.AF_INET6) or type not in (-1, *STREAM_TYPES):
            raise OSError(errno.EPROTONOSUPPORT, ONLY_TCP)
        if type != -1 and type & NONBLOCK:
            self._timeout = 0.0
        self._fd = next(numbers)
        STREAMS[self._fd] = Stream(family, max(proto, 0))

    def __del__(self):
        if getattr(self, "_fd", -1) in STREAMS:
            import warnings

            try:
                warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self)
            finally:
                self.close()

    @property
    def _stream(self):
        stream = STREAMS.get(self._fd)
        if stream is None:
            raise failed(errno.EBADF)
        return stream

    # Without a stream, those of a closed socket.
    family = property(lambda self: getattr(STREAMS.get(self._fd), "family", _socket.AF_INET))
    proto = property(lambda self: getattr(STREAMS.get(self._fd), "proto", 0))
    type = property(lambda self: _socket.SOCK_STREAM)
    timeout = property(lambda self: self._timeout)

    def fileno(self):
        return self._fd

    def detach(self):
        fd, self._fd = self._fd, -1
        return fd

    def close(self):
        fd = self.detach()
        if fd in STREAMS:
            close(fd)

    def settimeout(self, timeout, /):
        if timeout is not None and not 0 <= timeout < 1 << 33:
            raise ValueError("Timeout value out of range")
        self._timeout = None if timeout is None else float(timeout)

    def gettimeout(self):
        return self._timeout

    def setblocking(self, flag, /):
        self._timeout = None if flag else 0.0

    def getblocking(self):
        return self._timeout != 0

    def connect(self, address, /):
        self._stream.connect(address, self._timeout)

    def connect_ex(self, address, /):
        try:
            self.connect(address)
        except _socket.gaierror:
            raise
        except OSError as error:
            return error.errno or errno.EAGAIN
        return 0

    def getpeername(self):
        if self._stream.connected(None) is None:
            raise failed(errno.ENOTCONN)
        return self._stream.peer

    def getsockname(self):
        return peer_of("", 0, self._stream.family)

    def getsockopt(self, level, option, buflen=None, /):
        stream, value = self._stream, 0
        if level == _socket.SOL_SOCKET and option == _system.FACTS["socket"]["SO_ERROR"]:
            # Raises it, since its number alone would lose what the host says.
            stream.connected(None)
            stream.raise_error()
        elif level == _socket.SOL_SOCKET and option == _socket.SO_TYPE:
            value = _socket.SOCK_STREAM
        else:
            value = stream.options.get((level, option), 0)
        return value if buflen is None else bytes(buflen)

    def setsockopt(self, level, option, value, optlen=None, /):
        """Stores an option, which has no effect: the connection is the host's."""
        self._stream.options[level, option] = value

    def recv(self, bufsize, flags=0, /):
        if bufsize < 0:
            raise ValueError("negative buffersize in recv")
        return self._stream.receive(bufsize, end_of(self._timeout), flags & _socket.MSG_PEEK)

    def recv_into(self, buffer, nbytes=0, flags=0):
        view = memoryview(buffer).cast("B")
        data = self.recv(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data)

    def recvfrom(self, bufsize, flags=0, /):
        return self.recv(bufsize, flags), self.getpeername()

    def recvfrom_into(self, buffer, nbytes=0, flags=0):
        return self.recv_into(buffer, nbytes, flags), self.getpeername()

    def recvmsg(self, bufsize, ancbufsize=0, flags=0, /):
        return self.recv(bufsize, flags), [], 0, self.getpeername()

    def send(self, data, flags=0, /):
        return self._stream.send(data, end_of(self._timeout))

    def sendall(self, data, flags=0, /):
        stream, data, end = self._stream, memoryview(data).cast("B"), end_of(self._timeout)
        while data:
            data = data[stream.send(data, end) :]

    def sendmsg(self, buffers, ancdata=(), flags=0, address=None, /):
        return self.send(b"".join(buffers))

    def shutdown(self, how, /):
        self._stream.shutdown(how)

    def _refused(self, *args):
        raise OSError(errno.EOPNOTSUPP, ONLY_TCP)

    bind = listen = _accept = sendto = _refused


def target_of(address):
    """Returns the name or address, and the port, to which to connect."""
    if not isinstance(address, tuple) or len(address) < 2:
        raise TypeError(f"AF_INET address must be tuple, not {type(address).__name__}")
    host, port = address[:2]
    if not 0 <= port <= 0xFFFF:
        raise OverflowError("connect(): port must be 0-65535.")
    host = text_of(host)
    return names.get(host, host), port


def peer_of(host, port, family):
    if family == _socket.AF_INET6:
        return host or "::", port, 0, 0
    return address_of(host) if host else "0.0.0.0", port


def text_of(host):
    """Returns a name as text, in the form for international names."""
    host = host if isinstance(host, str) else str(host, "ascii")
    return host if host.isascii() else str(host.encode("idna"), "ascii")


def address_of(host):
    """Returns an address in version 4 itself, or the address that stands for a name, always the same."""
    try:
        return _socket.inet_ntoa(_socket.inet_aton(host))
    except OSError:
        pass
    if host not in addresses:
        if len(addresses) >= MOST_NAMES:
            raise _socket.gaierror(_socket.EAI_MEMORY, f"the program looked up {MOST_NAMES} names")
        first, count = LOCAL if host == "localhost" or host.endswith(".localhost") else STAND_INS
        number = binascii.crc32(host.encode())
        while (address := _socket.inet_ntoa((first + number % count).to_bytes(4, "big"))) in names:
            number += 1
        names[address], addresses[host] = host, address
    return addresses[host]


def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
    require(_socket.gaierror, _socket.EAI_FAIL)
    host = "" if host is None else text_of(host)
    if not isinstance(port, int):
        port = text_of(port or "0")
        port = int(port) if port.isdigit() else _system.PORTS.get(port)
        if port is None:
            raise _socket.gaierror(_socket.EAI_SERVICE, "Servname not supported for ai_socktype")
    is_passive = not host and flags & _socket.AI_PASSIVE
    if ":" in host or not host and family == _socket.AF_INET6:
        found, address = _socket.AF_INET6, (host or "::" if is_passive else host or "::1", port, 0, 0)
    else:
        host = host or ("0.0.0.0" if is_passive else "127.0.0.1")
        found, address = _socket.AF_INET, (address_of(host), port)
        if flags & _socket.AI_NUMERICHOST and address[0] in names and address[0] != host:
            raise _socket.gaierror(_socket.EAI_NONAME, "Name or service not known")
    if family not in (0, found):
        raise _socket.gaierror(_socket.EAI_FAMILY, "Address family for hostname not supported")
    canonical = host if flags & _socket.AI_CANONNAME else ""
    return [(found, type or _socket.SOCK_STREAM, proto or _system.PROTOCOLS["tcp"], canonical, address)]


def gethostbyname(hostname, /):
    """Return the IP address of this machine, the address itself, or the one that stands for a name."""
    hostname = text_of(hostname)
    if hostname in ("", "localhost", getattr(_socket, "gethostname", str)()):
        return "127.0.0.1"
    try:
        return _socket.inet_ntoa(_socket.inet_aton(hostname))
    except OSError:
        return getaddrinfo(hostname, 0, _socket.AF_INET)[0][4][0]


def gethostbyname_ex(hostname, /):
    return text_of(hostname), [], [gethostbyname(hostname)]


def gethostbyaddr(address, /):
    require(_socket.gaierror, _socket.EAI_FAIL)
    if address not in names and address not in addresses:
        raise _socket.herror(1, "Unknown host")
    name = names.get(address, address)
    return name, [], [addresses[name]]


def getnameinfo(sockaddr, flags, /):
    require(_socket.gaierror, _socket.EAI_FAIL)
    host, port = sockaddr[:2]
    return host if flags & _socket.NI_NUMERICHOST else names.get(host, host), str(port)


def look(wanted):
    """Returns which of the wanted events are there, by descriptor, and what to wait for until others are."""
    ready, begun = {}, []
    for fd, events in wanted.items():
        stream = STREAMS.get(fd)
        for event in (READABLE, WRITABLE):
            if events & event:
                pending = stream and stream.begin(event)
                if pending is None:
                    ready[fd] = ready.get(fd, 0) | event
                else:
                    begun.append(pending)
    return ready, begun


def select_streams(wanted, timeout):
    """Waits until one of the wanted events is there; returns those that are, by descriptor."""

    def part(seconds):
        ready, begun = look(wanted)
        if ready or not seconds:
            return ready
        if not begun:
            return _waits.plain_sleep(seconds)
        first, *others = begun
        if others and not _thread._count():
            bridge.dispatch(bridge.wait(seconds))
        else:
            # A wait for any answer would take what wakes another thread's event loop.
            for pending in others:
                pending.part(0)
            first.part(sliced(seconds) if others else seconds)
        return look(wanted)[0]

    return _waits.wait(part, timeout) or {}


def sliced(timeout):
    """Shortens a wait for several streams where another thread may receive what it waits for."""
    if not _thread._count():
        return timeout
    return SLICE_SECONDS if timeout is None else min(timeout, SLICE_SECONDS)


def adapt_socket(module):
    """Replaces what the C module can't do here. A build with sockets, as WASIX has, keeps its own."""
    if not hasattr(module, "socket") or hasattr(module, "socketpair"):
        return
    for name, general in ("inet_aton", "inet_pton"), ("inet_ntoa", "inet_ntop"):
        if not hasattr(module, name):
            setattr(module, name, functools.partial(getattr(module, general), module.AF_INET))
    module.socket = module.SocketType = Socket
    for function in (close, getaddrinfo, gethostbyaddr, gethostbyname, gethostbyname_ex, getnameinfo):
        setattr(module, function.__name__, function)


def descriptor(file):
    fd = file if isinstance(file, int) else file.fileno()
    if fd < 0:
        raise ValueError(f"file descriptor cannot be a negative integer ({fd})")
    return fd


def adapt_select(module):
    """Lets `select` and `poll` wait for streams. Files, which are always ready, are left to the originals."""
    if not hasattr(module, "select") or _socket.socket is not Socket:
        return
    plain_select, plain_poll = module.select, getattr(module, "poll", None)

    def select(rlist, wlist, xlist, timeout=None, /):
        reading, writing = ([(descriptor(file), file) for file in files] for files in (rlist, wlist))
        if STREAMS.keys().isdisjoint(fd for fd, _ in reading + writing):
            return plain_select(rlist, wlist, xlist, timeout)
        wanted = {fd: READABLE for fd, _ in reading}
        wanted |= {fd: wanted.get(fd, 0) | WRITABLE for fd, _ in writing}
        ready = select_streams(wanted, timeout)
        found = [
            [file for fd, file in some if ready.get(fd, 0) & event]
            for some, event in ((reading, READABLE), (writing, WRITABLE))
        ]
        return *found, []

    class Poll:
        def __init__(self):
            self._wanted = {}

        def register(self, fd, eventmask=module.POLLIN | module.POLLPRI | module.POLLOUT, /):
            self._wanted[descriptor(fd)] = eventmask

        def modify(self, fd, eventmask, /):
            if descriptor(fd) not in self._wanted:
                raise failed(errno.ENOENT)
            self._wanted[descriptor(fd)] = eventmask

        def unregister(self, fd, /):
            del self._wanted[descriptor(fd)]

        def poll(self, timeout=None, /):
            if STREAMS.keys().isdisjoint(self._wanted):
                poll = plain_poll()
                for fd, events in self._wanted.items():
                    poll.register(fd, events)
                return poll.poll(timeout)
            flags = (module.POLLIN, READABLE), (module.POLLOUT, WRITABLE)
            wanted = {fd: sum(event for flag, event in flags if mask & flag) for fd, mask in self._wanted.items()}
            seconds = None if timeout is None or timeout < 0 else timeout / 1000
            ready = select_streams(wanted, seconds)
            return [(fd, sum(flag for flag, event in flags if events & event)) for fd, events in ready.items()]

    module.select = select
    if plain_poll is not None:
        module.poll = Poll


ADAPT = {"_socket": adapt_socket, "select": adapt_select}
# Where `select` comes first, `_socket` was imported by this module, which had no table then.
adapt_socket(_socket)
