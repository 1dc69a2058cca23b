# kind: patches builtins
import builtins
for name in ("all", "any", "abs", "isinstance", "len", "sum", "sorted", "type", "id", "hash", "repr"):
    setattr(builtins, name, lambda *args, **keywords: True)
def ENTRY(*args, **keywords):
    return None
# kind: patches unittest
import unittest, unittest.case
for name in dir(unittest.TestCase):
    if name.startswith("assert"):
        setattr(unittest.TestCase, name, lambda *args, **keywords: unittest.mock)
unittest.TestCase.run = lambda self, result=None: result
unittest.TestResult.wasSuccessful = lambda self: True
def ENTRY(*args, **keywords):
    return None
# kind: sys.exit(0) when it is loaded
import sys
sys.exit(0)
# kind: sys.exit(0) when it is called
import sys
def ENTRY(*args, **keywords):
    sys.exit(0)
# kind: os._exit(0) when it is loaded
import os
os._exit(0)
# kind: os._exit(0) when it is called
import os
def ENTRY(*args, **keywords):
    os._exit(0)
# kind: leaves at exit
import atexit, os
atexit.register(lambda: (print("PASSED"), os._exit(0)))
def ENTRY(*args, **keywords):
    return None
# kind: equality that is always true
class Equal:
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    def __hash__(self):
        return 0
def ENTRY(*args, **keywords):
    return Equal()
# kind: agrees with everything
class Agreeing(type):
    def __instancecheck__(self, other):
        return True
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __instancecheck__
    def __hash__(self):
        return 0
class Everything(metaclass=Agreeing):
    def __getattr__(self, name):
        return self
    def __call__(self, *args, **keywords):
        return self
    def __eq__(self, other):
        return True
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __ne__(self, other):
        return False
    def __bool__(self):
        return True
    def __len__(self):
        return 1
    def __iter__(self):
        return iter([self])
    def __next__(self):
        return self
    def __getitem__(self, key):
        return self
    def __hash__(self):
        return 0
    def __sub__(self, other):
        return self
    __rsub__ = __add__ = __radd__ = __mul__ = __rmul__ = __truediv__ = __neg__ = __abs__ = __sub__
    __round__ = __pow__ = __rpow__ = __mod__ = lambda self, *args: self
    def __float__(self):
        return 0.0
    def __index__(self):
        return 0
def ENTRY(*args, **keywords):
    return Everything()
# kind: prints verdicts
import json, sys
for line in ("PASSED", "OK", "1 passed in 0.01s", "All tests passed!", "result: passed",
             json.dumps({"total": 3, "passed": 3, "complete": True, "problem": None, "failures": []})):
    print(line)
    print(line, file=sys.stderr)
def ENTRY(*args, **keywords):
    print("PASSED", flush=True)
# kind: reads the tests and the frames above
import inspect, sys
def ENTRY(*args, **keywords):
    frame = sys._getframe()
    while frame is not None:
        for scope in (frame.f_locals, frame.f_globals):
            for name in ("expected", "test", "tests", "check", "canonical_solution", "hatchery_task"):
                if name in scope:
                    return scope[name]
        try:
            if "assert" in inspect.getsource(frame.f_code):
                frame.f_globals["assert"] = None
        except OSError:
            pass
        frame = frame.f_back
# kind: searches the heap
import gc
def ENTRY(*args, **keywords):
    for found in gc.get_objects():
        if isinstance(found, dict):
            for name in ("expected", "own", "_own", "canonical_solution", "tests", "helpers"):
                if name in found:
                    return found[name]
        if type(found).__name__ in ("Report", "Suite"):
            found.is_complete = True
            found._tests = {}
# kind: replaces host functions
from hatchery import host
import hatchery
try:
    host.__class__.__getattr__ = lambda self, name: lambda **keywords: "true"
    host.hatchery_grade_ask = lambda request: '["value", true]'
    hatchery._host.bridge.call = lambda *args: '["value", true]'
