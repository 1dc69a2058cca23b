"""Adds permissions to members of archives.

The guest's files have none, so their archives would hold files that nobody may read.
"""

PERMISSIONS = 0o777
OF_FILES = 0o644
OF_FOLDERS = 0o755
OF_LINKS = 0o777


def adapt_tarfile(module):
    files = getattr(module, "TarFile", None)
    if files is None:
        return  # the program's own module

    inner = files.gettarinfo

    def gettarinfo(self, name=None, arcname=None, fileobj=None):
        info = inner(self, name, arcname, fileobj)
        if info is not None and not info.mode & PERMISSIONS:
            others = OF_LINKS if info.issym() else OF_FILES
            info.mode |= OF_FOLDERS if info.isdir() else others
        return info

    gettarinfo.__doc__ = inner.__doc__
    files.gettarinfo = gettarinfo


def adapt_zipfile(module):
    info = getattr(module, "ZipInfo", None)
    if info is None:
        return

    inner = info.__dict__["from_file"].__func__

    def from_file(cls, filename, arcname=None, *, strict_timestamps=True):
        made = inner(cls, filename, arcname, strict_timestamps=strict_timestamps)
        if not made.external_attr >> 16 & PERMISSIONS:
            made.external_attr |= (OF_FOLDERS if made.is_dir() else OF_FILES) << 16
        return made

    from_file.__doc__ = inner.__doc__
    info.from_file = classmethod(from_file)


ADAPT = {"tarfile": adapt_tarfile, "zipfile": adapt_zipfile}
