"""What two interpreters share beyond values: files, the environment, random numbers, what tests patch,
and what the candidate prints.

Both sides of a grading run have this code. Each message tells what has changed since the last one.
"""

import os
import random
import sys
import tempfile

# Calls that change files, with the places of paths among their arguments.
_FILE_EVENTS = {
    "open": (0,),
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.utime": (0,),
    "sqlite3.connect": (0,),
    "shutil.rmtree": (0,),
    "shutil.move": (0, 1),
    "shutil.copyfile": (1,),
    "shutil.copytree": (1,),
}
# What the judge would run when it imports it isn't taken from the candidate.
_PROGRAMS = (".py", ".pyc", ".pyo", ".pth", ".so", ".pyd", ".pyi")
_MOST_FILE_BYTES = 16 << 20
# What a side tells of why the tests may decide nothing.
_REASONS = ("limit", "doubt", "shaken")
_LONGEST_DOUBT = 300
_ABSENT = ("absent",)


class Files:
    """Files that this side has used, below the working folder and the folder for temporary files."""

    def __init__(self):
        self._home = os.getcwd()
        self._roots = (self._home, os.path.realpath(tempfile.gettempdir()))
        self._known = {}
        self._seen = set()
        self._is_busy = False
        # Which file couldn't be shared.
        self.excess = None
        self._open, self._read, self._write, self._close = os.open, os.read, os.write, os.close
        self._stat, self._listdir, self._lstat = os.stat, os.listdir, os.lstat
        self._mkdir, self._remove, self._rmdir, self._utime = os.mkdir, os.remove, os.rmdir, os.utime
        self._join, self._abspath = os.path.join, os.path.abspath
        sys.addaudithook(self._notice)

    def _notice(self, event, args):
        places = _FILE_EVENTS.get(event)
        if places is None or self._is_busy:
            return
        for place in places:
            path = args[place] if place < len(args) else None
            if isinstance(path, (str, bytes)) or hasattr(path, "__fspath__"):
                try:
                    self._see(os.fsdecode(path))
                except Exception:
                    pass  # a path that isn't one

    def _see(self, path):
        path = self._abspath(path)
        if path not in self._roots and path.startswith(tuple(root + "/" for root in self._roots)):
            self._seen.add(path)
            # A folder may have been made by code that tells of nothing.
            parent = path.rpartition("/")[0]
            while parent not in self._roots and parent not in self._seen and parent:
                self._seen.add(parent)
                parent = parent.rpartition("/")[0]

    def _state(self, path):
        try:
            found = self._lstat(path)
        except OSError:
            return _ABSENT
        kind = found.st_mode & 0o170000
        if kind == 0o040000:
            return ("folder",)
        return ("file", found.st_mtime_ns, found.st_size) if kind == 0o100000 else _ABSENT

    def changed(self):
        """Returns what has changed: paths with what they are."""
        self._is_busy = True
        try:
            changed = []
            seen = set()
            while seen != self._seen:
                new = self._seen - seen
                seen |= new
                for path in sorted(new):
                    state = self._state(path)
                    if state == ("folder",):
                        self._seen |= {self._join(path, name) for name in self._listdir(path)}
                    if state != self._known.get(path, _ABSENT):
                        self._known[path] = state
                        contents = self._contents(path, state[2]) if state[0] == "file" else None
                        if state[0] == "file" and contents is None:
                            continue
                        changed.append(
                            (self.told(path), state[0], contents, state[1] if contents is not None else 0)
                        )
            # What was made first was made in what was there; what is removed goes from the inside.
            return tuple(
                sorted(changed, key=lambda it: (it[1] == "absent", it[0] if it[1] != "absent" else ""))
            )
        finally:
            self._is_busy = False

    def _contents(self, path, size):
        if size > _MOST_FILE_BYTES:
            self.excess = f"the file `{path}` is too large to be shared between the tests and the candidate"
            return None
        opened = self._open(path, os.O_RDONLY)
        try:
            parts = []
            while part := self._read(opened, 1 << 20):
                parts.append(part)
            return b"".join(parts)
        finally:
            self._close(opened)

    def told(self, path):
        """Returns a path for the other side, which has another working folder."""
        return "." + path[len(self._home) :] if f"{path}/".startswith(f"{self._home}/") else path

    def path_of(self, told):
        return self._abspath(self._join(self._home, told))

    def take(self, changes, may_be_programs):
        """Makes files what they are on the other side."""
        self._is_busy = True
        try:
            for told, kind, contents, changed_at in changes:
                path = self.path_of(told)
                if not path.startswith(tuple(root + "/" for root in self._roots)):
                    raise Malformed("the candidate sent a file that it can't share")
                if kind == "file" and path.lower().endswith(_PROGRAMS) and not may_be_programs:
                    raise Refused(f"the candidate writes the program `{told}`, which the tests could run")
                self._make(path, kind, contents, changed_at)
                self._seen.add(path)
                self._known[path] = self._state(path)
        finally:
            self._is_busy = False

    def _make(self, path, kind, contents, changed_at):
        is_there = self._state(path)
        try:
            if kind == "folder":
                if is_there == _ABSENT:
                    self._mkdir(path)
            elif kind == "absent":
                if is_there == ("folder",):
                    self._empty(path)
                elif is_there != _ABSENT:
                    self._remove(path)
            else:
                opened = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                try:
                    while contents:
                        contents = contents[self._write(opened, contents) :]
                finally:
                    self._close(opened)
                self._utime(path, ns=(changed_at, changed_at))
        except OSError as error:
            raise Refused(f"a file of the other side can't be made here: {error}") from None

    def _empty(self, path):
        for name in self._listdir(path):
            self._make(self._join(path, name), "absent", None, 0)
        self._rmdir(path)


