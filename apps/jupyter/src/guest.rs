//! What the kernel installs in its sessions besides the notebooks' package, and the jobs that use
//! it.

use hatchery::{Interface, Job, Limits};
use notebook::guest::own_limits;
use serde_json::{Value, json};

use crate::assistance;
use crate::message::PROTOCOL;

/// The name of the kernel's own module.
const MODULE: &str = "hatchery_jupyter";

const SOURCE: &str = include_str!("guest.py");

/// Evaluates user expressions.
pub(crate) const EVALUATE: &str = "hatchery_jupyter:evaluate";
/// Describes the Python of the session.
pub(crate) const ABOUT: &str = "hatchery_jupyter:about";

/// Returns the job that installs the modules.
pub(crate) fn begin(limits: &Limits) -> Job {
    Job::code(assistance::install(MODULE, SOURCE)).limits(own_limits(limits))
}

/// How a cell runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// Whether the guest remembers it in `In`.
    pub(crate) stores_history: bool,
    /// Whether its value isn't displayed.
    pub(crate) is_silent: bool,
    /// Whether it may ask the front end for input.
    pub(crate) may_ask: bool,
}

/// Returns the job of a cell.
pub(crate) fn cell(source: &str, manner: Manner, limits: &Limits) -> Job {
    let Manner { number, stores_history, is_silent, may_ask } = manner;
    let arguments: [Value; 5] =
        [source.into(), number.into(), stores_history.into(), is_silent.into(), may_ask.into()];
    // A program may ask for any number of lines.
    let limits = Limits { function_calls: u64::MAX, ..limits.clone() };
    // As in Jupyter, a cell that raises keeps its changes to files.
    let job = Job::call(&format!("{MODULE}:run"), arguments).limits(limits);
    job.interface(Interface::Kernel).keep_files()
}

/// Returns what a front end learns of the kernel, whose sandbox has this version of Python.
pub(crate) fn info(python: &str) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "status": "ok",
        "protocol_version": PROTOCOL,
        "implementation": "hatchery",
        "implementation_version": version,
        "language_info": {
            "name": "python",
            "version": python,
            "mimetype": "text/x-python",
            "file_extension": ".py",
            "pygments_lexer": "ipython3",
            "codemirror_mode": { "name": "ipython", "version": 3 },
            "nbconvert_exporter": "python",
        },
        "banner": format!("Hatchery {version}: Python {python} in a sandbox"),
        "help_links": [
            { "text": "Python", "url": "https://docs.python.org/3" },
        ],
        "debugger": false,
    })
}
