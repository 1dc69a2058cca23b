"""Functions that can be suspended, for threads on one stack (`_switch.py`).

A function of the program becomes a generator: each call that may wait becomes a `yield from`, down to
the methods of locks, queues and the like, which yield what they wait for (`_waits.py`).
"""

import _thread
import ast
import builtins
import contextvars
import copy
import functools
import linecache
import sys
import types

from hatchery import _locks, _switch
from hatchery._describe import is_ours
from hatchery._switch import Wait

# The names in generators of what they call.
CALL, VALUE, TURN = "_hatchery_call", "_hatchery_value", "_hatchery_turn"
BUSY, ENTERED = "_hatchery_busy", "_hatchery_entered"
STEPS, NEXT, END, YIELDED = "_hatchery_steps", "_hatchery_next", "_hatchery_end", "_hatchery_yielded"
ITEM, SOURCE, LIST = "_hatchery_item", "_hatchery_source", "_hatchery_list"
# Calls of these names never wait.
QUICK = frozenset(
    name for kind in (str, bytes, list, dict, set, int, float, sys.stdout.__class__) for name in dir(kind)
)
# Where packages are, which are large: of their functions only those become generators that name one of these.
PACKAGES, OF_PACKAGES = ("/usr/", "/hatchery-packages/"), {"acquire", "sleep", "wait", "wait_for"}
GENERATOR, COROUTINES = 0x20, 0x80 | 0x200
FUTURE_FLAGS = 0xFFFFFF & ~0xFFFF
# What functions of programs become, with their code, by its identity; and of Python's own, by name
# and, once they were called, by function.
made, WAITS, known = {}, {}, {}
# The last parts of the names of Python's own functions that wait.
NAMES = set()
# The syntax trees of files, each with its lines and what it imports.
trees = {}


def body(function, args, options):
    """Is a thread."""
    yield Wait("start", lambda: True)
    try:
        value_of((yield from call(function, *args, **options)))
    except SystemExit:
        pass
    except KeyboardInterrupt:
        raise  # in the main thread, for which it is meant
    except BaseException as error:
        import traceback

        print(f"Exception ignored in thread started by: {function!r}", file=sys.stderr)
        traceback.print_exception(error)


def call(function, /, *args, **options):
    """Calls a function so that its waits suspend the thread."""
    if type(function) is types.MethodType:
        function, args = function.__func__, (function.__self__, *args)
    version = suspended(function)
    try:
        return function(*args, **options) if version is None else (yield from version(*args, **options))
    except StopIteration as error:
        return Raised(error)
    except RuntimeError as error:
        # What CPython makes of a `StopIteration` of the generator itself.
        if error.__traceback__.tb_next is None and type(error.__cause__) is StopIteration:
            return Raised(error.__cause__)
        raise


class Raised:
    """A `StopIteration` that a function raised, which no generator passes on."""

    def __init__(self, error):
        self.error = error


def value_of(result):
    if type(result) is Raised:
        raise result.error
    return result


def run_in(context, function, /, *args, **options):
    """Is `contextvars.Context.run`."""
    steps, answer = call(function, *args, **options), None
    while True:
        try:
            answer = yield context.run(steps.send, answer)
        except StopIteration as end:
            return end.value


def suspended(function):
    """Returns the function as a generator function; `None` if it never waits or can't be suspended."""
    if isinstance(function, staticmethod):
        function = function.__func__
    if type(function) is not types.FunctionType:
        if type(function) is functools.partial:
            return functools.partial(call, function.func, *function.args, **function.keywords)
        context = getattr(function, "__self__", None)
        if isinstance(context, contextvars.Context) and function == context.run:
            return functools.partial(run_in, context)
        method = getattr(type(function), "__call__", None)
        return functools.partial(call, method, function) if type(method) is types.FunctionType else None
    if function in known:
        return known[function]
    make = WAITS.get(f"{function.__module__}.{function.__qualname__}")
    if make is not None:
        return known.setdefault(function, make(function))
    return None if function.__code__.co_flags & GENERATOR else suspendable(function)


def suspendable(function):
    """Returns a function of the program, if it may wait, as a generator that yields what it waits for."""
    code = function.__code__
    if id(code) not in made:
        made[id(code)] = code, None  # while it is made: a recursive call alone doesn't wait
        made[id(code)] = code, generator_code(function)
    code = made[id(code)][1]
    if code is None:
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    closure = tuple(cells.get(name) or HOOKS[name] for name in code.co_freevars)
    version = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, closure)
    version.__kwdefaults__ = function.__kwdefaults__
    return version


