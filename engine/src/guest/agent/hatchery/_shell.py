"""The sandbox's shell: runs commands over the guest's files, as `sh -c` does.

All of a command is one Python program. Each command of a pipeline is a generator, which yields while it
waits for another one, and the last one goes first: so `yes | head` ends. Nothing here changes the folder or
the variables of the process, and so a session finds both as they were. `python` is a child as of
`subprocess` (`_subprocess.py`). Its grammar, words and
commands are in the other files whose names begin as this one's does.
"""

import errno
import importlib
import os
import re
import sys

import hatchery
from hatchery._shell_grammar import CommandSyntaxError, parse
from hatchery._shell_streams import CHUNK, Input, Nothing, Pipe, Stream, close
from hatchery._shell_words import UNARY, VARIABLE, DoubleTest, Fields, ShellError, Sum, braces, names_in, pattern_of

# Functions that call each other, and scripts that run each other.
MOST_CALLS = 40
NOT_FOUND, NOT_RUN, BROKEN_PIPE = 127, 126, 141
NOT_ALLOWED = "Permission denied"
# Where programs seem to be.
FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
PATH = "/usr/local/bin:/usr/bin:/bin"
OF_SYSTEM = ("/bin/", "/sbin/", "/usr/", "/opt/")
HOME = "/workspace"


# Modules of commands that are imported when one is called, since they import much.
SELDOM = dict.fromkeys(("awk", "gawk", "mawk"), "hatchery._shell_awk") | dict.fromkeys(
    "df file gunzip gzip hexdump kill killall less more pgrep pkill ps shuf split tar tree unzip xxd zcat zip".split(), "hatchery._shell_archives"
)
SPECIAL_SIGNS = re.compile(r"[*?\[{~]")
ASSIGNED = re.compile(r"[A-Za-z_]\w*=", re.A)
ASSIGNING = ("export", "readonly", "local", "declare", "typeset")
# Their errors end a shell, and variables that are set for them stay.
SPECIAL = frozenset(": . source break continue eval exec exit export readonly return set shift times trap unset".split())


class Leave(Exception):
    """Leaves what runs: the shell, a function, or loops."""

    def __init__(self, what, status=0, levels=1):
        self.what, self.status, self.levels = what, status, levels


def run_command(command):
    """Runs a command as a program of its own: by raising `SystemExit`, if its status isn't 0."""
    shell = Shell(dict(os.environ), os.getcwd(), sys.argv[1:])
    finish(shell, shell.script(command))


def run_words(words):
    """Runs a command of these words, as `run_command` does. It is started by a program, so its variables are all
    that it has.
    """
    shell = Shell(dict(os.environ), os.getcwd(), [])
    shell.exported = set(os.environ)
    finish(shell, shell.call(words))


def finish(shell, running):
    status = 0
    try:
        for _ in shell.guarded(running):
            pass
        status = shell.status
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    if status:
        sys.exit(status)


def lack_of(name, why):
    """Returns what the sandbox lacks if a command doesn't run; `None` if it would run nowhere."""
    if why == NOT_ALLOWED:
        return f"the sandbox has no modes of files, so `{name}` is a program only if it begins with `#!`"
    if "/" in name and not name.startswith(OF_SYSTEM):
        return None
    return f"the sandbox has no program `{name}`, only Python and the commands of its shell"


def head_of(path):
    with open(path, "rb") as file:
        return file.readline(200)


def is_program(path):
    # Files have no modes here, so this is what makes a program of one.
    return head_of(path).startswith(b"#!")


