"""What programs for Unix ask their system for, and this build leaves out."""

import os
import sys

# The owner of every file here, by what `stat` says of them.
OWNER = 0


def owner():
    """The user and the group that the program runs as: those who own all files here."""
    return OWNER


def install():
    for name in ("getuid", "geteuid", "getgid", "getegid"):
        if not hasattr(os, name):
            setattr(os, name, owner)
    # There is no such file, and Python's word for that is an empty one: programs that would read
    # or start it go without.
    sys.executable = ""
