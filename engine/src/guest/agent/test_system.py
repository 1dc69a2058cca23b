"""Tests what the agent gives programs in place of what the build lacks or does differently."""

import hashlib
import importlib
import itertools
import mmap
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

from hatchery import _dates, _hashes, _mmap, _signals, _system

# A date in each season, with one digit and with two.
DATES = ((2024, 1, 2, 3, 4, 5, 1, 2, 0), (1999, 12, 31, 23, 59, 59, 4, 365, 0), (2021, 1, 1, 0, 9, 1, 4, 1, 0))


# What children print, write, read and end with, of which each line must be as with processes.
CHILDREN = """
import os, subprocess, sys
PY = sys.executable
def show(*a, **k):
    try:
        r = subprocess.run(*a, **k); print(r.returncode, r.stdout, r.stderr)
    except Exception as e: print(type(e).__name__, getattr(e,'returncode',None), getattr(e,'stdout',None))
show([PY, '-c', 'print(1)'], capture_output=True)
show([PY, '-c', 'print("é")'], capture_output=True, text=True)
show([PY, '-c', 'import sys; print(sys.argv); sys.exit(3)', 'a', 'b'], stdout=subprocess.PIPE, text=True)
show([PY, '-c', 'import sys; sys.exit("bad")'], capture_output=True, text=True)
show([PY, '-c', '1/0'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
r=subprocess.run([PY, '-c', '1/0'], capture_output=True, text=True); print(r.returncode, r.stderr.splitlines()[-1], 'hatchery' in r.stderr)
open('s.py','w').write('import sys, os\\nprint(__name__, os.path.basename(__file__), sys.argv[1:], sys.path[0]==os.getcwd())\\nimport helper\\nprint(helper.x)\\nhelper.x = 5\\n')
open('helper.py','w').write('x = 1\\n')
show(['python3', 's.py', '1', '2'], capture_output=True, text=True)
show(['python3', 's.py'], capture_output=True, text=True)
open('bad.py','w').write('print(__file__)\\nraise ValueError("x")\\n')
r=subprocess.run([PY, './bad.py'], capture_output=True, text=True); print((r.stdout + r.stderr).replace(os.getcwd(), '.'))
show(['python3', 'missing.py'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
show([PY, '-c', 'x = input(); print(x * 2)'], input='ab\\n', capture_output=True, text=True)
show([PY, '-c', 'import sys; sys.stdout.write(sys.stdin.read().upper())'], input=b'abc', stdout=subprocess.PIPE)
show([PY, '-'], input='print(6*7)', capture_output=True, text=True)
show([PY, '-c', 'import os; print(os.environ.get("K"), "HOME" in os.environ, os.getcwd().endswith("sub"))'], env={'K': 'v'}, cwd=(os.mkdir('sub'), 'sub')[1], capture_output=True, text=True)
show([PY, '-c', 'import sys; print("o"); print("e", file=sys.stderr)'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
show([PY, '-c', 'while True: pass'], timeout=0.3, capture_output=True)
show([PY, '-m', 'json.tool'], input='{"a":1}', capture_output=True, text=True)
show([PY, '-c', 'import sys; sys.exit(1)'], check=True)
print(subprocess.check_output([PY, '-c', 'print("out")']), subprocess.call([PY, '-c', 'raise SystemExit(4)']))
print(subprocess.getoutput('python3 -c "print(5); print(6)"'))
p = subprocess.Popen([PY, '-c', 'import sys\\nfor l in sys.stdin: print(l.strip()[::-1])'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(p.communicate('abc\\ndef\\n'), p.returncode, p.poll())
p = subprocess.Popen([PY, '-c', 'for i in range(3): print(i)'], stdout=subprocess.PIPE, text=True)
for line in p.stdout: print('got', line.strip())
print(p.wait())
p = subprocess.Popen([PY, '-c', 'print(input())'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
p.stdin.write(b'hello\\n'); p.stdin.close(); print(p.stdout.read(), p.wait())
with open('out.txt','w') as f: print(subprocess.call([PY, '-c', 'print("to file")'], stdout=f))
print(open('out.txt').read())
show([PY, '-c', 'import os; os._exit(7)'], capture_output=True)
show([PY, '-c', 'import os; os.write(1, b"raw"); os.write(2, b"err")'], capture_output=True)
show([PY, '-c', 'import os; os.chdir("/"); os.environ["Z"]="1"; import sys; sys.path.append("q"); del sys.modules["json"]' if 'json' in sys.modules else 'pass'], capture_output=True)
print('Z' in os.environ, 'q' in sys.path, os.path.basename(os.getcwd()) != '', __name__, sys.argv[1:])
show([PY, 's.py'], stdout=subprocess.PIPE, cwd='nowhere')
with subprocess.Popen([PY, '-c', 'print(3)'], stdout=subprocess.PIPE) as p: print(p.stdout.read())
p = subprocess.Popen([PY, '-c', 'print(1, flush=True)\\nwhile True: pass'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
try: p.communicate(timeout=2)
except subprocess.TimeoutExpired as error: p.kill(); print(error.stdout in (None, b'1\\n'), p.communicate()[0] in ('', '1\\n'), p.returncode)
"""
# The same for commands of the shell.
COMMANDS = """
import os, subprocess, sys
def show(*a, **k):
    try:
        r = subprocess.run(*a, **k); print(r.args, r.returncode, r.stdout, r.stderr)
    except Exception as e: print(type(e).__name__, e, getattr(e, 'filename', ''), getattr(e, 'stdout', None), getattr(e, 'stderr', None))
os.mkdir('sub')
open('s.txt', 'w').write('b\\na\\n')
open('run.sh', 'w').write('#!/bin/sh\\necho $0 $# "$1"; exit 4\\n')
open('plain.sh', 'w').write('echo plain\\n')
os.chmod('run.sh', 0o755)
piped = dict(stdout=subprocess.PIPE, text=True)
both = dict(capture_output=True, text=True)
show('echo "one  two" three | tr a-z A-Z; exit 3', shell=True, **both)
show('ls | wc -l', shell=True, **both)
show(['ls', '-1'], **both)
show(['echo', 'a  b', '$HOME', '*'], **both)
show('echo $0 $1', shell=True, **both)
show(['echo $0 $1 $#', 'name', 'b c'], shell=True, **both)
show('echo $BASH; exit 2', shell=True, executable='/bin/sh', **both)
show(['cat'], input=b'given', capture_output=True)
show(['cat', 's.txt', '-'], input='é', encoding='utf-8', stdout=subprocess.PIPE)
show('cat > written.txt; wc -c < written.txt', input=b'given', shell=True, capture_output=True)
show('cd sub && pwd | sed "s/.*[/]//"; echo $K >&2', shell=True, env={'K': 'v', 'PATH': os.environ['PATH']}, **both)
show(['env'], env={'K': 'v', 'PATH': '/bin:/usr/bin'}, **both)
show(['pwd'], cwd='/tmp', **both)
show(['sort', 's.txt'], cwd='sub', stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
show(['sort', '../s.txt'], cwd='sub', **both)
show('python3 -c "print(6 * 7); import sys; sys.exit(5)" | cat', shell=True, **piped)
show('python3 -c "import sys; sys.exit(5)"', shell=True, **piped)
show(['false'], check=True)
show('echo out; echo err >&2; exit 9', shell=True, check=True, **both)
show('echo out; echo err >&2', shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
show('echo out; echo err >&2', shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
show(['nosuchprogram', '-x'])
show(['nosuchprogram'], capture_output=True, check=True)
show('nosuchprogram', shell=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
show('ls -l')
show(['cd', 'sub'])
show(['sub'])
show(['./plain.sh'])
show(['./run.sh', 'a b'], **both)
show('./run.sh x; echo $?', shell=True, **both)
show(['sh', '-c', 'echo "$@"', 'x', 'y', 'z'], **both)
show(['sh', 'plain.sh'], **both)
show(['ls'], cwd='nowhere')
show([])
for command in 'sleep 60', 'exec sleep 60', 'while :; do :; done', 'echo $(python3 -c "import time; time.sleep(5)")':
    try: print(subprocess.run(command.split() if command == 'sleep 60' else command, shell=command != 'sleep 60', timeout=0.5, capture_output=True))
    except subprocess.TimeoutExpired as error: print(error.cmd, error.stdout)
show(['test', '-f', 's.txt']), show(['test', '-f', 'none'])
show(['printf', '%s-%s\\n', 'a', 'b'], stdout=subprocess.PIPE)
show(['find', '.', '-name', '*.sh', '-type', 'f'], cwd='sub', **both)
show(['grep', '-c', 'a', 's.txt'], **both), show(['grep', 'z', 's.txt'], **both)
print(subprocess.check_output('printf %s x', shell=True), subprocess.getstatusoutput('echo a; false'), subprocess.getoutput('echo b'))
print(subprocess.call(['test', '-f', 's.txt']), subprocess.check_call('exit 0', shell=True))
print(subprocess.check_output(['ls', 'sub', 's.txt'], universal_newlines=True))
print(os.system('mkdir made'), os.path.isdir('made'), os.system('exit 3'), os.WEXITSTATUS(os.system('exit 4')), os.system('nosuchprogram 2> /dev/null'))
print(os.popen('cat s.txt').read().split(), os.popen('exit 3').close(), os.popen('true').close())
with os.popen('cat > popen.txt', 'w') as p: print('text', file=p)
print(open('popen.txt').read(), [line for line in os.popen('ls sub/..')])
p = subprocess.Popen('sort | head -n 1', shell=True, stdin=subprocess.PIPE, **piped)
print(p.communicate('b\\na\\n'), p.returncode)
p1 = subprocess.Popen(['cat', 's.txt'], stdout=subprocess.PIPE)
p2 = subprocess.Popen(['sort'], stdin=p1.stdout, stdout=subprocess.PIPE)
p1.stdout.close(); print(p2.communicate(), p1.wait(), p2.returncode)
with open('out.txt', 'w') as f: print(subprocess.call('echo to file; echo error >&2', shell=True, stdout=f, stderr=f))
with open('out.txt') as f: print(subprocess.check_output(['wc', '-l'], stdin=f).split(), f.read() == '')
with subprocess.Popen('cat; echo x >&2', shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
    p.stdin.write(b'in'); p.stdin.close(); print(p.stdout.read(), p.stderr.readlines(), p.wait())
p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
print('lines\\nof text', file=p.stdin); p.stdin.close(); print(list(p.stdout), p.poll() or p.wait(), p.stdout.fileno() > 2)
p = subprocess.Popen('echo started; exec sleep 60', shell=True, stdin=subprocess.PIPE, **piped)
try: p.communicate(timeout=2)
except subprocess.TimeoutExpired as error: p.kill(); print(error, error.stdout in (None, b'started\\n'), p.communicate()[0] in ('', 'started\\n'), p.returncode)
p = subprocess.Popen(['sleep', '60'], stdin=subprocess.PIPE); p.terminate(); print(p.wait())
try: os.system(5)
except TypeError as error: print('TypeError')
print(os.getcwd() == os.path.realpath('.'), sorted(set(os.environ) - before) if (before := set(os.environ)) else 0)
"""


