"""Files on this side, and the commands among them."""

import pytest

from hatchery_sandbox import Job
from hatchery_sandbox._workspace import Workspace, relative


@pytest.fixture
def run(pool):
    workspace = Workspace()

    def run(line, cwd=None):
        ended = workspace.finish(pool.run(workspace.job(["sh", "-lc", line], cwd=cwd)))
        return ended.code, ended.stdout, ended.stderr

    run.workspace = workspace
    return run


def test_commands_find_and_leave_files(run):
    assert run("mkdir -p out/inner empty") == (0, "", "")
    assert run.workspace.folders == {"out", "out/inner", "empty"}
    assert run.workspace.files == {}
    program = "import sys\nopen('out/inner/a.txt', 'w').write('one\\n')\nprint(sys.argv[1:])"
    assert run(f"python3 - <<'END'\n{program}\nEND") == (0, "[]\n", "")
    assert run("cat /workspace/out/inner/a.txt out/inner/a.txt | wc -l") == (0, "2\n", "")
    assert run("ls; rmdir empty", cwd="/workspace") == (0, "empty\nout\n", "")
    assert not run.workspace.is_folder("empty") and run.workspace.is_folder("out/inner")
    assert run.workspace.names(".") == {"out": True}
    assert run.workspace.names("out/inner") == {"a.txt": False}
    assert run("pwd", cwd="/workspace/out")[1] == "/workspace/out\n"
    run.workspace.files["tool/main.py"] = b"import helper, sys\nprint(helper.X, sys.argv[1:], __name__)"
    run.workspace.files["tool/helper.py"] = b"X = 1"
    for line, cwd in (("python3 tool/main.py a 'b c'", None), ("python3 main.py a 'b c'", "/workspace/tool")):
        assert run(line, cwd) == (0, "1 ['a', 'b c'] __main__\n", "")
    assert run("python3 -m tool.main")[0] == 1
    assert run("rm out/inner/a.txt && ls out/inner") == (0, "", "")
    assert "out/inner/a.txt" not in run.workspace.files and run.workspace.is_folder("out/inner")
    assert run("python3 -c '1 / 0'")[2].endswith("ZeroDivisionError: division by zero\n")
    assert run("python3 -c 'import sys; sys.exit(3)'; exit $?")[0] == 3
    assert run("echo kept > f; exit 4") == (4, "", "")
    assert run.workspace.files["f"] == b"kept\n"
    assert run.workspace.remove("tool") and not run.workspace.remove("tool")


def test_other_programs_arent_there(run):
    assert run("git status") == (127, "", "sh: git: not found\n")
    assert run("cat 'unclosed")[0] == 2
    assert run("") == (0, "", "")
    job = run.workspace.job(["echo", "a b", "$HOME"], typed="in")
    assert isinstance(job, Job) and "echo 'a b' '$HOME'" in job.command


def test_sessions_and_pools_run_commands(pool):
    with pool.session() as session:
        session.run("x = 1", files={"names.txt": "b\na\n"})
        ended = session.shell("sort names.txt | head -n 1; echo $1; exit 5", args=["given"])
        assert (ended.stdout, ended.exit_code) == ("a\ngiven\n", 5)
        assert session.run("x").value == 1
    job = Job.shell("cat a", files={"a": "text"}).with_options(timeout=60)
    assert pool.run(job).stdout == "text" and repr(job) == "<Job 'cat a'>"


@pytest.mark.parametrize(
    ("path", "name"),
    [("x", "x"), ("/x", "x"), ("/workspace/x", "x"), ("//a//b", "a/b"), ("/workspacefoo", "workspacefoo")]
    + [(path, ".") for path in (".", "/", "/workspace", "/workspace/", "..")],
)
def test_paths_lead_to_the_same_files(path, name):
    assert relative(path) == name
