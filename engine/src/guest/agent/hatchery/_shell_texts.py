"""Commands of the shell for texts: `sort`, `tr`, `diff` and their like."""

import codecs
import difflib
import functools
import os
import re

from hatchery._shell_commands import Usage, decoded, escaped, number_in, options
from hatchery._shell_grep import compiled
from hatchery._shell_words import CLASSES

LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")


def size_in(text):
    """Returns a number with a unit, such as `4k`."""
    units = {"b": 512, "k": 1024, "K": 1024, "m": 1 << 20, "M": 1 << 20}
    return number_in(text[:-1]) * units[text[-1]] if text[-1:] in units else number_in(text)


def old_form(args):
    """Lets `-5` be `-n 5`."""
    return ["-n" + arg[1:] if re.fullmatch(r"-\d+[kbm]?", arg) and not at else arg for at, arg in enumerate(args)]


def head(call, args):
    given, names = options(old_form(args), "qv", "nc", {"lines": "n", "bytes": "c", "quiet": "q", "verbose": "v"})
    text = (given.get("c") or given.get("n") or ["10"])[-1]
    is_rest, count = text[:1] == "-", size_in(text.lstrip("-"))
    is_first = True
    for name, stream in call.sources(names):
        if (len(names) > 1 or "v" in given) and "q" not in given:
            call.out(f"{'' if is_first and not call.status else chr(10)}==> {'standard input' if name == '-' else name} <==\n")
        is_first = False
        if is_rest:
            data = yield from stream.all()
            if "c" in given:
                call.write(data[: max(len(data) - count, 0)])
            else:
                lines = data.splitlines(True)
                call.write(b"".join(lines[: max(len(lines) - count, 0)]))
        elif "c" in given:
            left = count
            while left and (data := (yield from stream.chunk())):
                call.write(data[:left])
                stream.buffer, stream.at = data[left:], 0
                left -= min(left, len(data))
        else:
            for _ in range(count):
                line = yield from stream.line()
                if not line:
                    break
                call.write(line)


def tail(call, args):
    args = [re.sub(r"^\+(\d+)$", r"-n+\1", arg) if not at else arg for at, arg in enumerate(args)]
    given, names = options(old_form(args), "qvfF", "ncs", {"lines": "n", "bytes": "c", "quiet": "q", "follow": "f"})
    text = (given.get("c") or given.get("n") or ["10"])[-1]
    is_from, count = text[:1] == "+", size_in(text.lstrip("+-"))
    is_first = True
    for name, stream in call.sources(names):
        if (len(names) > 1 or "v" in given) and "q" not in given:
            call.out(f"{'' if is_first and not call.status else chr(10)}==> {'standard input' if name == '-' else name} <==\n")
        is_first = False
        data = yield from stream.all()
        if "c" in given:
            call.write(data[max(count - 1, 0) :] if is_from else data[len(data) - min(count, len(data)) :])
            continue
        lines = data.split(b"\n")
        lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        call.write(b"".join(lines[max(count - 1, 0) :] if is_from else lines[len(lines) - min(count, len(lines)) :]))


def wc(call, args):
    given, names = options(args, "lwcmL", "", {"lines": "l", "words": "w", "bytes": "c", "chars": "m", "max-line-length": "L"})
    kinds = [kind for kind in "lwcmL" if kind in given] or list("lwc")
    rows = []
    for name, stream in call.sources(names):
        counts = dict.fromkeys("lwcmL", 0)
        while line := (yield from stream.line()):
            text = decoded(line)
            counts["l"] += line.endswith(b"\n")
            counts["w"] += len(text.split())
            counts["c"] += len(line)
            counts["m"] += len(text)
            counts["L"] = max(counts["L"], len(text.rstrip("\n")))
        rows.append((counts, "" if name == "-" else name))
    if len(names) > 1:
        total = {kind: (max if kind == "L" else sum)(counts[kind] for counts, _ in rows) for kind in "lwcmL"} if rows else dict.fromkeys("lwcmL", 0)
        rows.append((total, "total"))
    is_wide = len(kinds) > 1 or len(names) > 1
    for counts, name in rows:
        numbers = " ".join(f"{counts[kind]:9}" if is_wide else str(counts[kind]) for kind in kinds)
        call.out(f"{numbers}{f' {name}' if name else ''}\n")


