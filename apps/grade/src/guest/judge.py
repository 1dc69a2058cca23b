"""The judge's side: stand-ins for what the candidate defines, in an interpreter where none of its code
runs.

What isn't plain data stays with the candidate. It can be called, iterated and asked for attributes,
all of which gives plain data or other stand-ins. It can't be compared or calculated with unless the
tests made it themselves, since the candidate would decide what its own answer is worth: such tests are
undecided, and so is whatever else the two interpreters can't do as one.
"""

import ast
import contextlib
import importlib
import inspect

# Modules whose exceptions and classes mean something to the tests themselves.
_JUDGING = ("unittest", "pytest", "_pytest", "doctest")
_FILES = (
    "StringIO",
    "BytesIO",
    "TextIOWrapper",
    "BufferedReader",
    "BufferedWriter",
    "BufferedRandom",
    "FileIO",
)
_FILE_NAMES = (
    "read",
    "readline",
    "readlines",
    "write",
    "writelines",
    "seek",
    "tell",
    "close",
    "flush",
    "truncate",
    "getvalue",
    "closed",
    "mode",
    "name",
    "encoding",
)


# Names of objects of libraries that the candidate may use where they are, with the tests: nobody can copy them.
_QUEUE_NAMES = ("put", "get", "put_nowait", "get_nowait", "qsize", "empty", "full", "task_done", "join", "maxsize")
_LENT = {
    ("sqlite3", "Connection"): ("cursor", "execute", "executemany", "commit", "rollback", "close", "total_changes", "in_transaction"),
    ("sqlite3", "Cursor"): (
        "execute", "executemany", "fetchone", "fetchmany", "fetchall", "close", "description", "rowcount", "lastrowid",
        "connection",
    ),
    ("_queue", "SimpleQueue"): _QUEUE_NAMES,
    **{("queue", name): _QUEUE_NAMES for name in ("Queue", "LifoQueue", "PriorityQueue")},
}
# Statements of SQL by which a database of the tests would do more than keep rows.
_SQL_BEYOND = ("attach", "pragma", "vacuum", "load_extension")
# What tests that catch exceptions have in their source.
_CATCHING_WORDS = ("except", "aises", "with ")
# What tests that ask how long objects live have in their source.
_LIFE_WORDS = ("weakref", "getrefcount", "gc.")
# What attributes of a data class's fields may be.
_SENTINELS = ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR")
# How an iterator goes on.
_STEPS = ("__next__", "send", "throw", "close")
# Attributes of functions and classes that tell nothing of an answer.
_READABLE = ("__name__", "__doc__", "__qualname__", "__module__", "__annotations__", "__dict__")
# Names by which tests ask which object something is, or change a module by its dictionary.
_IDENTIFYING = ("id", "assertIs", "assertIsNot", "vars", "__dict__")
# Modules that change nothing of an interpreter unseen.
_HARMLESS = {"", "matplotlib", "numpy", "pandas", "pytest", "scipy", "sklearn", "solution"}
_HARMLESS |= sys.stdlib_module_names - {"asyncio"}
# Functions by which tests send signals.
_SIGNALS = ("raise_signal", "alarm", "setitimer")
# What tests that run other source, or what is pickled, have in their own.
_RUN_WORDS = ("eval", "exec", "compile", "pickle", "joblib", "shelve", "load", "subprocess", "popen", "system")
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant)
# Modules whose classes may be made from pickles, and the functions that make them.
_PICKLED = (
    "builtins",
    "collections",
    "datetime",
    "decimal",
    "fractions",
    "numpy",
    "pandas",
    "pathlib",
    "uuid",
)
_UNPICKLERS = (
    "_reconstruct",
    "_reconstructor",
    "_frombuffer",
    "scalar",
    "_unpickle_block",
    "_new_Index",
    "new_block",
)
# What tests with files have in their source.
_FILE_WORDS = (
    "open",
    "os",
    "tempfile",
    "athlib",
    "shutil",
    "sqlite3",
    "zipfile",
    "csv",
    "json",
    "file",
    "glob",
    "_path",
    "chdir",
)


# The module whose figures are those that the candidate draws.
_PLOTS = "matplotlib.pyplot"


class _Module(types.ModuleType):
    """A module of the candidate's interpreter."""

    def __init__(self, link, name):
        super().__init__(name)
        self._hatchery_link = link

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self._hatchery_link.ask("of_module", self.__name__, name)


