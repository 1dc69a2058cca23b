//! Pools on many machines, which take their jobs from NATS JetStream.
#![forbid(unsafe_code)]

pub mod policy;
