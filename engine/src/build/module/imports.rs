//! The list of imports that a module may have. A guest can only do what its imports do, so this is
//! the outer wall: a build with any other import is refused when it is loaded.

use wasmer::{ExternType, Module};

use crate::error::ModuleError;

/// The namespace of WASI preview 1.
pub(crate) const WASI: &str = "wasi_snapshot_preview1";
/// The namespace of the door to the host.
pub(crate) const HOST: &str = "host";
/// The only function of `HOST`.
pub(crate) const HOST_CALL: &str = "call";

/// The functions of WASI preview 1 that the default build imports. They can't spawn, start threads
/// or open sockets, and the four socket functions find no socket.
const ALLOWED_WASI: &[&str] = &[
    "args_get",
    "args_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "environ_get",
    "environ_sizes_get",
    "fd_advise",
    "fd_allocate",
    "fd_close",
    "fd_datasync",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_filestat_get",
    "fd_filestat_set_size",
    "fd_filestat_set_times",
    "fd_pread",
    "fd_prestat_dir_name",
    "fd_prestat_get",
    "fd_pwrite",
    "fd_read",
    "fd_readdir",
    "fd_seek",
    "fd_sync",
    "fd_tell",
    "fd_write",
    "path_create_directory",
    "path_filestat_get",
    "path_filestat_set_times",
    "path_link",
    "path_open",
    "path_readlink",
    "path_remove_directory",
    "path_rename",
    "path_symlink",
    "path_unlink_file",
    "poll_oneoff",
    "proc_exit",
    "random_get",
    "sched_yield",
    "sock_accept",
    "sock_recv",
    "sock_send",
    "sock_shutdown",
];

/// Returns whether a module may import `name` from `module`.
pub(crate) fn is_allowed(module: &str, name: &str) -> bool {
    match module {
        WASI => ALLOWED_WASI.contains(&name),
        HOST => name == HOST_CALL,
        _ => false,
    }
}

/// Refuses a module with an import that is not on the list or isn't a function.
pub(crate) fn check(module: &Module) -> Result<(), ModuleError> {
    for import in module.imports() {
        let is_function = matches!(import.ty(), ExternType::Function(_));
        if !is_function || !is_allowed(import.module(), import.name()) {
            return Err(ModuleError::ForbiddenImport {
                module: import.module().to_owned(),
                name: import.name().to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::module::new_engine;

    fn check_wat(text: &str) -> Result<(), ModuleError> {
        check(&Module::new(&new_engine(), wat::parse_str(text).unwrap()).unwrap())
    }

    #[test]
    fn only_listed_functions_may_be_imported() {
        let listed = r#"(module (import "wasi_snapshot_preview1" "fd_read" (func)))"#;
        assert!(check_wat(listed).is_ok());
        for refused in [
            r#"(module (import "wasi_snapshot_preview1" "proc_raise" (func)))"#,
            r#"(module (import "wasix_32v1" "proc_spawn" (func)))"#,
            r#"(module (import "host" "other" (func)))"#,
            r#"(module (import "env" "memory" (memory 1)))"#,
            r#"(module (import "host" "call" (global i32)))"#,
        ] {
            let error = check_wat(refused).unwrap_err();
            assert!(matches!(error, ModuleError::ForbiddenImport { .. }), "{refused}");
        }
    }
}
