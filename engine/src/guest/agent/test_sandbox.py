"""Tests what the sandbox lacks and CPython has: waits, a network, file permissions."""

import os
import queue
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

from hatchery import _archives, _integers, _jpeg, _network, _pytest, _threads, _waits


class Lock:
    """A lock like the build's, which ends the interpreter where it would have to wait."""

    def __init__(self, is_taken=False):
        self.is_taken = is_taken

    def take(self, blocking=True, timeout=-1):
        if timeout != -1 and (not blocking or timeout < 0):
            raise ValueError
        if self.is_taken:
            assert not blocking or timeout == 0
            return False
        self.is_taken = True
        return True


class Clock:
    """A time that sleeps let pass."""

    def __init__(self, slept):
        self.slept = slept

    def monotonic(self):
        return sum(self.slept)


class SandboxTest(unittest.TestCase):
    def setUp(self):
        self.slept = []

    def waits(self, **changed):
        return mock.patch.multiple(_waits, plain_sleep=self.slept.append, **changed)

    def test_locks_sleep_or_refuse_where_they_would_wait(self):
        acquire, enter = _waits.lock_methods(Lock.take, Lock)
        self.assertTrue(acquire(Lock()) and acquire(Lock(), timeout=5) and enter(Lock()))
        self.assertFalse(acquire(Lock(True), False))
        with self.waits(time=Clock(self.slept)):
            self.assertFalse(acquire(Lock(True), timeout=0.5))
            self.assertFalse(acquire(Lock(True), True, 0))
        self.assertEqual(self.slept, [0.5, 0])
        for method in (acquire, enter):
            with self.assertRaisesRegex(RuntimeError, "deadlock: .* one thread"):
                method(Lock(True))
        for is_taken in (False, True):
            for arguments in ((True, -3), (False, 5)):
                with self.assertRaises(ValueError):
                    acquire(Lock(is_taken), *arguments)
        # A finaliser, for example, can release it meanwhile.
        lock = Lock(True)
        with mock.patch.object(_waits, "plain_sleep", lambda seconds: setattr(lock, "is_taken", False)):
            self.assertTrue(acquire(lock, timeout=1))

    def test_queues_sleep_or_refuse_where_they_would_wait(self):
        get = _waits.queue_method(queue.SimpleQueue.get, queue.Empty)
        filled = queue.SimpleQueue()
        for one in range(3):
            filled.put(one)
        self.assertEqual((get(filled), get(filled, timeout=5), get(filled, False)), (0, 1, 2))
        with self.waits(time=Clock(self.slept)):
            for arguments in ((False,), (True, 0.5)):
                with self.assertRaises(queue.Empty):
                    get(filled, *arguments)
        self.assertEqual(self.slept, [0.5])
        with self.assertRaisesRegex(RuntimeError, "deadlock: .* one thread"):
            get(filled)
        with self.assertRaises(ValueError):
            get(filled, timeout=-1)

    def test_the_main_thread_waits_for_others_in_parts_that_an_interrupt_ends(self):
        parts = []

        def take(lock, blocking=True, timeout=-1):
            parts.append(timeout)
            # An interrupt has ended the second part, and CPython has called a handler that returned.
            return len(parts) == 3

        acquire, _ = _waits.lock_methods(take, Lock)
        with self.waits(is_alone=False):
            self.assertTrue(acquire(Lock()))
            self.assertEqual(parts, [-1, _waits.LONGEST, _waits.LONGEST])
            ends = iter((False, False, False, True))
            join = _waits.join_method(lambda handle, timeout=None: parts.append(timeout), lambda handle: next(ends))
            join(None)
            self.assertEqual(parts[3:], [0, None])
            self.assertEqual(self.slept, [_waits.SHORTEST_JOIN * times for times in (1, 2, 4)])
            parts.clear()
            # Other threads wait as in CPython.
            thread = threading.Thread(target=acquire, args=(Lock(),))
            thread.start()
            thread.join()
            self.assertEqual(parts, [-1, -1])

    def test_a_timer_s_handler_runs_while_the_main_thread_waits(self):
        clock = Clock(self.slept)

        class Timer:
            due = 2

            def ring(self):
                if self.due is not None and clock.monotonic() >= self.due:
                    self.due = None
                    lock.is_taken = False

        lock = Lock(True)
        acquire, _ = _waits.lock_methods(Lock.take, Lock)
        with self.waits(time=clock, timer=Timer()):
            self.assertTrue(acquire(lock, timeout=9))
            self.assertEqual(self.slept, [2, 7])
            with self.assertRaisesRegex(RuntimeError, "deadlock: .* one thread"):
                acquire(lock)
            _waits.timer.due = 11
            self.assertTrue(acquire(lock), "the handler releases it")

    def test_no_thread_is_started_where_none_can_run(self):
        with self.assertRaisesRegex(RuntimeError, "can't start new thread: .* asyncio"):
            _waits.start_thread(print, ())

    def test_a_program_is_alone_until_it_has_started_a_thread(self):
        def refuse():
            raise RuntimeError

        with self.waits(is_alone=True):
            with self.assertRaises(RuntimeError):
                _waits.starter(refuse)()
            self.assertTrue(_waits.is_alone)
            self.assertEqual(_waits.starter(lambda: 7)(), 7)
            self.assertFalse(_waits.is_alone)

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
            "import _socket, hatchery._late, sys; hatchery._late.install({})\n"
            "del _socket.socketpair; hatchery._late.adapt(_socket)\n"
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

    def test_pytest_reports_no_crashes(self):
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
