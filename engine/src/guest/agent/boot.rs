//! The source that starts the agent in a guest.
//!
//! A reactor build calls it through its own `turn`. A command build starts with [`COMMAND`] as its
//! program. That fetches the source through the call channel and stays in it
//! (`interpreter/entry.rs`).

use super::wire::AgentFrame;
use crate::places::{CALL_DEVICE_PATH, WORKSPACE};

/// The modules of the agent package, each after those that it imports.
pub(super) const FILES: [(&str, &str); 19] = [
    ("__init__", include_str!("hatchery/__init__.py")),
    ("_wire", include_str!("hatchery/_wire.py")),
    ("_streams", include_str!("hatchery/_streams.py")),
    ("_packages", include_str!("hatchery/_packages.py")),
    ("_locks", include_str!("hatchery/_locks.py")),
    ("_describe", include_str!("hatchery/_describe.py")),
    ("_frames", include_str!("hatchery/_frames.py")),
    ("_compile", include_str!("hatchery/_compile.py")),
    ("_values", include_str!("hatchery/_values.py")),
    ("_display", include_str!("hatchery/_display.py")),
    ("_host", include_str!("hatchery/_host.py")),
    ("_surroundings", include_str!("hatchery/_surroundings.py")),
    ("_image", include_str!("hatchery/_image.py")),
    ("_warnings", include_str!("hatchery/_warnings.py")),
    ("_late", include_str!("hatchery/_late.py")),
    ("_dates", include_str!("hatchery/_dates.py")),
    ("_paths", include_str!("hatchery/_paths.py")),
    ("_system", include_str!("hatchery/_system.py")),
    ("_agent", include_str!("hatchery/_agent.py")),
];

/// Modules that run only when a program first needs them.
pub(super) const LATE_FILES: [(&str, &str); 10] = [
    ("_stdin", include_str!("hatchery/_stdin.py")),
    ("_loop", include_str!("hatchery/_loop.py")),
    ("_network", include_str!("hatchery/_network.py")),
    ("_archives", include_str!("hatchery/_archives.py")),
    ("_threads", include_str!("hatchery/_threads.py")),
    ("_hashes", include_str!("hatchery/_hashes.py")),
    ("_arrays", include_str!("hatchery/_arrays.py")),
    ("_jpeg", include_str!("hatchery/_jpeg.py")),
    ("_pytest", include_str!("hatchery/_pytest.py")),
    ("_tagged", include_str!("hatchery/_tagged.py")),
];

/// What the agent does for the host, in the order in which a command build reports the objects that
/// do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        match self {
            Self::Turn => "turn",
            Self::Compile => "compile",
            Self::Prepare => "prepare",
        }
    }
}

/// What the call channel answers when it is asked for its position: no file is that long.
pub(crate) const CALL_DEVICE_POSITION: u64 = 0x0072_6f6f_6420_6168;

/// Returns the source that starts the agent in a reactor build. From then on the agent serves the
/// build's function `_reactor.turn`: the build keeps a reference to that function. So its code is
/// replaced. While a program runs, the agent gives it a `__main__` of its own.
pub(crate) fn reactor_source() -> String {
    let boot = boot_function(false);
    format!(
        "{boot}\
         def _attach():\n\
         \x20   import _host, _reactor\n\
         \x20   _reactor.agent_turn = _boot(_host.call).reactor_turn\n\
         \x20   turn = lambda source, environ: agent_turn(source, environ)\n\
         \x20   _reactor.turn.__code__ = turn.__code__\n\
         _attach()\n\
         del _boot, _attach\n"
    )
}

/// Returns the program with which a command build is started.
///
/// Its function `call` exchanges frames with the host through a device file: what is written there
/// is a frame, and then its answer can be read. A program may close or replace the descriptor, so
/// each call asks first whether it is still the device. The functions are bound once, because a
/// program may replace those of `os`.
pub(crate) fn command_program() -> String {
    let fetch = AgentFrame::FETCH;
    format!(
        "def _start():\n\
         \x20   import os\n\
         \x20   opened, write, read, seek, flags = os.open, os.write, os.read, os.lseek, os.O_RDWR\n\
         \x20   door = None\n\
         \x20   def call(frame):\n\
         \x20       nonlocal door\n\
         \x20       try:\n\
         \x20           if seek(door, 0, 1) != {CALL_DEVICE_POSITION}:\n\
         \x20               door = opened({CALL_DEVICE_PATH:?}, flags)\n\
         \x20       except (OSError, TypeError):\n\
         \x20           door = opened({CALL_DEVICE_PATH:?}, flags)\n\
         \x20       write(door, frame)\n\
         \x20       size = seek(door, 0, 2)\n\
         \x20       return read(door, size) if size else b''\n\
         \x20   exec(call(bytes([{fetch}])), {{'__name__': '__main__', 'call': call}})\n\
         _start()\n"
    )
}

