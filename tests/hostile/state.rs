//! Traces that a program leaves on purpose, and a check by the next job on the same worker, which
//! must find everything unchanged.

use super::Leftover;

#[rustfmt::skip] // One leftover, one entry, however long its programs are.
pub(crate) const LEFTOVERS: &[Leftover] = &[
    // Builtins and the types behind them.
    ("import builtins; builtins.print = lambda *a: None", "print('still')", "still"),
    ("import builtins; builtins.canary = 1", "import builtins; print(hasattr(builtins, 'canary'))", "False"),
    (
        "import builtins; builtins.open = builtins.__import__ = builtins.compile = None",
        "print(open.__name__, compile.__name__, __import__('math').__name__)",
        "open compile math",
    ),
    ("import builtins; builtins.len = lambda x: 7", "print(len([]), len('ab'))", "0 2"),
    ("import builtins; builtins.__build_class__ = None", "class C: x = 1\nprint(C.x)", "1"),
    (
        "import builtins; builtins.OSError = builtins.Exception = int",
        "try: open('missing')\nexcept OSError as e: print(type(e).__name__)",
        "FileNotFoundError",
    ),
    ("import builtins; builtins.__dict__.clear()", "print(len(dir(__builtins__)) > 150)", "True"),
    ("import gc; gc.get_referents(str.__dict__)[0]['canary'] = 1", "print(hasattr(str, 'canary'))", "False"),
    ("import gc; d = gc.get_referents(list.__dict__)[0]; d['append'] = d['clear']; [].append", "x = []; x.append(1); print(x)", "[1]"),
    (
        "import gc; gc.get_referents(int.__dict__)[0]['__add__'] = lambda a, b: 13\nimport sys; sys._clear_internal_caches()",
        "print((2).__add__(2), sum([2, 2]))",
        "4 4",
    ),
    ("import gc; gc.get_referents(type.__dict__)[0].clear()", "print(type('T', (), {}).mro()[1].__name__)", "object"),
    (
        "import sys; sys.intern('canary of the first job').__class__; keep = sys.intern('x' * 5000)",
        "import sys; print(sys._is_interned('x' * 5000))",
        "False",
    ),
    ("class Canary: pass", "print([c.__name__ for c in object.__subclasses__() if c.__name__ == 'Canary'])", "[]"),
    ("import collections.abc as a; a.Sized.register(int)", "import collections.abc as a; print(issubclass(int, a.Sized))", "False"),
    (
        "import abc; abc._get_dump = None; import numbers; numbers.Integral.register(str)",
        "import numbers; print(isinstance('', numbers.Integral))",
        "False",
    ),
    // The module system.
    (
        "import sys; sys.modules['json'] = None; sys.modules['canary'] = sys",
        "import json, sys; print(json.loads('1'), 'canary' in sys.modules)",
        "1 False",
    ),
    ("import sys; sys.modules.clear()", "import sys; print('os' in sys.modules, len(sys.modules) > 50)", "True True"),
    (
        "import sys\nclass F:\n def find_spec(*a): raise SystemExit(9)\nsys.meta_path.insert(0, F())",
        "import sys, colorsys; print(len(sys.meta_path))",
        "6",
    ),
    (
        "import sys; sys.path_hooks.clear(); sys.path_importer_cache.clear(); sys.meta_path.clear()",
        "import sys, wave; print(len(sys.path_hooks))",
        "2",
    ),
    (
        "import sys; sys.path.insert(0, '/tmp'); open('/tmp/wave.py', 'w').write('x = 1')",
        "import sys, wave; print(sys.path[0], hasattr(wave, 'x'))",
        "/workspace False",
    ),
    ("open('/workspace/random.py', 'w').write('boom')", "import random; print('workspace' in random.__file__)", "False"),
    ("import os, sys; os.path.join = sys.exit", "import os; print(os.path.join('a', 'b'))", "a/b"),
    ("import json; json.dumps = lambda *a: 'canary'", "import json; print(json.dumps(1))", "1"),
    (
        "import importlib; importlib._bootstrap._find_and_load = None; importlib._bootstrap_external.cache_from_source = None",
        "import quopri, importlib; print(importlib.reload(quopri).__name__)",
        "quopri",
    ),
    (
        "import zipimport; zipimport._zip_directory_cache.clear()",
        "import zipimport; print(list(zipimport._zip_directory_cache))",
        "['/usr/local/lib/python315.zip']",
    ),
    ("import __main__; __main__.canary = 1; canary2 = 2", "print([n for n in globals() if 'canary' in n])", "[]"),
    ("__name__ = 'canary'; __builtins__ = {}", "print(__name__, __builtins__.__name__)", "__main__ builtins"),
    (
        "import linecache; linecache.cache['canary'] = (1, None, ['x'], 'canary')",
        "import linecache; print('canary' in linecache.cache)",
        "False",
    ),
    // Settings of the interpreter.
    ("import sys; sys.setrecursionlimit(50)", "import sys; print(sys.getrecursionlimit())", "1000"),
    (
        "import sys; sys.setrecursionlimit(10**6)",
        "import sys\ndef f(): f()\ntry: f()\nexcept RecursionError: print(sys.getrecursionlimit())",
        "1000",
    ),
    ("import sys; sys.set_int_max_str_digits(0)", "import sys; print(sys.get_int_max_str_digits())", "4300"),
    ("import sys; sys.settrace(lambda *a: 1 / 0)", "import sys; print(sys.gettrace())", "None"),
    (
        "import sys; sys.setprofile(lambda *a: None); import threading; threading.setprofile(print)",
        "import sys, threading; print(sys.getprofile(), threading.getprofile())",
        "None None",
    ),
    (
        "import sys; m = sys.monitoring; m.use_tool_id(3, 'canary'); m.set_events(3, m.events.LINE); m.register_callback(3, m.events.LINE, lambda *a: 1 / 0)",
        "import sys; print([sys.monitoring.get_tool(i) for i in range(6)])",
        "[None, None, None, None, None, None]",
    ),
    ("import sys; sys.addaudithook(lambda *a: print('canary', flush=True))", "import sys; sys.audit('x'); print('quiet')", "quiet"),
    (
        "import sys; sys.excepthook = sys.unraisablehook = sys.displayhook = sys.breakpointhook = None",
        "import sys; print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook is sys.__unraisablehook__)",
        "True True True",
    ),
    ("import sys; sys.__excepthook__ = sys.__displayhook__ = None", "import sys; print(sys.__excepthook__.__name__)", "excepthook"),
    (
        "import sys; sys.setswitchinterval(99); sys.set_coroutine_origin_tracking_depth(9)",
        "import sys; print(sys.getswitchinterval(), sys.get_coroutine_origin_tracking_depth())",
        "0.005 0",
    ),
    ("import sys; sys.set_asyncgen_hooks(print, print)", "import sys; print(tuple(sys.get_asyncgen_hooks()))", "(None, None)"),
    (
        "import sys; sys.ps1 = sys.tracebacklimit = sys.last_exc = 1",
        "import sys; print([hasattr(sys, n) for n in ('ps1', 'tracebacklimit', 'last_exc')])",
        "[False, False, False]",
    ),
    (
        "import sys; sys.flags = sys.version = sys.hexversion = sys.byteorder = sys.maxsize = None",
        "import sys; print(sys.flags.isolated, sys.version[:4], sys.byteorder, sys.maxsize)",
        "1 3.15 little 2147483647",
    ),
    ("import sys; sys.argv[:] = ['canary'] * 9; sys.exit = None", "import sys; print(sys.argv, sys.exit.__name__)", "[''] exit"),
    (
        "import sys; sys.dont_write_bytecode = False; import os; open('m.py', 'w').close(); import m",
        "import os, sys; print(sys.dont_write_bytecode, os.listdir())",
        "True []",
    ),
    (
        "import gc; gc.disable(); gc.set_threshold(1); gc.set_debug(gc.DEBUG_SAVEALL)",
        "import gc; print(gc.isenabled(), gc.get_threshold()[0] > 1, gc.get_debug())",
        "True True 0",
    ),
    ("import gc; gc.callbacks.append(lambda *a: 1 / 0)", "import gc; gc.collect(); print(gc.callbacks)", "[]"),
    ("import gc; gc.freeze(); gc.garbage.append('canary')", "import gc; print(gc.garbage)", "[]"),
    ("import tracemalloc; tracemalloc.start(50)", "import tracemalloc; print(tracemalloc.is_tracing())", "False"),
    ("import faulthandler; faulthandler.enable()", "import faulthandler; print(faulthandler.is_enabled())", "False"),
    ("import atexit; atexit.register(print, 'canary'); atexit.register(lambda: 1 / 0)", "import atexit; print(atexit._ncallbacks())", "0"),
    (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, lambda *a: None)",
        "import signal; print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)",
        "default_int_handler True",
    ),
    (
        "import warnings; warnings.simplefilter('error'); warnings.showwarning = None",
        "import warnings; warnings.warn('x'); print(len([f for f in warnings.filters if f[0] == 'error']))",
        "0",
    ),
    (
        "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8'); locale._override_localeconv['decimal_point'] = ','",
        "import locale; print(locale.localeconv()['decimal_point'])",
        ".",
    ),
    (
        "import codecs; codecs.register(lambda n: codecs.lookup('utf-8') if n == 'canary' else None)",
        "try: b'x'.decode('canary')\nexcept LookupError: print('unknown')",
        "unknown",
    ),
    (
        "import codecs; codecs.register_error('strict', lambda e: ('canary', e.end))",
        "try: b'\\xff'.decode()\nexcept UnicodeDecodeError: print('strict')",
        "strict",
    ),
    (
        "import contextvars; v = contextvars.ContextVar('canary'); v.set(1)",
        "import contextvars; print(list(contextvars.copy_context()))",
        "[]",
    ),
    (
        "import threading; keep = threading.local(); keep.x = 1; threading.excepthook = None; threading._shutdown = None; threading.current_thread().name = 'canary'",
        "import threading; print(threading.current_thread().name, threading.excepthook.__name__)",
        "MainThread _excepthook",
    ),
    ("import time; time.sleep = lambda s: 1 / 0; time.time = lambda: 0", "import time; time.sleep(0); print(time.time() > 1)", "True"),
    (
        "import os; os.environ['TZ'] = 'Etc/GMT+9'; import time; time.tzname = ('canary', 'canary')",
        "import time; print(time.timezone, time.tzname)",
        "0 ('UTC', 'UTC')",
    ),
    // Modules with state of their own.
    ("import random; random.seed(0)", "import random; print(random.random() == 0.8444218515250481)", "False"),
    (
        "import os, uuid; os.urandom = lambda n: bytes(n); uuid.uuid4()",
        "import uuid; print(uuid.uuid4() == uuid.UUID(int=0, version=4))",
        "False",
    ),
    (
        "import random; random._inst.setstate(random.Random(1).getstate()); random.SystemRandom.random = lambda s: 0",
        "import random; print(random.random() == 0.13436424411240122, random.SystemRandom().random() == 0)",
        "False False",
    ),
    (
        "import tempfile; tempfile.tempdir = '/home'; tempfile._name_sequence = iter(['canary'] * 9); tempfile.mkdtemp()",
        "import tempfile; print(tempfile.gettempdir(), 'canary' in tempfile.mkdtemp())",
        "/tmp False",
    ),
    (
        "import tempfile; tempfile._get_candidate_names().rng.seed(0); tempfile.mkdtemp()",
        "import os, tempfile; print(os.listdir('/tmp'), tempfile._name_sequence)",
        "[] None",
    ),
    (
        "import decimal; decimal.getcontext().prec = 3; decimal.DefaultContext.prec = 2; decimal.setcontext(decimal.BasicContext)",
        "import decimal; print(decimal.getcontext().prec, decimal.Decimal(1) / 3)",
        "28 0.3333333333333333333333333333",
    ),
    (
        "import logging; logging.basicConfig(level=0); logging.disable(50); logging.getLogger().addHandler(logging.StreamHandler())",
        "import logging; print(logging.root.handlers, logging.root.level, logging.root.manager.disable)",
        "[] 30 0",
    ),
    ("import socket; socket.setdefaulttimeout(1e-9)", "import socket; print(socket.getdefaulttimeout())", "None"),
    (
        "import copyreg; copyreg.pickle(complex, lambda c: (int, ())); copyreg.add_extension('os', 'system', 7)",
        "import copyreg, pickle; print(pickle.loads(pickle.dumps(1j)), copyreg._inverted_registry)",
        "1j {}",
    ),
    (
        "import re; re._cache.clear(); re.compile = re._compile = lambda *a: None; re.purge()",
        "import re; print(re.match('a+', 'aab').group())",
        "aa",
    ),
    ("import mimetypes; mimetypes.add_type('canary/x', '.txt')", "import mimetypes; print(mimetypes.guess_type('a.txt')[0])", "text/plain"),
    (
        "import csv; csv.register_dialect('canary', delimiter='x'); csv.field_size_limit(1)",
        "import csv; print('canary' in csv.list_dialects(), csv.field_size_limit())",
        "False 131072",
    ),
    (
        "import calendar; calendar.setfirstweekday(3); import string; string.digits = 'x'",
        "import calendar, string; print(calendar.firstweekday(), string.digits)",
        "0 0123456789",
    ),
    (
        "import sqlite3; sqlite3.register_adapter(int, lambda i: 7); sqlite3.enable_callback_tracebacks(True); sqlite3.connect('file:canary?mode=memory&cache=shared', uri=True).execute('create table t (x)')",
        "import sqlite3; print(sqlite3.connect('file:canary?mode=memory&cache=shared', uri=True).execute('select count(*), ? from sqlite_master', (1,)).fetchall())",
        "[(0, 1)]",
    ),
    (
        "import xml.etree.ElementTree as e; e.register_namespace('canary', 'urn:x'); e.XMLParser = None",
        "import xml.etree.ElementTree as e; print('urn:x' in e._namespace_map, e.XML('<a/>').tag)",
        "False a",
    ),
    ("import functools; functools.wraps = None", "import functools; print(functools.wraps.__name__)", "wraps"),
    ("import asyncio; asyncio._set_running_loop(1)", "import asyncio; print(asyncio._get_running_loop())", "None"),
    (
        "import urllib.request; urllib.request.install_opener('canary'); import getpass; getpass.getuser = lambda: 'root'",
        "import urllib.request; print(urllib.request._opener)",
        "None",
    ),
    (
        "import zoneinfo; zoneinfo.reset_tzpath(['/tmp']); zoneinfo.ZoneInfo('Europe/Paris')",
        "import zoneinfo; print(zoneinfo.TZPATH)",
        "()",
    ),
    (
        "import numpy; numpy.random.seed(0); numpy.set_printoptions(precision=1); numpy.seterr(all='raise'); numpy.pi = 3",
        "import numpy; print(numpy.random.rand() == 0.5488135039273248, numpy.get_printoptions()['precision'], numpy.geterr()['divide'], numpy.pi > 3.1)",
        "False 8 warn True",
    ),
    // Files, folders and streams.
    (
        "open('/tmp/canary', 'w').write('x'); open('/home/canary', 'w').write('x'); open('/workspace/canary', 'w').write('x')",
        "import os; print([os.listdir(d) for d in ('/tmp', '/home', '/workspace')])",
        "[[], [], []]",
    ),
    (
        "import os; os.makedirs('/tmp/a/b/c'); os.symlink('/tmp/a', '/home/link'); os.chdir('/tmp/a')",
        "import os; print(os.getcwd(), os.path.lexists('/home/link'), os.path.exists('/tmp/a'))",
        "/workspace False False",
    ),
    (
        "import os; os.utime('/tmp', (9, 9)); os.utime('/workspace', (9, 9))",
        "import os; print(os.stat('/tmp').st_mtime, os.stat('/workspace').st_mtime)",
        "0.0 0.0",
    ),
    (
        "for i in range(2000): open(f'/tmp/f{i}', 'w').close()",
        "for i in range(990): open(f'/tmp/f{i}', 'x').close()\nprint('room')",
        "room",
    ),
    ("open('/tmp/big', 'wb').truncate(16 << 20)", "open('/tmp/big', 'xb').write(bytes(15 << 20)); print('room')", "room"),
    ("held = [open('f', 'w') for _ in range(60)]", "print(open('f', 'w').fileno())", "5"),
    (
        "import os; held = open('f', 'w'); os.unlink('f'); held.write('canary'); held.flush()",
        "import os\ntry: os.fstat(5)\nexcept OSError as e: print(e.errno == 8)",
        "True",
    ),
    ("import os; os.close(0); os.close(1); os.close(2)", "import os; os.write(1, b'open'); os.fstat(0); os.fstat(2)", "open"),
    (
        "import os; [os.close(fd) for fd in (1, 2)]; [open(f'f{i}', 'w') for i in range(3)]",
        "import os; print(os.fstat(1).st_ino, os.listdir())",
        "1 []",
    ),
    (
        "import sys, io; sys.stdout = sys.__stdout__ = sys.stderr = io.StringIO(); print('canary')",
        "import sys; print(sys.stdout is sys.__stdout__, sys.stdout.fileno())",
        "True 1",
    ),
    (
        "import sys; sys.stdout.reconfigure(encoding='utf-16', errors='ignore')",
        "import sys; print(sys.stdout.encoding, sys.stdout.errors)",
        "utf-8 surrogateescape",
    ),
    ("import sys; sys.stdout.write = lambda s: 1 / 0; sys.stdout.close()", "print('open')", "open"),
    ("import sys; sys.stdin.read(1); sys.stdin.close(); sys.stdin = None", "import sys; print(repr(sys.stdin.read()))", "''"),
    (
        "import os; os.environ.clear(); os.environ['HOME'] = '/canary'; os.putenv('CANARY', '1')",
        "import os; os.reload_environ(); print(os.environ['HOME'], 'CANARY' in os.environ)",
        "/home False",
    ),
    (
        "import posix; posix.environ.clear(); posix.environ[b'PATH'] = b'/canary'",
        "import posix; print(sorted(posix.environ)[0])",
        "b'HOME'",
    ),
    ("print('x' * 10**6)", "print('room')", "room"),
    // The agent and its door.
    (
        "import gc\nfor o in gc.get_objects():\n if type(o).__name__ == 'Agent': o._call = o._run = None; type(o).turn = lambda self: None",
        "print('served')",
        "served",
    ),
    (
        "import sys, gc\nfor o in gc.get_objects():\n if type(o).__name__ == 'Agent': o._base_environment['CANARY'] = '1'; o._recursion_limit = 9",
        "import os, sys; print('CANARY' in os.environ, sys.getrecursionlimit())",
        "False 1000",
    ),
    (
        "import sys\nb = sys._getframe.__globals__['back_of']; f = sys._getframe()\nwhile b(f): f = b(f)\nf.f_globals.clear(); f.f_builtins.clear()",
        "print('served')",
        "served",
    ),
    (
        "import sys; sys._getframe(1).f_globals['describe_value'] = None; sys._getframe(1).f_globals['json'] = None",
        "print('served')",
        "served",
    ),
    (
        "import _host; [setattr(_host, n, None) for n in dir(_host)]",
        "import _host; print(all(getattr(_host, n) for n in dir(_host) if n[0] != '_'))",
        "True",
    ),
    ("import _reactor; _reactor.__dict__.clear()", "import _reactor; print(len(vars(_reactor)) > 3)", "True"),
    (
        "import sys; sys.modules['__main__'] = sys.modules['os']; del sys.modules['_reactor'], sys.modules['_host']",
        "import sys; print(sys.modules['__main__'].__dict__ is globals(), '_host' in sys.modules)",
        "True True",
    ),
    ("import os; os._exit(7)", "print('alive')", "alive"),
    ("import os; os.abort()", "import os; print(os.getcwd())", "/workspace"),
    (r"x = bytearray(60 << 20); x[:] = b'\xaa' * len(x); keep = x", "x = bytearray(60 << 20); print(x.count(0xaa))", "0"),
    (
        "x = b'canary-' + b'9f1c' + b'77e2' * 1000; keep = [x + b'%d' % i for i in range(9000)]",
        "import gc; print([o for o in gc.get_objects() if type(o) is bytes and o[:7] == b'canary-'])",
        "[]",
    ),
    ("a = []\nwhile True: a.append(bytes(1 << 22))", "print([0] * 3)", "[0, 0, 0]"),
    ("def f(): f()\nimport sys; sys.setrecursionlimit(2000); f()", "def f(n): return n and f(n - 1)\nprint(f(500))", "0"),
    ("class D:\n def __del__(self): print('canary', flush=True); 1 / 0\nkeep = D(); keep.me = keep", "print('quiet')", "quiet"),
];
