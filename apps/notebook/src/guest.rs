//! The jobs of a notebook's session: installing the replacement for IPython, the cells, and the
//! work between them.
//!
//! The guest's side is the Python package in `guest/`, which exists only in a session's memory.
//! A session runs [`begin`] once, and then a [`Cell`] for each cell:
//!
//! ```no_run
//! # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
//! use hatchery::Limits;
//! use notebook::guest::{self, Cell};
//! use notebook::{CellEvent, Problem};
//!
//! let limits = Limits::default();
//! let session = pool.session("notebook").await?;
//! session.run(guest::begin(&limits)).await?;
//!
//! let ticket = session.submit(Cell::new("display('shown')\n6 * 7", 1).job(&limits)).await?;
//! let mut events = ticket.events();
//! while let Some(event) = events.next().await {
//!     match CellEvent::of(event.kind) {
//!         Some(CellEvent::Stream { bytes, .. }) => print!("{}", String::from_utf8_lossy(&bytes)),
//!         Some(CellEvent::Display { data, .. } | CellEvent::Result { data, .. }) => {
//!             println!("{data}");
//!         }
//!         _ => {}
//!     }
//! }
//! if let Some(problem) = Problem::of(&ticket.await) {
//!     println!("{}", problem.traceback);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A copy of the session's state (a fork, a checkpoint, a saved file) can continue between cells.
//! For that, [`remember`] must run before the copy, and [`resume`] must be the first job on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hatchery::{Checkpoint, Hatchery, Job, Limits, Session, Verdict, wire};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::error::Error;
use crate::problem::Problem;

/// The package's name, under which its files import each other.
const PACKAGE: &str = "hatchery_notebook";

macro_rules! files {
    ($($file:literal)*) => { [$(($file, include_str!(concat!("guest/", $file, ".py")))),*] };
}

/// The package's files. The first one is the package itself.
const FILES: [(&str, &str); 18] = files!(
    "__init__" "capture" "commands" "errors" "execution" "formatting" "inspection" "magics" "modules"
    "objects" "packages" "pretty" "randomness" "reloading" "shell" "showing" "timing" "translation"
);

/// Imports the package. Its files are named like the agent's, so that tracebacks leave them out.
const IMPORT: &str = r#"
def _hatchery_begin(sources):
    import sys
    from importlib.machinery import ModuleSpec

    class Finder:
        def find_spec(self, name, path=None, target=None):
            return ModuleSpec(name, self, is_package="." not in name) if name in sources else None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            name = module.__name__
            code = compile(sources[name], f"<hatchery/notebook/{name}.py>", "exec")
            exec(code, module.__dict__)

    sys.meta_path.append(Finder())
    import hatchery_notebook
"#;

/// The Python module `hatchery_timing`, with `%time` and `%timeit`, which the prompt has as well.
pub const TIMING: &str = include_str!("timing.py");

/// A cell to run.
///
/// ```
/// use hatchery::Limits;
/// use notebook::guest::Cell;
///
/// let limits = Limits::default();
/// let cell = Cell::new("%time sum(range(10))", 1).job(&limits);
/// // As a front end asks for itself: no result is shown, and nothing is recorded.
/// let silent = Cell::new("1 + 1", 1).silent().job(&limits);
/// # drop((cell, silent));
/// ```
#[derive(Debug, Clone)]
pub struct Cell<'a> {
    written: &'a str,
    number: usize,
    is_silent: bool,
}

impl<'a> Cell<'a> {
    /// Describes a cell by its source as written, and by its execution count. Tracebacks name it
    /// `In[number]`.
    pub fn new(written: &'a str, number: usize) -> Self {
        Self { written, number, is_silent: false }
    }

    /// Describes the cell after the last one that ran in its session.
    pub fn next(written: &'a str) -> Self {
        Self::new(written, 0)
    }

    /// Shows no result, and keeps the cell out of `In`, `Out`, `_` and the like.
    pub fn silent(self) -> Self {
        Self { is_silent: true, ..self }
    }