class CandidateGone(BaseException):
    """The candidate's interpreter has ended."""


class CandidateExit(BaseException):
    """The candidate raised what no test expects: neither an `Exception` nor a `SystemExit`."""


class Link(Peer):
    """The exchange with the candidate."""

    fatal = (KeyboardInterrupt, CandidateGone)

    def __init__(self, exchange, task):
        super().__init__(exchange, 2)
        self._task, self._sources = task, ""
        self._doubt = None
        # Whether the candidate has sent anything but values, so that it can't pass.
        self.is_broken = False
        # Whether nothing of the candidate but plain values and functions was used.
        self._is_plain, self._functions = True, set()
        # Whether a test had failed before there was a doubt, and whether one has failed since.
        self._has_failed = self._has_failed_since = False
        # Classes that the task asks for, and what the tests have made of them, with the arguments.
        self._requested, self._made = set(), {}
        # Kinds of other objects whose attributes the tests use; and those whose attributes they may use,
        # if the task's own solution has shown that.
        self.used, self._usable = set(), task["kinds"]

    def begin(self):
        """Has the candidate's code run.

        Returns:
            `None`, or what it raised.
        """
        sources = "\n".join([self._task["setup"], *self._task["tests"]])
        self._sources = sources
        self._catches = any(word in sources for word in _CATCHING_WORDS)
        nodes = _nodes(sources)
        self._identifies, self._has_tools = _identifies(nodes), _has_tools(nodes)
        has_files = any(word in sources for word in _FILE_WORDS)
        is_heard = any(word in sources for word in _HEARING_WORDS)
        self.surroundings = Surroundings(True, has_files, is_heard, self._owner)
        self.surroundings.takes_filters = "filters" in sources
        self.doubt = _own_facility(nodes)
        watch_limits((_TESTS, "<task>"), self.meet)
        try:
            self.ask("begin", has_files, is_heard, tuple(_imports(sources)))
            if any(word in sources for word in _RUN_WORDS):
                sys.addaudithook(self._audit)
            if "matplotlib" in sources and self.ask("has_package", "matplotlib") is True:
                self._share_plots(nodes)
            if "patch" in sources:
                self.surroundings.watch_patches()
        except (Exception, SystemExit, CandidateExit) as error:
            if isinstance(error, CandidateExit):
                return str(error)
            return f"{type(error).__name__}: {error}".removesuffix(": ")

    def _share_plots(self, nodes):
        """Lets the tests see the candidate's figures, and what its import of pyplot has brought."""
        sys.modules[_PLOTS] = _Module(self, _PLOTS)
        for name in _parts(nodes):
            # One that can't be imported is missing for the tests, and no fault of the candidate.
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        if "matplotlib" in sys.modules:
            sys.modules["matplotlib"].pyplot = sys.modules[_PLOTS]

    def _audit(self, event, args):
        """Keeps tests from running what the candidate has written: as source, a program or a pickle."""
        if event == "pickle.find_class":
            module, name = args
            found = resolved(module, name)
            is_class = isinstance(found, type) and module.partition(".")[0] in _PICKLED
            if not is_class and name not in _UNPICKLERS and module != "tests":
                self.refuse(f"the tests unpickle `{module}.{name}`")
        elif event in ("subprocess.Popen", "os.system"):
            self.refuse("the tests start a program")
        elif event == "compile" and sys._getframe(1).f_code.co_filename.startswith("<test"):
            text = args[0].decode(errors="replace") if type(args[0]) is bytes else args[0]
            if type(text) is str and text not in self._sources and not _is_arithmetic(text):
                self.refuse("the tests run source that they don't contain")

    def _owner(self, target):
        if type(target) is types.ModuleType or isinstance(target, types.ModuleType):
            if target.__name__ in _OWN:
                return "solution"
            return target if sys.modules.get(target.__name__) is target else None
        is_here = isinstance(target, type) and type(target) is not StandInClass
        return target if is_here and resolved(target.__module__, target.__qualname__) is target else None

    def name(self, name, may_be_class=True):
        """Returns what the candidate calls this, in a list; an empty one if there is no such name.

        Args:
            may_be_class: Whether the task asks for a class, if it is one.
        """
        found = list(self.ask("name", name))
        self._is_plain &= not found or type(found[0]) in self._functions
        if found and may_be_class and type(found[0]) is StandInClass:
            self._requested.add(found[0])
        return found

    def meet(self, limit):
        """Notes a limit that the tests meet: of the sandbox, or of being apart from the candidate."""
        if limit == SOURCE_APART:
            self.doubt = self.doubt or limit
        else:
            self.surroundings.meet(limit)

    @property
    def doubt(self):
        """Why nothing that has happened since can be told from a limit, of this exchange or the sandbox."""
        if self._doubt is None and self.surroundings is not None:
            limit, doubt = self.limit, self.surroundings.doubt
            self._doubt = doubt if limit is None else f"it reached a limit of the sandbox: {limit}"
        return self._doubt

    @doubt.setter
    def doubt(self, reason):
        self._doubt = reason

    def is_sure(self, is_passed):
        """Returns whether a pass or a failure can't come from stand-ins, or from values being copies."""
        is_plain = self._is_plain and not self.surroundings.is_used and not self._has_tools
        return self.is_broken or not self._identifies and (is_passed or is_plain)

    @property
    def limit(self):
        return None if self.surroundings is None else self.surroundings.limit

    def patch(self, change, target, name, value=None):
        """Tells the candidate of an attribute that the tests change."""
        self.surroundings.patch(change, target, name, value)

    def written(self, *head):
        try:
            return super().written(*head)
        except Refused as error:
            self.refuse(str(error))

    def note(self):
        """Notes that a test failed, maybe before there was a doubt."""
        self._has_failed |= self.doubt is None and self._shaken() is None
        self._has_failed_since = True

    def undecided(self):
        """Returns why the tests decide nothing; `None` if they do."""
        if self._has_failed:
            return None
        if not self._is_plain and any(word in self._sources for word in _LIFE_WORDS):
            return "the tests ask how long objects of the candidate live"
        return self.doubt or (self._shaken() if self._has_failed_since else None)

    def _shaken(self):
        """Returns why a failure may not be the candidate's; `None` if it is."""
        if self.surroundings is not None and self.surroundings.shares_random():
            return "the tests and the candidate draw from one sequence of random numbers"
        return float_errors_lacking(self._sources) or self.surroundings and self.surroundings.shaken

    def refuse(self, reason):
        self.doubt = self.doubt or reason
        raise Refused(reason)

    def read(self, text):
        try:
            head = super().read(text)
        except Malformed:
            self.is_broken = True
            raise
        except Refused as error:
            self.refuse(str(error))
        if Disorder.seen:
            self.doubt = (
                self.doubt or "a set has another order in the tests than in the candidate's interpreter"
            )
        return head

    def ask(self, *request):
        try:
            return super().ask(*request)
        except _ENDINGS:
            raise Malformed("the candidate sent an invalid value") from None

    def answer_to(self, head):
        try:
            return super().answer_to(head)
        except Malformed:
            self.is_broken = True
            raise

    # Objects of the candidate.

    def local_class(self, module, qualname):
        if module.partition(".")[0] in _JUDGING:
            return None
        return super().local_class(module, qualname)

    def _resolve(self, name, parts):
        made = super()._resolve(name, parts)
        if name == "object" and self.local_class(*type(made)._hatchery_names) in _FUNCTION_TYPES:
            self._functions.add(type(made))
        elif name != "class":
            self._is_plain &= name == "exception" and not self._catches
        return made

    def resolve(self, name, parts):
        if name == "dataclasses" and parts[0] in _SENTINELS:
            return resolved(name, parts[0])
        if name != "module":
            return super().resolve(name, parts)
        (module,) = parts
        if type(module) is not str or not all(part.isidentifier() for part in module.split(".")):
            raise Malformed("the candidate sent an invalid module")
        try:
            __import__(module)
        except ImportError:
            self.refuse(f"the tests can't have the candidate's module `{module}`")
        return sys.modules[module]

    def exception(self, kind, args, made_of):
        if issubclass(kind, (Exception, SystemExit)) and not issubclass(kind, _ENDINGS):
            return super().exception(kind, args, made_of)
        if issubclass(kind, _ENDINGS):
            self.refuse(f"the candidate raises `{kind.__name__}`, which would end a loop of the tests")
        return CandidateExit(f"it raised {kind.__name__}: {args}"[:1000])

    def call(self, target, args, keywords):
        made = self.ask("call", target, args, keywords)
        if type(target) is StandInClass and target in self._requested and type(made) is target:
            self._made[self.number_of(made)] = (args, keywords)
        return made

    def get(self, target, name):
        self._check_kind(target, name)
        return super().get(target, name)

    def set(self, target, name, value):
        self._check_kind(target, name)
        super().set(target, name, value)

    def _check_kind(self, target, name):
        kind = target if type(target) is StandInClass else type(target)
        if kind in self._requested or issubclass(kind, BaseException) or name in _READABLE:
            return
        module, qualname = kind._hatchery_names
        known = "its own" if module in _OWN else f"{module}.{qualname}"
        if self._usable is not None and known not in self._usable:
            self.refuse(
                f"the tests use `{name}` of an object of the candidate, of its type `{kind.__name__}`, and the "
                "task's own solution gives them no such object"
            )
        self.used.add(known)

    def type_of(self, kind):
        """Returns the type that tests see, of which the candidate only tells the name: a library's, if the
        task's own solution gives them such an object."""
        local, known = self.local_class(*kind._hatchery_names), ".".join(kind._hatchery_names)
        if local is None:
            return kind
        if known not in self._usable if self._usable is not None else not self._task["has_solution"]:
            self.refuse(f"the tests ask for the type of an object of the candidate, which says that it is `{known}`")
        self.used.add(known)
        return local

    def use(self, name, target, *args):
        plain = name.strip("_")
        if plain in ("eq", "ne"):
            same = self._are_equal(target, *args)
            return same if plain == "eq" or same is NotImplemented else not same
        if plain in _ORDER and not all(map(self._is_made, (target, *args))):
            self._refuse_use(name, target)
        if plain in _BINARY:
            return self._calculated(name, target, *args)
        if plain in (*_UNARY, "hash", "instancecheck") and not self._is_made(target):
            self._refuse_use(name, target)
        if plain == "contains" and type(target) not in self._requested:
            return any(item is args[0] or item == args[0] for item in target)
        return super().use(name, target, *args)

    def _refuse_use(self, name, target):
        is_class = type(target) is StandInClass
        kind = f"`{(target if is_class else type(target)).__name__}`"
        whose = f"an object that the candidate made, of its type {kind}"
        whose = f"{kind}, a class of the candidate" if is_class else whose
        self.refuse(f"the tests use `{name}` of {whose}, which would decide what its own answer is worth")

    def _is_made(self, value):
        return self.number_of(value) in self._made

    def _calculated(self, name, *operands):
        """Calculates with what the tests made. With numbers of the tests the result must be an object
        again: `length(v) - 5` may be no number if `length` returned `v`."""
        stand_ins = [one for one in operands if self.number_of(one) is not None]
        if not any(map(self._is_made, stand_ins)) or any(
            type(one) not in self._requested for one in stand_ins
        ):
            self._refuse_use(name, operands[0])
        result = super().use(name, *operands)
        is_plain = self.number_of(result) is None and result is not NotImplemented
        if is_plain and len(stand_ins) < len(operands):
            self._refuse_use(name, operands[0])
        return result

    def _are_equal(self, one, other):
        """Returns whether two objects are equal, if their attributes say the same as they do.

        Attributes are believed if those of an object that the tests made have all that it was made of.
        """
        if one is other:
            return True
        if isinstance(one, _CONSTANT):
            # What it is in itself may be right, whatever it says.
            if _plain_base(type(one)).__eq__(one, other) is True:
                return True
            self._refuse_use("__eq__", one)
        if type(one)._hatchery_plain is not None:
            others = self.ask("plain", other) if getattr(type(other), "_hatchery_plain", None) else other
            return self.ask("plain", one) == others
        if type(one) is not type(other) or type(one) not in self._requested:
            self._refuse_use("__eq__", one)
        said = self.ask("special", one, "__eq__", other)
        attributes = [self.ask("attributes", it) for it in (one, other)]
        if any(type(it) is not dict for it in attributes):
            self._refuse_use("__eq__", one)
        is_same = _are_plainly_equal(*attributes)
        anchors = [self._is_anchored(it, has) for it, has in zip((one, other), attributes)]
        if type(said) is not bool or said is not is_same or said and not any(anchors):
            self._refuse_use("__eq__", one)
        return said

    def _is_anchored(self, value, attributes):
        args, keywords = self._made.get(self.number_of(value), ((), {}))
        given = [*args, *keywords.values()]
        values = list(attributes.values())
        return bool(given) and all(any(_are_plainly_equal(it, has) for has in values) for it in given)

    # Objects of the tests.

    def given(self, value):
        self._is_plain = False
        kind = type(value)
        if kind is types.TracebackType:
            return ("traceback",)
        name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
        if callable(value) and type(name) is type(module) is str and resolved(module, name) is value:
            return ("global", module, name)
        if (
            isinstance(value, types.ModuleType)
            and sys.modules.get(value.__name__) is value
            and value.__name__ not in _OWN
        ):
            return ("global", value.__name__, "")
        if isinstance(value, _FUNCTION_TYPES):
            names = (value.__name__, name, module, value.__doc__)
            names = tuple(it if type(it) is str else None for it in names)
            return ("function", self.number(value), names, _form(value))
        if kind is types.CoroutineType or self._is_usable(value) or isinstance(value, BaseException):
            return super().given(value)
        with contextlib.suppress(Exception):
            if not kind.__module__.startswith("asyncio."):  # a copy of which would never end its wait
                return ("copy", self.number(value), pickled(value))
        self.refuse(f"an object of the type `{kind.__name__}` can't be given to a candidate")

    def _is_usable(self, value):
        """Returns whether the candidate may use an object: one of a class of the tests, a mock, a file,
        an iterator."""
        kind = value if isinstance(value, type) else type(value)
        return (
            _is_of_tests(kind)
            or _is_mock(kind)
            or kind.__module__ == "_io"
            and kind.__name__ in _FILES
            or _names_of_lent(kind) is not None
            or kind.__module__ in ("builtins", "itertools", "functools")
            and (hasattr(kind, "__next__") or kind.__name__ in ("partial", "_lru_cache_wrapper"))
        )

    def _may_read(self, target, name):
        if type(name) is str and _is_mock(type(target)):
            is_own = not name.startswith("__") or name in vars(target)
            return is_own and not hasattr(type(target), name) and not name.startswith(("_mock", "_spec"))
        if (
            type(name) is not str
            or name.startswith("__" if _is_of_tests(type(target)) else "_")
            and name not in ("__name__", "__doc__", "__qualname__")
        ):
            return False
        kind = type(target)
        if _names_of_lent(kind) is not None:
            return name in _names_of_lent(kind)
        if kind.__module__ == "_io":
            return name in _FILE_NAMES
        return (
            _is_of_tests(kind)
            or isinstance(target, type)
            and _is_of_tests(target)
            or isinstance(target, BaseException)
        )

    def perform(self, operation, target, *rest):
        is_function = isinstance(target, _FUNCTION_TYPES)
        is_foreign = isinstance(target, type) and not _is_of_tests(target)
        if is_foreign or operation == "resume" and rest[0] not in _STEPS:
            # Its class is known to the candidate, which mustn't make or change anything by it.
            self.refuse(f"the candidate uses `{operation}` of what the tests didn't give it")
        if operation == "await" and type(target) is types.CoroutineType:
            return self._driven(target)
        if operation == "call" and (is_function or self._is_usable(target)):
            if _goes_beyond_rows(target, *rest):
                self.refuse("the candidate gives a database of the tests a statement that isn't about its rows")
            value = super().perform(operation, target, *rest)
            return value
        if operation == "get" and (
            self._may_read(target, *rest) or is_function and rest[0] in ("__wrapped__", "__dict__")
        ):
            return super().perform(operation, target, *rest)
        if operation == "set" and _is_of_tests(type(target)) and self._may_read(target, rest[0]):
            return super().perform(operation, target, *rest)
        if operation == "signature" and (is_function or self._is_usable(target)):
            return super().perform(operation, target)
        if operation == "set" and _is_mock(type(target)) and rest[0] == "__signature__":
            return None  # as pyplot gives to each function that it wraps
        if operation == "get" and _is_mock(type(target)) and str(rest[0]).startswith("__"):
            raise AttributeError(rest[0])
        if operation in ("special", "resume", "iterate", "length", "item", "repr") and self._is_usable(
            target
        ):
            if operation == "special" and rest[0] not in _SPECIAL:
                raise Malformed("the candidate requested something that doesn't exist")
            return super().perform(operation, target, *rest)
        used = rest[0] if rest and type(rest[0]) is str else operation
        self.refuse(
            f"the candidate uses `{used}` of an object of the tests, of the type `{type(target).__name__}`"
        )

    def _driven(self, coroutine):
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return (True, stop.value)
        self.refuse("an `async` function of the tests waits for something while the candidate calls it")


