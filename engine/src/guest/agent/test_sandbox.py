"""Tests what the sandbox lacks and CPython has: waits, a network, file permissions."""

import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

from hatchery import _archives, _integers, _jpeg, _locks, _network, _pytest, _threads


class Lock:
    """A lock like the build's, which ends the interpreter where it would have to wait."""

    def __init__(self, is_taken=False):
        self.is_taken = is_taken

    def take(self, blocking=True, timeout=-1):
        if timeout != -1 and (not blocking or timeout < 0):
            raise ValueError
        if self.is_taken:
            assert not blocking
            return False
        self.is_taken = True
        return True


class SandboxTest(unittest.TestCase):
    def setUp(self):
        self.slept = []

    def test_locks_sleep_or_refuse_where_they_would_wait(self):
        is_locked = lambda lock: lock.is_taken
        acquire, enter = _locks.lock_methods(Lock.take, is_locked, Lock, self.slept.append)
        self.assertTrue(acquire(Lock()) and acquire(Lock(), timeout=5) and enter(Lock()))
        self.assertFalse(acquire(Lock(True), False))
        self.assertFalse(acquire(Lock(True), timeout=0.5))
        self.assertFalse(acquire(Lock(True), True, 0))
        self.assertEqual(self.slept, [0.5, 0])
        for wait in (acquire, enter):
            with self.assertRaisesRegex(RuntimeError, "deadlock: .* one thread"):
                wait(Lock(True))
        for is_taken in (False, True):
            for arguments in ((True, -3), (False, 5)):
                with self.assertRaises(ValueError):
                    acquire(Lock(is_taken), *arguments)
        # A finaliser, for example, can release it meanwhile.
        lock = Lock(True)
        sleep = lambda seconds: setattr(lock, "is_taken", False)
        acquire, _ = _locks.lock_methods(Lock.take, is_locked, Lock, sleep)
        self.assertTrue(acquire(lock, timeout=1))

    def test_queues_sleep_or_refuse_where_they_would_wait(self):
        def take(queue, block=True, timeout=None):
            if timeout is not None and timeout < 0:
                raise ValueError
            assert queue or not block
            return queue.pop(0)

        get = _locks.queue_method(take, lambda queue: not queue, self.slept.append)
        self.assertEqual((get([1]), get([2], timeout=5), get([3], False)), (1, 2, 3))
        for arguments in ((False,), (True, 0.5)):
            with self.assertRaises(IndexError):
                get([], *arguments)
        self.assertEqual(self.slept, [0.5])
        with self.assertRaisesRegex(RuntimeError, "deadlock: .* one thread"):
            get([])
        for queue in ([], [1]):
            with self.assertRaises(ValueError):
                get(queue, timeout=-1)

    def test_no_thread_is_started_where_none_can_run(self):
        with self.assertRaisesRegex(RuntimeError, "can't start new thread: .* asyncio"):
            _locks.start_thread(print, ())

    def test_the_first_thread_ends_the_waits_of_a_single_one(self):
        class Kind:
            wait = "of one thread"

        order = []
        replaced = lambda kind, names: order.append((kind, names))
        with mock.patch.object(_locks, "put", replaced):
            start = _locks.first_start(lambda *args: order.append(args), [(Kind, {"wait": "usual"})])
            start(print)
            start(len)
        self.assertEqual(order, [(Kind, {"wait": "usual"}), (print,), (len,)])

    def test_sockets_and_addresses_are_refused(self):
        source = """
import socket, urllib.request
def said(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        assert 'the sandbox has no network: ' in str(error), error
        return type(error).__name__
said(socket.socket) == 'OSError' or exit(1)
said(socket.create_connection, ('127.0.0.1', 9)) == 'gaierror' or exit(2)
said(socket.gethostbyname, 'example.org') == 'gaierror' or exit(3)
[socket.gethostbyname(name) for name in ('localhost', '127.1')] == ['127.0.0.1'] * 2 or exit(9)
socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, '0::1')) == '::1' or exit(10)
for scheme in 'http', 'https', 'ftp':
    said(urllib.request.urlopen, f'{scheme}://127.0.0.1/') == 'URLError' or exit(4)
urllib.request.urlopen('data:,x').read() == b'x' or exit(5)
try:
    urllib.request.urlopen('odd://x')
except OSError as error:
    'unknown url type: odd' in str(error) or exit(6)
socket.getfqdn('x') == 'x' or exit(7)
type(socket.__spec__.loader) is type(urllib.__spec__.loader) or exit(8)
"""
        # As in a build without sockets.
        before = (
            "import hatchery._late, sys; hatchery._late.install({})\n"
            "import _socket; del _socket.socketpair\n"
        )
        report = subprocess.run([sys.executable, "-B", "-S", "-c", before + source], capture_output=True)
        self.assertEqual((report.returncode, report.stderr), (0, b""))

    def test_modules_of_the_programs_own_are_left_alone(self):
        ours = (_archives, _integers, _jpeg, _network, _pytest, _threads)
        for adapt in (adapt for module in ours for adapt in module.ADAPT.values()):
            own = types.ModuleType("own")
            names = dict(own.__dict__)
            adapt(own)
            self.assertEqual(own.__dict__, names)

    def test_matplotlib_does_not_complain_of_its_fonts(self):
        import logging

        _threads.adapt_matplotlib(types.SimpleNamespace(rcParams={}))
        with self.assertLogs("matplotlib.font_manager") as logs:
            for message in ("Could not save font_manager cache %s", "another"):
                logging.getLogger("matplotlib.font_manager").warning(message, *["e"] * message.count("%"))
        self.assertEqual(len(logs.records), 1)

    def test_progress_bars_start_no_thread(self):
        module = types.SimpleNamespace(tqdm=types.SimpleNamespace(monitor_interval=10))
        _threads.adapt_tqdm(module)
        self.assertEqual(module.tqdm.monitor_interval, 0)

    def test_pytest_copies_no_descriptor(self):
        capture = types.SimpleNamespace(FDCapture=1, SysCapture=2, FDCaptureBinary=3, SysCaptureBinary=4)
        _pytest.adapt_capture(capture)
        self.assertEqual((capture.FDCapture, capture.FDCaptureBinary), (2, 4))
        handler = types.SimpleNamespace(
            fault_handler_stderr_fd_key=1, pytest_configure=2, pytest_unconfigure=3, pytest_addoption=4
        )
        _pytest.adapt_faulthandler(handler)
        self.assertEqual(set(vars(handler)), {"fault_handler_stderr_fd_key", "pytest_addoption"})

    def test_huffman_codes_are_no_longer_than_the_standard_allows(self):
        fibonacci = [1, 1]
        while len(fibonacci) < 40:
            fibonacci.append(sum(fibonacci[-2:]))
        for counts in ({7: 5}, {0: 1, 1: 1}, dict(enumerate(fibonacci)), dict.fromkeys(range(256), 3)):
            symbols, lengths, codes = _jpeg.code_of(counts)
            self.assertEqual(set(symbols), set(counts))
            self.assertEqual(lengths, sorted(lengths))
            self.assertLessEqual(lengths[-1], 16)
            texts = [format(code, f"0{length}b") for code, length in zip(codes, lengths)]
            self.assertNotIn(True, ["0" not in text for text in texts])
            for text in texts:
                self.assertEqual([other for other in texts if text.startswith(other)], [text])

    def test_files_in_archives_are_readable(self):
        source = """
import io, os, tarfile, zipfile
tar = tarfile.open(fileobj=io.BytesIO(), mode='w')
for name in os.listdir():
    zipped = zipfile.ZipInfo.from_file(name).external_attr >> 16
    print(name, oct(tar.gettarinfo(name).mode & 0o777), oct(zipped & 0o777))
"""
        before = (
            "import hatchery._late, os, sys\nhatchery._late.install({})\n"
            "def bare(inner):\n"
            "  def call(*a, **k):\n"
            "    stat, *others = inner(*a, **k).__reduce__()[1]\n"
            "    return os.stat_result((stat[0] & ~0o777, *stat[1:]), *others)\n"
            "  return call\n"
            "os.chdir(sys.argv[1])\n"
        )
        bare = "os.stat, os.lstat = bare(os.stat), bare(os.lstat)\n"
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "folder"))
            with open(os.path.join(folder, "file"), "w") as file:
                os.fchmod(file.fileno(), 0o600)
            os.symlink("file", os.path.join(folder, "link"))
            for middle, expected in [
                (bare, {"file 0o644 0o644", "folder 0o755 0o755", "link 0o777 0o644"}),
                ("", {"file 0o600 0o600", "folder 0o755 0o755", "link 0o777 0o600"}),
            ]:
                code = [sys.executable, "-B", "-S", "-c", before + middle + source, folder]
                report = subprocess.run(code, capture_output=True, text=True)
                self.assertEqual((report.stderr, set(report.stdout.splitlines())), ("", expected))


if __name__ == "__main__":
    unittest.main()
