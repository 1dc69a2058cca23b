"""`find` and `xargs` of the shell, which run other commands for files."""

import fnmatch
import errno
import os
import re
import stat
import time

from hatchery._shell_commands import Usage, escaped, outside
from hatchery._shell_streams import Nothing


def find(call, args):
    args, starts = list(args), []
    while args and args[0] in ("-L", "-H", "-P"):
        args.pop(0)
    while args and args[0][:1] not in ("-", "!", "(") :
        starts.append(args.pop(0))
    search = Search(call, args)
    expression = search.either()
    if search.words:
        raise Usage(f"unrecognized: {search.words[0]}")
    if not search.acts:
        expression = all_of([expression, search.printed])
    for start in starts or ["."]:
        if not os.path.lexists(call.path(start)):
            call.fail(f"{start}: {os.strerror(errno.ENOENT)}")
            continue
        yield from search.walk(start, 0, expression)
    for words, names in search.batches:
        if names:
            at = words.index("{}") if "{}" in words else len(words)
            ended = yield from outside(call.shell.fork(), words[:at] + names + words[at + 1 :])
            call.status = call.status or int(bool(ended))


def all_of(parts):
    def check(name, info, depth):
        for part in parts:
            found = part(name, info, depth)
            if not isinstance(found, (bool, int)):
                found = yield from found
            if not found:
                return False
        return True

    return check


