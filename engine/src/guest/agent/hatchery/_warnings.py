"""Makes warnings name the program's files, and never one of this package.

A warning names the line that is a given number of calls up. Beyond the program's first line, that
is a line of the agent, which is to a program what CPython's startup is elsewhere.
"""

from hatchery._describe import OUR_FILES

# What CPython names when there is no further caller.
NOBODY = "<sys>", 0


def adapt(module):
    """Makes the module's warnings name no file where they would name one of the agent's."""
    show = getattr(module, "_showwarnmsg", None)
    if show is None:
        return

    def _showwarnmsg(message):
        if str.startswith(message.filename, OUR_FILES):
            message.filename, message.lineno = NOBODY
        show(message)

    module._showwarnmsg = _showwarnmsg


ADAPT = {"warnings": adapt}
