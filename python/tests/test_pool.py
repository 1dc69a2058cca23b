"""Jobs and their outcomes."""

import concurrent.futures
import http.server
import os
import pickle
import signal
import threading
import time

import pytest

from hatchery_sandbox import (
    Display,
    FileChanged,
    InvalidJobError,
    Job,
    LimitError,
    Limits,
    MemoryLimitError,
    Output,
    Pool,
    PoolClosedError,
    PoolError,
    ProgramError,
    ProgramExitedError,
    ProgramRaisedError,
    RefusedError,
    SessionSettings,
    StartError,
    Started,
    TimeLimitError,
    UnsupportedValueError,
)

ENDLESS = "while True: pass"


def test_a_program_has_a_value_and_output(pool):
    outcome = pool.run("import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
    assert (outcome.value, outcome.repr) == (42, "42")
    assert (outcome.stdout, outcome.stderr) == ("out\n", "err\n")
    assert outcome.status == "completed" and outcome.success and outcome.passed
    assert outcome.usage.wall_ms > 0
    assert outcome.raise_for_status() is outcome


def test_a_job_is_given_what_its_options_say(pool):
    program = """
import os, sys
print(sys.argv[1:], os.environ["A"], sys.stdin.read(), open("in.txt").read(), n)
open("out.bin", "wb").write(b"\\xff"); os.remove("in.txt")
"""
    outcome = pool.run(
        program,
        args=["x"],
        env={"A": "b"},
        stdin=b"typed",
        files={"in.txt": "given", "dir/other": b"\xfe"},
        variables={"n": 2**70},
    )
    assert outcome.stdout == f"['x'] b typed given {2**70}\n"
    assert outcome.files["out.bin"].data == b"\xff"
    assert outcome.files["in.txt"].change == "deleted"
    without = pool.run("open('a', 'w').write('x')", contents=False)
    assert without.files["a"].data is None and without.files["a"].size == 1


def test_a_function_of_a_module_is_called(pool):
    assert pool.run(Job.call("math:gcd", 12, 18)).value == 6
    assert pool.run(Job.call("builtins:sorted", [2, 3], reverse=True)).value == [3, 2]
    for value in ((1, 2), {1: 2, "1": 3}, {1}, float("inf"), b"x"):
        assert pool.run(Job.call("copy:copy", value)).get_value() == value
        assert pool.run(Job.call("builtins:dict", a=value)).get_value() == {"a": value}
    with pytest.raises(UnsupportedValueError, match="argument 2"):
        pool.run(Job.call("builtins:print", 1, object()))
    job = Job("x + y", variables={"x": 1})
    assert pool.run(job.with_options(variables={"x": 2, "y": 3})).value == 5


def test_a_seed_determines_the_run(pool):
    program = "import random, time; [random.random(), time.time()]"
    assert pool.run(program, seed=7).value == pool.run(program, seed=7).value
    assert pool.run(program).value != pool.run(program).value


def test_the_programs_doing_is_one_family(pool):
    with pytest.raises(ProgramRaisedError, match="ZeroDivisionError") as raised:
        pool.run("1/0").raise_for_status()
    exception = raised.value.exception
    assert (exception.type, exception.message) == ("ZeroDivisionError", "division by zero")
    assert "Traceback" in exception.traceback
    assert raised.value.outcome.status == "raised"
    with pytest.raises(ProgramExitedError, match="code 3"):
        pool.run("import sys; sys.exit(3)").raise_for_status()
    assert not isinstance(raised.value, (LimitError, PoolError))
    # An exception that says it is a timeout is the program's.
    with pytest.raises(ProgramError):
        pool.run("raise TimeoutError").raise_for_status()


def test_limits_are_another(pool):
    with pytest.raises(TimeLimitError, match="wall") as raised:
        pool.run(ENDLESS, timeout=0.2).raise_for_status()
    assert raised.value.limit == "wall" and raised.value.outcome.timed_out
    assert not isinstance(raised.value, (ProgramError, PoolError, TimeoutError))
    with pytest.raises(TimeLimitError, match="cpu"):
        pool.run(ENDLESS, cpu_time=0.2).raise_for_status()


@pytest.mark.parametrize(
    "program",
    [
        "[0] * 10**8",
        "[0] * 2**30",
        "b'a' * (500 << 20)",
        "s = 'a'\nwhile True: s += s",
        "l = []\nwhile True: l.append('x' * 10**6)",
        "l = []\nwhile True: l.append([])",
        "import numpy; numpy.ones(10**8)",
        "import numpy; numpy.ones(10**9)",
    ],
)
def test_who_takes_too_much_memory_meets_a_limit(pool, program):
    with pytest.raises(MemoryLimitError) as raised:
        pool.run(program, limits=Limits(memory=128 << 20)).raise_for_status()
    assert raised.value.limit == "memory" and raised.value.outcome is not None


def test_a_memory_error_of_the_program_is_its_own(pool):
    for program in ("raise MemoryError", "def f():\n    raise MemoryError('x')\nf()"):
        with pytest.raises(ProgramRaisedError):
            pool.run(program).raise_for_status()


def test_advice_is_in_the_words_of_python(pool):
    for code, advice in [
        ("while True: pass", "; `timeout=` raises it"),
        ("open('a.csv')", 'If `a.csv` is your file, `files={"a.csv": …}` gives it a copy.'),
        ("input()", "`stdin=` gives it some"),
        ("import nowhere", "`Pool(packages=[…])`"),
        ("import docx", "Add it with `Pool(packages_common=True)`"),
    ]:
        with pytest.raises((ProgramError, TimeLimitError)) as raised:
            pool.run(code, timeout=0.5).raise_for_status()
        assert advice in str(raised.value) and "--" not in str(raised.value), raised.value
    outcome = pool.run("print('x' * 99)", limits=Limits(output=9))
    assert outcome.limits_met[0].limit == "output"


def test_ours_is_the_third(pool):
    with pytest.raises(InvalidJobError, match="timeout") as raised:
        pool.run("1", timeout=-1)
    assert isinstance(raised.value, PoolError) and isinstance(raised.value, ValueError)
    assert not isinstance(raised.value, (ProgramError, LimitError))
    with pytest.raises(TypeError, match="no option `time`"):
        pool.run("1", time=1)
    with pytest.raises(TypeError):
        pool.run(b"1")
    with pytest.raises(ValueError, match="Unicode"):
        pool.run("'\ud800'")
    # Nothing of that has hurt the pool.
    assert pool.run("1").value == 1


def test_futures_are_those_of_the_standard_library(pool):
    futures = [pool.submit(f"{number} ** 2") for number in range(50)]
    done = list(concurrent.futures.as_completed(futures))
    assert len(done) == 50
    assert [future.result().value for future in futures] == [n**2 for n in range(50)]
    _, waiting = concurrent.futures.wait(futures)
    assert not waiting


def test_a_running_job_is_cancelled_for_real(pool):
    future = pool.submit(ENDLESS, events=True)
    assert next(iter(future.events())) == Started()
    assert future.cancel() and future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    deadline = time.monotonic() + 20
    while pool.status()["counts"]["running"] if "counts" in pool.status() else False:
        assert time.monotonic() < deadline
    done = pool.submit("1")
    done.result()
    assert not done.cancel()


def test_a_future_that_is_dropped_cancels_its_program():
    """Also one of hundreds, of which most haven't been sent yet, and one whose stream was left."""
    with Pool(workers=1, timeout=60) as pool:
        for leave in (
            lambda: pool.submit(ENDLESS),
            lambda: [pool.submit(ENDLESS) for _ in range(300)],
            lambda: next(iter(pool.submit(ENDLESS, events=True).events())),
            lambda: pool.submit(ENDLESS, functions={"f": time.time}),
        ):
            leave()
            assert pool.run("1", timeout=20).value == 1
        with pool.session() as session:
            session.run("x = 1")
            for _ in session.submit(ENDLESS, events=True).events():
                break
            assert session.run("x", timeout=20).value == 1
        # Not while somebody follows it, or is to be called.
        seen = [event for event in pool.submit("print(1)", events=True).events()]
        assert any(isinstance(event, Output) for event in seen)
        called: concurrent.futures.Future[int] = concurrent.futures.Future()
        pool.submit("import time; time.sleep(0.2); 7").add_done_callback(
            lambda future: called.set_result(future.result().value)
        )
        assert called.result(20) == 7
        assert pool.run("1").value == 1 and not pool._launcher.client().kept


def test_an_interrupt_is_a_keyboard_interrupt(pool):
    program = """
try:
    print("begun", flush=True)
    while True: pass
except KeyboardInterrupt:
    answer = "interrupted"
answer
"""
    future = pool.submit(program, events=True)
    for event in future.events():
        if isinstance(event, Output):
            future.interrupt()
    assert future.result().value == "interrupted"
    stopped = pool.submit(ENDLESS)
    stopped.stop()
    assert stopped.result().status == "cancelled"


def test_events_tell_what_happens(pool):
    program = "print('a'); display(1); open('f', 'w').close(); print('b')"
    seen = []
    outcome = pool.run(program, on_event=seen.append)
    assert outcome.success
    assert seen[0] == Started()
    text = "".join(event.text for event in seen if isinstance(event, Output))
    assert text == "a\nb\n"
    assert any(isinstance(event, Display) for event in seen)
    assert FileChanged("f", "created") in seen
    future = pool.submit(program, events=True)
    future.result()
    assert list(future.events()) == list(future.events())
    with pytest.raises(ValueError, match="events=True"):
        pool.submit("1").events()


def test_many_jobs_are_mapped(pool):
    jobs = (f"{number} + 1" for number in range(2000))
    outcomes = list(pool.map(jobs))
    assert sorted((outcome.index, outcome.value) for outcome in outcomes) == [
        (number, number + 1) for number in range(2000)
    ]
    slow_first = ["import time; time.sleep(0.3); 0", *(str(number) for number in range(1, 100))]
    assert [outcome.value for outcome in pool.map(slow_first, ordered=True)] == list(range(100))
    given = pool.map([Job("x", variables={"x": 1}), "y"], ordered=True, variables={"y": 2})
    assert next(given).status == "raised"


def test_map_shows_progress_by_the_protocol_of_tqdm(pool):
    class Bar:
        def __init__(self, total):
            self.total, self.done, self.closed = total, 0, False
            bars.append(self)

        def update(self, n=1):
            self.done += n

        def close(self):
            self.closed = True

    bars = []
    list(pool.map(["1"] * 30, progress=Bar))
    assert [(bar.total, bar.done, bar.closed) for bar in bars] == [(30, 30, True)]
    list(pool.map(["1"] * 3, progress=True))


def test_ending_a_map_cancels_its_jobs(pool):
    outcomes = pool.map([*["1"] * 10, *[ENDLESS] * 10])
    assert next(outcomes).value == 1
    outcomes.close()
    assert pool.run("2").value == 2


def test_a_full_queue_is_tried_again_by_map():
    with Pool(workers=1, queue=2) as pool:
        jobs = ["import time; time.sleep(0.01); 1"] * 40
        assert sum(outcome.value for outcome in pool.map(jobs)) == 40
        # More than the server's queue holds wait here.
        futures = [pool.submit(job) for job in jobs]
        assert all(future.result().success for future in futures)


def test_threads_share_a_pool(pool):
    values = []

    def run(number):
        values.append([pool.run(f"{number} * {n}").value for n in range(20)])

    threads = [threading.Thread(target=run, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values) == [[number * n for n in range(20)] for number in range(8)]


def test_large_programs_and_outputs_pass(pool):
    text = "x" * 900_000
    assert len(pool.run(f"'{text}'", limits=Limits(result=4 << 20)).value) == len(text)
    futures = [pool.submit("len(data)", variables={"data": bytes(3 << 20)}) for _ in range(20)]
    assert [future.result().value for future in futures] == [3 << 20] * 20


def test_outcomes_are_pickled_as_data(pool):
    outcome = pool.run("print('x'); b'raw'")
    again = pickle.loads(pickle.dumps(outcome))
    assert (again.value, again.stdout, repr(again)) == (b"raw", "x\n", repr(outcome))
    error = pytest.raises(ProgramRaisedError, pool.run("1/0").raise_for_status).value
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.exception == error.exception


def test_a_closed_pool_says_so():
    pool = Pool(workers=1)
    running = pool.submit(ENDLESS)
    pool.close()
    with pytest.raises(PoolClosedError):
        running.result()
    with pytest.raises(PoolClosedError):
        pool.run("1")
    pool.close()


def test_leaving_a_pool_waits_for_its_jobs():
    with Pool(workers=1) as pool:
        futures = [pool.submit(f"import time; time.sleep(0.05); {n}") for n in range(5)]
    assert [future.result().value for future in futures] == list(range(5))
    with pytest.raises(KeyError), Pool(workers=1) as pool:
        pool.submit(ENDLESS)
        raise KeyError


def test_a_pool_that_cannot_start_says_why(tmp_path):
    with pytest.raises(StartError, match="no program|is not a program"):
        Pool(binary=tmp_path / "none").start()
    with pytest.raises(StartError, match="nosuchmodule"):
        Pool(preload=["nosuchmodule"]).start()
    with pytest.raises(StartError, match="code"):
        Pool(binary="/bin/false").start()
    with pytest.raises(StartError, match="hatchery serve --unix"):
        Pool.connect(tmp_path / "none").run("1")


def test_a_pool_may_learn_what_its_programs_import():
    for preload in ["auto", ["none"]]:
        with Pool(workers=1, preload=preload) as pool:
            assert pool.run("import sys; 'statistics' in sys.modules").value is False
            assert pool.preload == [] and pool.status()["hidden"] == []


def test_the_options_are_the_servers(tmp_path):
    setup = tmp_path / "setup.py"
    setup.write_text("answer = 42")
    package = tmp_path / "shapes"
    package.mkdir()
    (package / "__init__.py").write_text("side = 3")
    limits = Limits(cpu_time=5, memory=512 << 20, output=10, stop_at_output_limit=True)
    with Pool(workers=(1, 2), queue=50, setup=setup, packages=[package], limits=limits) as pool:
        assert pool.run("import shapes; answer + shapes.side").value == 45
        assert pool.run("print('x' * 100)").limit.limit == "output"
        assert pool.preload == []
        assert "<Pool workers=(1, 2)" in repr(pool)


def test_a_pool_drains():
    pool = Pool(workers=1).start()
    future = pool.submit("import time; time.sleep(0.2); 1")
    pool.drain()
    assert future.result().value == 1
    assert pool.is_closed


def test_a_caller_that_reads_holds_up_nobody(pool):
    ended, ends = threading.Event(), []

    def wait():
        ends.append(pool.run("import time; time.sleep(1.5); 'slow'").value)
        ended.set()

    pool.run("1")
    thread = threading.Thread(target=wait)
    thread.start()
    while not pool._launcher.current()._attending:
        time.sleep(0.001)
    # One that comes later ends earlier, in each way of waiting.
    assert pool.run("1 + 1").value == 2
    assert pool.submit("1 + 2").result().value == 3
    assert pool.submit("1 + 3").result(timeout=20).value == 4
    (done, _) = concurrent.futures.wait([pool.submit("1 + 4")], timeout=20)
    assert [future.result().value for future in done] == [5]
    assert pool.status()["workers"] and not ended.is_set()
    thread.join(20)
    assert ends == ["slow"]


def test_many_threads_wait_at_once(pool):
    def wait(number):
        with pool.session() as session:
            session.run(f"x = {number}")
            many = [pool.run(f"{number} + {n}").value for n in range(20)]
            assert many == [number + n for n in range(20)]
            return session.run("x").value + pool.submit("1").result().value

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(wait, range(24))) == [number + 1 for number in range(24)]
    client = pool._launcher.current()
    assert not client._handlers and not client._requests


def test_a_future_has_ended_only_once_for_all_who_wait(pool):
    future = pool.submit("import time; time.sleep(0.3); 7")
    ends = []
    threads = [threading.Thread(target=lambda: ends.append(future.result().value)) for _ in range(5)]
    threads.append(threading.Thread(target=lambda: ends.append(future.result(timeout=20).value)))
    for thread in threads:
        thread.start()
    future.add_done_callback(lambda future: ends.append(future.result().value))
    for thread in threads:
        thread.join(20)
    while len(ends) < 7:
        time.sleep(0.001)
    assert ends == [7] * 7


def test_what_map_cannot_run_is_an_outcome_and_the_rest_goes_on(pool):
    jobs = ["1", Job("x", variables={"x": object()}), Job("2", tenant=5), Job("3", timeout=-1), "4", None]
    outcomes = list(pool.map(jobs, ordered=True))
    assert [outcome.status for outcome in outcomes] == [
        "completed", "not_run", "not_run", "not_run", "completed", "not_run"
    ]
    assert [outcome.index for outcome in outcomes] == list(range(6))
    failed = outcomes[1]
    assert not failed.success and not failed.passed and failed.value is None and failed.files == {}
    assert "`x`" in failed.message and "not_run" in repr(failed)
    with pytest.raises(UnsupportedValueError, match="`x`"):
        failed.raise_for_status()
    with pytest.raises(InvalidJobError, match="timeout"):
        outcomes[3].get_value()
    assert {outcome.index for outcome in pool.map(jobs)} == set(range(6))
    with pytest.raises(TypeError, match="no option `time`"):
        pool.map(["1"], time=1)


def test_map_sends_again_what_a_server_loses():
    with Pool(workers=2) as pool:
        seen = []
        for outcome in pool.map((f"{n}" for n in range(600)), ordered=True):
            if outcome.index in (100, 300):
                os.kill(pool._launcher.current()._connection._process.pid, signal.SIGKILL)
            seen.append(outcome.value)
        assert seen == list(range(600))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"files": {"a": 5}}, "the file `a` must be text or bytes, not int"),
        ({"stdin": 0}, "standard input"),
        ({"args": "abc"}, "args"),
        ({"args": 5}, "args must be a list of texts, not int"),
        ({"files": ["a"]}, "files must be a dictionary, not list"),
        ({"variables": 5}, "variables must be a dictionary"),
        ({"limits": {"memory": 1 << 28}}, "Limits"),
        ({"variables": {"x": [object()]}}, r"the variable `x` .*`\[0\]` is of the type object"),
        ({"variables": {"x": "\ud800"}}, "the variable `x` .*surrogates"),
    ],
)
def test_wrong_arguments_are_named(pool, options, text):
    with pytest.raises(TypeError, match=text):
        pool.run("1", **options)


