"""Commands of the shell for files and for the system. Those for texts are in `_shell_texts.py`.

They have the options of busybox that are in use, and write what it writes.
"""

import errno
import os
import re
import shutil
import stat
import sys
import time

import hatchery
from hatchery._shell import NOT_FOUND
from hatchery._shell_streams import Nothing
from hatchery._shell_words import test_of


class Usage(Exception):
    """A command was given something that it doesn't have."""


class Call:
    """One call of a command."""

    def __init__(self, shell, name, args):
        self.shell, self.name, self.args, self.status = shell, name, args, 0
        self.path = shell.path

    def run(self, function):
        try:
            status = function(self, self.args)
            if status is not None and not isinstance(status, int):
                status = yield from status
        except Usage as error:
            hatchery._limit_met(f"the sandbox has no `{self.name}` for this: {error}")
            self.tell(error)
            return 2 if self.name in ("grep", "egrep", "fgrep", "diff", "test", "[", "sort", "ls") else 1
        except BrokenPipeError:
            raise
        except OSError as error:
            self.tell(reason_of(error))
            return 1
        return self.status if status is None else status

    def out(self, text):
        self.write(text.encode("utf-8", "surrogateescape"))

    def write(self, data):
        stream = self.shell.streams.get(1)
        if stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        stream.write(data)

    def tell(self, text):
        self.shell.tell(f"{self.name}: {text}")

    def fail(self, text, status=1):
        self.tell(text)
        self.status = max(self.status, status)

    @property
    def stdin(self):
        return self.shell.streams.get(0) or Nothing()

    def sources(self, names, status=1):
        """Opens files one after another, `-` for standard input."""
        for name in names or ["-"]:
            if name == "-":
                yield name, self.stdin
                continue
            try:
                stream = self.shell.open(name)
            except OSError as error:
                self.fail(f"{name}: {os.strerror(error.errno)}" if self.name != "cat" else f"can't open '{name}': {os.strerror(error.errno)}", status)
                continue
            try:
                yield name, stream
            finally:
                if stream not in self.shell.streams.values():
                    stream.close()

    def texts(self, names, status=1):
        """Returns the contents of files, as `[(name, text), …]`."""
        found = []
        for name, stream in self.sources(names, status):
            found.append((name, (yield from stream.all()).decode("utf-8", "surrogateescape")))
        return found


def reason_of(error):
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def decoded(line):
    return line.decode("utf-8", "surrogateescape")


def number_in(text, most=1 << 40):
    if not re.fullmatch(r"\d{1,12}", text):
        raise Usage(f"invalid number '{text:.40}'")
    return min(int(text), most)


def options(args, flags="", valued="", long={}):
    """Returns the options of a command by their letters, and its other arguments."""
    found, rest, args = {}, [], list(args)
    while args:
        arg = args.pop(0)
        if arg == "--":
            rest += args
            break
        if arg[:2] == "--":
            name, sign, value = arg[2:].partition("=")
            letter = long.get(name)
            if letter is None:
                raise Usage(f"unrecognized option '{arg}'")
            if letter in valued and letter:
                if not sign:
                    if not args:
                        raise Usage(f"option '{arg}' needs an argument")
                    value = args.pop(0)
                found.setdefault(letter, []).append(value)
            elif letter:
                found[letter] = True
        elif arg[:1] == "-" and len(arg) > 1:
            at = 1
            while at < len(arg):
                letter = arg[at]
                at += 1
                if letter in flags:
                    found[letter] = True
                elif letter in valued:
                    value = arg[at:]
                    if not value:
                        if not args:
                            raise Usage(f"option requires an argument -- '{letter}'")
                        value = args.pop(0)
                    found.setdefault(letter, []).append(value)
                    break
                else:
                    raise Usage(f"invalid option -- '{letter}'")
        else:
            rest.append(arg)
    return found, rest