def _decimal_settings(decimal):
    context = decimal.getcontext()
    return (context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp)


def _django_settings(conf):
    if not conf.settings.configured:
        return None
    return tuple((name, value) for name, value in vars(vars(conf.settings)["_wrapped"]).items() if name.isupper())


def _configure_django(conf, settings):
    if settings is not None and not conf.settings.configured:
        conf.settings.configure(**dict(settings))


# Settings of modules that tests change by calls: how they are read, and how they are set.
_SETTINGS = {
    "sys": (lambda sys: sys.getrecursionlimit(), lambda sys, limit: sys.setrecursionlimit(limit)),
    "decimal": (_decimal_settings, lambda decimal, told: decimal.setcontext(decimal.Context(*told))),
    "locale": (lambda locale: locale.setlocale(locale.LC_ALL), lambda locale, name: locale.setlocale(locale.LC_ALL, name)),
    "numpy": (
        lambda numpy: (numpy.get_printoptions(), numpy.geterr()),
        lambda numpy, told: (numpy.set_printoptions(**told[0]), numpy.seterr(**told[1])),
    ),
    "django.conf": (_django_settings, _configure_django),
}


def _settings():
    """Returns the settings of the modules that are imported, as pairs."""
    found = ((module, sys.modules.get(module)) for module in _SETTINGS)
    return tuple((name, _SETTINGS[name][0](module)) for name, module in found if module is not None)


