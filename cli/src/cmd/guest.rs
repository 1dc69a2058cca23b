//! Installs our own modules in sessions, and writes source for them, for notebooks and the prompt.

use hatchery::Limits;

/// `%time` and `%timeit`, for notebooks and the prompt.
pub(in crate::cmd) const TIMING: Module =
    Module { name: "hatchery_timing", source: include_str!("timing.py") };

/// A Python module.
pub(in crate::cmd) struct Module {
    pub(in crate::cmd) name: &'static str,
    pub(in crate::cmd) source: &'static str,
}

/// Returns source that installs modules for import, each after those that it imports, and leaves no
/// other trace. Tracebacks omit the modules' frames.
pub(in crate::cmd) fn install(modules: &[Module]) -> String {
    // JSON strings are valid in Python, since serde_json leaves non-ASCII characters as they are.
    let modules: serde_json::Value =
        modules.iter().map(|Module { name, source }| vec![*name, *source]).collect();
    format!(
        "def _hatchery_begin(modules):\n    import sys, types\n    \
         for name, source in modules:\n        \
         module = sys.modules[name] = types.ModuleType(name)\n        \
         exec(compile(source, f\"<hatchery/{{name}}.py>\", \"exec\"), module.__dict__)\n\
         _hatchery_begin({modules})\ndel _hatchery_begin\n"
    )
}

/// Returns limits for our own jobs: memory and files as for the jobs whose state they share.
pub(in crate::cmd) fn own_limits(limits: &Limits) -> Limits {
    let Limits { memory_bytes, file_bytes, file_count, open_files, .. } = limits.clone();
    Limits { memory_bytes, file_bytes, file_count, open_files, ..Limits::default() }
}