def echo(call, args):
    args, is_escaped, end = list(args), False, "\n"
    while args and re.fullmatch("-[neE]+", args[0]):
        for letter in args.pop(0)[1:]:
            end = "" if letter == "n" else end
            is_escaped = {"e": True, "E": False}.get(letter, is_escaped)
    text = " ".join(args)
    if is_escaped:
        text, stops = escaped(text)
        end = "" if stops else end
    call.out(text + end)


def escaped(text, octal=r"0[0-7]{0,3}"):
    """Returns a text with the escapes of `echo -e`, and whether `\\c` ends it."""
    found = re.split(r"\\c", text, maxsplit=1)
    signs = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}

    def meant(match):
        code = match[1]
        if code in signs:
            return signs[code]
        number = int(code[1:], 16) if code[0] == "x" else int(code, 8)
        return bytes([number & 0xFF]).decode("utf-8", "surrogateescape")

    text = re.sub(rf"\\(x[0-9a-fA-F]{{1,2}}|{octal}|[abefnrtv\\])", meant, found[0])
    # Bytes of one character may have come one by one.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape"), len(found) > 1


FORMAT = re.compile(r"%(%|([-+ 0#]*)(\*|\d{1,6})?(?:\.(\*|\d{1,6})?)?([a-zA-Z]))")


def printf(call, args):
    if not args:
        raise Usage("usage: printf FORMAT [ARGUMENT]…")
    form, _ = args[0], None
    args, is_first = list(args[1:]), True
    while is_first or args:
        before, is_first = len(args), False
        at, found, stops = 0, [], False
        for match in FORMAT.finditer(form):
            found.append(escaped(form[at : match.start()], r"[0-7]{1,3}")[0])
            at = match.end()
            if match[1] == "%":
                found.append("%")
                continue
            text, stops = formatted(call, match, args)
            found.append(text)
            if stops:
                break
        if not stops:
            text, stops = escaped(form[at:], r"[0-7]{1,3}")
            if "%" in form[at:].replace("%%", ""):
                text = text.split("%")[0]
                call.fail(f"{form[at:]:.40}: invalid format")
                stops = True
            found.append(text)
        call.out("".join(found))
        if stops or len(args) == before:
            return


def formatted(call, match, args):
    _, flags, width, precision, kind = match.groups()
    take = lambda default: args.pop(0) if args else default
    has_precision = "." in match[0]
    width = integer(call, take("0")) if width == "*" else int(width or 0)
    precision = integer(call, take("0")) if precision == "*" else int(precision or 0)
    if width < 0:
        flags, width = flags + "-", -width
    if max(width, precision) > 1 << 16:
        raise Usage("the field is too wide")
    if kind in "sbcq":
        text, stops = take(""), False
        if kind == "b":
            text, stops = escaped(text, r"0?[0-7]{1,3}")
        elif kind == "c":
            text = text[:1]
        elif kind == "q":
            text = text if re.fullmatch(r"[\w./=:@%+,-]+", text) else "'" + text.replace("'", "'\\''") + "'"
        if has_precision:
            text = text[:precision]
        return (text.ljust(width) if "-" in flags else text.rjust(width)), stops
    shape = "%" + flags + (str(width) if width else "") + (f".{precision}" if has_precision else "")
    if kind in "diuoxX":
        value = integer(call, take("0"))
        return shape % value if False else (shape + ("d" if kind in "diu" else kind)) % (value if kind in "di" else value & ((1 << 64) - 1)), False
    if kind in "eEfFgGaA":
        text = take("0")
        try:
            value = float(text)
        except ValueError:
            call.fail(f"invalid number '{text}'")
            value = 0.0
        return (shape + kind) % value, False
    raise Usage(f"{match[0]}: invalid format")


def integer(call, text):
    if text[:1] in ("'", '"'):
        return ord(text[1:2] or "\0")
    match = re.fullmatch(r"\s*([-+]?)(0[xX][0-9a-fA-F]{1,30}|0[0-7]{0,30}|\d{1,30})", text)
    if not match:
        number = re.match(r"\s*[-+]?\d{1,30}", text)
        call.fail(f"invalid number '{text:.40}'")
        return int(number[0]) if number else 0
    base = 16 if match[2][:2] in ("0x", "0X") else 8 if match[2][0] == "0" else 10
    return int(match[2], base) * (-1 if match[1] == "-" else 1)


