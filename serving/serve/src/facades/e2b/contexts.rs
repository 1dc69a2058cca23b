//! Contexts: sessions with random ids, each of one tenant or of one of its sandboxes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hatchery::wire::{Problem, ProblemKind};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::super::run::is_gone;
use super::sandboxes::{Sandbox, Visit};
use crate::caller::{Caller, unguessable};
use crate::service::Service;

/// Contexts of one tenant. The pool has its own limit on sessions of all.
const MOST_CONTEXTS: usize = 256;

/// Sandboxes of one tenant.
const MOST_SANDBOXES: usize = 256;

/// Cells of one context that run or wait; further ones are refused.
const MOST_CELLS: usize = 64;

/// Where a context begins.
const HOME: &str = "/home/user";

/// Whose a context is: a tenant's, in one of its sandboxes or outside of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) tenant: Option<String>,
    /// The id of the sandbox.
    pub(super) sandbox: Option<String>,
}

impl Owner {
    /// The tenant of the caller, outside of sandboxes.
    pub(super) fn of(caller: &Caller) -> Self {
        Self { tenant: caller.tenant().map(str::to_owned), sandbox: None }
    }
}

/// A context. Its cells run one after another.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: String,
    pub(super) cwd: String,
    owner: Owner,
    /// Held while a cell runs.
    pub(super) turn: Arc<tokio::sync::Mutex<Turn>>,
    /// Room for cells that run or wait.
    pub(super) room: Arc<Semaphore>,
    /// Counts how often the cells that ran or waited were ended.
    pub(super) ended: watch::Sender<u64>,
}

