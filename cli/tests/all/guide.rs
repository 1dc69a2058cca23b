//! The README and the guide: every block of code there is run, and prints what stands below it.
//!
//! The words behind a block's fence say what covers it:
//!
//! | fence | what is done |
//! |---|---|
//! | `rust` | it is a doctest: `src/lib.rs` names the document |
//! | `console` | `sh` runs each `$ command`, and the lines below are its output |
//! | `console,background` | its one command runs until the document ends |
//! | `sh`, `text,output` | the command of the first prints the second |
//! | `json,fields` | every field is in `docs/status.md` |
//!
//! Any other fence fails. Lines of a prompt are typed into the command above them, and `^C` is
//! SIGINT. `cargo run` runs what was built already, and `cargo test` isn't run. Commands run in a
//! folder with `examples/`, and find what earlier blocks of their document left there.
//!
//! Times and sizes vary. With `numbers` every number, key and age, the folder of a path and the
//! room between words do. With `any-order` lines may change places. A key in a command stands for
//! the one at its place in the real output.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};
use tempfile::TempDir;

use crate::{interrupt, run, text};

/// Runs what was built, in place of building it.
const CARGO: &str = r#"#!/bin/sh
case "$1 $2 $3" in
"run --release --") shift 3; exec hatchery "$@" ;;
"run --release --example") exec "$EXAMPLES/$4" ;;
*) echo "only commands that run something can be tested: cargo $*"; exit 1 ;;
esac
"#;

/// For machines without it.
const CURL: &str = "#!/bin/sh\nexec python3 -c 'import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[-1]).read().decode())' \"$@\"\n";

/// GNU parallel, as far as the guide uses it.
const PARALLEL: &str = "#!/bin/sh\nexec xargs -I{} sh -c \"$1\"\n";

/// In place of a cluster: runs the command of an indexed job once for each index, with the present
/// folder for its volume.
const KUBECTL: &str = r#"#!/usr/bin/env python3
import os, re, subprocess, sys
_apply, _file, path = sys.argv[1:]
with open(path) as file:
    job = file.read()
[command] = re.findall(r"- >-\n((?: {14}.*\n)+)", job)
command = " ".join(command.split()).replace("/data/", "./")
for index in range(int(re.search(r"completions: (\d+)", job)[1])):
    subprocess.run(["sh", "-c", command], env={**os.environ, "JOB_COMPLETION_INDEX": str(index)}, check=True)
name = re.search(r"name: (\S+)", job)[1]
print(f"job.batch/{name} created")
"#;

/// The packages that the chapter on packages has: a folder, and a wheel with the name of a real one.
const PACKAGES: &str = r#"
import os, zipfile
os.mkdir("shapes")
open("shapes/__init__.py", "w").close()
with open("shapes/area.py", "w") as file:
    file.write("def square(side): return side * side\n")
with zipfile.ZipFile("idna-3.10-py3-none-any.whl", "w") as wheel:
    wheel.writestr("idna/__init__.py", "__version__ = '3.10'\n")
    wheel.writestr("idna-3.10.dist-info/METADATA", "Name: idna\nVersion: 3.10\n")
    wheel.writestr("idna-3.10.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
    wheel.writestr("idna-3.10.dist-info/RECORD", "")
"#;

/// A line that only a first start prints, where the image isn't in the cache yet.
const MAKING: &str = "hatchery: building an image";

/// What a prompt says first, at a terminal.
const GREETING: &str = concat!(
    "Hatchery ",
    env!("CARGO_PKG_VERSION"),
    ", Python in a sandbox; `:help` shows commands"
);

/// The port in the guide, in place of which a free one is taken.
const PORT: &str = "9184";

const UNITS: [&str; 10] = ["s", "ms", "µs", "ns", "B", "KiB", "MiB", "second", "seconds", "minute"];

#[test]
fn the_guide_does_what_it_says() {
    let documents = documents();
    assert!(documents.len() > 10, "the guide moved");
    // The very first start says more.
    assert!(run(&["run", "-c", "1"]).status.success());
    std::thread::scope(|scope| {
        for (name, text) in &documents {
            scope.spawn(move || check(name, text));
        }
    });
}

/// The README and the chapters, with their paths from the root.
fn documents() -> BTreeMap<String, String> {
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs/guide")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".md") {
            names.push(format!("docs/guide/{name}"));
        }
    }
    let read = |name: String| (name.clone(), fs::read_to_string(root().join(name)).unwrap());
    names.into_iter().map(read).collect()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A fenced block: the words behind its fence, and its text.
