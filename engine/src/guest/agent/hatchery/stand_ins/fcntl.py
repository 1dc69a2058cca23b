"""Locks of files, which the only process always gets, and facts about descriptors.

The numbers are Linux's.
"""

import errno
import os

NUMBERS = (
    "LOCK_SH 1 LOCK_EX 2 LOCK_NB 4 LOCK_UN 8 LOCK_MAND 32 LOCK_READ 64 LOCK_WRITE 128 LOCK_RW 192"
    " F_DUPFD 0 F_GETFD 1 F_SETFD 2 F_GETFL 3 F_SETFL 4 F_GETLK 5 F_SETLK 6 F_SETLKW 7 F_SETOWN 8 F_GETOWN 9"
    " F_SETSIG 10 F_GETSIG 11 F_RDLCK 0 F_WRLCK 1 F_UNLCK 2 F_EXLCK 4 F_SHLCK 8 F_GETLK64 5 F_SETLK64 6 F_SETLKW64 7"
    " F_OFD_GETLK 36 F_OFD_SETLK 37 F_OFD_SETLKW 38 F_SETLEASE 1024 F_GETLEASE 1025 F_NOTIFY 1026"
    " F_DUPFD_CLOEXEC 1030 F_SETPIPE_SZ 1031 F_GETPIPE_SZ 1032 F_ADD_SEALS 1033 F_GET_SEALS 1034"
    " F_SEAL_SEAL 1 F_SEAL_SHRINK 2 F_SEAL_GROW 4 F_SEAL_WRITE 8 FD_CLOEXEC 1 FASYNC 8192"
    " DN_ACCESS 1 DN_MODIFY 2 DN_CREATE 4 DN_DELETE 8 DN_RENAME 16 DN_ATTRIB 32 DN_MULTISHOT 2147483648"
).split()
globals().update(zip(NUMBERS[::2], map(int, NUMBERS[1::2])))


def descriptor(fd):
    """Returns the number of an open file, given by number or object."""
    fd = fd if isinstance(fd, int) else fd.fileno()
    if fd < 0:
        raise ValueError(f"file descriptor cannot be a negative integer ({fd})")
    os.fstat(fd)
    return fd


def flock(fd, operation, /):
    descriptor(fd)


def lockf(fd, cmd, len=0, start=0, whence=0, /):
    descriptor(fd)
    if not cmd & (LOCK_SH | LOCK_EX | LOCK_UN):
        raise ValueError("unrecognized lockf argument")


def fcntl(fd, cmd, arg=0, /):
    fd = descriptor(fd)
    if cmd == F_GETFL:
        return 0 if os.get_blocking(fd) else os.O_NONBLOCK
    if cmd == F_SETFL:
        os.set_blocking(fd, not arg & os.O_NONBLOCK)
    elif cmd == F_GETFD:
        return FD_CLOEXEC
    elif cmd in (F_DUPFD, F_DUPFD_CLOEXEC):
        copy = os.dup(fd)
        if copy >= arg:
            return copy
        os.close(copy)
        raise OSError(errno.EINVAL, "the sandbox chooses the numbers of copies")
    elif cmd in (F_GETLK, F_SETLK, F_SETLKW):
        return arg
    elif cmd != F_SETFD:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return 0


def ioctl(fd, request, arg=0, mutate_flag=True, /):
    descriptor(fd)
    raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")
