//! What the kernel installs in its sessions besides the notebooks' package, and the jobs that use
//! it.

use hatchery::{Interface, Job, Limits};
use notebook::guest::own_limits;
use serde_json::{Value, json};

use crate::assistance;

/// The name of the kernel's own module.
const MODULE: &str = "hatchery_jupyter";

const SOURCE: &str = include_str!("guest.py");

/// Evaluates user expressions.
pub(crate) const EVALUATE: &str = "hatchery_jupyter:evaluate";
/// Describes the Python of the session.
pub(crate) const ABOUT: &str = "hatchery_jupyter:about";

/// Returns the job that installs the modules.
pub(crate) fn begin(limits: &Limits) -> Job {
    // JSON strings are valid in Python, since serde_json leaves non-ASCII characters as they are.
    let modules = json!([[assistance::MODULE, assistance::SOURCE], [MODULE, SOURCE]]);
    let code = format!(
        "def _hatchery_begin(modules):\n    import sys, types\n    \
         for name, source in modules:\n        \
         module = sys.modules[name] = types.ModuleType(name)\n        \
         exec(compile(source, f\"<hatchery/{{name}}.py>\", \"exec\"), module.__dict__)\n\
         _hatchery_begin({modules})\ndel _hatchery_begin\n"
    );
    Job::code(code).limits(own_limits(limits))
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
