"""Every recipe of the guide's page on doors, with the real packages and scripted models."""

import asyncio
import importlib.metadata
import json
import re
import socket
import sys
import threading
import types

import doors
import pytest
from outlier import ANSWER, CSV, FIND, FOUND, LOAD, SHAPE

RIGHT = "```python\ndef double(x): return 2 * x\n```"
WRONG = "```python\ndef double(x): return x\n```"
EQUAL = (
    "```python\nclass Equal:\n    def __eq__(self, other): return True\n"
    "def double(x): return Equal()\n```"
)
TESTS = "assert double(2) == 4"

if not doors.PAGE.exists():
    pytest.skip("the guide isn't here", allow_module_level=True)


@pytest.fixture
def recipe(monkeypatch):
    return lambda name: doors.run(name, monkeypatch)


def test_each_recipe_has_a_test():
    tested = [name.removeprefix("test_") for name in globals() if name.startswith("test_door_")]
    assert sorted(tested) == sorted(doors.names())


def test_door_dspy(recipe):
    dspy = pytest.importorskip("dspy")
    door = recipe("door_dspy")
    code = "longest = max(texts, key=len)\nSUBMIT(longest, len(longest))"
    lm = dspy.utils.DummyLM([{"reasoning": "one step", "code": f"```python\n{code}\n```"}])
    with door.pool, dspy.context(lm=lm):
        assert door.longest(texts=["a", "abc", "ab"]).length == 3
    dspy.settings.configure(interpreter_factory=None)


def test_door_pydantic_ai(recipe):
    pytest.importorskip("pydantic_ai")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    def model(messages, _):
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[TextPart(last.content)])
        code = "sum(price(item=item) for item in ('chair', 'table'))"
        return ModelResponse(parts=[ToolCallPart("run_code", {"code": code})])

    async def main():
        door = recipe("door_pydantic_ai")
        async with door.pool:
            return (await door.agent.run("What do they cost?", model=FunctionModel(model))).output

    assert asyncio.run(main()) == "100"


def test_door_openai_agents(recipe):
    testing = pytest.importorskip("agents.testing")
    pytest.importorskip("agents").set_tracing_disabled(True)
    call = testing.function_call("run_python", {"code": "6 * 7"}, call_id="1")
    model = testing.ScriptedModel([[call], [testing.assistant_message("forty-two")]])
    assert asyncio.run(recipe("door_openai_agents").ask("6 * 7?", model)) == "forty-two"
    assert "42" in str(model.last_call.input)


def test_door_deepagents(recipe):
    pytest.importorskip("deepagents")
    from langchain_core.messages import ToolMessage
    from test_deepagents import scripted

    door = recipe("door_deepagents")
    with door.pool:
        read = "python3 -c 'print(open(\"table.csv\").read().count(\"\\n\"))'"
        agent = door.analyst(scripted(("execute", {"command": read})), CSV.encode())
        state = agent.invoke({"messages": [{"role": "user", "content": "How many lines?"}]})
    (told,) = [message.text for message in state["messages"] if isinstance(message, ToolMessage)]
    assert told.startswith("11")


def test_door_autogen(recipe):
    pytest.importorskip("autogen_agentchat")
    from autogen_ext.models.replay import ReplayChatCompletionClient

    model = ReplayChatCompletionClient(["```python\nprint(6 * 7)\n```", "It is 42."])
    assert "42" in asyncio.run(recipe("door_autogen").ask("6 * 7?", model))


CALLS = [
    {"code": LOAD, "session": "door", "files": {"readings.csv": CSV}},
    {"code": FIND, "session": "door"},
]


def test_door_pydantic_ai_mcp(recipe):
    pytest.importorskip("fastmcp.client.transports")
    pytest.importorskip("pydantic_ai")
    from test_pydantic_ai import returned, scripted

    async def main():
        door = recipe("door_pydantic_ai_mcp")
        seen = []
        model = scripted([("run_python", call) for call in CALLS], seen)
        result = await door.agent.run("Which sensor is an outlier?", model=model)
        assert result.output == ANSWER
        loaded, found = map(str, returned(seen))
        assert SHAPE in loaded and FOUND in found

    asyncio.run(main())