def test(call, args):
    args = list(args)
    if call.name == "[":
        if args[-1:] != ["]"]:
            raise Usage("missing ]")
        args.pop()
    try:
        return int(not test_of(call.shell, args))
    except (ValueError, IndexError) as error:
        raise Usage(str(error) or "syntax error") from None


def cat(call, args):
    given, names = options(args, "nbuvetAsTE")
    number, ends = 0, b""
    for _, stream in call.sources(names):
        if not given:
            while data := (yield from stream.chunk()):
                call.write(data)
            continue
        while line := (yield from stream.line()):
            if "s" in given and not line.strip(b"\n") and ends == b"\n":
                continue
            ends = line if line == b"\n" else b""
            if "n" in given or "b" in given and line != b"\n":
                number += 1
                call.out(f"{number:6}\t")
            if {"e", "A", "E"} & given.keys():
                line = line.replace(b"\n", b"$\n")
            if {"t", "A", "T"} & given.keys():
                line = line.replace(b"\t", b"^I")
            call.write(line)


TIMES = "%b %e %H:%M"


def ls(call, args):
    given, names = options(args, "1aAldRrtSFhinpCxsLHk", "", {"all": "a", "almost-all": "A", "recursive": "R", "reverse": "r", "human-readable": "h", "color": "", "directory": "d"})
    names = names or ["."]
    files, folders = [], []
    for name in names:
        try:
            info = os.lstat(call.path(name)) if "l" in given else os.stat(call.path(name))
        except OSError as error:
            call.fail(f"{name}: {os.strerror(error.errno)}")
            continue
        (folders if stat.S_ISDIR(info.st_mode) and "d" not in given else files).append((name, info))
    show(call, given, ordered(given, files), "")
    is_first, is_named = not files, len(names) > 1 or "R" in given
    folders = ordered(given, folders)
    while folders:
        name, _ = folders.pop(0)
        inner = []
        for each in os.listdir(call.path(name)):
            if each[0] != "." or {"a", "A"} & given.keys():
                try:
                    inner.append((each, os.lstat(os.path.join(call.path(name), each))))
                except OSError:
                    pass
        if "a" in given:
            inner += [(dots, os.stat(os.path.join(call.path(name), dots))) for dots in (".", "..")]
        if is_named:
            call.out(("" if is_first else "\n") + f"{name}:\n")
        is_first = False
        inner = ordered(given, inner)
        if "l" in given:
            call.out(f"total {sum((info.st_size + 4095) // 4096 * 4 for _, info in inner)}\n")
        show(call, given, inner, name)
        if "R" in given:
            below = [(f"{name.rstrip('/')}/{each}", info) for each, info in inner if stat.S_ISDIR(info.st_mode)]
            folders = [one for one in below if os.path.basename(one[0]) not in (".", "..")] + folders
        yield


def ordered(given, found):
    found = sorted(found, key=lambda one: one[0])
    if "t" in given:
        found.sort(key=lambda one: -one[1].st_mtime_ns)
    if "S" in given:
        found.sort(key=lambda one: -one[1].st_size)
    return found[::-1] if "r" in given else found