/// What one cell leaves for the next.
#[derive(Debug, Clone)]
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
    fn new(cwd: Option<String>, owner: Owner) -> Self {
        Self {
            id: unguessable(),
            cwd: cwd.filter(|cwd| !cwd.is_empty()).unwrap_or_else(|| HOME.to_owned()),
            owner,
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

/// The contexts and sandboxes of all tenants.
#[derive(Debug)]
pub(super) struct Contexts {
    pub(super) service: Service,
    kept: Mutex<ContextTable>,
    /// Held while a default context is opened, so that there is one.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct ContextTable {
    contexts: HashMap<String, Arc<Context>>,
    /// The ids of those that a cell without an id runs in.
    defaults: HashMap<Owner, String>,
    sandboxes: HashMap<String, Arc<Sandbox>>,
}

impl ContextTable {
    fn of_tenant<'a>(&'a self, tenant: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Context>> {
        self.contexts.values().filter(move |context| context.owner.tenant.as_deref() == tenant)
    }

    fn sandboxes<'a>(&'a self, tenant: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Sandbox>> {
        self.sandboxes.values().filter(move |sandbox| sandbox.owner.tenant.as_deref() == tenant)
    }

    /// Whether contexts of this owner may be there.
    fn has(&self, owner: &Owner) -> bool {
        owner.sandbox.as_ref().is_none_or(|id| self.sandboxes.contains_key(id))
    }
}

impl Contexts {
    /// Makes sessions of this service.
    pub(super) fn new(service: Service) -> Self {
        Self { service, kept: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    /// Returns the contexts of an owner, ordered by their ids.
    pub(super) fn list(&self, owner: &Owner) -> Vec<Arc<Context>> {
        let kept = self.kept.lock();
        let own = kept.of_tenant(owner.tenant.as_deref());
        let mut found: Vec<_> = own.filter(|context| context.owner == *owner).cloned().collect();
        drop(kept);
        found.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        found
    }

    /// Returns a context of an owner.
    pub(super) fn find(&self, owner: &Owner, id: &str) -> Option<Arc<Context>> {
        let found = self.kept.lock().contexts.get(id).cloned();
        found.filter(|context| context.owner == *owner)
    }

    /// Returns the context in which cells without an id run, and opens it if need be.
    pub(super) async fn default(&self, visit: &Visit) -> Result<Arc<Context>, Problem> {
        let _opening = self.opening.lock().await;
        let id = self.kept.lock().defaults.get(&visit.owner).cloned();
        if let Some(context) = id.and_then(|id| self.find(&visit.owner, &id)) {
            return Ok(context);
        }
        let context = self.open(visit, None).await?;
        self.kept.lock().defaults.insert(visit.owner.clone(), context.id.clone());
        Ok(context)
    }

    /// Opens a context.
    pub(super) async fn open(
        &self,
        visit: &Visit,
        cwd: Option<String>,
    ) -> Result<Arc<Context>, Problem> {
        let tenant = visit.owner.tenant.as_deref();
        let is_full = |kept: &ContextTable| kept.of_tenant(tenant).count() >= MOST_CONTEXTS;
        if is_full(&self.kept.lock()) {
            self.forget_closed(&visit.caller);
        }
        let context = Arc::new(Context::new(cwd, visit.owner.clone()));
        self.service.open(&visit.caller, &context.session(), None).await?;
        let mut kept = self.kept.lock();
        let refused = if is_full(&kept) {
            let message = format!("there are {MOST_CONTEXTS} contexts, the maximum: remove some");
            Problem::new(ProblemKind::Refused, message).with_reason("contexts")
        } else if !kept.has(&visit.owner) {
            Problem::new(ProblemKind::Usage, "the sandbox was killed").with_reason("sandbox")
        } else {
            kept.contexts.insert(context.id.clone(), Arc::clone(&context));
            return Ok(context);
        };
        drop(kept);
        self.service.close(&visit.caller, &context.session())?;
        Err(refused)
    }

    /// Ends the cells of a context, and drops it with its state.
    pub(super) fn remove(&self, caller: &Caller, context: &Context) {
        let mut kept = self.kept.lock();
        kept.contexts.remove(&context.id);
        kept.defaults.retain(|_, id| *id != context.id);
        drop(kept);
        context.end_cells();
        // The session may be gone already.
        let _ = self.service.close(caller, &context.session());
    }

    /// Ends the cells of a context, and gives it the state of a new one.
    pub(super) async fn restart(&self, caller: &Caller, context: &Context) -> Result<(), Problem> {
        context.end_cells();
        let mut turn = context.turn.lock().await;
        match self.service.reset(caller, &context.session()).await {
            // The pool has closed it, so there is nothing to keep.
            Err(problem) if is_gone(&problem) => {
                let _ = self.service.close(caller, &context.session());
                self.service.open(caller, &context.session(), None).await?;
            }
            reset => reset?,
        }
        *turn = Turn::first();
        Ok(())
    }

    /// Adds a sandbox.
    pub(super) fn add(&self, sandbox: Arc<Sandbox>) -> Result<(), Problem> {
        let mut kept = self.kept.lock();
        if kept.sandboxes(sandbox.owner.tenant.as_deref()).count() >= MOST_SANDBOXES {
            let message = format!("there are {MOST_SANDBOXES} sandboxes, the maximum: kill some");
            return Err(Problem::new(ProblemKind::Refused, message).with_reason("sandboxes"));
        }
        kept.sandboxes.insert(sandbox.id().to_owned(), sandbox);
        Ok(())
    }

    /// Copies the contexts of a sandbox, whose cells have ended, into other sandboxes.
    ///
    /// # Errors
    /// A cell runs or waits, or the pool refuses. Some may be copied then.
    pub(super) async fn fork(
        &self,
        caller: &Caller,
        sandbox: &Owner,
        forks: &[Owner],
    ) -> Result<(), Problem> {
        let default = self.kept.lock().defaults.get(sandbox).cloned();
        for context in self.list(sandbox) {
            let Ok(turn) = context.turn.try_lock() else {
                let message =
                    "a cell of the sandbox runs or waits: fork it once its cells have ended";
                return Err(Problem::new(ProblemKind::Refused, message).with_reason("session_busy"));
            };
            let copy = |owner: &Owner| {
                let copy = Context::new(Some(context.cwd.clone()), owner.clone());
                Arc::new(Context { turn: Arc::new(tokio::sync::Mutex::new(turn.clone())), ..copy })
            };
            let copies: Vec<Arc<Context>> = forks.iter().map(copy).collect();
            let own = self.kept.lock().of_tenant(sandbox.tenant.as_deref()).count();
            if own + copies.len() > MOST_CONTEXTS {
                let message = format!(
                    "there may be {MOST_CONTEXTS} contexts, and the forks would have more: remove \
                     some"
                );
                return Err(Problem::new(ProblemKind::Refused, message).with_reason("contexts"));
            }
            let names: Vec<String> = copies.iter().map(|copy| copy.session()).collect();
            self.service.fork_as(caller, &context.session(), &names).await?;
            let mut kept = self.kept.lock();
            // Sandboxes may have ended meanwhile, and others have more contexts.
            let own = kept.of_tenant(sandbox.tenant.as_deref()).count();
            let is_there = |copy: &Arc<Context>| kept.has(&copy.owner);
            if own + copies.len() > MOST_CONTEXTS || !copies.iter().all(is_there) {
                drop(kept);
                for copy in &copies {
                    // It may have been closed already.
                    let _ = self.service.close(caller, &copy.session());
                }
                let message = "a fork ended before it was ready, or there are too many contexts";
                return Err(Problem::new(ProblemKind::Refused, message).with_reason("contexts"));
            }
            for copy in copies {
                if default.as_ref() == Some(&context.id) {
                    kept.defaults.insert(copy.owner.clone(), copy.id.clone());
                }
                kept.contexts.insert(copy.id.clone(), copy);
            }
        }
        Ok(())
    }

    /// Returns the sandboxes of the caller.
    pub(super) fn sandboxes(&self, caller: &Caller) -> Vec<Arc<Sandbox>> {
        self.kept.lock().sandboxes(caller.tenant()).cloned().collect()
    }

    /// Returns a sandbox of the caller.
    pub(super) fn sandbox(&self, caller: &Caller, id: &str) -> Option<Arc<Sandbox>> {
        let found = self.kept.lock().sandboxes.get(id).cloned();
        found.filter(|sandbox| sandbox.owner.tenant.as_deref() == caller.tenant())
    }

    /// Ends a sandbox, and drops it with its contexts.
    pub(super) fn end(&self, caller: &Caller, sandbox: &Owner) {
        self.kept.lock().sandboxes.retain(|_, other| other.owner != *sandbox);
        for context in self.list(sandbox) {
            self.remove(caller, &context);
        }
    }

    /// Forgets contexts whose sessions the pool has closed, as it does with idle ones.
    fn forget_closed(&self, caller: &Caller) {
        let status = self.service.pool().status();
        let open: HashSet<&str> =
            status.sessions.iter().map(|session| session.name.as_str()).collect();
        let own: Vec<_> = self.kept.lock().of_tenant(caller.tenant()).cloned().collect();
        for context in own {
            let name = caller.session_name(&context.session());
            if name.is_ok_and(|name| !open.contains(name.as_str())) {
                self.remove(caller, &context);
            }
        }
    }
}
