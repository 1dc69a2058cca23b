"""`tar`, `gzip`, `zip` and their like, and commands that show bytes and folders."""

import gzip as gzips
import io
import os
import random
import re
import shutil
import tarfile
import zipfile
import zlib

import hatchery
from hatchery._shell_commands import Usage, human, number_in, options
from hatchery._shell_texts import size_in

PACKED = {".gz": "", ".tgz": ".tar"}
# How files begin, and what `file` says of them.
KINDS = (
    (b"\x89PNG\r\n\x1a\n", "PNG image data"), (b"\xff\xd8\xff", "JPEG image data"), (b"GIF8", "GIF image data"), (b"%PDF-", "PDF document"),
    (b"\x1f\x8b", "gzip compressed data"), (b"PK\x03\x04", "Zip archive data"), (b"BZh", "bzip2 compressed data"),
    (b"\xfd7zXZ\0", "XZ compressed data"), (b"\x7fELF", "ELF"), (b"SQLite format 3\0", "SQLite 3.x database"),
    (b"\0asm", "WebAssembly (wasm) binary module"), (b"PAR1", "Apache Parquet"),
)


def tar(call, args):
    if args and args[0][:1] != "-":
        args = ["-" + args[0], *args[1:]]
    given, names = options(args, "ctxzvjJaOkpmhP", "fC!=T", {
        "create": "c", "list": "t", "extract": "x", "get": "x", "gzip": "z", "verbose": "v", "file": "f", "directory": "C", "exclude": "!",
        "strip-components": "=", "bzip2": "j", "xz": "J", "auto-compress": "a", "to-stdout": "O", "files-from": "T",
    })
    folder = call.path(given.get("C", ["."])[-1])
    if not os.path.isdir(folder):
        raise Usage(f"can't change directory to '{given['C'][-1]}': No such file or directory")
    name = given.get("f", ["-"])[-1]
    kind = next((kind for letter, kind in (("z", "gz"), ("j", "bz2"), ("J", "xz")) if letter in given), "")
    actions = [letter for letter in "ctx" if letter in given]
    if len(actions) != 1:
        raise Usage("give one of the options c, t and x")
    shown = lambda member: member.name + "/" * member.isdir()
    excluded = [re.compile(glob(pattern)) for pattern in given.get("!", [])]
    is_kept = lambda name: not any(one.fullmatch(name) or one.fullmatch(name.rpartition("/")[2]) for one in excluded)
    if actions == ["c"]:
        for each in given.get("T", []):
            names += (yield from call.texts([each]))[0][1].splitlines()
        if not names:
            raise Usage("empty archive")
        if "a" in given and not kind:
            kind = {".gz": "gz", ".tgz": "gz", ".bz2": "bz2", ".xz": "xz"}.get(os.path.splitext(name)[1], "")
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode=f"w:{kind}", format=tarfile.GNU_FORMAT) as archive:

            def added(member):
                if not is_kept(member.name):
                    return None
                if "v" in given:
                    (call.out if name != "-" else call.shell.tell)(shown(member) + "\n" * (name != "-"))
                return member

            for each in names:
                try:
                    archive.add(os.path.join(folder, each), each.lstrip("/") or "/", filter=added)
                except OSError as error:
                    call.fail(f"{each}: {os.strerror(error.errno)}")
        return write_to(call, name, target.getvalue())
    data = yield from contents(call, name)
    strip = number_in(given.get("=", ["0"])[-1])
    with opened(lambda: tarfile.open(fileobj=io.BytesIO(data))) as archive:
        wanted = {each.rstrip("/") for each in names}
        found = set()
        for member in archive:
            matching = {each for each in wanted if member.name == each or member.name.startswith(each + "/")}
            found |= matching
            if wanted and not matching or not is_kept(member.name):
                continue
            if "t" in given:
                moment = f"{member.uname or member.uid}/{member.gname or member.gid} {member.size:9} " if "v" in given else ""
                call.out(moment + shown(member) + "\n")
                continue
            if "v" in given:
                call.out(shown(member) + "\n")
            if "O" in given:
                call.write(archive.extractfile(member).read() if member.isfile() else b"")
                continue
            parts = member.name.split("/")[strip:]
            if parts and any(parts):
                member = member.replace(name="/".join(parts), deep=False)
                try:
                    archive.extract(member, folder, filter="data")
                except tarfile.FilterError as error:
                    call.fail(str(error))
    for each in sorted(wanted - found):
        call.fail(f"{each}: not found in archive")


def glob(pattern):
    import fnmatch

    return fnmatch.translate(pattern)


def opened(open):
    try:
        return open()
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise Usage(f"it is no archive: {error}") from None