struct Block {
    language: String,
    marks: String,
    text: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for event in Parser::new(document) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let CodeBlockKind::Fenced(info) = kind else { panic!("a block without a fence") };
                let (language, marks) = info.split_once(',').unwrap_or((&info, ""));
                let (language, marks) = (language.to_owned(), marks.to_owned());
                blocks.push(Block { language, marks, text: String::new() });
                is_inside = true;
            }
            Event::End(Tag::CodeBlock(_)) => is_inside = false,
            Event::Text(piece) if is_inside => blocks.last_mut().unwrap().text.push_str(&piece),
            _ => {}
        }
    }
    blocks
}

/// Runs every block of a document.
fn check(name: &str, document: &str) {
    let mut place = Place::new(name);
    let mut shell_command = None;
    for block in blocks(document) {
        let says = format!("{name}:\n{}", block.text);
        match (block.language.as_str(), block.marks.as_str()) {
            ("rust", _) => {
                let doctests = fs::read_to_string(root().join("src/lib.rs")).unwrap();
                assert!(doctests.contains(&format!("../{name}")), "no doctest: {says}");
            }
            ("console", marks @ ("" | "numbers" | "any-order")) => {
                for (command, expected) in commands(&block.text) {
                    place.check(&command, &expected, marks);
                }
            }
            ("console", "background") => place.start(&commands(&block.text)),
            ("sh", "") if block.text.starts_with("cargo test ") => {}
            ("sh", "") => shell_command = Some(block.text),
            ("text", "output") => {
                place.check(&shell_command.take().expect(&says), &block.text, "");
            }
            ("json", "fields") => {
                let fields = fs::read_to_string(root().join("docs/status.md")).unwrap();
                for field in block.text.split('"').skip(1).step_by(2) {
                    let is_key = block.text.contains(&format!("\"{field}\":"));
                    let is_listed = fields.contains(&format!("`{field}`"));
                    assert!(!is_key || is_listed, "`{field}` isn't in docs/status.md: {says}");
                }
            }
            (language, marks) => panic!("nothing tests `{language},{marks}`: {says}"),
        }
    }
}

/// The commands of a console and what stands below each. A command goes on in the next line where
/// the shell would ask for more.
fn commands(console: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in console.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((command, _))) if is_unfinished(command) => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, output))) => {
                output.push_str(line);
                output.push('\n');
            }
            (None, None) => panic!("a console begins with a command, not with {line}"),
        }
    }
    commands
}

fn is_unfinished(command: &str) -> bool {
    let parsed = Command::new("sh").args(["-n", "-c", command]).stderr(Stdio::null()).status();
    // The shell takes a here-document without its end for whole.
    let is_in_document = command.contains("<<'END'") && !command.ends_with("\nEND");
    is_in_document || command.ends_with('\\') || !parsed.unwrap().success()
}