def show(call, given, found, folder):
    width = max((len(size_of(given, info)) for _, info in found), default=0)
    for name, info in found:
        mark = ""
        if {"F", "p"} & given.keys():
            mark = "/" if stat.S_ISDIR(info.st_mode) else "@" if stat.S_ISLNK(info.st_mode) and "F" in given else ""
        number = f"{info.st_ino} " if "i" in given else ""
        if "l" not in given:
            call.out(f"{number}{name}{mark}\n")
            continue
        if stat.S_ISLNK(info.st_mode):
            mark += f" -> {os.readlink(os.path.join(call.path(folder), name))}"
        when = time.strftime(TIMES, time.gmtime(info.st_mtime))
        owner = "0        0       " if "n" in given else "root     root    "
        mode = info.st_mode
        if not mode & 0o777:
            # Files have no modes here.
            mode |= 0o755 if stat.S_ISDIR(mode) else 0o644
        call.out(f"{number}{stat.filemode(mode)} {info.st_nlink:4} {owner} {size_of(given, info):>{max(width, 9)}} {when} {name}{mark}\n")


def size_of(given, info):
    return human(info.st_size) if "h" in given else str(info.st_size)


def human(size):
    for unit in ("", "K", "M", "G"):
        if size < 1024 or unit == "G":
            return f"{size:.1f}{unit}" if unit else str(size)
        size /= 1024


def mkdir(call, args):
    given, names = options(args, "pv", "m", {"parents": "p", "verbose": "v", "mode": "m"})
    if not names:
        raise Usage("missing operand")
    for name in names:
        try:
            if "p" in given:
                os.makedirs(call.path(name), exist_ok=True)
            else:
                os.mkdir(call.path(name))
            if "v" in given:
                call.out(f"created directory: '{name}'\n")
        except OSError as error:
            call.fail(f"can't create directory '{name}': {os.strerror(error.errno)}")


def rmdir(call, args):
    given, names = options(args, "pv", "", {"parents": "p", "ignore-fail-on-non-empty": ""})
    for name in names:
        try:
            os.rmdir(call.path(name))
            while "p" in given and (name := os.path.dirname(name)):
                os.rmdir(call.path(name))
        except OSError as error:
            call.fail(f"'{name}': {os.strerror(error.errno)}")


def rm(call, args):
    given, names = options(args, "rRfiv", "", {"recursive": "r", "force": "f", "verbose": "v"})
    if not names and "f" not in given:
        raise Usage("missing operand")
    for name in names:
        path = call.path(name)
        if os.path.basename(name.rstrip("/")) in (".", ".."):
            call.fail(f"can't remove '{name}': it is the current folder or the one above")
            continue
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                if not {"r", "R"} & given.keys():
                    call.fail(f"'{name}' is a directory")
                    continue
                shutil.rmtree(path)
            else:
                os.unlink(path)
            if "v" in given:
                call.out(f"removed '{name}'\n")
        except FileNotFoundError as error:
            if "f" not in given:
                call.fail(f"can't remove '{name}': {os.strerror(error.errno)}")
        except OSError as error:
            call.fail(f"can't remove '{name}': {os.strerror(error.errno)}")


def copy(call, args):
    given, names = options(args, "rRapfivdPLnuT", "t", {"recursive": "r", "archive": "a", "force": "f", "no-clobber": "n", "verbose": "v", "parents": ""})
    yield from transfer(call, given, names, bool({"r", "R", "a"} & given.keys()), True)


def move(call, args):
    given, names = options(args, "finvuT", "t", {"force": "f", "no-clobber": "n", "verbose": "v"})
    yield from transfer(call, given, names, True, False)


