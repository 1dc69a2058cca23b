//! Images and sessions on the real build, without the layers above. The tests hold where an
//! interpreter begins, what it returns to, and what it carries along.

/// Programs that run again and again are compiled ahead.
mod bytecode;
/// What the host computes for NumPy.
mod kernels;
/// Packages beyond those of the build, and imports of modules that don't exist.
mod packages;
/// Packed sessions continue as if they had only been suspended.
mod packing;
/// Programs that leave as many traces as possible, each in its own place.
mod programs;
/// Copies of one image share no random number.
mod random;
/// A reset leaves nothing, however often and after whatever.
mod resets;
/// Sessions are saved to a file and revived in another process.
mod saving;
/// What exists before the first job.
mod setup;
/// Each turn of a session has its own standard input.
mod stdin;
/// The state of a session moves from one interpreter to another.
mod suspending;

mod support;
