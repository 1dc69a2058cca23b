//! Programs that leave as many traces as possible, each in its own place. `TOKEN` is a text unique
//! to the run; each program finds it as a variable.

/// Like `EVERYDAY`, and takes less than a millisecond.
#[rustfmt::skip] // One program, one line.
pub(crate) const LIGHT: &[&str] = &[
    "import builtins; builtins.canary = TOKEN",
    "import __main__; setattr(__main__, TOKEN, [TOKEN])",
    "import sys; sys.modules[TOKEN] = sys; sys.modules['json'] = None",
    "import sys; kept = sys.intern(TOKEN * 10); type(TOKEN, (Exception,), {})",
    "import os; os.environ[TOKEN] = TOKEN; os.chdir('/tmp')",
    "open(TOKEN, 'w').write(TOKEN * 1000)",
    "print(TOKEN * 100)",
    "kept = bytearray(TOKEN.encode() * 1000)",
    "import numpy; numpy.canary = numpy.arange(1000); numpy.seterr(all='raise')",
    "def f(:",
    "raise SystemExit(TOKEN)",
    "x = TOKEN",
];

/// Ends in any way, with an interpreter that can continue.
#[rustfmt::skip] // One program, one line.
pub(crate) const EVERYDAY: &[&str] = &[
    // Names and modules.
    "import builtins; builtins.canary = TOKEN; builtins.print = builtins.open = None",
    "import builtins; builtins.__dict__[TOKEN] = TOKEN; builtins.OSError = int",
    "__name__ = TOKEN; __builtins__ = {TOKEN: TOKEN}",
    "import __main__; setattr(__main__, TOKEN, [TOKEN])",
    "import sys; sys.modules[TOKEN] = sys; sys.modules['json'] = None",
    "import sys; sys.modules.clear()",
    "import sys; sys.path[:] = [TOKEN]; sys.meta_path.clear(); sys.path_hooks.clear()",
    "import json; json.dumps = lambda *a: TOKEN; json.canary = TOKEN; json.dumps(1)",
    "import numpy; numpy.canary = TOKEN; numpy.seterr(all='raise'); del numpy.array",
    "import pandas; pandas.DataFrame = TOKEN; pandas.options.display.max_rows = 7",
    "import sys; kept = sys.intern(TOKEN * 10); type(TOKEN, (Exception,), {})",
    "import collections.abc as a, copyreg; a.Sized.register(int); copyreg.pickle(int, lambda x: TOKEN)",
    "import gc; gc.get_referents(str.__dict__)[0][TOKEN] = 1; hasattr(str, TOKEN)",
    "import linecache; linecache.cache[TOKEN] = (1, None, [TOKEN], TOKEN)",
    // Settings.
    "import os; os.environ[TOKEN] = TOKEN; os.environ.pop('HOME'); os.chdir('/tmp'); os.getcwd = None",
    "import os; os.environ = {TOKEN: TOKEN}; os.putenv('CANARY', TOKEN)",
    "import sys; sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)\ndef f(): return TOKEN\nf()",
    "import sys; sys.addaudithook(lambda *a: None); sys.set_int_max_str_digits(0); sys.setrecursionlimit(400)",
    "import gc; gc.set_debug(gc.DEBUG_SAVEALL)\nclass A: token = TOKEN\nx = A(); x.me = x; del x; gc.collect()",
    "import decimal; decimal.getcontext().prec = 3; decimal.getcontext().traps[decimal.Inexact] = True",
    "import warnings; warnings.simplefilter('error'); warnings.warn(TOKEN)",
    "import random, numpy; random.seed(TOKEN); numpy.random.seed(7); [random.random(), numpy.random.rand()]",
    "import sys; sys.excepthook = sys.unraisablehook = sys.displayhook = None; sys.argv = [TOKEN]; raise ValueError(TOKEN)",
    "import sys\nb = sys._getframe.__globals__['back_of']; f = sys._getframe()\nwhile 'self' not in f.f_locals: f = b(f)\nf.f_locals['self'].turn = f.f_locals['self'].main = None",
    // Files and descriptors.
    "open('/tmp/' + TOKEN, 'w').write(TOKEN); open(TOKEN, 'w').write(TOKEN * 1000)",
    "kept = [open(f'{TOKEN}{i}', 'w') for i in range(40)]; kept[0].write(TOKEN)",
    "import os; kept = [os.open(TOKEN, os.O_CREAT | os.O_RDWR) for _ in range(100)]; os.write(kept[0], TOKEN.encode())",
    "import os; os.mkdir('/home/' + TOKEN); os.symlink('/tmp', TOKEN); os.open('/tmp', os.O_RDONLY)",
    "import os; [os.close(fd) for fd in range(3)]",
    "import sys; sys.stdout = sys.stderr = sys.stdin = None; sys.__stdout__.close()",
    "import os; os.write(2, TOKEN.encode()); print(TOKEN * 100)",
    // Memory.
    "kept = bytearray(TOKEN.encode() * (1 << 17))",
    "kept = {TOKEN + str(i): [i, float(i)] for i in range(2000)}",
    "import numpy; x = numpy.arange(100_000.0); y = numpy.sort(x[::-1]).cumsum(); z = x.reshape(100, 1000).T @ numpy.ones(100)",
    "import pandas; x = pandas.DataFrame({'a': range(50), TOKEN: [TOKEN] * 50}); x.loc[7, TOKEN] = ''; int(x.a.sum())",
    // Ends.
    "1 / 0",
    "def f(:",
    "import sys; sys.exit(TOKEN)",
    "class E(BaseException):\n    def __str__(self): raise E(TOKEN)\nraise E",
    "class A:\n    def __repr__(self): raise SystemExit(TOKEN)\nA()",
    "import threading; threading.local().x = TOKEN; threading.Thread(target=print).start()",
    "import atexit; atexit.register(open, '/tmp/' + TOKEN, 'w'); atexit.register(lambda: 1 / 0)",
    "class A:\n    def __del__(self): import builtins; builtins.canary = TOKEN\nx = A(); x.me = x",
    "class A: pass\nimport weakref; x = A(); weakref.finalize(x, open, TOKEN, 'w')",
    "def f():\n    try: yield TOKEN\n    finally: open('/tmp/late', 'w').write(TOKEN)\ng = f(); next(g)",
    "async def f(): return TOKEN\nkept = f(); kept.send(None)",
];