def transfer(call, given, names, takes_folders, is_copy):
    names = names + given.get("t", [])
    if len(names) < 2:
        raise Usage("missing operand")
    *names, target = names
    is_folder = os.path.isdir(call.path(target)) and "T" not in given
    if len(names) > 1 and not is_folder:
        raise Usage(f"{target}: {os.strerror(errno.ENOTDIR)}")
    for name in names:
        source = call.path(name)
        goal = os.path.join(target, os.path.basename(name.rstrip("/"))) if is_folder else target
        path = call.path(goal)
        try:
            if not os.path.lexists(source):
                verb = "can't stat" if is_copy else "can't rename"
                call.fail(f"{verb} '{name}': {os.strerror(errno.ENOENT)}")
                continue
            if "n" in given and os.path.lexists(path):
                continue
            if os.path.realpath(source) == os.path.realpath(path):
                call.fail(f"'{name}' and '{goal}' are the same file")
                continue
            if "u" in given and os.path.exists(path) and os.stat(path).st_mtime_ns >= os.stat(source).st_mtime_ns:
                continue
            if os.path.isdir(source) and (is_copy or not os.path.islink(source)):
                if not takes_folders:
                    call.fail(f"omitting directory '{name}'")
                    continue
                if f"{os.path.realpath(path)}/".startswith(f"{os.path.realpath(source)}/"):
                    call.fail(f"can't put '{name}' into itself, '{goal}'")
                    continue
            if not is_copy:
                if os.path.isdir(path) and not os.path.isdir(source):
                    call.fail(f"can't rename '{name}': {os.strerror(errno.EISDIR)}")
                    continue
                os.replace(source, path)
            elif os.path.isdir(source):
                shutil.copytree(source, path, symlinks=True, dirs_exist_ok=True, copy_function=copied)
            else:
                copied(source, path)
                if {"p", "a"} & given.keys():
                    shutil.copystat(source, path)
            if "v" in given:
                call.out(f"'{name}' -> '{goal}'\n")
        except (shutil.Error, OSError) as error:
            told = reason_of(error) if isinstance(error, OSError) and error.errno else str(error)
            call.fail(f"can't {'create' if is_copy else 'rename to'} '{goal}': {told.rpartition(': ')[2]}")
        yield


def copied(source, path, **options):
    return shutil.copyfile(source, path, **options)


def link(call, args):
    given, names = options(args, "sfvnrT", "", {"symbolic": "s", "force": "f"})
    if not names:
        raise Usage("missing operand")
    *names, target = names if len(names) > 1 else [*names, os.path.basename(names[0])]
    for name in names:
        goal = os.path.join(target, os.path.basename(name)) if os.path.isdir(call.path(target)) else target
        path = call.path(goal)
        try:
            if "f" in given and os.path.lexists(path):
                os.unlink(path)
            (os.symlink if "s" in given else os.link)(name if "s" in given else call.path(name), path)
        except OSError as error:
            call.fail(f"{goal}: {os.strerror(error.errno)}")


def touch(call, args):
    given, names = options(args, "camh", "dtr", {"no-create": "c", "date": "d", "reference": "r"})
    times = None
    if "r" in given:
        found = os.stat(call.path(given["r"][0]))
        times = found.st_atime, found.st_mtime
    elif "d" in given or "t" in given:
        moment = moment_of(given["d"][0]) if "d" in given else moment_of_digits(given["t"][0])
        times = moment, moment
    for name in names:
        path = call.path(name)
        try:
            if not os.path.lexists(path):
                if "c" in given:
                    continue
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))
            os.utime(path, times)
        except OSError as error:
            call.fail(f"{name}: {os.strerror(error.errno)}")


def moment_of(text):
    """Returns the seconds since 1970 of a date as `date -d` reads it."""
    text = text.strip()
    if re.fullmatch(r"@-?\d{1,11}(\.\d+)?", text):
        return float(text[1:])
    if text in ("now", "today", "yesterday", "tomorrow"):
        return time.time() + {"yesterday": -86400, "tomorrow": 86400}.get(text, 0)
    import datetime

    try:
        found = datetime.datetime.fromisoformat(text.removesuffix(" UTC").replace("Z", "+00:00"))
    except ValueError:
        raise Usage(f"invalid date '{text}'") from None
    return (found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)).timestamp()


def moment_of_digits(text):
    import calendar

    for form in ("%Y%m%d%H%M.%S", "%Y%m%d%H%M", "%y%m%d%H%M"):
        try:
            return calendar.timegm(time.strptime(text, form))
        except ValueError:
            pass
    raise Usage(f"invalid date '{text}'")


