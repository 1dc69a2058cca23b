"""`multiprocessing` and `ProcessPoolExecutor` in one interpreter: each process is a thread.

What passes between processes is pickled, as it would be. In a process, the program's functions see a copy
of its global variables. Methods of its classes, and other modules, are common to all.
"""

import array
import copy
import importlib
import itertools
import os
import pickle
import queue
import sys
import threading
import traceback
import types
import weakref
from concurrent.futures import ThreadPoolExecutor

import hatchery
from hatchery import _system

INHERITED = "{} objects should only be shared between processes through inheritance"
# What all processes share: a program hardly writes to them.
COMMON = types.FunctionType, type, types.ModuleType
# All that processes share, by identity; and how many processes are being given something.
SHARED = weakref.WeakValueDictionary()
handing = 0


class Here(threading.local):
    """The process of this thread, its number and its copies of global variables."""

    process, number, names = None, 0, None


here = Here()
numbers = itertools.count(1)


def enter(process, number):
    """Makes this thread a process."""
    here.process, here.number = process, number
    names, memo = sys.modules["__main__"].__dict__, {}
    here.names = dict(names)
    for name, value in names.items():
        if isinstance(value, types.FunctionType):
            here.names[name] = at_home(value)
        elif not isinstance(value, COMMON) and not name.startswith("__"):
            try:
                here.names[name] = copy.deepcopy(value, memo)
            except Exception:
                pass  # a lock, for example
    threading.current_thread().name = process.name


def at_home(function):
    """Returns a function of the program that sees the variables of this process."""
    if here.names is None or getattr(function, "__globals__", None) is not sys.modules["__main__"].__dict__:
        return function
    version = types.FunctionType(
        function.__code__, here.names, function.__name__, function.__defaults__, function.__closure__
    )
    version.__kwdefaults__, version.__dict__ = function.__kwdefaults__, function.__dict__
    return version


class Shared:
    """An object that processes share, and so its copies are the object."""

    is_managed = False

    def __reduce_ex__(self, protocol):
        if not handing and not self.is_managed:
            raise RuntimeError(INHERITED.format(type(self).__name__))
        SHARED[id(self)] = self
        return recall, (id(self),)

    def __deepcopy__(self, memo):
        return self

    __hash__ = object.__hash__


def recall(identity):
    return SHARED[identity]


def handed(value):
    """Returns a copy, as a new process gets it; what can't be copied is passed on, as by a fork."""
    global handing
    handing += 1
    try:
        return pickle.loads(pickle.dumps(value))
    except Exception:
        return value
    finally:
        handing -= 1


LOCKS = {
    name: type(name, (Shared, base), {"__module__": "multiprocessing.synchronize"})
    for name, base in {
        "Lock": threading.BoundedSemaphore, "RLock": threading._PyRLock, "Semaphore": threading.Semaphore,
        "BoundedSemaphore": threading.BoundedSemaphore, "Event": threading.Event,
        "Condition": threading.Condition, "Barrier": threading.Barrier,
    }.items()
}


class Queue(Shared, queue.Queue):
    """A queue between processes: what is put into it is copied."""

    def put(self, obj, block=True, timeout=None):
        super().put(pickle.dumps(obj), block, timeout)

    def get(self, block=True, timeout=None):
        return pickle.loads(super().get(block, timeout))

    def close(self):
        pass

    join_thread = cancel_join_thread = close


class Connection(Shared):
    """An end of a pipe."""

    def __init__(self, inbox, outbox):
        self._inbox, self._outbox = inbox, outbox
        self.closed = False
        self.readable, self.writable = inbox is not None, outbox is not None

    def send(self, obj):
        if self.closed or not self.writable:
            raise OSError("handle is closed" if self.closed else "connection is read-only")
        self._outbox.put(obj)

    def recv(self):
        if self.closed or not self.readable:
            raise OSError("handle is closed" if self.closed else "connection is write-only")
        return self._inbox.get()

    send_bytes, recv_bytes = send, recv

    def poll(self, timeout=0.0):
        with self._inbox.not_empty:
            return self._inbox.not_empty.wait_for(self._inbox._qsize, timeout) > 0

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def new_pipe(duplex=True):
    one, other = Queue(), Queue() if duplex else None
    return Connection(one, other), Connection(other, one)


class Value(Shared):
    def __init__(self, kind, value=0, *, lock=True):
        # A letter as in `array`, or a type of `ctypes`.
        self._kind = getattr(kind, "_type_", kind)
        self.value = value
        self._lock = LOCKS["RLock"]() if lock in (True, None) else lock

    def _converted(self, values):
        is_number = self._kind in array.typecodes
        return array.array(self._kind, values).tolist() if is_number else list(values)

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, value):
        [self._value] = self._converted([value])

    def get_lock(self):
        return self._lock

    def get_obj(self):
        return self

    def acquire(self, *args):
        return self._lock.acquire(*args)

    def release(self):
        self._lock.release()

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)

    def get(self):
        return self.value

    def set(self, value):
        self.value = value


