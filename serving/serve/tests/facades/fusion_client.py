"""The SDK of SandboxFusion."""

import base64
import sys

from sandbox_fusion import (
    CommandRunStatus,
    RunCodeRequest,
    RunJupyterRequest,
    RunStatus,
    SummaryMapping,
    run_code,
    run_concurrent,
    run_jupyter,
    set_endpoint,
    summary_run_code_result,
)

set_endpoint(sys.argv[1])


def run(code, **fields):
    return run_code(RunCodeRequest(code=code, language="python", **fields), max_attempts=1)


answer = run("print(input())", stdin="hello")
assert answer.status == RunStatus.Success, answer
assert answer.run_result.stdout == "hello\n" and answer.run_result.return_code == 0
mapping = SummaryMapping(RunFailed="raised", RunTimeout="late")
assert summary_run_code_result(answer, mapping) == "Success"
assert summary_run_code_result(run("1 / 0"), mapping) == "raised"
assert summary_run_code_result(run("def f(:"), mapping) == "raised"
answer = run("while True: pass", run_timeout=0.5)
assert answer.run_result.status == CommandRunStatus.TimeLimitExceeded
assert summary_run_code_result(answer, mapping) == "late"

data = base64.b64encode(bytes(range(256))).decode()
answer = run(
    "open('out', 'wb').write(open('in', 'rb').read())", files={"in": data}, fetch_files=["out"]
)
assert answer.files == {"out": data}, answer

try:
    run_code(RunCodeRequest(code="", language="cpp"), max_attempts=1)
except Exception as error:
    assert "cpp" in str(error), error
else:
    raise AssertionError("it isn't C++")

answers = run_concurrent(run, [[f"print({number})"] for number in range(50)])
assert [answer.run_result.stdout for answer in answers] == [f"{number}\n" for number in range(50)]

cells = ["a = 123", "a", "print(a)", "raise RuntimeError('error message')"]
answer = run_jupyter(RunJupyterRequest(cells=cells), max_attempts=1)
assert answer.status == RunStatus.Success, answer
assert answer.cells[1].display == [{"text/plain": "123"}], answer
assert answer.cells[2].stdout == "123\n" and not answer.cells[2].error
assert answer.cells[3].error[0]["ename"] == "RuntimeError", answer

answer = run_jupyter(RunJupyterRequest(cells=["%time 1", "Out[1] + 1"]), max_attempts=1)
assert answer.cells[1].display == [{"text/plain": "2"}], answer

print("all as expected")