class Surroundings:
    """The surroundings of one side."""

    def __init__(self, is_judge, has_files, is_heard=False, owner_of=None):
        self._is_judge = is_judge
        self._hearing = Hearing(is_judge) if is_heard else None
        self._files = Files() if has_files else None
        self._random = self._numbers = None
        self._variables = dict(os.environ._data)
        self._path, self._folder = list(sys.path), os.getcwd()
        self._first_path = self._path
        self._getcwd, self._chdir = os.getcwd, os.chdir
        self._streams = (sys.stdout, sys.stderr)
        self._captured = (False, False)
        self._printed = []
        self._patches, self._saved = [], []
        # Returns what the candidate knows the owner of an attribute as; `None` if it doesn't.
        self._owner_of = owner_of
        self._stdin = sys.stdin
        self._watched = set()
        # Whether the tests look at filters of warnings.
        self.takes_filters = False
        # Whether the candidate looks at the time at which a file was made, which isn't shared.
        self.reads_creation = False
        # Whether the candidate has drawn random numbers, and the tests then go on with theirs.
        self._is_drawn = self._is_random_shared = False
        # What of the sandbox this side has met, what can't be shared, and why a failure may not be the
        # candidate's; and which of them the other side knows.
        self.limit = self.doubt = self.shaken = None
        self._told = set()
        # Names of the candidate's module that stand for other values now, and what takes them.
        self.rebound, self.rebind = [], None
        # Whether one side has told of anything else than of random numbers.
        self.is_used = False
        self._random, self._numbers = self._random_states()
        self._settings = _settings()

    def see_order(self):
        """Notes that the candidate has seen an order of a set that depends on the width of hashes."""
        self.shaken = ORDER

    def go_on(self):
        """Notes that a call of the candidate has returned, and its threads go on."""
        self.shaken = self.shaken or "threads of the candidate go on after its call, where its tests don't see them"

    def meet(self, limit):
        """Notes that this side has met a limit of the sandbox."""
        self.limit = self.limit or limit

    def shares_random(self):
        """Returns whether the tests have drawn random numbers after the candidate, which natively draws
        from the same sequence."""
        for now, before in zip(self._random_states(), (self._random, self._numbers)):
            self._is_random_shared |= self._is_drawn and before is not None and now != before
        return self._is_random_shared

    def _watch_seeds(self, module):
        """Notes when random numbers begin again, perhaps as they did before."""
        seed = module.seed

        def seeding(*args, **keywords):
            self.shares_random()
            self._random = self._numbers = None
            self._is_drawn = False
            return seed(*args, **keywords)

        module.seed = seeding
        self._watched.add(module)

    def _random_states(self):
        numpy = sys.modules.get("numpy.random")
        for module in (random, numpy):
            if self._is_judge and module is not None and module not in self._watched:
                self._watch_seeds(module)
        numbers = None
        if numpy is not None:
            name, keys, *rest = numpy.get_state()
            numbers = (name, keys.tobytes(), *rest)
        return random.getstate(), numbers

    def told(self):
        """Returns what has changed, as pairs of a kind and a description."""
        news = []
        if self._files is not None:
            changed = self._files.changed()
            self.doubt = self.doubt or self._files.excess
            if changed:
                news.append(("files", changed))
        if os.environ._data != self._variables:
            self._variables = dict(os.environ._data)
            news.append(("environment", tuple(os.environ.items())))
        folder = self._getcwd()
        if self._files is not None and folder != self._folder:
            self._folder = folder
            news.append(("folder", self._files.told(folder)))
        if sys.path != self._path:
            self._path = list(sys.path)
            news.append(("path", tuple(map(str, self._path))))
        if self._is_judge:
            self._tell_candidate(news)
            self._note_use(news)
            return tuple(news)
        if self.rebound:
            news.append(("names", tuple(self.rebound)))
            self.rebound.clear()
        for kind in _REASONS:
            if getattr(self, kind) is not None and kind not in self._told:
                self._told.add(kind)
                news.append((kind, getattr(self, kind)))
        states = self._random_states()
        if states != (self._random, self._numbers):
            self._random, self._numbers = states
            news.append(("drawn", True))
        filters = self._hearing and self._hearing.own_filters()
        if filters:
            news.append(("filters", filters))
        heard = self._hearing and self._hearing.heard()
        if heard:
            news.append(("heard", heard))
        if self._printed:
            news.append(("printed", tuple(self._printed)))
            self._printed.clear()
        return tuple(news)

    def _tell_candidate(self, news):
        self.shares_random()
        state, numbers = self._random_states()
        for kind, now, before in (("random", state, self._random), ("numbers", numbers, self._numbers)):
            if now != before:
                news.append((kind, now))
        self._random, self._numbers = state, numbers
        settings = _settings()
        if settings != self._settings:
            self._settings = settings
            news.append(("settings", settings))
        captured = (sys.stdout is not self._streams[0], sys.stderr is not self._streams[1])
        if captured != self._captured:
            self._captured = captured
            news.append(("captured", captured))
        listens = self._hearing and self._hearing.changed()
        if listens:
            news.append(("listens", listens))
        if self._patches:
            news.append(("patches", tuple(self._patches)))
            self._patches = []
        if sys.stdin is not self._stdin:
            self._stdin = sys.stdin
            if hasattr(sys.stdin, "getvalue"):
                news.append(("stdin", sys.stdin.read()))

    def _note_use(self, news):
        self.is_used |= any(kind not in ("random", "numbers", "drawn") for kind, _ in news)

    def take(self, news):
        """Makes the surroundings what they are on the other side."""
        self._note_use(news)
        for kind, told in news:
            if kind == "files" and self._files is not None:
                self._take_files(told)
            elif kind == "environment":
                told = {str(name): str(value) for name, value in told}
                for name in os.environ.keys() - told.keys():
                    del os.environ[name]
                os.environ.update(told)
                self._variables = dict(os.environ._data)
            elif kind == "folder" and self._files is not None:
                self._chdir(self._files.path_of(str(told)))
                self._folder = self._getcwd()
            elif kind == "path":
                told = [str(folder) for folder in told]
                sys.path[:] = [*told, *(own for own in self._first_path if own not in told)]
                self._path = list(sys.path)
                if self._is_judge:
                    # A file of the candidate may be an archive of programs.
                    archives = [folder for folder in self._first_path if folder.endswith(".zip")]
                    sys.path_hooks[:] = [_of_archives(hook, archives) for hook in sys.path_hooks]
            elif self._is_judge and kind == "printed":
                for number, text in told:
                    if self._captured[number] and type(text) is str:
                        (sys.stdout, sys.stderr)[number].write(text)
            elif self._is_judge and kind == "heard" and self._hearing:
                self._hearing.hear(told)
            elif self._is_judge and kind == "filters" and self._hearing:
                if self.takes_filters:
                    self._hearing.filter(told)
            elif self._is_judge and kind == "names":
                self.rebind(told)
            elif self._is_judge and kind == "drawn":
                self._is_drawn = True
            elif self._is_judge and kind in _REASONS:
                setattr(self, kind, getattr(self, kind) or str(told)[:_LONGEST_DOUBT])
            elif self._is_judge:
                raise Malformed("the candidate sent an invalid report")
            else:
                getattr(self, f"_take_{kind}")(told)

    def _take_files(self, files):
        if self.reads_creation:
            self.doubt = "when a file was made is another time in the candidate's interpreter"
        try:
            self._files.take(files, not self._is_judge)
        except Refused as error:
            self.doubt = self.doubt or str(error)

    def _take_random(self, state):
        random.setstate(state)
        self._random = state

    def _take_numbers(self, numbers):
        numpy = __import__("numpy")
        name, keys, *rest = numbers
        numpy.random.set_state((name, numpy.frombuffer(keys, dtype="uint32"), *rest))
        self._numbers = numbers

    def _take_settings(self, settings):
        for module, told in settings:
            _SETTINGS[module][1](__import__(module, fromlist=["x"]), told)

    def _take_captured(self, captured):
        writers = [
            _Writer(self._printed, number) if is_on else self._streams[number]
            for number, is_on in enumerate(captured)
        ]
        sys.stdout, sys.stderr = writers

    def _take_listens(self, listens):
        self._hearing.set(*listens)

    def _take_stdin(self, text):
        sys.stdin = __import__("io").StringIO(text)

    def _take_patches(self, patches):
        for change, target, name, value in patches:
            if type(target) is str:
                target = sys.modules[target]
            if change != "undo":
                self._saved.append((target, name, vars(target).get(name, _ABSENT)))
                setattr(target, name, value) if change == "set" else delattr(target, name)
                continue
            for place in range(len(self._saved) - 1, -1, -1):
                if self._saved[place][:2] == (target, name):
                    _, _, original = self._saved.pop(place)
                    if original is _ABSENT:
                        delattr(target, name)
                    else:
                        setattr(target, name, original)
                    break

    def patch(self, change, target, name, value=None):
        """Tells the candidate that the tests `set`, `delete` or `undo` an attribute of what both know."""
        owner = self._owner_of(target)
        if owner is not None:
            self._patches.append((change, owner, name, value))

    def watch_patches(self):
        """Notes what `unittest.mock` patches from now on."""
        mock = __import__("unittest.mock").mock
        enter, leave = mock._patch.__enter__, mock._patch.__exit__

        def entering(patch):
            value = enter(patch)
            self.patch("set", patch.target, patch.attribute, getattr(patch.target, patch.attribute))
            return value

        def leaving(patch, *error):
            self.patch("undo", patch.target, patch.attribute)
            return leave(patch, *error)

        mock._patch.__enter__, mock._patch.__exit__ = entering, leaving


def _of_archives(hook, archives):
    """Returns a hook of imports that reads these archives only, if it is one that reads archives."""
    if hook.__name__ != "zipimporter":
        return hook

    def imports(folder):
        if not folder.startswith(tuple(archives)):
            raise ImportError(f"`{folder}` isn't an archive of the image", path=folder)
        return hook(folder)

    return imports


class _Writer:
    """Keeps what the candidate prints while tests look at that."""

    encoding = "utf-8"
    errors = "strict"
    closed = False

    def __init__(self, printed, number):
        self._printed, self._number = printed, number

    def write(self, text):
        self._printed.append((self._number, str(text)))
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        pass

    def isatty(self):
        return False

    def writable(self):
        return True
