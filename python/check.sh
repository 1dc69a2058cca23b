#!/usr/bin/env bash
# Builds both wheels, installs them into a fresh environment, and runs the tests and the type checker
# there. Packs the binary of HATCHERY_BINARY, or the one that `cargo build --release` has made.
# Wheels are left in the folder of the first argument, if there is one.
set -euo pipefail
cd "$(dirname "$0")"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
wheels="${1:-$folder/wheels}"
tools="$HOME/.cache/hatchery/python-tools"

# What builds and checks; kept from run to run.
versions="build==1.6.1 hatchling==1.33.0"
if [ "$(cat "$tools/versions" 2>/dev/null)" != "$versions" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    # shellcheck disable=SC2086
    "$tools/bin/pip" install --quiet --disable-pip-version-check $versions
    echo "$versions" > "$tools/versions"
fi
for package in . runtime; do
    "$tools/bin/python" -m build --wheel --no-isolation --outdir "$wheels" "$package" > "$folder/log" ||
        { cat "$folder/log"; exit 1; }
done

python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$wheels"/*.whl \
    pytest==9.2.0 mypy==2.4.1 'numpy>=2' 'pandas>=2' trio

# The binary is the wheel's from here on, and the sources are the wheel's, too.
unset HATCHERY_BINARY PYTHONPATH
"$folder/venv/bin/python" -I -c '
from hatchery_sandbox import Pool
with Pool(preload=["pandas"]) as pool:
    print(pool.run("import pandas as pd; pd.DataFrame({\"x\": [1, 2, 6]})[\"x\"].mean()").value)
'
"$folder/venv/bin/mypy" --cache-dir "$folder/mypy"
timeout 150 "$folder/venv/bin/python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=60 tests