def contents(call, name):
    for _, stream in call.sources([name]):
        return (yield from stream.all())
    raise Usage("nothing can be read")


def write_to(call, name, data):
    if name == "-":
        return call.write(data)
    stream = call.shell.open(name, ">")
    try:
        stream.write(data)
    finally:
        stream.close()


def gzip(call, args):
    given, names = options(args, "cdfkqvtn123456789", "", {"stdout": "c", "decompress": "d", "keep": "k", "force": "f", "best": "9", "fast": "1"})
    unpacks = "d" in given or "t" in given or call.name in ("gunzip", "zcat")
    is_shown = "c" in given or call.name == "zcat"
    level = next((int(letter) for letter in given if letter.isdecimal()), 6)
    for name in names or ["-"]:
        root, ending = os.path.splitext(name)
        if unpacks and name != "-" and not is_shown and ending not in PACKED:
            call.fail(f"{name}: unknown suffix")
            continue
        target = root + PACKED.get(ending, "") if unpacks else name + ".gz"
        if name != "-" and not is_shown and "f" not in given and os.path.exists(call.path(target)):
            call.fail(f"can't open '{target}': File exists")
            continue
        before, call.status = call.status, 0
        for _, stream in call.sources([name]):
            data = yield from stream.all()
            try:
                data = gzips.decompress(data) if unpacks else gzips.compress(data, level, mtime=0)
            except (OSError, EOFError, zlib.error):
                call.fail("invalid magic" if name == "-" else f"{name}: invalid magic")
        if not call.status and "t" not in given:
            is_file = name != "-" and not is_shown
            write_to(call, target if is_file else "-", data)
            if is_file and "k" not in given:
                os.unlink(call.path(name))
        call.status = max(before, call.status)


def unzip(call, args):
    given, names = options(args, "lonqpjv", "dx")
    if not names:
        raise Usage("usage: unzip [-lopq] [-d FOLDER] FILE [NAME]…")
    name = names.pop(0)
    if not os.path.exists(call.path(name)) and os.path.exists(call.path(name + ".zip")):
        name += ".zip"
    folder = call.path(given.get("d", ["."])[-1])
    wanted, excluded = ([re.compile(glob(pattern)) for pattern in patterns] for patterns in (names, given.get("x", [])))
    data = yield from contents(call, name)
    with opened(lambda: zipfile.ZipFile(io.BytesIO(data))) as archive:
        members = [one for one in archive.infolist() if not wanted or any(each.fullmatch(one.filename) for each in wanted)]
        members = [one for one in members if not any(each.fullmatch(one.filename) for each in excluded)]
        if "p" not in given and "q" not in given:
            call.out(f"Archive:  {name}\n")
        if "l" in given:
            call.out("  Length      Date    Time    Name\n---------  ---------- -----   ----\n")
            for one in members:
                moment = "{1:02}-{2:02}-{0:04} {3:02}:{4:02}".format(*one.date_time)
                call.out(f"{one.file_size:9}  {moment}   {one.filename}\n")
            total, count = sum(one.file_size for one in members), f"{len(members)} files"
            return call.out(f"---------                     -------\n{total:9}                     {count}\n")
        for one in members:
            if "p" in given:
                call.write(archive.read(one))
                continue
            target = os.path.join(folder, os.path.basename(one.filename) if "j" in given else one.filename)
            if "n" in given and os.path.exists(target) or "o" not in given and os.path.isfile(target):
                if "n" not in given:
                    call.fail(f"{one.filename}: it exists, and `-o` overwrites it")
                continue
            if "q" not in given:
                call.out(f"   creating: {one.filename}\n" if one.is_dir() else f"  inflating: {one.filename}\n")
            if "j" in given and not one.is_dir():
                with open(target, "wb") as file:
                    file.write(archive.read(one))
            elif "j" not in given:
                archive.extract(one, folder)
    return int(not members) * 11 or None


def zip(call, args):
    given, names = options(args, "rqjmu0123456789", "x", {"recurse-paths": "r", "quiet": "q", "exclude": "x"})
    if len(names) < 2:
        raise Usage("usage: zip [-rq] FILE NAME…")
    target = names.pop(0)
    target += ".zip" * ("." not in os.path.basename(target))
    excluded = [re.compile(glob(pattern)) for pattern in given.get("x", [])]
    with zipfile.ZipFile(call.path(target), "a", zipfile.ZIP_DEFLATED) as archive:
        there = set(archive.namelist())
        for name in [one for each in names for one in below(call, each, "r" in given)]:
            path = call.path(name)
            if any(each.fullmatch(name) for each in excluded) or os.path.abspath(path) == os.path.abspath(call.path(target)):
                continue
            inner = os.path.basename(name) if "j" in given else name.lstrip("/")
            if os.path.isdir(path) and "j" in given:
                continue
            inner = os.path.normpath(inner) + "/" * os.path.isdir(path)
            if inner in there:
                call.fail(f"{inner}: it is in the archive already")
            elif inner != "./":
                archive.write(path, inner)
                if "q" not in given:
                    call.out(f"  adding: {inner}\n")