def numeric(text):
    found = re.match(r"\s*(-?\d*\.?\d*)", text)[1]
    return float(found[:300]) if re.search(r"\d", found[:300]) else 0.0


def general(text):
    try:
        return float(re.match(r"\s*\S*", text)[0])
    except ValueError:
        return float("-inf")


def sized(text):
    found = re.match(r"\s*(-?\d*\.?\d*)([KMGTPE]?)", text)
    return numeric(found[1]) * 1024 ** " KMGTPE".index(found[2] or " ")


def version(text):
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.findall(r"\d{1,300}|\D+", text)]


MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
KINDS = {
    "n": numeric, "g": general, "h": sized, "V": version,
    "M": lambda text: MONTHS.index(text.strip()[:3].lower()) if text.strip()[:3].lower() in MONTHS else -1,
}


def sort(call, args):
    given, names = options(args, "nrufbdghVMsczi", "ktoST", {
        "numeric-sort": "n", "reverse": "r", "unique": "u", "ignore-case": "f", "key": "k", "field-separator": "t",
        "output": "o", "stable": "s", "human-numeric-sort": "h", "version-sort": "V", "check": "c", "general-numeric-sort": "g",
    })
    separator = given.get("t", [None])[0]
    if separator is not None:
        separator = escaped(separator)[0]
        if len(separator) != 1:
            raise Usage("the separator has to be one character")
    end = "\0" if "z" in given else "\n"
    lines = []
    for _, text in (yield from call.texts(names, 2)):
        found = text.split(end)
        lines += found[:-1] if found[-1] == "" else found
    keys = [key_of(spec, separator, given) for spec in given.get("k", [])]
    plain = key_of("1", None, given, True)
    compare_by = keys or [plain]

    def compare(one, other):
        for key, is_reversed in compare_by:
            left, right = key(one), key(other)
            if left != right:
                return (-1 if left < right else 1) * (-1 if is_reversed else 1)
        return 0

    def compare_last(one, other):
        found = compare(one, other)
        if found or "s" in given or "u" in given:
            return found
        return ((one > other) - (one < other)) * (-1 if "r" in given else 1)

    if "c" in given:
        for one, other in zip(lines, lines[1:]):
            if compare_last(one, other) > 0:
                call.tell(f"disorder: {other}")
                return 1
        return call.status
    lines.sort(key=functools.cmp_to_key(compare_last))
    if "u" in given:
        lines = [line for at, line in enumerate(lines) if not at or compare(lines[at - 1], line)]
    text = "".join(line + end for line in lines)
    if "o" in given:
        stream = call.shell.open(given["o"][0], ">")
        stream.write(text.encode("utf-8", "surrogateescape"))
        stream.close()
    else:
        call.out(text)


def key_of(spec, separator, given, is_whole=False):
    """Returns what a key of `sort` compares, and whether it is reversed."""
    found = re.fullmatch(r"(\d{1,6})(?:\.(\d{1,6}))?([a-zA-Z]*)(?:,(\d{1,6})(?:\.(\d{1,6}))?([a-zA-Z]*))?", spec)
    if not found or not int(found[1]):
        raise Usage(f"invalid key '{spec:.40}'")
    letters = (found[3] + (found[6] or "")) or "".join(letter for letter in "nrfbdghVMi" if letter in given)
    first, offset = int(found[1]) - 1, int(found[2] or 1) - 1
    last, last_offset = (int(found[4]), int(found[5] or 0)) if found[4] else (None, 0)
    kind = next((KINDS[letter] for letter in "nghVM" if letter in letters), None)
    fields = re.compile(r"[ \t]*[^ \t]*")

    def cut(line):
        if is_whole:
            return line
        if separator is not None:
            parts = line.split(separator)
            starts = [0]
            for part in parts:
                starts.append(starts[-1] + len(part) + 1)
            size = len(line)
            start = starts[first] if first < len(parts) else size
            if last is None:
                return line[start + offset :]
            if last_offset:
                stop = starts[last - 1] + last_offset if last <= len(parts) else size
            else:
                stop = starts[last] - 1 if last < len(starts) else size
            return line[start + offset : stop]
        spans = [match.span() for match in fields.finditer(line) if match[0]]
        start = spans[first][0] if first < len(spans) else len(line)
        if "b" in letters or offset:
            start += len(line[start:]) - len(line[start:].lstrip(" \t")) if "b" in letters else 0
        start += offset
        if last is None:
            return line[start:]
        if last_offset and last <= len(spans):
            return line[start : spans[last - 1][0] + last_offset]
        return line[start : spans[last - 1][1] if last <= len(spans) else len(line)]

    def key(line):
        text = cut(line)
        if "b" in letters:
            text = text.lstrip(" \t")
        if "d" in letters:
            text = "".join(sign for sign in text if sign.isalnum() or sign in " \t")
        if "f" in letters:
            text = text.upper()
        return kind(text) if kind else text

    return key, "r" in letters


