# case: a returned list that the tests change
r = get()
r.append(1)
assert get() == []
# right
L = []
def get(): return list(L)
# wrong
L = []
def get(): return L
# case: the same list twice
a = Box()
assert a.get() is a.get()
# right
class Box:
    def __init__(self): self.items = []
    def get(self): return self.items
# wrong
class Box:
    def __init__(self): self.items = []
    def get(self): return list(self.items)
# case: two names of one list
a, b = pair()
a.append(1)
assert b == [1]
# right
def pair():
    l = []
    return l, l
# wrong
def pair(): return [], []
# case: a list that holds itself
l = loop()
assert l[0] is l and len(l) == 1
# right
def loop():
    l = []
    l.append(l)
    return l
# wrong
def loop(): return [[]]
# case: deep values
r = []
for _ in range(5000): r = [r]
assert depth(r) == 5000
d = nest(3000)
n = 0
while d: d, n = d[0], n + 1
assert n == 3000
# right
def depth(l):
    n = 0
    while l: l, n = l[0], n + 1
    return n
def nest(n):
    l = []
    for _ in range(n): l = [l]
    return l
# wrong
def depth(l): return 5000
def nest(n): return []
# case: an argument given twice
r = [0]
assert mark([r, r]) == [[1], [1]]
# right
def mark(g):
    g[0][0] = 1
    return g
# wrong
def mark(g): return [[1], [0]]
# case: arguments in place
values = {'b': [2], 'a': [1]}
assert clear(values) is None
assert values == {'b': [], 'a': [1]}
# right
def clear(d): d['b'].clear()
# wrong
def clear(d): d.clear()
# case: arguments left alone
values = [3, 1, 2]
assert ordered(values) == [1, 2, 3]
assert values == [3, 1, 2]
# right
def ordered(l): return sorted(l)
# wrong
def ordered(l):
    l.sort()
    return l
# case: attributes that the tests fill
q = Queue()
q.items.append(1)
q.items.append(2)
assert q.pop() == 1 and q.items == [2]
# right
class Queue:
    def __init__(self): self.items = []
    def pop(self): return self.items.pop(0)
# wrong
class Queue:
    def __init__(self): self.items = []
    def pop(self): return self.items.pop()
# case: a decorator
calls = []
@memo
def sq(x):
    "squares"
    calls.append(x)
    return x * x
assert sq(3) == 9 and sq(3) == 9
assert calls == [3]
assert sq.__name__ == 'sq' and sq.__doc__ == 'squares'
# right
import functools
def memo(fn):
    cache = {}
    @functools.wraps(fn)
    def w(*a):
        if a not in cache: cache[a] = fn(*a)
        return cache[a]
    return w
# wrong
def memo(fn):
    def w(*a): return fn(*a)
    return w
# case: handlers that are called later
seen = []
b = Bus()
b.on('a', seen.append)
b.emit('a', 5)
b.emit('b', 6)
assert seen == [5]
# right
class Bus:
    def __init__(s): s.h = {}
    def on(s, e, f): s.h.setdefault(e, []).append(f)
    def emit(s, e, v):
        for f in s.h.get(e, []): f(v)
# wrong
class Bus:
    def __init__(s): s.h = []
    def on(s, e, f): s.h.append(f)
    def emit(s, e, v):
        for f in s.h: f(v)
# case: a function of the tests comes back
def f(x): return x
assert register(f) is f
assert twice(lambda v: v + 1)(1) == 3
# right
def register(f): return f
def twice(fn): return lambda x: fn(fn(x))
# wrong
def register(f): return lambda *a: f(*a)
def twice(fn): return lambda x: fn(x)
# case: attributes of what class methods and factories make
a = V.of('3')
assert a.x == 3
assert make(1).x == 1 and isinstance(make(1), V)
# right
class V:
    def __init__(s, x): s.x = x
    @classmethod
    def of(c, t): return c(int(t))
def make(x): return V(x)
# wrong
class V:
    def __init__(s, x): s.x = x
    @classmethod
    def of(c, t): return c(t)
def make(x): return V(x)
# case: a named tuple
p = P(1, 2)
assert p.x == 1 and p == (1, 2) and move(p).y == 3
# right
from collections import namedtuple
P = namedtuple('P', 'x y')
def move(p): return p._replace(y=p.y + 1)
# wrong
from collections import namedtuple
P = namedtuple('P', 'y x')
def move(p): return p._replace(y=p.y + 1)
# case: an enumeration
assert Color.RED.value == 1 and Color(2) is Color.BLUE
assert [c.name for c in Color] == ['RED', 'BLUE'] and paint() == Color.RED
# right
import enum
class Color(enum.Enum):
    RED = 1
    BLUE = 2
def paint(): return Color.RED
# wrong
import enum
class Color(enum.Enum):
    RED = 1
    BLUE = 2
def paint(): return Color.BLUE
# case: coroutines
import asyncio
assert asyncio.run(g(10)) == 20
async def both(): return await asyncio.gather(g(1), g(2))
assert asyncio.run(both()) == [2, 4]
# right
import asyncio
async def g(x):
    await asyncio.sleep(0)
    return x * 2
# wrong
async def g(x): return x + 10
# case: an asynchronous case of unittest
import unittest
class T(unittest.IsolatedAsyncioTestCase):
    async def test_a(self):
        self.assertEqual(await g(10), 20)
        async with lock() as inner:
            self.assertEqual(inner, 5)
        self.assertEqual([x async for x in count(3)], [0, 1, 2])
# right
import contextlib
async def g(x): return x * 2
@contextlib.asynccontextmanager
async def lock(): yield 5
async def count(n):
    for i in range(n): yield i
# wrong
import contextlib
async def g(x): return x * 2
@contextlib.asynccontextmanager
async def lock(): yield 5
async def count(n):
    for i in range(n + 1): yield i
# case: generators that are sent to and closed
g = total()
next(g)
assert g.send(2) == 2 and g.send(3) == 5
g.close()
assert list(g) == []
# right
def total():
    n = 0
    while True: n += yield n
# wrong
def total():
    n = 0
    while True: n = yield n
# case: exceptions of the candidate's own
caught = None
try:
    pay(-1)
except Broke as error:
    caught = error
assert caught.amount == -1 and str(caught) == 'broke: -1' and isinstance(caught, ValueError)
assert issubclass(Broke, ValueError)
# right
class Broke(ValueError):
    def __init__(self, amount):
        super().__init__(f'broke: {amount}')
        self.amount = amount
