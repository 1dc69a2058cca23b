//! Native code, which isn't unmapped while a thread loads other code.
//!
//! A wasmer engine owns the code of its modules. When the last clone of one is dropped, wasmer
//! 7.4.2 unmaps that code. Only then it unregisters its functions in the process
//! (`MemoryMappedBinary`). A thread that loads a module at the same address in between panics while
//! it holds the registry's lock. Then no module can be loaded in the process. So engines that are
//! dropped during a load are kept until it ends.

use std::ops::Deref;

use parking_lot::Mutex;
use wasmer::Store;

static LOADS: Mutex<Loads> = Mutex::new(Loads { running: 0, dropped: Vec::new() });

struct Loads {
    running: usize,
    /// The engines that were dropped while something was loading.
    dropped: Vec<wasmer::Engine>,
}

/// A thread compiles or loads a module. While this exists, no code is unmapped.
pub(super) struct Loading(());

impl Loading {
    pub(super) fn begin() -> Self {
        LOADS.lock().running += 1;
        Self(())
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let mut loads = LOADS.lock();
        loads.running -= 1;
        if loads.running == 0 {
            // With the lock, so that nothing begins to load meanwhile.
            loads.dropped.clear();
        }
    }
}

/// A wasmer engine that is dropped only while nothing loads.
///
/// Whatever holds one, as stores do, must be dropped before the last clone of this. Whether a clone
/// is the last one wasmer doesn't tell, so all that are dropped meanwhile are kept. In the child of
/// a process that forked meanwhile they are kept for good.
#[derive(Clone)]
pub(crate) struct NativeEngine(Option<wasmer::Engine>);

impl NativeEngine {
    pub(super) fn new(engine: wasmer::Engine) -> Self {
        Self(Some(engine))
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(self.deref().clone())
    }
}

impl Deref for NativeEngine {
    type Target = wasmer::Engine;

    fn deref(&self) -> &wasmer::Engine {
        self.0.as_ref().expect("only a drop takes it")
    }
}

impl Drop for NativeEngine {
    fn drop(&mut self) {
        let mut loads = LOADS.lock();
        match loads.running {
            // With the lock, as above.
            0 => drop(self.0.take()),
            _ => loads.dropped.extend(self.0.take()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl NativeEngine {
        /// Compiles a module in the text format or the binary one.
        pub(crate) fn module(&self, wasm: impl AsRef<[u8]>) -> wasmer::Module {
            let _loading = Loading::begin();
            wasmer::Module::new(self, wat::parse_bytes(wasm.as_ref()).unwrap()).unwrap()
        }
    }
}
