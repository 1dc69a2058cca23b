"""What Python's own functions that wait become in threads on one stack (`_suspend.py`).

Each waits until the original wouldn't, and then calls it, or is written again as a generator.
"""

import _thread
import sys

from hatchery import _locks, _switch
from hatchery._suspend import call, pause, replaces, value_of, waits
from hatchery._switch import Wait

for name in ("acquire", "__enter__"):
    waits("hatchery._locks", f"lock.{name}", "release the lock", lambda lock, me: not lock.locked())
waits("hatchery._locks", "SimpleQueue.get", "put something into the queue", lambda queue, me: not queue.empty())
waits("threading", "_RLock.acquire", "release the lock", lambda lock, me: lock._owner in (None, me.ident))
waits("threading", "Semaphore.acquire", "release the semaphore", lambda one, me: one._value > 0)
waits("threading", "Event.wait", "set the event", lambda event, me: event.is_set())
waits("threading", "Thread.join", "end the thread",
      lambda thread, me: thread.ident == me.ident or not thread.is_alive())
waits("queue", "Queue.get", "put something into the queue", lambda one, me: one._qsize() or is_closed(one))
waits("queue", "Queue.put", "take something from the queue",
      lambda one, me: not 0 < one.maxsize <= one._qsize() or is_closed(one))
waits("queue", "Queue.join", "finish the tasks of the queue", lambda one, me: not one.unfinished_tasks)
for name in ("result", "exception"):
    waits("concurrent.futures._base", f"Future.{name}", "end the call", lambda future, me: future.done())


def is_closed(queue):
    return getattr(queue, "is_shutdown", False)


@replaces("time", "sleep")
def sleep(*seconds):
    if not _switch.is_duration(seconds):
        _locks.pause(*seconds)
    yield from pause(_switch.SLEEP, lambda: False, *seconds)


@replaces("threading", "Condition.__enter__")
def enter_condition(self):
    return (yield from call(self._lock.__enter__))


@replaces("threading", "Condition.wait")
def wait_for_notice(self, timeout=None):
    if not self._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = _thread.allocate_lock()
    waiter.acquire()
    self._waiters.append(waiter)
    saved = self._release_save()
    is_noticed = yield from pause("notify the condition", lambda: not waiter.locked(), timeout)
    inner = getattr(self._lock, "_block", self._lock)
    yield from pause("release the lock", lambda: not inner.locked())
    self._acquire_restore(saved)
    if not is_noticed and waiter in self._waiters:
        self._waiters.remove(waiter)
    return is_noticed


@replaces("threading", "Condition.wait_for")
def wait_for_condition(self, predicate, timeout=None):
    end = None if timeout is None else _locks.monotonic() + timeout
    result = predicate()
    while not result:
        left = None if end is None else end - _locks.monotonic()
        if left is not None and left <= 0:
            break
        yield from wait_for_notice(self, left)
        result = predicate()
    return result


@replaces("threading", "Barrier.wait")
def wait_at_barrier(self, timeout=None):
    timeout = self._timeout if timeout is None else timeout
    yield from enter_condition(self._cond)
    try:
        while self._state in (-1, 1):
            yield from wait_for_notice(self._cond)
        self._enter()
        index = self._count
        self._count += 1
        try:
            if index + 1 == self._parties:
                self._release()
            else:
                yield from wait_for_condition(self._cond, lambda: self._state != 0, timeout)
                self._wait(0)
            return index
        finally:
            self._count -= 1
            self._exit()
    finally:
        self._cond.release()


@replaces("threading", "Thread._bootstrap")
def bootstrap(self):
    import threading

    self._set_ident()
    for name in ("_set_native_id", "_set_tstate_lock"):
        getattr(self, name, int)()
    with threading._active_limbo_lock:
        threading._active[self._ident] = self
        threading._limbo.pop(self, None)
    self._started.set()
    if threading._trace_hook:
        sys.settrace(threading._trace_hook)
    if threading._profile_hook:
        sys.setprofile(threading._profile_hook)
    try:
        value_of((yield from call(self.run)))
    except BaseException:
        self._invoke_excepthook(self)
    finally:
        self._delete()


