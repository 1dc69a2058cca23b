"""States that live from job to job."""

import pickle
import time

import pytest

from hatchery_sandbox import InvalidJobError, Pool, PoolError, RefusedError, UnknownSessionError


def test_a_session_keeps_its_state(pool):
    with pool.session() as session:
        session.run("x = 42")
        assert session.run("x * 2").value == 84
        assert session.name in pool.sessions()
        assert pool.run("'x' in globals()").value is False
    assert session.name not in pool.sessions()


def test_turns_run_in_their_order(pool):
    with pool.session() as session:
        session.run("order = []")
        futures = [session.submit(f"order.append({n})") for n in range(30)]
        assert all(future.result().success for future in futures)
        assert session.run("order").value == list(range(30))


def test_forks_and_checkpoints(pool):
    with pool.session() as session, session.fork() as _:
        session.run("x = 1")
        with session.fork("other-" + session.name) as fork:
            fork.run("x = 2")
            assert (session.run("x").value, fork.run("x").value) == (1, 2)
        checkpoint = session.checkpoint()
        session.run("x = 3")
        session.restore(checkpoint)
        assert session.run("x").value == 1
        session.reset()
        assert session.run("x").status == "raised"


def test_many_forks_are_opened_at_once(pool):
    with pool.session() as session:
        session.run("x = 1")
        forks = session.fork_many(200)
        assert [fork.name for fork in forks][:2] == [f"{session.name}~1", f"{session.name}~2"]
        turns = [fork.submit(f"x += {n}; x") for n, fork in enumerate(forks)]
        assert [turn.result().value for turn in turns] == list(range(1, 201))
        assert session.run("x").value == 1
        rows = {row["name"]: row for row in pool.status()["sessions"]}
        assert rows[forks[5].name]["fork"]["depth"] == 1
        with pytest.raises(InvalidJobError):
            session.fork_many(0)
        with pytest.raises(RefusedError) as refused:
            session.fork_many(10**9)
        assert refused.value.reason == "sessions"


def test_candidates_run_on_forks_and_survivors_stay(pool):
    with pool.session() as session:
        session.run("x = 10")
        programs = [f"x += {n}; 1 / (x % 2); x" for n in range(20)]
        for keep, kept in [
            ("all", 20),
            ("none", 0),
            ("succeeded", 10),
            (3, 3),
            (lambda outcome: outcome.value == 15, 1),
        ]:
            ends = list(session.explore(programs, keep=keep))
            assert sorted(end.candidate for end in ends) == list(range(20))
            for end in ends:
                assert end.outcome.success == (end.candidate % 2 == 1)
            survivors = {end.candidate: end.survivor for end in ends if end.survivor}
            assert len(survivors) == kept
            for candidate, fork in survivors.items():
                assert fork.run("x").value == 10 + candidate
        with pytest.raises(ValueError, match="keep must be"):
            next(session.explore(programs, keep="some"))


def test_an_exploration_that_is_left_cancels_its_candidates(pool):
    with pool.session() as session:
        session.run("x = 1")
        exploration = session.explore(["x"] + ["while True: pass"] * 10)
        assert next(exploration).outcome.value == 1
        exploration.close()
        assert pool.run("6 * 7").value == 42


def test_a_state_with_threads_is_not_copied(pool, tmp_path):
    with pool.session() as session:
        session.run("import threading; go = threading.Event()")
        session.run("thread = threading.Thread(target=go.wait); thread.start()")
        for copy in (session.fork, session.checkpoint, lambda: session.save(tmp_path / "saved")):
            with pytest.raises(RefusedError, match="living threads.*`join` them"):
                copy()
        assert session.run("go.set(); thread.join(); 7").value == 7
        with session.fork() as fork:
            assert fork.run("thread.is_alive()").value is False


def test_files_are_read_without_a_job(pool):
    with pool.session() as session:
        session.run("import os; os.mkdir('d'); open('d/a.bin', 'wb').write(bytes(3))")
        assert session.workspace() == {"d/a.bin": bytes(3)}


def test_a_saved_session_is_revived(pool, tmp_path):
    path = tmp_path / "saved"
    with pool.session() as session:
        session.run("x = [1, 2]")
        state = session.save(path)
    assert path.read_bytes() == state
    with pool.revive(None, path) as revived, pool.revive(None, state) as again:
        assert revived.run("x").value == again.run("x").value == [1, 2]


def test_an_interrupt_leaves_the_variables(pool):
    with pool.session() as session:
        session.run("x = 1")
        future = session.submit("x = 2\nwhile True: pass", events=True)
        next(iter(future.events()))
        future.interrupt()
        assert future.result().exception.type == "KeyboardInterrupt"
        assert session.run("x").value in (1, 2)
        running = session.submit("while True: pass")
        assert running.cancel()
        assert session.run("x").success


def test_refusals_have_a_reason(pool):
    with pool.session() as session:
        with pytest.raises(RefusedError) as refused:
            pool.session(session.name)
        assert refused.value.reason == "session_exists"
        assert pool.attach(session.name).run("1").value == 1
    with pytest.raises(Exception, match="session"):
        session.run("1")
    with pytest.raises(TypeError, match="attach"):
        pickle.dumps(session)


def test_a_session_that_died_with_its_server_is_left_quietly():
    with Pool(workers=1) as pool, pool.session() as session:
        session.run("x = 1")
        pool._launcher.current()._connection._process.kill()
        with pytest.raises(PoolError):
            session.run("import time; time.sleep(20)")
        with pytest.raises(PoolError):
            session.run("x")


def test_sessions_of_a_shared_server_are_found_by_name(tmp_path):
    import subprocess

    from hatchery_sandbox._process import find_binary

    path = tmp_path / "socket"
    command = [find_binary(), "serve", "--unix", str(path), "--workers", "1"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if "serving at" in line:
                break
        with Pool.connect(path) as first, Pool.connect(path) as second:
            first.session("shared").run("x = 5")
            assert second.attach("shared").run("x").value == 5
            assert pickle.loads(pickle.dumps(second)) is second
            big = bytes(5 << 20)
            assert second.run("len(b)", variables={"b": big}).value == len(big)
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()


def test_a_session_is_closed_once(pool):
    session = pool.session()
    session.close()
    session.close()
    with pytest.raises(UnknownSessionError, match="no session"):
        session.run("1")
    with pytest.raises(UnknownSessionError, match="no session `nobody's`"):
        pool.attach("nobody's").reset()


def test_a_session_without_a_name_of_its_own_is_closed_when_it_is_dropped(pool):
    def is_open(name):
        return name in pool.sessions()

    with pool.session() as session:
        session.run("x = 1")
        dropped, state = [], session.save()
        for _ in range(20):
            dropped.append(session.fork().name)
        dropped += [pool.session().name, pool.revive(None, state).name]
        late = pool.session().submit("import time; time.sleep(0.2); 7")
        named = session.fork("named-" + session.name).name
        deadline = time.monotonic() + 10
        while any(map(is_open, dropped)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not any(map(is_open, dropped))
        assert is_open(session.name) and is_open(named) and late.result().value == 7
        with pool.attach(named) as fork:
            assert fork.run("x").value == 1


def test_a_turn_that_nobody_waits_for_runs(pool):
    with pool.session() as session:
        session.submit("import time; time.sleep(0.1); x = 1")
        session.submit("x += 1")
        assert session.run("x").value == 2


def test_determinism_that_comes_too_late_is_the_callers_mistake(pool):
    with pool.session() as session:
        session.run("1")
        with pytest.raises(InvalidJobError, match="first job"):
            session.run("1", seed=1).raise_for_status()