class Array(Value):
    def __init__(self, kind, given, *, lock=True):
        super().__init__(kind, lock=lock)
        self._values = self._converted([0] * given if isinstance(given, int) else given)

    def __len__(self):
        return len(self._values)

    def __getitem__(self, at):
        return self._values[at]

    def __setitem__(self, at, value):
        if not isinstance(at, slice):
            [value] = self._converted([value])
        elif len(self._values[at]) != len(value := self._converted(value)):
            raise ValueError("Can only assign sequence of same size")
        self._values[at] = value

    def __iter__(self):
        return iter(self._values)


class Namespace(Shared, types.SimpleNamespace):
    is_managed = True


class Manager:
    """Makes objects that all processes share."""

    Value, Array, Namespace = Value, Array, Namespace
    Pool = property(lambda self: Pool)

    def __init__(self):
        for name, kind in {"dict": dict, "list": list, "Queue": Queue, "JoinableQueue": Queue, **LOCKS}.items():
            bases = (kind,) if issubclass(kind, Shared) else (Shared, kind)
            setattr(self, name, type(name, bases, {"is_managed": True}))

    def start(self, *args):
        pass

    shutdown = start

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Popen:
    """Runs a process object as a thread."""

    def __init__(self, process):
        self.returncode = None
        child = copy.copy(process)
        own = {name: handed(value) for name, value in vars(process).items() if name[:1] != "_"}
        vars(child).update(own)
        child._target, child._args, child._kwargs = handed((process._target, process._args, process._kwargs))
        number = next(numbers)
        self.pid = self.sentinel = os.getpid() + number
        child._popen = None
        child._config = {**process._config, "pid": self.pid}
        # It joins the children at the end of the program, unless they are daemons.
        importlib.import_module("multiprocessing.util")
        self._thread = threading.Thread(target=self._run, args=(child, number), daemon=True)
        self._thread.start()

    def _run(self, child, number):
        code = 1
        enter(child, number)
        child._target = at_home(child._target)
        try:
            child.run()
            code = 0
        except SystemExit as error:
            code = error.code
            if code is None:
                code = 0
            elif not isinstance(code, int):
                sys.stderr.write(f"{code}\n")
                code = 1
        except BaseException:
            sys.stderr.write(f"Process {child.name}:\n")
            traceback.print_exc()
        finally:
            if self.returncode is None:
                self.returncode = code

    def poll(self, flag=0):
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            self._thread.join(timeout)
        return self.returncode

    def terminate(self, code=-15):
        # A thread can't be ended from outside: it goes on, and nobody waits for it.
        if self.returncode is None:
            self.returncode = code

    def kill(self):
        self.terminate(-9)

    def close(self):
        pass


def parcel(function, args, options):
    """Pickles a call; what can't be pickled is an error where the call would be."""
    try:
        return pickle.dumps((function, args, options))
    except Exception as error:
        return error


def opened(given):
    if isinstance(given, Exception):
        raise given
    return pickle.loads(given)


def isolated(given):
    function, args, options = opened(given)
    return opened(pickle.dumps(at_home(function)(*args, **options)))


def begin(kind, initializer, args):
    """Makes the thread of a pool a process."""
    from multiprocessing import process

    worker, number = process.BaseProcess(), next(numbers)
    worker._config = {**worker._config, "daemon": True, "pid": os.getpid() + number}
    worker._name = f"{kind}-{worker._identity[-1]}"
    enter(worker, number)
    if initializer is not None:
        at_home(initializer)(*args)


class ProcessPoolExecutor(ThreadPoolExecutor):
    def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), *, max_tasks_per_child=None):
        given = "Process", initializer, handed(initargs)
        super().__init__(max_workers or os.cpu_count() or 1, initializer=begin, initargs=given)

    def submit(self, fn, /, *args, **kwargs):
        return super().submit(isolated, parcel(fn, args, kwargs))