def test_a_mistake_of_the_caller_is_no_failure_of_the_sandbox(pool):
    for path in ("x" * 256, "/".join("d" * 400), "../x", "/abs", ""):
        with pytest.raises(InvalidJobError):
            pool.run("1", files={path: "x"})
    with pytest.raises(InvalidJobError, match="the state isn't a saved session") as raised:
        pool.revive(None, b"garbage")
    assert "/tmp" not in str(raised.value)
    with pytest.raises(InvalidJobError, match="doesn't begin with"):
        pool.run("1", functions={"__x__": lambda: 1})
    for options, text in [
        ({"timeout": -1}, "^`timeout` is -1"),
        ({"seed": "x"}, "^`seed` must be a whole number"),
    ]:
        with pytest.raises(InvalidJobError, match=text):
            pool.run("1", **options)
    with pytest.raises(ValueError, match="queue"):
        Pool(queue=0)
    for workers in (0, -1, "a", (3, 1), (1,)):
        with pytest.raises(ValueError, match="workers must be a number from 1, or"):
            Pool(workers=workers)
    with pytest.raises(TypeError, match="sessions must be SessionSettings"):
        Pool(sessions=5)
    with pytest.raises(TypeError, match="timeout must be a number"):
        Pool(timeout="5")
    with pytest.raises(TypeError, match="Limits"):
        Pool(limits={"memory": 1 << 28})