def pay(x):
    if x < 0: raise Broke(x)
# wrong
class Broke(ValueError):
    def __init__(self, amount):
        super().__init__(f'broke: {amount}')
        self.amount = 0
def pay(x):
    if x < 0: raise Broke(x)
# case: an exception of the tests passes through
class Mine(Exception): pass
def bad(): raise Mine('x')
caught = None
try:
    guard(bad)
except Mine as error:
    caught = error.args
assert caught == ('x',)
# right
def guard(f): return f()
# wrong
def guard(f):
    try: return f()
    except Exception: return None
# case: names, documentation and signatures
import inspect
assert f.__doc__ == 'Adds.' and f.__name__ == 'f' and f.__module__ == 'solution'
assert str(inspect.signature(f)) == '(a, b: int = 2, *c)' and f.__annotations__ == {'b': int}
assert K.__doc__ == 'A class.' and K.__name__ == 'K'
# right
def f(a, b: int = 2, *c):
    'Adds.'
class K:
    'A class.'
# wrong
def f(a, b: int = 2, *c):
    'Subtracts.'
class K:
    'A class.'
# case: operators between what the tests made
assert (Vector(1, 2) + Vector(3, 4)) == Vector(4, 6)
assert Version('1.2') < Version('1.10') and not Version('2') < Version('1')
assert abs(Vector(3, 4)) == 5 and f'{Vector(1, 2)}' == '(1, 2)'
# right
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Vector(self.x + other.x, self.y + other.y)
    def __eq__(self, other): return (self.x, self.y) == (other.x, other.y)
    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5
    def __str__(self): return f'({self.x}, {self.y})'
class Version:
    def __init__(self, text): self.parts = [int(p) for p in text.split('.')]
    def __lt__(self, other): return self.parts < other.parts
# wrong
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, other): return Vector(self.x + other.y, self.y + other.x)
    def __eq__(self, other): return (self.x, self.y) == (other.x, other.y)
    def __abs__(self): return 5
    def __str__(self): return f'({self.x}, {self.y})'
class Version:
    def __init__(self, text): self.parts = text
    def __lt__(self, other): return self.parts < other.parts
# case: a class attribute, a property and a subclass
assert Base.kind == 'base' and Derived.kind == 'base' and Derived().area == 4
assert isinstance(Derived(), Base) and issubclass(Derived, Base)
Base.kind = 'changed'
assert Derived().kind == 'changed'
# right
class Base:
    kind = 'base'
class Derived(Base):
    @property
    def area(self): return 4
# wrong
class Base:
    kind = 'base'
class Derived:
    kind = 'base'
    @property
    def area(self): return 4
# case: instances of a class of the tests
class Employee:
    def __init__(self, pay): self.pay = pay
    def yearly(self): return 12 * self.pay
e = Employee(10)
assert raised(e, 5) == 180 and e.pay == 15
# right
def raised(e, n):
    e.pay += n
    return e.yearly()
# wrong
def raised(e, n): return 12 * (e.pay + n)
# case: iterators of the tests
assert first(iter([3, 4])) == 3
assert first(x * x for x in (5, 6)) == 25
# right
def first(it): return next(it)
# wrong
def first(it): return list(it)[-1]
# case: the order of sets
assert order({12, 13, 14, 15, 16}) == (16, 12, 13, 14, 15)
assert tuple(given()) == (8, 1, 2, 3)
# right
def order(s): return tuple(s)
def given(): return {8, 1, 2, 3}
# wrong
def order(s): return tuple(sorted(s))
def given(): return {8, 1, 2, 3}
# case: patched builtins
import unittest
from unittest.mock import patch, mock_open
class T(unittest.TestCase):
    def test_open(self):
        with patch('builtins.open', mock_open(read_data='x')) as opened:
            self.assertEqual(read('p'), 'x')
            opened.assert_called_once_with('p')
        with self.assertRaises(FileNotFoundError):
            read('nowhere')
    @patch('builtins.print')
    def test_print(self, printed):
        hello()
        printed.assert_called_with('hi')
    @patch('os.path.exists', return_value=True)
    @patch('builtins.input', side_effect=['a', 'b'])
    def test_input(self, given, exists):
        self.assertEqual(ask('p'), 'ab')
# right
import os
def read(p):
    with open(p) as file: return file.read()
def hello(): print('hi')
def ask(p): return input() + input() if os.path.exists(p) else ''
# wrong
import os
def read(p):
    with open(p) as file: return file.read()
def hello(): print('hi!')
def ask(p): return input() + input() if os.path.exists(p) else ''
# case: what is printed, and what is read
import io, sys, contextlib
out = io.StringIO()
with contextlib.redirect_stdout(out):
    greet()
assert out.getvalue() == 'hello\n'
sys.stdin = io.StringIO('4\n5\n')
assert total() == 9
# right
def greet(): print('hello')
def total(): return int(input()) + int(input())
# wrong
def greet(): print('hello', end='')
def total(): return int(input()) + int(input())
# case: random numbers
import random
random.seed(7)
a = draw()
random.seed(7)
assert a == random.randint(1, 1000000)
random.seed(7)
assert draw() == a
# right
import random
def draw(): return random.randint(1, 1000000)
# wrong
import random
def draw(): return random.choice(range(1, 1000))
# case: files
import os, tempfile, unittest
class T(unittest.TestCase):
    def test_files(self):
        folder = tempfile.mkdtemp()
        path = os.path.join(folder, 'in.txt')
        with open(path, 'w') as file: file.write('abc')
        copy(path, path + '.copy')
        with open(path + '.copy') as file: self.assertEqual(file.read(), 'ABC')
        self.assertEqual(sorted(os.listdir(folder)), ['in.txt', 'in.txt.copy'])
        os.remove(path)
        self.assertFalse(exists(path))
# right
import os
def copy(a, b):
    with open(a) as one, open(b, 'w') as other: other.write(one.read().upper())
def exists(p): return os.path.exists(p)
# wrong
import os
def copy(a, b):
    with open(a) as one, open(b, 'w') as other: other.write(one.read())
def exists(p): return os.path.exists(p)
# case: the environment and names of the module
import os
from unittest.mock import patch
import solution
with patch.dict(os.environ, {'HOME_TOWN': 'Ulm'}):
    assert town() == 'Ulm'
assert town() is None
with patch('solution.helper', return_value=5):
    assert town2() == 5
