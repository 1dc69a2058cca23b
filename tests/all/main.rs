//! The public library with the real build: what a user may rely on, one module per subject.

/// Plain host functions that block, and how they affect other calls.
mod blocking;
/// What the Python build contains: the page about it, and adaptations for what it lacks.
mod build;
/// Whatever a job can have, on builds beside the default one.
mod builds;
/// Tickets that are cancelled, dropped and streamed from.
mod cancellation;
/// Many short jobs at once.
mod crowd;
/// Reproducible runs.
mod determinism;
/// HTTP by rule: clients, a job's share, secrets, recordings, and what ends a request.
mod egress;
/// The events of a job, in one order, for readers of every kind.
mod events;
/// Files: inputs, reported changes, and undone changes.
mod files;
mod forks;
/// Host functions, and asyncio, which waits for them.
mod functions;
/// Session states that are copied, restored, saved, and moved between workers.
mod images;
/// Modules that are imported ahead and hidden.
mod imports;
/// What a job is given, and what it returns.
mod inputs;
/// What a program can't reach.
mod isolation;
/// What a job is given, prints and leaves behind.
mod jobs;
/// Host functions of one job or session, which others neither see nor call.
mod lending;
/// What happens at each limit, and that the next job isn't affected.
mod limits;
/// Connections: which a pool allows, which of them a job has, and which pools can't allow any.
mod network;
/// Several Python builds in one pool: jobs, sessions and packages by the names of builds.
mod pythons;
/// Sessions that are recorded, and what is done with the recordings.
mod recordings;
/// What a job returns besides its output: representations of values, displays, figures, exceptions.
mod results;
/// Deadlines, tenants, memory, and the scheduler's reports about them.
mod scheduling;
/// State from job to job, and its end.
mod sessions;
/// The shell in the sandbox.
mod shell;
/// Hundreds of programs of every kind, each with its complete expected outcome.
mod table;
/// Asyncio tasks that live from job to job.
mod tasks;
/// Threads of the default build.
mod threads;

mod support;

use test_support::{dice, found, needs};
