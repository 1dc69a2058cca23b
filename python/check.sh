#!/usr/bin/env bash
# Builds both wheels, installs them into a fresh environment, and runs the tests and the type checker
# there. maturin builds the binary; its wheel has Python compiled for it, by the binary of HATCHERY_BINARY
# or of `cargo build --release`, so that a first start needn't compile.
# Wheels are left in the folder of the first argument, if there is one.
set -euo pipefail
wheels="${1:+$(realpath -m "$1")}"
cd "$(dirname "$0")"

folder="$(mktemp -d)"
# Where the wheel of the binary has the compiled Python.
shared="$PWD/runtime/data/data/share/hatchery"
trap 'rm -rf "$folder" "$shared"/python.module*' EXIT
wheels="${wheels:-$folder/wheels}"
tools="$HOME/.cache/hatchery/python-tools"

# What builds and checks; kept from run to run.
versions="build==1.6.1 hatchling==1.33.0 maturin==1.16.0 twine==7.0.0"
if [ "$(cat "$tools/versions" 2>/dev/null)" != "$versions" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    # shellcheck disable=SC2086
    "$tools/bin/pip" install --quiet --disable-pip-version-check $versions
    echo "$versions" > "$tools/versions"
fi
binary="${HATCHERY_BINARY:-${CARGO_TARGET_DIR:-../target}/release/hatchery}"
"$binary" --quiet python precompile "$shared/python.module"
(cd "$shared" && sha256sum python.module > python.module.sha256)
for package in . runtime; do
    # Copies, since a source distribution can't have links that lead out of it.
    for licence in LICENSE-APACHE LICENSE-MIT; do
        cmp "../$licence" "$package/$licence"
    done
done
mkdir -p "$wheels"
{
    "$tools/bin/python" -m build --wheel --no-isolation --outdir "$wheels" .
    (cd runtime && "$tools/bin/maturin" build --release --out "$wheels")
    "$tools/bin/twine" check --strict "$wheels"/*.whl
} > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }

python3 -m venv "$folder/venv"
pip="$folder/venv/bin/pip --quiet --disable-pip-version-check"
$pip install pytest==9.2.0 mypy==2.4.1 'numpy>=2' 'pandas>=2' trio tqdm
began="$(date +%s)"
$pip install "$wheels"/*.whl

# The binary is the wheel's from here on, and the sources are the wheel's, too.
unset HATCHERY_BINARY PYTHONPATH

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
