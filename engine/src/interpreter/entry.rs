//! How the engine enters a guest.
//!
//! A reactor build has an export for it, `turn`. A command build has only `_start`, which runs
//! Python from its start to its end. So it starts once, with a program that starts the agent and
//! then leaves through `os._exit`. The host's `proc_exit` unwinds the native stack. CPython's state
//! stays as it was in the middle of that call, its stack in linear memory included. From there the
//! host calls back into Python, as a C function may. The slot `tp_iternext` of the agent's type
//! calls `__next__` of an object of the agent. The frames of `_start` never return.
//!
//! Between turns no native stack holds anything of the guest. So a command build has images,
//! sessions and resets as a reactor build has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use wasmer::{Instance, Store, Table, TypedFunction, Value};

use super::judge::TurnFailure;
use crate::cause::Cause;
use crate::error::StartError;
use crate::guest::agent::Word;
use crate::guest::agent::boot;
use crate::host::call_channel::{CallChannel, Entered};
use crate::host::env::{GuestExit, unwind};
use crate::host::wasi::bytes::Buffer;
use crate::interrupt::gate::{Gate, Stopped};
use crate::memory::{GuestMemory, faults};
use crate::python::module::shape::{ALLOC, INITIALIZE, START, Shape, TABLE, TURN};
use crate::python::module::threads;

/// The offset of `tp_iternext` in a type: 28 words are before it. CPython's stable interface has
/// fixed their order since 3.8 (`struct _typeobject` in `Include/cpython/object.h`).
const ITERNEXT: u32 = 28 * 4;

/// Where a started command build is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reentry {
    /// The index in the table of the function that calls `__next__`.
    function: u32,
    /// The objects that serve the turns, by `Word`.
    objects: [u32; 3],
}

/// The functions by which an instance is entered.
pub(super) enum Entrance {
    Reactor { alloc: TypedFunction<u32, u32>, turn: TypedFunction<(u32, u32), i32> },
    Command { table: Table, next: Option<(Reentry, TypedFunction<u32, u32>)> },
}

impl Entrance {
    pub(super) fn of(shape: Shape, instance: &Instance, store: &Store) -> Result<Self, StartError> {
        let export = |error| StartError::Instantiate(Cause::new(error));
        let exports = &instance.exports;
        match shape {
            Shape::Reactor => Ok(Self::Reactor {
                alloc: exports.get_typed_function(store, ALLOC).map_err(export)?,
                turn: exports.get_typed_function(store, TURN).map_err(export)?,
            }),
            Shape::Command => {
                let table = exports.get_table(TABLE).map_err(export)?.clone();
                Ok(Self::Command { table, next: None })
            }
            Shape::Other => Err(StartError::Instantiate(
                "it exports neither `_start` nor the functions of a known reactor".into(),
            )),
        }
    }

    /// Returns the allocator with which `host.call` answers.
    pub(super) fn alloc(&self) -> Option<&TypedFunction<u32, u32>> {
        match self {
            Self::Reactor { alloc, .. } => Some(alloc),
            Self::Command { .. } => None,
        }
    }

    /// Returns where a command build is entered.
    pub(super) fn reentry(&self) -> Option<Reentry> {
        match self {
            Self::Command { next: Some((reentry, _)), .. } => Some(*reentry),
            Self::Reactor { .. } | Self::Command { .. } => None,
        }
    }

    /// Enters a command build where another instance of it was.
    pub(super) fn reenter(
        &mut self,
        store: &mut Store,
        reentry: Option<Reentry>,
    ) -> Result<(), StartError> {
        let (Self::Command { table, next }, Some(reentry)) = (self, reentry) else { return Ok(()) };
        *next = Some((reentry, function_at(table, store, reentry.function)?));
        Ok(())
    }

    /// Finds where a command build is entered, by what its agent has reported.
    pub(super) fn enter(
        &mut self,
        store: &mut Store,
        memory: &GuestMemory,
        entered: Option<Entered>,
    ) -> Result<(), StartError> {
        if let Self::Reactor { .. } = self {
            return Ok(());
        }
        let silent = || StartError::Boot("the agent did not report itself".into());
        let entered = entered.ok_or_else(silent)?;
        let slot = entered.class.checked_add(ITERNEXT);
        let load = |at| memory.with_word(at, |word| word.load(Ordering::Relaxed));
        let function = slot.and_then(load).ok_or_else(unknown_layout)?;
        self.reenter(store, Some(Reentry { function, objects: entered.objects }))
    }
}

