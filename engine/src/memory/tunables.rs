//! Guest memory as wasmer's `Tunables` and `LinearMemory`.
//!
//! wasmer asks its tunables for memory while it makes an instance. The tunables belong to the
//! engine, and many threads make its instances at once. So `with_memory` passes that memory in a
//! thread-local. A module whose threads share a memory imports it: `SharedMemory` is that memory,
//! and each thread's store gets it. Beyond its memory, a guest can change only its instance's
//! globals, which `InstanceMemory` also restores. `python/module/writes.rs` refuses builds that
//! change more.
#![expect(unsafe_code, reason = "wasmer's tunables are an unsafe interface")]

use std::cell::{RefCell, UnsafeCell};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use wasmer::sys::vm::{
    ExpectedValue, LinearMemory, MemoryError, MemoryStyle, TableStyle, Trap, TrapCode, VMConfig,
    VMGlobal, VMGlobalDefinition, VMMemory, VMMemoryDefinition, VMTable, VMTableDefinition,
    WaiterError,
};
use wasmer::sys::{BaseTunables, Tunables};
use wasmer::{AsStoreMut, GlobalType, Memory, MemoryType, Pages, Store, TableType};

use crate::memory::patch::MemoryPatch;
use crate::memory::{GuestMemory, MOST_BYTES, RESERVED_BYTES, WASM_PAGE_BYTES};

/// The native stack that guest code runs on. CPython's own stack in linear memory has 16 MiB. If
/// the native one were used up first, deep recursion would trap instead of raising.
pub(crate) const GUEST_STACK_BYTES: usize = 16 << 20;

thread_local! {
    static PENDING: RefCell<Pending> = const { RefCell::new(Pending::Nothing) };
}

/// The memory of the instance that is being made.
enum Pending {
    Nothing,
    /// The instance gets this memory. It holds an image, so data segments must not overwrite it.
    Wanted(Arc<GuestMemory>),
    /// The instance got this memory.
    Made(InstanceMemory),
    /// The next memory made for imports is this one.
    Imported(Adapter),
}

/// Calls `instantiate`, which makes an instance on `image`, a memory that holds an image, or else
/// on a new memory. Returns that memory too.
pub(crate) fn with_memory<T>(
    image: Option<Arc<GuestMemory>>,
    instantiate: impl FnOnce() -> T,
) -> (T, Option<InstanceMemory>) {
    PENDING.set(image.map_or(Pending::Nothing, Pending::Wanted));
    let instance = instantiate();
    match PENDING.replace(Pending::Nothing) {
        Pending::Made(memory) => (instance, Some(memory)),
        Pending::Nothing | Pending::Wanted(_) | Pending::Imported(_) => (instance, None),
    }
}

/// The memory of one instance, as both we and the compiled code know it.
#[derive(Debug)]
pub(crate) struct InstanceMemory {
    memory: Arc<GuestMemory>,
    /// Where compiled code reads base and length. Valid while the store lives.
    definition: NonNull<VMMemoryDefinition>,
    /// Keeps the definition, if threads share it.
    _shared: Option<SharedMemory>,
}

#[derive(Debug, Clone)]
pub(crate) struct SharedMemory {
    inner: Arc<SharedMemoryInner>,
}

#[derive(Debug)]
struct SharedMemoryInner {
    memory: Arc<GuestMemory>,
    ty: MemoryType,
    definition: Box<UnsafeCell<VMMemoryDefinition>>,
}

// SAFETY: the base never changes, and the length only through an atomic.
unsafe impl Send for SharedMemoryInner {}
// SAFETY: as above.
unsafe impl Sync for SharedMemoryInner {}

impl SharedMemory {
    /// Makes `memory`, whose type a module imports, one that threads share.
    pub(crate) fn new(memory: Arc<GuestMemory>, ty: MemoryType) -> Self {
        assert!(memory.is_shared(), "host code copies what threads share");
        let (base, current_length) = (memory.base().as_ptr(), memory.len());
        let definition = Box::new(UnsafeCell::new(VMMemoryDefinition { base, current_length }));
        let length = NonNull::new(definition.get()).expect("a box has an address");
        memory.add_length(Length(length));
        Self { inner: Arc::new(SharedMemoryInner { memory, ty, definition }) }
    }

