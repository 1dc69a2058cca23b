//! What sessions share that were forked from one state, and how their bytes are counted.
//!
//! A state that is forked becomes the base of its forks. Its pages and files are counted once, as
//! bytes of the base. A fork counts what it has beside them, and at rest keeps no more than that.
//! So does the session that was forked, from then on: its interpreter learns of the base by the
//! [`Lineage`], which it shares with the copies of its states.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{Life, SessionInner, SessionMemory, SessionState};
use crate::files::tree::Tree;
use crate::memory::patch::MemoryPatch;

/// A state from which sessions were forked, as far as they share it.
#[derive(Debug)]
pub(crate) struct ForkBase {
    pub(super) patch: Arc<MemoryPatch>,
    pub(super) tree: Tree,
    shared: SharedBytes,
}

/// What the forks of one state share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBytes {
    /// Identifies the state in this process.
    pub id: u64,
    /// Bytes of memory and files that all forks of the state share, beside what the state shares
    /// with the one that it was forked from.
    pub bytes: u64,
}

/// The base of a session's states, if there is one, and what is counted because of it.
#[derive(Debug, Default)]
pub(in crate::interpreter) struct Lineage {
    base: Option<Arc<ForkBase>>,
    /// The base of later states of the interpreter that this state was copied from.
    later: Arc<Mutex<Option<Arc<ForkBase>>>>,
    /// The base that this state has become.
    own: OnceLock<Arc<ForkBase>>,
    pub(super) own_bytes: u64,
}

impl Clone for Lineage {
    /// Returns that of another form of the same state, which has become no base.
    fn clone(&self) -> Self {
        Self { own: OnceLock::new(), later: Arc::clone(&self.later), ..Self::of(self.base.clone()) }
    }
}

impl Lineage {
    fn of(base: Option<Arc<ForkBase>>) -> Self {
        Self { later: Arc::new(Mutex::new(base.clone())), base, ..Self::default() }
    }

    /// Returns that of a state that is copied now from an interpreter with this lineage.
    pub(in crate::interpreter) fn now(&self) -> Self {
        let base = self.later.lock().clone();
        Self { base, later: Arc::clone(&self.later), ..Self::default() }
    }

    /// Returns that of an interpreter that resumes a state with this lineage.
    pub(in crate::interpreter) fn resumed(&self) -> Self {
        Self::of(self.own.get().or(self.base.as_ref()).cloned())
    }

    pub(super) fn base(&self) -> Option<&ForkBase> {
        self.base.as_deref()
    }

    pub(super) fn shared_base(&self) -> Option<&Arc<ForkBase>> {
        self.base.as_ref()
    }

    pub(super) fn bytes(&self) -> u64 {
        if self.own.get().is_some() { 0 } else { self.own_bytes }
    }
}

impl SessionState {
    /// Returns a copy for sessions that are forked from this one, and what they share. Each of them
    /// can begin with a clone of it. As after [`Self::fork`], they draw other random numbers.
    pub fn branch(&self) -> (Self, SharedBytes) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let inner = &*self.inner;
        let base = inner.lineage.own.get().cloned().unwrap_or_else(|| {
            let (patch, tree) = (self.memory(), inner.host.tree.clone());
            let bytes = match inner.lineage.base() {
                None => patch.bytes().saturating_add(tree.file_bytes()),
                Some(base) => {
                    let of_files = tree.bytes_beside(&base.tree, &inner.image.inner.layout.tree);
                    patch.bytes_beside(&base.patch).saturating_add(of_files)
                }
            };
            let id = LAST.fetch_add(1, Ordering::Relaxed);
            Arc::new(ForkBase { patch, tree, shared: SharedBytes { id, bytes } })
        });
        let shared = base.shared;
        let memory = SessionMemory::Patch(Arc::clone(&base.patch));
        let life = Life { is_copy: inner.life.deterministic.is_none(), ..inner.life };
        let lineage = Lineage::of(Some(base));
        (SessionInner { memory, life, lineage, ..inner.clone() }.counted(), shared)
    }

    /// Counts what this state shares with `fork`, which `branch` returned, no more as its own. So do
    /// later states of its session.
    pub fn become_base_of(&self, fork: &Self) {
        let Some(base) = fork.inner.lineage.shared_base() else { return };
        let base = self.inner.lineage.own.get_or_init(|| Arc::clone(base));
        *self.inner.lineage.later.lock() = Some(Arc::clone(base));
    }
}
