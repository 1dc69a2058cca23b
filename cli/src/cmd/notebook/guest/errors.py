"""What is said of something of IPython that can't be had here."""

from hatchery_timing import UsageError

UsageError.__module__ = "IPython.core.error"