def test_door_llama_index(recipe):
    pytest.importorskip("llama_index.tools.mcp")
    from llama_index.core.base.llms.types import ToolCallBlock
    from llama_index.core.llms import ChatMessage
    from llama_index.core.llms.llm import ToolSelection
    from llama_index.core.llms.mock import MockFunctionCallingLLM

    steps = iter(CALLS)
    heard = []

    def answer(messages, **_):
        heard.append(str(messages))
        call = next(steps, None)
        if call is None:
            return ChatMessage(role="assistant", content=ANSWER)
        block = ToolCallBlock(tool_call_id=str(len(heard)), tool_name="run_python", tool_kwargs=call)
        return ChatMessage(role="assistant", blocks=[block])

    class Scripted(MockFunctionCallingLLM):
        def get_tool_calls_from_response(self, response, error_on_no_tool_call=True, **kwargs):
            blocks = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
            return [
                ToolSelection(
                    tool_id=block.tool_call_id, tool_name=block.tool_name, tool_kwargs=block.tool_kwargs
                )
                for block in blocks
            ]

    async def main():
        agent = await recipe("door_llama_index").analyst(Scripted(response_generator=answer))
        return str(await agent.run("Which sensor is an outlier?"))

    assert asyncio.run(main()) == ANSWER
    assert SHAPE in heard[1]


def test_door_haystack(recipe):
    haystack = pytest.importorskip("haystack")
    pytest.importorskip("haystack_integrations.tools.mcp")
    from haystack.dataclasses import ChatMessage, ToolCall

    heard = []

    @haystack.component
    class Scripted:
        @haystack.component.output_types(replies=list[ChatMessage])
        def run(self, messages, tools=None, **_):
            heard.append(str(messages))
            if len(heard) > 1:
                return {"replies": [ChatMessage.from_assistant(ANSWER)]}
            call = ToolCall("run_python", {"code": "6 * 7"})
            return {"replies": [ChatMessage.from_assistant(tool_calls=[call])]}

    agent = recipe("door_haystack").analyst(Scripted())
    try:
        result = agent.run(messages=[ChatMessage.from_user("6 * 7?")])
    finally:
        for toolset in [agent.tools] if hasattr(agent.tools, "close") else agent.tools:
            toolset.close()
    assert result["messages"][-1].text == ANSWER
    assert "42" in heard[1]


def test_door_crewai(recipe, monkeypatch):
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    crewai = pytest.importorskip("crewai")
    heard = []

    class Scripted(crewai.BaseLLM):
        def call(self, messages, tools=None, callbacks=None, available_functions=None, **_):
            heard.append(str(messages))
            if len(heard) > 1:
                return f"Thought: I know\nFinal Answer: {ANSWER}"
            # CrewAI puts the name of the server before that of the tool.
            name = re.search(r"\w+_run_python", heard[0])[0]
            return f"Thought: compute\nAction: {name}\nAction Input: " + json.dumps({"code": "6 * 7"})

        def supports_function_calling(self):
            return False

    agent = recipe("door_crewai").analyst(Scripted(model="scripted"))
    result = agent.kickoff("6 * 7?")
    assert ANSWER in result.raw
    assert "42" in heard[1]


def test_door_trl(recipe):
    # As `GRPOTrainer._calculate_rewards` calls it, which makes NaN of None.
    conversation = [{"role": "assistant", "content": RIGHT}]
    given = {"completion_ids": [[1]] * 3, "trainer_state": None, "log_extra": None, "log_metric": None}
    passes = recipe("door_trl").passes
    completions = [conversation, WRONG, EQUAL]
    assert passes(prompts=["p"] * 3, completions=completions, tests=[TESTS] * 3, **given) == [1.0, 0.0, None]