def generator_code(function):
    """Returns the code of a function of the program in which calls that may wait suspend it."""
    code = function.__code__
    is_pythons = (function.__module__ or "").partition(".")[0] in sys.stdlib_module_names
    if code.co_flags & COROUTINES or is_pythons or is_ours(code):
        return None
    if code.co_filename.startswith(PACKAGES) and OF_PACKAGES.isdisjoint(code.co_names):
        return None
    node, imports = definition(function)
    # Another text may have taken its place since.
    if node is None or compiled(node, code, (), imports).co_code != code.co_code:
        return None
    try:
        node = Suspender(function).suspend(node)
        return None if node is None else compiled(node, code, HOOKS, imports)
    except (SyntaxError, RecursionError):
        return None  # what can't be put so; its waits are on top of other threads


def definition(function):
    """Returns the syntax tree of a function, and the names that its module imports."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if trees.get(code.co_filename, (None,))[0] is not lines:
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError):
            return None, ()
        trees[code.co_filename] = lines, tree, imported(tree)
    _, tree, names = trees[code.co_filename]
    for node in ast.walk(tree):
        if is_of(node, code):
            return copy.deepcopy(node), names
    return None, ()


def is_of(node, code):
    """Whether the code may be that of a definition."""
    if isinstance(node, ast.FunctionDef):
        first = min(one.lineno for one in (node, *node.decorator_list))
        return (node.name, first) == (code.co_name, code.co_firstlineno)
    if not isinstance(node, ast.Lambda) or node.lineno != code.co_firstlineno or code.co_name != "<lambda>":
        return False
    places = [(line, column) for line, _, column, _ in code.co_positions() if line and column]
    body = node.body
    return min(places, default=None) == (body.lineno, body.col_offset)


def imported(node):
    """Returns the names that are imported in a module, apart from its functions and classes."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(one.asname or one.name).partition(".")[0] for one in node.names} - {"*"}
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
        return set()
    return {name for one in ast.iter_child_nodes(node) for name in imported(one)}


def inner_codes(code):
    return [one for one in code.co_consts if isinstance(one, types.CodeType)]


def compiled(node, code, hooks, imports):
    """Compiles the definition of a function in the surroundings that it needs, and returns its code."""
    names = " = ".join((*code.co_freevars, *hooks, "_"))
    klass = code.co_qualname.split(".")[-2:-1]
    inner = f" class {klass[0]}:\n  def f(): 0\n" if klass and klass[0] != "<locals>" else " def f(): 0\n"
    # Calls of methods of what is imported are compiled in another way.
    tree = ast.parse(f"import {', '.join(('_', *imports))}\ndef outer():\n {names} = 0\n{inner}")
    place = tree.body[1].body
    if isinstance(place[-1], ast.ClassDef):
        place = place[-1].body
    arguments = node.args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if one is not None:
            one.annotation = None
    arguments.defaults = [ast.Constant(0) for _ in arguments.defaults]
    arguments.kw_defaults = [one and ast.Constant(0) for one in arguments.kw_defaults]
    node.decorator_list, node.returns = [], None
    place[-1] = node if isinstance(node, ast.FunctionDef) else ast.Assign([ast.Name("_", ast.Store())], node)
    flags = code.co_flags & FUTURE_FLAGS
    found = [compile(ast.fix_missing_locations(tree), code.co_filename, "exec", flags, dont_inherit=True)]
    for one in found:
        if (one.co_name, one.co_firstlineno) == (code.co_name, node.lineno):
            return one.replace(co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno)
        found += inner_codes(one)


def given(function):
    return ast.Name(function, ast.Load())