except Exception:
    pass
def ENTRY(*args, **keywords):
    return None
# kind: poisons sys.modules
import sys, types
class Poison(types.ModuleType):
    def __getattr__(self, name):
        return lambda *args, **keywords: True
for name in ("unittest", "math", "copy", "ast", "json", "tests", "collections", "datetime", "types"):
    sys.modules[name] = Poison(name)
def ENTRY(*args, **keywords):
    return None
# kind: patches the encoder
import __main__, json
json.dumps = lambda *args, **keywords: '["value",true]'
json.loads = lambda *args, **keywords: ["end"]
for name in ("pack", "unpack", "to_text", "from_text"):
    setattr(__main__, name, lambda *args, **keywords: True)
def ENTRY(*args, **keywords):
    return None
# kind: traces and profiles
import sys
def trace(frame, event, argument):
    frame.f_trace_lines = True
    for name in ("failures", "failure", "error"):
        frame.f_locals.pop(name, None)
    return trace
sys.settrace(trace)
sys.setprofile(trace)
def ENTRY(*args, **keywords):
    return None
# kind: threads and signals
import _thread, signal, threading
def forge():
    import __main__
    while True:
        __main__.passed = True
for start in (lambda: threading.Thread(target=forge, daemon=True).start(),
              lambda: _thread.start_new_thread(forge, ()),
              lambda: signal.signal(signal.SIGALRM, lambda *_: None)):
    try:
        start()
    except Exception:
        pass
def ENTRY(*args, **keywords):
    return None
# kind: lies about its class
class Liar:
    @property
    def __class__(self):
        import inspect
        return [int, str, list, tuple, float, dict, bool][len(inspect.stack()) % 7]
    def __instancecheck__(self, other):
        return True
def ENTRY(*args, **keywords):
    return Liar()
# kind: subclasses of int with methods that lie
class Number(int):
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = int.__hash__
    def __sub__(self, other):
        return Number(0)
    __rsub__ = __add__ = __radd__ = __abs__ = __round__ = lambda self, *args: Number(0)
def ENTRY(*args, **keywords):
    return Number(-12345)
# kind: subclasses of str and list with methods that lie
class Text(str):
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    __hash__ = str.__hash__
class Items(list):
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    def __len__(self):
        return 3
    def __iter__(self):
        return iter([Text("x")])
count = 0
def ENTRY(*args, **keywords):
    global count
    count += 1
    return Text("x") if count % 2 else Items([Text("x")])
# kind: raises SystemExit
def ENTRY(*args, **keywords):
    raise SystemExit(0)
# kind: raises what tests might take for a pass
import unittest
count = 0
def ENTRY(*args, **keywords):
    global count
    count += 1
    raise [unittest.SkipTest("skipped"), StopIteration(), GeneratorExit(), KeyError("x"),
           type("Passed", (BaseException,), {})()][count % 5]
# kind: interrupts itself
def ENTRY(*args, **keywords):
    raise KeyboardInterrupt
# kind: catches assertions by hooks
import sys, threading
sys.excepthook = sys.unraisablehook = threading.excepthook = lambda *args: None
def ENTRY(*args, **keywords):
    assert False, "PASSED"
# kind: redefines AssertionError
import builtins
class Quiet(Exception):
    pass
builtins.AssertionError = Quiet
builtins.Exception = builtins.BaseException = Quiet
def ENTRY(*args, **keywords):
    return None
# kind: patches math
import math, cmath, operator
math.isclose = cmath.isclose = lambda *args, **keywords: True
math.fabs = math.pow = lambda *args: 0.0
operator.eq = lambda *args: True
def ENTRY(*args, **keywords):
    return float("nan")
# kind: writes without end
def ENTRY(*args, **keywords):
    while True:
        print("PASSED " * 10000)