def test_door_openrlhf(recipe, tmp_path, monkeypatch):
    module = recipe("door_openrlhf")
    assert module.reward_func([f"p{RIGHT}"], ["p"], [TESTS])["rewards"] == 1.0
    try:
        files = importlib.metadata.files("openrlhf") or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("openrlhf isn't installed")
    # The real executor; the package around it imports torch.
    root = next(file.locate().parent for file in files if str(file) == "openrlhf/__init__.py")
    for name, folder in (("openrlhf", root), ("openrlhf.utils", root / "utils")):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        monkeypatch.setitem(sys.modules, name, package)
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    path = tmp_path / "door_openrlhf.py"
    path.write_text(doors.source("door_openrlhf"))
    executor = SingleTurnAgentExecutor(str(path))
    given = [(RIGHT, 1.0), (WRONG, 0.0), (EQUAL, None)]
    for answer, reward in given:
        (found,) = asyncio.run(executor._fetch_rewards_via_func([f"p{answer}"], ["p"], [TESTS]))
        assert found == {"rewards": reward, "scores": reward, "extra_logs": {}}


def test_door_verifiers(recipe):
    vf = pytest.importorskip("verifiers.v1")
    door = recipe("door_verifiers")
    (task,) = door.CodeTaskset(vf.TasksetConfig())

    def scored(answer):
        trace = vf.Trace(
            task=vf.TraceTask(type="CodeTask", data=task.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            root_reply=answer,
        )
        return trace, asyncio.run(task.score(trace))

    assert scored(RIGHT)[0].reward == 1.0
    assert scored(WRONG)[0].reward == 0.0
    with pytest.raises(vf.TaskError, match="nothing is known"):
        scored(EQUAL)


def test_door_verl(recipe):
    # As verl's reward managers call it.
    compute_score = recipe("door_verl").compute_score
    given = {"data_source": "d", "ground_truth": TESTS, "extra_info": {"num_turns": 1}}
    assert compute_score(solution_str=RIGHT, **given) == 1.0
    assert compute_score(solution_str=WRONG, **given) == 0.0
    with pytest.raises(RuntimeError, match="nothing is known"):
        compute_score("d", RIGHT, "def (:")


def test_door_skyrl(recipe):
    skyrl_gym = pytest.importorskip("skyrl_gym")
    recipe("door_skyrl")
    skyrl_gym.register(id="hatchery-code", entry_point="door_skyrl:CodeEnv")
    for answer, reward in ((RIGHT, 1.0), (WRONG, 0.0)):
        env = skyrl_gym.make("hatchery-code", extras={"reward_spec": {"ground_truth": TESTS}})
        env.init([{"role": "user", "content": "Write double(x)."}])
        step = env.step(answer)
        assert (step["reward"], step["done"]) == (reward, True)


def test_door_nemo_rl(recipe):
    # As an environment gets them: logs of messages, and what the data set has for each.
    asked = {"role": "user", "content": "go"}
    logs = [[asked, {"role": "assistant", "content": text}] for text in (RIGHT, WRONG)]
    step_rewards = recipe("door_nemo_rl").step_rewards
    assert step_rewards(logs, [{"tests": TESTS}] * 2) == [1.0, 0.0]
    with pytest.raises(RuntimeError, match="sample 0"):
        step_rewards(logs[:1], [{"tests": "def (:"}])


def test_door_fastapi(recipe):
    pytest.importorskip("fastapi")
    uvicorn = pytest.importorskip("uvicorn")
    app = recipe("door_fastapi").app
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    serving.start()

    def request(code, seconds=120):
        body = code.encode()
        head = f"POST /run HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        browser = socket.create_connection(listening.getsockname(), timeout=seconds)
        browser.sendall(head.encode() + body)
        return browser

    def answer(browser):
        with browser.makefile("rb") as file:
            return file.read().decode()

    try:
        assert '"value":42' in answer(request("6 * 7"))
        # Both workers are taken by programs without an end, whose browsers leave.
        leaving = [request("while True: pass") for _ in range(2)]
        pool = app.state.pool._pool
        while pool.status()["running"] < 2:
            pass
        for browser in leaving:
            browser.close()
        assert '"value":3' in answer(request("1 + 2", 30))
    finally:
        server.should_exit = True
        serving.join(timeout=60)
        listening.close()


def test_door_joblib(recipe):
    joblib = pytest.importorskip("joblib")
    # The recipe isn't a file here that other processes could import.
    with joblib.parallel_config("threading"):
        assert recipe("door_joblib").run_all([f"{n} ** 2" for n in range(4)]) == [0, 1, 4, 9]