class Shell:
    """A shell, or a subshell: what a command can change."""

    def __init__(self, variables, folder, arguments):
        self.variables, self.folder, self.arguments = variables, folder, list(arguments)
        self.exported = set(variables)
        self.fixed, self.functions, self.locals = set(), {}, []
        self.name, self.status, self.calls, self.tested = "sh", 0, 0, 0
        self.options, self.trap = set(), None
        self.output_status = None
        self.streams = {0: Input(0), 1: Stream(1), 2: Stream(2)}
        for name, value in {"PATH": PATH, "HOME": HOME, "IFS": " \t\n", "PWD": folder, "OPTIND": "1", "PS4": "+ "}.items():
            self.variables.setdefault(name, value)
        self.variables["PWD"] = folder
        self.exported |= {"PATH", "HOME", "PWD"}

    def fork(self):
        other = object.__new__(Shell)
        other.__dict__.update(self.__dict__)
        for name in ("variables", "exported", "fixed", "functions", "options", "streams", "arguments", "locals"):
            setattr(other, name, getattr(self, name).copy())
        other.trap = None
        return other

    def tell(self, text):
        try:
            self.streams[2].write(f"{text}\n".encode("utf-8", "surrogateescape"))
        except (OSError, KeyError):
            pass

    def path(self, name):
        """Returns the absolute path of a file."""
        return os.path.join(self.folder, name)

    def script(self, text):
        yield from self.run(parse(text))

    def guarded(self, running):
        """Runs to the end of a shell or a subshell, whatever happens in it."""
        try:
            try:
                yield from running
            except Leave as leave:
                if leave.what in ("shell", "function"):
                    self.status = leave.status
            finally:
                trap, self.trap = self.trap, None
            if trap:
                status = self.status
                try:
                    yield from self.script(trap)
                    self.status = status
                except Leave as leave:
                    self.status = leave.status
        except CommandSyntaxError as error:
            if "this shell" in str(error) or "nested" in str(error):  # bash may read it
                hatchery._limit_met(f"the sandbox has no shell for this: {error}")
            self.tell(f"{self.name}: {error}")
            self.status = 2
        except ShellError as error:
            self.tell(f"{self.name}: {error}")
            self.status = error.status
        except RecursionError:
            self.tell(f"{self.name}: commands are nested too deep")
            self.status = 2
        except BrokenPipeError:
            self.status = BROKEN_PIPE

    # Commands.

    def run(self, commands):
        for items, is_in_background in commands:
            if is_in_background:
                # It runs to its end at once, since there is one thread.
                other = self.fork()
                other.streams[0] = Nothing()
                yield from other.guarded(other.and_or(items))
                self.variables["!"] = str(os.getpid() + 1)
                self.status = 0
            else:
                yield from self.and_or(items)

    def and_or(self, items):
        for at, (sign, (is_negated, commands)) in enumerate(items):
            if sign == "&&" and self.status or sign == "||" and not self.status:
                continue
            is_tested = is_negated or at < len(items) - 1
            self.tested += is_tested
            try:
                if len(commands) == 1:
                    yield from self.command(commands[0])
                else:
                    yield from self.pipeline(commands)
            finally:
                self.tested -= is_tested
            if is_negated:
                self.status = int(not self.status)
            elif self.status and not is_tested and not self.tested and "e" in self.options:
                raise Leave("shell", self.status)

    def pipeline(self, commands):
        stages, source = [], None
        for command in commands:
            shell = self.fork()
            if source is not None:
                shell.streams[0] = source
            is_last = command is commands[-1]
            sink = None if is_last else Pipe()
            if sink is not None:
                shell.streams[1] = sink
            stages.append([shell, shell.guarded(shell.command(command)), source, sink])
            source = sink
        left = stages[::-1]
        try:
            while left:
                for stage in left[:]:
                    if next(stage[1], self) is self:
                        left.remove(stage)
                        if stage[2] is not None:
                            stage[2].is_read = False
                        if stage[3] is not None:
                            stage[3].is_written = True
                if left:
                    yield
        finally:
            for stage in left:
                stage[1].close()
        statuses = [stage[0].status for stage in stages]
        self.status = statuses[-1]
        if "pipefail" in self.options:
            self.status = next((status for status in reversed(statuses) if status), 0)

    def command(self, tree):
        kind = tree[0]
        if kind == "simple":
            return (yield from self.simple(*tree[1:]))
        if kind == "function":
            self.functions[tree[1]] = tree[2]
            self.status = 0
            return
        before, opened = self.streams, []
        try:
            if tree[-1] and not (yield from self.redirect(tree[-1], opened)):
                return
            yield from getattr(self, "do_" + kind)(*tree[1:-1])
        finally:
            self.streams = before
            close(opened)

    def do_group(self, commands):
        yield from self.run(commands)

    def do_subshell(self, commands):
        shell = self.fork()
        yield from shell.guarded(shell.run(commands))
        self.status = shell.status

    def do_if(self, branches, otherwise):
        for condition, commands in branches:
            yield from self.run_tested(condition)
            if not self.status:
                return (yield from self.run(commands))
        self.status = 0
        yield from self.run(otherwise)

    def run_tested(self, commands):
        self.tested += 1
        try:
            yield from self.run(commands)
        finally:
            self.tested -= 1

    def do_while(self, condition, commands, is_until):
        status = 0
        while True:
            yield
            try:
                yield from self.run_tested(condition)
                if bool(self.status) != is_until:
                    break
                yield from self.run(commands)
            except Leave as leave:
                if self.leaves_loop(leave):
                    status = 0
                    break
            status = self.status
        self.status = status

    def leaves_loop(self, leave):
        """Whether a loop ends by `break` or `continue`; what is no such thing passes through it."""
        if leave.what not in ("break", "continue"):
            raise leave
        self.status = 0
        if leave.levels > 1:
            leave.levels -= 1
            raise leave
        return leave.what == "break"

    def do_for(self, name, words, commands):
        if words is None:
            values = self.arguments[:]
        else:
            values = yield from self.expand(words)
        self.status = 0
        for value in values:
            self.set(name, value)
            yield
            try:
                yield from self.run(commands)
            except Leave as leave:
                if self.leaves_loop(leave):
                    break

    def do_case(self, word, branches):
        text = yield from self.text(word)
        for patterns, commands in branches:
            for pattern in patterns:
                if re.fullmatch((yield from self.pattern(pattern)), text, re.S):
                    self.status = 0
                    return (yield from self.run(commands))
        self.status = 0

    def do_let(self, word):
        self.status = int(not self.sum((yield from self.text(word))))

    def do_test(self, words):
        """`[[ … ]]`."""
        found = []
        for at, word in enumerate(words):
            if isinstance(word, str):
                found.append((word, True))
            elif at and words[at - 1] in ("=", "==", "!="):
                found.append(((yield from self.pattern(word)), False))
            elif at and words[at - 1] == "=~":
                parts = yield from self.segments(word)
                found.append(("".join(re.escape(text) if is_quoted else text for text, is_quoted in parts), False))
            else:
                text = yield from self.text(word)
                is_sign = text in UNARY and word[0][0] == "text" and not word[0][2]
                found.append((text, is_sign))
        try:
            self.status = int(not DoubleTest(self, found).value())
        except (IndexError, ValueError, re.error):
            raise ShellError("[[: syntax error") from None

    def simple(self, assignments, words, redirections):
        self.output_status = None
        fields = yield from self.expand(words)
        before, opened = self.streams, []
        lent = {}
        try:
            if redirections and not (yield from self.redirect(redirections, opened)):
                if fields and fields[0] in SPECIAL:
                    raise Leave("shell", 2)
                return
            for name, plus, word in assignments:
                value = yield from self.text(word, True)
                if plus:
                    value = self.variables.get(name, "") + value
                if fields and fields[0] not in SPECIAL:
                    lent.setdefault(name, (self.variables.get(name), name in self.exported))
                self.set(name, value)
                if fields:
                    self.exported.add(name)
            if "x" in self.options and (fields or assignments):
                shown = [f"{name}={self.variables[name]}" for name, _, _ in assignments]
                self.tell(self.variables.get("PS4", "") + " ".join(shown + fields))
            if not fields:
                self.status = self.output_status or 0
                return
            yield from self.call(fields)
            if fields == ["exec"]:
                # Its redirections stay.
                before, opened = self.streams, []
        finally:
            self.streams = before
            close(opened)
            for name, (value, is_exported) in lent.items():
                self.variables.pop(name, None)
                if value is not None:
                    self.variables[name] = value
                if not is_exported:
                    self.exported.discard(name)

    def call(self, fields):
        """Runs a command by its words."""
        name, args = fields[0], fields[1:]
        if name in self.functions and name not in SPECIAL:
            return (yield from self.call_function(self.functions[name], args))
        kind, found = self.find(name)
        if kind == "builtin":
            status = found(self, args)
        elif kind == "command":
            from hatchery._shell_commands import Call

            status = Call(self, os.path.basename(name), args).run(found)
        elif kind == "python":
            status = self.python(args)
        elif kind == "shell":
            status = self.sh(args)
        elif kind == "file":
            status = self.run_file(name, found, args)
        else:
            if lack := lack_of(name, found):
                hatchery._limit_met(lack)
            self.tell(f"sh: {name}: {found}")
            status = NOT_RUN if kind == "unfit" else NOT_FOUND
        if not isinstance(status, int):
            status = yield from status
        self.status = status

    def find(self, name):
        """Returns what a command is: its kind, and what to call, its path, or why it can't run."""
        from hatchery import _shell_builtins, _shell_commands, _shell_find, _shell_grep, _shell_sed, _shell_texts

        if name in _shell_builtins.BUILTINS:
            return "builtin", _shell_builtins.BUILTINS[name]
        folder, _, base = name.rpartition("/")
        if not folder or folder in FOLDERS:
            tables = (one.COMMANDS for one in (_shell_commands, _shell_texts, _shell_grep, _shell_sed, _shell_find))
            found = next((table[base] for table in tables if base in table), None)
            if base in SELDOM:
                found = importlib.import_module(SELDOM[base]).COMMANDS[base]
            if found:
                return "command", found
            if re.fullmatch(r"python(3(\.\d+)?)?", base):
                return "python", None
            if base in ("sh", "bash", "dash"):
                return "shell", None
        if "/" in name:
            path = self.path(name)
            if os.path.isdir(path):
                return "unfit", "is a directory"
            if not os.path.exists(path):
                return "", "not found"
            return ("file", path) if is_program(path) else ("unfit", NOT_ALLOWED)
        for folder in self.variables.get("PATH", "").split(":"):
            if folder and folder not in FOLDERS and os.path.isfile(path := os.path.join(self.path(folder), name)) and is_program(path):
                return "file", path
        return "", "not found"

    def call_function(self, body, args):
        if self.calls >= MOST_CALLS:
            raise ShellError("functions call each other too deep")
        before, self.arguments = self.arguments, args
        self.calls += 1
        self.locals.append({})
        try:
            yield from self.command(body)
        except Leave as leave:
            if leave.what != "function":
                raise
            self.status = leave.status
        finally:
            self.calls -= 1
            self.arguments = before
            for name, value in self.locals.pop().items():
                self.variables.pop(name, None)
                if value is not None:
                    self.variables[name] = value

    def run_file(self, name, path, args):
        if b"python" in head_of(path):
            return (yield from self.python([name, *args]))
        return (yield from self.sh([name, *args]))

    def sh(self, args):
        """`sh`, in a shell of its own."""
        shell = self.fork()
        shell.functions, shell.locals, shell.options, shell.tested = {}, [], set(), 0
        shell.variables = {name: self.variables[name] for name in self.exported if name in self.variables}
        shell.variables |= {"IFS": " \t\n", "PWD": self.folder}
        shell.exported = shell.exported | {"PWD"}
        shell.calls += 1
        if shell.calls > MOST_CALLS:
            raise ShellError("scripts call each other too deep")
        is_text = reads = False
        args = list(args)
        while args and args[0][:1] in ("-", "+") and args[0] not in ("-", "--"):
            option = args.pop(0)
            if option == "-o" and args:
                shell.options.add(args.pop(0))
            elif not option.startswith("--"):
                is_text |= "c" in option
                reads |= "s" in option
                shell.options |= set(option[1:]) & set("euxf")
        if args and args[0] in ("-", "--"):
            args.pop(0)
        if is_text:
            if not args:
                self.tell("sh: -c requires an argument")
                return 2
            text, args = args[0], args[1:]
            shell.name, args = (args or ["sh"])[0], args[1:]
        elif args and not reads:
            shell.name = args[0]
            try:
                with open(self.path(args[0]), "rb") as file:
                    text = file.read()
            except OSError as error:
                self.tell(f"sh: {args[0]}: cannot open: {error.strerror}")
                return 2 if not os.path.isdir(self.path(args[0])) else NOT_RUN
            args = args[1:]
        else:
            text = yield from self.streams[0].all()
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        shell.arguments = args
        yield from shell.guarded(shell.script(text))
        return shell.status

    def python(self, args):
        """`python`, as a child of this interpreter."""
        import functools

        from hatchery import _subprocess, _system

        ends, after, copies = [], [], {}
        for target in (0, 1, 2):
            stream = self.streams.get(target)
            if isinstance(stream, Input) and target == 0 and not stream.has_read() or stream is not None and stream.descriptor == target:
                ends.append(-1)
            elif target == 0 or isinstance(stream, (Pipe, Nothing)) or stream is None:
                if id(stream) not in copies or target == 0:
                    write, read = _system.nameless(os.O_RDONLY)
                    copies[id(stream)] = write
                    if target == 0:
                        data = b"" if stream is None else (yield from stream.all())
                        Stream(write).write(data)
                        os.close(write)
                        ends.append(read)
                        del copies[id(stream)]
                        continue
                    after.append((stream, read, write))
                ends.append(os.dup(copies[id(stream)]))
            else:
                ends.append(os.dup(stream.descriptor))
        variables = {name: self.variables[name] for name in self.exported if name in self.variables}
        try:
            with _subprocess.running:
                return _subprocess.run(functools.partial(_subprocess.begin, args), ends, self.folder, variables, None)
        finally:
            for stream, read, write in after:
                os.close(write)
                try:
                    while data := os.read(read, CHUNK):
                        if stream is not None:
                            stream.write(data)
                finally:
                    os.close(read)

    # Redirections.

    def redirect(self, redirections, opened):
        """Applies redirections to a copy of the streams. Returns whether all could be opened."""
        self.streams = self.streams.copy()
        for number, sign, word in redirections:
            if sign in ("<<", "<<<"):
                text = yield from self.text(word)
                pipe = Pipe((text + "\n" * (sign == "<<<")).encode("utf-8", "surrogateescape"))
                pipe.is_written = True
                self.streams[number] = pipe
                continue
            target = yield from self.text(word)
            if sign in (">&", "<&") and (target == "-" or target.isdecimal()):
                if target == "-":
                    self.streams.pop(number, None)
                elif int(target) in self.streams:
                    self.streams[number] = self.streams[int(target)]
                else:
                    return self.refuse(f"{target:.20}: Bad file descriptor")
                continue
            if sign == "<&":
                return self.refuse(f"{target:.100}: Bad file descriptor")
            if sign == ">" and "C" in self.options and os.path.isfile(self.path(target)):
                return self.refuse(f"cannot create {target}: File exists")
            try:
                stream = self.open(target, sign)
            except OSError as error:
                is_read = sign == "<"
                reason = os.strerror(error.errno) if error.errno else str(error)
                if not is_read and isinstance(error, FileNotFoundError):
                    reason = "Directory nonexistent"
                return self.refuse(f"cannot {'open' if is_read else 'create'} {target}: {reason}")
            if stream not in self.streams.values():
                opened.append(stream)
            self.streams[number] = stream
            if sign in ("&>", "&>>", ">&"):
                self.streams[1] = self.streams[2] = stream
        return True

    def refuse(self, text):
        self.tell(f"sh: {text}")
        self.status = 2
        return False

    def open(self, name, sign="<"):
        """Opens a file for commands."""
        special = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2, "/dev/fd/0": 0, "/dev/fd/1": 1, "/dev/fd/2": 2}.get(name)
        if special is not None and special in self.streams:
            return self.streams[special]
        if name == "/dev/null":
            return Nothing()
        if not name:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        flags = os.O_WRONLY | os.O_CREAT
        if sign == "<":
            flags = os.O_RDONLY
        elif sign == "<>":
            flags = os.O_RDWR | os.O_CREAT
        elif sign in (">>", "&>>"):
            flags |= os.O_APPEND
        else:
            flags |= os.O_TRUNC
        path = self.path(name)
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return Stream(os.open(path, flags, 0o666))

    # Words.

    def expand(self, words):
        """Returns the fields of words: expanded, split, and with the names of files for patterns."""
        found = []
        for word in words:
            if len(word) == 1 and word[0][0] == "text" and (word[0][2] or not SPECIAL_SIGNS.search(word[0][1])):
                found.append(word[0][1])
                continue
            is_assignment = found and found[0] in ASSIGNING and word[0][0] == "text" and ASSIGNED.match(word[0][1])
            for each in [word] if is_assignment else braces(word):
                if is_assignment:
                    found.append((yield from self.text(each, True)))
                    continue
                fields = Fields(self.variables.get("IFS", " \t\n"))
                yield from self.add(each, fields)
                for field in fields.all():
                    found += self.glob(field)
        return found

    def text(self, word, is_assignment=False):
        """Returns a word as one text: neither split, nor a pattern."""
        segments = yield from self.segments(word, is_assignment)
        return "".join(text for text, _ in segments)

    def segments(self, word, is_assignment=False):
        fields = Fields(None)
        yield from self.add(word, fields, is_assignment)
        found = []
        for field in fields.all():
            # `"$@"` where there are no fields
            found += [(" ", True), *field] if found else field
        return found

    def pattern(self, word):
        """Returns a word as a regular expression of a pattern."""
        return pattern_of((yield from self.segments(word)))

    def add(self, word, fields, is_assignment=False):
        for at, part in enumerate(word):
            kind, is_quoted = part[0], part[-1]
            if kind == "text":
                text = part[1]
                if not is_quoted and not at and text[:1] == "~" and (len(word) == 1 or "/" in text):
                    text = self.tilde(text)
                elif is_assignment and not is_quoted and ":~" in text:
                    text = ":".join(map(self.tilde, text.split(":")))
                fields.add(text, is_quoted)
            elif kind == "output":
                shell = self.fork()
                pipe = shell.streams[1] = Pipe()
                yield from shell.guarded(shell.run(part[1]))
                self.status = self.output_status = shell.status
                text = b"".join(pipe.pieces).replace(b"\0", b"").decode("utf-8", "surrogateescape").rstrip("\n")
                fields.value(text, is_quoted)
            elif kind == "sum":
                fields.value(str(self.sum((yield from self.text(part[1])))), is_quoted)
            else:
                yield from self.add_value(fields, *part[1:])

    def tilde(self, text):
        name, slash, rest = text.partition("/")
        return self.variables.get("HOME", HOME) + slash + rest if name == "~" else text

    def get(self, name):
        """Returns the value of a parameter; `None` if it isn't set."""
        if name.isdecimal():
            at = int(name) if len(name) < 9 else sys.maxsize
            return self.name if not at else self.arguments[at - 1] if at <= len(self.arguments) else None
        if name in ("@", "*"):
            separator = self.variables.get("IFS", " \t\n")[:1] if name == "*" else " "
            return separator.join(self.arguments) if self.arguments else None
        special = {"#": lambda: len(self.arguments), "?": lambda: self.status, "$": os.getpid}.get(name)
        if special is not None:
            return str(special())
        if name == "-":
            return "".join(sorted(one for one in self.options if len(one) == 1))
        return self.variables.get(name)

    def set(self, name, value):
        if name in self.fixed:
            raise ShellError(f"{name}: is read only")
        self.variables[name] = value
        if "a" in self.options:
            self.exported.add(name)

    def add_value(self, fields, name, sign, words, is_quoted):
        value = self.get(name)
        is_missing = value is None or value == "" and sign[:1] == ":" and len(sign) == 2
        operator = sign[-1:] if sign.strip(":") in ("-", "=", "?", "+") else ""
        if operator == "+" and is_missing:
            return fields.value("", is_quoted)
        if operator in ("-", "+") and operator and (is_missing or operator == "+"):
            if is_quoted and not words[0]:
                fields.add("", True)
            return (yield from self.add(words[0], fields))
        if operator == "=" and is_missing:
            if not VARIABLE.fullmatch(name):
                raise ShellError(f"{name}: bad variable name")
            value = yield from self.text(words[0])
            self.set(name, value)
        elif operator == "?" and is_missing:
            told = yield from self.text(words[0])
            raise ShellError(f"{name}: {told or 'parameter not set' + ' or null' * (len(sign) > 1)}")
        elif value is None and not operator and "u" in self.options and name not in ("@", "*", "!"):
            raise ShellError(f"{name}: parameter not set")
        if name in ("@", "*") and not operator:
            values = self.arguments
            if sign == "length":
                return fields.value(str(len(values)), is_quoted)
            if sign:
                changed = []
                for one in values:
                    changed.append((yield from self.changed(one, sign, words)))
                values = changed
            if is_quoted and name == "*" or fields.separators is None and name == "*":
                return fields.value(self.variables.get("IFS", " ")[:1].join(values), is_quoted)
            return fields.values(values, is_quoted)
        if sign and not operator:
            value = yield from self.changed(value or "", sign, words)
        fields.value(value or "", is_quoted)

    def changed(self, value, sign, words):
        """Returns a value after an operator that changes it."""
        if sign == "length":
            return str(len(value))
        if sign == ":":
            start, _, length = (yield from self.text(words[0])).partition(":")
            start = self.sum(start)
            start = max(len(value) + start, 0) if start < 0 else start
            end = len(value)
            if length:
                length = self.sum(length)
                end = start + length if length >= 0 else end + length
            return value[start:end]
        if sign in ("^", "^^", ",", ",,"):
            changed = value.upper() if sign[0] == "^" else value.lower()
            return changed if len(sign) == 2 else changed[:1] + value[1:]
        pattern = yield from self.pattern(words[0])
        if sign[0] == "/":
            new = (yield from self.text(words[1])) if len(words) > 1 else ""
            return re.sub(pattern, lambda found: new, value, 0 if sign == "//" else 1, re.S)
        if sign == "#":
            pattern = re.sub(r"(?<!\\)\.\*", ".*?", pattern)
        if sign[0] == "#":
            found = re.match(pattern, value, re.S)
            return value[found.end() :] if found else value
        ends = range(len(value), -1, -1) if sign == "%" else range(len(value) + 1)
        compiled = re.compile(pattern, re.S)
        return next((value[:at] for at in ends if compiled.fullmatch(value, at)), value)

    def glob(self, field):
        """Returns the names of files that a field matches, or else the field."""
        text = "".join(part for part, _ in field)
        if "f" in self.options or not any(sign in part for part, is_quoted in field if not is_quoted for sign in "*?["):
            return [text]
        parts, folder = [[]], "/" if text[:1] == "/" else ""
        for part, is_quoted in field:
            for at, piece in enumerate(part.split("/")):
                if at:
                    parts.append([])
                parts[-1].append((piece, is_quoted))
        found = [folder]
        parts = [one for one in parts if any(piece for piece, _ in one)]
        for at, segments in enumerate(parts):
            plain = "".join(piece for piece, _ in segments)
            is_last = at == len(parts) - 1
            if not any(sign in piece for piece, is_quoted in segments if not is_quoted for sign in "*?["):
                found = [one + plain for one in found if os.path.lexists(self.path(one + plain))]
            else:
                fits = re.compile(pattern_of(segments), re.S).fullmatch
                names = ((one, name) for one in found for name in names_in(self.path(one or ".")))
                found = [one + name for one, name in names if fits(name) and (name[0] != "." or plain[0] == ".")]
            if not is_last or text[-1:] == "/":
                found = [one + "/" for one in found if os.path.isdir(self.path(one))]
        return sorted(found) or [text]

    def sum(self, text):
        """Returns the value of arithmetic."""
        try:
            return Sum(self, text).value()
        except RecursionError:
            raise ShellError("arithmetic is nested too deep") from None
