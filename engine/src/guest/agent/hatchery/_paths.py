"""Makes the empty path name nothing, as in POSIX.

The build's C library takes it for the current folder before the host sees it, so that the mistake of
creating the folder of a file without one, `os.makedirs(os.path.dirname("a.txt"))`, would pass.
"""

import builtins
import errno
import io
import os

# The functions of `os` that take paths, and how many.
PATHS = {
    **dict.fromkeys(
        ("access", "chdir", "chmod", "chown", "lchown", "listdir", "lstat", "mkdir", "open", "readlink", "remove")
        + ("rmdir", "scandir", "stat", "statvfs", "truncate", "unlink", "utime"),
        1,
    ),
    **dict.fromkeys(("link", "rename", "replace", "symlink"), 2),
}
# The names of these arguments.
NAMES = frozenset(("path", "src", "dst", "file"))
# The sets of functions with which programs ask what a function can do.
ABILITIES = ("supports_dir_fd", "supports_effective_ids", "supports_fd", "supports_follow_symlinks")


def refusing(function, count):
    """Returns the function, which fails for an empty path among its first arguments."""

    def call(*args, **kwargs):
        if kwargs.get("opener"):
            return function(*args, **kwargs)  # what opens, and by which name, is the program's
        for path in args[:count]:
            if isinstance(path, (str, bytes)) and not path:
                raise missing(*args[:count])
        if kwargs:
            for name, path in kwargs.items():
                if isinstance(path, (str, bytes)) and not path and name in NAMES:
                    raise missing(path)
        return function(*args, **kwargs)

    return like(function, call)


def missing(path, other=None):
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path, None, other)


def answering(access):
    """Returns `os.access`, which raises for no path."""
    checked = refusing(access, 1)

    def call(*args, **kwargs):
        try:
            return checked(*args, **kwargs)
        except FileNotFoundError:
            return False

    return like(access, call)


class Builtin(staticmethod):
    """A function in the place of one of C: it says that it is one, and an object's class doesn't bind it."""

    __class__ = property(lambda self: type(len))

    def __repr__(self):
        return repr(self.__wrapped__.__wrapped__)

    def __reduce__(self):
        return self.__name__


def like(function, call):
    for name in ("__doc__", "__module__", "__name__", "__qualname__"):
        setattr(call, name, getattr(function, name))
    call.__wrapped__ = function
    return Builtin(call)


def install():
    for name, count in PATHS.items():
        function = getattr(os, name, None)
        if function is None:
            continue
        replaced = answering(function) if name == "access" else refusing(function, count)
        setattr(os, name, replaced)
        for ability in ABILITIES:
            functions = getattr(os, ability, ())
            if function in functions:
                functions.discard(function)
                functions.add(replaced)
    builtins.open = io.open = refusing(io.open, 1)
