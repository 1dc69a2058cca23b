//! Linking, of small libraries with a small interpreter.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use super::*;
use crate::cache::CacheDir;
use crate::cause::chain;
use crate::config::{Progress, ProgressSink, Silent};
use crate::python::emscripten::exceptions::random::RandomNumbers;
use crate::python::emscripten::tests::{cases, run};
use crate::python::emscripten::translate;
use crate::python::module::{Source, load_or_compile, new_engine, writes};

const A: &str = "/site/a.so";
const B: &str = "/site/b.so";

/// An interpreter whose `main` is `BODY`. `$a` and `$b` open the libraries of those names and call their
/// `PyInit_x`; a library that isn't found is -1.
const PYTHON: &str = r#"(module
    (@custom "dylink.0" (before first) "\01\04\00\00\00\00")
    (import "env" "_dlopen_js" (func $open (param i32) (result i32)))
    (import "env" "_dlsym_js" (func $find (param i32 i32 i32) (result i32)))
    (import "env" "__syscall_getcwd" (func $getcwd (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
    (memory (export "memory") 1)
    (table $functions 4 funcref)
    (tag $thrown (export "__cpp_exception") (param i32))
    (global $stack (export "__stack_pointer") (mut i32) (i32.const 4000))
    (global (export "__heap_base") i32 (i32.const 4096))
    (global (export "answer") i32 (i32.const 2000))
    (global (export "Py_Version") i32 (i32.const 2004))
    (elem (i32.const 1) $double)
    (data (i32.const 1000) "\00\10\00\00")
    (data (i32.const 2000) "\2a\00\00\00\f0\02\0e\03")
    (data (i32.const 3036) "/site/a.so\00")
    (data (i32.const 3136) "/site/b.so\00")
    (data (i32.const 3200) "PyInit_x\00")
    (func $none (result i32) i32.const 0)
    (func $load (param i32) (result i32)
        (if (i32.eqz (call $open (local.get 0))) (then (return (i32.const -1))))
        (call_indirect (result i32) (call $find (local.get 0) (i32.const 3200) (i32.const 0))))
    (func $a (result i32) (call $load (i32.const 3000)))
    (func $b (result i32) (call $load (i32.const 3100)))
    (func $double (export "double") (param i32) (result i32) (i32.mul (local.get 0) (i32.const 2)))
    (func (export "strcmp") (param i32 i32) (result i32)
        (loop $next
            (if (i32.ne (i32.load8_u (local.get 0)) (i32.load8_u (local.get 1)))
                (then (return (i32.const 1))))
            (if (i32.eqz (i32.load8_u (local.get 0))) (then (return (i32.const 0))))
            (local.set 0 (i32.add (local.get 0) (i32.const 1)))
            (local.set 1 (i32.add (local.get 1) (i32.const 1)))
            (br $next))
        unreachable)
    (func (export "emscripten_get_sbrk_ptr") (result i32) i32.const 1000)
    (func (export "malloc") (param i32) (result i32) i32.const 1024)
    (func (export "calloc") (param i32 i32) (result i32) i32.const 1100)
    (func (export "emscripten_stack_init"))
    (func (export "emscripten_stack_get_base") (result i32) i32.const 4000)
    (func (export "emscripten_stack_set_limits") (param i32 i32))
    (func (export "emscripten_thread_sleep") (param f64))
    (func (export "__wasm_call_ctors"))
    (func (export "Py_BytesMain") (param i32 i32) (result i32) BODY))"#;

/// What libraries import of the interpreter.
const IMPORTS: &str = r#"
    (import "env" "memory" (memory 1))
    (import "env" "__indirect_function_table" (table $functions 1 funcref))
    (import "env" "__memory_base" (global $memory i32))
    (import "env" "__table_base" (global $table i32))
    (import "env" "__stack_pointer" (global $stack (mut i32)))
    (import "env" "double" (func $double (param i32) (result i32)))
    (import "GOT.func" "double" (global $address_of_double (mut i32)))
    (import "GOT.mem" "answer" (global $answer (mut i32)))
    (import "env" "__cpp_exception" (tag $thrown (param i32)))"#;

/// A library with a bit of all, whose `PyInit_x` returns how often and in which order it began.
const LIBRARY: &str = r#"
    (import "GOT.func" "own" (global $address_of_own (mut i32)))
    (import "env" "own" (func $own (param i32) (result i32)))
    (import "GOT.mem" "text" (global $text (mut i32)))
    (global $count (mut i32) (i32.const 7))
    (global (export "text") i32 (i32.const 8))
    (elem (global.get $table) $init)
    (data (i32.add (global.get $memory) (i32.const 8)) "text")
    (start $start)
    (func $note (param i32)
        (i32.store (global.get $memory)
            (i32.add (i32.mul (i32.load (global.get $memory)) (i32.const 10)) (local.get 0))))
    (func $start (call $note (i32.const 1)))
    (func (export "__wasm_apply_data_relocs") (call $note (i32.const 2)))
    (func (export "__wasm_call_ctors") (call $note (i32.const 3)))
    (func (export "own") (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
    (func $init (export "PyInit_x") (result i32) BODY)"#;

fn python(body: &str) -> Vec<u8> {
    wat::parse_str(PYTHON.replace("BODY", body)).unwrap()
}

/// Returns a library that asks for 64 bytes and 2 slots. `links` are further parts of `dylink.0`.
fn asking(asks: &str, links: &str, text: &str) -> Bytes {
    let text = format!(r#"(module (@custom "dylink.0" (before first) "{asks}{links}") {text})"#);
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).into()
}

fn library(links: &str, text: &str) -> Bytes {
    asking(r"\01\04\40\04\02\00", links, &format!("{IMPORTS}{text}"))
}

fn with_all(body: &str) -> Bytes {
    library("", &LIBRARY.replace("BODY", body))
}

/// Returns what the linked interpreter's `main` does.
fn result(libraries: &[(&str, Bytes)], body: &str) -> i32 {
    let libraries: Vec<_> =
        libraries.iter().map(|(path, wasm)| ((*path).to_owned(), wasm.clone())).collect();
    let wasm = translate(&python(body), &libraries).unwrap();
    writes::check(&wasm).unwrap();
    run(&wasm).0
}

fn refusal(library: &Bytes) -> String {
    let libraries = [(A.to_owned(), library.clone())];
    chain(&link(&python("i32.const 0"), &libraries).unwrap_err()).to_string()
}

#[test]
fn a_library_begins_once_where_its_path_is_opened() {
    let libraries = [(A, with_all("(i32.load (global.get $memory))"))];
    for (expected, body) in [
        (123, "(call $a)"),
        (123, "(drop (call $a)) (call $a)"),
        (-1, "(call $b)"),
        // The interpreter's record of it, as Emscripten's loader fills it.
        (1, "(drop (call $a)) (i32.load8_u (i32.const 3008))"),
        (4096, "(drop (call $a)) (i32.load (i32.const 3012))"),
        (64, "(drop (call $a)) (i32.load (i32.const 3016))"),
        (4, "(drop (call $a)) (i32.load (i32.const 3020))"),
        (2, "(drop (call $a)) (i32.load (i32.const 3024))"),
    ] {
        assert_eq!(result(&libraries, body), expected, "{body}");
    }
    // Its data is there, and the heap begins behind it.
    assert_eq!(result(&libraries, "(i32.load8_u (i32.const 4104))"), i32::from(b't'));
    assert!(result(&libraries, "(i32.load (i32.const 1000))") > 4096 + 64);
}

#[test]
fn names_mean_what_the_library_or_the_interpreter_defines() {
    for (expected, body) in [
        (42, "(i32.load (global.get $answer))"),
        (i32::from(b'x'), "(i32.load8_u (i32.add (global.get $text) (i32.const 2)))"),
        (14, "(call $double (global.get $count))"),
        (8, "(call $own (global.get $count))"),
        (9, "(global.set $count (i32.const 8)) (call $own (global.get $count))"),
        (4000, "(global.get $stack)"),
        // A function has one address: that which it has in the interpreter's table, or a new one.
        (1, "(global.get $address_of_double)"),
        (
            6,
            "(call_indirect (param i32) (result i32) (i32.const 3) (global.get $address_of_double))",
        ),
        (6, "(global.get $address_of_own)"),
        (4, "(call_indirect (param i32) (result i32) (i32.const 3) (global.get $address_of_own))"),
        (5, "(block (result i32) (i32.const 5))"),
        (3, "(i32.const 1) (i32.const 2) (block (param i32 i32) (result i32) i32.add)"),
        (6, "try (result i32) i32.const 6 throw $thrown catch $thrown catch_all i32.const 1 end"),
    ] {
        assert_eq!(result(&[(A, with_all(body))], "(call $a)"), expected, "{body}");
    }
    // Exceptions pass from a library to the interpreter.
    let throws = with_all("(throw $thrown (i32.const 33))");
    let body = "try (result i32) call $a catch $thrown end";
    assert_eq!(result(&[(A, throws)], body), 33);
}

#[test]
fn libraries_that_define_the_same_names_stay_apart() {
    let libraries = [
        (A, with_all("(i32.load8_u (global.get $text))")),
        (B, library("", &LIBRARY.replace("\"text\")\n    (start", "\"other\")\n    (start").replace(
            "BODY",
            "(i32.add (i32.mul (i32.load8_u (global.get $text)) (i32.const 1000))
                (call_indirect (param i32) (result i32) (i32.const 3) (global.get $address_of_own)))",
        ).replace("(i32.const 1)))\n", "(i32.const 2)))\n"))),
    ];
    assert_eq!(result(&libraries, "(call $a)"), i32::from(b't'));
    assert_eq!(result(&libraries, "(call $b)"), i32::from(b'o') * 1000 + 5);
}

#[test]
fn a_name_means_what_the_library_defines_before_what_the_interpreter_does() {
    let defines = r#"
        (global (export "answer") i32 (i32.const 4))
        (data (i32.add (global.get $memory) (i32.const 4)) "\07\00\00\00")
        (func (export "double") (param i32) (result i32) (i32.mul (local.get 0) (i32.const 20)))"#;
    let init = |body: &str| format!(r#"(func (export "PyInit_x") (result i32) {body})"#);
    let uses = "(i32.add (call $double (i32.const 100)) (i32.load (global.get $answer)))";
    let calls =
        "(call_indirect (param i32) (result i32) (i32.const 3) (global.get $address_of_double))";
    for (own, other, body) in [(2007, 242, uses), (60, 6, calls)] {
        let libraries =
            [(A, library("", &format!("{defines}{}", init(body)))), (B, library("", &init(body)))];
        assert_eq!(result(&libraries, "(call $a)"), own);
        // Others don't notice, unless they need it.
        assert_eq!(result(&libraries, "(call $b)"), other);
        let libraries = [libraries[0].clone(), (B, library(NEEDS_A, &init(body)))];
        assert_eq!(result(&libraries, "(call $b)"), own);
    }
}

/// The part of `dylink.0` that says that a library needs another one.
const NEEDS_A: &str = r"\02\06\01\04a.so";
const NEEDS_B: &str = r"\02\06\01\04b.so";

#[test]
fn a_library_is_prepared_after_those_that_it_needs_even_in_a_circle() {
    let text = |own: &str, other: &str| {
        format!(
            r#"(import "env" "{other}" (func $other (param i32) (result i32)))
            (import "GOT.mem" "of_a" (global $of_a (mut i32)))
            (global (export "of_{own}") i32 (i32.const 4))
            (func (export "{own}") (param i32) (result i32)
                (if (result i32) (local.get 0)
                    (then (call $other (i32.sub (local.get 0) (i32.const 1))))
                    (else (i32.const {}))))
            (func (export "__wasm_call_ctors")
                (i32.store (global.get $of_a)
                    (i32.add (i32.const {}) (i32.mul (i32.const 10) (i32.load (global.get $of_a))))))
            (func (export "PyInit_x") (result i32)
                (i32.add (i32.mul (i32.load (global.get $of_a)) (i32.const 100))
                    (call $other (i32.const 4))))"#,
            own.len() * 7 + usize::from(own == "b"),
            1 + usize::from(own == "b"),
        )
    };
    let libraries =
        [(A, library(NEEDS_B, &text("a", "b"))), (B, library(NEEDS_A, &text("b", "a")))];
    // `b` calls `a`, which calls `b`, and so on: four calls later it is `b` again.
    assert_eq!(result(&libraries, "(call $a)"), 2108);
    assert_eq!(result(&libraries, "(call $b)"), 1207);
    // At the path of the other one it needs itself.
    assert!(refusal(&libraries[1].1).contains("nothing defines `a`"));
}

#[test]
fn of_two_libraries_with_a_name_the_nearest_is_meant() {
    let needs = library(
        r"\02\06\01\04c.so",
        r#"(import "env" "f" (func $f (result i32)))
        (func (export "PyInit_x") (result i32) (call $f))"#,
    );
    let defines =
        |value: i32| library("", &format!(r#"(func (export "f") (result i32) i32.const {value})"#));
    for (near, far) in [("/site/c.so", "/c.so"), ("/site/a.libs/c.so", "/sites/x.libs/c.so")] {
        for (first, second) in [((near, 1), (far, 2)), ((far, 2), (near, 1))] {
            let others = [first, second].map(|(path, value)| (path, defines(value)));
            let [first, second] = others;
            let libraries = [(A, needs.clone()), first, second];
            assert_eq!(result(&libraries, "(call $a)"), 1, "{near} {far}");
        }
    }
}

#[test]
fn what_nothing_defines_may_be_missing_if_it_is_weak() {
    // The import info says it of `maybe` in `env` and in `GOT.func`, and of nothing else.
    let weak = r"\04\1c\02\03env\05maybe\01\08GOT.func\05maybe\01";
    let text = r#"(import "env" "maybe" (func $maybe (param i32)))
        (import "GOT.func" "maybe" (global $address (mut i32)))
        (func (export "PyInit_x") (result i32)
            (if (global.get $address) (then (call $maybe (i32.const 1)))) i32.const 9)"#;
    assert_eq!(result(&[(A, library(weak, text))], "(call $a)"), 9);
    assert!(refusal(&library("", text)).contains("nothing defines `maybe`"));
}

#[test]
fn ten_thousand_symbols_are_linked() {
    let mut text = String::new();
    for number in 0..10_000 {
        text += &format!(
            r#"(import "env" "f{number}" (func $to{number} (result i32)))
            (import "GOT.func" "f{number}" (global $at{number} (mut i32)))"#
        );
    }
    for number in 0..10_000 {
        text += &format!(r#"(func (export "f{number}") (result i32) i32.const {number})"#);
    }
    text += r#"(func (export "PyInit_x") (result i32)
        (i32.add (call $to9998) (call_indirect (result i32) (global.get $at9999))))"#;
    assert_eq!(result(&[(A, library("", &text))], "(call $a)"), 19_997);
}

#[test]
fn what_cannot_be_linked_is_refused() {
    let whole = LIBRARY.replace("BODY", "(i32.const 1)");
    let text = format!("{IMPORTS}{whole}");
    let asks = r"\01\04\40\04\02\00";
    let table = r#"_table" (table $functions 1 funcref)"#;
    for (said, replaced, by) in [
        ("nothing defines `missing`", "\"env\" \"own\"", "\"env\" \"missing\""),
        ("nothing defines `missing`", "\"GOT.mem\" \"answer\"", "\"GOT.mem\" \"missing\""),
        ("nothing defines `missing`", "\"GOT.func\" \"own\"", "\"GOT.func\" \"missing\""),
        ("nothing defines `own`", "\"env\" \"own\"", "\"other\" \"own\""),
        ("nothing defines `answer`", "\"GOT.mem\" \"answer\"", "\"env\" \"answer\""),
        ("nothing defines `thrown`", "\"__cpp_exception\"", "\"thrown\""),
        ("`__cpp_exception` has another type", "(tag $thrown (param i32))", "(tag $thrown)"),
        (
            "`double` has another type",
            "(func $double (param i32) (result i32))",
            "(func $double (result i32))",
        ),
        (
            "its data overlaps",
            "\"text\")\n    (start",
            "\"text\") (data (i32.add (global.get $memory) (i32.const 11)) \"x\") (start",
        ),
        (
            "its data overlaps",
            "$memory) (i32.const 8)) \"text\"",
            "$memory) (i32.const 61)) \"text\"",
        ),
        (
            "its data overlaps",
            "$memory) (i32.const 8)) \"text\"",
            "$memory) (i32.const -1)) \"text\"",
        ),
        (
            "its data overlaps",
            "(i32.add (global.get $memory) (i32.const 8)) \"text\"",
            "(i32.const 1000) \"text\"",
        ),
        (
            "passive data",
            "(data (i32.add (global.get $memory) (i32.const 8)) \"text\")",
            "(data \"text\")",
        ),
        (
            "its functions overlap",
            "(elem (global.get $table) $init)",
            "(elem (global.get $table) $init $init $init)",
        ),
        ("its functions overlap", "(elem (global.get $table) $init)", "(elem (i32.const 1) $init)"),
        ("filled by numbers", "(elem (global.get $table) $init)", "(elem func $init)"),
        ("asks for another memory", "(memory 1)", "(memory 2)"),
        ("asks for another memory", "(memory 1)", "(memory 1 2)"),
        ("asks for another table", table, r#"_table" (table $functions 1 9 funcref)"#),
        ("asks for another table", table, r#"_table" (table $functions 3 funcref)"#),
        ("of its own", "(start", "(tag) (start"),
        ("of its own", "(start", "(table 1 funcref) (start"),
        ("constant", "(i32.const 1)", "(global.set $text (i32.const 1)) (i32.const 1)"),
        ("`__wasm_call_ctors` has another type", "ctors\")", "ctors\") (param i32)"),
        ("can't be read", "(memory 1)", "(memory i64 1)"),
        ("no number", "(mut i32) (i32.const 7)", "(mut funcref) (ref.null func)"),
    ] {
        assert!(text.contains(replaced), "{replaced}");
        let library = asking(asks, "", &text.replacen(replaced, by, 1));
        let error = refusal(&library);
        assert!(error.starts_with("`/site/a.so` can't be linked: "), "{error}");
        assert!(error.contains(said), "{by}: {error}");
    }
    for (said, asks) in [
        ("without `dylink.0`", ""),
        ("without `dylink.0`", r"\02\01\00"),
        ("too large", r"\01\08\ff\ff\ff\ff\07\04\02\00"),
        ("too large", r"\01\07\40\04\ff\ff\ff\7f\00"),
        ("alignment", r"\01\04\40\1f\02\00"),
        ("can't be read", r"\01\04\40"),
        ("the library `a.sö`", r"\01\04\40\04\02\00\02\07\01\05a.s\c3\b6"),
    ] {
        let error = refusal(&asking(asks, "", &text));
        assert!(error.contains(said), "{asks}: {error}");
    }
    for damaged in [&b"\x7fELF"[..], b"", b"\0asm\x01\0\0\0"] {
        assert!(refusal(&Bytes::from_static(damaged)).contains("can't be linked"));
    }
    let libraries = [(A.to_owned(), with_all("(i32.const 1)"))];
    for (replaced, by) in [
        ("\"strcmp\"", "\"other\""),
        ("\"__heap_base\"", "\"other\""),
        ("(result i32) i32.const 1000)", "(result i32) i32.const 1004)"),
        ("_dlopen_js", "_other_js"),
    ] {
        let python = PYTHON.replace("BODY", "i32.const 0").replacen(replaced, by, 1);
        let error = link(&wat::parse_str(python).unwrap(), &libraries).unwrap_err();
        let error = chain(&error).to_string();
        assert!(error.starts_with("no package can be linked with it: "), "{error}");
    }
}

#[test]
fn an_interpreter_says_its_version_and_a_larger_memory_is_asked_for() {
    assert_eq!(super::super::version(&python("i32.const 0")), Some([3, 14, 2]));
    assert_eq!(super::super::version(b"\0asm\x01\0\0\0"), None);
    let large = asking(
        r"\01\06\80\80\10\04\02\00",
        "",
        &format!(
            "{IMPORTS}
        (func (export \"PyInit_x\") (result i32) memory.size)"
        ),
    );
    assert_eq!(result(&[(A, large)], "(call $a)"), 5);
}

#[test]
fn damaged_libraries_are_refused_without_a_panic() {
    let mut numbers = RandomNumbers::new(11);
    let whole = library(NEEDS_B, &LIBRARY.replace("BODY", "(call $own (i32.const 1))"));
    let mut linked = 0;
    let python = python("i32.const 0");
    for case in 0..cases(3_000) {
        let mut damaged = whole.to_vec();
        // Half of them before the functions, where a valid module comes out more often.
        let room = if case % 2 == 0 { damaged.len() } else { damaged.len() / 3 };
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(room);
            damaged[at] = numbers.below(256) as u8;
        }
        let libraries = [(A.to_owned(), damaged.into()), (B.to_owned(), whole.clone())];
        linked += usize::from(translate(&python, &libraries).is_ok());
    }
    assert!(linked > 0);
}

/// Names a file that a process makes at the moment of that name, when it waits to be killed. Its cache
/// is beside it.
const KILLED_VARIABLE: &str = "HATCHERY_TEST_LINK_UNTIL_KILLED";
const KILLED_AT: [&str; 3] = ["linking", "compiling", "storing"];

/// Waits for the end at a step that is reported.
struct WaitAt(PathBuf);

impl ProgressSink for WaitAt {
    fn report(&self, progress: Progress) {
        let moment = match progress {
            Progress::Compiling { .. } => "compiling",
            Progress::Storing => "storing",
            _ => return,
        };
        if self.0.ends_with(moment) {
            fs::write(&self.0, "").unwrap();
            loop {
                thread::park();
            }
        }
    }
}

/// Loads an interpreter with a library from the cache in a folder. `read` links it.
fn load(folder: &Path, read: &dyn Fn() -> Bytes, progress: &Arc<dyn ProgressSink>) {
    let cache = CacheDir::open(Some(&folder.join("cache"))).unwrap();
    let read = || Ok(read());
    let source = Source { hash: "linked", read: &read, pinned: None, starts_early: false };
    let module = load_or_compile(&new_engine(), &cache, &source, progress).unwrap();
    assert!(module.module().exports().any(|export| export.name() == "_start"));
}

fn linked() -> Bytes {
    let libraries = [(A.to_owned(), with_all("(i32.const 1)"))];
    translate(&python("(call $a)"), &libraries).unwrap().into()
}

/// The other half of the next test.
#[test]
fn linking_until_killed() {
    let Some(begun) = std::env::var_os(KILLED_VARIABLE).map(PathBuf::from) else { return };
    let read = || {
        if begun.ends_with("linking") {
            fs::write(&begun, "").unwrap();
            loop {
                linked();
            }
        }
        linked()
    };
    let progress: Arc<dyn ProgressSink> = Arc::new(WaitAt(begun.clone()));
    load(begun.parent().unwrap(), &read, &progress);
}

#[test]
fn a_process_killed_while_it_links_or_compiles_leaves_nothing_and_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    for moment in KILLED_AT {
        let begun = folder.path().join(moment);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "python::emscripten::link::tests::linking_until_killed"])
            .env(KILLED_VARIABLE, &begun)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !begun.exists() {
            assert!(child.try_wait().unwrap().is_none(), "the child ended before {moment}");
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let links = AtomicUsize::new(0);
    let read = || {
        links.fetch_add(1, Ordering::Relaxed);
        linked()
    };
    let silent: Arc<dyn ProgressSink> = Arc::new(Silent);
    for _ in 0..2 {
        load(folder.path(), &read, &silent);
    }
    assert_eq!(links.into_inner(), 1, "the second one is in the cache");
    let modules = fs::read_dir(folder.path().join("cache/modules")).unwrap();
    let mut left: Vec<_> = modules.map(|file| file.unwrap().path()).collect();
    left.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with('.'));
    assert!(left.is_empty(), "{left:?}");
}