def below(call, name, is_deep):
    """Returns a name with those below it, in order."""
    path = call.path(name)
    if not os.path.lexists(path):
        call.fail(f"{name}: No such file or directory", 12)
        return []
    inner = sorted(os.listdir(path)) if is_deep and os.path.isdir(path) else []
    return [name, *(one for each in inner for one in below(call, f"{name.rstrip('/')}/{each}", True))]


def kind_of(data, path):
    if os.path.isdir(path):
        return "directory"
    if not data:
        return "empty"
    for beginning, kind in KINDS:
        if data.startswith(beginning):
            return kind
    if data[257:262] == b"ustar":
        return "POSIX tar archive"
    if b"\0" in data:
        return "data"
    try:
        text = data[: data.rfind(b"\n") + 1 or None].decode()
    except UnicodeDecodeError:
        return "ISO-8859 text"
    script = re.match(r"#!\s*(?:/usr/bin/env\s+)?(\S+)", text)
    encoding = "ASCII" if text.isascii() else "UTF-8 Unicode"
    if script:
        return f"{os.path.basename(script[1])} script, {encoding} text executable"
    return ("JSON data" if text.lstrip()[:1] in ("{", "[") and text.rstrip()[-1:] in ("}", "]") else f"{encoding} text")


def file(call, args):
    given, names = options(args, "bLi", "", {"brief": "b", "mime-type": "i"})
    for name in names:
        path = call.path(name)
        if not os.path.exists(path):
            call.out(f"{name}: cannot open `{name}' (No such file or directory)\n")
            continue
        data = b""
        if os.path.isfile(path):
            with open(path, "rb") as opened_file:
                data = opened_file.read(1 << 12)
        call.out(("" if "b" in given else f"{name}: ") + kind_of(data, path) + "\n")


