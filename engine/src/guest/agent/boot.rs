//! The source that starts the agent in a guest.
//!
//! A reactor build calls it through its own `turn`. A command build starts with
//! [`command_program`]. That fetches the source through the call channel and stays in it
//! (`interpreter/entry.rs`).

use std::borrow::Cow;

use super::wire::AgentFrame;
use crate::places::{CALL_DEVICE_PATH, WORKSPACE};

/// The files of the agent package with these names, each with its source.
macro_rules! files {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("hatchery/", $name, ".py")))),*] };
}

/// The modules of the agent package, each after those that it imports.
pub(super) const FILES: [(&str, &str); 19] = files! {
    "__init__" "_wire" "_waits" "_streams" "_packages" "_describe" "_frames" "_compile" "_values"
    "_display" "_late" "_host" "_surroundings" "_image" "_warnings" "_dates" "_paths" "_system"
    "_agent"
};

/// Modules that run only when a program first needs them. Those of `stand_ins` stand for modules of
/// the standard library that a build may lack.
pub(super) const LATE_FILES: [(&str, &str); 40] = files! {
    "_hidden" "_stdin" "_loop" "_network" "_sockets" "_tls" "_archives" "_threads" "_hashes" "_arrays" "_integers"
    "_jpeg" "_pytest" "_tagged" "_signals" "_processes" "_mmap" "_subprocess" "_shell" "_shell_grammar"
    "_shell_streams" "_shell_words" "_shell_builtins" "_shell_commands" "_shell_find" "_shell_grep" "_shell_texts"
    "_shell_sed" "_shell_awk" "_shell_awk_grammar" "_shell_archives"
    "stand_ins/_posixshmem" "stand_ins/_ssl" "stand_ins/fcntl"
    "stand_ins/grp" "stand_ins/pwd" "stand_ins/readline" "stand_ins/resource" "stand_ins/syslog"
    "stand_ins/termios"
};

/// Defines `_boot`, which starts the agent.
const BOOT: &str = include_str!("boot/boot.py");

/// What the agent does for the host. A command build reports the objects that do it in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Word {
    /// Serves a run.
    Turn,
    /// Compiles a program for later runs.
    Compile,
    /// Prepares the interpreter for an image.
    Prepare,
}

impl Word {
    pub(crate) const ALL: [Self; 3] = [Self::Turn, Self::Compile, Self::Prepare];

    /// Returns the source that a reactor build's `turn` takes for it; `hatchery/_wire.py` has the
    /// same words.
    pub(crate) fn source(self) -> &'static str {
        self.into()
    }
}

/// What the call channel answers when it is asked for its position: no file is that long.
pub(crate) const CALL_DEVICE_POSITION: u64 = 0x0072_6f6f_6420_6168;

/// Returns the source that starts the agent in a reactor build. While a program runs, the agent
/// gives it a `__main__` of its own.
pub(crate) fn reactor_source(has_threads: bool) -> String {
    reactor_source_with(&parts(has_threads))
}

fn reactor_source_with(parts: &str) -> String {
    let attach = include_str!("boot/reactor.py");
    format!("{BOOT}{attach}_attach({parts})\ndel _boot, _attach\n")
}

/// Returns the program with which a command build is started.
pub(crate) fn command_program() -> String {
    let (start, fetch) = (include_str!("boot/program.py"), AgentFrame::FETCH);
    format!("{start}_start({CALL_DEVICE_PATH:?}, {CALL_DEVICE_POSITION}, {fetch})\n")
}

/// Returns the source that starts the agent in a command build.
pub(crate) fn command_source(has_threads: bool) -> String {
    command_source_with(&parts(has_threads))
}

fn command_source_with(parts: &str) -> String {
    let enter = include_str!("boot/command.py");
    let words: Vec<_> = Word::ALL.iter().map(|word| format!("b{:?}", word.source())).collect();
    let (words, frame) = (words.join(", "), AgentFrame::ENTER);
    format!("{BOOT}{enter}_enter(({words},), {frame}, {parts})\n")
}

/// Returns every text that an image's agent depends on. Files are as they are, since writing a
/// megabyte as Python's literals takes a millisecond of each start.
pub(crate) fn texts() -> impl Iterator<Item = Cow<'static, str>> {
    let sources = [reactor_source_with(""), command_source_with(""), command_program()];
    let files = FILES.iter().chain(&LATE_FILES).flat_map(|&(file, source)| [file, source]);
    sources
        .into_iter()
        .map(Cow::Owned)
        .chain([WORKSPACE].into_iter().chain(files).map(Cow::Borrowed))
}

/// Returns the arguments of `_boot` after its way to the host: whether programs can start threads,
/// workspace, and files.
fn parts(has_threads: bool) -> String {
    let has_threads = if has_threads { "True" } else { "False" };
    let listed = |files: &[(&str, &str)]| -> String {
        files.iter().map(|(file, source)| format!("({file:?}, {source:?}), ")).collect()
    };
    let (files, late_files) = (listed(&FILES), listed(&LATE_FILES));
    format!("{has_threads}, {WORKSPACE:?}, ({files}), ({late_files})")
}
