//! What sessions share that were forked from one state, and how their bytes are counted.
//!
//! A state that is forked becomes the base of its forks. Its pages and files are counted once, as
//! bytes of the base. A fork counts what it has beside them, and at rest keeps no more than that.
//! So does the session that was forked, from then on: its interpreter learns of the base by the
//! [`Lineage`], which it shares with the copies of its states. For an interpreter in another process
//! this one has the lineage, and gives it to the states that arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Life, SessionInner, SessionMemory, SessionState};
use crate::files::tree::Tree;
use crate::interpreter::image::Image;
use crate::memory::delta::DeltaBase;
use crate::memory::patch::MemoryPatch;

/// A state from which sessions were forked, as far as they share it.
#[derive(Debug)]
pub(crate) struct ForkBase {
    pub(super) patch: Arc<MemoryPatch>,
    pub(super) tree: Tree,
    shared: SharedBytes,
}

impl ForkBase {
    /// Returns the patch as what deltas on this image are made against.
    pub(super) fn of<'a>(&'a self, image: &'a Image) -> DeltaBase<'a> {
        DeltaBase { image: image.inner.memory.bytes(), patch: &self.patch }
    }
}

/// What the forks of one state share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBytes {
    /// Identifies the state in this process.
    pub id: u64,
    /// Bytes of memory and files that the forks share, beside what the state has in common with the
    /// one that its session was forked from.
    pub bytes: u64,
    /// The same with what it has in common.
    pub whole_bytes: u64,
}

/// A state that is forked.
pub struct BranchedState {
    /// The state with which each fork begins; any number can begin with clones of it. As after
    /// [`SessionState::fork`], they draw other random numbers.
    pub fork: SessionState,
    /// The state itself, in a form that takes nothing beside what is shared.
    pub own: SessionState,
    /// What they share.
    pub shared: SharedBytes,
}

/// What an interpreter's states are counted beside: the state that their session was forked from, if
/// there is one.
#[derive(Debug, Clone, Default)]
pub struct Lineage {
    base: Option<Arc<ForkBase>>,
    /// The base of later states of the interpreter that this state was copied from.
    later: Arc<Mutex<Option<Arc<ForkBase>>>>,
    /// What the state takes beside its base.
    pub(super) own_bytes: u64,
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
        Self::of(self.base.clone())
    }

    pub(super) fn base(&self) -> Option<&Arc<ForkBase>> {
        self.base.as_ref()
    }
}

impl SessionState {
    /// Makes this state one from which forks continue.
    pub fn branch(&self) -> BranchedState {
        let inner = &*self.inner;
        let base = match (&inner.memory, inner.lineage.base()) {
            // It was forked before, and nothing has run since.
            (SessionMemory::Patch(patch), Some(base))
                if Arc::ptr_eq(patch, &base.patch) && inner.lineage.own_bytes == 0 =>
            {
                Arc::clone(base)
            }
            (_, before) => Arc::new(self.as_base(before.map(|before| &**before))),
        };
        let shared = base.shared;
        let memory = SessionMemory::Patch(Arc::clone(&base.patch));
        let later = Arc::clone(&inner.lineage.later);
        let own = Lineage { base: Some(Arc::clone(&base)), later, own_bytes: 0 };
        let own = SessionInner { memory: memory.clone(), lineage: own, ..inner.clone() }.counted();
        let life = Life { is_copy: inner.life.deterministic.is_none(), ..inner.life };
        let lineage = Lineage::of(Some(base));
        let fork = SessionInner { memory, life, lineage, ..inner.clone() }.counted();
        BranchedState { fork, own, shared }
    }

    fn as_base(&self, before: Option<&ForkBase>) -> ForkBase {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let inner = &*self.inner;
        let (patch, tree) = (self.memory(), inner.host.tree.clone());
        let whole_bytes = patch.bytes().saturating_add(tree.file_bytes());
        let bytes = before.map_or(whole_bytes, |before| {
            let of_files = tree.bytes_beside(&before.tree, &inner.image.inner.layout.tree);
            patch.bytes_beside(&before.patch).saturating_add(of_files)
        });
        let id = LAST.fetch_add(1, Ordering::Relaxed);
        ForkBase { patch, tree, shared: SharedBytes { id, bytes, whole_bytes } }
    }

    /// Returns the lineage of an interpreter that resumes this state.
    pub fn lineage(&self) -> Lineage {
        self.inner.lineage.resumed()
    }

    /// Counts the state as one of an interpreter with this lineage, which is in another process.
    #[must_use]
    pub fn with_lineage(&self, lineage: &Lineage) -> Self {
        SessionInner { lineage: lineage.now(), ..(*self.inner).clone() }.counted()
    }

    /// Counts later states of this session beside what the forks of this one share. For a state
    /// that [`Self::branch`] returned as [`BranchedState::own`].
    pub fn begin_branch(&self) {
        *self.inner.lineage.later.lock() = self.inner.lineage.base.clone();
    }
}
