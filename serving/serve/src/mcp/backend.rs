//! What answers calls: the service and its packages, once the pool has started.

use std::sync::Arc;

use hatchery::python::PackageInfo;
use tokio::sync::watch;

use crate::service::Service;

/// A service, and what its programs can import.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) service: Service,
    pub(super) packages: Vec<PackageInfo>,
}

/// How sessions get their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// The client names them. It is the only one.
    Free,
    /// They are random: any caller that knows a name can use the session.
    Random,
}

/// A backend that may still be starting. Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Backends(Arc<watch::Sender<Option<Arc<Backend>>>>);

impl Backends {
    pub(super) fn starting() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    pub(super) fn started(backend: Backend) -> Self {
        let backends = Self::starting();
        backends.provide(backend);
        backends
    }

    pub(super) fn provide(&self, backend: Backend) {
        self.0.send_replace(Some(Arc::new(backend)));
    }

    /// Waits until the pool has started.
    pub(super) async fn ready(&self) -> Arc<Backend> {
        let mut changes = self.0.subscribe();
        let backend = changes.wait_for(Option::is_some).await.expect("the sender is in `self`");
        backend.clone().expect("it is there")
    }
}