@replaces("threading", "Thread.run")
def run_thread(self):
    try:
        if self._target is not None:
            return (yield from call(self._target, *self._args, **self._kwargs))
    finally:
        del self._target, self._args, self._kwargs


@replaces("threading", "Timer.run")
def run_timer(self):
    yield from pause("pass the time", self.finished.is_set, self.interval)
    if not self.finished.is_set():
        yield from call(self.function, *self.args, **self.kwargs)
    self.finished.set()


@replaces("concurrent.futures.thread", "_worker")
def work(reference, *given):
    """Runs the calls of a pool; before 3.14 it is given a queue and how to begin, then a context."""
    from concurrent.futures import _base, thread

    context = given[0] if len(given) == 2 else None
    queue = given[1] if context is not None else given[0]
    # The pool holds locks while it starts this.
    yield Wait(_switch.POOL, lambda: True)
    try:
        if context is not None:
            context.initialize()
        elif given[1] is not None:
            given[1](*given[2])
    except BaseException:
        _base.LOGGER.critical("Exception in initializer:", exc_info=True)
        executor = reference()
        if executor is not None:
            executor._initializer_failed()
        return
    while True:
        if queue.empty():
            executor = reference()
            if executor is not None:
                executor._idle_semaphore.release()
            del executor
            yield from pause(_switch.POOL, lambda: not queue.empty())
        item = queue.get_nowait()
        if item is not None:
            yield from work_on(item, context)
            del item
            continue
        executor = reference()
        if thread._shutdown or executor is None or executor._shutdown:
            if executor is not None:
                executor._shutdown = True
            queue.put(None)
            break
        del executor
    if context is not None:
        context.finalize()


def work_on(item, context):
    if not item.future.set_running_or_notify_cancel():
        return
    function, args, options = (item.fn, item.args, item.kwargs) if context is None else item.task
    try:
        result = value_of((yield from call(function, *args, **options)))
    except BaseException as error:
        item.future.set_exception(error)
        del item
        if isinstance(error, KeyboardInterrupt):
            raise  # in the main thread, for which it is meant
    else:
        item.future.set_result(result)


@replaces("asyncio.base_events", "BaseEventLoop.run_forever")
def run_loop(self):
    if not (hasattr(self, "is_ready") and hasattr(self, "_run_forever_setup")):
        return self.run_forever()
    self._run_forever_setup()
    try:
        while True:
            timers = self._scheduled
            timeout = max(timers[0].when() - self.time(), 0) if timers else None
            yield from pause("run the event loop", self.is_ready, timeout)
            self._run_once()
            if self._stopping:
                break
    finally:
        self._run_forever_cleanup()


@replaces("asyncio.base_events", "BaseEventLoop.run_until_complete")
def run_loop_for(self, future):
    from asyncio import tasks

    task = tasks.ensure_future(future, loop=self)
    stop = lambda task: self.stop()
    task.add_done_callback(stop)
    try:
        yield from run_loop(self)
    finally:
        task.remove_done_callback(stop)
    if not task.done():
        raise RuntimeError("Event loop stopped before Future completed.")
    return task.result()


@replaces("asyncio.runners", "run")
def run_coroutine(main, **options):
    from asyncio import coroutines, events, runners

    if events._get_running_loop() is not None or not coroutines.iscoroutine(main):
        return runners.run(main, **options)  # which says what is wrong
    with runners.Runner(**options) as runner:
        return (yield from run_loop_for(runner.get_loop(), main))


@replaces("logging.handlers", "QueueListener._monitor")
def listen(self):
    while True:
        record = yield from call(self.queue.get)
        if record is not self._sentinel:
            self.handle(record)
        if hasattr(self.queue, "task_done"):
            self.queue.task_done()
        if record is self._sentinel:
            break
