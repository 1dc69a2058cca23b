# The commands of README.md and CONTRIBUTING.md, by name. `just` lists them.

_list:
    @just --list

# Build everything
build:
    cargo build --release --locked --workspace --all-targets

# Unit tests and the scheduler's model, in under two minutes once they are built
quick:
    cargo test --release --locked --workspace --lib

# All tests
test:
    cargo test --release --locked --workspace

# Rules about the text of the repository, in seconds once it is built
tidy:
    cargo test --release --locked --workspace --test tidy --test layering --test packaging

# Random calls at every host function
fuzz:
    cargo test --release --locked --workspace --lib -- fuzz

# Format, lints, documentation, spelling
lint:
    cargo fmt --all --check
    cargo clippy --release --locked --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --release --locked --workspace --no-deps
    typos

# Licences, sources and forbidden features of dependencies
deny:
    cargo deny --locked check licenses bans sources

# What would be published, without building it
package:
    cargo package --workspace --no-verify --locked --quiet

# The newest common packages, pinned in `engine/src/python/packages/common.txt`
packages:
    python3 engine/src/python/packages/common.py

# Everything that a release consists of, into `dist`
dist:
    .github/dist.sh

# The example of the README
sales:
    cargo run --release -- run examples/sales.py

# What decides whether a change lands
ci:
    .github/ci.sh
