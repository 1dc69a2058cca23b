#!/usr/bin/env bash
# Builds the wheels into the folder of the first argument: the client, the binary, and Python compiled for
# it, so that a first start needn't compile. Further arguments are maturin's, which builds the binary.
# The binary of HATCHERY_BINARY, or of `cargo build --release`, compiles Python. MATURIN names another maturin.
set -euo pipefail
wheels="$(realpath -m "$1")"
shift
cd "$(dirname "$0")"

log="$(mktemp)"
# The wheel of the binary has the hash, so that it loads no other module.
module="$PWD/module/python.module"
hash="$PWD/runtime/data/data/share/hatchery/python.module.sha256"
trap '[ $? = 0 ] || cat "$log"; rm -f "$log" "$module" "$hash"' EXIT
tools="$HOME/.cache/hatchery/python-tools"

# What builds and checks; kept from run to run.
versions="build==1.6.1 hatchling==1.33.0 maturin==1.16.0 twine==7.0.0 uv==0.13.9"
if [ "$(cat "$tools/versions" 2>/dev/null)" != "$versions" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    # shellcheck disable=SC2086
    "$tools/bin/pip" install --quiet --disable-pip-version-check $versions
    echo "$versions" > "$tools/versions"
fi
binary="${HATCHERY_BINARY:-${CARGO_TARGET_DIR:-../target}/release/hatchery}"
"$binary" --quiet python precompile "$module"
(cd module && sha256sum python.module) > "$hash"
for package in . module runtime; do
    # Copies, since a source distribution can't have links that lead out of it.
    for licence in LICENSE-APACHE LICENSE-MIT; do
        cmp "../$licence" "$package/$licence"
    done
done
mkdir -p "$wheels"
{
    for package in . module; do
        "$tools/bin/python" -m build --wheel --no-isolation --outdir "$wheels" "$package"
    done
    (cd runtime && "${MATURIN:-$tools/bin/maturin}" build --release --out "$wheels" "$@")
    "$tools/bin/twine" check --strict "$wheels"/*.whl
} > "$log" 2>&1
