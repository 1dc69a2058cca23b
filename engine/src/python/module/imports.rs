//! The imports that a module may have, and how each is judged. A guest can only do what its imports
//! do. So a build with any other import is refused when it is loaded.

use std::collections::BTreeSet;

use wasmer::{ExternType, Module};
use wasmparser::{DataKind, Parser, Payload, TypeRef};

use super::shape::{ALLOC, INITIALIZE, START, THREAD_START, TURN};
use crate::cause::Cause;
use crate::errno::Errno;
use crate::error::ModuleError;

/// The namespace of WASI preview 1.
pub(crate) const WASI: &str = "wasi_snapshot_preview1";
/// The namespace of WASIX for memories of 32 bits.
pub(crate) const WASIX: &str = "wasix_32v1";
/// The namespace of WASI's threads.
pub(crate) const THREADS: &str = "wasi";
/// The only function of `THREADS`.
pub(crate) const THREAD_SPAWN: &str = "thread-spawn";
/// The only import that isn't a function: a memory that threads share.
pub(crate) const MEMORY: (&str, &str) = ("env", "memory");
/// The namespace of Emscripten's functions.
pub(crate) const EMSCRIPTEN: &str = "env";
/// Emscripten's function that sleeps. Its C library has it, and would compute meanwhile.
pub(crate) const SLEEP: &str = "emscripten_thread_sleep";
/// The namespace of the call channel to the host.
pub(crate) const HOST: &str = "host";
/// The only function of `HOST`.
pub(crate) const HOST_CALL: &str = "call";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImportRule {
    /// It does what its name says, within the guest.
    Served,
    /// Every call fails with this error, which becomes an exception of Python.
    Refused(Errno),
    /// A module that imports it doesn't load.
    RefusedAtLoad,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    pub(crate) namespace: &'static str,
    /// Separated by spaces.
    names: &'static str,
    pub(crate) judgement: ImportRule,
    /// What the guest gets, or why it doesn't get it.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for readers; a test puts it in the documents")
    )]
    pub(crate) why: &'static str,
}

