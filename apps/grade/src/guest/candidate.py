"""Serves a candidate: runs its code, then does what the judge asks, one request after the other.

All of this is in reach of the candidate, which may answer what it likes. It never learns what the
judge makes of its answers.
"""

import builtins
import importlib.util
import inspect


class _Ended(BaseException):
    """The judge has no more requests."""


class _Server(Peer):
    fatal = (KeyboardInterrupt, _Ended)

    def __init__(self, exchange, code, name):
        super().__init__(exchange, 1)
        self._code, self._name = code, name
        self._tasks, self._loop = {}, None
        # The candidate's module, and names of it with what the judge knows them as.
        self._scope, self._told = {}, {}
        # Copies of objects of the tests, by number, with what they were made of and what they are.
        self._copies = {}

    def serve(self):
        """Answers requests until there are no more."""
        answer = None
        with self._turn:
            while True:
                head = self.read(self._exchange(answer))
                answer = self.answer_to(head)

    def perform(self, operation, *rest):
        own = getattr(self, f"_do_{operation}", None)
        return super().perform(operation, *rest) if own is None else own(*rest)

    def _do_begin(self, has_files, is_heard, imports):
        """Runs the candidate's code as a module."""
        self.surroundings = Surroundings(False, has_files, is_heard)
        self.surroundings.reads_creation = any(word in self._code for word in ("getctime", "st_ctime", "birthtime"))
        watch_limits((f"<{self._name}>",), self.surroundings.meet)
        module = sys.modules[self._name] = types.ModuleType(self._name)
        module.__file__ = f"/workspace/{self._name}.py"
        self._scope = vars(module)
        keep_source(self._code, module.__file__)
        code = watched(self._code.removeprefix("\ufeff"), f"<{self._name}>")
        module.__hatchery_ordered__ = ordered_noted(self.surroundings.see_order)
        exec(code, module.__dict__)
        # Natively a candidate and its tests are one module, which has what either imports, the tests last.
        used, lines = _names(code) - set(dir(builtins)), {line.strip() for line in self._code.splitlines()}
        is_one = not any("solution" in statement for _, statement in imports)
        for name, statement in imports:
            found = vars(module).get(name, self)
            is_imported = callable(found) or isinstance(found, types.ModuleType)
            is_imported = is_imported and getattr(found, "__module__", None) != self._name
            is_replaced = is_one and is_imported and statement not in lines
            if name in used and (found is self or is_replaced):
                try:
                    exec(statement, module.__dict__)
                except ImportError:
                    pass

    def _do_attributes(self, target):
        """Returns the attributes of an object."""
        found = dict(getattr(target, "__dict__", {}))
        for kind in type(target).__mro__:
            names = vars(kind).get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if hasattr(target, name) and not name.startswith("__"):
                    found[name] = getattr(target, name)
        return found

    def _do_has_package(self, name):
        return name in sys.modules or importlib.util.find_spec(name) is not None

    def _do_of_module(self, module, name):
        return getattr(importlib.import_module(module), name)

    def _do_name(self, name):
        if name not in self._scope:
            return ()
        self._told[name] = self._scope[name]
        return (self._told[name],)

    # Coroutines run in a loop of this side, a little at a time.

    def _do_await(self, target):
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        task = self._tasks.get(id(target))
        if task is None:
            task = self._tasks[id(target)] = self._loop.create_task(_until_done(target))
        if self._loop.is_running():
            raise Refused("the candidate calls a function of the tests that awaits the candidate")
        self._loop.run_until_complete(asyncio.wait([task], timeout=0.002))
        if not task.done():
            return (False, None)
        del self._tasks[id(target)]
        return (True, task.result())

    def _do_cancel(self, target):
        import asyncio

        task = self._tasks.pop(id(target), None)
        if task is not None:
            task.cancel()
            self._loop.run_until_complete(asyncio.wait([task], timeout=1))

    def _do_anext(self, target):
        async def following():
            try:
                return (True, await anext(target))
            except StopAsyncIteration:
                return (False, None)

        return following()

    def given(self, value):
        if (
            type(value) is types.ModuleType
            and sys.modules.get(value.__name__) is value
            and value.__name__ not in _OWN
        ):
            return ("module", value.__name__)
        if type(value).__module__ == "dataclasses" or type(value).__name__ == "sentinel":
            for name, sentinel in vars(sys.modules["dataclasses"]).items():
                if sentinel is value:
                    return ("dataclasses", name)
        return super().given(value)

    def resolve(self, name, parts):
        if name == "global":
            module, qualname = parts
            found = __import__(module, fromlist=["x"])
            for part in filter(None, qualname.split(".")):
                found = getattr(found, part)
            return found
        if name == "function":
            return self._function(*parts)
        if name == "traceback":
            return _traceback()
        if name == "copy":
            return self._copy(*parts)
        return super().resolve(name, parts)

    def _copy(self, number, data):
        """Returns a copy of an object of a library that the tests give."""
        import pickle

        known = self._copies.get(number)
        if known is None or known[1] != data:
            try:
                made = pickle.loads(data)
                known = self._copies[number] = (made, data, pickled(made))
            except Exception as error:
                self.surroundings.doubt = f"an object of the tests can't be given to the candidate: {error}"
                return None
        return known[0]

    def written(self, *head):
        for made, _, before in self._copies.values():
            try:
                is_same = pickled(made) == before
            except Exception:
                is_same = False
            if not is_same:
                kind = type(made).__name__
                self.surroundings.doubt = f"the candidate changes an object of the tests, of the type `{kind}`"
        if head[0] != "ask" and self._depth == 0 and threading.active_count() > 1:
            self.surroundings.go_on()
        for name, known in self._told.items():
            now = self._scope.get(name, known)
            if now is not known and self.number_of(now) is None:
                self._told[name] = now
                self.surroundings.rebound.append((name, now))
        try:
            return super().written(*head)
        except Refused as error:
            # The candidate may catch it.
            self.surroundings.doubt = str(error)
            raise

    def number_of(self, value):
        copies = (number for number, copy in self._copies.items() if copy[0] is value)
        return super().number_of(value) or next(copies, None)

    def _function(self, number, names, form):
        """Returns a function for one of the tests."""
        known = self._stand_ins.get(number)
        if known is not None:
            return known
        target = Theirs(number)
        stand_in = _formed(form, lambda args, keywords: self.ask("call", target, args, keywords))
        stand_in.__name__, stand_in.__qualname__, stand_in.__module__, stand_in.__doc__ = names
        self._theirs[stand_in], self._stand_ins[number] = number, stand_in
        return stand_in


