#!/usr/bin/env bash
# Makes `dist`: what a release consists of, for Linux on x86-64 from glibc 2.28 on.
#
#     hatchery_sandbox-*.whl            the client
#     hatchery_sandbox_runtime-*.whl    the binary, for manylinux_2_28
#     hatchery_sandbox_module-*.whl     Python compiled for it
#     hatchery-TARGET-vVERSION.tar.zst  the binary, completions, man pages, licences; cargo-binstall finds it
#     hatchery_VERSION_amd64.deb        the same, with the compiled Python
#     *.cdx.json                        what the binary and the Python build consist of
#     SHA256SUMS
#
# It needs what a build needs, dpkg-deb and zstd; the rest comes from PyPI and crates.io, pinned. A second
# run in another folder makes the same bytes: the time is the commit's, and paths don't matter.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-unknown-linux-gnu
tools="$HOME/.cache/hatchery/dist-tools"
auditable=0.7.7
packages="auditwheel==6.8.2 cyclonedx-python-lib[json-validation]==11.12.0 maturin==1.16.0 ziglang==0.17.1"
if [ "$(cat "$tools/versions" 2>/dev/null)" != "$packages $auditable" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    # shellcheck disable=SC2086
    "$tools/bin/pip" install --quiet --disable-pip-version-check $packages
    CARGO_TARGET_DIR="$tools/target" cargo install --quiet --locked --root "$tools" "cargo-auditable@$auditable"
    rm -rf "$tools/target"
    echo "$packages $auditable" > "$tools/versions"
fi
# maturin finds zig beside this Python.
export PATH="$tools/bin:$PATH"

CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
export CARGO_TARGET_DIR SOURCE_DATE_EPOCH CARGO_INCREMENTAL=0
export RUSTC_WRAPPER="$PWD/.github/rustc.sh"
export CARGO_AUDITABLE_ORIG_ARGS='{"offline":false,"frozen":false,"locked":true,"config":[]}'

rm -rf dist
mkdir dist
python3 .github/dist.py crates "$target"
options=(--zig --target "$target" --compatibility manylinux_2_28 --sbom-include "$PWD"/dist/*.crates.cdx.json)
# The binary comes first, since it compiles Python, whose hash is in the wheel of the binary.
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
(cd python/runtime && maturin build --release --out "$scratch" "${options[@]}")
# Another maturin would call the linker by another path, for which Cargo builds everything again.
export MATURIN="$tools/bin/maturin"
HATCHERY_BINARY="$CARGO_TARGET_DIR/$target/release/hatchery" python/wheels.sh dist "${options[@]}"
auditwheel show dist/hatchery_sandbox_runtime-*.whl
python3 .github/dist.py files "$target"
ls -l dist