/// Every function that a module may import. Others are refused when a module is loaded.
pub(crate) const JUDGED: &[Judged] = &[
    served(WASI, "args_get args_sizes_get", "`python` alone; each run sets its own"),
    served(WASI, "environ_get environ_sizes_get", "what CPython needs; each run adds its own"),
    served(WASI, "clock_res_get clock_time_get", "the machine's clocks, or deterministic ones"),
    served(
        WASI,
        "fd_advise fd_allocate fd_close fd_datasync fd_fdstat_get fd_fdstat_set_flags \
         fd_filestat_get fd_filestat_set_size fd_filestat_set_times fd_pread \
         fd_prestat_dir_name fd_prestat_get fd_pwrite fd_read fd_readdir fd_seek \
         fd_sync fd_tell fd_write",
        "files in memory, mounted folders, standard streams, pipes",
    ),
    served(WASI, "fd_renumber", "for WASIX `dup2`, else the first descriptor becomes the second"),
    served(
        WASI,
        "path_create_directory path_filestat_get path_filestat_set_times path_link \
         path_open path_readlink path_remove_directory path_rename path_symlink \
         path_unlink_file",
        "files in memory and mounted folders, within quotas",
    ),
    served(
        WASI,
        "poll_oneoff",
        "clocks, and whether pipes and sockets are ready; `EDEADLK` if nothing could end the wait",
    ),
    served(WASI, "proc_exit", "ends the program"),
    served(WASI, "random_get", "the system's random numbers, or deterministic ones"),
    served(WASI, "sched_yield", "does nothing"),
    served(WASI, "sock_accept", "no socket listens, so it always fails"),
    served(
        WASI,
        "sock_recv sock_send sock_shutdown",
        "between the two sockets of `sock_pair`, and over connections",
    ),
    served(
        EMSCRIPTEN,
        "__syscall_chdir __syscall_dup __syscall_dup3 __syscall_faccessat __syscall_fallocate \
         __syscall_fchdir __syscall_fcntl64 __syscall_fdatasync __syscall_fstat64 \
         __syscall_ftruncate64 __syscall_getcwd __syscall_getdents64 __syscall_lstat64 \
         __syscall_mkdirat __syscall_newfstatat __syscall_openat __syscall_pipe \
         __syscall_readlinkat __syscall_renameat __syscall_rmdir __syscall_stat64 \
         __syscall_symlinkat __syscall_truncate64 __syscall_unlinkat __syscall_utimensat",
        "files, as by WASI's functions",
    ),
    served(
        EMSCRIPTEN,
        "__syscall_chmod __syscall_fchmod __syscall_fchmodat2",
        "nothing, for what exists: a guest may do with its files what it likes",
    ),
    served(EMSCRIPTEN, "__syscall_poll", "whether pipes are ready, as by `poll_oneoff`"),
    served(
        EMSCRIPTEN,
        "_gmtime_js _localtime_js _mktime_js _timegm_js emscripten_date_now emscripten_get_now",
        "the clocks of `clock_time_get`, and dates in UTC",
    ),
    served(EMSCRIPTEN, SLEEP, "sleeps"),
    served(HOST, HOST_CALL, "requests, replies and host functions"),
    served(
        THREADS,
        THREAD_SPAWN,
        "a thread, within the limit; `EAGAIN` beyond it, and for a build whose memory isn't shared",
    ),
    served(
        WASIX,
        "callback_signal",
        "accepted: a signal is handed to the export `__wasm_signal`, whatever the name",
    ),
    served(WASIX, "chdir getcwd", "the current folder, which is part of the guest's state"),
    served(WASIX, "fd_dup2", "a second descriptor of the same open file"),
    served(
        WASIX,
        "fd_fdflags_get fd_fdflags_set",
        "`FD_CLOEXEC`, which has no effect, since no program can be started",
    ),
    served(
        WASIX,
        "fd_pipe",
        "a pipe in memory of 64 KiB; a call that no other thread could end fails with `EDEADLK`",
    ),
    served(
        WASIX,
        "futex_wait",
        "waits for another thread or its timeout; without both, for a stop",
    ),
    served(WASIX, "futex_wake futex_wake_all", "wakes threads that wait there"),
    served(WASIX, "path_open2", "as `path_open`"),
    served(
        WASIX,
        "proc_exit2 thread_exit",
        "ends the program; `thread_exit` ends its thread, and the program with code 0 if that is the main one",
    ),
    served(
        WASIX,
        "proc_id proc_parent thread_id",
        "process 1 without a parent, whose main thread is 1",
    ),
    served(
        WASIX,
        "proc_raise_interval",
        "turns a timer off; turning one on fails with `ENOTSUP`, which `signal.setitimer` may not report",
    ),
    served(
        WASIX,
        "proc_signal thread_signal",
        "to itself only, not to another thread: handled by the program, else it ends with 128 and the signal's number",
    ),
    served(
        WASIX,
        "proc_signals_get proc_signals_sizes_get",
        "every signal begins with its default action",
    ),
    served(
        WASIX,
        "resolve sock_connect sock_open",
        "TCP to what the job was granted; everything else fails with `EACCES`",
    ),
    served(
        WASIX,
        "sock_addr_local sock_addr_peer",
        "of a connection the peer's, but not the machine's own; no address, as two connected sockets have",
    ),
    served(
        WASIX,
        "sock_get_opt_flag sock_get_opt_size sock_get_opt_time sock_set_opt_flag \
         sock_set_opt_size",
        "of connected sockets; setting an option has no effect, but for `TCP_NODELAY`",
    ),
    served(WASIX, "sock_pair", "two connected sockets for streams, in memory"),
    served(WASIX, "sock_recv_from", "as `sock_recv`"),
    served(WASIX, "thread_parallelism", "1, whatever the machine has"),
    served(WASIX, "tty_get", "80 columns and 25 rows, and no stream that is a terminal"),
    refused(WASIX, "clock_time_set", Errno::NotPermitted, "the clocks are the machine's"),
    refused(
        WASIX,
        "epoll_create epoll_ctl epoll_wait",
        Errno::NoFunction,
        "`selectors` and `asyncio` take `poll` instead",
    ),
    refused(
        WASIX,
        "proc_exec3 proc_fork proc_spawn2",
        Errno::NotSupported,
        "a guest is one process",
    ),
    refused(WASIX, "proc_join", Errno::Child, "a guest has no children"),
    refused(
        WASIX,
        "sock_accept_v2 sock_bind sock_listen sock_send_to",
        Errno::NotSupported,
        "nothing listens, and connected sockets stay connected",
    ),
    refused(WASIX, "sock_send_file", Errno::NotSupported, "Python sends the bytes itself"),
    refused(
        WASIX,
        "sock_set_opt_time",
        Errno::NoProtocolOption,
        "a call that would wait fails at once, so there is nothing to limit",
    ),
    refused(WASIX, "tty_set", Errno::NotPermitted, "there is no terminal"),
];