def _imports(source):
    """Returns what tests import: names, and statements that import each."""
    try:
        nodes = ast.parse(source).body
    except SyntaxError:
        return
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                node.names = [alias]
                yield name, ast.unparse(node)


def _nodes(source):
    try:
        return list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return []


def _parts(nodes):
    """Returns the modules of matplotlib that tests may take from the package, without an import."""
    return {
        f"matplotlib.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "matplotlib"
    }


def _identifies(nodes):
    """Returns whether tests ask which object something is, beside `None` and its like, or change a module by
    its dictionary."""
    names = (getattr(node, "attr", getattr(node, "id", None)) for node in nodes)
    return any(name in _IDENTIFYING for name in names) or any(
        isinstance(operator, (ast.Is, ast.IsNot)) and not isinstance(other, ast.Constant)
        for node in nodes if isinstance(node, ast.Compare)
        for operator, other in zip(node.ops, node.comparators)
    )


def _packages_of(nodes):
    """Returns the packages that tests import."""
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {name.partition(".")[0] for name in names}


def _has_tools(nodes):
    """Returns whether tests use what may change their interpreter unseen, such as `freezegun`, or an event
    loop, in which no code of the candidate runs."""
    return not _packages_of(nodes) <= _HARMLESS or any(isinstance(node, ast.AsyncFunctionDef) for node in nodes)


