"""Files on this side, and the commands among them."""

import pytest

from hatchery_sandbox import Job
from hatchery_sandbox._workspace import Workspace, relative


@pytest.fixture
def run(pool):
    workspace = Workspace()

    def run(line, cwd=None):
        ended = workspace.start(["sh", "-lc", line], cwd=cwd)
        if isinstance(ended, Job):
            ended = workspace.finish(pool.run(ended))
        return ended.code, ended.stdout, ended.stderr

    run.workspace = workspace
    return run


def test_programs_find_and_leave_files(run):
    assert run("mkdir -p out/inner") == (0, "", "")
    program = "import sys\nopen('out/inner/a.txt', 'w').write('one\\n')\nprint(sys.argv[1:])"
    assert run(f"python3 - <<'END'\n{program}\nEND") == (0, "[]\n", "")
    assert run("cat /workspace/out/inner/a.txt /out/inner/a.txt") == (0, "one\none\n", "")
    assert run("ls out", cwd="/workspace") == (0, "inner\n", "")
    assert run("pwd", cwd="/workspace/out")[1] == "/workspace/out\n"
    run.workspace.files["tool/main.py"] = b"import helper, sys\nprint(helper.X, sys.argv[1:], __name__)"
    run.workspace.files["tool/helper.py"] = b"X = 1"
    for line, cwd in (("python3 tool/main.py a 'b c'", None), ("python3 main.py a 'b c'", "/workspace/tool")):
        assert run(line, cwd) == (0, "1 ['a', 'b c'] __main__\n", "")
    assert run("python3 -m tool.main")[0] == 1
    assert run("python3 -c 'import os; os.remove(\"out/inner/a.txt\")'")[0] == 0
    assert run("cat out/inner/a.txt")[0] == 1
    assert run("python3 -c '1 / 0'")[2].endswith("ZeroDivisionError: division by zero\n")
    assert run("python3 -c 'import sys; sys.exit(3)'")[0] == 3


@pytest.mark.parametrize(
    "line", ["ls | wc", "cat a > b", "ls && ls", "ls\nls", "echo $HOME", "cat *.txt", "(ls)"]
)
def test_what_needs_a_shell_says_so(run, line):
    code, out, errors = run(line)
    assert (code, out) == (127, "") and "there is no shell here that could run" in errors


def test_other_programs_arent_there(run):
    assert run("git status") == (127, "", "git: there are no programs here but Python\n")
    assert run("cat 'unclosed")[0] == 127
    assert run("") == (0, "", "")


@pytest.mark.parametrize(
    ("path", "name"),
    [("x", "x"), ("/x", "x"), ("/workspace/x", "x"), ("//a//b", "a/b"), ("/workspacefoo", "workspacefoo")]
    + [(path, ".") for path in (".", "/", "/workspace", "/workspace/", "..")],
)
def test_paths_lead_to_the_same_files(path, name):
    assert relative(path) == name
