//! Our guest memory as wasmer's `Tunables` and `LinearMemory`.
//!
//! wasmer asks its tunables for memory while it makes an instance. Which memory that is travels
//! in a thread-local for the duration of `with_memory`, since the tunables belong to the engine
//! and many threads make instances of one engine at once.
#![expect(unsafe_code, reason = "wasmer's tunables are an unsafe interface")]

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;

use wasmer::sys::vm::{
    LinearMemory, MemoryError, MemoryStyle, TableStyle, VMConfig, VMGlobal, VMGlobalDefinition,
    VMMemory, VMMemoryDefinition, VMTable, VMTableDefinition,
};
use wasmer::sys::{BaseTunables, Tunables};
use wasmer::{GlobalType, MemoryType, Pages, TableType};

use crate::memory::{GuestMemory, WASM_PAGE_BYTES};

/// The stack that guest code runs on. CPython's own stack in linear memory has 16 MiB; the native
/// one must not be used up before that, or deep recursion traps instead of raising.
pub(crate) const GUEST_STACK_BYTES: usize = 16 << 20;

thread_local! {
    static PENDING: RefCell<Option<Arc<GuestMemory>>> = const { RefCell::new(None) };
}

/// Makes an instance by `instantiate`, and returns the memory that it was given.
pub(crate) fn with_memory<T>(instantiate: impl FnOnce() -> T) -> (T, Option<Arc<GuestMemory>>) {
    PENDING.set(None);
    let instance = instantiate();
    (instance, PENDING.take())
}

/// The tunables of every engine of ours.
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
        self.base.create_host_memory(ty, style)
    }

    unsafe fn create_vm_memory(
        &self,
        ty: &MemoryType,
        style: &MemoryStyle,
        definition: NonNull<VMMemoryDefinition>,
    ) -> Result<VMMemory, MemoryError> {
        let memory = GuestMemory::new(ty.minimum.bytes().0)
            .map_err(|error| MemoryError::Generic(error.to_string()))?;
        let memory = Arc::new(memory);
        PENDING.set(Some(Arc::clone(&memory)));
        // SAFETY: wasmer passes a valid location that lives as long as the instance.
        unsafe {
            definition.write(VMMemoryDefinition {
                base: memory.base().as_ptr(),
                current_length: memory.len(),
            });
        }
        let adapter = Adapter { memory, ty: *ty, style: *style, definition };
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
        // SAFETY: passed on as it came.
        unsafe { self.base.create_vm_table(ty, style, definition) }
    }

    unsafe fn create_vm_global(
        &self,
        ty: GlobalType,
        definition: NonNull<VMGlobalDefinition>,
    ) -> Result<VMGlobal, String> {
        // SAFETY: passed on as it came.
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
}

// SAFETY: `definition` is only written by `grow`, which wasmer calls on the thread that runs the
// instance; stores never change threads here.
unsafe impl Send for Adapter {}
// SAFETY: as above: shared references never write.
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
        let before = self.memory.grow(delta.bytes().0).map_err(|_| refused)?;
        // SAFETY: the location is valid while the instance lives, and its thread is this one.
        unsafe { self.definition.as_mut().current_length = self.memory.len() };
        Ok(pages(before))
    }

    fn vmmemory(&self) -> NonNull<VMMemoryDefinition> {
        self.definition
    }

    fn try_clone(&self) -> Result<Box<dyn LinearMemory + Send + Sync>, MemoryError> {
        Err(MemoryError::MemoryNotShared)
    }

    fn copy(&self) -> Result<Box<dyn LinearMemory + Send + Sync>, MemoryError> {
        Err(MemoryError::MemoryNotShared)
    }
}

fn pages(bytes: usize) -> Pages {
    Pages(u32::try_from(bytes / WASM_PAGE_BYTES).expect("E-1: at most 4 GiB"))
}