def _own_facility(nodes):
    """Returns what tests use of their own interpreter that the candidate's doesn't have, if they do."""
    if "pyfakefs" in _packages_of(nodes):
        return "the tests replace the files of their own interpreter (`pyfakefs`)"
    called = (ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))
    sent = next((name for name in called if name == "os.kill" or name.rpartition(".")[2] in _SIGNALS), None)
    return sent and f"the tests send signals to their own interpreter (`{sent}`)"


def _is_arithmetic(text):
    """Returns whether source only calculates with numbers, so that it does nothing else."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    numbers = (type(node.value) in (int, float) for node in nodes if isinstance(node, ast.Constant))
    return all(isinstance(node, _ARITHMETIC) for node in nodes) and all(numbers)


def _is_of_tests(kind):
    return kind.__module__ in ("tests", "__main__") and resolved(kind.__module__, kind.__qualname__) is None


def _form(function):
    """Returns what a function takes: its parameters, how many of them are of each kind, its defaults and
    annotations, and the flags of its code; `None` if it isn't one of Python."""
    is_method = type(function) is types.MethodType
    function = getattr(function, "__func__", function)
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    counts = [code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount]
    stars = [bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)]
    names = code.co_varnames[: counts[1] + counts[2] + sum(stars)]
    counts = [max(0, count - is_method) for count in counts[:2]] + counts[2:]
    return (
        names[is_method:],
        *counts,
        *stars,
        function.__defaults__,
        function.__kwdefaults__,
        getattr(function, "__annotations__", None),
        code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE),
    )