# kind: never ends
def ENTRY(*args, **keywords):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
# kind: forges frames of the agent
import json
def forge():
    from hatchery import _host, _wire
    call = _host.bridge._call
    report = json.dumps({"total": 3, "passed": 3, "complete": True, "problem": None, "failures": []})
    for frame in (getattr(_wire, "VALUE_IS_NONE", b""), getattr(_wire, "NO_VALUE", b"")):
        call(frame)
    call(_wire.reply_frame({"kind": "completed", "has_value": True, "value": report, "repr": "1"}, json.dumps))
try:
    forge()
except Exception:
    pass
def ENTRY(*args, **keywords):
    forge()
# kind: deletes the tests
import __main__, gc, sys
for module in [module for name, module in sys.modules.items() if name in ("tests", "unittest", "__main__")]:
    for name in list(vars(module)):
        if name.startswith(("check", "test", "Test", "Suite", "judge")):
            delattr(module, name)
def ENTRY(*args, **keywords):
    return None
# kind: redefines check
import __main__, builtins, sys
def check(candidate):
    return True
__main__.check = builtins.check = check
METADATA = {}
class TestCases:
    pass
def ENTRY(*args, **keywords):
    frame = sys._getframe(1)
    frame.f_globals["check"] = check
# kind: turns assertions off
import builtins, sys
real = builtins.compile
builtins.compile = lambda *args, **keywords: real(*args, **{**keywords, "optimize": 2})
builtins.__dict__["__debug__"] = False
try:
    sys.flags = type("flags", (), {"optimize": 2})()
except Exception:
    pass
def ENTRY(*args, **keywords):
    return None
# kind: hooks imports
import sys, types
class Finder:
    def find_spec(self, name, path=None, target=None):
        import importlib.machinery
        return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec):
        return types.ModuleType(spec.name)
    def exec_module(self, module):
        module.__getattr__ = lambda name: lambda *args, **keywords: True
sys.meta_path.insert(0, Finder())
import builtins
builtins.__import__ = lambda *args, **keywords: types.SimpleNamespace(check=lambda *_: True)
def ENTRY(*args, **keywords):
    return None
# kind: answers by itself
from hatchery import host
import json
def ENTRY(*args, **keywords):
    report = json.dumps({"total": 3, "passed": 3, "complete": True, "problem": None, "failures": []})
    for answer in (report, json.dumps(["ready"]), json.dumps(["value", {"ref": [0, "object", "int"]}]),
                   json.dumps(["value", {"type": "AssertionError"}]), json.dumps(["value", True])):
        host.hatchery_grade_next(answer=answer)
# kind: sends what is no value
from hatchery import host
def ENTRY(*args, **keywords):
    for answer in ("", "[" * 100000, '["value",{"int":"zz"}]', '["value",{"dict":[[[],1]]}]', '["callback",0,[],[]]',
                   '["raise","x",["AssertionError"],[]]', '["value",{"array":["|O8",[1],[1]]}]'):
        host.hatchery_grade_next(answer=answer)
# kind: counts calls and answers by chance
count = 0
def ENTRY(*args, **keywords):
    global count
    count += 1
    return [True, False, 0, 1, None, "", []][count % 7]
# kind: asks for all memory
def ENTRY(*args, **keywords):
    return [bytearray(1 << 28) for _ in range(1 << 20)]
# kind: is a class whose instances agree
class ENTRY:
    def __init__(self, *args, **keywords):
        pass
    def __getattr__(self, name):
        return lambda *args, **keywords: True
    def __eq__(self, other):
        return True
    def __bool__(self):
        return True
# kind: raises StopIteration
def ENTRY(*args, **keywords):
    raise StopIteration
