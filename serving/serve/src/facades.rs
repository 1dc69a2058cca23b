//! The HTTP interfaces of other products over this crate's types, so that their clients work
//! unchanged: SandboxFusion, E2B and Piston.
//!
//! Requests and answers are as these products define them: fields that they don't know are ignored,
//! and errors have their forms. A job's caller is the [`Caller`](crate::Caller) among the request's
//! extensions, which the outer layer must set. Without one, any client without a tenant is served.
//! Either way a request can only lower the pool's limits.

use axum::Router;

use crate::service::Service;

pub mod e2b;
pub mod fusion;
pub mod piston;
mod request;
mod run;

/// Serves all of them.
pub fn router(service: &Service) -> Router {
    let others = e2b::router(service.clone()).merge(piston::router(service.clone()));
    fusion::router(service.clone()).merge(others)
}