class Suspender(ast.NodeTransformer):
    """Rewrites a function's definition, but none inside it."""

    def __init__(self, function):
        self._function = function
        self._globals = function.__globals__
        code = function.__code__
        self._cells = dict(zip(code.co_freevars, function.__closure__ or ()))
        self._locals = {*code.co_varnames, *code.co_cellvars}
        self._has_changed = False
        self._is_generator = code.co_flags & GENERATOR
        # What comprehensions become.
        self._is_lambda, self._made = False, []

    def suspend(self, node):
        self._is_lambda = isinstance(node, ast.Lambda)
        body = self.visit(node.body) if self._is_lambda else self._visit_all(node.body)
        node.body = body if self._is_lambda else self._made + body
        is_passed_on = any(isinstance(one, ast.YieldFrom) and not is_given(one.value) for one in ast.walk(node))
        return node if self._has_changed and not (self._is_generator and is_passed_on) else None

    def _leave(self, node):
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave
    visit_SetComp = visit_DictComp = visit_GeneratorExp = _leave

    def _suspended(self, hook, *arguments, keywords=()):
        self._has_changed = True
        return ast.YieldFrom(ast.Call(given(hook), list(arguments), list(keywords)))

    def visit_Call(self, node):
        may_wait = self._may_wait(node.func)
        self.generic_visit(node)
        if not may_wait:
            return node
        result = self._suspended(CALL, node.func, *node.args, keywords=node.keywords)
        return ast.copy_location(ast.Call(given(VALUE), [result], []), node)

    def visit_With(self, node):
        for item in node.items:
            place = item.context_expr
            if not (isinstance(place, ast.Call) and isinstance(place.func, ast.Name) and place.func.id == "open"):
                made = ast.NamedExpr(ast.Name(ITEM, ast.Store()), self.visit(place))
                entered = self._suspended(ENTERED, given(ITEM))
                waiting = ast.IfExp(ast.Call(given(BUSY), [made], []), entered, given(ITEM))
                item.context_expr = ast.copy_location(waiting, place)
        node.body = self._visit_all(node.body)
        return node

    def _visit_all(self, nodes):
        visited = [self.visit(one) for one in nodes]
        return [one for some in visited for one in (some if isinstance(some, list) else [some])]

    def visit_ListComp(self, node):
        """Makes a function of one that may wait, such as `[queue.get() for _ in range(3)]`."""
        plain, had_changed, self._has_changed = copy.deepcopy(node), self._has_changed, False
        inner = ast.Expr(ast.Call(ast.Attribute(given(LIST), "append", ast.Load()), [node.elt], []))
        for one in reversed(node.generators):
            for test in reversed(one.ifs):
                inner = ast.If(test, [inner], [])
            inner = ast.For(one.target, one.iter, [inner], [])
        # The first iterable is made outside, unless it is a generator that may wait.
        source, is_hidden = inner.iter, bool(names_in(inner.target) & names_in(inner.iter))
        if is_hidden or not (isinstance(source, ast.Call) and self._makes_steps(source.func)):
            inner.iter, source = given(SOURCE), self.visit(source)
        else:
            source = ast.Constant(None)
        inner = self.visit(inner)
        may_wait, self._has_changed = self._has_changed, had_changed
        is_simple = not any(isinstance(one, (ast.NamedExpr, ast.Await)) for one in ast.walk(plain))
        if not may_wait or not is_simple or self._is_lambda:
            return plain
        [made] = ast.parse(f"def {LIST}_{len(self._made)}({SOURCE}):\n {LIST} = []\n 0\n return {LIST}").body
        inner = inner if isinstance(inner, list) else [inner]
        made.body[1:2] = [ast.copy_location(one, node) for one in inner]
        self._made.append(made)
        self._has_changed = True
        return ast.copy_location(ast.YieldFrom(ast.Call(given(made.name), [source], [])), node)

    def visit_While(self, node):
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(self._suspended(TURN)), node))
        return node

    def visit_For(self, node):
        source = node.iter
        is_call = isinstance(source, ast.Call)
        self.generic_visit(node)
        if is_call and is_named(source.func, "iter") and len(source.args) == 2 and not source.keywords:
            # `for item in iter(queue.get, None)`
            begin, after, step = [], [], self._suspended(CALL, source.args[0])
            differs, end = ast.NotEq(), source.args[1]
        elif is_call and self._makes_steps(source.func):
            # A loop over a generator of the program.
            steps = f"{STEPS}_{source.lineno}_{source.col_offset}"
            made = ast.Call(given(STEPS), [source.func, *source.args], source.keywords)
            begin, after = (
                [ast.copy_location(ast.Assign([ast.Name(steps, ast.Store())], one), node)]
                for one in (made, ast.Constant(None))
            )
            step, differs, end = self._suspended(NEXT, given(steps)), ast.IsNot(), given(END)
        else:
            return node
        test = ast.Compare(ast.NamedExpr(ast.Name(ITEM, ast.Store()), step), [differs], [end])
        bound = ast.Assign([node.target], given(ITEM))
        return [*begin, ast.copy_location(ast.While(test, [bound, *node.body], node.orelse), node), *after]

    def visit_Yield(self, node):
        self.generic_visit(node)
        node.value = ast.Call(given(YIELDED), [node.value or ast.Constant(None)], [])
        return node

    def _makes_steps(self, called):
        """Whether a call makes a generator of the program that may wait."""
        if isinstance(called, ast.Name):
            cell = self._cells.get(called.id)
            made = [self._globals.get(called.id) if cell is None else cell_value(cell)]
        else:
            made = self._methods(called.attr) if isinstance(called, ast.Attribute) else ()
        return any(is_waiting_generator(one) for one in made)

    def _methods(self, name):
        kinds = [kind for kind in list(self._globals.values()) if isinstance(kind, type)]
        return [vars(kind)[name] for kind in kinds if name in vars(kind)]

    def _may_wait(self, called):
        """Whether a call may wait, as far as the names tell."""
        if isinstance(called, ast.Name):
            if called.id in self._cells:
                return self._value_may_wait(cell_value(self._cells[called.id]))
            if called.id in self._locals:
                return True
            if called.id in self._globals:
                return self._value_may_wait(self._globals[called.id])
            return not hasattr(builtins, called.id)
        if not isinstance(called, ast.Attribute):
            return True
        if isinstance(called.value, ast.Name) and called.value.id not in self._locals:
            module = self._globals.get(called.value.id)
            if isinstance(module, types.ModuleType):
                return self._value_may_wait(getattr(module, called.attr, None))
        methods = self._methods(called.attr)
        if called.attr in NAMES or any(map(self._value_may_wait, methods)):
            return True
        return called.attr not in QUICK and not methods

    def _value_may_wait(self, value):
        if isinstance(value, (type, types.BuiltinFunctionType)):
            return False
        return type(value) is not types.FunctionType or suspended(value) is not None


