//! Functions of WASIX that a guest may import and that always fail. These are sockets that listen,
//! other processes, and the rest of the table.

use std::collections::BTreeSet;

use super::*;
use crate::python::module::imports::{ImportRule, WASIX};
use crate::run::transcript::Stream;

/// Returns a module that calls a function with arguments from its memory. Then it prints, as a
/// program does that goes on.
fn calling(namespace: &str, name: &str, parameters: &[&str]) -> String {
    // WebAssembly has no types of fewer bits.
    let types = parameters.iter().map(|name| if name.ends_with("64") { "i64" } else { "i32" });
    let arguments = types.clone().map(|name| format!("({name}.const 64)"));
    let (types, arguments) = (Vec::from_iter(types).join(" "), Vec::from_iter(arguments).join(" "));
    format!(
        r#"(module
            (import "{namespace}" "{name}" (func $refused (param {types}) (result i32)))
            (import "{WASI}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1 1)
            (data (i32.const 0) "\10\00\00\00\07\00\00\00")
            (data (i32.const 16) "goes on")
            (func (export "main") (result i32)
                (local $error i32)
                (local.set $error (call $refused {arguments}))
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))
                (local.get $error)))"#
    )
}

#[test]
fn what_is_refused_fails_with_the_error_of_the_table_and_the_guest_goes_on() {
    let mut called = BTreeSet::new();
    for row in JUDGED {
        let ImportRule::Refused(errno) = row.judgement else { continue };
        // A thread that can't be started has no error number, but a negative result.
        for name in row.names().filter(|_| row.namespace == WASIX) {
            let (_, parameters) =
                binding::FUNCTIONS.iter().find(|(other, _)| *other == name).unwrap();
            let parameters = Vec::from_iter(parameters.iter().map(|(_, name)| *name));
            let mut bound = Bound::new();
            let instance = bound.start(&calling(row.namespace, name, &parameters));
            let transcript = bound.begin_run();
            bound.gate.begin();
            assert_eq!(bound.run(&instance).unwrap(), errno.code(), "{name}");
            assert_eq!(transcript.text_of(Stream::Stdout), b"goes on", "{name}");
            called.insert(name);
        }
    }
    for name in
        ["sock_bind", "sock_listen", "sock_send_to", "proc_fork", "proc_exec3", "proc_spawn2"]
    {
        assert!(called.contains(name), "{name}");
    }
}