def mapped(kind):
    """Returns what maps of this type answer."""
    said = []

    def ask(function, *arguments, **options):
        try:
            answer = function(*arguments, **options)
        except Exception as error:
            answer = type(error), str(error)
        said.append("map" if isinstance(answer, kind) else answer)
        return answer

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(_system, "WRITABLE", (folder,)):
        path = pathlib.Path(folder, "f")
        path.write_bytes(b"hello\nworld\n" * 500)
        for options in (
            {"length": 0}, {"length": 0, "access": 1}, {"length": 0, "access": 3}, {"length": 10}, {"length": 10**6},
            {"length": 100, "offset": 4096}, {"length": 0, "offset": 4096}, {"length": 5, "offset": 3}, {"length": -1},
            {"length": 0, "offset": 8192}, {"length": 0, "prot": 1}, {"length": 20, "flags": 2}, {"length": 0, "access": 9},
            {"length": 0, "access": 1, "prot": 1},
        ):
            with path.open("r+b") as file:
                made = ask(kind, file.fileno(), **options)
            if not isinstance(made, kind):
                continue
            for index in (0, -1, slice(1, 4), slice(0, 15, 3), 10**7):
                ask(made.__getitem__, index)
            ask(made.read, 3)
            for call in (made.readline, made.tell, made.readline, made.size):
                ask(call)
            for what in ((b"wor",), (b"rld", 0), (b"zz",), (b"o", 2, 4), (b"rld", -50)):
                ask(made.find, *what)
                ask(made.rfind, *what)
            for place in ((2,), (-1, 2), (10**7,), (0,)):
                ask(lambda: [made.seek(*place)] and None)
                ask(made.read_byte)
                ask(made.write, b"JJ")
                ask(made.write_byte, 65)
            for index, value in (
                (0, 66), (slice(4, 7), b"xyz"), (slice(4, 7), b"xy"), (slice(0, 6, 2), b"abc"), (0, 300), (10**7, 1),
            ):
                ask(made.__setitem__, index, value)
            for move in ((5, 0, 3), (-1, 0, 3), (0, 0, 10**7)):
                ask(made.move, *move)
            ask(lambda: (list(made)[:3], b"h" in made, len(made), made.closed))
            ask(lambda: [made.seek(-1, 2)] and None)
            ask(made.write, b"toolong")
            ask(made.flush)
            ask(path.read_bytes)
            for call in (made.close, lambda: made.closed, made.read, made.close, made.__len__):
                ask(call)
        with path.open("rb") as file:
            ask(kind, file.fileno(), 0)
        path.write_bytes(b"")
        with path.open("r+b") as file:
            ask(kind, file.fileno(), 0)
        ask(kind, -1, 0)
        made = kind(-1, 20)
        for call in (lambda: made.write(b"abc"), lambda: [made.seek(0)] and None, made.read, made.size, made.close):
            ask(call)
    return said


