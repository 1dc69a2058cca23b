"""The code interpreter and the sandbox for the OpenAI Agents SDK, with the real package and its scripted
model."""

import asyncio
import io

import pytest

agents = pytest.importorskip("agents")
testing = pytest.importorskip("agents.testing")

from agents import Agent, RunConfig, Runner  # noqa: E402
from agents.run_config import SandboxRunConfig  # noqa: E402
from agents.sandbox import Manifest, SandboxAgent  # noqa: E402
from agents.sandbox.capabilities import Filesystem, Shell  # noqa: E402
from agents.sandbox.entries import File  # noqa: E402
from agents.sandbox.errors import (  # noqa: E402
    ExecNonZeroError,
    ExecTimeoutError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.snapshot import LocalSnapshotSpec  # noqa: E402
from outlier import ANSWER, CSV, DRAW, FIND, FOUND, LOAD, SHAPE  # noqa: E402

from hatchery_sandbox import AsyncPool  # noqa: E402
from hatchery_sandbox.openai_agents import HatcherySandboxClient, python_tool  # noqa: E402

agents.set_tracing_disabled(True)


def with_pool(main):
    async def run():
        async with AsyncPool(workers=1, preload=["numpy", "pandas"]) as pool:
            await main(pool)

    asyncio.run(run())


def scripted(name, calls, key):
    steps = [
        [testing.function_call(name, {key: call}, call_id=str(place))]
        for place, call in enumerate(calls)
    ]
    return testing.ScriptedModel([*steps, [testing.assistant_message(ANSWER)]])


def outputs(result):
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


def test_an_agent_finds_an_outlier():
    async def main(pool):
        async with await pool.session() as session:
            await session.run("", files={"readings.csv": CSV})
            model = scripted("run_python", [LOAD, FIND, DRAW, "1 / 0"], "code")
            agent = Agent("analyst", tools=[python_tool(session)], model=model)
            result = await Runner.run(agent, "Which sensor is an outlier?")
            loaded, found, drawn, raised = outputs(result)
            assert result.final_output == ANSWER
            assert loaded == SHAPE and found == FOUND and "ZeroDivisionError" in raised
            assert "(1 figure was shown)" in drawn and "data:image/png;base64," in drawn

    with_pool(main)


def test_a_sandbox_agent_finds_an_outlier():
    async def main(pool):
        script = f"{LOAD}\n{FIND}\n{DRAW}\nplt.savefig('out/a.png')"
        calls = [
            "mkdir -p out",
            f"python3 - <<'EOF'\n{script}\nEOF",
            "ls -la out",
            "cat readings.csv | head -1",
            "python3 -c 'import sys; sys.exit(7)'",
        ]
        manifest = Manifest(entries={"readings.csv": File(content=CSV.encode())})
        model = scripted("exec_command", calls, "cmd")
        agent = SandboxAgent(
            "analyst", model=model, capabilities=[Filesystem(), Shell()], default_manifest=manifest
        )
        config = RunConfig(sandbox=SandboxRunConfig(client=HatcherySandboxClient(pool)))
        result = await Runner.run(agent, "Which sensor is an outlier?", run_config=config)
        made, ran, listed, piped, left = outputs(result)
        assert result.final_output == ANSWER and "code 0" in made
        assert SHAPE in ran and FOUND in ran and "a.png" in listed
        assert "code 0" in piped and CSV.splitlines()[0] in piped
        assert "code 7" in left

    with_pool(main)


def test_a_session_is_a_folder_and_a_command_line(tmp_path):
    async def main(pool):
        client = HatcherySandboxClient(pool)
        snapshot = LocalSnapshotSpec(base_path=tmp_path)
        session = await client.create(snapshot=snapshot, manifest=Manifest())
        async with session:
            assert await session.running()
            await session.write("a/b.txt", io.BytesIO(b"text"))
            assert (await session.read("a/b.txt")).read() == b"text"
            with pytest.raises(WorkspaceReadNotFoundError):
                await session.read("a/none")
            code = "import os; print(os.getcwd(), open('/workspace/a/b.txt').read()); open('c', 'w')"
            ended = await session.exec("python3", "-c", code, shell=False)
            assert (ended.exit_code, ended.stdout) == (0, b"/workspace text\n")
            entries = {entry.path: entry.is_dir() for entry in await session.ls("/workspace")}
            assert entries == {"/workspace/a": True, "/workspace/c": False}
            await session.mv("c", "d")
            await session.rm("a", recursive=True)
            with pytest.raises(ExecNonZeroError):
                await session.mv("c", "e")
            with pytest.raises(ExecNonZeroError):
                await session.ls("a")
            patch = {"type": "create_file", "path": "new.txt", "diff": "+one\n+two\n"}
            await session.apply_patch(patch)
            assert (await session.read("new.txt")).read().rstrip() == b"one\ntwo"
            with pytest.raises(ExecTimeoutError):
                await session.exec("python3", "-c", "while True: pass", timeout=0.5, shell=False)
            stored = client.serialize_session_state(session.state)
        assert not await session.running()
        # The files are in the snapshot.
        again = await client.resume(client.deserialize_session_state(stored))
        async with again:
            names = sorted(entry.path for entry in await again.ls("/workspace"))
            assert names == ["/workspace/d", "/workspace/new.txt"]

    with_pool(main)
