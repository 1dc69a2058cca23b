#!/bin/sh
# Cargo's RUSTC_WRAPPER for a release, which `dist.sh` sets: the program doesn't name the folders that it
# was built in, and has the list of its crates, as `cargo audit bin` and scanners read it.
# RUSTFLAGS would do the first as well, but Cargo's names of folders depend on it.
case " $* " in
    *" --crate-type bin "*) [ -z "${CARGO_PRIMARY_PACKAGE:-}" ] || set -- cargo-auditable "$@" ;;
esac
exec "$@" --remap-path-prefix="${CARGO_HOME:-$HOME/.cargo}=/cargo" --remap-path-prefix="$CARGO_TARGET_DIR=/target"