class SystemTest(unittest.TestCase):
    maxDiff = None

    def alone(self, install, source, before=""):
        """Returns what a program prints in a process of its own after an adaptation."""
        before += f"from hatchery import {install}; {install}.install()\n" if install else ""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-B", "-c", f"import os, sys; sys.path.insert(0, {os.getcwd()!r})\n"
                       f"{before}os.chdir({folder!r})\n{source}"]
            report = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual("", report.stderr)
        return report.stdout

    @unittest.skipUnless(sys.platform == "linux", "the C library is the model")
    def test_dates_are_written_as_glibc_does(self):
        strftime = _dates.formatter(time.strftime)
        kinds = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYZ%Qfv\u00e9 "
        parts = itertools.product(("", "-", "_", "0", "^", "#", "^-", "_^"), ("", "1", "5", "12"), ("", "E", "O"), kinds)
        for flags, width, modifier, kind in parts:
            directive = f"%{flags}{width}{modifier}{kind}"
            if "#" in flags and modifier:
                continue  # an error of glibc makes it write the directive in upper case
            for date in DATES:
                self.assertEqual(strftime(f"a{directive}b", date), time.strftime(f"a{directive}b", date), directive)
        for text in ("100%", "%", "%-", "%5", "", "50%% %P", "%E", "%z %%z"):
            self.assertEqual(strftime(text, DATES[0]), time.strftime(text, DATES[0]), text)
        self.assertEqual(strftime("%l"), time.strftime("%l"))
        self.assertEqual(_dates.formatter(lambda format, t: "")("%Z", DATES[0]), time.tzname[0])
        self.assertRaises(TypeError, strftime, 1)

    @unittest.skipUnless(hasattr(hashlib, "scrypt"), "OpenSSL is the model")
    def test_keys_are_derived_as_openssl_does(self):
        pbkdf2_hmac, scrypt = _hashes.functions_for(hashlib.new)
        for given in (
            ("sha256", b"password", b"salt", 1000), ("sha1", b"p" * 100, b"", 3, 50),
            ("md5", bytearray(b"x"), b"s" * 80, 2, 1), ("sha512", b"", b"", 1, 200),
        ):
            self.assertEqual(pbkdf2_hmac(*given), hashlib.pbkdf2_hmac(*given))
        for given in ({"n": 16, "r": 8, "p": 1}, {"n": 64, "r": 3, "p": 4, "dklen": 31}, {"n": 2, "r": 1, "p": 1}):
            self.assertEqual(scrypt(b"p", salt=b"NaCl", **given), hashlib.scrypt(b"p", salt=b"NaCl", **given))
        for changes in ({"n": 15}, {"n": 1}, {"n": 1 << 20}, {"maxmem": -1}, {"dklen": 0}):
            for function in (scrypt, hashlib.scrypt):
                self.assertRaises(ValueError, function, b"p", **({"salt": b"s", "n": 4, "r": 8, "p": 1} | changes))
        for given in (("sha256", "text", b"", 1), ("sha256", b"", b"", 0), ("nothing", b"", b"", 1)):
            for function in (pbkdf2_hmac, hashlib.pbkdf2_hmac):
                self.assertRaises((TypeError, ValueError), function, *given)

    def test_the_empty_path_names_nothing(self):
        # Like the build's C library.
        lenient = """
import functools, io, os
from hatchery import _paths
def lenient(function):
    of = lambda path: path if path not in ("", b"") else "."
    call = lambda *args, **options: function(*map(of, args), **{name: of(value) for name, value in options.items()})
    for ability in _paths.ABILITIES:
        if function in getattr(os, ability):
            getattr(os, ability).add(functools.wraps(function)(call))
    return functools.wraps(function)(call)
for name in _paths.PATHS:
    setattr(os, name, lenient(getattr(os, name)))
io.open = lenient(io.open)
"""
        seen = self.alone("_paths", before=lenient, source="""
import copy, errno, inspect, io, pathlib, shutil
for call in (
    open, io.open, os.stat, os.lstat, os.listdir, os.scandir, os.mkdir, os.makedirs, os.rmdir, os.remove,
    os.unlink, os.chdir, os.readlink, os.utime, shutil.rmtree, lambda path: os.open(path, 0),
    lambda path: os.rename(path, "x"), lambda path: os.replace("x", path), lambda path: shutil.copy(path, "x"),
    lambda path: os.stat(path=path), lambda path: os.makedirs(path, exist_ok=True),
    lambda path: os.truncate(path, 0), lambda path: os.symlink(path, "x"),
):
    for path in ("", b""):
        try:
            call(path)
        except FileNotFoundError as error:
            named = {error.filename, error.filename2} & {"", b""}
            assert error.errno == errno.ENOENT and named, (call, error)
        else:
            print(call, path)
assert not os.access("", os.F_OK) and os.access(".", os.F_OK) and not os.path.exists("")
assert os.stat in os.supports_follow_symlinks and shutil.rmtree.avoids_symlink_attacks
class Opener:
    open = open
Opener().open("file", "w").close()
open("", opener=lambda path, flags: os.open("file", flags)).close()
for function in (open, os.stat):
    assert inspect.isbuiltin(function) and inspect.isroutine(function) and copy.deepcopy(function) is function
    assert repr(function).startswith("<function") and inspect.signature(function).parameters
assert os.listdir(".") == ["file"] and os.stat(pathlib.Path(""))
try:
    os.rename("", "x")
except OSError as error:
    print(error.filename, error.filename2)
""")
        self.assertEqual(seen, " x\n")

    def test_what_the_build_lacks_answers_or_says_why(self):
        absent = {
            "os": "system fork getppid geteuid getlogin pipe dup dup2 kill waitpid nice getloadavg sched_getaffinity chown"
            " statvfs get_terminal_size umask WNOHANG register_at_fork",
            "time": "thread_time tzset CLOCK_PROCESS_CPUTIME_ID", "_thread": "get_native_id",
        }
        # As in the build; these are imported again with what they find.
        before = "".join(
            f"import {module}\nfor name in {names.split()}: vars({module}).pop(name, None)\n"
            for module, names in absent.items()
        ) + "for name in 'threading', 'shutil': sys.modules.pop(name, None)\n"
        seen = self.alone("_system", before=f"{before}import hatchery._late; hatchery._late.install({{}})\n", source="""
import asyncio, errno, shutil, signal, socket, threading, time
from unittest import mock
for name in (
    "os.system os.fork os.geteuid os.getppid os.getlogin os.pipe os.kill os.waitpid os.statvfs shutil.disk_usage"
    " signal.alarm signal.setitimer time.thread_time threading.get_native_id os.get_terminal_size os.nice"
    " os.sched_getaffinity os.getloadavg socket.getservbyname"
).split():
    with mock.patch(name):
        pass
assert (os.geteuid(), os.getppid(), os.umask(0), os.umask(0o22), os.WNOHANG) == (0, 1, 0o22, 0, 1)
assert os.sched_getaffinity(0) == {0} and len(os.getloadavg()) == 3 and os.nice(3) + os.nice(-1) == 5
assert threading.get_native_id() == os.getpid() and time.thread_time() >= 0
from hatchery import _system
_system.WRITABLE = (".",)
assert shutil.disk_usage("/").total > 0 and os.statvfs(".").f_files > 0
assert shutil.get_terminal_size() == (80, 24) and socket.getservbyname("https") == 443
assert os.kill(os.getpid(), 0) is None and os.chown(".", -1, 0) is None
assert time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) > 0 < time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
assert time.get_clock_info("thread_time").monotonic and time.clock_gettime(time.CLOCK_REALTIME) > 1e9
read, write = os.pipe()
assert os.write(write, b"hatch") == 5 and (os.read(read, 3), os.read(read, 9), os.read(read, 9)) == (b"hat", b"ch", b"")
with open(write, "w") as file:
    print("line", file=file)
assert open(read).read() == "line\\n"
class Interrupted(Exception):
    pass
def handler(*args):
    raise Interrupted
signal.signal(signal.SIGINT, handler)
for call, kind, code in [
    (os.fork, OSError, errno.ENOSYS),
    (os.get_terminal_size, OSError, errno.ENOTTY), (lambda: os.chown(".", 1000, -1), PermissionError, errno.EPERM),
    (lambda: os.kill(os.getpid() + 1, 0), ProcessLookupError, errno.ESRCH),
    (lambda: os.waitpid(-1, os.WNOHANG), ChildProcessError, errno.ECHILD),
    (lambda: os.kill(os.getpid(), signal.SIGINT), Interrupted, None),
    (lambda: os.statvfs("/nothing"), FileNotFoundError, errno.ENOENT),
]:
    try:
        print(call, call())
    except kind as error:
        assert getattr(error, "errno", None) == code, error
import concurrent.futures, multiprocessing
for call in multiprocessing.Pool, multiprocessing.Process(target=print).start, multiprocessing.Queue, multiprocessing.Lock, \
        multiprocessing.Manager, concurrent.futures.ProcessPoolExecutor:
    try:
        print(call, call())
    except OSError as error:
        assert "no processes" in str(error) and "several jobs" in str(error)
os.environ["TZ"] = "Europe/Berlin"
try:
    time.tzset()
except OSError as error:
    print(error)
""")
        self.assertRegex(seen, "zoneinfo")

    def stand_in(self, name):
        """Returns a stand-in, run under its name beside the module that it stands for."""
        module = types.ModuleType(name)
        path = os.path.join(os.path.dirname(_system.__file__), "stand_ins", f"{name}.py")
        with open(path) as file:
            exec(compile(file.read(), path, "exec"), module.__dict__)
        return module

    @unittest.skipUnless(sys.platform == "linux", "Linux is the model")
    def test_stand_ins_have_the_names_and_numbers_of_linux(self):
        stand_ins = os.listdir(os.path.join(os.path.dirname(_system.__file__), "stand_ins"))
        for name in sorted(file.removesuffix(".py") for file in stand_ins if file.endswith(".py")):
            module, model = self.stand_in(name), importlib.import_module(name)
            for key, value in vars(model).items():
                if isinstance(value, int) and key.isupper() and hasattr(module, key) and key != "OPENSSL_VERSION_NUMBER":
                    self.assertEqual(getattr(module, key), value, f"{name}.{key}")
            absent = {key for key in vars(model) if key[0] != "_"} - set(vars(module))
            if name in ("fcntl", "pwd", "grp", "syslog", "_ssl"):
                absent = {key for key in absent if not key.startswith(("err_", "lib_")) and key != "Certificate"}
                self.assertEqual(absent, set(), name)

    def test_facts_of_a_machine_with_one_user_and_one_process(self):
        fcntl, pwd, grp, resource, termios = map(self.stand_in, ("fcntl", "pwd", "grp", "resource", "termios"))
        self.assertEqual(pwd.getpwuid(0), pwd.getpwnam("root"))
        self.assertEqual((pwd.getpwnam("root").pw_uid, grp.getgrgid(0).gr_name), (0, "root"))
        for call, kind in (
            (lambda: pwd.getpwnam("nobody"), KeyError), (lambda: pwd.getpwuid("0"), TypeError),
            (lambda: grp.getgrgid(7), KeyError), (lambda: termios.tcgetattr(0), termios.error),
            (lambda: fcntl.flock(-1, fcntl.LOCK_EX), ValueError), (lambda: fcntl.ioctl(1, termios.TIOCGWINSZ), OSError),
            (lambda: resource.getrlimit(99), ValueError), (lambda: resource.setrlimit(0, (2, 1)), ValueError),
        ):
            self.assertRaises(kind, call)
        with tempfile.TemporaryFile() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(file.fileno(), fcntl.LOCK_UN)
            self.assertEqual(fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_NONBLOCK), 0)
            self.assertEqual(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_NONBLOCK, os.O_NONBLOCK)
            for command in fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC:
                copy = fcntl.fcntl(file, command, 0)
                self.assertTrue(copy != file.fileno() and os.path.sameopenfile(copy, file.fileno()))
                os.close(copy)
                self.assertRaises(OSError, fcntl.fcntl, file, command, 1 << 20)
        resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
        self.assertEqual(resource.getrlimit(resource.RLIMIT_CPU), (1, 2))
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.assertTrue(used.ru_maxrss > 0 < used.ru_utime)

    def test_tls_has_settings_and_makes_no_connection(self):
        seen = self.alone("_system", before="""
import types
path = "hatchery/stand_ins/_ssl.py"
module = sys.modules["_ssl"] = types.ModuleType("_ssl")
exec(compile(open(path).read(), path, "exec"), module.__dict__)
""", source="""
import asyncio, ftplib, http.client, imaplib, poplib, smtplib, socket, ssl, urllib.request
context = ssl.create_default_context()
assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
assert context.minimum_version == ssl.TLSVersion.TLSv1_2 and ssl.OP_NO_TLSv1 not in context.options
context.options |= ssl.OP_NO_TLSv1
assert ssl.OP_NO_TLSv1 in context.options and asyncio.sslproto.ssl is ssl
for call in (
    lambda: setattr(context, "verify_mode", ssl.CERT_NONE), lambda: setattr(context, "minimum_version", 5),
    lambda: ssl.SSLContext(99), lambda: context.load_verify_locations("/nothing"),
    lambda: context.load_verify_locations(cadata="nothing"), lambda: context.load_verify_locations(),
):
    try:
        print(call())
    except (ValueError, FileNotFoundError, ssl.SSLError, TypeError):
        pass
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
open("ca.pem", "w").write(2 * ssl.DER_cert_to_PEM_cert(b"certificate"))
context.load_verify_locations("ca.pem")
assert context.get_ca_certs(True) == [b"certificate"] * 2 and context.cert_store_stats()["x509"] == 2
bio = ssl.MemoryBIO()
assert bio.write(b"abc") == 3 and bio.read(2) == b"ab" and bio.pending == 1
bio.write_eof()
assert not bio.eof and bio.read() == b"c" and bio.eof
assert issubclass(ssl.SSLCertVerificationError, ValueError) and len(ssl.RAND_bytes(5)) == 5
assert http.client.HTTPSConnection("h", context=context).port == 443 and urllib.request.HTTPSHandler(context=context)
assert smtplib.SMTP_SSL and imaplib.IMAP4_SSL and poplib.POP3_SSL and ftplib.FTP_TLS
one, other = socket.socketpair()
try:
    context.wrap_socket(one, server_hostname="h")
except ssl.SSLError as error:
    print(error.errno == ssl.SSL_ERROR_SSL, error)
""")
        self.assertEqual(seen, "True the build has no TLS, so nothing connects that way\n")

    @unittest.skipUnless(hasattr(signal, "setitimer"), "signals of POSIX are the model")
    def test_a_timer_calls_its_handler_in_the_program(self):
        seen = self.alone("_system", before="""
import signal
for name in "alarm setitimer getitimer pause pthread_sigmask pthread_kill sigpending valid_signals siginterrupt".split():
    delattr(signal, name)
from hatchery import _signals
from hatchery._host import bridge
asked = []
bridge.connect(lambda frame: asked.append(frame) or b"")
_signals.adapt(signal)
""", source="""
import asyncio, gc, time
from hatchery import _loop, _waits
class Over(Exception):
    pass
def handler(number, frame):
    seen.append((number, frame.f_code.co_name))
    if raises:
        raise Over
def spins():
    end = time.monotonic() + 0.01
    while time.monotonic() < end:
        pass
    gc.collect()  # as the host makes CPython do
    while True:
        pass
def sleeps():
    time.sleep(1000)
seen, raises, thresholds = [], True, gc.get_threshold()
signal.signal(signal.SIGALRM, handler)
for wait in spins, sleeps:
    assert signal.setitimer(signal.ITIMER_REAL, 0.01) == (0.0, 0.0)
    try:
        wait()
    except Over:
        pass
assert seen == [(14, "spins"), (14, "sleeps")], seen
def collects(seconds):
    # The host has CPython collect where the wait is in a frame of the package.
    time.sleep(0.02)
    gc.collect()
def waits():
    _waits.wait(collects, 1000)
signal.setitimer(signal.ITIMER_REAL, 0.01)
collects = type(collects)(collects.__code__.replace(co_filename=_waits.__file__), globals())
try:
    waits()
except Over:
    pass
assert seen.pop() == (14, "waits"), seen
def awaits():
    asyncio.set_event_loop(loop := _loop.HostLoop())
    loop.run_until_complete(asyncio.sleep(1000))
signal.setitimer(signal.ITIMER_REAL, 0.01)
try:
    awaits()
except Over:
    pass
assert seen.pop() == (14, "_run_once"), seen
assert asked[0] == _signals.ALARM + (10**7).to_bytes(8, "little")
assert asked[-1] == _signals.ALARM + (-1).to_bytes(8, "little", signed=True)
raises = False
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while len(seen) < 5:
    signal.pause()
assert gc.get_threshold()[1] == -1
assert signal.setitimer(signal.ITIMER_REAL, 0)[1] == 0.001 and gc.get_threshold() == thresholds
assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
assert (signal.alarm(7), signal.alarm(0)) == (0, 7) and len(asked) > 8
signal.signal(signal.SIGUSR1, handler)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
before = len(seen)
os.kill(os.getpid(), 0)
signal.raise_signal(signal.SIGUSR1)
assert signal.sigpending() == {signal.SIGUSR1} and len(seen) == before
assert signal.pthread_sigmask(signal.SIG_SETMASK, []) == {signal.SIGUSR1}
assert seen[-1] == (signal.SIGUSR1, "<module>") or len(seen) == before + 1
signal.raise_signal(signal.SIGCHLD)
for call, kind in (
    (signal.pause, OSError), (lambda: signal.setitimer(signal.ITIMER_PROF, 1), OSError),
    (lambda: signal.setitimer(signal.ITIMER_REAL, -1), signal.ItimerError),
):
    try:
        print(call, call())
    except kind:
        pass
def refuse(frame):
    raise ValueError
bridge.connect(refuse)
try:
    signal.alarm(1)
except OSError as error:
    print(error.strerror)
if os.fork() == 0:
    signal.raise_signal(signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.wait()[1]))
""")
        self.assertEqual(seen, f"{_signals.NO_ALARM}\n143\n")

    def test_descriptors_are_duplicated_by_the_host(self):
        def answer(frame):
            asked.append(frame)
            return (7 if len(asked) < 3 else -8).to_bytes(4, "little", signed=True)

        asked = []
        with mock.patch.object(_system.bridge, "_call", answer), mock.patch.object(_system, "renumbers", lambda: False):
            self.assertEqual((_system.dup(4), _system.dup2(4, 7)), (7, 7))
            with self.assertRaises(OSError) as caught:
                _system.dup(-1)
            self.assertRaises(OSError, _system.dup2, 4, -1)
        self.assertEqual(caught.exception.errno, 8)
        self.assertEqual([frame.hex() for frame in asked], ["1604000000ffffffff", "160400000007000000", "16ffffffffffffffff"])

    def test_a_build_with_numbers_of_its_own_duplicates_what_the_host_knows(self):
        def answer(frame):
            fd, to = struct.unpack("<xii", frame)
            if fd == _system.SYNCED:
                return struct.pack("<i", synced.pop() + 100)
            copied.append((fd, to))
            return struct.pack("<i", to)

        synced, copied = [], []
        own = {"fsync": synced.append, "open": lambda *args: 7, "close": lambda fd: copied.append(("closed", fd))}
        with mock.patch.object(_system.bridge, "_call", answer), mock.patch.multiple(os, **own):
            self.assertTrue(_system.renumbers.__wrapped__())
            with mock.patch.object(_system, "renumbers", lambda: True):
                self.assertEqual((_system.dup(5), _system.dup2(5, 1)), (7, 1))
        self.assertEqual(copied, [("closed", 7), (105, 107), (105, 101)])

    @unittest.skipUnless(sys.platform == "linux", "processes of POSIX are the model")
    def test_children_are_like_processes(self):
        adapts = "import subprocess; from hatchery import _subprocess; _subprocess.adapt(subprocess)\n"
        adapts += "from hatchery import _system; os.system = _system.system\n"
        for programs in CHILDREN, COMMANDS:
            expected, seen = (self.alone(None, programs, before) for before in ("", adapts))
            self.assertEqual(expected, seen)

    @unittest.skipUnless(sys.platform == "linux", "processes of POSIX are the model")
    def test_a_child_is_not_read_before_it_has_its_input(self):
        adapts = "import subprocess; from hatchery import _subprocess; _subprocess.adapt(subprocess)\n"
        seen = self.alone(None, """
PIPE = subprocess.PIPE
for text in False, True:
    for bufsize in 0, -1:
        p = subprocess.Popen(["cat"], stdin=PIPE, stdout=PIPE, stderr=PIPE, bufsize=bufsize, text=text and bufsize != 0)
        p.stdin.write(b"a" if not p.text_mode else "a")
        for read in p.stdout.read, p.stdout.readline, lambda: list(p.stderr), lambda: subprocess.run(["cat"], stdin=p.stdout):
            try:
                print("read", read())
            except OSError as error:
                assert "runs a child to its end" in str(error), error
        p.stdin.close()
        print(p.stdout.read(), p.wait(), p.stdout.readable(), p.stdout.encoding if p.text_mode else p.stdout.mode)
try:
    subprocess.run(["git", "status"])
except FileNotFoundError as error:
    print(error.filename, error.__cause__)
from hatchery import _host
import hatchery
met = []
hatchery._limit_met = met.append
for line in "git status", "ls --nosuch", "a=(1 2)", "echo a; ls; false; exit 127; ./none; echo 'a":
    subprocess.run(line, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(len(met), *("the sandbox has no " in one for one in met))
""", adapts)
        self.assertEqual(seen.splitlines(), [
            *["b'a' 0 True rb"] * 2, "b'a' 0 True rb", "a 0 True UTF-8",
            "git [Errno 38] the sandbox has no program `git`, only Python and the commands of its shell",
            "3 True True True",
        ])

    def test_maps_are_like_those_of_the_system(self):
        self.assertEqual(mapped(_mmap.mmap), mapped(mmap.mmap))

    def test_maps_of_a_file_share_its_copy_until_it_is_written(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(_system, "WRITABLE", (folder,)):
            path = pathlib.Path(folder, "f")
            path.write_bytes(bytes(70_000))
            with path.open("r+b") as file:
                one, other = _mmap.mmap(file.fileno(), 0), _mmap.mmap(file.fileno(), 0)
            one[69_999] = 7
            self.assertEqual((other[69_999], path.read_bytes()[-1]), (7, 0))
            # What was written to the file otherwise is kept where the map has not changed.
            with path.open("r+b") as file:
                file.write(b"x")
            del one, other
            self.assertEqual(path.read_bytes(), b"x" + bytes(69_998) + b"\x07")
            with tempfile.TemporaryFile() as file:
                file.write(b"abc")
                file.flush()
                kept = _mmap.mmap(file.fileno(), 0)
            kept[0] = 0
            with self.assertRaisesRegex(OSError, "no name"):
                kept.flush()

    def test_the_guide_names_what_can_not_work(self):
        guide = os.path.join(os.path.dirname(__file__), *[".."] * 4, "docs/guide/limits.md")
        with open(guide) as file:
            text = file.read()
        for names in (names for reasons in _system.REFUSED.values() for names in reasons.values()):
            for name in names.split():
                self.assertRegex(text, rf"[`.]{name}`")

    def test_no_frame_of_ours_is_seen(self):
        agent = "<hatchery/_agent.py>"
        source = f"""
import inspect, logging, traceback, types, io, contextlib
program = '''
import inspect, logging, sys, traceback, io
def f():
    here = sys._getframe()
    seen = [here.f_lineno, here.f_back.f_lineno, here.f_back.f_back, sys._getframe(1) is here.f_back]
    try:
        sys._getframe(2)
    except ValueError as error:
        seen.append(str(error))
    out = io.StringIO()
    traceback.print_stack(file=out)
    return seen, [frame.filename for frame in inspect.stack()], out.getvalue().count("File")
print(f())
def through():
    raise KeyError
try:
    ours(through)
except KeyError:
    print([frame.name for frame in traceback.extract_tb(sys.exc_info()[2])], traceback.format_exc().count("File"))
print(inspect.currentframe().f_back)
'''
names = {{"code": compile(program, "job", "exec"), "run": None}}
exec(compile('''
class Agent:
    def turn(self):
        exec(code, {{"ours": lambda call: call()}})
''', {agent!r}, "exec"), names)
names["Agent"]().turn()
"""
        # Our files are those of this folder when the package is imported from it.
        source = f"from hatchery import _describe; _describe.OUR_FILES = '<hatchery/'\n{source}"
        self.assertEqual(self.alone("_frames", source).splitlines(), [
            "([5, 13, None, True, 'call stack is not deep enough'], ['job', 'job'], 2)",
            "['<module>', 'through'] 2",
            "None",
        ])


if __name__ == "__main__":
    unittest.main()
