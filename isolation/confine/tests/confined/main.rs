//! What a confined process can and can't do, each thing in a child of its own.
//!
//! Children are forked, so this is a program with one thread, and not the usual harness. Names of tests
//! on the command line select those that contain one of them. Where nothing confines, nothing runs.

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod children;

fn main() {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
    children::run_tests();
}