def uniq(call, args):
    given, names = options(args, "cduiz", "fsw", {"count": "c", "repeated": "d", "unique": "u", "ignore-case": "i", "skip-fields": "f"})
    fields, skipped = number_in(given.get("f", ["0"])[0]), number_in(given.get("s", ["0"])[0])
    most = number_in(given["w"][0]) if "w" in given else None

    def key(text):
        text = re.sub(rf"^(?:\s*\S+){{{min(fields, 1000)}}}", "", text) if fields else text
        text = text[skipped:][:most]
        return text.lower() if "i" in given else text

    sink = call.shell.open(names[1], ">") if len(names) > 1 else None

    def put(text, count):
        if "d" in given and count < 2 or "u" in given and count > 1:
            return
        line = f"{count:7} {text}\n" if "c" in given else f"{text}\n"
        sink.write(line.encode("utf-8", "surrogateescape")) if sink else call.out(line)

    last, count = None, 0
    for _, stream in call.sources(names[:1]):
        while line := (yield from stream.line()):
            text = decoded(line).removesuffix("\n")
            if count and key(text) == key(last):
                count += 1
                continue
            if count:
                put(last, count)
            last, count = text, 1
    if count:
        put(last, count)
    if sink:
        sink.close()


def ranges_of(text):
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{0,9})(-?)(\d{0,9})", part)
        if not match or not part.strip("-") or match[1] == "0" or match[3] and match[1] and int(match[3]) < int(match[1]):
            raise Usage(f"invalid range '{part:.40}'")
        first = int(match[1] or 1)
        found.append((first, int(match[3]) if match[3] else 1 << 30 if match[2] else first))
    return sorted(found)


def cut(call, args):
    given, names = options(args, "sn", "dfcbO", {"delimiter": "d", "fields": "f", "characters": "c", "bytes": "b", "only-delimited": "s", "complement": "", "output-delimiter": "O"})
    kind = next((kind for kind in "fcb" if kind in given), None)
    if kind is None:
        raise Usage("give a list of fields, characters or bytes")
    ranges, separator = ranges_of(given[kind][0]), given.get("d", ["\t"])[0]
    joint = given.get("O", [separator])[0]
    if kind == "f" and len(separator) != 1:
        raise Usage("the delimiter has to be one character")
    is_chosen = lambda number: any(first <= number <= last for first, last in ranges)
    for _, stream in call.sources(names):
        while line := (yield from stream.line()):
            text = decoded(line).removesuffix("\n")
            if kind != "f":
                items = text if kind == "c" else line.removesuffix(b"\n")
                merged, reached = [], 0
                for first, last in ranges:
                    first = max(first, reached + 1)
                    if first <= last:
                        merged.append(items[first - 1 : last])
                        reached = last
                text = "".join(merged) if kind == "c" else decoded(b"".join(merged))
            elif separator in text:
                text = joint.join(piece for at, piece in enumerate(text.split(separator)) if is_chosen(at + 1))
            elif "s" in given:
                continue
            call.out(f"{text}\n")