assert solution.LIMIT == 3
# right
import os
LIMIT = 3
def helper(): return 1
def town(): return os.environ.get('HOME_TOWN')
def town2(): return helper()
# wrong
import os
LIMIT = 3
def helper(): return 1
def town(): return os.environ.get('HOME_TOWN', '')
def town2(): return helper()
# case: containers with methods
s = Stack()
s.push(3)
assert s == [3] and len(s) == 1 and s[0] == 3 and s.top() == 3
s.append(4)
assert s.top() == 4
# right
class Stack(list):
    push = list.append
    def top(self): return self[-1]
# wrong
class Stack(list):
    push = list.append
    def top(self): return self[0]
# undecided: an equality that is always true
assert Box(1) == Box(1)
# right
class Box:
    def __init__(self, x): pass
    def __eq__(self, other): return True
# undecided: an answer that compares itself
assert f() == 1
# right
class Equal:
    def __eq__(self, other): return True
def f(): return Equal()
# undecided: a sum that compares itself
assert Vector(1, 2) + Vector(3, 4) == Vector(4, 6)
# right
class Vector:
    def __init__(self, x, y): pass
    def __add__(self, other): return self
    def __eq__(self, other): return True
# undecided: a distance that calculates with itself
assert abs(length(Vector(3, 4)) - 5) < 0.1
# right
class Vector:
    def __init__(self, x, y): self.x = x
    def __sub__(self, other): return 0.0
def length(v): return v
# undecided: a class of the tests that derives from the candidate's
class Sq(Base):
    def area(self): return 4
assert Sq().twice() == 8
# right
class Base:
    def twice(self): return 2 * self.area()
# undecided: an object that can't be given
import threading
assert held(threading.Lock()) is False
# right
def held(lock): return lock.locked()
# undecided: a pickle that would run in the tests
import pickle
assert pickle.loads(dump()) is None
# right
import os, pickle
class Runs:
    def __reduce__(self): return os.getcwd, ()
def dump(): return pickle.dumps(Runs())
# undecided: source that would run in the tests
assert eval(text()) == 1
# right
def text(): return 'int(1)'
# case: pickles of plain values, and source of the tests
import pickle, collections
assert pickle.loads(dump()) == collections.OrderedDict(a=[1])
assert eval('value()') == value() == 2
# right
import pickle, collections
def dump(): return pickle.dumps(collections.OrderedDict(a=[1]))
def value(): return 2
# wrong
import pickle, collections
def dump(): return pickle.dumps(collections.OrderedDict(a=[2]))
def value(): return 2
# undecided: random numbers that the tests go on with after the candidate has drawn some
import random
random.seed(7)
first = draw()
second = random.randint(1, 1000000)
random.seed(7)
assert [first, second] == [random.randint(1, 1000000), random.randint(1, 1000000)]
# right
import random
def draw(): return random.randint(1, 1000000)
# undecided: a candidate that changes what a mock asserts
from unittest.mock import MagicMock
told = MagicMock()
tell(told)
told.assert_called_once_with('hello')
assert told.called
# right
def tell(told):
    told.configure_mock(assert_called_once_with=None)
# undecided: a candidate that makes files by the class of one that it is given
import io
assert size(io.StringIO('abc')) == 3
# right
def size(file):
    try:
        type(file)._hatchery_peer.ask('resume', file, '__init__', ('x',))
    finally:
        type(file)('y')
    return 3
# case: a warning that unittest expects
import logging, unittest, warnings
class T(unittest.TestCase):
    def test_a(self):
        with self.assertWarns(DeprecationWarning) as c: self.assertEqual(f(1), 1)
        self.assertEqual(str(c.warning), "old way")
# right
import warnings
def f(x):
    warnings.warn("old way", DeprecationWarning)
    return x
# wrong
def f(x): return x
# case: a warning that matches
import logging, unittest, warnings
class T(unittest.TestCase):
    def test_a(self):
        with self.assertWarnsRegex(DeprecationWarning, "old"): f(1)
# right
import warnings
def f(x):
    warnings.warn("old way", DeprecationWarning)
    return x
# wrong
import warnings
def f(x):
    warnings.warn("new way", DeprecationWarning)
    return x
# case: recorded warnings
import logging, unittest, warnings
class T(unittest.TestCase):
    def test_a(self):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            f(1)
            f(2)
        self.assertEqual([one.category for one in w], [DeprecationWarning] * 2)
# right
import warnings
def f(x):
    warnings.warn("old way", DeprecationWarning)
    return x
