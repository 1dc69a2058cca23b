"""The sandbox for Deep Agents: LangChain's standard tests, and an agent with a scripted model."""

import pytest

pytest.importorskip("deepagents")
standard = pytest.importorskip("langchain_tests.integration_tests")

from deepagents import create_deep_agent  # noqa: E402
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel  # noqa: E402
from langchain_core.messages import AIMessage, ToolMessage  # noqa: E402
from outlier import ANSWER, CSV, FIND, FOUND, LOAD, SHAPE  # noqa: E402

from hatchery_sandbox.deepagents import HatcherySandbox  # noqa: E402

ABSOLUTE = "the protocol of Deep Agents 0.7 says that `glob` returns absolute paths of files alone"
NOT_HERE = {
    "test_write_existing_file_fails": "the protocol of Deep Agents 0.7 says that `write` overwrites",
    "test_glob": ABSOLUTE,
    "test_glob_basic_pattern": ABSOLUTE,
    "test_glob_with_directories": ABSOLUTE,
    "test_glob_hidden_files_explicitly": ABSOLUTE,
    "test_glob_with_character_class": ABSOLUTE,
    "test_glob_with_question_mark": ABSOLUTE,
}
"""Standard tests that don't hold, with the reason."""


class TestStandard(standard.SandboxIntegrationTests):
    pytestmark = pytest.mark.asyncio

    @pytest.fixture(scope="class")
    def sandbox(self, pool):
        return HatcherySandbox(pool)

    @property
    def sandbox_root_dir(self):
        # Where programs find the files.
        return "/workspace/test"

    @pytest.fixture(autouse=True)
    def expected(self, request):
        reason = NOT_HERE.get(request.node.originalname)
        if reason is not None:
            request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))


class Scripted(GenericFakeChatModel):
    """A model with given messages."""

    def bind_tools(self, tools, **_):
        return self


def scripted(*calls):
    messages = [
        AIMessage("", tool_calls=[{"name": name, "args": args, "id": str(place), "type": "tool_call"}])
        for place, (name, args) in enumerate(calls)
    ]
    return Scripted(messages=iter([*messages, AIMessage(ANSWER)]))


def test_an_agent_finds_an_outlier(pool):
    backend = HatcherySandbox(pool, {"/workspace/readings.csv": CSV.encode()})
    draw = "import matplotlib.pyplot as plt\nplt.plot(frame.value)\nplt.savefig('figure.png')"
    model = scripted(
        ("ls", {"path": "/workspace"}),
        ("write_file", {"file_path": "/workspace/find.py", "content": f"{LOAD}\n{FIND}\n{draw}\n"}),
        ("edit_file", {"file_path": "/workspace/find.py", "old_string": "mean", "new_string": "median"}),
        ("execute", {"command": "python3 find.py"}),
        ("read_file", {"file_path": "/workspace/readings.csv", "offset": 7, "limit": 1}),
        ("grep", {"pattern": "97.5", "path": "/workspace"}),
        ("execute", {"command": "python3 find.py > out.txt"}),
    )
    agent = create_deep_agent(model, backend=backend)
    state = agent.invoke({"messages": [{"role": "user", "content": "Which sensor is an outlier?"}]})
    told = [message.text for message in state["messages"] if isinstance(message, ToolMessage)]
    listed, _, _, ran, read, found, redirected = told
    assert "/workspace/readings.csv" in listed
    assert SHAPE in ran and FOUND in ran
    assert "s6,97.5" in read and "readings.csv" in found
    assert "succeeded" in redirected
    (written,) = backend.download_files(["/workspace/out.txt"])
    assert FOUND in written.content.decode()
    assert state["messages"][-1].text == ANSWER
    (figure,) = backend.download_files(["/workspace/figure.png"])
    assert figure.content.startswith(b"\x89PNG")


def test_programs_and_tools_have_the_same_files(pool):
    backend = HatcherySandbox(pool, cpu_time=1)
    backend.write("/a/helper.py", "NAME = 'first'\n")
    main = "import helper, os\nprint(helper.NAME, os.getcwd())\nopen('b', 'w').write('x')\n"
    backend.write("/a/main.py", main)
    assert backend.execute("cd a && python3 main.py | tr a-z A-Z; mv b ..").output == "FIRST /WORKSPACE/A\n"
    # Each program is a fresh one.
    backend.edit("/workspace/a/helper.py", "first", "second")
    assert backend.execute("python3 a/main.py").output == "second /workspace\n"
    assert [info["path"] for info in backend.ls("/").entries] == ["/workspace/a", "/workspace/b"]
    assert backend.delete("/workspace/a").error is None
    assert backend.delete("/workspace/a").error is not None
    ended = backend.execute("python3 -c 'while True: pass'")
    assert ended.exit_code == 124 and "cpu limit of 1 s" in ended.output
    assert backend.execute("git status").exit_code == 127