/// Where the commands of one document run.
struct Place {
    folder: TempDir,
    tools: TempDir,
    /// A cache of its own, for a document that lists images.
    cache: Option<TempDir>,
    port: String,
    background: Option<Child>,
    /// Keys in the document, and those that stand for them here.
    keys: BTreeMap<String, String>,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let examples = root().join("examples");
        sh(&format!("cp -R '{}' '{}'", examples.display(), folder.path().display()));
        let tools = tempfile::tempdir().unwrap();
        let hatchery = tools.path().join("hatchery");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hatchery"), hatchery).unwrap();
        write_tool(&tools.path().join("cargo"), CARGO);
        write_tool(&tools.path().join("parallel"), PARALLEL);
        write_tool(&tools.path().join("kubectl"), KUBECTL);
        if Command::new("curl").arg("--version").output().is_err() {
            write_tool(&tools.path().join("curl"), CURL);
        }
        let has_images = name.ends_with("/images.md");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        let cache = has_images.then(cache_without_images);
        let place = Self { folder, tools, cache, port, background: None, keys: BTreeMap::new() };
        if has_images {
            let made = place.command("python3").args(["-c", PACKAGES]).status().unwrap();
            assert!(made.success());
        }
        place
    }

    fn command(&self, program: &str) -> Command {
        let old_path = std::env::var("PATH").unwrap();
        let examples = Path::new(env!("CARGO_BIN_EXE_hatchery")).parent().unwrap().join("examples");
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{old_path}", self.tools.path().display()))
            .env("EXAMPLES", examples)
            .env("PYTHONPATH", root().join("python/src"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HATCHERY_CACHE_BOUND", "1TiB")
            .env("HATCHERY_CONFIG", crate::CALM)
            .env("HATCHERY_NOTEBOOK_STATES", self.tools.path().join("states"))
            .stdin(Stdio::null());
        if let Some(cache) = &self.cache {
            command.env("HATCHERY_CACHE_DIR", cache.path());
        }
        command
    }

    /// Runs a command, and returns what it prints on both streams.
    fn run(&self, command: &str) -> String {
        let mut command = command.replace(PORT, &self.port);
        for (key, here) in &self.keys {
            command = command.replace(key, here);
        }
        let together = format!("exec 2>&1\n{command}");
        let mut shell = self.command("sh");
        if command.contains("--host wasix") {
            // It has no images, and worker processes need one.
            shell.env("HATCHERY_ISOLATION", "threads");
        }
        text(&shell.args(["-c", &together]).output().unwrap().stdout)
    }

    fn check(&mut self, command: &str, expected: &str, marks: &str) {
        if expected.contains(">>> ") {
            return self.type_in(command, expected);
        }
        let expected = expected.replace(PORT, &self.port);
        let mut printed = without_making(&self.run(command), &expected);
        // What runs in the background may need a while to get there.
        for _ in 0..2_000 {
            if self.background.is_none() || alike(&printed, &expected, marks) {
                break;
            }
            printed = self.run(command);
        }
        assert!(
            alike(&printed, &expected, marks),
            "$ {command}\nprinted\n{printed}\nand not\n{expected}"
        );
        let words = expected.split_whitespace().zip(printed.split_whitespace());
        let keys = words.filter(|(word, _)| is_key(word));
        self.keys.extend(keys.map(|(word, here)| (word.to_owned(), here.to_owned())));
    }

    /// Starts a command, and waits until it has printed what it is to print.
    fn start(&mut self, commands: &[(String, String)]) {
        let [(command, expected)] = commands else { panic!("one command in the background") };
        let (command, expected) =
            (command.replace(PORT, &self.port), expected.replace(PORT, &self.port));
        let together = format!("exec 2>&1; exec {command}");
        let mut child = self.command("sh");
        let mut child = child.args(["-c", &together]).stdout(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        self.background = Some(child);
        for expected in expected.lines() {
            let mut line = String::new();
            while line.is_empty() || line.starts_with(MAKING) {
                line.clear();
                assert!(printed.read_line(&mut line).unwrap() > 0, "$ {command}\nends");
            }
            assert!(alike(&line, expected, ""), "$ {command}\nprinted {line}");
        }
        // It may say more, and is to have a reader then.
        std::thread::spawn(move || std::io::copy(&mut printed, &mut std::io::sink()));
    }

    /// Types the lines of a prompt into one, which shows neither greeting nor prompts without a
    /// terminal.
    fn type_in(&self, command: &str, prompt: &str) {
        let command = format!("exec 2>&1; exec {command}");
        let mut child = self.command("sh");
        child.args(["-c", &command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut typed = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (mut printed, mut expected) = (String::new(), String::new());
        let mut lines = prompt.lines();
        assert_eq!(lines.next(), Some(GREETING));
        for line in lines {
            let input = match line.split_once(">>> ") {
                Some((session, input)) if !session.contains(' ') => Some(input),
                _ if line == "..." => Some(""),
                _ => line.strip_prefix("... "),
            };
            if let Some(input) = input {
                writeln!(typed, "{input}").unwrap();
                continue;
            }
            if line.starts_with("^C") {
                // Not before the program runs: when it has printed what stands above.
                while printed.lines().count() < expected.lines().count() {
                    assert!(output.read_line(&mut printed).unwrap() > 0, "{prompt}{printed}");
                }
                interrupt(child.id());
            }
            expected.push_str(line.trim_start_matches("^C"));
            expected.push('\n');
        }
        drop(typed);
        output.read_to_string(&mut printed).unwrap();
        let _ = child.wait();
        let printed = without_making(&printed, &expected);
        assert!(alike(&printed, &expected, ""), "{prompt}printed\n{printed}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut child) = self.background.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn sh(command: &str) {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn write_tool(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

/// A cache with the compiled build of the real one, but without images, beside it, so that files can
/// be linked and not copied.
pub(crate) fn cache_without_images() -> TempDir {
    let info = text(&run(&["python", "info"]).stdout);
    let cache = info.lines().find_map(|line| line.strip_prefix("cache ")).unwrap();
    let cache = PathBuf::from(cache.trim());
    let copy = tempfile::tempdir_in(cache.parent().unwrap()).unwrap();
    let (from, to) = (cache.display(), copy.path().display());
    let copied = format!("builds modules secret '{to}/'");
    sh(&format!("cd '{from}' && cp -al {copied} 2>&1 || cp -a {copied}"));
    copy
}

/// What was printed, without what only a first start prints unless it is to be there.
fn without_making(printed: &str, expected: &str) -> String {
    let is_kept = |line: &&str| expected.contains(MAKING) || !line.starts_with(MAKING);
    printed.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

/// Whether two texts are the same but for what varies from run to run.
fn alike(printed: &str, expected: &str, marks: &str) -> bool {
    let plain = |text: &str| -> Vec<String> {
        let plain = |line: &str| if marks == "numbers" { loosely(line) } else { closely(line) };
        let mut lines: Vec<_> =
            text.trim_end().lines().map(|line| plain(line.trim_end())).collect();
        if marks == "any-order" {
            lines.sort();
        }
        lines
    };
    plain(printed) == plain(expected)
}

/// A line whose times, sizes and rates are `#`.
fn closely(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut plain = String::new();
    for (index, word) in words.iter().enumerate() {
        let unit = words.get(index + 1).map_or("", |next| without_ends(next));
        let is_measured =
            is_number(without_ends(word)) && (UNITS.contains(&unit) || unit == "bytes");
        plain.push_str(if is_measured { "#" } else { word });
        plain.push(' ');
    }
    plain
}

/// A line's words without what `numbers` lets vary.
fn loosely(line: &str) -> String {
    let line = line.replace('│', " │ ").replace("just now", "1 minute ago");
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let word = word.trim_matches(|c| "─█▓░".contains(c));
        let word = word.rsplit('/').next().unwrap_or(word);
        let is_unit = UNITS.contains(&word) && words.last().is_some_and(|last| last.contains('#'));
        let parts: Vec<&str> = word.split(['.', ',']).collect();
        if word.is_empty() || is_unit {
            continue;
        }
        if parts.iter().any(|part| is_key(part)) {
            words.push("key".to_owned());
            continue;
        }
        let mut plain = String::new();
        for c in word.chars() {
            let is_number = c.is_ascii_digit() || (c == '.' && plain.ends_with('#'));
            if !is_number {
                plain.push(c);
            } else if !plain.ends_with('#') {
                plain.push('#');
            }
        }
        let unit = plain.split_once('#').filter(|(before, _)| before.is_empty());
        let is_measured = unit.is_some_and(|(_, unit)| UNITS.contains(&unit));
        words.push(if is_measured { "#".to_owned() } else { plain });
    }
    words.join(" ")
}

fn without_ends(word: &str) -> &str {
    word.trim_matches(|c| "();:,".contains(c))
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Whether a word is the key of an image, or the beginning of one.
fn is_key(word: &str) -> bool {
    let is_hex = word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    word.len() >= 12 && is_hex && word.contains(|c: char| c.is_ascii_digit())
}