# wrong
def f(x): return x
# case: warnings that are errors
import logging, unittest, warnings
class T(unittest.TestCase):
    def test_a(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(DeprecationWarning): f(1)
# right
import warnings
def f(x):
    warnings.warn("old way", DeprecationWarning)
    return x
# wrong
def f(x): return x
# case: a warning of the candidate's class
import logging, unittest, warnings
class T(unittest.TestCase):
    def test_a(self):
        with self.assertWarns(Old): f(1)
# right
import warnings
class Old(UserWarning): pass
def f(x): warnings.warn("a", Old)
# wrong
import warnings
class Old(UserWarning): pass
def f(x): warnings.warn("a")
# case: logs that unittest expects
import logging, unittest, warnings
class T(unittest.TestCase):
    def test_a(self):
        with self.assertLogs("my.app", "INFO") as c: f(3)
        self.assertEqual(c.output, ["INFO:my.app:got 3", "ERROR:my.app:bad"])
# right
import logging
log = logging.getLogger("my.app")
def f(x):
    log.info("got %s", x)
    log.error("bad")
    return x
# wrong
import logging
log = logging.getLogger("my.app")
def f(x):
    log.debug("got %s", x)
    log.error("bad")
    return x
# case: logs of every logger
import logging, unittest, warnings
class T(unittest.TestCase):
    def test_a(self):
        with self.assertLogs(level="ERROR") as c: f(3)
        self.assertEqual(len(c.records), 1)
# right
import logging
log = logging.getLogger("my.app")
def f(x):
    log.info("got %s", x)
    log.error("bad")
    return x
# wrong
import logging
log = logging.getLogger("my.app")
def f(x):
    log.info("got %s", x)
    log.info("bad")
    return x
# case: no logs
import logging, unittest, warnings
class T(unittest.TestCase):
    def test_a(self):
        with self.assertNoLogs("my.app", "ERROR"): f(3)
# right
import logging
log = logging.getLogger("my.app")
def f(x):
    log.info("got %s", x)
    log.info("bad")
    return x
# wrong
import logging
log = logging.getLogger("my.app")
def f(x):
    log.info("got %s", x)
    log.error("bad")
    return x
# case: pytest.warns
import logging, pytest, warnings
def test_a():
    with pytest.warns(DeprecationWarning, match="old"): f(1)
# right
import warnings
def f(x):
    warnings.warn("old way", DeprecationWarning)
    return x
# wrong
def f(x): return x
# case: pytest.deprecated_call
import logging, pytest, warnings
def test_a():
    with pytest.deprecated_call(): f(1)
# right
import warnings
def f(x):
    warnings.warn("old way", DeprecationWarning)
    return x
# wrong
def f(x): return x
# case: caplog
import logging, pytest, warnings
def test_a(caplog):
    with caplog.at_level(logging.INFO): f(1)
    assert "got 1" in caplog.text and caplog.record_tuples[1] == ("my.app", 40, "bad")
    assert caplog.messages == ["got 1", "bad"]
# right
import logging
log = logging.getLogger("my.app")
def f(x):
    log.info("got %s", x)
    log.error("bad")
    return x
# wrong
import logging
log = logging.getLogger("my.app")
def f(x):
    log.info("got %s", x)
    log.info("bad")
    return x
# case: recwarn
import logging, pytest, warnings
def test_a(recwarn):
    f(1)
    assert len(recwarn) == 1 and str(recwarn.pop(DeprecationWarning).message) == "old way"
# right
import warnings
def f(x):
    warnings.warn("old way", DeprecationWarning)
    return x
# wrong
def f(x): return x
# case: the NaN of a module
import math
assert f() == [math.nan]
# right
import math
def f(): return [math.nan]
# wrong
def f(): return [float("nan")]
# case: the path of modules
import sys
f("/a/b")
assert sys.path[-1] == "/a/b"
sys.path.remove("/a/b")
assert g("/a/b") is False
# right
import sys
def f(x): sys.path.append(x)
def g(x): return x in sys.path
# wrong
def f(x): pass
def g(x): return True
# case: the working folder
import os
d = os.getcwd()
os.makedirs("x")
os.chdir("x")
assert f() == "x"
os.chdir(d)
assert f() != "x"
# right
import os
def f(): return os.path.basename(os.getcwd())
# wrong
def f(): return "x"
# case: monkeypatch.chdir
import logging, pytest, warnings
def test_a(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    f()
    assert (tmp_path / "a.txt").read_text() == "hi"
# right
def f(): open("a.txt", "w").write("hi")
# wrong
def f(): open("b.txt", "w").write("hi")
# case: monkeypatch.delattr
def test_a(monkeypatch):
    import os
    monkeypatch.delattr("os.getcwd")
    assert f() is False
def test_b(): assert f()
# right
import os
def f(): return hasattr(os, "getcwd")
# wrong
def f(): return True
# case: an import that replaces a name
import datetime
assert f().year == 2020
# right
from datetime import datetime
def f(): return datetime.datetime(2020, 1, 1)
# wrong
from datetime import datetime
def f(): return datetime.datetime(2021, 1, 1)
# case: a function that is assigned to a module
import os
old = os.getcwd
os.getcwd = lambda: "/x"
assert f() == "/x"
os.getcwd = old
assert f() != "/x"
# right
import os
def f(): return os.getcwd()
# wrong
def f(): return "/x"
# case: a function that is assigned twice
import time
time.sleep = lambda s: None
assert f() == 1
time.sleep = lambda s: 5
assert f() == 6
# right
import time
def f(): return (time.sleep(1) or 0) + 1
# wrong
def f(): return 0
# case: a value that is assigned to the candidate's module
import solution
solution.LIMIT = 3
assert solution.f() == 3
# right
LIMIT = 5
def f(): return LIMIT
# wrong
LIMIT = 5
def f(): return 5
# case: a deleted attribute
import math
del math.tau
assert f() is False
# right
import math
def f(): return hasattr(math, "tau")
# wrong
def f(): return True
# case: attributes of objects of the tests
class A: pass
a = A()
a.b = 1
a.c = A()
a.c.d = 2
a.b += 1
assert f(a) == 4
# right
def f(a): return a.b + a.c.d
# wrong
def f(a): return a.b
# case: sys.argv
import sys
sys.argv = ["a", "b"]
assert f() == ["a", "b"]
# right
import sys
def f(): return list(sys.argv)
# wrong
def f(): return []
# case: what a function of the tests takes
import inspect
def own(g):
    return [str(inspect.signature(g)), list(inspect.getfullargspec(g)), g.__defaults__, g.__kwdefaults__,
            g.__annotations__, g.__code__.co_argcount, g.__name__, g.__doc__,
            inspect.isgeneratorfunction(g), inspect.iscoroutinefunction(g)]
def a(x, y=[1], /, z=3, *r, k, l=2, **m):
    "doc"
def b(x: int, y: str = "a") -> None: pass
def c(): yield 1
async def d(x): return x
e = lambda q, *, w=1: q
for g in (a, b, c, d, e): assert f(g) == own(g)
# right
import inspect
def f(g):
    return [str(inspect.signature(g)), list(inspect.getfullargspec(g)), g.__defaults__, g.__kwdefaults__,
            g.__annotations__, g.__code__.co_argcount, g.__name__, g.__doc__,
            inspect.isgeneratorfunction(g), inspect.iscoroutinefunction(g)]
# wrong
import inspect
def f(g):
    return [str(inspect.signature(g)), list(inspect.getfullargspec(g)), g.__defaults__, g.__kwdefaults__,
            g.__annotations__, g.__code__.co_argcount, "x", g.__doc__,
            inspect.isgeneratorfunction(g), inspect.iscoroutinefunction(g)]
# case: calls of a function of the tests
class K:
    def m(self, u, v=2): return u + v
def g(x, *a, k=1, **m): return x, a, k, m
assert f(g, K().m) == [(1, (2, 3), 4, {"z": 5}), (1, (), 1, {}), 3, 9]
# right
def f(g, m): return [g(1, 2, 3, k=4, z=5), g(1), m(1), m(u=4, v=5)]
# wrong
def f(g, m): return [g(1, 2, 3, k=4, z=5), g(1), m(1), m(u=4)]
# case: what a candidate is
import functools, inspect, types
assert inspect.isgeneratorfunction(gen) and not inspect.isgeneratorfunction(f)
assert inspect.iscoroutinefunction(co) and not inspect.iscoroutinefunction(f)
assert inspect.isfunction(f) and inspect.isclass(K) and inspect.isgenerator(gen(2))
assert str(inspect.signature(f)) == "(a: int, b: str = 'x', *c, d=1, **e) -> bool"
assert str(inspect.signature(wrapped)) == "(x, y=2)" and wrapped.__wrapped__(1) == 3
assert f.__name__ == "f" and f.__doc__ == "Doc." and f.__annotations__ == {"a": int, "b": str, "return": bool}
assert f.__defaults__ == ("x",) and f.__kwdefaults__ == {"d": 1} and f.__code__.co_argcount == 2
assert isinstance(part, functools.partial) and part.func is f and part.keywords == {"d": 2}
assert K.__doc__ == "Class." and K.__annotations__ == {"attr": int} and L.__bases__ == (K,)
assert type(L(1)) is L and "attr" in dir(K) and K.__init__(K(1), 2) is None
# right
import functools
def gen(n):
    """Yields."""
    yield from range(n)
async def co(x): return x
def f(a: int, b: str = "x", *c, d=1, **e) -> bool:
    """Doc."""
    return True
def deco(g):
    @functools.wraps(g)
    def inner(*a, **k): return g(*a, **k)
    return inner
@deco
def wrapped(x, y=2): return x + y
part = functools.partial(f, 1, d=2)
class K:
    """Class."""
    attr: int = 3
    def __init__(self, v): self.v = v
class L(K): pass
# wrong
import functools
def gen(n):
    """Yields."""
    yield from range(n)
async def co(x): return x
def f(a: int, b: str = "x", *c, d=1, **e) -> bool:
    """Doc."""
    return True
def deco(g):
    @functools.wraps(g)
    def inner(*a, **k): return g(*a, **k)
    return inner
@deco
def wrapped(x, y=2): return x + y
part = functools.partial(f, 1, d=3)
class K:
    """Class."""
    attr: int = 3
    def __init__(self, v): self.v = v
class L(K): pass
# case: large sets
import random
for kind in (str, float, lambda n: (n, n)):
    s = {kind(n * 7919 % 1000) for n in range(90)}
    assert f(s) == list(s) and g(list(s)) == s
# right
def f(s): return list(s)
def g(l): return set(l)
# wrong
def f(s): return list(s)
def g(l): return set(l[1:])
# case: values of libraries
import ipaddress, pathlib, re
from collections import namedtuple
import datetime as d
P = namedtuple("P", "x y")
for it in (ipaddress.ip_address("1.2.3.4"), pathlib.PurePosixPath("a"), d.time(1, tzinfo=d.timezone.utc), P(1, 2)):
    assert f(it) == it and type(f(it)) is type(it)
m = re.search("(b+)", "abbc")
assert g(m) == ("bb", (1, 3)) and h("abbc").span() == (1, 3)
# right
import re
def f(x): return x
def g(m): return m.group(1), m.span()
def h(s): return re.search("b+", s)
# wrong
import re
def f(x): return x
def g(m): return m.group(1), m.span()
def h(s): return re.search("b", s)
# case: objects of libraries
import string, xml.etree.ElementTree as ET
from types import SimpleNamespace
assert f(ET.fromstring("<a><b>x</b></a>"), string.Template("a$b"), SimpleNamespace(c=3)) == ("x", "a1", 3)
# right
def f(e, t, s): return e.find("b").text, t.substitute(b=1), s.c
# wrong
def f(e, t, s): return e.find("b").text, t.substitute(b=2), s.c
# undecided: an object of a library that the candidate changes
import xml.etree.ElementTree as ET
e = ET.fromstring("<a><b>x</b></a>")
f(e)
assert e.find("b").text == "y"
# right
def f(e): e.find("b").text = "y"
# undecided: a lock of the tests
import threading
assert f(threading.Lock()) is False
# right
def f(lock): return lock.locked()
# undecided: attributes that only `object` finds
assert object.__getattribute__(K(4), "v") == 4
# right
class K:
    def __init__(self, v): self.v = v
# undecided: a method of the class above
assert super(B, B()).m() == 1
# right
class A:
    def m(self): return 1
class B(A): pass
# undecided: a file that is too large to be shared
import os
f()
assert os.path.getsize("a.txt") == 17 << 20
# right
def f():
    with open("a.txt", "w") as file: file.write("x" * (17 << 20))
# undecided: a file of the tests that is too large to be shared
with open("a.txt", "w") as file: file.write("x" * (17 << 20))
assert f("a.txt") == 17 << 20
# right
import os
def f(x): return os.path.getsize(x)
# undecided: more objects than both sides keep
class A: pass
assert f([A() for _ in range(100_001)]) == 100_001
# right
def f(x): return len(x)
# undecided: more lists than both sides keep
assert len(f(200_001)) == 200_001
# right
def f(n): return [[] for _ in range(n)]
# undecided: a type of which only the name is known
assert type(f()) is int
# right
class Pretender: pass
Pretender.__module__, Pretender.__qualname__ = "builtins", "int"
def f(): return Pretender()
# case: an import of a name that the candidate defines
from math import gcd
assert f(4) == 104
# right
def gcd(a, b): return 100 + a
def f(x): return gcd(x, 0)
# wrong
def gcd(a, b): return a
def f(x): return gcd(x, 0)
# case: a name with underscores that a mock is given
from unittest.mock import MagicMock
m = MagicMock()
m.__path__, m._name = ["a"], "b"
assert f(m) == (["a"], "b")
# right
def f(m): return m.__path__, m._name
# wrong
def f(m): return m.__path__, "c"
# undecided: when a file was made
import os, time
with open("a.txt", "w") as file: file.write("x")
now = time.time()
assert f("a.txt") <= now
# right
import os
def f(path): return os.path.getctime(path)
# undecided: a refusal that the candidate catches
assert f(lambda l: len(l)) == 100_001
# right
class A: pass
def f(g):
    try: return g([A() for _ in range(100_001)])
    except BaseException: return 0
# case: an attribute of an object whose equality is no answer
import pandas as pd
frame = pd.DataFrame({"a": [1, 2]}, index=["x", "y"])
frame.index.name = "n"
assert f(frame) == "n"
# right
def f(frame): return frame.index.name
# wrong
def f(frame): return "m"
# case: tests that change the path of imports
import sys
sys.path.append("/mnt/data/")
assert parsed("<a b='1'/>") == {"b": "1"}
import xmlrpc.client
assert xmlrpc.client.dumps((1,))
# right
def parsed(text):
    import xml.etree.ElementTree as tree
    return tree.fromstring(text).attrib
# wrong
def parsed(text):
    import xml.etree.ElementTree as tree
    return {}
# case: sets of texts and small integers have an order that says nothing
assert first([3, 1, 2]) == [1, 2, 3]
assert sorted(unique(["b", "a", "b"])) == ["a", "b"]
assert sorted(pairs([1, 2])) == [(1, 1), (1, 2), (2, 1), (2, 2)]
# right
def first(items): return list(set(items))
def unique(items): return [item for item in set(items)]
def pairs(items): return list({(a, b) for a in items for b in items})
# wrong
def first(items): return list(set(items))[::-1]
def unique(items): return [item for item in set(items)]
def pairs(items): return list({(a, b) for a in items for b in items})
# case: a class of libraries is imitated
import ctypes, unittest
from unittest.mock import patch
class Tests(unittest.TestCase):
    @patch("ctypes.CDLL", autospec=True)
    def test_name(self, kind):
        self.assertIsInstance(name("x"), str)
        kind.assert_called_once_with("x")
# right
import ctypes
def name(path): return ctypes.CDLL(path)._name
# wrong
import ctypes
def name(path): return "x"
# undecided: the order of a set of tuples
assert combined([1, 2, 3]) == [(2, 3), (1, 2), (1, 3)]
# right
import itertools
def combined(items): return list(set(itertools.combinations(items, 2)))
# undecided: the order of a set of fractions
assert inverted([3, 7, 9, 11, 13]) == [1 / 3, 1 / 13, 1 / 9, 1 / 7, 1 / 11]
# right
def inverted(items): return [item for item in {1 / item for item in items}]
# case: durations as integers
import numpy
assert (numpy.diff(days(3)).astype(int) > 0).all()
# right
import numpy
def days(count): return numpy.datetime64("2021-01-01T00:00:00.000000") + numpy.arange(count).astype("timedelta64[D]")
# case: large integers
import numpy
def test_large():
    import unittest
    unittest.TestCase().assertEqual(total(100_000), 4_999_950_000)
# right
import numpy
def total(count): return numpy.arange(count).sum()
# case: threads of the candidate use objects of the tests
import unittest
from unittest.mock import patch
class Tests(unittest.TestCase):
    @patch("subprocess.Popen")
    def test_codes(self, popen):
        popen.return_value.poll.side_effect = range(20)
        self.assertEqual(sorted(codes(["x"] * 20)), list(range(20)))
        self.assertEqual(popen.call_count, 20)
    def test_callback(self):
        seen = []
        each(range(30), lambda item: seen.append(inner(item)))
        self.assertEqual(sorted(seen), [item + 1 for item in range(30)])
# right
import subprocess, threading, time
def codes(commands):
    found = []
    def run(command):
        process = subprocess.Popen(command)
        time.sleep(0.01)
        found.append(process.poll())
    threads = [threading.Thread(target=run, args=(command,)) for command in commands]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return found
def each(items, call):
    threads = [threading.Thread(target=call, args=(item,)) for item in items]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
def inner(item): return item + 1
# wrong
import subprocess
def codes(commands): return [subprocess.Popen(command).poll() for command in commands[1:]]
def each(items, call): pass
def inner(item): return item + 1
# case: threads of the tests call the candidate
import threading
counter = Counter()
def work():
    for _ in range(50): counter.add()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert counter.count == 200
# right
import threading
class Counter:
    def __init__(self): self.count, self.lock = 0, threading.Lock()
    def add(self):
        with self.lock: self.count += 1
# wrong
class Counter:
    count = 0
    def add(self): self.count = min(self.count + 1, 199)
# case: a thread of the candidate outlives the call
import time
seen = []
later(seen.append)
deadline = time.monotonic() + 10
while not seen and time.monotonic() < deadline: ping()
assert seen == [1]
# right
import threading, time
def later(call):
    def run():
        time.sleep(0.02)
        call(1)
    threading.Thread(target=run, daemon=True).start()
def ping(): time.sleep(0.005)
# wrong
def later(call): pass
def ping(): import time; time.sleep(1)
# undecided: a thread goes on while no call is open
import time
seen = []
later(seen.append)
time.sleep(0.5)
assert seen == [1]
# right
import threading, time
def later(call):
    def run():
        time.sleep(0.02)
        call(1)
    threading.Thread(target=run, daemon=True).start()
# case: exceptions of libraries have their attributes
import errno, json, subprocess, unittest, urllib.error, urllib.request
from unittest.mock import patch
class Tests(unittest.TestCase):
    @patch("urllib.request.urlopen")
    def test_given(self, urlopen):
        urlopen.side_effect = urllib.error.HTTPError("u", 404, "Not Found", hdrs={}, fp=None)
        with self.assertRaisesRegex(ValueError, "404 Not Found"): fetch("u")
    def test_raised(self):
        for act, kind, attributes in (
            (parse, json.JSONDecodeError, dict(msg="Expecting value", pos=0, lineno=1)),
            (run, subprocess.CalledProcessError, dict(returncode=3, cmd="x")),
            (read, FileNotFoundError, dict(errno=errno.ENOENT, filename="nofile")),
            (load, ImportError, dict(name="json", name_from="nothing")),
            (respond, urllib.error.HTTPError, dict(code=404, reason="Not Found", filename="u")),
        ):
            with self.assertRaises(kind) as caught: act()
            for name, value in attributes.items(): self.assertEqual(getattr(caught.exception, name), value)
# right
import json, subprocess, urllib.error, urllib.request
def fetch(url):
    try: urllib.request.urlopen(url)
    except urllib.error.HTTPError as error: raise ValueError(f"{error.code} {error.reason}")
def parse(): json.loads("")
def run(): raise subprocess.CalledProcessError(3, "x")
def read(): open("nofile")
def load(): from json import nothing
def respond(): raise urllib.error.HTTPError("u", 404, "Not Found", hdrs={}, fp=None)
# wrong
import json, subprocess, urllib.error, urllib.request
def fetch(url):
    try: urllib.request.urlopen(url)
    except urllib.error.HTTPError as error: raise ValueError("404")
def parse(): json.loads(" x")
def run(): raise subprocess.CalledProcessError(4, "x")
def read(): open("nofile")
def load(): from json import nothing
def respond(): raise urllib.error.HTTPError("u", 404, "Not Found", hdrs={}, fp=None)
# undecided: an exception that would end a loop of the tests
try: end()
except StopIteration as error: assert error.value == 3
else: assert False
# right
def end(): raise StopIteration(3)
# undecided: an attribute that only the object's own class finds
assert settings().__getattribute__("app") == 3
# right
class Settings:
    def __init__(self): self.app = 3
    def __getattr__(self, name): return None
def settings(): return Settings()
# case: settings that tests change by calls
import decimal, sys, numpy
from decimal import Decimal
decimal.getcontext().prec = 5
sys.setrecursionlimit(5000)
numpy.set_printoptions(precision=2)
numpy.seterr(all="raise")
assert str(third(Decimal(1))) == "0.33333"
assert deep(2000) == 2000
assert text() == "[0.33]"
assert handling() == "raise"
# right
import numpy
def third(one): return one / 3
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
def text(): return str(numpy.array([1 / 3]))
def handling(): return numpy.geterr()["divide"]
# wrong
import numpy
def third(one): return one / 3
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
def text(): return str(numpy.array([1 / 4]))
def handling(): return numpy.geterr()["divide"]
# case: a name of the module that stands for something else later
assert total == 0
add(1)
import solution
assert total == 1 and solution.total == 1
# right
total = 0
def add(x):
    global total
    total += x
# wrong
total = 0
def add(x): pass
# case: what is added to an exception
def caught():
    try: fail()
    except Exception as error: return error
assert caught().code == 7 and caught().__notes__ == ["n"]
# right
def fail():
    error = ValueError("x")
    error.code = 7
    error.add_note("n")
    raise error
# wrong
def fail(): raise ValueError("x")
# case: where an exception comes from
try: fail(False)
except RuntimeError as error: assert isinstance(error.__context__, KeyError) and not error.__suppress_context__
try: fail(True)
except RuntimeError as error: assert error.__suppress_context__ and error.__cause__ is None
# right
def fail(hides):
    try: {}["a"]
    except KeyError as error:
        if hides: raise RuntimeError from None
        raise RuntimeError
# wrong
def fail(hides):
    try: {}["a"]
    except KeyError: raise RuntimeError
# case: a group of exceptions
try: fail()
except* ValueError as group: assert [str(one) for one in group.exceptions] == ["1", "2"]
# right
def fail(): raise ExceptionGroup("x", [ValueError(1), ValueError(2)])
# wrong
def fail(): raise ExceptionGroup("x", [ValueError(1)])
# case: a context manager that looks at an exception
with Seen() as seen:
    raise KeyError("k")
assert seen.what == ("KeyError", "k", True)
# right
class Seen:
    def __enter__(self): return self
    def __exit__(self, kind, error, traceback):
        self.what = (kind.__name__, error.args[0], traceback is not None)
        return True
# wrong
class Seen:
    def __enter__(self): return self
    def __exit__(self, kind, error, traceback):
        self.what = (kind.__name__, error.args[0], traceback is None)
        return True
# case: descriptors of the candidate in a class of the tests
class A:
    x = Positive()
    def __init__(self, x): self.x = x
    @lazy
    def made(self): return [self.x]
    @of_class
    def name(cls): return cls.__name__
a = A(3)
assert a.x == 3 and a.made is a.made and a.name == A.name == "A"
try: a.x = -1
except ValueError: pass
else: raise AssertionError
# right
class Positive:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, instance, owner): return getattr(instance, self.name)
    def __set__(self, instance, value):
        if value < 0: raise ValueError
        setattr(instance, self.name, value)
def lazy(function):
    name = "_lazy_" + function.__name__
    @property
    def get(self):
        if not hasattr(self, name): setattr(self, name, function(self))
        return getattr(self, name)
    return get
class of_class:
    def __init__(self, function): self.function = function
    def __get__(self, instance, owner): return self.function(owner)
# wrong
class Positive:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, instance, owner): return getattr(instance, self.name)
    def __set__(self, instance, value): setattr(instance, self.name, value)
