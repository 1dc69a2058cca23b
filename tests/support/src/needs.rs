//! What programs of the tables need of a Python build, and what a build has, by its own answer.
//!
//! A program needs the modules that it imports. Its `Need`s name what else it needs. A program
//! without any runs on every build.

use std::collections::BTreeSet;

use engine::Verdict;

/// What a program needs besides the modules that it imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// CPython 3.N: what that says or does and earlier ones don't.
    Since(u64),
    /// The default build: its folders, and how it was configured.
    Default,
    /// A build without threads.
    OneThread,
    /// A build for WASI. Emscripten's own library says something else.
    Wasi,
}

/// A build, as far as programs need to know.
#[derive(Debug)]
pub struct Build {
    minor: u64,
    has_threads: bool,
    is_emscripten: bool,
    /// Modules that programs import and that it has.
    found: BTreeSet<String>,
    /// Modules that programs import and that only the default build has.
    missing: BTreeSet<String>,
    is_default: bool,
}

impl Build {
    /// Returns a program whose value says what a build has of whatever these programs import.
    pub fn question(sources: &[&str]) -> String {
        let names: BTreeSet<&str> = sources.iter().flat_map(|source| imports(source)).collect();
        let names = Vec::from_iter(names);
        // A module of the library may be there and fail without its part in C, so it is imported.
        format!(
            "import importlib, importlib.util, sys\n\
             def is_found(name):\n    \
                 if name not in sys.stdlib_module_names: return bool(importlib.util.find_spec(name))\n    \
                 try: return bool(importlib.import_module(name))\n    \
                 except ImportError: return False\n\
             import threading\n\
             try: threading.Thread(target=int).start()\n\
             except RuntimeError: has_threads = False\n\
             else: has_threads = True\n\
             [sys.version_info[1], has_threads, sys.platform, list(filter(is_found, {names:?}))]"
        )
    }

    /// Returns the build that ended [`Self::question`] with this verdict. `default` is the default
    /// build, and nothing for that one itself.
    pub fn new(answer: &Verdict, default: Option<&Self>) -> Self {
        let Verdict::Completed { value: Some(value), .. } = answer else { panic!("{answer:?}") };
        let answer: (u64, bool, String, BTreeSet<String>) =
            serde_json::from_value(value.clone()).expect("it has this form");
        let (minor, has_threads, platform, found) = answer;
        let is_emscripten = platform == "emscripten";
        let missing = default.map_or_else(BTreeSet::new, |default| &default.found - &found);
        Self { minor, has_threads, is_emscripten, found, missing, is_default: default.is_none() }
    }

    /// Returns whether Emscripten made it.
    pub fn is_emscripten(&self) -> bool {
        self.is_emscripten
    }

    /// Returns whether the program must end here as its table says.
    pub fn has(&self, source: &str, needs: &[Need]) -> bool {
        let has = |need: &Need| match need {
            Need::Since(minor) => self.minor >= *minor,
            Need::Default => self.is_default,
            Need::OneThread => !self.has_threads,
            Need::Wasi => !self.is_emscripten,
        };
        needs.iter().all(has) && !imports(source).any(|name| self.missing.contains(name))
    }
}

/// Returns the modules that a program imports, and perhaps words that follow `import` in a text.
fn imports(source: &str) -> impl Iterator<Item = &str> {
    let statements = source.split(['\n', ';', ':']).map(str::trim_start);
    let modules = statements.flat_map(|statement| match statement.strip_prefix("import ") {
        Some(names) => names.split(',').map(first_name).collect(),
        None => Vec::from_iter(statement.strip_prefix("from ").map(first_name)),
    });
    modules.filter(|name| !name.is_empty())
}

fn first_name(text: &str) -> &str {
    let text = text.trim_start();
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_of_name(c)).next().unwrap_or("")
}

#[test]
fn a_program_needs_what_it_imports() {
    let source = "import sys, os.path as p; from numpy.linalg import inv\n\
                  try: import _host\nexcept ImportError: pass";
    assert_eq!(imports(source).collect::<Vec<_>>(), ["sys", "os", "numpy", "_host"]);
    let missing = BTreeSet::from(["numpy".to_owned()]);
    let found = BTreeSet::new();
    let build = Build {
        minor: 13,
        has_threads: true,
        is_emscripten: true,
        found,
        missing,
        is_default: false,
    };
    assert!(build.has("import sys", &[Need::Since(13)]));
    assert!(!build.has("import sys", &[Need::Since(14)]));
    assert!(!build.has("import numpy", &[]));
    assert!(!build.has("", &[Need::Default]));
    assert!(!build.has("", &[Need::OneThread]));
    assert!(!build.has("", &[Need::Wasi]));
}