def test_all_settings_of_the_server_can_be_given(tmp_path):
    with pytest.raises(StartError, match="sockets"):
        Pool(allow_connect="127.0.0.1:9").start()
    (tmp_path / "data.txt").write_text("read me")
    options = {
        "isolation": "process",
        "mounts": {"/data": tmp_path},
        "sessions": SessionSettings(open=2, in_memory=2, disk_bytes=1 << 30, close_after=3600),
        "limits": Limits(function_calls=2, result_data=100),
    }
    with Pool(workers=1, **options) as pool:
        assert pool.run("open('/data/data.txt').read()").value == "read me"
        assert pool.status()["isolation"]["workers_in"] == "processes"
        with pool.session() as session, pool.session():
            assert session.run("open('/data/data.txt').read()").value == "read me"
            with pytest.raises(RefusedError):
                pool.session()
        program = "from hatchery import host\n[host.f() for _ in range(%d)]"
        functions = {"f": lambda: 1}
        assert pool.run(program % 2, functions=functions).value == [1, 1]
        assert pool.run(program % 3, functions=functions).exception.type == "hatchery.HostLimitError"
        raised = Limits(function_calls=3)
        assert pool.run(program % 3, functions=functions, limits=raised).value == [1, 1, 1]
        outcome = pool.run("bytes(101)")
        assert "limit" in outcome.value_missing
        assert pool.run("bytes(101)", limits=Limits(result_data=1000)).value == bytes(101)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"limits": Limits(memory=5)}, "`memory` can't be `5B`: give 32MiB to 4GiB"),
        ({"isolation": "none"}, "`isolation` can't be `none`: possible values: threads, process"),
        ({"allow_connect": "x"}, "`allow_connect` can't be `x`: `x` isn't a destination"),
        ({"preload": "--version"}, "`preload` can't be `--version`: a module's name"),
        ({"setup": "/nowhere.py"}, "can't read the setup `/nowhere.py`: No such file"),
    ],
)
def test_what_a_pool_cannot_start_with_is_told_in_words_of_python(options, text):
    with pytest.raises(StartError, match=f"(?s)^the pool couldn't be started: {text}") as raised:
        Pool(workers=1, **options).start()
    for word in ("error:", "For more information", "hatchery serve"):
        assert word not in str(raised.value)