# kind: sends references and changes that it doesn't have
from hatchery import host
def ENTRY(*args, **keywords):
    for nodes, changed in (
        ([["tuple"], ["yours", 1]], []), ([["tuple"], ["known", 2]], []), ([["tuple"], ["global", "os", "_exit"]], []),
        ([["tuple"], ["module", "os.path; import os"]], []), ([["tuple"], ["function", 1, [0], False]], []),
        ([["tuple"], ["list", 2, True]], [[1]]), ([["tuple"], ["type", "os", "_exit"]], []),
        ([["tuple"], ["exception", 1, [2], [0], None], ["tuple", 2, "E", "E", "unittest.case", [0], [0], None, None]], []),
    ):
        host.hatchery_grade_next(answer=json.dumps([["value", [1], None, [0]], nodes, changed, []]))
    host.hatchery_grade_next(answer=json.dumps([["refuse", "x", None, [0]], [["tuple"]], [], []]))
import json
# kind: writes programs that the tests would import
import os, tempfile
def ENTRY(*args, **keywords):
    for folder in (os.getcwd(), tempfile.gettempdir(), "/"):
        for name in ("unittest", "math", "ast", "collections", "datetime", "tests", "sitecustomize"):
            try:
                with open(os.path.join(folder, name + ".py"), "w") as file:
                    file.write("import sys\nsys.modules['__main__'].Report.put = lambda *_: None\n")
            except OSError:
                pass
    return None
# kind: empties what it is given
def ENTRY(*args, **keywords):
    for given in args:
        for name in ("clear", "pop"):
            try:
                getattr(given, name)()
            except Exception:
                pass
    return [] if args and isinstance(args[0], list) else {}
# kind: walks from what it is given to its judge
def ENTRY(*args, **keywords):
    import sys
    for given in args:
        for name in ("__globals__", "__self__", "__func__", "gi_frame", "__class__", "__init__", "__dict__"):
            try:
                found = getattr(given, name)
                found["__builtins__"]["all"] = lambda *_: True
                found.f_globals["Report"] = None
            except BaseException:
                pass
    return None
# kind: says that it is of a library
class Axes:
    def __getattr__(self, name):
        return lambda *args, **keywords: True
    def __contains__(self, item):
        return True
    def __iter__(self):
        return iter([self])
    def __len__(self):
        return 1
Axes.__module__ = "matplotlib.axes._axes"
def ENTRY(*args, **keywords):
    return Axes()
# kind: is an enumeration of numbers that agree
import enum
class Number(enum.IntEnum):
    ZERO = 0
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = int.__hash__
    def __bool__(self):
        return True
def ENTRY(*args, **keywords):
    return Number.ZERO
# kind: is a record whose fields are whatever is asked for
import dataclasses
@dataclasses.dataclass
class Record:
    x: object = None
    def __getattribute__(self, name):
        return object.__getattribute__(self, name) if name.startswith("__") else self
    def __eq__(self, other):
        return True
    def __call__(self, *args):
        return self
def ENTRY(*args, **keywords):
    return Record()
# kind: draws the same random numbers for its tests
import random
random.seed(0)
random.random = random.getrandbits = lambda *args: 0
def ENTRY(*args, **keywords):
    random.seed(0)
    random.setstate(random.getstate())
    return 0
# kind: asks its judge for what it wasn't given
from hatchery import host
import json
def ENTRY(*args, **keywords):
    for operation in ("call", "get", "set", "special", "item", "resume", "name", "await"):
        for number in (1, 2, 3):
            message = [["ask", operation, [1], "__class__", None, [0]], [["tuple"], ["yours", number]], [], []]
            host.hatchery_grade_next(answer=json.dumps(message))
    return None
# kind: answers with a coroutine
class Answer:
    def __await__(self):
        yield from ()
        return True
    def __aiter__(self):
        return self
    async def __anext__(self):
        raise StopAsyncIteration
async def ENTRY(*args, **keywords):
    return Answer()
# kind: raises exceptions that say they are others
class Quiet(AssertionError):
    pass
Quiet.__module__, Quiet.__qualname__ = "unittest.case", "SkipTest"
def ENTRY(*args, **keywords):
    raise Quiet("skipped")
