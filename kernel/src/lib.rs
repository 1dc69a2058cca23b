//! A Jupyter kernel: one session of a pool behind the sockets of a front end.
#![forbid(unsafe_code)]