    /// Returns the job that runs the cell in a session that [`begin`] has prepared.
    /// [`CellEvent::of`](crate::CellEvent::of) reads its events, and
    /// [`Problem::of`](crate::Problem::of) its outcome.
    pub fn job(&self, limits: &Limits) -> Job {
        call("run_cell", &self.arguments()).limits(limits.clone())
    }

    /// Returns the same job as a client sends it, to which settings can be added.
    pub fn wire(&self) -> wire::Job {
        wire::Job::call(format!("{PACKAGE}:run_cell"), self.arguments().to_vec())
    }

    fn arguments(&self) -> [Value; 4] {
        let Self { written, number, is_silent } = *self;
        [written.into(), number.into(), (!is_silent).into(), is_silent.into()]
    }
}

/// The least time that jobs of our own need, also on a busy machine.
const LEAST_TIME: Duration = Duration::from_secs(2);

/// Returns limits for Hatchery's own jobs in a session. Output is the default. Memory, files and time
/// (2 s to 30 s) are those of the session's jobs, since they share its state.
pub fn own_limits(limits: &Limits) -> Limits {
    let Limits { memory_bytes, file_bytes, file_count, open_files, grace, .. } = limits.clone();
    let most = Limits::default();
    Limits {
        memory_bytes,
        file_bytes,
        file_count,
        open_files,
        grace: grace.min(most.grace),
        wall_time: limits.wall_time.clamp(LEAST_TIME, most.wall_time),
        cpu_time: limits.cpu_time.map(|time| time.max(LEAST_TIME)),
        ..most
    }
}

/// Returns the first job of a fresh session, which installs the package. `limits` are those of the
/// cells that follow.
pub fn begin(limits: &Limits) -> Job {
    let shared = ("hatchery_timing".to_owned(), Value::from(TIMING));
    let own = FILES.iter().map(|(file, source)| (module(file), Value::from(*source)));
    let sources: Map<String, Value> = own.chain([shared]).collect();
    // JSON strings are valid in Python, since serde_json leaves non-ASCII characters as they are.
    let sources = Value::from(sources);
    let source = format!("{IMPORT}\n_hatchery_begin({sources})\ndel _hatchery_begin\n");
    Job::code(source).limits(own_limits(limits))
}

/// Returns the first job of a session that continues from a [`Prepared`](crate::Prepared) state.
pub(crate) fn start(limits: &Limits) -> Job {
    call("start", &[]).limits(own_limits(limits))
}

/// Returns the first job of a session that continues from a saved state, a checkpoint or a fork. The
/// random number generators continue where [`remember`] left them.
pub fn resume(limits: &Limits) -> Job {
    call("go_on", &[]).limits(own_limits(limits))
}

/// Returns a job that saves the state of the random number generators in the session. [`resume`] needs
/// it on a copy of this state.
pub fn remember(limits: &Limits) -> Job {
    call("remember", &[]).limits(own_limits(limits))
}

/// Returns the sources of the package, which a session's state contains.
pub(crate) fn sources() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(_, source)| *source).chain([IMPORT, TIMING])
}

/// Returns a call of one of the package's functions.
fn call(function: &str, arguments: &[Value]) -> Job {
    Job::call(&format!("{PACKAGE}:{function}"), arguments.iter().cloned())
}

fn module(file: &str) -> String {
    match file {
        "__init__" => PACKAGE.to_owned(),
        _ => format!("{PACKAGE}.{file}"),
    }
}

/// What the name of a session begins with in which a state is prepared. No client can send it.
const NAME: &str = "\u{1}notebook";

/// The prepared states of one pool, one for each Python build that sessions were opened on. Clones
/// share them.
///
/// ```no_run
/// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
/// use hatchery::Limits;
/// use notebook::Prepared;
///
/// let prepared = Prepared::default();
/// let session = pool.session("notebook").await?;
/// session.run(prepared.first_job(&pool, &session, &Limits::default()).await).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    states: Arc<Mutex<HashMap<String, Checkpoint>>>,
}