const fn served(namespace: &'static str, names: &'static str, why: &'static str) -> Judged {
    Judged { namespace, names, judgement: ImportRule::Served, why }
}

const fn refused(
    namespace: &'static str,
    names: &'static str,
    errno: Errno,
    why: &'static str,
) -> Judged {
    Judged { namespace, names, judgement: ImportRule::Refused(errno), why }
}

impl Judged {
    /// Returns the names of the functions.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.split(' ')
    }
}

pub(crate) fn judgement(namespace: &str, name: &str) -> ImportRule {
    let judged =
        JUDGED.iter().find(|row| row.namespace == namespace && row.names().any(|one| one == name));
    judged.map_or(ImportRule::RefusedAtLoad, |row| row.judgement)
}

/// Returns whether a module may import `name` from `module`.
pub(crate) fn is_allowed(module: &str, name: &str) -> bool {
    judgement(module, name) != ImportRule::RefusedAtLoad
}

pub(crate) fn is_wasix(module: &Module) -> bool {
    module.imports().any(|import| import.module() == WASIX)
}

/// Refuses WebAssembly before it is compiled, for these reasons: an import that isn't on the list, no
/// exports of a known shape, or a shared memory whose contents each thread would overwrite.
pub(crate) fn check_bytes(wasm: &[u8]) -> Result<(), ModuleError> {
    let unreadable = |error: wasmparser::BinaryReaderError| ModuleError::Compile(Cause::new(error));
    let (mut shares, mut is_filled, mut has_table) = (false, false, false);
    let mut exports = BTreeSet::new();
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(unreadable)? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(unreadable)?;
                    let is_shared = matches!(import.ty, TypeRef::Memory(memory) if memory.shared);
                    let is_function = matches!(import.ty, TypeRef::Func(_));
                    check_import(import.module, import.name, is_function, is_shared)?;
                    shares |= is_shared;
                }
            }
            Payload::TableSection(tables) => has_table = tables.count() > 0,
            Payload::ExportSection(section) => {
                for export in section {
                    exports.insert(export.map_err(unreadable)?.name);
                }
            }
            Payload::DataSection(segments) => {
                for segment in segments {
                    let kind = segment.map_err(unreadable)?.kind;
                    is_filled |= matches!(kind, DataKind::Active { .. });
                }
            }
            _ => {}
        }
    }
    let is_reactor = [INITIALIZE, ALLOC, TURN].iter().all(|name| exports.contains(name));
    let is_command = has_table && exports.contains(START);
    match shares && (is_filled || !exports.contains(THREAD_START)) {
        true => Err(ModuleError::SharedMemory),
        false if is_reactor || is_command => Ok(()),
        false => Err(ModuleError::NoEntrance),
    }
}

fn check_import(
    module: &str,
    name: &str,
    is_function: bool,
    is_shared_memory: bool,
) -> Result<(), ModuleError> {
    let is_known = match is_shared_memory {
        true => (module, name) == MEMORY,
        false => is_function && is_allowed(module, name),
    };
    let forbidden =
        || ModuleError::ForbiddenImport { module: module.to_owned(), name: name.to_owned() };
    if is_known { Ok(()) } else { Err(forbidden()) }
}

/// Refuses a module with an import that is not on the list.
pub(crate) fn check(module: &Module) -> Result<(), ModuleError> {
    for import in module.imports() {
        let is_function = matches!(import.ty(), ExternType::Function(_));
        let is_shared = matches!(import.ty(), ExternType::Memory(memory) if memory.shared);
        check_import(import.module(), import.name(), is_function, is_shared)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
