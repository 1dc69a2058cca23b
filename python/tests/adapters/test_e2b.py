"""E2B's own clients against `hatchery serve --http` with tokens: two tenants, who share nothing."""

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("e2b_code_interpreter")
from e2b import CommandExitException, SandboxQuery, SandboxState
from e2b.exceptions import AuthenticationException, SandboxNotFoundException, SandboxNotRunningException
from e2b_code_interpreter import Sandbox

from hatchery_sandbox._process import find_binary

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "serving.md"

# Keys as E2B gives them, and one that isn't in the server's file.
ADA, BOB, EVE = (f"e2b_{digit * 40}" for digit in "abe")

JAVASCRIPT = ["e2b@2.51.0", "@e2b/code-interpreter@2.8.0"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"{ADA} ada\n{BOB} bob\n", encoding="utf-8")
    command = [find_binary(None), "serve", "--http", "127.0.0.1:0", "--token-file", str(tokens), "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        # It ends if the server can't start.
        line = next(line for line in process.stderr if "http://" in line)
        yield "http://" + line.split("http://")[1].strip()
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def options(server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    return lambda key: {"api_key": key, "api_url": server, "sandbox_url": server}


def test_a_sandbox_has_cells_files_and_commands(options):
    with Sandbox.create(envs={"WHO": "ada"}, metadata={"task": "1"}, timeout=600, **options(ADA)) as sandbox:
        assert sandbox.run_code("import os; x = 6; os.environ['WHO'] * 2").text == "adaada"
        sandbox.files.write("data/a.csv", "n\n1\n41\n")
        sandbox.files.write("b.txt", "packed" * 100, gzip=True)
        assert sandbox.files.read("b.txt") == "packed" * 100
        assert [entry.name for entry in sandbox.files.list("data")] == ["a.csv"]
        assert sandbox.files.exists("data/a.csv") and sandbox.files.get_info("data/a.csv").size == 7
        assert sandbox.files.make_dir("more")
        sandbox.files.rename("b.txt", "more/c.txt")
        sandbox.files.remove("more")
        assert not sandbox.files.exists("more")
        result = sandbox.commands.run("tail -n +2 data/a.csv | sort -rn | head -n 1 > most; cat most; echo $WHO >&2")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "41\n", "ada\n")
        assert sandbox.run_code("int(open('/home/user/most').read()) + 1").text == "42"
        with pytest.raises(CommandExitException) as failed:
            sandbox.commands.run("ls nothing", user="root")
        assert failed.value.exit_code != 0 and "nothing" in failed.value.stderr
        assert sandbox.run_code("x").text == "6"
        info = sandbox.get_info()
        assert info.metadata == {"task": "1"} and info.state is SandboxState.RUNNING


def test_a_command_in_the_background_is_followed_and_killed(options):
    with Sandbox.create(**options(ADA)) as sandbox:
        handle = sandbox.commands.run("echo begun; while true; do true; done", background=True)
        assert [found.pid for found in sandbox.commands.list()] == [handle.pid]
        assert next(iter(handle))[0] == "begun\n"
        assert handle.kill()
        with pytest.raises(CommandExitException) as killed:
            handle.wait()
        assert killed.value.exit_code == -1
        assert sandbox.commands.list() == [] and not handle.kill()


def test_a_paused_sandbox_continues(options):
    sandbox = Sandbox.create(timeout=600, **options(ADA))
    sandbox.run_code("x = 1")
    assert sandbox.pause() and not sandbox.pause()
    with pytest.raises(SandboxNotRunningException, match="paused"):
        sandbox.files.read("a")
    again = Sandbox.connect(sandbox.sandbox_id, **options(ADA))
    assert again.run_code("x").text == "1"
    assert again.kill() and not again.kill()
    with pytest.raises(SandboxNotRunningException):
        again.commands.run("true")


def test_tenants_have_nothing_in_common(options):
    own, other = (Sandbox.create(timeout=600, metadata={"at": "once"}, **options(key)) for key in (ADA, BOB))
    own.run_code("secret = 1")
    own.files.write("secret", "1")
    assert other.run_code("secret").error.name == "NameError" and not other.files.exists("secret")
    query = SandboxQuery(metadata={"at": "once"})
    listed = Sandbox.list(query=query, **options(BOB)).next_items()
    assert [found.sandbox_id for found in listed] == [other.sandbox_id]
    for attempt in (Sandbox.connect, Sandbox.get_info):
        with pytest.raises(SandboxNotFoundException):
            attempt(own.sandbox_id, **options(BOB))
    assert not Sandbox.kill(own.sandbox_id, **options(BOB))
    with pytest.raises(AuthenticationException):
        Sandbox.create(**options(EVE))
    # What opens one sandbox opens no other.
    stolen = {"E2b-Sandbox-Id": own.sandbox_id, "X-Access-Token": other._envd_access_token}
    request = urllib.request.Request(own.envd_api_url + "/files?path=secret", headers=stolen)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 401
    own.set_timeout(0)
    while own.is_running():
        pass
    assert other.run_code("1").text == "1" and other.kill()


def test_forks_are_independent(options):
    with Sandbox.create(timeout=600, **options(ADA)) as sandbox:
        sandbox.run_code("x = 1")
        one, other = sandbox.fork(count=2, timeout=600)
        assert one.run_code("x += 1; x").text == "2" and other.run_code("x").text == "1"
        assert one.kill() and other.kill()


@pytest.mark.skipif("CI" not in os.environ and not shutil.which("npm"), reason="npm isn't here")
def test_the_client_in_javascript_works(options):
    folder = Path(sys.prefix) / "-".join(JAVASCRIPT).replace("/", "-")
    # npm writes it last.
    if not (folder / "package-lock.json").exists():
        npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder)]
        subprocess.run([*npm, *JAVASCRIPT], check=True)
    # Node.js finds the packages beside the script.
    script = shutil.copy(Path(__file__).with_name("e2b_client.mjs"), folder)
    names = {f"E2B_{name.upper()}": value for name, value in options(ADA).items()}
    subprocess.run(["node", script], env={**os.environ, **names}, check=True, timeout=120)


@pytest.mark.skipif(not PAGE.exists(), reason="the guide isn't here")
def test_the_guide_is_right(options, monkeypatch, capsys):
    text = PAGE.read_text(encoding="utf-8")
    recipe = text.split("e2b_client.py <<'END'\n")[1].split("\nEND\n")[0]
    for name, value in options(ADA).items():
        monkeypatch.setenv(f"E2B_{name.upper()}", value)
    exec(compile(recipe, "e2b_client.py", "exec"), {})
    assert capsys.readouterr().out.split() == ["2", "42"]