def _names_of_lent(kind):
    return _LENT.get((kind.__module__, kind.__qualname__))


def _goes_beyond_rows(function, args, keywords):
    is_sql = type(getattr(function, "__self__", None)).__module__ == "sqlite3"
    texts = [str.lower(text) for text in args if isinstance(text, str)] if is_sql else []
    return any(word in text for text in texts for word in _SQL_BEYOND)


def _is_mock(kind):
    return any(base.__module__ == "unittest.mock" for base in kind.__mro__)


def _are_plainly_equal(one, other):
    """Compares values in which no stand-in decides; one makes them unequal unless both are the same."""
    pairs = [(one, other)]
    while pairs:
        one, other = pairs.pop()
        if one is other:
            continue
        if type(type(one)) is StandInClass or type(one) is not type(other):
            return False
        if isinstance(one, (list, tuple)):
            if len(one) != len(other):
                return False
            pairs += zip(one, other)
        elif isinstance(one, dict):
            if one.keys() != other.keys():
                return False
            pairs += ((one[key], other[key]) for key in one)
        elif not bool(one == other):
            return False
    return True


def exchange_by_host(text):
    """Sends a request to the candidate's interpreter, and returns its answer."""
    from hatchery import HostFunctionError, host

    try:
        return host.hatchery_grade_ask(request=text)
    except HostFunctionError as error:
        if error.type == "CandidateGone":
            raise CandidateGone(str(error)) from None
        raise