/// Returns the source that starts the agent in a command build. It reports the objects whose
/// `__next__` serves the turns, and the type that they have, and leaves the interpreter as it is:
/// `os._exit` holds the interpreter's lock and finalises nothing.
pub(crate) fn command_source(has_threads: bool) -> String {
    let (boot, enter) = (boot_function(has_threads), AgentFrame::ENTER);
    let words: Vec<_> = Word::ALL.iter().map(|word| format!("b{:?}", word.source())).collect();
    let words = words.join(", ");
    format!(
        "{boot}\
         class Turns:\n\
         \x20   __slots__ = 'serve', 'word'\n\
         \x20   def __init__(self, serve, word):\n\
         \x20       self.serve, self.word = serve, word\n\
         \x20   def __next__(self):\n\
         \x20       if self.serve(self.word, None)[0]:\n\
         \x20           raise StopIteration\n\
         def _enter():\n\
         \x20   import os, sys\n\
         \x20   sys.path[:] = [path for path in sys.path if path]\n\
         \x20   agent = _boot(call)\n\
         \x20   turns = [Turns(agent.reactor_turn, word) for word in ({words},)]\n\
         \x20   places = (id(one).to_bytes(4, 'little') for one in (Turns, *turns))\n\
         \x20   call(bytes([{enter}]) + b''.join(places))\n\
         \x20   os._exit(0)\n\
         _enter()\n"
    )
}

/// Returns the function that starts the agent on a way to the host, and tells it whether programs
/// can start threads.
///
/// The agent package has no files in the guest. Its modules are registered where imports find them,
/// with specs that hold only their names, so that programs can import them too.
fn boot_function(has_threads: bool) -> String {
    let has_threads = if has_threads { "True" } else { "False" };
    let listed = |files: &[(&str, &str)]| -> String {
        files.iter().map(|(file, source)| format!("({file:?}, {source:?}), ")).collect()
    };
    let (files, late_files) = (listed(&FILES), listed(&LATE_FILES));
    format!(
        "def _boot(call):\n\
         \x20   import os, sys, types\n\
         \x20   from _frozen_importlib import ModuleSpec\n\
         \x20   package = None\n\
         \x20   for file, source in ({files}):\n\
         \x20       name = f'hatchery.{{file}}' if package else 'hatchery'\n\
         \x20       module = sys.modules[name] = types.ModuleType(name)\n\
         \x20       module.__package__ = 'hatchery'\n\
         \x20       module.__spec__ = ModuleSpec(name, None, is_package=not package)\n\
         \x20       if package:\n\
         \x20           setattr(package, file, module)\n\
         \x20       else:\n\
         \x20           package = module\n\
         \x20           package.__path__ = []\n\
         \x20       exec(compile(source, f'<hatchery/{{file}}.py>', 'exec'), module.__dict__)\n\
         \x20       package._has_threads = {has_threads}\n\
         \x20   codes = {{}}\n\
         \x20   for file, source in ({late_files}):\n\
         \x20       code = compile(source, f'<hatchery/{{file}}.py>', 'exec')\n\
         \x20       codes[f'hatchery.{{file}}'] = code\n\
         \x20   from hatchery._late import install\n\
         \x20   install(codes)\n\
         \x20   from hatchery import _system\n\
         \x20   _system.install()\n\
         \x20   from hatchery._agent import Agent\n\
         \x20   from hatchery._streams import open_streams\n\
         \x20   open_streams()\n\
         \x20   os.chdir({WORKSPACE:?})\n\
         \x20   sys.path.insert(0, {WORKSPACE:?})\n\
         \x20   return Agent(call, os.environ)\n"
    )
}