def set_of(text):
    """Returns the characters of a set of `tr`."""
    text = re.sub(r"\[:(\w+):\]", lambda match: members(match[1]), text)
    text = re.sub(r"\\([0-7]{1,3}|.)", lambda match: {"n": "\n", "t": "\t", "r": "\r", "\\": "\\\\", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}.get(match[1]) or (chr(int(match[1], 8)) if match[1].isdigit() and match[1][0] < "8" else "\\" + match[1]), text, flags=re.S)
    found, at = [], 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            found.append(text[at + 1])
            at += 2
            continue
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            first, last = ord(text[at]), ord(text[at + 2])
            if last < first:
                raise Usage(f"range-endpoints of '{text[at : at + 3]}' are in reverse order")
            found += map(chr, range(first, min(last, first + 70_000) + 1))
            at += 3
        else:
            found.append(text[at])
            at += 1
    return found


def members(name):
    if name not in CLASSES:
        raise Usage(f"invalid class '{name}'")
    fits = re.compile(f"[{CLASSES[name]}]").match
    return "".join("\\" + sign if sign in "\\-" else sign for sign in map(chr, range(128)) if fits(sign))


def tr(call, args):
    given, sets = options(args, "dscCt", "", {"delete": "d", "squeeze-repeats": "s", "complement": "c"})
    if not sets or len(sets) < 2 and not {"d", "s"} & given.keys():
        raise Usage("missing operand")
    is_complement = bool({"c", "C"} & given.keys())
    first = set_of(sets[0])
    second = set_of(sets[1]) if len(sets) > 1 else []
    if not second and len(sets) > 1 and "d" not in given:
        raise Usage("the second set must not be empty")
    chosen = set(first)
    is_first = (lambda sign: sign not in chosen) if is_complement else chosen.__contains__
    if not is_complement and second:
        padded = second + [second[-1]] * (len(first) - len(second))
        table = {}
        for one, other in zip(first, padded):
            table[one] = other
    squeezed = set(second) if second else None
    before = None
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    while data := (yield from call.stdin.chunk()):
        found = []
        for sign in decoder.decode(data):
            if "d" in given:
                if is_first(sign):
                    continue
            elif second:
                if is_complement:
                    sign = second[-1] if is_first(sign) else sign
                else:
                    sign = table.get(sign, sign)
            if "s" in given and sign == before and (sign in squeezed if squeezed is not None else is_first(sign)):
                continue
            before = sign
            found.append(sign)
        call.out("".join(found))
    call.out(decoder.decode(b"", True))


def tee(call, args):
    given, names = options(args, "ai", "", {"append": "a"})
    streams = []
    for name in names:
        try:
            streams.append(call.shell.open(name, ">>" if "a" in given else ">"))
        except OSError as error:
            call.fail(f"{name}: {os.strerror(error.errno)}")
    try:
        while data := (yield from call.stdin.chunk()):
            call.write(data)
            for stream in streams:
                stream.write(data)
    finally:
        for stream in streams:
            if stream not in call.shell.streams.values():
                stream.close()


def seq(call, args):
    given = {}
    args = list(args)
    while args and re.match(r"-[wsf]|--", args[0]):
        option = args.pop(0)
        if option in ("-w", "--equal-width"):
            given["w"] = True
        elif option[:2] in ("-s", "-f"):
            given[option[1]] = option[2:] or (args.pop(0) if args else "")
    try:
        numbers = [float(arg) if re.search(r"[.eE]", arg) else int(arg) for arg in args]
    except ValueError:
        raise Usage("invalid number") from None
    if not 1 <= len(numbers) <= 3 or any(len(arg) > 300 for arg in args):
        raise Usage("usage: seq [FIRST [STEP]] LAST")
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    last = numbers[-1]
    if not step:
        raise Usage("the step must not be 0")
    places = max((len(arg.partition(".")[2]) for arg in args[:2]), default=0) if any(isinstance(number, float) for number in numbers) else 0
    show = (lambda value: f"{value:.{places}f}") if places or isinstance(first, float) or isinstance(step, float) else lambda value: str(int(value))
    width = max(len(show(first)), len(show(last))) if "w" in given else 0
    joint, at, lines = escaped(given.get("s", "\n"))[0], 0, []
    while (value := first + at * step) <= last if step > 0 else first + at * step >= last:
        value = first + at * step
        text = given["f"] % value if "f" in given and FORM.fullmatch(given["f"]) else show(value).zfill(width)
        lines.append(text if not at else joint + text)
        at += 1
        if len(lines) == 1000:
            call.out("".join(lines))
            lines = []
            yield
    call.out("".join(lines) + "\n" * bool(at))


