#!/usr/bin/env bash
# What decides whether a change lands: format, lints, spelling, the packages' files, then the README's
# test command. What takes seconds comes first.
# `ci.sh lint`, `ci.sh test` and `ci.sh python` run a part, as the jobs of the workflow `ci` do.
# It works on a machine with a Rust toolchain, a C compiler and Python 3 with pip, and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/hatchery/target}"
export CARGO_TERM_COLOR=never
# Tests that lack something fail, where they would be left out elsewhere.
export CI="${CI:-true}"
# Private from the start: Hatchery's own cache is there too, and refuses a folder that is open to
# others and holds files that aren't its own.
mkdir -p -m 700 "$HOME/.cache/hatchery"

command -v python3 >/dev/null || { apt-get update && apt-get install -y python3 python3-pip; }
# The browser of serving/serve/tests/page.
command -v chromedriver >/dev/null ||
    { apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; }
rustup component list --installed 2>/dev/null | grep -q clippy || rustup component add clippy rustfmt

# Format, lints, spelling and documents, and the packages' files.
lint() {
    cargo fmt --all --check

    # The spelling of code and documents; `_typos.toml` has the exceptions. And the workflows: actions by
    # their commits, no permission too many, nothing from outside in a script.
    tools="$HOME/.cache/hatchery/tools"
    versions="typos==1.52.0 zizmor==1.32.0"
    if [ "$(cat "$tools/versions" 2>/dev/null)" != "$versions" ]; then
        # shellcheck disable=SC2086
        python3 -m pip install --quiet --upgrade --target "$tools" $versions
        echo "$versions" > "$tools/versions"
    fi
    "$tools/bin/typos"
    "$tools/bin/zizmor" --quiet --offline .github/workflows

    # cargo-deny takes minutes to build, so it runs where it is installed. Advisories need a network.
    if command -v cargo-deny >/dev/null; then
        cargo deny --locked check licenses bans sources
    else
        echo "cargo-deny isn't installed: licences and sources of dependencies aren't checked" >&2
    fi

    cargo clippy --release --locked --workspace --all-targets -- -D warnings
    # The library without wasmer-wasix.
    cargo clippy --release --locked -p hatchery --no-default-features --lib -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --release --locked --workspace --no-deps

    # Each crate can be packaged; tests/packaging.rs looks at the files. Building from the packages
    # would take as long as everything else. Without a network the index as it is will do.
    cargo package --workspace --no-verify --locked --allow-dirty --quiet --offline ||
        cargo package --workspace --no-verify --locked --allow-dirty --quiet
}

# The tests, in each way that jobs can run, and the examples.
tests() {
    # The README's test command, as it stands there.
    bash -euo pipefail -c "$(sed -n 's/^\(cargo test .*\)$/\1/p' README.md | head -1)"

    # The library without wasmer-wasix runs jobs. Crates of others have the same features, so only those of
    # the workspace are built again.
    cargo test --release --locked --workspace --no-default-features --test guest --test lifecycle

    # Workers that a guest has taken over. Their test hook is a feature, with which one crate is compiled
    # once more, in 10 to 20 s.
    test_hook=(--release --locked --workspace --features hatchery-internal-process/test-hook --test compromised)
    cargo clippy "${test_hook[@]}" -- -D warnings
    cargo test "${test_hook[@]}"

    # Some of the tests where copy-on-write can't be had: images are copied then.
    HATCHERY_COPY_ON_WRITE=off cargo test --release --locked --workspace --test all -- \
        isolation:: sessions:: images:: jobs:: files:: determinism::

    # Some of them with workers in processes of their own.
    HATCHERY_ISOLATION=process HATCHERY_HELPER="$CARGO_TARGET_DIR/release/hatchery" \
        cargo test --release --locked --workspace --test all -- crowd:: table:: \
        forks:: isolation:: sessions:: images:: jobs:: files:: determinism:: scheduling:: functions:: blocking:: \
        egress::

    # The examples, which also assert on themselves by failing.
    for example in batch_pipeline parallel_notebooks benchmark_harness host_functions tenants tree_search; do
        cargo run --release --locked --quiet --example "$example"
    done

    # Each version leaves its images in the cache. Those of earlier ones go first.
    "$CARGO_TARGET_DIR/release/hatchery" cache prune --to-size 4GiB
}

# The Python package: its wheels, in an environment of their own.
python_package() {
    HATCHERY_BINARY="$CARGO_TARGET_DIR/release/hatchery" python/check.sh
}

case "${1:-all}" in
    all)
        lint
        tests
        python_package
        ;;
    lint) lint ;;
    test) tests ;;
    python)
        cargo build --release --locked --workspace
        python_package
        ;;
    *)
        echo "ci.sh takes lint, test or python, or nothing for all of them" >&2
        exit 2
        ;;
esac
