"""The one user, who owns every file."""

import collections
import os

from hatchery import _system

_FIELDS = "pw_name pw_passwd pw_uid pw_gid pw_gecos pw_dir pw_shell"
struct_passwd = collections.namedtuple("struct_passwd", _FIELDS, module="pwd")


def getpwall():
    home = os.environ.get("HOME", "/root")
    return [struct_passwd(_system.OWNER_NAME, "x", _system.OWNER, _system.OWNER, _system.OWNER_NAME, home, "/bin/sh")]


def getpwnam(name, /):
    return _system.entry(getpwall(), 0, str, name, "getpwnam(): name")


def getpwuid(uid, /):
    return _system.entry(getpwall(), 2, int, uid, "getpwuid(): uid")
