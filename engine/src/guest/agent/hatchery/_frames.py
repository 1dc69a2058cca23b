"""Hides the agent's frames from programs that look at their callers.

To a program its own first line has no caller, as in a process. An exception that passes through a
function of this package shows the program's lines only.
"""

import sys
import traceback
import types

from hatchery._describe import is_ours
from hatchery._waits import put

# CPython's own, which also return the agent's frames.
get_frame = sys._getframe
back_of = types.FrameType.f_back.__get__
# Below this function there are no frames of programs.
LOWEST = "Agent.turn"


def f_back(frame):
    """Next outer frame object."""
    frame = back_of(frame)
    while frame is not None and is_ours(frame.f_code):
        frame = None if frame.f_code.co_qualname == LOWEST else back_of(frame)
    return frame


def _getframe(depth=0, /):
    frame = get_frame(1)
    while depth > 0 and frame is not None:
        frame = f_back(frame)
        depth -= 1
    if frame is None:
        raise ValueError("call stack is not deep enough")
    return frame


def install():
    _getframe.__doc__ = get_frame.__doc__
    _getframe.__module__ = "sys"
    sys._getframe = _getframe
    put(types.FrameType, {"f_back": property(f_back)})
    summary = traceback.StackSummary
    extract = summary._extract_from_extended_frame_gen.__func__

    def extract_programs(klass, frames, **options):
        return extract(klass, (one for one in frames if not is_ours(one[0].f_code)), **options)

    summary._extract_from_extended_frame_gen = classmethod(extract_programs)
