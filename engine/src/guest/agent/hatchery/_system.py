"""What programs for Unix ask their system for, and this build leaves out."""

import operator
import os
import sys

# The owner of every file here, by what `stat` says of them.
OWNER = 0


def owner():
    """The user and the group that the program runs as: those who own all files here."""
    return OWNER


class Mask:
    """The mask of modes of new files, which have none here: it is only kept."""

    def __init__(self):
        self.value = 0o022

    def __call__(self, mask):
        before, self.value = self.value, operator.index(mask) & 0o777
        return before


def install():
    if not hasattr(os, "umask"):
        os.umask = Mask()
    # Not `geteuid`: of who is root by that, `tarfile` takes for granted that `os.chown` is there.
    for name in ("getuid", "getgid"):
        if not hasattr(os, name):
            setattr(os, name, owner)
    # There is no such file, and Python's word for that is an empty one: programs that would read
    # or start it go without.
    sys.executable = ""
