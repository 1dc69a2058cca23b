"""Signals that a program sends to itself, at once or after a time.

When a timer is due, the host sets the flag by which CPython collects garbage. CPython does so when the
program is between two instructions. A callback of collections then notes the signal, and CPython calls its
handler in the program's frame.
"""

import _thread
import errno
import gc
import operator
import os
import time

from hatchery import _waits
from hatchery._describe import is_ours
from hatchery._frames import back_of, f_back, get_frame, shown
from hatchery._host import bridge
from hatchery._wire import ALARM

NO_ALARM = "the build has no timers that interrupt a program: limit the job's time instead"
NO_TIMER = "the sandbox has no timers of CPU time: use signal.ITIMER_REAL"
NO_WAIT = "no signal can come: the sandbox has one process, and no timer of signal.alarm is set"
NAMES = {
    "SIGALRM": 14, "SIGCLD": 17, "SIGRTMIN": 34, "SIGRTMAX": 64, "SIG_BLOCK": 0, "SIG_UNBLOCK": 1, "SIG_SETMASK": 2,
    "ITIMER_REAL": 0, "ITIMER_VIRTUAL": 1, "ITIMER_PROF": 2, "ItimerError": type("itimer_error", (OSError,), {"__module__": "signal"}),
}
# What builds may have, and what doesn't work there.
BROKEN = "signal", "getsignal", "raise_signal", "alarm", "setitimer", "getitimer", "pause"
# A signal that nothing handles ends the process with this exit code, added to its number.
ENDED_BY = 128
# A time that fits into 63 bits of nanoseconds.
MOST_SECONDS = 1 << 33
# A threshold that every collection exceeds.
ALWAYS = -1
# What is left of a timer that is due.
LEAST_LEFT = 1e-6


class Note:
    """Notes a signal for CPython without calling its handler: that is for the program's next instruction."""

    # No instruction that calls, since after a call CPython would handle the signal here.
    __getitem__ = staticmethod(_thread.interrupt_main)


class Handler:
    """A handler of a program as CPython calls it: with a frame of the program, also in a wait."""

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, number, frame):
        return self.handler(number, shown(frame))


