//! Images and sessions on the real build, without the layers above: what an interpreter begins
//! with, goes back to, and takes along.

/// Packages beside those of the build, and what is said of a module that is nowhere.
mod packages;
/// Sessions are packed, and go on as if they had only rested.
mod packing;
/// What sessions hold goes from one interpreter to another.
mod parking;
/// Programs that leave as much as they can, each in its own place.
mod programs;
/// Copies of one image have no random number in common.
mod random;
/// After a reset nothing is left, however often and after whatever.
mod resets;
/// Sessions go to a file and come back in another process.
mod saving;
/// What is there before the first job.
mod setup;

mod support;
