//! Wheels of our own making for Pyodide's CPython, whose machine code a C compiler made that knows
//! nothing of Emscripten.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use engine::{Package, PythonTarget};
use tempfile::TempDir;

use super::*;
use crate::wheels::with_wheels;

const OWN: &str = include_str!("own.c");
/// How many modules are made of that.
const MODULES: usize = 24;

/// A library that a module needs.
const SHARED: &str = "int shared(int x) { return x + 1; }";
/// The functions of one more module, whose number is the sum of what they return.
const MANY: usize = 10_000;

/// Compiles and links in a folder.
struct Compiler {
    folder: TempDir,
}

impl Compiler {
    /// Returns `None` if a program isn't there, which is said.
    fn found() -> Option<Self> {
        let works = |program: &str| {
            let answer = Command::new(program).arg("--version").output();
            answer.is_ok_and(|answer| answer.status.success())
        };
        let found = ["clang", "wasm-ld"].into_iter().all(works);
        if !found {
            eprintln!("skipped, since there is no clang or no wasm-ld");
        }
        found.then(|| Self { folder: tempfile::tempdir().unwrap() })
    }

    /// Returns the library that a source becomes, with the libraries that it needs.
    fn library(&self, name: &str, source: &str, defines: &[String], needs: &[&str]) -> Vec<u8> {
        let path = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        fs::write(path("c"), source).unwrap();
        let succeeds = |status: ExitStatus| assert!(status.success(), "{name}");
        succeeds(
            Command::new("clang")
                .args(["--target=wasm32-unknown-emscripten", "-fPIC", "-O2", "-c"])
                .args(defines)
                .args([path("c"), "-o".into(), path("o")])
                .status()
                .unwrap(),
        );
        succeeds(
            Command::new("wasm-ld")
                .args(["-shared", "--experimental-pic", "--no-entry", "--export-all"])
                .args(needs)
                .args([path("o"), "-o".into(), path("so")])
                .current_dir(self.folder.path())
                .status()
                .unwrap(),
        );
        fs::read(path("so")).unwrap()
    }

    /// Packs modules into a wheel, and opens that.
    fn wheel(&self, modules: &[(String, Vec<u8>)], target: &PythonTarget) -> Package {
        let path = self.folder.path().join("own-1.0-cp314-cp314-pyemscripten_2026_0_wasm32.whl");
        let mut archive = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        let metadata =
            ("own-1.0.dist-info/METADATA".to_owned(), b"Name: own\nVersion: 1.0\n".to_vec());
        for (name, contents) in modules.iter().chain([&metadata]) {
            archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(contents).unwrap();
        }
        archive.finish().unwrap();
        Package::open(Path::new(&path), target).unwrap()
    }
}

/// Returns the source of a module that calls functions by their addresses.
fn many() -> String {
    let mut source = String::new();
    for number in 0..MANY {
        writeln!(source, "int f{number}(void) {{ return {number}; }}").unwrap();
    }
    let names: Vec<String> = (0..MANY).map(|number| format!("f{number}")).collect();
    let ways = format!("static int (*const all[])(void) = {{{}}};", names.join(", "));
    let sum = "int shared(int);\n\
               long number(void) {\n\
               \x20   int sum = 0;\n\
               \x20   for (int i = 0; i < sizeof all / sizeof *all; i++) sum += all[i]();\n\
               \x20   return shared(sum);\n\
               }";
    let own = OWN.replace("long number(void) { return NUMBER; }", &format!("{ways}\n{sum}"));
    format!("{source}{own}")
}

#[test]
fn modules_of_another_compiler_do_what_their_source_says() {
    let Some(compiler) = Compiler::found() else { return };
    let defines = |name: &str, number: usize| {
        let (bytes, alignment) = (1 + number * number * 1000, 1 << (number % 13));
        let pairs = [("NAME", name.to_owned()), ("NUMBER", number.to_string())];
        let sizes = [("BYTES", bytes.to_string()), ("ALIGNMENT", alignment.to_string())];
        pairs
            .into_iter()
            .chain(sizes)
            .map(|(key, value)| format!("-D{key}={value}"))
            .collect::<Vec<String>>()
    };
    let made = |target: &PythonTarget| {
        let mut modules = Vec::new();
        for number in 0..MODULES {
            let name = format!("own{number}");
            let library = compiler.library(&name, OWN, &defines(&name, number), &[]);
            modules.push((format!("{name}.so"), library));
        }
        modules.push(("shared.so".to_owned(), compiler.library("shared", SHARED, &[], &[])));
        let library = compiler.library("many", &many(), &defines("many", 0), &["shared.so"]);
        modules.push(("many.so".to_owned(), library));
        vec![compiler.wheel(&modules, target)]
    };
    let Some((image, _)) = with_wheels(&[], made) else { return };
    let mut interpreter = image.start().unwrap();
    let source = format!(
        "import importlib, many
own = [importlib.import_module(f'own{{number}}') for number in range({MODULES})]
try: own[0].word(3)
except ValueError as error: said = str(error)
[[one.compute(3) - 109 for one in own], many.compute(4) - 108, own[-1].word(2), said]"
    );
    let numbers: Vec<usize> = (0..MODULES).collect();
    let sum = MANY * (MANY - 1) / 2 + 1;
    for _ in 0..2 {
        let outcome = run(&mut interpreter, &source).0;
        assert_eq!(value(&outcome), json!([numbers, sum, "two", "there are three"]));
        interpreter.reset().unwrap();
        assert!(interpreter.is_as_image());
    }
}
