//! The public library with the real build: what a user may rely on, one module a subject.

/// Plain functions of the host that block, and what they leave to others.
mod blocking;
/// What the Python build has: the page about it, and what is done here about what it lacks.
mod build;
/// Tickets that are cancelled, dropped and streamed from.
mod cancellation;
/// Runs that are the same every time.
mod determinism;
/// What happens in a job, in one order, for readers of every kind.
mod events;
/// Files: what comes in, what is told of, what is undone.
mod files;
/// Functions of the host, and asyncio, which waits for them.
mod functions;
/// States of sessions that are copied, gone back to, saved, and moved between workers.
mod images;
/// What a job is given, and what of it comes back.
mod inputs;
/// What a program can't reach.
mod isolation;
/// What a job is given, says and leaves.
mod jobs;
/// What happens at each limit, and that the next job doesn't notice.
mod limits;
/// What a job tells back beside its output: forms of values, displays, figures, exceptions.
mod results;
/// Deadlines, tenants, memory, and what the scheduler says of it.
mod scheduling;
/// State from job to job, and its end.
mod sessions;
/// Some hundred programs of every kind, each with everything that is to come of it.
mod table;
/// Tasks of asyncio that live from job to job.
mod tasks;

mod support;