/// Like `EVERYDAY`, and takes tens of milliseconds.
#[rustfmt::skip] // One program, one line.
pub(crate) const HEAVY: &[&str] = &[
    "import gc; gc.unfreeze(); gc.collect()",
    "import gc; gc.disable(); gc.set_threshold(7, 7); gc.callbacks.append(lambda *a: TOKEN); gc.freeze()",
    "kept = [bytes(1 << 20) for _ in range(24)]",
    "def f(n): return f(n + 1)\nf(0)",
    "import pandas; x = pandas.DataFrame({'a': range(99), 'b': [TOKEN] * 99}); x.groupby('b').a.mean()",
    // This refusal is a C++ exception inside of the build.
    "import numpy, contourpy; contourpy.contour_generator(z=numpy.ones((3, 3))).filled(2, 1)",
    "import sqlite3; c = sqlite3.connect('/tmp/x.db'); c.execute('create table t (a)'); c.execute('insert into t values (?)', [TOKEN])",
    "x = []\nfor _ in range(10**5): x = [x]\nrepr(x)",
    "import json; json.loads('[' * 10**6)",
    "for i in range(100): open(f'/workspace/{i}', 'w').write(TOKEN * 1000)",
];

/// Asks for more memory than its limit.
#[rustfmt::skip] // One program, one line.
pub(crate) const GREEDY: &[&str] = &[
    "x = []\nwhile True: x.append(bytes(1 << 20))",
    "bytearray(1 << 29)",
    "import numpy; numpy.ones(1 << 27)",
    "x = TOKEN\nwhile True: x += x",
    "import builtins\nx = builtins.x = []\ntry:\n    while True: x.append(bytes(1 << 20))\nexcept MemoryError: pass",
];

/// Costs the interpreter: the program leaves, aborts, or stays in C until it is stopped.
pub(crate) const DEADLY: &[&str] =
    &["import os; os._exit(7)", "import os; os.abort()", "sum(range(10**18))"];

/// Returns the program with its token.
pub(crate) fn with_token(source: &str, token: &str) -> String {
    format!("TOKEN = '{token}'\n{source}")
}