fn function_at(
    table: &Table,
    store: &mut Store,
    index: u32,
) -> Result<TypedFunction<u32, u32>, StartError> {
    let Some(Value::FuncRef(Some(function))) = table.get(store, index) else {
        return Err(unknown_layout());
    };
    function.typed(store).map_err(|_| unknown_layout())
}

fn unknown_layout() -> StartError {
    StartError::Boot("the layout of this CPython's types is unknown".into())
}

/// The parts of an interpreter that enter its guest.
pub(super) struct Guest<'a> {
    pub(super) store: &'a mut Store,
    pub(super) entry: &'a Entrance,
    pub(super) gate: &'a Arc<Gate>,
    pub(super) memory: &'a Arc<GuestMemory>,
    pub(super) channel: &'a Mutex<CallChannel>,
}

impl Guest<'_> {
    /// Has the agent do something; returns its status, which is 0 if it has replied.
    pub(super) fn turn(&mut self, word: Word) -> Result<i32, TurnFailure> {
        faults::put_back();
        match self.entry {
            Entrance::Reactor { .. } => {
                self.make_room()?;
                self.run_source(word.source())
            }
            Entrance::Command { next: Some((reentry, next)), .. } => {
                let object = reentry.objects[word as usize];
                let result = self.gate.guest(|| next.call(self.store, object))?;
                let result = result.map_err(TurnFailure::Trap)?;
                // The result is `None`, which is immortal; no object stands for an exception.
                Ok(i32::from(result == 0))
            }
            Entrance::Command { next: None, .. } => {
                unreachable!("a command build has turns once its agent has reported itself")
            }
        }
    }

    /// Starts Python and the agent.
    pub(super) fn boot(&mut self, instance: &Instance) -> Result<i32, TurnFailure> {
        let start = match self.entry {
            Entrance::Reactor { .. } => INITIALIZE,
            Entrance::Command { .. } => START,
        };
        let start = instance.exports.get_typed_function::<(), ()>(self.store, start);
        let start = start.map_err(|error| TurnFailure::Trap(unwind(error)))?;
        faults::put_back();
        let started = self.gate.guest(|| start.call(self.store))?;
        match self.entry {
            Entrance::Reactor { .. } => {
                started.map_err(TurnFailure::Trap)?;
                let has_threads = threads::are_given(instance.module());
                self.run_source(&boot::reactor_source(has_threads))
            }
            // It stays in `os._exit`.
            Entrance::Command { .. } => match started {
                Ok(()) => Ok(1),
                Err(error) => match error.downcast_ref::<GuestExit>() {
                    Some(GuestExit(0)) => Ok(0),
                    Some(GuestExit(_)) => Ok(1),
                    None => Err(TurnFailure::Trap(error)),
                },
            },
        }
    }

    /// Gets memory for the request from a reactor's allocator. The turn would call the allocator
    /// while it calls the guest, and would need another stack. It would come from wasmer's list
    /// that all threads share (`STACK_POOL`). It would be one that another thread used last.
    fn make_room(&mut self) -> Result<(), TurnFailure> {
        let length = u32::try_from(self.channel.lock().request.len()).unwrap_or(0);
        if length > 0 {
            match self.allocate(length) {
                Ok(at) => self.channel.lock().room = Some(Buffer { at, len: length }),
                Err(TurnFailure::NoRoom) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Returns the address of memory from a reactor's allocator.
    fn allocate(&mut self, length: u32) -> Result<u32, TurnFailure> {
        let Entrance::Reactor { alloc, .. } = self.entry else {
            unreachable!("only reactors have an allocator")
        };
        let address =
            self.gate.guest(|| alloc.call(self.store, length))?.map_err(TurnFailure::Trap)?;
        if self.gate.stop_requested().is_some() {
            return Err(Stopped.into());
        }
        if address == 0 { Err(TurnFailure::NoRoom) } else { Ok(address) }
    }

    /// Hands `source` to a reactor's `turn` and returns its status.
    fn run_source(&mut self, source: &str) -> Result<i32, TurnFailure> {
        let Entrance::Reactor { turn, .. } = self.entry else {
            unreachable!("only reactors take source")
        };
        let length = u32::try_from(source.len()).expect("turns are short");
        let address = self.allocate(length)?;
        self.memory.write(address, source.as_bytes()).ok_or(TurnFailure::NoRoom)?;
        self.gate.guest(|| turn.call(self.store, address, length))?.map_err(TurnFailure::Trap)
    }
}