def lazy(function): return property(function)
class of_class:
    def __init__(self, function): self.function = function
    def __get__(self, instance, owner): return self.function(owner)
# case: classes above and below
import inspect
assert [kind.__name__ for kind in inspect.getmro(D)] == ["D", "B", "C", "A", "object"] == [kind.__name__ for kind in D.mro()]
assert D.__bases__ == (B, C) and D.__base__ is B and A.__bases__ == (object,)
assert [kind.__name__ for kind in A.__subclasses__()] == ["B", "C"]
# right
class A: pass
class B(A): pass
class C(A): pass
class D(B, C): pass
# wrong
class A: pass
class C(A): pass
class B(A): pass
class D(C, B): pass
# case: functions of dataclasses
import dataclasses
assert dataclasses.asdict(Outer(Inner(1), [Inner(2)])) == {"one": {"x": 1, "y": 2}, "more": [{"x": 2, "y": 2}]}
assert dataclasses.astuple(dataclasses.replace(Inner(1), y=5)) == (1, 5)
fields = {field.name: field for field in dataclasses.fields(Inner)}
assert fields["x"].default is dataclasses.MISSING and fields["y"].default == 2
# right
import dataclasses
@dataclasses.dataclass
class Inner:
    x: int
    y: int = 2
@dataclasses.dataclass
class Outer:
    one: Inner
    more: list
