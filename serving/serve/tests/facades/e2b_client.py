"""E2B's SDK: values, streams, a figure, errors, contexts, a cell that is given up, files, commands, sandboxes."""

import base64
import io
import time

from e2b import CommandExitException, PtySize, SandboxQuery, SandboxState
from e2b_code_interpreter import Sandbox


def fails(attempt, expected, *words):
    """Checks that an attempt fails by an exception of this name, whose text has these words."""
    try:
        attempt()
    except Exception as error:
        assert type(error).__name__ == expected, repr(error)
        assert all(word in str(error) for word in words), repr(error)
    else:
        raise AssertionError(f"{expected} {words}")


with Sandbox.create() as sandbox:
    execution = sandbox.run_code("x = 20; x + 1")
    assert execution.text == "21", execution
    assert execution.execution_count == 1
    assert sandbox.run_code("x").text == "20"
    assert sandbox.run_code("'text'").text == "text"

    # A reader that follows a running program may get a line in parts.
    heard = []

    def hear(stream, part):
        if heard and heard[-1][0] == stream:
            heard[-1] = (stream, heard[-1][1] + part)
        else:
            heard.append((stream, part))

    code = "import sys\nprint('one', flush=True)\nprint('two', file=sys.stderr, flush=True)\nprint('three')"
    execution = sandbox.run_code(
        code,
        on_stdout=lambda message: hear("stdout", message.line),
        on_stderr=lambda message: hear("stderr", message.line),
    )
    assert heard == [("stdout", "one\n"), ("stderr", "two\n"), ("stdout", "three\n")], heard
    assert "".join(execution.logs.stdout) == "one\nthree\n", execution
    assert "".join(execution.logs.stderr) == "two\n", execution
    assert execution.text is None and execution.error is None

    results = []
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()\ndisplay('shown')\n3"
    execution = sandbox.run_code(code, on_result=results.append)
    assert len(execution.results) == len(results) == 3, execution.results
    figures = [result for result in execution.results if result.png]
    assert base64.b64decode(figures[0].png).startswith(b"\x89PNG\r\n"), execution.results
    assert execution.text == "3"
    table = sandbox.run_code("import pandas; pandas.DataFrame({'n': [1, 2]})").results[0]
    assert "<table" in table.html and "html" in table.formats()

    errors = []
    execution = sandbox.run_code("1 / 0", on_error=errors.append)
    assert execution.error.name == "ZeroDivisionError" and errors == [execution.error]
    assert execution.error.value == "division by zero"
    assert "1 / 0" in execution.error.traceback
    code = "import os; os.environ.get('MODE')"
    assert sandbox.run_code(code, envs={"MODE": "test"}).text == "test"
    assert sandbox.run_code(code).text is None

    sandbox.run_code("%matplotlib inline")
    execution = sandbox.run_code("from IPython.display import Markdown\nMarkdown('*m*')")
    assert execution.results[0].markdown == "*m*" and execution.results[0].is_main_result

    context = sandbox.create_code_context(cwd="/home/user/project")
    assert (context.language, context.cwd) == ("python", "/home/user/project")
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == context.cwd
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    sandbox.run_code("y = 1", context=context)
    assert sandbox.run_code("y", context=context.id and context).text == "1"
    assert sandbox.run_code("y").error.name == "NameError"
    assert context.id in [other.id for other in sandbox.list_code_contexts()]
    sandbox.restart_code_context(context)
    execution = sandbox.run_code("y", context=context)
    assert execution.error.name == "NameError" and execution.execution_count == 1
    sandbox.remove_code_context(context)
    assert context.id not in [other.id for other in sandbox.list_code_contexts()]
    try:
        sandbox.run_code("y", context=context)
    except Exception as error:
        assert type(error).__name__ == "NotFoundException", repr(error)
    else:
        raise AssertionError("the context is gone")

    # The client gives the cell up, which interrupts it, and the context goes on.
    started = time.monotonic()
    try:
        sandbox.run_code("while True: pass", timeout=1)
    except Exception as error:
        assert type(error).__name__ == "TimeoutException", repr(error)
    else:
        raise AssertionError("it has no end")
    assert sandbox.run_code("x").text == "20"
    assert time.monotonic() - started < 15

    # Files: those of the cells that name no context.
    info = sandbox.files.write("data/table.csv", "a,b\n1,2\n")
    assert (info.name, info.path) == ("table.csv", "/home/user/data/table.csv"), info
    code = "open('/home/user/data/table.csv').read().split()"
    assert sandbox.run_code(code).text == "['a,b', '1,2']"
    sandbox.run_code("import os; os.chdir('/home/user'); open('out.bin', 'wb').write(bytes(range(256)) * 40)")
    assert sandbox.files.read("out.bin", format="bytes") == bytes(range(256)) * 40
    assert b"".join(sandbox.files.read("out.bin", format="stream")) == bytes(range(256)) * 40
    assert sandbox.files.read("/home/user/data/table.csv") == "a,b\n1,2\n"
    large = bytes(range(256)) * (16 << 10)
    sandbox.files.write("/tmp/large", large)
    assert sandbox.files.read("/tmp/large", format="bytes") == large
    sandbox.files.write("stream.txt", io.BytesIO(b"streamed"))
    assert sandbox.files.read("stream.txt") == "streamed"
    sandbox.files.write("packed.txt", "packed" * 1000, gzip=True)
    assert sandbox.files.read("packed.txt") == "packed" * 1000
    written = sandbox.files.write_files([{"path": "a/1", "data": "one"}, {"path": "a/2", "data": b"two"}])
    assert [file.path for file in written] == ["/home/user/a/1", "/home/user/a/2"], written
    assert sandbox.files.read("a/2") == "two"

    listed = sandbox.files.list("/home/user", depth=2)
    types = {file.path.removeprefix("/home/user/"): file.type.value for file in listed}
    assert types["a"] == "dir" and types["a/1"] == types["out.bin"] == "file", types
    assert [file.name for file in sandbox.files.list("a")] == ["1", "2"]
    assert sandbox.files.exists("a/1") and not sandbox.files.exists("a/3")
    info = sandbox.files.get_info("a/1")
    assert (info.size, info.permissions[0]) == (3, "-"), info
    assert abs(info.modified_time.timestamp() - time.time()) < 600, info
    assert sandbox.files.make_dir("new/inner") and not sandbox.files.make_dir("new/inner")
    assert sandbox.files.rename("a/1", "new/one").path == "/home/user/new/one"
    assert sandbox.files.read("new/one") == "one"
    sandbox.files.remove("new")
    assert not sandbox.files.exists("new/one")
    for attempt, expected in [
        (lambda: sandbox.files.read("nothing"), "FileNotFoundException"),
        (lambda: sandbox.files.remove("nothing"), "FileNotFoundException"),
        (lambda: sandbox.files.read("/home/user"), "InvalidArgumentException"),
        (lambda: sandbox.files.list("out.bin"), "InvalidArgumentException"),
        (lambda: sandbox.files.watch_dir("/home/user"), "SandboxException"),
        (lambda: sandbox.pty.create(PtySize(rows=24, cols=80)), "SandboxException"),
    ]:
        try:
            attempt()
        except Exception as error:
            assert type(error).__name__ == expected, repr(error)
        else:
            raise AssertionError(expected)
    assert sandbox.is_running()

    # Commands of the shell, on the same files.
    heard = []
    result = sandbox.commands.run("wc -l < data/table.csv; echo oh >&2", on_stdout=heard.append)
    assert (result.exit_code, result.stdout.strip(), result.stderr) == (0, "2", "oh\n"), result
    assert "".join(heard).strip() == "2"
    result = sandbox.commands.run("pwd; echo $MODE", cwd="/tmp", envs={"MODE": "test"}, user="root")
    assert result.stdout == "/tmp\ntest\n", result
    try:
        sandbox.commands.run("echo some; false")
    except CommandExitException as error:
        assert (error.exit_code, error.stdout) == (1, "some\n"), error
    else:
        raise AssertionError("it fails")
    handle = sandbox.commands.run("echo begun; while true; do true; done", background=True)
    assert [found.pid for found in sandbox.commands.list()] == [handle.pid]
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    assert sandbox.commands.kill(handle.pid)
    try:
        again.wait()
    except CommandExitException as error:
        assert (error.exit_code, error.error) == (-1, "signal: killed"), error
    else:
        raise AssertionError("it was killed")
    assert not sandbox.commands.kill(handle.pid) and sandbox.commands.list() == []
    handle = sandbox.commands.run("read x; echo got $x; cat; echo end", background=True, stdin=True, timeout=300)
    sandbox.commands.send_stdin(handle.pid, "on")
    handle.send_stdin("e\nt\u00e9xt\n")
    sandbox.commands.send_stdin(handle.pid, b"more\n")
    fails(lambda: sandbox.commands.send_stdin(handle.pid, b"\xff"), "InvalidArgumentException", "UTF-8")
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "got one\nt\u00e9xt\nmore\nend\n"
    handle = sandbox.commands.run("while true; do true; done", background=True)
    fails(lambda: handle.send_stdin("x"), "InvalidArgumentException", "`stdin`")
    assert handle.kill()
    fails(handle.wait, "CommandExitException")
    fails(lambda: handle.send_stdin("x"), "NotFoundException")
    fails(lambda: sandbox.commands.run("while true; do true; done", timeout=0.5), "TimeoutException")
    assert sandbox.commands.run("echo on").stdout == "on\n"