FORM = re.compile(r"[^%]*%0?\d{0,4}(\.\d{1,3})?[efg][^%]*")


def yes(call, args):
    text = (" ".join(args) or "y") + "\n"
    while True:
        call.out(text * 100)
        yield


def by_line(change):
    """Returns a command that changes each line."""

    def run(call, args):
        given, names = options(args, "", "")
        for _, stream in call.sources(names):
            while line := (yield from stream.line()):
                call.out(change(decoded(line).removesuffix("\n")) + "\n")

    return run


def tac(call, args):
    for _, text in (yield from call.texts(args)):
        call.out("".join(reversed(LINE.findall(text))))


def nl(call, args):
    given, names = options(args, "p", "bwsvi", {"body-numbering": "b"})
    width, separator, number = number_in(given.get("w", ["6"])[0], 1000), given.get("s", ["\t"])[0], 0
    for _, stream in call.sources(names):
        while line := (yield from stream.line()):
            text = decoded(line).removesuffix("\n")
            if text or given.get("b") == ["a"]:
                number += 1
                call.out(f"{number:{width}}{separator}{text}\n")
            else:
                call.out(" " * (width + len(separator)) + "\n")


def fold(call, args):
    given, names = options(args, "sb", "w", {"width": "w", "spaces": "s"})
    width = number_in(given.get("w", ["80"])[0])
    if not width:
        raise Usage("invalid number '0'")
    for _, stream in call.sources(names):
        while line := (yield from stream.line()):
            text = decoded(line)
            end = "\n" if text.endswith("\n") else ""
            text = text.removesuffix("\n")
            while len(text) > width:
                at = width
                if "s" in given and (blank := text.rfind(" ", 0, width)) >= 0:
                    at = blank + 1
                call.out(text[:at] + "\n")
                text = text[at:]
            call.out(text + end)


def paste(call, args):
    given, names = options(args, "s", "d", {"delimiters": "d", "serial": "s"})
    joints = re.findall(r"\\.|.", given.get("d", ["\t"])[0], re.S) or [""]
    joints = [{"\\n": "\n", "\\t": "\t", "\\0": "", "\\\\": "\\"}.get(one, one) for one in joints]
    texts = [[line for line in text.split("\n")][: -1 if text.endswith("\n") or not text else None] for _, text in (yield from call.texts(names))]
    if names.count("-") > 1 and set(names) == {"-"}:
        lines, count = texts[0], len(names)
        texts = [lines[at::count] for at in range(count)]
    if "s" in given:
        for lines in texts:
            call.out("".join(line + (joints[at % len(joints)] if at + 1 < len(lines) else "") for at, line in enumerate(lines)) + "\n")
        return
    for at in range(max(map(len, texts), default=0)):
        row = [lines[at] if at < len(lines) else "" for lines in texts]
        call.out("".join(piece + (joints[place % len(joints)] if place + 1 < len(row) else "") for place, piece in enumerate(row)) + "\n")


def comm(call, args):
    given, names = options(args, "123")
    if len(names) != 2:
        raise Usage("usage: comm FILE FILE")
    texts = [text.split("\n") for _, text in (yield from call.texts(names))]
    if len(texts) < 2:
        return 1
    one, other = (lines[:-1] if lines[-1] == "" else lines for lines in texts)
    left = right = 0
    while left < len(one) or right < len(other):
        if right >= len(other) or left < len(one) and one[left] < other[right]:
            column, text, left = 1, one[left], left + 1
        elif left >= len(one) or other[right] < one[left]:
            column, text, right = 2, other[right], right + 1
        else:
            column, text, left, right = 3, one[left], left + 1, right + 1
        if str(column) not in given:
            call.out("\t" * sum(str(number) not in given for number in range(1, column)) + text + "\n")


def compare(call, args):
    given, names = options(args, "sl")
    if len(names) < 2:
        raise Usage("usage: cmp FILE FILE")
    data = []
    for _, stream in call.sources(names, 2):
        data.append((yield from stream.all()))
    if call.status:
        return 2
    if data[0] == data[1]:
        return 0
    size = min(map(len, data))
    at = next((at for at in range(size) if data[0][at] != data[1][at]), None)
    if "s" not in given:
        if at is None:
            call.tell(f"EOF on {names[0 if len(data[0]) < len(data[1]) else 1]}")
        else:
            line = data[0].count(b"\n", 0, at) + 1
            call.out(f"{names[0]} {names[1]} differ: char {at + 1}, line {line}\n")
    return 1


