"""Ends, forks, signals: whatever happens to the process, nothing hangs and nothing stays behind."""

import concurrent.futures
import faulthandler
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from hatchery_sandbox import ConnectionLostError, Pool, PoolClosedError, StartError, _config

REPETITIONS = int(os.environ.get("HATCHERY_REPETITIONS", "2"))
ENDLESS = "while True: pass"


def server_of(pool):
    return pool._launcher.current()._connection._process.pid


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # also between opening and reading
        return False


def until_ended(pid):
    deadline = time.monotonic() + 20
    while is_running(pid):
        assert time.monotonic() < deadline, f"the server {pid} runs on"
        os.sched_yield()


def script(text):
    """Starts a program of the host that prints its server's pid."""
    beginning = """
        import os, signal, sys, threading, time
        from hatchery_sandbox import Pool, AsyncPool
        def server_of(pool): return pool._launcher.current()._connection._process.pid
    """
    code = textwrap.dedent(beginning) + textwrap.dedent(text)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("repetition", range(REPETITIONS))
@pytest.mark.parametrize("how", ["kill", "exit", "_exit", "raise", "close"])
def test_the_server_ends_with_its_process(how, repetition):
    parent = script(
        f"""
        pool = Pool(workers=1).start()
        future = pool.submit("while True: pass", events=True)
        next(iter(future.events()))
        print(server_of(pool), flush=True)
        how = {how!r}
        if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit": sys.exit()
        if how == "_exit": os._exit(0)
        if how == "raise": raise SystemExit(3)
        pool.close()
        """
    )
    pid = int(parent.stdout.readline())
    assert parent.wait(20) == {"kill": -9, "raise": 3}.get(how, 0)
    parent.stdout.close()
    until_ended(pid)


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_forked_children_do_not_keep_the_server(repetition):
    parent = script(
        """
        pool = Pool(workers=1).start()
        print(server_of(pool), flush=True)
        if os.fork() == 0:
            sys.stdin.read()  # stays until the test closes it
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    pid = int(parent.stdout.readline())
    assert parent.wait(20) == -9
    until_ended(pid)
    parent.stdout.close()


def test_ctrl_c_interrupts_what_runs_and_leaves_the_pool():
    program = script(
        """
        with Pool(workers=1) as pool, pool.session() as session:
            session.run("x = 1")
            for _ in range(3):
                def press():
                    time.sleep(0.3)
                    os.kill(os.getpid(), signal.SIGINT)
                threading.Thread(target=press).start()
                try:
                    session.run("while True: x += 1")
                    print("not interrupted")
                except KeyboardInterrupt:
                    print("interrupted", session.run("x > 1").value, pool.run("2").value, flush=True)
        """
    )
    printed, _ = program.communicate(timeout=60)
    assert printed == "interrupted True 2\n" * 3
    assert program.returncode == 0


def test_ctrl_c_at_a_terminal_is_for_the_host_alone():
    # As a terminal does: to the whole process group.
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                from hatchery_sandbox import Pool
                pool = Pool(workers=1).start()
                pool.submit("1").result()
                print("begun", flush=True)
                try:
                    pool.run("while True: pass")
                except KeyboardInterrupt:
                    print(pool.run("'still here'").value)
                """
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout.readline() == "begun\n"
    time.sleep(0.3)
    os.killpg(program.pid, signal.SIGINT)
    assert program.communicate(timeout=30)[0] == "still here\n"


def test_interrupts_at_any_moment_leave_the_pool_usable(pool):
    """Whatever an interrupt cuts short, frames stay whole."""

    class Pressed(Exception):
        pass

    def press(_signal, _frame):
        raise Pressed

    earlier = signal.signal(signal.SIGALRM, press)
    try:
        count = 0
        for step in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + step * 5e-6)
                pool.run("x", variables={"x": "y" * 100})
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Pressed:
                count += 1
        assert count > 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
    assert [pool.run(f"{n}").value for n in range(100)] == list(range(100))


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_a_killed_server_ends_each_job_once_and_is_replaced(repetition):
    with Pool(workers=2) as pool:
        pool.start()
        futures = [pool.submit("import time; time.sleep(0.01)") for _ in range(1000)]
        ends, told = [], threading.Semaphore(0)

        def end(future):
            ends.append(future)
            told.release()

        for future in futures:
            future.add_done_callback(end)
        futures[10].result()
        os.kill(server_of(pool), signal.SIGKILL)
        concurrent.futures.wait(futures)
        assert all(told.acquire(timeout=20) for _ in futures) and len(set(ends)) == len(ends)
        errors = {str(future.exception()) for future in futures if future.exception()}
        assert errors == {"the server was killed by signal 9"}
        assert all(
            isinstance(future.exception(), (ConnectionLostError, type(None))) for future in futures
        )
        assert pool.run("1 + 1").value == 2


def test_a_server_that_is_killed_at_rest_is_replaced():
    def kill():
        ends = select.poll()
        ends.register(pool._launcher.current()._connection.descriptor, 0)
        os.kill(server_of(pool), signal.SIGKILL)
        assert ends.poll(20_000), "its streams end with it"

    with Pool(workers=1) as pool:
        for _ in range(3):
            assert pool.run("1 + 1").value == 2
            kill()
        assert pool.submit("2 + 2").result().value == 4
        kill()
    assert pool.is_closed


