"""Functions of the system that Unix programs use and that this build lacks."""

import operator
import os
import sys

# The owner of every file here, according to `stat`.
OWNER = 0


def owner():
    """Returns the user and the group of the program, which own all files here."""
    return OWNER


class Mask:
    """The mode mask of new files. Files have no modes here, so it is only stored."""

    def __init__(self):
        self.value = 0o022

    def __call__(self, mask):
        before, self.value = self.value, operator.index(mask) & 0o777
        return before


def install():
    if not hasattr(os, "umask"):
        os.umask = Mask()
    # Not `geteuid`: if that says root, `tarfile` takes for granted that `os.chown` exists.
    for name in ("getuid", "getgid"):
        if not hasattr(os, name):
            setattr(os, name, owner)
    # There is no executable, which Python expresses by an empty string: programs that would read or
    # start it do without.
    sys.executable = ""