def diff(call, args):
    given, names = options(args, "uqrNbwBaits", "ULx", {"unified": "u", "brief": "q", "recursive": "r", "new-file": "N", "ignore-all-space": "w", "ignore-space-change": "b", "label": "L", "color": ""})
    if len(names) != 2:
        raise Usage("usage: diff FILE FILE")
    context = number_in(given.get("U", ["3"])[0])
    is_folder = [os.path.isdir(call.path(name)) for name in names]
    if all(is_folder):
        return (yield from diff_folders(call, given, names, context))
    if any(is_folder):
        at = is_folder.index(True)
        names[at] = os.path.join(names[at], os.path.basename(names[1 - at]))
    return (yield from diff_files(call, given, names, given.get("L", []), context))


def diff_folders(call, given, names, context):
    one, other = (set(os.listdir(call.path(name))) for name in names)
    status = 0
    for each in sorted(one | other):
        paths = [os.path.join(name, each) for name in names]
        if each not in one or each not in other:
            if "N" not in given:
                call.out(f"Only in {names[0 if each in one else 1]}: {each}\n")
                status = 1
                continue
        kinds = [os.path.isdir(call.path(path)) for path in paths]
        if all(kinds):
            if "r" not in given:
                call.out(f"Common subdirectories: {paths[0]} and {paths[1]}\n")
                continue
            ended = yield from diff_folders(call, given, paths, context)
        else:
            ended = yield from diff_files(call, given, paths, [], context)
        status = max(status, ended)
    return status


def diff_files(call, given, names, labels, context):
    texts = []
    for name in names:
        if "N" in given and name != "-" and not os.path.exists(call.path(name)):
            texts.append("")
            continue
        found = yield from call.texts([name], 2)
        if not found:
            return 2
        texts.append(found[0][1])
    lines = [LINE.findall(text) for text in texts]

    def key(line):
        if "w" in given:
            line = re.sub(r"\s+", "", line)
        elif "b" in given:
            line = re.sub(r"\s+", " ", line).rstrip()
        return line.lower() if "i" in given else line

    keys = [[key(line) for line in some] for some in lines]
    if keys[0] == keys[1]:
        if "s" in given:
            call.out(f"Files {names[0]} and {names[1]} are identical\n")
        return 0
    if "q" in given:
        call.out(f"Files {names[0]} and {names[1]} differ\n")
        return 1
    labels = labels + names[len(labels) :]
    call.out(f"--- {labels[0]}\n+++ {labels[1]}\n")
    for group in difflib.SequenceMatcher(None, *keys, autojunk=max(map(len, keys)) > 5000).get_grouped_opcodes(context):
        spans = [(group[0][start], group[-1][end]) for start, end in ((1, 2), (3, 4))]
        shown = [f"{first + (first != last)}" + (f",{last - first}" if last - first != 1 else "") for first, last in spans]
        call.out(f"@@ -{shown[0]} +{shown[1]} @@\n")
        for kind, one, one_end, other, other_end in group:
            rows = [(" ", lines[0][one:one_end])] if kind == "equal" else [("-", lines[0][one:one_end]), ("+", lines[1][other:other_end])]
            for mark, some in rows:
                for line in some:
                    call.out(mark + line + ("" if line.endswith("\n") else "\n\\ No newline at end of file\n"))
    return 1


def expr(call, args):
    words = list(args)
    if words[:1] == ["--"]:
        del words[0]
    try:
        value = expr_level(words, 0)
        if words:
            raise Usage("syntax error")
    except IndexError:
        call.tell("syntax error")
        return 2
    except (Usage, ValueError, ZeroDivisionError) as error:
        call.tell(str(error) or "syntax error")
        return 2
    call.out(f"{value}\n")
    return int(value in ("", 0, "0") or re.fullmatch(r"-?0+", str(value)) is not None)


EXPR = (("|",), ("&",), ("=", "==", "!=", "<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"), (":",))


