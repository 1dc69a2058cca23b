//! The jobs of a notebook's session: the one that installs a stand-in for IPython, the cells, and
//! what is done between them.
//!
//! The guest's side is the Python package in `guest/`, which exists only in a session's memory.

use hatchery::{Job, Limits};
use serde_json::{Map, Value};

use crate::cmd::guest::{Module, TIMING, own_limits};

/// The package's name, under which its files import each other.
const PACKAGE: &str = "hatchery_notebook";

/// The package's files. The first one is the package itself.
const FILES: [(&str, &str); 16] = [
    ("", include_str!("guest/__init__.py")),
    ("capture", include_str!("guest/capture.py")),
    ("errors", include_str!("guest/errors.py")),
    ("execution", include_str!("guest/execution.py")),
    ("formatting", include_str!("guest/formatting.py")),
    ("inspection", include_str!("guest/inspection.py")),
    ("magics", include_str!("guest/magics.py")),
    ("modules", include_str!("guest/modules.py")),
    ("objects", include_str!("guest/objects.py")),
    ("packages", include_str!("guest/packages.py")),
    ("pretty", include_str!("guest/pretty.py")),
    ("randomness", include_str!("guest/randomness.py")),
    ("shell", include_str!("guest/shell.py")),
    ("showing", include_str!("guest/showing.py")),
    ("timing", include_str!("guest/timing.py")),
    ("translation", include_str!("guest/translation.py")),
];

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

/// Returns the first job of a fresh session.
pub(super) fn begin(limits: &Limits) -> Job {
    let Module { name, source } = TIMING;
    let shared = (name.to_owned(), Value::from(source));
    let own = FILES.iter().map(|(file, source)| (module(file), Value::from(*source)));
    let sources: Map<String, Value> = own.chain([shared]).collect();
    // JSON strings are valid in Python, since serde_json leaves non-ASCII characters as they are.
    let sources = Value::from(sources);
    let source = format!("{IMPORT}\n_hatchery_begin({sources})\ndel _hatchery_begin\n");
    Job::code(source).limits(own_limits(limits))
}

/// Returns the first job of a resumed session.
pub(super) fn resume(limits: &Limits) -> Job {
    call("go_on", &[]).limits(own_limits(limits))
}

/// Returns a job that saves the state of the random number generators.
pub(super) fn remember(limits: &Limits) -> Job {
    call("remember", &[]).limits(own_limits(limits))
}

/// Returns the job of a cell.
pub(super) fn cell(written: &str, number: usize, limits: &Limits) -> Job {
    call("run_cell", &[written.into(), number.into()]).limits(limits.clone())
}

/// Returns a call of one of the package's functions.
fn call(function: &str, arguments: &[Value]) -> Job {
    Job::call(&format!("{PACKAGE}:{function}"), arguments.iter().cloned())
}

fn module(file: &str) -> String {
    match file {
        "" => PACKAGE.to_owned(),
        _ => format!("{PACKAGE}.{file}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_package_is_carried() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cmd/notebook/guest");
        let found = std::fs::read_dir(folder).unwrap().flatten();
        let mut found: Vec<String> = found
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".py").map(str::to_owned))
            .map(|file| module(if file == "__init__" { "" } else { &file }))
            .collect();
        found.sort();
        assert_eq!(found, FILES.map(|(file, _)| module(file)));
    }
}