# Each sandbox has variables, files, contexts, an environment, metadata and an end of its own.
token = "import os; os.environ.get('TOKEN')"
one = Sandbox.create(envs={"TOKEN": "x"}, metadata={"user": "ada & co"}, timeout=60)
other = Sandbox.create()
one.run_code("secret = 'ada'")
one.files.write("key.txt", "ada")
context = one.create_code_context()
assert other.run_code("secret").error.name == "NameError"
assert not other.files.exists("key.txt")
assert [context.id] != [found.id for found in other.list_code_contexts()]
fails(lambda: other.run_code("1", context=context), "NotFoundException")
assert one.run_code(token).text == "x" and one.run_code(token, context=context).text == "x"
assert one.run_code(token, envs={"TOKEN": "y"}).text == "y"
assert other.run_code(token).text is None

assert other.run_code("secret = 'bob'; secret").text == "bob"
again = Sandbox.connect(one.sandbox_id)
assert again.run_code("secret").text == "ada"
info = one.get_info()
assert info.metadata == {"user": "ada & co"} and info.sandbox_id == one.sandbox_id, info
assert 0 < (info.end_at - info.started_at).total_seconds() < 400, info
listed = Sandbox.list(query=SandboxQuery(metadata={"user": "ada & co"})).next_items()
assert [found.sandbox_id for found in listed] == [one.sandbox_id], listed
listed = Sandbox.list(limit=1)
assert len(listed.next_items()) == 1 and listed.has_next
assert other.sandbox_id in [found.sandbox_id for found in Sandbox.list().next_items()]

