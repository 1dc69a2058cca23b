//! The Python build and what images add to it. These are the wheel, the compiled module, the
//! library, packages, and the specification of an image.
//!
//! Owns fetching, verifying, compiling and caching them. It starts no interpreter. May use `run/`,
//! `cache/` and the wings below.

pub(crate) mod distribution;
pub(crate) mod emscripten;
pub(crate) mod library;
pub(crate) mod module;
pub(crate) mod packages;
pub(crate) mod prune;
pub(crate) mod spec;
