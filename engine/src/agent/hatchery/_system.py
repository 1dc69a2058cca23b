"""What programs for Unix ask their system for, and this build leaves out."""

import os
import sys

# The owner of every file here, by what `stat` says of them.
OWNER = 0


def owner():
    """The user and the group that the program runs as: those who own all files here."""
    return OWNER


def install():
    # Not `geteuid`: of who is root by that, `tarfile` takes for granted that `os.chown` is there.
    for name in ("getuid", "getgid"):
        if not hasattr(os, name):
            setattr(os, name, owner)
    # There is no such file, and Python's word for that is an empty one: programs that would read
    # or start it go without.
    sys.executable = ""