def test_a_server_that_is_killed_ends_a_job_whose_caller_reads():
    with Pool(workers=1) as pool:
        pool.run("1")
        threading.Timer(0.3, lambda: os.kill(server_of(pool), signal.SIGKILL)).start()
        with pytest.raises(ConnectionLostError, match="killed by signal 9"):
            pool.run(ENDLESS)
        assert pool.run("1 + 1").value == 2


def in_child(pool, number):
    return os.getpid(), pool.run(f"{number} * 2").value


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_work_in_other_processes(pool, method):
    assert pool.run("1").value == 1
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        results = list(executor.map(in_child, [pool] * 10, range(10)))
    assert [value for _, value in results] == [number * 2 for number in range(10)]
    assert os.getpid() not in {pid for pid, _ in results}
    assert pool.run("2").value == 2


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_a_fork_while_jobs_run_hurts_neither(pool, repetition):
    futures = [pool.submit(f"{n}") for n in range(200)]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if pool.run("20 + 1").value == 21 else 2
            pool.close()
        finally:
            os._exit(code)
    assert [future.result().value for future in futures] == list(range(200))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_build_is_a_path_or_the_name_of_one_that_is_fetched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _config.build("a.wasm") == str(tmp_path / "a.wasm")
    assert _config.build("pyodide") == "pyodide"
    (tmp_path / "pyodide").mkdir()
    assert _config.build("pyodide") == str(tmp_path / "pyodide")


def test_a_pickled_pool_is_its_configuration(pool):
    assert pickle.loads(pickle.dumps(pool)) is pool
    other = Pool(workers=1)
    data = pickle.dumps(other)
    assert b"workers" in data and len(data) < 2000
    del other
    first, second = pickle.loads(data), pickle.loads(data)
    assert first is second and first.run("3").value == 3
    first.close()


def test_handlers_of_the_process_stay_its_own(pool):
    caught = []
    earlier = signal.signal(signal.SIGCHLD, lambda *_: caught.append(1))
    is_enabled = faulthandler.is_enabled()
    try:
        for _ in range(REPETITIONS):
            faulthandler.enable()
            assert pool.run("[0] * 10").success
            faulthandler.disable()
            assert pool.run(ENDLESS, timeout=0.1).timed_out
        with Pool(workers=1) as own:
            assert own.run("1").value == 1
        assert signal.getsignal(signal.SIGSEGV) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, earlier)
        if is_enabled:
            faulthandler.enable()


def test_a_pool_that_is_forgotten_ends_its_server():
    pool = Pool(workers=1).start()
    pid = server_of(pool)
    del pool
    until_ended(pid)


def test_jobs_of_threads_end_with_the_process():
    program = script(
        """
        pool = Pool(workers=1).start()
        print(server_of(pool), flush=True)
        for _ in range(3):
            threading.Thread(target=lambda: pool.submit("while True: pass").result(), daemon=True).start()
        time.sleep(0.2)
        """
    )
    pid = int(program.stdout.readline())
    assert program.wait(20) == 0
    program.stdout.close()
    until_ended(pid)


def test_threads_that_wait_learn_of_the_end():
    pool = Pool(workers=1).start()
    ended = threading.Event()

    def wait():
        try:
            pool.run(ENDLESS)
        except Exception:
            ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not pool._launcher.current()._handlers:
        os.sched_yield()
    pool.close()
    thread.join(20)
    assert ended.is_set()


def test_an_interrupted_start_leaves_no_server(tmp_path):
    # A "server" that never gets ready.
    binary = tmp_path / "slow"
    binary.write_text("#!/bin/sh\nexec cat > /dev/null\n")
    binary.chmod(0o700)
    pool = Pool(binary=binary)
    client = pool._launcher.client()
    pid = server_of(pool)
    pool.close()
    until_ended(pid)
    with pytest.raises(Exception, match="closed"):
        client.hello.result()
    with pytest.raises(StartError, match="code 0"):
        Pool(binary="/bin/true").start()


def test_callbacks_may_run_jobs(pool):
    seen, done = [], threading.Event()

    def chain(future):
        seen.append(pool.run("2").value)
        seen.append(pool.submit("3").result().value)
        done.set()

    future = pool.submit("1")
    future.add_done_callback(chain)
    assert done.wait(60) and seen == [2, 3]
    # In order, and after an error of one.
    order, ended = [], threading.Event()
    future = pool.submit("import time; time.sleep(0.1)")
    for number in range(3):
        future.add_done_callback(lambda _, number=number: order.append(number))
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(lambda _: sys.exit(1))
    future.add_done_callback(lambda _: ended.set())
    assert ended.wait(60) and order == [0, 1, 2]


def test_the_end_of_a_pool_waits_for_callbacks():
    seen = []
    with Pool(workers=1) as pool:
        for _ in range(20):
            pool.submit("1").add_done_callback(lambda _: seen.append(pool.run("2").value))
    assert seen == [2] * 20


def test_a_forked_child_has_no_answer_of_its_parents_jobs(pool):
    futures = [pool.submit("import time; time.sleep(1)", events=events) for events in (False, True)]
    futures[0].add_done_callback(lambda _: os.write(2, b""))
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            for future in futures:
                error = future.exception()
                assert isinstance(error, PoolClosedError), error
            assert list(futures[1].events()) is not None
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert all(future.result().success for future in futures)