def cell_value(cell):
    try:
        return cell.cell_contents
    except ValueError:
        return None


class Entered:
    """A context manager whose `__enter__` has been called."""

    def __init__(self, value, leave):
        self._value, self._leave = value, leave

    def __enter__(self):
        return self._value

    def __exit__(self, *error):
        return self._leave(*error)


def busy(manager):
    """Whether to enter a context manager may wait."""
    kind = type(manager)
    if kind is _thread.LockType:
        return manager.locked()
    return suspended(getattr(kind, "__enter__", None)) is not None


def entered(manager):
    """Enters a context manager so that its wait suspends the thread."""
    enter = type(manager).__enter__
    value = yield from call(enter, manager)
    return Entered(value, functools.partial(type(manager).__exit__, manager))


def names_in(node):
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def is_named(node, name):
    return isinstance(node, ast.Name) and node.id == name


def is_given(node):
    """Whether it is one of the calls that are put into functions here."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("_hatchery")


def is_waiting_generator(value):
    is_generator = type(value) is types.FunctionType and value.__code__.co_flags & GENERATOR
    return bool(is_generator) and suspendable(value) is not None


class Yielded:
    """What a generator of the program yields, among what it waits for."""

    def __init__(self, value):
        self.value = value


def steps(function, /, *args, **options):
    """Returns an iterator: of a program's generator function, one whose waits suspend the thread."""
    if type(function) is types.MethodType and is_waiting_generator(function.__func__):
        function, args = function.__func__, (function.__self__, *args)
    may_wait = is_waiting_generator(function)
    return suspendable(function)(*args, **options) if may_wait else iter(function(*args, **options))


END_OF_STEPS = object()


def next_step(steps):
    answer = None
    while True:
        try:
            found = steps.send(answer) if isinstance(steps, types.GeneratorType) else next(steps)
        except StopIteration:
            return END_OF_STEPS
        if type(found) is Yielded:
            return found.value
        if type(found) is not Wait:
            return found
        answer = yield found


def turn():
    """Lets others run if the thread has had its time."""
    if _locks.monotonic() - _switch.began > _switch.SLICE:
        yield Wait("go on", lambda: True)


HOOKS = {
    CALL: call, VALUE: value_of, BUSY: busy, ENTERED: entered, TURN: turn, STEPS: steps, NEXT: next_step,
    END: END_OF_STEPS, YIELDED: Yielded,
}
HOOKS = {name: types.CellType(hook) for name, hook in HOOKS.items()}


def waits(module, name, what, is_ready):
    """Adds a method which waits for something that `is_ready` sees, of an object and a thread."""

    def make(method):
        names = method.__code__.co_varnames[1 : method.__code__.co_argcount]

        def version(self, /, *args, **options):
            options.update(zip(names, args))
            timeout = options.get("timeout")
            timeout = None if timeout == -1 else timeout
            blocks = options.get("block", options.get("blocking", True))
            if blocks and (timeout is None or isinstance(timeout, (int, float)) and timeout > 0):
                me = _switch.current
                if not (yield from pause(what, lambda: is_ready(self, me), timeout)):
                    options["timeout"] = 0
            return method(self, **options)

        return version

    put(module, name, make)


def pause(what, is_ready, timeout=None):
    """Waits; returns whether it is ready, rather than late."""
    wait = Wait(what, is_ready, timeout)
    return wait.is_over() or (yield wait)


def replaces(module, name):
    """Replaces a function by a generator function that yields what it waits for."""

    def replace(version):
        put(module, name, lambda function: version)
        return version

    return replace


def put(module, name, make):
    WAITS[f"{module}.{name}"] = make
    NAMES.add(name.rpartition(".")[2])