assert one.pause() and not one.beta_pause()
assert one.get_info().state.value == "paused" and not one.is_running()
paused = Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()
assert one.sandbox_id in [found.sandbox_id for found in paused]
fails(lambda: one.run_code("secret"), "TimeoutException", "paused")
one.connect()
assert one.run_code("secret").text == "ada" and one.get_info().state.value == "running"

assert one.kill() and not one.kill()
assert not one.is_running() and other.is_running()
fails(lambda: one.run_code("secret"), "TimeoutException", "was not found")
fails(lambda: one.files.read("key.txt"), "SandboxNotRunningException")
fails(lambda: one.commands.run("ls"), "SandboxNotRunningException")
fails(lambda: Sandbox.connect(one.sandbox_id), "SandboxNotFoundException")
fails(one.get_info, "SandboxNotFoundException")
other.set_timeout(0)
while other.is_running():
    pass

for closed in {"allow_internet_access": False}, {"network": {"deny_out": lambda ctx: [ctx.all_traffic]}}:
    assert Sandbox.create(**closed).run_code("6 * 7").text == "42"

# What there isn't is refused, with the reason.
for attempt, *words in [
    (lambda: Sandbox.create(template="mine"), "no template `mine`"),
    (lambda: Sandbox.create(allow_internet_access=True), "`allow_internet_access`"),
    (lambda: Sandbox.create(network={"allow_out": ["example.com"]}), "`allowOut`"),
    (lambda: Sandbox.create(lifecycle={"on_timeout": "pause", "auto_resume": True}), "`autoResume`"),
    (lambda: Sandbox.create(envs={"": "x"}), "environment"),
    (lambda: Sandbox.create(timeout=100_000), "86400"),
    (lambda: Sandbox.create().pause(mode="filesystem"), "`filesystem`"),
    (lambda: Sandbox.create().create_snapshot(), "no `snapshots`", "`fork`"),
    # It would be the same sandbox for all.
    (lambda: Sandbox.create(debug=True).run_code("1"), "E2B_DEBUG", "E2B_SANDBOX_URL"),
]:
    fails(attempt, "SandboxException", *words)

print("all as expected")