class Search:
    """The expression of `find`."""

    def __init__(self, call, words):
        self.call, self.words, self.acts, self.batches = call, words, False, []
        self.least, self.most, self.is_pruned, self.is_deep = 0, 1 << 30, False, "-delete" in words or "-depth" in words

    def walk(self, name, depth, expression):
        self.is_pruned = False
        path = self.call.path(name)
        try:
            info = os.lstat(path)
        except OSError:
            return
        fits = self.least <= depth <= self.most
        if fits and not self.is_deep:
            yield from expression(name, info, depth)
        is_folder = stat.S_ISDIR(info.st_mode)
        if is_folder and not self.is_pruned and depth < self.most:
            try:
                inner = sorted(os.listdir(path))
            except OSError as error:
                self.call.fail(f"{name}: {os.strerror(error.errno)}")
                inner = []
            for each in inner:
                yield from self.walk(f"{name.rstrip('/')}/{each}" if name != "/" else f"/{each}", depth + 1, expression)
        yield
        if fits and self.is_deep:
            yield from expression(name, info, depth)

    def next(self):
        if not self.words:
            raise Usage("an argument is missing")
        return self.words.pop(0)

    def either(self):
        parts = [self.both()]
        while self.words[:1] in (["-o"], ["-or"]):
            self.next()
            parts.append(self.both())

        def check(name, info, depth):
            for part in parts:
                if (yield from part(name, info, depth)):
                    return True
            return False

        return check if len(parts) > 1 else parts[0]

    def both(self):
        parts = []
        while self.words and self.words[0] not in ("-o", "-or", ")"):
            if self.words[0] in ("-a", "-and"):
                self.next()
                continue
            parts.append(self.one())
        return all_of(parts)

    def one(self):
        word = self.next()
        if word in ("!", "-not"):
            inner = all_of([self.one()])

            def negated(name, info, depth):
                return not (yield from inner(name, info, depth))

            return negated
        if word == "(":
            inner = self.either()
            if self.next() != ")":
                raise Usage("`)` is missing")
            return inner
        test = getattr(self, "do_" + word[1:].replace("0", "_0"), None) if word[:1] == "-" else None
        if test is None:
            raise Usage(f"unrecognized: {word}")
        return test()

    def do_name(self, flags=0):
        fits = re.compile(fnmatch.translate(self.next()), flags).match
        return lambda name, info, depth: bool(fits(os.path.basename(name.rstrip("/")) or name))

    def do_iname(self):
        return self.do_name(re.I)

    def do_path(self, flags=0):
        fits = re.compile(fnmatch.translate(self.next()), flags).match
        return lambda name, info, depth: bool(fits(name))

    do_wholename = do_path

    def do_ipath(self):
        return self.do_path(re.I)

    def do_regex(self):
        from hatchery._shell_grep import regex_of

        fits = re.compile(regex_of(self.next(), False)).fullmatch
        return lambda name, info, depth: bool(fits(name))

    def do_type(self):
        kinds = self.next().split(",")
        tests = {"f": stat.S_ISREG, "d": stat.S_ISDIR, "l": stat.S_ISLNK, "p": stat.S_ISFIFO, "s": stat.S_ISSOCK}
        if not set(kinds) <= tests.keys():
            raise Usage(f"invalid argument '{','.join(kinds)}' to '-type'")
        return lambda name, info, depth: any(tests[kind](info.st_mode) for kind in kinds)

    def compared(self, text, unit):
        """Returns a test for `N`, `+N` or `-N`."""
        if not re.fullmatch(r"[-+]?\d{1,12}", text):
            raise Usage(f"invalid number '{text}'")
        number = int(text.lstrip("+-"))
        return {"+": lambda value: unit(value) > number, "-": lambda value: unit(value) < number}.get(text[0], lambda value: unit(value) == number)

    def do_size(self):
        text = self.next()
        sizes = {"c": 1, "w": 2, "b": 512, "k": 1024, "M": 1 << 20, "G": 1 << 30}
        size = sizes.get(text[-1:], 512)
        test = self.compared(text[:-1] if text[-1:] in sizes else text, lambda value: -(-value // size))
        return lambda name, info, depth: test(info.st_size)

    def do_mtime(self, seconds=86400):
        now = time.time()
        test = self.compared(self.next(), lambda value: (now - value) // seconds)
        return lambda name, info, depth: test(info.st_mtime)

    def do_mmin(self):
        return self.do_mtime(60)

    def do_newer(self):
        time = os.stat(self.call.path(self.next())).st_mtime_ns
        return lambda name, info, depth: info.st_mtime_ns > time

    def do_empty(self):
        path = self.call.path
        return lambda name, info, depth: not os.listdir(path(name)) if stat.S_ISDIR(info.st_mode) else stat.S_ISREG(info.st_mode) and not info.st_size

    def do_true(self):
        return lambda name, info, depth: True

    do_depth = do_noleaf = do_xdev = do_mount = do_readable = do_true

    def do_false(self):
        return lambda name, info, depth: False

    def do_maxdepth(self):
        self.most = self.depth_of(self.next())
        return self.do_true()

    def do_mindepth(self):
        self.least = self.depth_of(self.next())
        return self.do_true()

    def depth_of(self, text):
        if not re.fullmatch(r"\d{1,9}", text):
            raise Usage(f"invalid number '{text}'")
        return int(text)

    def do_prune(self):
        def prune(name, info, depth):
            self.is_pruned = True
            return True

        return prune

    def do_quit(self):
        raise Usage("unrecognized: -quit")

    def printed(self, name, info, depth):
        self.call.out(f"{name}\n")
        return True

    def do_print(self):
        self.acts = True
        return self.printed

    def do_print_0(self):
        self.acts = True

        def print0(name, info, depth):
            self.call.out(f"{name}\0")
            return True

        return print0

    def do_delete(self):
        self.acts = True

        def delete(name, info, depth):
            if name == ".":
                return True
            try:
                (os.rmdir if stat.S_ISDIR(info.st_mode) else os.unlink)(self.call.path(name))
            except OSError as error:
                self.call.fail(f"{name}: {os.strerror(error.errno)}")
                return False
            return True

        return delete

    def do_exec(self):
        self.acts, words = True, []
        while (word := self.next()) != ";":
            if word == "+" and words[-1:] == ["{}"]:
                batch = words, []
                self.batches.append(batch)
                return lambda name, info, depth: batch[1].append(name) or True
            words.append(word)
        if not words:
            raise Usage("an argument of -exec is missing")

        def run(name, info, depth):
            ran = [word.replace("{}", name) for word in words]
            return not (yield from outside(self.call.shell.fork(), ran))

        return run

    do_execdir = do_exec


def xargs(call, args):
    args, given = list(args), {}
    while args and args[0][:1] == "-" and len(args[0]) > 1:
        option = args.pop(0)
        letter, value = option[1], option[2:]
        if option == "--":
            break
        if letter in "nILPsdaE":
            given[letter] = value or (args.pop(0) if args else "")
        elif letter == "i":
            given["I"] = value or "{}"
        elif option in ("--null", "--no-run-if-empty"):
            given["0" if option == "--null" else "r"] = True
        else:
            for letter in option[1:]:
                if letter not in "0rtpx":
                    raise Usage(f"invalid option -- '{letter}'")
                given[letter] = True
    words = args or ["echo"]
    text = (yield from call.stdin.all()).decode("utf-8", "surrogateescape")
    if "0" in given:
        items = text.split("\0")
    elif "d" in given:
        items = text.removesuffix("\n").split(escaped(given["d"])[0] or "\n")
    elif "I" in given or "L" in given:
        items = [line.lstrip(" \t") for line in text.split("\n")]
    else:
        items = split_words(text)
    items = [item for item in items if item or "0" not in given and "d" not in given and "I" not in given and "L" not in given]
    count = len(items) or 1
    for letter in ("n", "L"):
        if letter in given:
            if not re.fullmatch(r"[1-9]\d{0,6}", given[letter]):
                raise Usage(f"invalid number '{given[letter]}'")
            count = int(given[letter])
    if "I" in given:
        count = 1
    if not items and ("r" in given or "I" in given):
        return 0
    status = 0
    for at in range(0, max(len(items), 1), count):
        some = items[at : at + count]
        if "I" in given:
            ran = [word.replace(given["I"], some[0]) for word in words]
        else:
            ran = words + some
        if "t" in given:
            call.shell.tell(" ".join(ran))
        shell = call.shell.fork()
        shell.streams[0] = Nothing()
        ended = yield from outside(shell, ran)
        if ended in (126, 127):
            return ended
        if ended == 255:
            call.tell(f"{ran[0]}: exited with status 255; aborting")
            return 124
        if ended:
            status = 123
        yield
    return status


def split_words(text):
    """Returns words between blanks; quotes and backslashes keep blanks, as for `xargs`."""
    words, word = [], None
    at = 0
    while at < len(text):
        sign = text[at]
        at += 1
        if sign in " \t\n":
            if word is not None:
                words.append(word)
            word = None
        elif sign in "'\"":
            end = text.find(sign, at)
            if end < 0 or "\n" in text[at:end]:
                raise Usage(f"unmatched {'single' if sign == chr(39) else 'double'} quote")
            word = (word or "") + text[at:end]
            at = end + 1
        else:
            if sign == "\\" and at < len(text):
                sign = text[at]
                at += 1
            word = (word or "") + sign
    return words if word is None else [*words, word]


COMMANDS = {"find": find, "xargs": xargs}
