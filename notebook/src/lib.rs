//! Jupyter notebooks, run in sessions of a pool.
#![forbid(unsafe_code)]