def expr_level(words, level):
    if level == len(EXPR):
        return expr_one(words)
    found = expr_level(words, level + 1)
    while words and words[0] in EXPR[level]:
        sign = words.pop(0)
        other = expr_level(words, level + 1)
        is_true = lambda value: str(value) not in ("", "0")
        if sign == "|":
            found = found if is_true(found) else other
        elif sign == "&":
            found = found if is_true(found) and is_true(other) else 0
        elif sign == ":":
            match = compiled(str(other), False).match(str(found))
            has_group = match is not None and match.re.groups or r"\(" in str(other)
            found = (match[1] or "" if match else "") if has_group else len(match[0]) if match else 0
        elif level == 2:
            pair = [found, other]
            if all(re.fullmatch(r"-?\d+", str(one)) for one in pair):
                pair = [int(str(one)[:300]) for one in pair]
            else:
                pair = [str(one) for one in pair]
            one, other = pair
            found = int({"=": one == other, "==": one == other, "!=": one != other, "<": one < other, ">": one > other, "<=": one <= other, ">=": one >= other}[sign])
        else:
            if not all(re.fullmatch(r"-?\d{1,300}", str(one)) for one in (found, other)):
                raise ValueError("non-integer argument")
            one, other = int(found), int(other)
            if sign in "/%" and not other:
                raise ZeroDivisionError("division by zero")
            whole = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1) if sign in "/%" else 0
            found = {"+": one + other, "-": one - other, "*": one * other, "/": whole, "%": one - whole * other}[sign]
    return found


def expr_one(words):
    word = words.pop(0)
    if word == "(":
        found = expr_level(words, 0)
        if words.pop(0) != ")":
            raise Usage("syntax error")
        return found
    if word == "length":
        return len(words.pop(0))
    if word == "substr":
        text, start, size = words.pop(0), int(words.pop(0)), int(words.pop(0))
        return text[max(start - 1, 0) : max(start - 1 + size, 0)]
    if word == "index":
        text, signs = words.pop(0), words.pop(0)
        return next((at + 1 for at, sign in enumerate(text) if sign in signs), 0)
    if word == "match":
        return expr_level([words.pop(0), ":", words.pop(0)], 5)
    return word


def digest(name):
    def run(call, args):
        import hashlib

        given, names = options(args, "bt", "")
        for shown, stream in call.sources(names):
            found = hashlib.new(name)
            while data := (yield from stream.chunk()):
                found.update(data)
            call.out(f"{found.hexdigest()}  {shown}\n")

    return run


def base64(call, args):
    import base64
    import binascii

    given, names = options(args, "di", "w", {"decode": "d", "wrap": "w"})
    width = number_in(given.get("w", ["76"])[0])
    for _, stream in call.sources(names[:1]):
        data = yield from stream.all()
        if "d" in given:
            try:
                call.write(base64.b64decode(data))
            except binascii.Error:
                raise Usage("invalid input") from None
            continue
        text = base64.b64encode(data).decode()
        lines = [text[at : at + width] for at in range(0, len(text), width)] if width else [text]
        call.out("".join(f"{line}\n" for line in lines) if width else text)


def column(call, args):
    given, names = options(args, "t", "s")
    rows = []
    for _, text in (yield from call.texts(names)):
        rows += [line.split(given["s"][0]) if "s" in given else line.split() for line in text.split("\n") if line.strip()]
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows), default=0))]
    for row in rows:
        cells = [cell.ljust(widths[at]) if at + 1 < len(row) else cell for at, cell in enumerate(row)]
        call.out("  ".join(cells) + "\n" if "t" in given else " ".join(row) + "\n")


COMMANDS = {
    "head": head, "tail": tail, "wc": wc, "sort": sort, "uniq": uniq,
    "cut": cut, "tr": tr, "tee": tee, "seq": seq, "yes": yes, "rev": by_line(lambda text: text[::-1]), "tac": tac,
    "nl": nl, "fold": fold, "paste": paste, "comm": comm, "cmp": compare, "diff": diff, "expr": expr,
    "base64": base64, "column": column, "md5sum": digest("md5"), "sha1sum": digest("sha1"),
    "sha256sum": digest("sha256"), "sha512sum": digest("sha512"),
}
