# One request about files: `asked` has its `do`, its `path` and more. Sets `answer`.
import errno
import os
import shutil
import stat
import sys
from datetime import datetime, timezone

HOME = "/home/user"
KINDS = {stat.S_IFREG: "FILE", stat.S_IFDIR: "DIRECTORY", stat.S_IFLNK: "SYMLINK"}
REASONS = {
    FileNotFoundError: "not_found",
    FileExistsError: "already_exists",
    IsADirectoryError: "invalid_argument",
    NotADirectoryError: "invalid_argument",
    PermissionError: "permission_denied",
    ValueError: "invalid_argument",
}


def absolute(path):
    if path == "~" or path.startswith("~/"):
        path = HOME + path[1:]
    return os.path.normpath(os.path.join(HOME, path))


def entry(path):
    found = os.lstat(path)
    is_link = stat.S_ISLNK(found.st_mode)
    target = os.stat(path) if is_link and os.path.exists(path) else found
    modified = datetime.fromtimestamp(found.st_mtime, timezone.utc)
    described = {
        "name": os.path.basename(path) or "/",
        "type": "FILE_TYPE_" + KINDS.get(stat.S_IFMT(target.st_mode), "UNSPECIFIED"),
        "path": path,
        "size": target.st_size,
        "mode": stat.S_IMODE(target.st_mode),
        "permissions": stat.filemode(target.st_mode),
        "owner": "user",
        "group": "user",
        "modifiedTime": modified.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    if is_link:
        described |= {"symlinkTarget": os.readlink(path), "isSymlink": True}
    return described


def read(path):
    with open(path, "rb"):
        return path


def write(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    source = sys.stdin.buffer
    if asked["gzip"]:
        import gzip

        source = gzip.open(source)
    with open(path, "wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    return {"name": os.path.basename(path), "type": "file", "path": path}


def walk(path, depth):
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        yield entry(inner)
        if depth > 1 and os.path.isdir(inner) and not os.path.islink(inner):
            yield from walk(inner, depth - 1)


def make(path):
    os.makedirs(path)
    return entry(path)


def move(path, to):
    os.makedirs(os.path.dirname(to), exist_ok=True)
    os.rename(path, to)
    return entry(to)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


DO = {
    "read": read,
    "write": write,
    "stat": entry,
    "list": lambda path: list(walk(path, asked["depth"])),
    "make": make,
    "move": lambda path: move(path, absolute(asked["to"])),
    "remove": remove,
}

try:
    os.makedirs(HOME, exist_ok=True)
    answer = {"done": DO[asked["do"]](absolute(asked["path"]))}
except (OSError, ValueError, EOFError) as error:
    reasons = (reason for kind, reason in REASONS.items() if isinstance(error, kind))
    reason = next(reasons, "internal")
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        reason = "no_space"
    elif number == errno.EROFS:
        reason = "permission_denied"
    message = f"{asked['path']}: {getattr(error, 'strerror', None) or error}"
    answer = {"reason": reason, "message": message}
