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
get_frame, current_frames = sys._getframe, sys._current_frames
back_of = types.FrameType.f_back.__get__
# Below this function there are no frames of programs.
LOWEST = "Agent.turn"


def f_back(frame):
    """Next outer frame object."""
    frame = back_of(frame)
    while frame is not None and is_ours(frame.f_code):
        frame = None if frame.f_code.co_qualname == LOWEST else back_of(frame)
    return frame


def shown(frame):
    """Returns a frame, or that of the program which called what the agent does there."""
    return f_back(frame) if frame is not None and is_ours(frame.f_code) else frame


def _current_frames():
    return {thread: frame for thread, one in current_frames().items() if (frame := shown(one)) is not None}


def _getframe(depth=0, /):
    frame = get_frame(1)
    while depth > 0 and frame is not None:
        frame = f_back(frame)
        depth -= 1
    if frame is None:
        raise ValueError("call stack is not deep enough")
    return frame


def install():
    for plain, function in (get_frame, _getframe), (current_frames, _current_frames):
        function.__doc__, function.__module__ = plain.__doc__, "sys"
        setattr(sys, function.__name__, function)
    put(types.FrameType, {"f_back": property(f_back)})
    summary = traceback.StackSummary
    extract = summary._extract_from_extended_frame_gen.__func__

    def extract_programs(klass, frames, **options):
        return extract(klass, (one for one in frames if not is_ours(one[0].f_code)), **options)

    summary._extract_from_extended_frame_gen = classmethod(extract_programs)