# wrong
import dataclasses
@dataclasses.dataclass
class Inner:
    x: int = 0
    y: int = 2
@dataclasses.dataclass
class Outer:
    more: list
    one: Inner
# case: a named tuple with methods
p = P(1, 2)
assert p.total() == 3 and p == (1, 2) and p._replace(x=5).total() == 7
# right
from typing import NamedTuple
class P(NamedTuple):
    x: int
    y: int
    def total(self): return self.x + self.y
# wrong
from typing import NamedTuple
class P(NamedTuple):
    x: int
    y: int
    def total(self): return self.x
# case: attributes that are items
d = make()
d.y = 2
assert d["y"] == 2 and d.x == 1
# right
class Items(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
def make(): return Items(x=1)
# wrong
class Items(dict):
    __getattr__ = dict.__getitem__
def make(): return Items(x=1)
# undecided: a class that says by itself what its instances are
class Duck:
    def quack(self): pass
assert isinstance(Duck(), Quacks)
# right
from typing import Protocol, runtime_checkable
@runtime_checkable
class Quacks(Protocol):
    def quack(self): ...
# undecided: a class with foreign instances
assert not isinstance([], Items)
# right
import abc
class Items(abc.ABC): pass
Items.register(list)
# undecided: how long an object lives
import weakref
kept = weakref.ref(make())
assert kept() is None
# right
kept = []
class A: pass
def make():
    kept.append(A())
    return kept[-1]
# undecided: a class whose making says which object it is
assert id(One()) == id(One())
# right
class Kind(type):
    made = {}
    def __call__(cls): return Kind.made.setdefault(cls, type.__call__(cls))
class One(metaclass=Kind): pass
# undecided: an interrupt of the candidate's own
try: interrupt()
except KeyboardInterrupt: pass
else: raise AssertionError
# right
def interrupt(): raise KeyboardInterrupt
# case: which object it is
a = [1]
assert same(a) is a and copied(a) is not a and same(None) is None
# right
def same(x): return x
def copied(x): return x[:]
# wrong
def same(x): return x
def copied(x): return x
# undecided: an unchangeable value that comes back
a = tuple([1, 2])
assert same(a) is a
# right
def same(x): return x
# undecided: an unchangeable value that should be another
a = tuple([1, 2])
assert copied(a) is not a
# right
def copied(x): return x
# undecided: a module of the tests' own
import sys, types
sys.modules["config"] = types.ModuleType("config")
sys.modules["config"].rate = 2
assert price(3) == 6
# right
def price(x):
    import config
    return x * config.rate
# undecided: the file of a candidate
import runpy
assert price(3) == runpy.run_path("solution.py")["price"](3)
# right
def price(x): return x
# case: calculations that the tests evaluate
text = expression()
assert set(text) <= set("18-+*/") and eval(text) == 63
# right
def expression(): return "8*8-1"
# wrong
def expression(): return "8*8+1"
# undecided: errors of floats, which NumPy doesn't raise in the sandbox
import numpy
try:
    with numpy.errstate(all="raise"): divided()
except FloatingPointError: pass
else: assert False
# right
import numpy
def divided(): return numpy.array([1.0]) / 0
# undecided: a module's attribute that is set in its dictionary
import math
vars(math)["floor"] = lambda x: 7
assert rounded(1.5) == 7
# right
import math
def rounded(x): return math.floor(x)
# undecided: a call of the candidate in the tests' event loop
import asyncio
async def main(): assert await begin(3) == 6
asyncio.run(main())
# right
import asyncio
async def doubled(n): return 2 * n
def begin(n): return asyncio.create_task(doubled(n))
# wrong
import asyncio
async def doubled(n): return n
def begin(n): return asyncio.create_task(doubled(n))
# undecided: an event for which the candidate would wait
import asyncio
async def main():
    event = asyncio.Event()
    task = asyncio.ensure_future(waited(event))
    await asyncio.sleep(0)
    event.set()
    assert await task == 1
asyncio.run(main())
# right
async def waited(event):
    await event.wait()
    return 1
# undecided: a signal for which the candidate has the handler
import signal
handle()
signal.raise_signal(signal.SIGINT)
assert seen() == [signal.SIGINT]
# right
import signal
heard = []
def handle(): signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
def seen(): return heard
# undecided: the source of a candidate
import inspect
assert "return x" in inspect.getsource(f)
# right
def f(x): return x
# case: an exception whose class only one above it makes
from lxml import etree
try: parse("<a")
except etree.XMLSyntaxError as error: assert "Start Tag a" in str(error) and error.lineno == 1
else: assert False
# right
from lxml import etree
def parse(text): etree.fromstring(text)
# wrong
from lxml import etree
def parse(text): raise etree.XMLSyntaxError("no", 1, 1, 1)
# case: a database of the tests
import sqlite3
base = sqlite3.connect(":memory:")
cursor = base.cursor()
cursor.execute("create table t (name text, age integer)")
fill(base, cursor)
assert sorted(cursor.execute("select name, age from t")) == [("ann", 5), ("bob", None)]
assert oldest(cursor.execute("select name, age from t order by age desc")) == "ann"
try: fails(cursor)
except sqlite3.OperationalError as error: assert "no such table" in str(error)
else: assert False
# right
def fill(base, cursor):
    with base: cursor.execute("insert into t values ('ann', ?)", (5,))
    cursor.executemany("insert into t values (?, ?)", [("bob", None)])
def oldest(cursor): return next(iter(cursor))[0]
def fails(cursor): cursor.execute("select * from other")
# wrong
def fill(base, cursor): cursor.execute("insert into t values ('ann', ?), ('bob', 1)", (5,))
def oldest(cursor): return next(iter(cursor))[0]
def fails(cursor): cursor.execute("select * from other")
# undecided: a statement that isn't about rows
import sqlite3
assert attach(sqlite3.connect(":memory:").cursor()) == []
# right
def attach(cursor): return cursor.execute("Attach database 'other' as other").fetchall()
# case: queues of the tests
import queue
least, first = queue.PriorityQueue(), queue.SimpleQueue()
first.put("x")
assert fill(least, first) is least
assert [least.get()[1] for _ in range(3)] == [3, 2, 1] and first.get() == "xy"
# right
def fill(least, first):
    first.put(first.get() + "y")
    for n in (1, 3, 2): least.put((-n, n))
    return least
# wrong
def fill(least, first):
    first.put(first.get() + "y")
    for n in (1, 3, 2): least.put((n, n))
    return least
# case: filters of warnings
import warnings
begin()
assert any(one[0] == "error" and one[2] is UserWarning for one in warnings.filters)
# right
import warnings
def begin(): warnings.simplefilter("error", UserWarning)
# wrong
import warnings
def begin(): warnings.simplefilter("ignore", UserWarning)
# case: an object of a library that has a module
import json, types
assert written(types.SimpleNamespace(module=json, value=[1])) == "[1]"
# right
def written(one): return one.module.dumps(one.value)
# wrong
def written(one): return one.module.dumps(one.value * 2)
# case: an exception of a library that the tests don't import
try: parse("<a")
except Exception as error: assert (type(error).__name__, str(error)) == ("Broken", "no end")
else: assert False
try: parse("<")
except SyntaxError as error: assert type(error).__name__ == "ParseError" and error.args == ("no name",)
else: assert False
# right
from xml.etree.ElementTree import ParseError
class Broken(ParseError): pass
def parse(text): raise Broken("no end") if text[1:] else ParseError("no name")
# wrong
from xml.etree.ElementTree import ParseError
class Broken(ParseError): pass
def parse(text): raise Broken("no end") if text[1:] else ValueError("no name")
