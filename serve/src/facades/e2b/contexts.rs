//! Contexts: sessions with ids that nobody can guess, each of one tenant.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hatchery::wire::{Problem, ProblemKind};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::super::request::unguessable;
use crate::caller::Caller;
use crate::service::Service;

/// Contexts of one tenant. The pool has its own limit on sessions of all.
const MOST_CONTEXTS: usize = 256;

/// Cells of one context that run or wait; further ones are refused.
const MOST_CELLS: usize = 64;

/// Where a context begins.
const HOME: &str = "/home/user";

/// A context. Its cells run one after another.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: String,
    pub(super) cwd: String,
    tenant: Option<String>,
    /// Held while a cell runs.
    pub(super) turn: Arc<tokio::sync::Mutex<Turn>>,
    /// Room for cells that run or wait.
    pub(super) room: Arc<Semaphore>,
    /// Counts how often the cells that ran or waited were ended.
    pub(super) ended: watch::Sender<u64>,
}

/// What one cell leaves for the next.
#[derive(Debug)]
pub(super) struct Turn {
    /// The number of cells that were run.
    pub(super) count: u64,
    /// Whether the session isn't prepared for cells yet, of which the first begins in `cwd`.
    pub(super) is_fresh: bool,
}

impl Turn {
    fn first() -> Self {
        Self { count: 0, is_fresh: true }
    }
}

impl Context {
    fn new(cwd: Option<String>, tenant: Option<&str>) -> Self {
        Self {
            id: unguessable(),
            cwd: cwd.filter(|cwd| !cwd.is_empty()).unwrap_or_else(|| HOME.to_owned()),
            tenant: tenant.map(str::to_owned),
            turn: Arc::new(tokio::sync::Mutex::new(Turn::first())),
            room: Arc::new(Semaphore::new(MOST_CELLS)),
            ended: watch::Sender::new(0),
        }
    }

    /// The name of its session.
    pub(super) fn session(&self) -> String {
        format!("e2b-{}", self.id)
    }

    /// Ends the cells that run or wait.
    fn end_cells(&self) {
        self.ended.send_modify(|count| *count += 1);
    }
}

/// The contexts of all tenants.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    kept: Mutex<Kept>,
    /// Held while a default context is opened, so that there is one.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Kept {
    contexts: HashMap<String, Arc<Context>>,
    /// The ids of those that a cell without an id runs in, by tenant.
    defaults: HashMap<Option<String>, String>,
}

impl Kept {
    fn of<'a>(&'a self, caller: &'a Caller) -> impl Iterator<Item = &'a Arc<Context>> {
        self.contexts.values().filter(|context| context.tenant.as_deref() == caller.tenant())
    }
}

impl Contexts {
    /// Returns the contexts of the caller, ordered by their ids.
    pub(super) fn list(&self, caller: &Caller) -> Vec<Arc<Context>> {
        let mut found: Vec<_> = self.kept.lock().of(caller).cloned().collect();
        found.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        found
    }

    /// Returns a context of the caller.
    pub(super) fn find(&self, caller: &Caller, id: &str) -> Option<Arc<Context>> {
        let found = self.kept.lock().contexts.get(id).cloned();
        found.filter(|context| context.tenant.as_deref() == caller.tenant())
    }

    /// Returns the context in which cells without an id run, and opens it if need be.
    pub(super) async fn default(
        &self,
        service: &Service,
        caller: &Caller,
    ) -> Result<Arc<Context>, Problem> {
        let _opening = self.opening.lock().await;
        let tenant = caller.tenant().map(str::to_owned);
        let id = self.kept.lock().defaults.get(&tenant).cloned();
        if let Some(context) = id.and_then(|id| self.find(caller, &id)) {
            return Ok(context);
        }
        let context = self.open(service, caller, None).await?;
        self.kept.lock().defaults.insert(tenant, context.id.clone());
        Ok(context)
    }

    /// Opens a context.
    pub(super) async fn open(
        &self,
        service: &Service,
        caller: &Caller,
        cwd: Option<String>,
    ) -> Result<Arc<Context>, Problem> {
        if self.is_full(caller) {
            self.forget_closed(service, caller);
        }
        let context = Arc::new(Context::new(cwd, caller.tenant()));
        service.open(caller, &context.session(), None).await?;
        let mut kept = self.kept.lock();
        if kept.of(caller).count() < MOST_CONTEXTS {
            kept.contexts.insert(context.id.clone(), Arc::clone(&context));
            return Ok(context);
        }
        drop(kept);
        service.close(caller, &context.session())?;
        let message =
            format!("there are {MOST_CONTEXTS} contexts, and no more are kept: remove some");
        Err(Problem::new(ProblemKind::Refused, message).with_reason("contexts"))
    }

    /// Ends the cells of a context, and drops it with its state.
    pub(super) fn remove(&self, service: &Service, caller: &Caller, context: &Context) {
        let mut kept = self.kept.lock();
        kept.contexts.remove(&context.id);
        kept.defaults.retain(|_, id| *id != context.id);
        drop(kept);
        context.end_cells();
        // The session may be gone already.
        let _ = service.close(caller, &context.session());
    }

    /// Ends the cells of a context, and gives it the state of a new one.
    pub(super) async fn restart(
        &self,
        service: &Service,
        caller: &Caller,
        context: &Context,
    ) -> Result<(), Problem> {
        context.end_cells();
        let mut turn = context.turn.lock().await;
        match service.reset(caller, &context.session()).await {
            // The pool has closed it, so there is nothing to keep.
            Err(problem) if is_gone(&problem) => {
                let _ = service.close(caller, &context.session());
                service.open(caller, &context.session(), None).await?;
            }
            reset => reset?,
        }
        *turn = Turn::first();
        Ok(())
    }

    fn is_full(&self, caller: &Caller) -> bool {
        self.kept.lock().of(caller).count() >= MOST_CONTEXTS
    }

    /// Forgets contexts whose sessions the pool has closed, as it does with idle ones.
    fn forget_closed(&self, service: &Service, caller: &Caller) {
        let status = service.pool().status();
        let open: HashSet<&str> =
            status.sessions.iter().map(|session| session.name.as_str()).collect();
        for context in self.list(caller) {
            let name = match caller.tenant() {
                Some(tenant) => format!("{tenant}/{}", context.session()),
                None => context.session(),
            };
            if !open.contains(name.as_str()) {
                self.remove(service, caller, &context);
            }
        }
    }
}

/// Returns whether a session isn't there any more.
pub(super) fn is_gone(problem: &Problem) -> bool {
    matches!(problem.reason.as_deref(), Some("session_gone" | "no_session"))
}