impl Prepared {
    /// Returns the first job of a fresh session, after which it runs cells with these limits. The
    /// session takes the prepared state now. If that is impossible, the job installs everything in the
    /// session, and says why if that fails, too.
    pub async fn first_job(&self, pool: &Hatchery, session: &Session, limits: &Limits) -> Job {
        let taken = match self.state(pool, session.python(), limits).await {
            Some(state) => session.restore(&state).await.is_ok(),
            None => false,
        };
        if taken { start(limits) } else { begin(limits) }
    }

    /// Returns the state for a build, which is prepared if it isn't yet.
    async fn state(&self, pool: &Hatchery, python: &str, limits: &Limits) -> Option<Checkpoint> {
        let mut states = Arc::clone(&self.states).lock_owned().await;
        if let Some(state) = states.get(python) {
            return Some(state.clone());
        }
        let (pool, python, limits) = (pool.clone(), python.to_owned(), limits.clone());
        // It goes on if the caller leaves, since others wait for it.
        let preparing = tokio::spawn(async move {
            let prepared = prepare(&pool, &python, &limits).await.ok().flatten()?;
            states.insert(python, prepared.clone());
            Some(prepared)
        });
        preparing.await.ok().flatten()
    }
}

/// Prepares a state; `None` if its job fails.
async fn prepare(
    pool: &Hatchery,
    python: &str,
    limits: &Limits,
) -> Result<Option<Checkpoint>, hatchery::Error> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let session = pool.session_on(&format!("{NAME} {number}"), python).await?;
    let preparing = async {
        if Problem::of(&session.run(begin(limits)).await?).is_some() {
            return Ok(None);
        }
        let state = session.checkpoint().await?;
        // A copy that only its worker process has is lost with that. Continuing from it fetches it.
        session.restore(&state).await?;
        let started = session.run(start(limits)).await?;
        Ok(Problem::of(&started).is_none().then_some(state))
    };
    let prepared = preparing.await;
    session.close();
    prepared
}

/// The most bytes of a request, and of its answer.
const MOST_BYTES: usize = 64 << 20;

/// What the guest answers.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer<T> {
    Ok(T),
    Unusable(String),
}

/// Runs `source`, whose function `answer` takes a request as JSON and returns an answer as JSON.
/// `unusable` makes the error of a request that can't be answered, and of one that fails.
pub(crate) async fn ask<T: DeserializeOwned>(
    pool: &Hatchery,
    source: &str,
    request: &Value,
    unusable: impl Fn(String) -> Error,
) -> Result<T, Error> {
    // A string of JSON is one of Python.
    let source = format!("{source}\n\nanswer({})\n", Value::from(request.to_string()));
    let (source_bytes, result_bytes) = (MOST_BYTES + source.len(), MOST_BYTES);
    let limits = Limits { source_bytes, result_bytes, ..Limits::default() };
    let outcome = pool.run(Job::code(source).limits(limits)).await?;
    let answer = match &outcome.verdict {
        Verdict::Completed { value: Some(value), .. } => serde_json::to_value(value).ok(),
        _ => None,
    };
    let answer = answer.and_then(|answer| serde_json::from_str(answer.as_str()?).ok());
    match answer {
        Some(Answer::Ok(answer)) => Ok(answer),
        Some(Answer::Unusable(why)) => Err(unusable(why)),
        None => {
            let why = Problem::of(&outcome).map(|problem| problem.to_string());
            Err(unusable(why.unwrap_or_else(|| "it is too large".to_owned())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_package_is_carried() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guest");
        let found = std::fs::read_dir(folder).unwrap().flatten();
        let mut found: Vec<String> = found
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".py").map(str::to_owned))
            .map(|file| module(&file))
            .collect();
        found.sort();
        assert_eq!(found, FILES.map(|(file, _)| module(file)));
    }
}