class _Echo(http.server.BaseHTTPRequestHandler):
    """Answers each request with the value of one of its headers."""

    def do_GET(self):
        body = self.headers.get("X-Key", "").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.keys.append(body.decode())

    def log_message(self, *_):
        pass


def test_programs_make_the_requests_that_are_allowed(monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Echo) as server:
        server.keys = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OWN_KEY", "value-of-the-key")
        source = (
            "import os, urllib.request as r\n"
            f"q = r.Request('{origin}/a', headers={{'X-Key': os.environ['KEY']}})\n"
            "r.urlopen(q).read().decode()"
        )
        with Pool(
            workers=1, egress=f"GET {origin}/*", secrets=f"KEY=env:OWN_KEY@{origin}"
        ) as pool:
            outcome = pool.run(source)
            assert outcome.get_value().startswith("hatchery-secret-KEY-")
            [request] = outcome.requests
            assert (request.method, request.url, request.status) == ("GET", f"{origin}/a", 200)
            refused = pool.run(source, egress=[f"GET {origin}/b"])
            assert "no rule allows" in (refused.message or "")
            assert [request.failure and request.failure["kind"] for request in refused.requests] == [
                "rule"
            ]
            with pytest.raises(InvalidJobError, match="write methods and a URL"):
                pool.run("1", egress="nothing")
        server.shutdown()
        assert server.keys == ["value-of-the-key"]
    with pytest.raises(StartError, match="write methods and a URL"):
        Pool(egress="nothing").start()


def test_a_package_index_is_found_from_any_folder():
    pool = Pool(requirements="names.txt", package_index="wheels")
    assert f"--package-index={os.path.abspath('wheels')}" in pool._config.arguments()