    pub(crate) fn guest(&self) -> &Arc<GuestMemory> {
        &self.inner.memory
    }

    /// Returns it as the memory of the interpreter's own instance.
    pub(crate) fn of_instance(&self) -> InstanceMemory {
        let memory = Arc::clone(&self.inner.memory);
        InstanceMemory { memory, definition: self.definition(), _shared: Some(self.clone()) }
    }

    /// Returns it for the imports of a thread's store. `waits` serves that thread's waits.
    pub(crate) fn in_store(
        &self,
        store: &mut Store,
        waits: Arc<dyn Waits>,
    ) -> Result<Memory, MemoryError> {
        let adapter = Adapter {
            memory: Arc::clone(&self.inner.memory),
            ty: self.inner.ty,
            style: MemoryStyle::Static,
            definition: self.definition(),
            has_image: false,
            shared: Some((self.clone(), waits)),
        };
        PENDING.set(Pending::Imported(adapter));
        let memory = Memory::new(store, self.inner.ty);
        PENDING.set(Pending::Nothing);
        memory
    }

    fn definition(&self) -> NonNull<VMMemoryDefinition> {
        NonNull::new(self.inner.definition.get()).expect("a box has an address")
    }
}

/// Serves `memory.atomic.wait` and `memory.atomic.notify` of one thread. Never panics, since wasmer
/// calls it from code that can't unwind.
pub(crate) trait Waits: std::fmt::Debug + Send + Sync {
    /// Waits while the value at `at` is as expected, until `notify` or for at most `timeout`.
    fn wait(&self, at: u32, expected: Expected, timeout: Option<Duration>) -> Waited;

    /// Ends the waits of at most `most` threads at `at`; returns how many.
    fn notify(&self, at: u32, most: u32) -> u32;
}

/// The value that a word has while a thread waits for it to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Word(u32),
    Long(u64),
}

/// How a thread's wait for a word ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// By another thread.
    Notified,
    /// The value isn't the expected one.
    Changed,
    TimeOver,
    /// The guest was stopped, and is to be unwound.
    Stopped,
}

/// Where the compiled code of an instance reads the length of its memory. It is valid until it is
/// removed from the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Length(NonNull<VMMemoryDefinition>);

// SAFETY: the length is only used through an atomic.
unsafe impl Send for Length {}

impl Length {
    /// Another thread may have grown the memory further in between.
    pub(super) fn raise_to(self, len: usize) {
        // SAFETY: valid, by the invariant of the type.
        unsafe { set_length(self.0, |length| _ = length.fetch_max(len, Ordering::SeqCst)) };
    }
}

/// Sets the length that compiled code reads.
///
/// # Safety
/// The definition is valid.
unsafe fn set_length(definition: NonNull<VMMemoryDefinition>, set: impl FnOnce(&AtomicUsize)) {
    // SAFETY: valid, by the caller's promise; others read the length meanwhile, or set it here.
    set(unsafe { AtomicUsize::from_ptr(&raw mut (*definition.as_ptr()).current_length) });
}

