"""What is said of something of IPython that can't be had here."""


class UsageError(Exception):
    """Something of IPython that can't be had here, or was asked for in a wrong way."""


UsageError.__module__ = "IPython.core.error"