class Signals:
    """The functions of the module `signal` that the build lacks or that don't work."""

    def __init__(self, module):
        self._module, self._plain = module, module.raise_signal
        self._set_handler, self._handler_of = module.signal, module.getsignal
        self._blocked, self._pending = set(), set()
        self._ignored = {module.SIGCHLD, module.SIGURG, module.SIGWINCH, module.SIGCONT}
        self.due, self._interval, self._note, self._threshold = None, 0.0, Note(), 0

    def valid_signals(self):
        return set(self._module.Signals)

    def signal(self, signalnum, handler, /):
        """Set the action for the given signal: a function, signal.SIG_DFL or signal.SIG_IGN."""
        before = self._set_handler(signalnum, Handler(handler) if callable(handler) else handler)
        return before.handler if type(before) is Handler else before

    def getsignal(self, signalnum, /):
        """Return the current action for the given signal."""
        handler = self._handler_of(signalnum)
        return handler.handler if type(handler) is Handler else handler

    def _is_held(self, number):
        """Whether a signal is blocked, ignored or ends the process, rather than handled."""
        if number in self._blocked:
            self._pending.add(number)
            return True
        handler = self._module.getsignal(number)
        if callable(handler):
            return False
        if handler != self._module.SIG_IGN and number not in self._ignored:
            os._exit(ENDED_BY + number)
        return True

    def raise_signal(self, signalnum, /):
        number = operator.index(signalnum)
        if not 0 < number < self._module.NSIG or not self._is_held(number):
            self._plain(number)

    def pthread_kill(self, thread_id, signalnum, /):
        if thread_id != _thread.get_ident():
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if signalnum:
            self.raise_signal(signalnum)

    def pthread_sigmask(self, how, mask, /):
        before, mask = set(self._blocked), set(map(operator.index, mask))
        if how not in (self._module.SIG_BLOCK, self._module.SIG_UNBLOCK, self._module.SIG_SETMASK):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        blocked = {self._module.SIG_BLOCK: before | mask, self._module.SIG_UNBLOCK: before - mask}.get(how, mask)
        self._blocked = blocked - {self._module.SIGKILL, self._module.SIGSTOP}
        for number in sorted(self._pending - self._blocked):
            self._pending.discard(number)
            self.raise_signal(number)
        return before

    def sigpending(self):
        return set(self._pending)

    def siginterrupt(self, signalnum, flag, /):
        """Nothing that waits here ends because of a signal."""

    def pause(self):
        if self.due is None:
            raise OSError(errno.ENOSYS, NO_WAIT)
        time.sleep(max(self.due - time.monotonic(), 0) + LEAST_LEFT)

    def alarm(self, seconds, /):
        left, _ = self.setitimer(self._module.ITIMER_REAL, operator.index(seconds))
        return -int(-left // 1)

    def setitimer(self, which, seconds, interval=0.0, /):
        before = self.getitimer(which)
        if seconds < 0 or interval < 0:
            raise self._module.ItimerError(errno.EINVAL, os.strerror(errno.EINVAL))
        if which == self._module.ITIMER_REAL:
            self._set(seconds, interval)
        elif seconds:
            raise OSError(errno.ENOSYS, NO_TIMER)
        return before

    def getitimer(self, which, /):
        if which not in (self._module.ITIMER_REAL, self._module.ITIMER_VIRTUAL, self._module.ITIMER_PROF):
            raise self._module.ItimerError(errno.EINVAL, os.strerror(errno.EINVAL))
        if which != self._module.ITIMER_REAL or self.due is None:
            return 0.0, 0.0
        return max(self.due - time.monotonic(), LEAST_LEFT), self._interval

    def ring(self):
        """Calls the handler, if the timer is due and this is the main thread."""
        if self._rings():
            number = self._module.SIGALRM
            self._module.getsignal(number)(number, f_back(get_frame(0)))

    def end(self):
        """Ends the timer with its turn."""
        self.due = None
        young, middle, old = gc.get_threshold()
        if middle == ALWAYS:
            gc.set_threshold(young, self._threshold, old)

    def _set(self, seconds, interval):
        nanoseconds = round(min(seconds, MOST_SECONDS) * 1e9) if seconds else -1
        try:
            bridge._call(ALARM + nanoseconds.to_bytes(8, "little", signed=True))
        except Exception:
            raise OSError(errno.ENOSYS, NO_ALARM) from None
        self.due, self._interval = time.monotonic() + seconds if seconds else None, float(interval)
        _waits.timer = self
        if self._collected not in gc.callbacks:
            gc.callbacks.append(self._collected)
        young, middle, old = gc.get_threshold()
        if middle != ALWAYS and seconds:
            # Otherwise CPython finds that no generation has enough garbage, and calls no callback.
            self._threshold = middle
            gc.set_threshold(young, ALWAYS, old)
        elif middle == ALWAYS and not seconds:
            gc.set_threshold(young, self._threshold, old)

    def _rings(self):
        """Whether the timer is due in the main thread, and its signal handled. Sets it for the next time."""
        if self.due is None or time.monotonic() < self.due or _thread.get_ident() != _waits.MAIN:
            return False
        self._set(self._interval, self._interval)
        return not self._is_held(self._module.SIGALRM)

    def _collected(self, phase, info):
        number, note, frame = self._module.SIGALRM, self._note, back_of(get_frame(0))
        # A handler gets a frame of the program: a wait rings when it is over, and the host reminds of the rest.
        is_shown = frame is not None and not is_ours(frame.f_code)
        if phase == "stop" and is_shown and self._rings():
            note[number]


def adapt(module):
    if not hasattr(module, "raise_signal"):
        return  # the program's own module
    for name, value in NAMES.items():
        if not hasattr(module, name):
            setattr(module, name, value)
    signals = Signals(module)
    for name in dir(Signals):
        if name in BROKEN or name[0] != "_" and name not in ("ring", "end") and not hasattr(module, name):
            setattr(module, name, getattr(signals, name))


ADAPT = {"signal": adapt}