def date(call, args):
    given, rest = options(args, "uR", "drI", {"date": "d", "utc": "u", "universal": "u", "iso-8601": "", "reference": "r"})
    moment = time.time()
    if "d" in given:
        moment = moment_of(given["d"][0])
    elif "r" in given:
        moment = os.stat(call.path(given["r"][0])).st_mtime
    form = next((arg[1:] for arg in rest if arg[:1] == "+"), None)
    if form is None:
        form = "%a, %d %b %Y %H:%M:%S +0000" if "R" in given else "%a %b %e %H:%M:%S UTC %Y"
    if any(arg.startswith(("-I", "--iso-8601")) for arg in args):
        form = "%Y-%m-%dT%H:%M:%S+00:00" if "s" in args[0] else "%Y-%m-%d"
    whole = int(moment // 1)
    form = form.replace("%s", str(whole)).replace("%N", f"{int((moment - whole) * 1e9):09}").replace("%z", "+0000").replace("%Z", "UTC")
    call.out(time.strftime(form, time.gmtime(whole)) + "\n")


def sleep(call, args):
    seconds = 0.0
    for arg in args:
        found = re.fullmatch(r"(\d{1,9}(?:\.\d*)?|\.\d+)([smhd]?)", arg)
        if not found:
            raise Usage(f"invalid number '{arg}'")
        seconds += float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
    if not args:
        raise Usage("missing operand")
    time.sleep(seconds)


def basename(call, args):
    given, names = options(args, "a", "s")
    end = given.get("s", [""])[0]
    if not names:
        raise Usage("missing operand")
    if not given and len(names) > 1:
        names, end = names[:1], names[1]
    for name in names:
        base = os.path.basename(name.rstrip("/")) or "/"
        call.out((base.removesuffix(end) if base != end else base) + "\n")


def dirname(call, args):
    for name in args:
        name = name.rstrip("/") or "/"
        folder = os.path.dirname(name)
        call.out((folder.rstrip("/") or folder or ".") + "\n")


def real(call, args):
    given, names = options(args, "fenmqs", "", {"canonicalize": "f"})
    for name in names:
        path = call.path(name)
        if call.name == "readlink" and not {"f", "e", "m"} & given.keys():
            if not os.path.islink(path):
                call.status = 1
                continue
            call.out(os.readlink(path) + "\n")
            continue
        found = os.path.realpath(path)
        if not os.path.exists(found if call.name == "realpath" and "m" not in given and "e" in given else os.path.dirname(found)):
            call.fail(f"{name}: {os.strerror(errno.ENOENT)}")
            continue
        call.out(found + "\n")


def which(call, args):
    from hatchery._shell_builtins import kind_of

    for name in args:
        if name[:1] == "-":
            continue
        kind, path = kind_of(call.shell, name)
        if kind != "program":
            call.status = 1
        else:
            call.out(path + "\n")


def env(call, args):
    args, shell = list(args), call.shell.fork()
    while args and args[0][:1] == "-":
        option = args.pop(0)
        if option in ("-i", "-", "--ignore-environment"):
            shell.exported = set()
        elif option in ("-u", "--unset") and args:
            shell.exported.discard(args.pop(0))
        elif option == "-S" and args:
            import shlex

            args = shlex.split(args[0]) + args[1:]
        elif option != "--":
            raise Usage(f"unrecognized option '{option}'")
    while args and "=" in args[0]:
        name, _, value = args.pop(0).partition("=")
        shell.variables[name] = value
        shell.exported.add(name)
    if not args:
        for name in sorted(shell.exported & shell.variables.keys()):
            call.out(f"{name}={shell.variables[name]}\n")
        return 0
    return (yield from outside(shell, args))


def outside(shell, words):
    """Runs a command that isn't a function or a builtin of the shell."""
    shell.functions = {}
    if shell.find(words[0])[0] == "builtin" and words[0] not in ("pwd", ":"):
        shell.tell(f"sh: {words[0]}: not found")
        return NOT_FOUND
    yield from shell.guarded(shell.call(words))
    return shell.status


def printenv(call, args):
    shell = call.shell
    found = [name for name in args or sorted(shell.exported) if name in shell.exported and name in shell.variables]
    for name in found:
        call.out(f"{shell.variables[name]}\n" if args else f"{name}={shell.variables[name]}\n")
    return int(len(found) < len(args))


def chmod(call, args):
    """Files have no modes here, so it only looks for them."""
    names = [arg for arg in args if not re.fullmatch("-[RvcfwrxX]+", arg)]
    if len(names) < 2:
        raise Usage("missing operand")
    for name in names[1:]:
        if not os.path.exists(call.path(name)):
            call.fail(f"{name}: {os.strerror(errno.ENOENT)}")


def disk(call, args):
    given, names = options(args, "shkmabc", "d", {"max-depth": "d", "summarize": "s", "human-readable": "h", "all": "a"})
    most = 0 if "s" in given else int(given.get("d", ["999"])[0])

    def sizes(name, depth):
        path = call.path(name)
        info = os.lstat(path)
        total = (info.st_size + 4095) // 4096 * 4096
        if stat.S_ISDIR(info.st_mode):
            for each in sorted(os.listdir(path)):
                total += yield from sizes(f"{name.rstrip('/')}/{each}", depth + 1)
        if depth <= most and (stat.S_ISDIR(info.st_mode) or "a" in given or not depth):
            size = human(total) if "h" in given else total if "b" in given else total >> 20 if "m" in given else total >> 10
            call.out(f"{size}\t{name}\n")
        return total

    for name in names or ["."]:
        yield from sizes(name, 0)


def mktemp(call, args):
    import tempfile

    given, names = options(args, "dqut", "p", {"directory": "d", "tmpdir": "p"})
    form = names[0] if names else "tmp.XXXXXX"
    folder = given.get("p", ["/tmp"])[0] if not names or "t" in given or "p" in given else call.path(os.path.dirname(form) or ".")
    begin, end = re.fullmatch(r"(.*?)X{3,}(.*)", os.path.basename(form)).groups() if "XXX" in form else (form, "")
    if "d" in given:
        call.out(tempfile.mkdtemp(end, begin, folder) + "\n")
    else:
        number, path = tempfile.mkstemp(end, begin, folder)
        os.close(number)
        call.out(path + "\n")


def stat_file(call, args):
    given, names = options(args, "Lt", "cf", {"format": "c", "printf": "c"})
    form = given.get("c", [None])[0]
    for name in names:
        info = os.stat(call.path(name))
        kind = "directory" if stat.S_ISDIR(info.st_mode) else "regular file" if info.st_size else "regular empty file"
        if form is None:
            call.out(f"  File: {name}\n  Size: {info.st_size}\t{kind}\n")
            continue
        facts = {"s": info.st_size, "n": name, "Y": int(info.st_mtime), "F": kind, "a": f"{info.st_mode & 0o777 or 0o644:o}", "i": info.st_ino, "U": "root", "G": "root", "%": "%"}
        call.out(re.sub("%(.)", lambda found: str(facts.get(found[1], found[0])), form) + "\n")


def pip(call, args):
    """`pip`, which lists packages and installs nothing."""
    import importlib.metadata

    found = {}
    for each in importlib.metadata.distributions():
        if name := each.metadata["Name"]:
            found.setdefault(re.sub("[-_.]+", "-", name).lower(), (name, each.version))
    packages = [found[name] for name in sorted(found)]
    asked = [arg for arg in args if arg[:1] != "-"]
    what, names = (asked or [""])[0], asked[1:]
    if what == "list":
        rows = [("Package", "Version"), *packages]
        width, most = (max(len(row[at]) for row in rows) for at in (0, 1))
        rows.insert(1, ("-" * width, "-" * most))
        call.out("".join(f"{name:{width}} {version}\n" for name, version in rows))
    elif what == "freeze":
        call.out("".join(f"{name}=={version}\n" for name, version in packages))
    elif what == "show" and names:
        for name in names:
            known = found.get(re.sub("[-_.]+", "-", name).lower())
            if known is None:
                call.shell.tell(f"WARNING: Package(s) not found: {name}")
                call.status = 1
            else:
                call.out(f"Name: {known[0]}\nVersion: {known[1]}\n")
    elif what == "install":
        missing = [name for name in names if not is_installed(found, name)]
        for name in names:
            if name not in missing:
                call.out(f"Requirement already satisfied: {name}\n")
        if missing or not names or "-r" in args:
            call.shell.tell(f"ERROR: `pip {' '.join(args)}` can't run here: packages are added to the image from outside the sandbox")
            return 1
    elif "--version" in args or "-V" in args:
        call.out(f"pip: packages are added to the image from outside the sandbox (python {sys.version_info[0]}.{sys.version_info[1]})\n")
    else:
        raise Usage(f"`{what}` can't run here; there are list, freeze, show and install")


def is_installed(found, requirement):
    """Whether a requirement is met, which has a name and perhaps one `==` or `>=`."""
    match = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(?:(==|>=)\s*([\d.]+))?", requirement)
    known = match and found.get(re.sub("[-_.]+", "-", match[1]).lower())
    if not known:
        return False
    numbers = lambda version: [int(number) for number in re.findall(r"\d+", version)]
    return not match[2] or (known[1] == match[3] if match[2] == "==" else numbers(known[1]) >= numbers(match[3]))


def timeout(call, args):
    """Runs a command: the time of all is the program's limit."""
    args = list(args)
    while args and args[0][:1] == "-":
        option = args.pop(0)
        if option in ("-s", "-k") and args:
            args.pop(0)
    if len(args) < 2 or not re.fullmatch(r"[\d.]+[smhd]?", args[0]):
        raise Usage("usage: timeout SECONDS COMMAND")
    return (yield from outside(call.shell.fork(), args[1:]))


def wrapper(call, args):
    """`nohup`, `nice` and the like run their command."""
    args = list(args)
    while args and args[0][:1] == "-":
        option = args.pop(0)
        if option in ("-n", "-o", "-e", "-i") and args:
            args.pop(0)
    if not args:
        return 0
    return (yield from outside(call.shell.fork(), args))


def uname(call, args):
    given, _ = options(args, "asnrmopv")
    facts = {"s": "Linux", "n": "hatchery", "r": "0", "m": "wasm32", "p": "unknown", "o": "WASI"}
    asked = [letter for letter in facts if letter != "p"] if "a" in given else [letter for letter in facts if letter in given] or ["s"]
    call.out(" ".join(facts[letter] for letter in asked) + "\n")


def said(text):
    return lambda call, args: call.out(f"{text}\n")


def identity(call, args):
    given, _ = options(args, "ungG")
    call.out(("root" if "n" in given else "0") + "\n" if given else "uid=0(root) gid=0(root) groups=0(root)\n")


def pwd(call, args):
    call.out(f"{call.shell.folder}\n")


COMMANDS = {
    "echo": echo, "printf": printf, "test": test, "[": test, "cat": cat, "ls": ls, "dir": ls, "mkdir": mkdir, "rmdir": rmdir,
    "rm": rm, "unlink": rm, "cp": copy, "mv": move, "ln": link, "touch": touch, "date": date, "sleep": sleep,
    "basename": basename, "dirname": dirname, "realpath": real, "readlink": real, "which": which, "env": env,
    "printenv": printenv, "chmod": chmod, "chown": chmod, "du": disk, "mktemp": mktemp,
    "stat": stat_file, "pip": pip, "pip3": pip, "timeout": timeout, "uname": uname, "hostname": said("hatchery"),
    "whoami": said("root"), "arch": said("wasm32"), "nproc": said("1"), "id": identity,
    **dict.fromkeys(("nohup", "nice", "stdbuf", "time"), wrapper),
    "true": lambda call, args: 0, "false": lambda call, args: 1, "clear": lambda call, args: 0, "sync": lambda call, args: 0,
}
