"""Warnings name the program's files, and never one of this package.

A warning names the line that called so many calls up. Where that is beyond the program's first line
it is one of the agent's, which is to a program what CPython's start is elsewhere.
"""

from hatchery._describe import OUR_FILES

# What CPython names where there is no further call.
NOBODY = "<sys>", 0


def adapt(module):
    """Has the module's warnings name nobody where they would name a file of ours."""
    show = getattr(module, "_showwarnmsg", None)
    if show is None:
        return

    def _showwarnmsg(message):
        if str.startswith(message.filename, OUR_FILES):
            message.filename, message.lineno = NOBODY
        show(message)

    module._showwarnmsg = _showwarnmsg


ADAPT = {"warnings": adapt}
