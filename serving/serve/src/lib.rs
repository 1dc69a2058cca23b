//! Serves one pool to many processes.
//!
//! A [`Service`] is the pool with the sessions that its callers have opened. [`frames`] serves it
//! as frames over standard streams and Unix sockets, [`http`] over TCP, and [`mcp`] as tools of
//! agents. [`monitor`] shows a pool to Prometheus and to `hatchery top`. Each client is a
//! [`Caller`]: the protocol, never the message, decides whose jobs they are and what they may
//! request.
#![forbid(unsafe_code)]

pub use caller::{Caller, InvalidTenant};
pub use service::{Answering, Grading, Kernels, Service};
pub use wire::message::Grade;

mod answer;
mod caller;
pub mod facades;
mod forks;
pub mod frames;
pub mod http;
pub mod mcp;
pub mod monitor;
mod service;