impl InstanceMemory {
    /// Returns the memory, as host functions and interrupts share it.
    pub(crate) fn shared(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Restores memory and globals: see [`GuestMemory::restore`]. `store` is the one that the
    /// instance lives in, and no guest code runs in it.
    ///
    /// # Errors
    /// As [`GuestMemory::restore`], or the globals are another module's.
    pub(crate) fn restore(
        &mut self,
        store: &mut Store,
        patch: &Arc<MemoryPatch>,
        globals: &[u128],
    ) -> io::Result<()> {
        let objects = store.objects_mut();
        if objects.as_u128_globals().len() != globals.len() {
            return Err(io::Error::other("the globals are another module's"));
        }
        for (index, value) in globals.iter().enumerate() {
            objects.set_global_unchecked(index, *value);
        }
        self.memory.restore(patch)?;
        // SAFETY: valid, since the caller lends us the store.
        unsafe {
            set_length(self.definition, |len| len.store(self.memory.len(), Ordering::SeqCst))
        };
        Ok(())
    }
}

/// Returns the values of all globals of the one instance in `store`.
pub(crate) fn globals(store: &mut Store) -> Vec<u128> {
    store.objects_mut().as_u128_globals()
}

/// The tunables of every engine of this crate.
///
/// Set them as this type: wasmer's implementation of `Tunables` for `Box<dyn Tunables>` forwards
/// neither `vmconfig` nor `create_vm_global`.
pub(crate) struct GuestTunables {
    base: BaseTunables,
    config: VMConfig,
}

impl GuestTunables {
    pub(crate) fn new() -> Self {
        let config = VMConfig { wasm_stack_size: Some(GUEST_STACK_BYTES) };
        Self { base: BaseTunables::new(), config }
    }
}

impl Tunables for GuestTunables {
    fn memory_style(&self, memory: &MemoryType) -> MemoryStyle {
        let style = self.base.memory_style(memory);
        assert_eq!(style, MemoryStyle::Static, "GuestMemory reserves what a static memory needs");
        let needed = MOST_BYTES as u64 + style.offset_guard_size();
        assert!(RESERVED_BYTES as u64 >= needed, "E-12: wasmer takes {needed} bytes for granted");
        style
    }

    fn table_style(&self, table: &TableType) -> TableStyle {
        self.base.table_style(table)
    }

    fn create_host_memory(
        &self,
        ty: &MemoryType,
        style: &MemoryStyle,
    ) -> Result<VMMemory, MemoryError> {
        match PENDING.replace(Pending::Nothing) {
            Pending::Imported(adapter) => {
                let adapter = Box::new(adapter) as Box<dyn LinearMemory + Send + Sync>;
                Ok(VMMemory::from_custom(adapter))
            }
            other => {
                PENDING.set(other);
                self.base.create_host_memory(ty, style)
            }
        }
    }

    unsafe fn create_vm_memory(
        &self,
        ty: &MemoryType,
        style: &MemoryStyle,
        definition: NonNull<VMMemoryDefinition>,
    ) -> Result<VMMemory, MemoryError> {
        let (memory, has_image) = match PENDING.replace(Pending::Nothing) {
            Pending::Wanted(memory) => (memory, true),
            Pending::Nothing | Pending::Made(_) | Pending::Imported(_) => {
                let memory = GuestMemory::new(ty.minimum.bytes().0)
                    .map_err(|error| MemoryError::Generic(error.to_string()))?;
                (Arc::new(memory), false)
            }
        };
        let made = InstanceMemory { memory: Arc::clone(&memory), definition, _shared: None };
        PENDING.set(Pending::Made(made));
        // SAFETY: wasmer passes a valid location that lives as long as the instance.
        unsafe {
            definition.write(VMMemoryDefinition {
                base: memory.base().as_ptr(),
                current_length: memory.len(),
            });
        }
        memory.add_length(Length(definition));
        let adapter =
            Adapter { memory, ty: *ty, style: *style, definition, has_image, shared: None };
        Ok(VMMemory::from_custom(Box::new(adapter) as Box<dyn LinearMemory + Send + Sync>))
    }

    fn create_host_table(&self, ty: &TableType, style: &TableStyle) -> Result<VMTable, String> {
        self.base.create_host_table(ty, style)
    }

    unsafe fn create_vm_table(
        &self,
        ty: &TableType,
        style: &TableStyle,
        definition: NonNull<VMTableDefinition>,
    ) -> Result<VMTable, String> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.base.create_vm_table(ty, style, definition) }
    }

    unsafe fn create_vm_global(
        &self,
        ty: GlobalType,
        definition: NonNull<VMGlobalDefinition>,
    ) -> Result<VMGlobal, String> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.base.create_vm_global(ty, definition) }
    }

    fn vmconfig(&self) -> &VMConfig {
        &self.config
    }
}