def free(call, args):
    given, names = options(args, "hkmPTa", "", {"human-readable": "h"})
    unit = 1 << 20 if "m" in given else 1 << 10
    call.out(f"Filesystem           {'Size' if 'h' in given else '1M-blocks' if 'm' in given else '1K-blocks':>9}      Used Available Use% Mounted on\n")
    total, used, left = shutil.disk_usage(call.path((names or ["."])[0]))
    shown = [human(size) if "h" in given else str(size // unit) for size in (total, used, left)]
    call.out(f"{'hatchery':20} {shown[0]:>9} {shown[1]:>9} {shown[2]:>9} {-(-used * 100 // total):3}% /\n")


def page(call, args):
    """`less` and `more`, which have no terminal here."""
    for _, stream in call.sources([arg for arg in args if arg[:1] not in ("-", "+")]):
        while data := (yield from stream.chunk()):
            call.write(data)


def shuffle(call, args):
    given, names = options(args, "er", "ni", {"head-count": "n", "echo": "e"})
    if "i" in given:
        first, _, last = given["i"][0].partition("-")
        lines = [f"{one}\n" for one in range(number_in(first), number_in(last) + 1)]
    elif "e" in given:
        lines = [name + "\n" for name in names]
    else:
        lines = [line.rstrip("\n") + "\n" for _, text in (yield from call.texts(names[:1])) for line in text.splitlines(True)]
    random.shuffle(lines)
    call.out("".join(lines[: number_in(given["n"][0]) if "n" in given else None]))


def split(call, args):
    given, names = options(args, "d", "lban", {"lines": "l", "bytes": "b", "suffix-length": "a", "numeric-suffixes": "d", "number": "n"})
    signs = "0123456789" if "d" in given else "abcdefghijklmnopqrstuvwxyz"
    width, begin = number_in(given.get("a", ["2"])[0], 9), names[1] if len(names) > 1 else "x"
    data = yield from contents(call, (names or ["-"])[0])
    size = size_in(given["b"][0] if "b" in given else given.get("l", ["1000"])[0])
    if not size:
        raise Usage("invalid number '0'")
    if "n" in given:
        count = max(number_in(given["n"][0]), 1)
        size = max(len(data) // count, 1)
        given["b"] = None
        # The last one has the rest.
        data, rest = data[: size * (count - 1)], data[size * (count - 1) :]
    units = [data[at : at + size] for at in range(0, len(data), size)] if "b" in given else data.splitlines(True)
    parts = units if "b" in given else [b"".join(units[at : at + size]) for at in range(0, len(units), size)]
    for at, part in enumerate([*parts, rest] if "n" in given else parts):
        if at >= len(signs) ** width:
            raise Usage("suffixes exhausted")
        end = "".join(signs[at // len(signs) ** place % len(signs)] for place in reversed(range(width)))
        write_to(call, begin + end, part)


def kill(call, args):
    """There is one process, which no command ends or finds."""
    hatchery._limit_met("the sandbox has no other processes")
    if call.name != "kill":
        return 1
    for arg in args:
        if not arg.startswith("-"):
            call.fail(f"can't kill pid {arg}: No such process")


def processes(call, args):
    hatchery._limit_met("the sandbox has no other processes")
    call.out("PID   USER     TIME  COMMAND\n    1 root      0:00 sh\n")


def bytes_of(data):
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def hexdump(call, args):
    given, names = options(args, "Cv", "n", {"canonical": "C"})
    if call.name == "hexdump" and "C" not in given:
        raise Usage("only `hexdump -C` is there")
    for name in names or ["-"]:
        data = yield from contents(call, name)
        data = data[: number_in(given["n"][0]) if "n" in given else None]
        before, is_starred = None, False
        for at in range(0, len(data), 16):
            row = data[at : at + 16]
            if row == before and "v" not in given and len(row) == 16:
                call.out("" if is_starred else "*\n")
                is_starred = True
                continue
            before, is_starred = row, False
            halves = (" ".join(f"{byte:02x}" for byte in row[half : half + 8]).ljust(23) for half in (0, 8))
            call.out(f"{at:08x}  {'  '.join(halves)}  |{bytes_of(row)}|\n")
        call.out(f"{len(data):08x}\n" if data else "")


def xxd(call, args):
    given, names = options(args, "pru", "lcsg", {})
    data = yield from contents(call, (names or ["-"])[0])
    if "r" in given:
        text = data.decode("latin-1")
        if "p" not in given:
            text = "".join(re.sub(r"^[0-9a-fA-F]+:|  .*", "", line) for line in text.splitlines())
        return call.write(bytes.fromhex(re.sub("[^0-9a-fA-F]", "", text)))
    data = data[: number_in(given["l"][0]) if "l" in given else None]
    width = max(number_in(given["c"][0], 256), 1) if "c" in given else 30 if "p" in given else 16
    for at in range(0, len(data), width):
        row = data[at : at + width]
        if "p" in given:
            call.out(row.hex() + "\n")
        else:
            pairs = " ".join(row[pair : pair + 2].hex() for pair in range(0, len(row), 2)).ljust(width * 5 // 2 - 1 + width % 2)
            call.out(f"{at:08x}: {pairs}  {bytes_of(row)}\n")


def tree(call, args):
    given, names = options(args, "adf", "LI", {})
    most = number_in(given["L"][0]) if "L" in given else 99
    counts = [0, 0]

    def show(folder, indent, depth):
        names = [name for name in sorted(os.listdir(folder)) if name[0] != "." or "a" in given]
        names = [name for name in names if os.path.isdir(os.path.join(folder, name)) or "d" not in given]
        names = [name for name in names if "I" not in given or not re.fullmatch("|".join(map(glob, given["I"][0].split("|"))), name)]
        for name in names:
            path, is_last = os.path.join(folder, name), name is names[-1]
            is_folder = os.path.isdir(path)
            counts[not is_folder] += 1
            arrow = f" -> {os.readlink(path)}" if os.path.islink(path) else ""
            call.out(f"{indent}{'└── ' if is_last else '├── '}{name}{arrow}\n")
            if is_folder and not arrow and depth < most:
                show(path, indent + ("    " if is_last else "│   "), depth + 1)

    for name in names or ["."]:
        if not os.path.isdir(call.path(name)):
            call.fail(f"{name}: No such file or directory")
            continue
        call.out(f"{name}\n")
        show(call.path(name), "", 1)
    call.out(f"\n{counts[0]} directories, {counts[1]} files\n")


COMMANDS = {
    "tar": tar, "gzip": gzip, "gunzip": gzip, "zcat": gzip, "unzip": unzip, "zip": zip, "file": file, "df": free, "less": page, "more": page,
    "ps": processes, **dict.fromkeys(("kill", "killall", "pgrep", "pkill"), kill),
    "shuf": shuffle, "split": split, "hexdump": hexdump, "xxd": xxd, "tree": tree,
}