class ThreadPool:
    """`multiprocessing.pool.ThreadPool` on an executor."""

    def __init__(self, processes=None, initializer=None, initargs=()):
        processes = os.cpu_count() or 1 if processes is None else processes
        if processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._processes = processes
        self._state = "RUN"
        self._executor = self._open(initializer, initargs)

    def _open(self, initializer, initargs):
        return ThreadPoolExecutor(self._processes, initializer=initializer, initargs=initargs)

    def _submit(self, function, args, options={}):
        if self._state != "RUN":
            raise ValueError("Pool not running")
        return self._executor.submit(function, *args, **options)

    def apply(self, func, args=(), kwds={}):
        return self.apply_async(func, args, kwds).get()

    def apply_async(self, func, args=(), kwds={}, callback=None, error_callback=None):
        return Result([self._submit(func, args, kwds)], lambda results: results[0], callback, error_callback)

    def map(self, func, iterable, chunksize=None):
        return self.map_async(func, iterable).get()

    def starmap(self, func, iterable, chunksize=None):
        return self.starmap_async(func, iterable).get()

    def map_async(self, func, iterable, chunksize=None, callback=None, error_callback=None):
        return self.starmap_async(func, [(one,) for one in iterable], None, callback, error_callback)

    def starmap_async(self, func, iterable, chunksize=None, callback=None, error_callback=None):
        return Result([self._submit(func, args) for args in list(iterable)], list, callback, error_callback)

    def imap(self, func, iterable, chunksize=1):
        return Results([self._submit(func, (one,)) for one in iterable], False)

    def imap_unordered(self, func, iterable, chunksize=1):
        return Results([self._submit(func, (one,)) for one in iterable], True)

    def close(self):
        if self._state == "RUN":
            self._state = "CLOSE"
            self._executor.shutdown(wait=False)

    def terminate(self):
        self._state = "TERMINATE"
        self._executor.shutdown(wait=False, cancel_futures=True)

    def join(self):
        if self._state == "RUN":
            raise ValueError("Pool is still running")
        self._executor.shutdown(wait=True)

    def __enter__(self):
        if self._state != "RUN":
            raise ValueError("Pool not running")
        return self

    def __exit__(self, *error):
        self.terminate()


class Pool(ThreadPool):
    """`multiprocessing.Pool`."""

    def __init__(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None):
        super().__init__(processes, initializer, initargs)

    def _open(self, initializer, initargs):
        given = "SpawnPoolWorker", initializer, handed(initargs)
        return ThreadPoolExecutor(self._processes, initializer=begin, initargs=given)

    def _submit(self, function, args, options={}):
        return super()._submit(isolated, (parcel(function, args, options),))


class Result:
    """`AsyncResult` and `MapResult`."""

    def __init__(self, futures, join, callback, error_callback):
        self._futures, self._join = futures, join
        self._callbacks = callback, error_callback
        self._left, self._ended = len(futures), threading.Event()
        for future in futures:
            future.add_done_callback(self._note)
        if not futures:
            self._ended.set()
        if not futures and callback is not None:
            callback([])

    def _note(self, future):
        self._left -= 1
        callback = self._callbacks[self._failed() is not None] if not self._left else None
        if callback is not None:
            callback(self._failed() or self._results())
        if not self._left:
            self._ended.set()

    def _failed(self):
        errors = (None if one.cancelled() else one.exception() for one in self._futures)
        return next((error for error in errors if error is not None), None)

    def _results(self):
        return self._join([future.result() for future in self._futures])

    def ready(self):
        return not self._left

    def successful(self):
        if self._left:
            raise ValueError(f"{self!r} not ready")
        return self._failed() is None

    def wait(self, timeout=None):
        self._ended.wait(timeout)

    def get(self, timeout=None):
        self.wait(timeout)
        if self._left:
            from multiprocessing import TimeoutError

            raise TimeoutError
        if self._failed() is not None:
            raise self._failed()
        return self._results()


class Results:
    """What `imap` and `imap_unordered` return."""

    def __init__(self, futures, by_end):
        self._count, self._ended = len(futures), queue.SimpleQueue()
        self._futures = None if by_end else iter(futures)
        for future in futures if by_end else ():
            future.add_done_callback(self._ended.put)

    def __iter__(self):
        return self

    def next(self, timeout=None):
        if not self._count:
            raise StopIteration
        self._count -= 1
        future = self._ended.get(timeout=timeout) if self._futures is None else next(self._futures)
        return future.result(timeout)

    __next__ = next


# What modules have here, by the class that has it or the module itself.
MAKERS = {
    "BaseContext": {
        **LOCKS, "Queue": Queue, "JoinableQueue": Queue, "SimpleQueue": Queue, "Pipe": new_pipe, "Pool": Pool,
        "Manager": Manager, "Value": Value, "Array": Array, "RawValue": Value, "RawArray": Array,
    },
    "": {"Pool": Pool, "ThreadPool": ThreadPool, "ProcessPoolExecutor": ProcessPoolExecutor},
}


def adapt(module):
    if not hatchery._has_threads:
        return _system.adapt(module)
    if hasattr(module, "current_process"):
        main, getpid = module.current_process, os.getpid
        module.current_process = lambda: here.process or main()
        os.getpid = lambda: getpid() + here.number
        # For `shared_memory`: no process removes what is left, but the run's end.
        nothing = lambda name, rtype: None
        tracker = types.SimpleNamespace(register=nothing, unregister=nothing)
        sys.modules["multiprocessing"].resource_tracker = tracker
    for owner, makers in MAKERS.items():
        owner = getattr(module, owner, None) if owner else module
        for name, maker in makers.items():
            if hasattr(owner, name):
                setattr(owner, name, staticmethod(maker) if owner is not module else maker)
    for kind in list(vars(module).values()):
        if isinstance(kind, type) and "_Popen" in vars(kind):
            kind._Popen = staticmethod(Popen)


ADAPT = dict.fromkeys(("multiprocessing.pool", *_system.FAILING), adapt)
