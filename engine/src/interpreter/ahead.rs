//! Compiles programs ahead: in an interpreter in which nothing has run, for later runs of all
//! interpreters on its image.

use std::sync::Arc;
use std::time::Duration;

use scopeguard::ScopeGuard;

use super::Interpreter;
use super::turn::{EndedTurn, Turn};
use crate::error::StartError;
use crate::guest::agent::{self, Word};
use crate::host::env::RunSetup;
use crate::interpreter::bytecode::Wanted;
use crate::interpreter::session::Life;
use crate::interrupt::stop::StopHandle;
use crate::limits::Limits;
use crate::run::program::Program;

/// Ends the compiling of a program that takes too long; 256 KiB of ordinary code take 0.2 s.
const MOST_CPU_TIME: Duration = Duration::from_millis(500);
/// The same on a busy machine. A shutdown of the pool waits for it.
const MOST_TIME: Duration = Duration::from_secs(2);
/// The memory that compiling may take beyond the image.
const MOST_MEMORY_BYTES: usize = 64 << 20;
/// The longest code of a program, in proportion to its source; ordinary code takes twice as much.
const MOST_GROWTH: usize = 8;
const LEAST_CODE_BYTES: usize = 64 << 10;

impl Interpreter {
    /// Compiles a program that was run repeatedly, if there is one, and returns the interpreter to
    /// its image. Does nothing on an interpreter in which a program has run since it was as in its
    /// image.
    ///
    /// # Errors
    /// As [`Self::reset`].
    pub fn compile_ahead(&mut self) -> Result<(), StartError> {
        // Code must not come from a memory that another program could have prepared.
        if self.is_lost || self.life != Life::default() {
            return Ok(());
        }
        let Some(image) = self.image.clone() else { return Ok(()) };
        let Some(wanted) = image.inner.bytecode.wanted() else { return Ok(()) };
        let code = self.compile(&wanted, image.inner.memory.bytes().len() + MOST_MEMORY_BYTES);
        image.inner.bytecode.put(&wanted, code.as_deref());
        self.reset()
    }

    /// Returns whether [`Self::compile_ahead`] would compile a program.
    pub fn has_to_compile(&self) -> bool {
        self.image.as_ref().is_some_and(|image| image.inner.bytecode.wants_any())
    }

    /// Returns the code of a program; `None` if each run has to compile it. The interpreter must be
    /// reset afterwards.
    #[tracing::instrument(level = "debug", skip_all)]
    fn compile(&mut self, wanted: &Wanted, memory_bytes: usize) -> Option<Vec<u8>> {
        let most = LEAST_CODE_BYTES.max(MOST_GROWTH * wanted.source.len());
        let limits = Limits {
            wall_time: MOST_TIME,
            cpu_time: Some(MOST_CPU_TIME),
            grace: Duration::ZERO,
            memory_bytes,
            output_bytes: 0,
            threads: 0,
            result_bytes: 0,
            result_data_bytes: most,
            ..Limits::default()
        };
        let transcript = Arc::default();
        let program = Program::default();
        let setup = RunSetup { program: &program, limits: &limits, transcript };
        let request = agent::compile_request(&wanted.source, wanted.is_expression);
        let turn = Turn { word: Word::Compile, request };
        let stop = StopHandle::default();
        let EndedTurn { host, ended, asked, is_held, reply, .. } =
            self.take_turn(turn, setup, &stop).ok()?;
        ScopeGuard::into_inner(host).end_run(false);
        let is_whole = matches!(ended, Ok(Ok(0))) && asked.stop.is_none() && is_held;
        self.is_lost = !is_whole || self.memory.shared().is_revoked();
        let is_usable = is_whole && asked.interrupt.is_none();
        reply.filter(|code| is_usable && !code.is_empty() && code.len() <= most)
    }
}