/// A guest memory as wasmer sees it.
#[derive(Debug)]
struct Adapter {
    memory: Arc<GuestMemory>,
    ty: MemoryType,
    style: MemoryStyle,
    /// Where compiled code reads base and length. Valid while the store lives, which owns
    /// both the instance and this.
    definition: NonNull<VMMemoryDefinition>,
    has_image: bool,
    /// Keeps the definition that threads share, and serves the waits of this store's thread.
    shared: Option<(SharedMemory, Arc<dyn Waits>)>,
}

// SAFETY: `definition` is only written by `grow`, through an atomic.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

impl LinearMemory for Adapter {
    fn ty(&self) -> MemoryType {
        MemoryType { minimum: self.size(), ..self.ty }
    }

    fn size(&self) -> Pages {
        pages(self.memory.len())
    }

    fn style(&self) -> MemoryStyle {
        self.style
    }

    fn grow(&mut self, delta: Pages) -> Result<Pages, MemoryError> {
        let refused = MemoryError::CouldNotGrow { current: self.size(), attempted_delta: delta };
        let wanted = u64::from(self.size().0) + u64::from(delta.0);
        if self.ty.maximum.is_some_and(|maximum| wanted > u64::from(maximum.0)) {
            return Err(refused);
        }
        Ok(pages(self.memory.grow(delta.bytes().0).map_err(|_| refused)?))
    }

    fn vmmemory(&self) -> NonNull<VMMemoryDefinition> {
        self.definition
    }

    unsafe fn initialize_with_data(&self, start: usize, data: &[u8]) -> Result<(), Trap> {
        if self.has_image {
            // The image was captured after its template had this data, and had changed it.
            return Ok(());
        }
        let put = || self.memory.write(u32::try_from(start).ok()?, data);
        put().ok_or_else(|| Trap::lib(TrapCode::HeapAccessOutOfBounds))
    }

    fn try_clone(&self) -> Result<Box<dyn LinearMemory + Send + Sync>, MemoryError> {
        Err(MemoryError::MemoryNotShared)
    }

    fn copy(&self) -> Result<Box<dyn LinearMemory + Send + Sync>, MemoryError> {
        Err(MemoryError::MemoryNotShared)
    }

    unsafe fn do_wait(
        &mut self,
        at: u32,
        expected: ExpectedValue,
        timeout: Option<Duration>,
    ) -> Result<u32, WaiterError> {
        let (_, waits) = self.shared.as_ref().ok_or(WaiterError::Unimplemented)?;
        let expected = match expected {
            ExpectedValue::U32(value) => Expected::Word(value),
            ExpectedValue::U64(value) => Expected::Long(value),
            ExpectedValue::None => return Err(WaiterError::Unimplemented),
        };
        match waits.wait(at, expected, timeout) {
            Waited::Notified => Ok(0),
            Waited::Changed => Ok(1),
            Waited::TimeOver => Ok(2),
            Waited::Stopped => Err(WaiterError::AtomicsDisabled),
        }
    }

    fn do_notify(&mut self, at: u32, count: u32) -> u32 {
        self.shared.as_ref().map_or(0, |(_, waits)| waits.notify(at, count))
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // A store drops its memories before its instances. That of `SharedMemory` goes with it.
        if self.shared.is_none() {
            self.memory.remove_length(Length(self.definition));
        }
    }
}

impl Drop for SharedMemoryInner {
    fn drop(&mut self) {
        let definition = NonNull::new(self.definition.get()).expect("a box has an address");
        self.memory.remove_length(Length(definition));
    }
}

fn pages(bytes: usize) -> Pages {
    Pages(u32::try_from(bytes / WASM_PAGE_BYTES).expect("E-1: at most 4 GiB"))
}

#[cfg(test)]
mod tests;
