"""What the kernel `hatchery` does, as a front end sees it. Ends with `all as expected`."""

import os
import signal
import time

from jupyter_client.manager import start_new_kernel

LINES = 20_000
PATIENCE = 60


def finish(client, request):
    """Returns the content of the reply, and the outputs as pairs of type and content."""
    outputs = []
    while True:
        message = client.get_iopub_msg(timeout=PATIENCE)
        if message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            break
        if kind not in ("status", "execute_input"):
            outputs.append((kind, content))
    while True:
        reply = client.get_shell_msg(timeout=PATIENCE)
        if reply["parent_header"]["msg_id"] == request:
            return reply["content"], outputs


def run(client, code, **options):
    return finish(client, client.execute(code, **options))


def said(outputs, name="stdout"):
    texts = [content["text"] for kind, content in outputs
             if kind == "stream" and content["name"] == name]
    return "".join(texts)


def await_text(client, text):
    """Waits until a running cell has printed this."""
    seen = ""
    while text not in seen:
        message = client.get_iopub_msg(timeout=PATIENCE)
        seen += message["content"].get("text", "")


def processes(file):
    """Returns the processes of the kernel with this connection file."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as command:
                if file.encode() in command.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def outputs_and_errors(client):
    reply, outputs = run(client, "x = 6\nprint('a')\nx * 7")
    assert reply["status"] == "ok" and reply["execution_count"] == 1, reply
    assert [kind for kind, _ in outputs] == ["stream", "execute_result"], outputs
    assert outputs[1][1]["data"] == {"text/plain": "42"}, outputs
    reply, outputs = run(client, "def f():\n    1/0\nf()")
    assert (reply["ename"], reply["evalue"]) == ("ZeroDivisionError", "division by zero"), reply
    (kind, error), = outputs
    lines = "\n".join(error["traceback"])
    assert kind == "error" and "\x1b[" in lines and "In[2]" in lines, lines
    # Figures and other displays, and their updates.
    code = "from IPython.display import display, update_display\n" \
           "h = display('one', display_id='d')\nupdate_display('two', display_id='d')"
    _, outputs = run(client, code)
    kinds = [(kind, content["transient"]["display_id"]) for kind, content in outputs]
    assert kinds == [("display_data", "d"), ("update_display_data", "d")], outputs
    _, outputs = run(client, "print('é' * 50_000)")
    assert said(outputs) == "é" * 50_000 + "\n"


def options(client):
    reply, outputs = run(client, "1 + 1", silent=True)
    assert reply["status"] == "ok" and outputs == [], outputs
    before, _ = run(client, "1", store_history=False)
    after, _ = run(client, "1")
    assert before["execution_count"] == after["execution_count"], (before, after)
    wanted = {"good": "x * 2", "bad": "1/0"}
    reply, _ = run(client, "x = 21", user_expressions=wanted)
    shown = reply["user_expressions"]
    assert shown["good"]["data"]["text/plain"] == "42", shown
    assert shown["bad"]["ename"] == "ZeroDivisionError", shown
    # Cells that were sent before one failed don't run, others do.
    requests = [client.execute(code) for code in ("import time; time.sleep(0.5); 1/0", "y = 1", "2")]
    replies = [finish(client, request)[0]["status"] for request in requests]
    assert replies == ["error", "aborted", "aborted"], replies
    requests = [client.execute(code, stop_on_error=False) for code in ("1/0", "3")]
    replies = [finish(client, request)[0]["status"] for request in requests]
    assert replies == ["error", "ok"], replies
    reply, _ = run(client, "exit()")
    assert reply["payload"][0]["source"] == "ask_exit", reply
    assert run(client, "x")[1][0][1]["data"]["text/plain"] == "21"


def interrupts(manager, client):
    request = client.execute("x = 5\nprint('running', flush=True)\nwhile True: pass")
    await_text(client, "running")
    manager.interrupt_kernel()
    reply, outputs = finish(client, request)
    assert reply["ename"] == "KeyboardInterrupt", reply
    assert run(client, "x")[1][0][1]["data"]["text/plain"] == "5"
    # A program that goes on is stopped, and what it did is undone; the session lives on.
    code = "x = 6\nprint('stubborn', flush=True)\nwhile True:\n    try:\n        while True: pass\n" \
           "    except KeyboardInterrupt: pass"
    request = client.execute(code)
    await_text(client, "stubborn")
    manager.interrupt_kernel()
    reply, _ = finish(client, request)
    assert reply["status"] == "error" and "undone" in "".join(reply["traceback"]), reply
    assert run(client, "x")[1][0][1]["data"]["text/plain"] == "5"
    assert manager.is_alive()


def questions(manager, client):
    def answered(code, *answers):
        request = client.execute(code, allow_stdin=True)
        asked = []
        for answer in answers:
            message = client.get_stdin_msg(timeout=PATIENCE)
            assert message["msg_type"] == "input_request", message
            asked.append((message["content"]["prompt"], message["content"]["password"]))
            client.input(answer)
        return asked, finish(client, request)

    asked, (_, outputs) = answered("print('before')\nname = input('Name? ')\nprint('Hello', name)", "Ada")
    assert asked == [("Name? ", False)] and said(outputs) == "before\nHello Ada\n", (asked, outputs)
    asked, (_, outputs) = answered(
        "import getpass, sys\nprint(getpass.getpass(), sys.stdin.readline())", "secret", "line")
    assert asked == [("Password: ", True), ("", False)], asked
    assert said(outputs) == "secret line\n\n", outputs
    reply, _ = run(client, "input()", allow_stdin=False)
    assert reply["ename"] == "StdinNotImplementedError", reply
    assert "assign the answer in the code" in "".join(reply["traceback"]), reply
    reply, _ = run(client, "    x = 1\n    open('a.csv')")
    assert "the kernel's option `--beside`" in "".join(reply["traceback"]), reply
    # Waiting can be interrupted.
    request = client.execute("input('forever')", allow_stdin=True)
    client.get_stdin_msg(timeout=PATIENCE)
    manager.interrupt_kernel()
    reply, _ = finish(client, request)
    assert reply["ename"] == "KeyboardInterrupt", reply
    # A late answer doesn't answer the next question. An answer doesn't name its question, and the
    # channels have no common order, so it may also arrive after the next question was asked.
    for attempt in range(10):
        client.input("late")
        _, (_, outputs) = answered("print(input('Again? '))", f"in time {attempt}")
        if said(outputs) == f"in time {attempt}\n":
            break
    else:
        raise AssertionError(outputs)


def bursts(client):
    _, outputs = run(client, f"for n in range({LINES}): print(n)")
    assert said(outputs) == "".join(f"{n}\n" for n in range(LINES))
    code = "import sys\nfor n in range(500):\n    print(n)\n    print(-n, file=sys.stderr)"
    _, outputs = run(client, code)
    texts = [content["text"] for _, content in outputs]
    assert "".join(texts) == "".join(f"{n}\n{-n}\n" for n in range(500))


def forks(client):
    run(client, "state = 'first'")
    reply, outputs = run(client, "%checkpoint start")
    assert reply["status"] == "ok" and "start" in said(outputs), (reply, outputs)
    assert run(client, "%fork attempt")[0]["status"] == "ok"
    run(client, "state = 'second'")
    assert run(client, "%switch main")[0]["status"] == "ok"
    assert said(run(client, "print(state)")[1]) == "first\n"
    run(client, "state = 'third'")
    assert run(client, "%restore start")[0]["status"] == "ok"
    assert said(run(client, "print(state)")[1]) == "first\n"
    assert said(run(client, "%sessions")[1]) == "  attempt\n* main\n  start (checkpoint)\n"
    assert said(run(client, "%switch attempt")[1]) and run(client, "%switch nowhere")[0]["ename"]
    assert said(run(client, "print(state)")[1]) == "second\n"
    reply, _ = run(client, "1\n%fork other")
    assert "cell of its own" in reply["evalue"], reply
    run(client, "%switch main")


def assistance(client):
    def content(request):
        while True:
            reply = client.get_shell_msg(timeout=PATIENCE)
            if reply["parent_header"]["msg_id"] == request:
                return reply["content"]

    # None of this runs the program's code.
    run(client, "class Loud:\n"
                "    'A class.'\n"
                "    def __getattr__(self, name): raise SystemError('ran')\n"
                "    def __dir__(self): raise SystemError('ran')\n"
                "    def __repr__(self): raise SystemError('ran')\n"
                "    @property\n"
                "    def attribute(self): raise SystemError('ran')\n"
                "    def method(self, a, /, b=1, *rest, c, d=None, **more): 'A method.'\n"
                "loud = Loud()\nloud.own = 1")
    found = content(client.complete("é = loud.", 9))
    assert found["matches"] == ["attribute", "method", "own"], found
    assert (found["cursor_start"], found["cursor_end"]) == (9, 9), found
    found = content(client.complete("print(loud.me)", 13))
    assert (found["matches"], found["cursor_start"]) == (["method"], 11), found
    found = content(client.inspect("loud.method(1, ", 15))
    text = found["data"]["text/plain"]
    assert "method(a, /, b=1, *rest, c, d=None, **more)" in text and "A method." in text, text
    text = content(client.inspect("loud"))["data"]["text/plain"]
    assert "Loud" in text and "A class." in text, text
    assert not content(client.inspect("no_such_name"))["found"]
    text = content(client.inspect("loud.method", detail_level=1))["data"]["text/plain"]
    assert "def method(self" in text, text
    judged = content(client.is_complete("for x in y:"))
    assert judged == {"status": "incomplete", "indent": "    "}, judged
    comms = content(client.comm_info())
    assert comms == {"status": "ok", "comms": {}}, comms


def comms(client):
    message = client.session.msg("comm_open", {"comm_id": "c", "target_name": "t", "data": {}})
    client.shell_channel.send(message)
    while True:
        heard = client.get_iopub_msg(timeout=PATIENCE)
        if heard["msg_type"] == "comm_close":
            assert heard["content"]["comm_id"] == "c", heard
            return


def ends(manager, client):
    file = manager.connection_file
    first, = processes(file)
    run(client, "x = 'before'")
    # A cell that runs doesn't hold up the end.
    client.execute("while True: pass")
    manager.restart_kernel(now=False)
    second, = processes(file)
    assert first != second
    client.wait_for_ready(timeout=PATIENCE)
    assert run(client, "x")[0]["ename"] == "NameError"
    client.shutdown()
    deadline = time.monotonic() + PATIENCE
    while manager.is_alive():
        assert time.monotonic() < deadline, "the kernel lives on"
    assert manager.provisioner.process.returncode == 0
    assert processes(file) == []


def orphans():
    """A kernel ends with the front end that started it."""
    parent, child = os.pipe()
    pid = os.fork()
    if pid == 0:
        manager, client = start_new_kernel(kernel_name="hatchery")
        run(client, "1")
        os.write(child, manager.connection_file.encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(child)
    file = os.read(parent, 4096).decode()
    assert file
    os.waitpid(pid, 0)
    deadline = time.monotonic() + PATIENCE
    while processes(file):
        assert time.monotonic() < deadline, "the kernel outlives its front end"
    os.unlink(file)


def main():
    orphans()
    manager, client = start_new_kernel(kernel_name="hatchery")
    outputs_and_errors(client)
    options(client)
    interrupts(manager, client)
    questions(manager, client)
    bursts(client)
    forks(client)
    assistance(client)
    comms(client)
    ends(manager, client)
    client.stop_channels()
    print("all as expected")


main()