def _traceback():
    try:
        raise Exception
    except Exception as error:
        return error.__traceback__


def _formed(form, call):
    """Returns a function of the form of one of the tests."""
    if form is None:
        return lambda *args, **keywords: call(args, keywords)
    names, only, count, others, has_rest, has_more, defaults, of_others, annotations, flags = form
    place = count + others
    rest = f"*{names[place]}" if has_rest else ""
    more = f"**{names[place + has_rest]}" if has_more else ""
    first = [name + "=None" * (count - place <= len(defaults or ())) for place, name in enumerate(names[:count])]
    last = [name + "=None" * (name in (of_others or ())) for name in names[count:place]]
    star = [rest or "*"] if rest or last else []
    taken = [*first[:only], *["/"] * (only > 0), *first[only:], *star, *last, *filter(None, [more])]
    args = "".join(f"{name}, " for name in (*names[:count], *filter(None, [rest])))
    keywords = "".join(f"{name!r}: {name}, " for name in names[count:place]) + more
    called = f"_hatchery_call(({args}), {{{keywords}}})"
    word = {0: "return", inspect.CO_GENERATOR: "return (yield from", inspect.CO_COROUTINE: "return (await"}[flags]
    prefix = "async " * (flags == inspect.CO_COROUTINE)
    scope = {"_hatchery_call": call}
    source = f"{prefix}def made({', '.join(taken)}): {word} {called}" + ")" * (flags != 0)
    exec(compile(source, "<a function of the tests>", "exec"), scope)
    made = scope["made"]
    made.__defaults__, made.__kwdefaults__ = defaults, of_others
    if annotations is not None:
        made.__annotations__ = annotations
    return made


def _names(code):
    """Returns the names that code uses."""
    inner = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*inner)


async def _until_done(target):
    return await target


def _exchange(answer):
    """Gives an answer to the judge, and returns its next request."""
    from hatchery import host

    text = host.hatchery_grade_next(answer=answer)
    if text is None:
        raise _Ended
    return text


def serve_candidate(code, name="solution", exchange=_exchange):
    """Serves until the judge has no more requests."""
    try:
        _Server(exchange, code, name).serve()
    except _Ended:
        pass
