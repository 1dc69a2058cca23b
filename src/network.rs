//! Which connections and requests a pool allows its programs, and a job's subset.

use std::sync::Arc;

use egress::{Egress, EgressRecording, JobEgress, Rule};
use engine::{Destination, Network};
use scheduler::{DEFAULT_TENANT, JobRequest};
use tokio::runtime::Handle;

/// Programs can't be allowed these connections.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The pool's interpreters are in processes.
    #[error(
        "connections are for interpreters on threads, and a worker process is confined without any \
         network: allow no connections, or use the isolation `threads`"
    )]
    Isolation,
    /// No Python build of the pool can connect.
    #[error(
        "no Python build here can connect to what programs are allowed: {}; a build for WASIX can",
        reasons.join("; ")
    )]
    Build {
        /// Why not, for each build.
        reasons: Vec<String>,
    },
    /// A job asks for more than its pool allows.
    #[error(
        "the pool doesn't allow its jobs to connect to `{destination}` (`Builder::allow_connect`)"
    )]
    NotAllowed {
        /// The first destination that isn't allowed.
        destination: Destination,
    },
    /// A job asks for requests in a pool that allows none.
    #[error("the pool allows no requests over HTTP, so a job can't ask for `{rule}`")]
    NoEgress {
        /// The first rule of the job.
        rule: String,
    },
    /// A recording of requests can't be read.
    #[error("the recording's requests can't be read: {0}")]
    Recording(String),
}

/// What serves the requests of a pool's jobs.
#[derive(Debug, Clone)]
pub(crate) struct PoolEgress {
    pub(crate) egress: Arc<Egress>,
    pub(crate) runtime: Handle,
}

impl PoolEgress {
    /// Lets a job make the requests that the pool, its tenant's rules and these allow. A
    /// deterministic job makes none, unless it records them or a recording answers them.
    fn serve(
        &self,
        request: &mut JobRequest,
        asked: Option<Vec<Rule>>,
    ) -> Result<(), NetworkError> {
        let program = &mut request.program;
        let recorded = program.replays.as_ref().map(|recording| recording.network.clone());
        if program.deterministic.is_some() && recorded.is_none() && !program.records_calls {
            return Ok(());
        }
        let replays: Option<EgressRecording> = match recorded {
            None => None,
            Some(None) => Some(EgressRecording::default()),
            Some(Some(network)) => Some(
                serde_json::from_value(network)
                    .map_err(|error| NetworkError::Recording(error.to_string()))?,
            ),
        };
        let tenant = self.egress.of_tenant(request.tenant.as_deref().unwrap_or(DEFAULT_TENANT));
        let egress = match asked {
            Some(rules) => Arc::new(tenant.restricted(rules)),
            None => Arc::clone(tenant),
        };
        let (runtime, bytes) = (self.runtime.clone(), request.limits.network_bytes);
        let peer = JobEgress::new(egress, runtime, bytes, program.records_calls, replays);
        for (name, placeholder) in peer.environment() {
            program.env.entry(name).or_insert(placeholder);
        }
        program.egress = Some(Arc::new(peer));
        Ok(())
    }
}

/// Lets a job make requests: all that the pool allows, or those that it asks for.
pub(crate) fn serve_requests(
    pool: Option<&PoolEgress>,
    request: &mut JobRequest,
    asked: Option<Vec<Rule>>,
) -> Result<(), NetworkError> {
    match (pool, asked) {
        // A job that asks for nothing gets nothing.
        (_, Some(rules)) if rules.is_empty() => Ok(()),
        (Some(pool), asked) => pool.serve(request, asked),
        (None, Some(mut rules)) => {
            Err(NetworkError::NoEgress { rule: rules.swap_remove(0).to_string() })
        }
        (None, None) => Ok(()),
    }
}

/// Returns what a job may reach in a pool that allows `allowed`: all of it, or what the job asks
/// for.
pub(crate) fn of_job(allowed: &Network, asked: Option<Network>) -> Result<Network, NetworkError> {
    let Some(asked) = asked else { return Ok(allowed.clone()) };
    match asked.beyond(allowed) {
        Some(destination) => Err(NetworkError::NotAllowed { destination: destination.clone() }),
        None => Ok(asked),
    }
}
