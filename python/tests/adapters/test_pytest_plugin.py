"""The fixtures, in a pytest of their own."""

import subprocess
import sys
from importlib.metadata import entry_points


def test_fixtures_give_sandboxes(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "def test_a(sandbox):\n    assert sandbox.run('x = 1; x').value == 1\n"
        "def test_b(sandbox):\n    assert sandbox.run('x').status == 'raised'\n"
    )
    command = [sys.executable, "-m", "pytest", "-q"]
    # Where the wheel is installed, pytest knows the plugin by its entry point.
    if not entry_points(group="pytest11", name="hatchery"):
        command += ["-p", "hatchery_sandbox.pytest_plugin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
