"""The error for parts of IPython that aren't available here."""

from hatchery_timing import UsageError

UsageError.__module__ = "IPython.core.error"
