//! Rules about the text of this repository that no compiler checks.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Expr, Ident, Item, Lit, Member, UseTree, Visibility};
use toml::Table;

/// Production lines that a file may have; longer ones are split by concern.
const MOST_LINES: usize = 900;

/// What a pure module names neither of: actors, waiting, clocks, and the world outside.
const IMPURE: [&str; 8] =
    ["ractor", "tokio", "async ", "Instant", "SystemTime", "std::fs", "std::net", "std::thread"];

/// Calls that fail where an invariant doesn't hold.
const ASSERTIONS: [&str; 5] = ["assert!", "assert_eq!", "debug_assert!", "ensure", "expect"];

/// The size of SPECIFICATION.md, and of the text of a row: a longer one is more than one promise.
const MOST_SPECIFICATION_BYTES: usize = 20_000;
const MOST_ROW_WORDS: usize = 40;

/// The folders of the crates whose items the facade exports.
const CRATES: [&str; 7] = [
    "src",
    "engine/src",
    "pool/src",
    "isolation/egress/src",
    "isolation/process/src",
    "scheduler/src",
    "serving/wire/src",
];

/// Types of the facade that aren't `#[non_exhaustive]` although programs can build or match them in
/// full, and why they may stay so.
const EXHAUSTIVE: [(&str, &str); 16] = [
    ("Call", "of a job as JSON, a literal that ends in `..`"),
    ("Deterministic", "of a job as JSON, a literal that ends in `..`"),
    ("EgressLimits", "a configuration is written as a literal that ends in `..`"),
    ("EngineConfig", "a configuration is written as a literal that ends in `..`"),
    ("Job", "of a job as JSON, a literal that ends in `..`"),
    ("Limits", "a configuration is written as a literal that ends in `..`"),
    ("PinnedModule", "a file and its hash"),
    ("Prune", "a configuration is written as a literal that ends in `..`"),
    ("SessionsConfig", "a configuration is written as a literal that ends in `..`"),
    ("TenantConfig", "a configuration is written as a literal that ends in `..`"),
    ("JobId", "an id is one number"),
    ("SessionId", "an id is one number"),
    ("WorkerId", "an id is one number"),
    ("NextDecision", "a follower receives a decision or learns of a gap"),
    ("Priority", "a status has an array with one entry for each"),
    ("Stream", "a process has two output streams"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Every Rust file of the repository, with its path from the root.
fn sources() -> Vec<(String, String)> {
    let mut folders = vec![root().to_owned()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") {
                sources.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(sources.iter().any(|(name, _)| name == "tests/tidy.rs"), "{} files", sources.len());
    sources
}

/// The part of a file before its inline tests.
fn production(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Whether a file has nothing but tests, and what they share.
fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.split('/').any(|part| part == "tests")
}

/// The documentation of a file's module.
fn header(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map_while(|line| line.strip_prefix("//!"))
}

/// The files whose documentation calls them pure, as a word of its own, and all files of their
/// submodules.
fn pure_modules(sources: &[(String, String)]) -> BTreeSet<&str> {
    let is_word = |part: &str| part.eq_ignore_ascii_case("pure");
    let split = |character: char| !character.is_alphanumeric() && character != '-';
    let production = || sources.iter().filter(|(name, _)| !is_test(name));
    let mut pure = BTreeSet::new();
    for (name, text) in production() {
        if header(text).any(|line| line.split(split).any(is_word)) {
            let folder = format!("{}/", name.trim_end_matches(".rs"));
            pure.insert(name.as_str());
            pure.extend(
                production()
                    .map(|(name, _)| name.as_str())
                    .filter(|name| name.starts_with(&folder)),
            );
        }
    }
    pure
}

/// The name of the function or macro that has `at` among its arguments.
fn call_around(text: &str, at: usize) -> &str {
    let is_part = |character: char| character.is_alphanumeric() || "_!".contains(character);
    let mut depth = 0;
    for (index, character) in text[..at].char_indices().rev() {
        match character {
            ')' | ']' | '}' => depth += 1,
            '(' | '[' | '{' if depth > 0 => depth -= 1,
            '(' | '[' | '{' => {
                return text[..index].rsplit(|part| !is_part(part)).next().unwrap_or_default();
            }
            _ => {}
        }
    }
    ""
}

/// Whether an assertion in this text has a message that begins with this id.
fn asserts(text: &str, id: &str) -> bool {
    [format!("\"{id}:"), format!("\"{id}\"")].iter().any(|message| {
        text.match_indices(message.as_str()).any(|(at, _)| {
            let is_comment = text[..at]
                .lines()
                .next_back()
                .is_some_and(|line| line.trim_start().starts_with("//"));
            !is_comment && ASSERTIONS.contains(&call_around(text, at))
        })
    })
}

/// The names of the test functions in this text.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    let mut is_marked = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_marked = true;
        }
        let name = line.trim_start_matches("async ").strip_prefix("fn ")?.split('(').next()?;
        std::mem::take(&mut is_marked).then_some(name)
    })
}

/// Texts between single backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Ids of invariants in a text: `E-1`, `P-2`, `S-16`.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '-').filter(
        |word| {
            word.split_once('-').is_some_and(|(layer, number)| {
                ["E", "P", "S"].contains(&layer)
                    && !number.is_empty()
                    && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        },
    )
}

#[test]
fn every_file_says_what_it_is() {
    for (name, text) in sources() {
        assert!(text.starts_with("//!"), "{name} doesn't start with `//!`");
    }
}

#[test]
fn files_are_short_enough_to_read() {
    for (name, text) in sources() {
        let lines = production(&text).lines().count();
        assert!(lines <= MOST_LINES, "{name} has {lines} production lines");
    }
}

#[test]
fn pure_modules_name_neither_actors_nor_clocks() {
    let sources = sources();
    let pure = pure_modules(&sources);
    for expected in ["pool/src/worker/state.rs", "scheduler/src/policy/fair_queue.rs"] {
        assert!(pure.contains(expected), "{expected} isn't found as pure: {pure:?}");
    }
    for (name, text) in sources.iter().filter(|(name, _)| pure.contains(name.as_str())) {
        let mut code = production(text).lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = code.find(|line| IMPURE.iter().any(|word| line.contains(word)));
        assert!(found.is_none(), "{name} isn't pure: {found:?}");
    }
}

#[test]
fn supervisors_write_their_supervision_out_and_nobody_relies_on_post_stop() {
    for (name, text) in sources() {
        if name == "tests/tidy.rs" {
            continue;
        }
        if text.contains("spawn_linked(") && text.contains("impl Actor for") {
            assert!(text.contains("fn handle_supervisor_evt"), "{name}");
        }
        assert!(!text.contains("fn post_stop"), "{name}: ractor skips it after a panic");
    }
}

#[test]
fn tests_neither_hide_nor_expect_panics() {
    for (name, text) in sources() {
        for word in ["#[ignore", "#[should_panic"] {
            assert!(name == "tests/tidy.rs" || !text.contains(word), "{name} has `{word}`");
        }
    }
}

#[test]
fn every_invariant_is_asserted_or_names_its_tests() {
    let document = read("docs/invariants.md");
    let sources = sources();
    let tests: BTreeSet<&str> = sources.iter().flat_map(|(_, text)| tests(text)).collect();
    let mut documented = BTreeSet::new();
    for line in document.lines().filter_map(|line| line.strip_prefix("- **")) {
        let (id, rest) = line.split_once("** ").unwrap();
        assert!(documented.insert(id), "{id} is there twice");
        let others = || sources.iter().filter(|(name, _)| name != "tests/tidy.rs");
        if rest.ends_with(" Asserted.") {
            assert!(others().any(|(_, text)| asserts(text, id)), "no assertion begins with {id}");
        } else if let Some((_, named)) = rest.split_once(" Tests: ") {
            for name in quoted(named) {
                assert!(
                    tests.contains(name),
                    "docs/invariants.md has {id} tested by no test `{name}`"
                );
            }
            assert!(quoted(named).count() > 0, "{id} names no test");
        } else {
            assert!(
                rest.contains(" Untested: "),
                "{id} says neither how it is checked nor why not"
            );
        }
        let is_written = others().any(|(_, text)| ids(text).any(|written| written == id));
        assert!(is_written, "{id} isn't written where it holds");
    }
    for (name, text) in sources.iter().filter(|(name, _)| name != "tests/tidy.rs") {
        let unknown = ids(text).find(|id| !documented.contains(id));
        assert!(unknown.is_none(), "{name} names {unknown:?}, which docs/invariants.md doesn't");
    }
}

#[test]
fn every_crate_is_in_the_architecture() {
    let manifest: Table = read("Cargo.toml").parse().unwrap();
    let document = read("ARCHITECTURE.md");
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let folder = if member.as_str() == Some(".") { "src" } else { member.as_str().unwrap() };
        assert!(document.contains(&format!("### `{folder}/`")), "no section on {folder}");
    }
}

/// The cells of each row of SPECIFICATION.md.
fn promises(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| what |"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
}

/// Whether running a file can show that a promise is kept.
fn holds_promises(name: &str, text: &str) -> bool {
    let is_run = name.split('/').any(|part| part == "benches" || part == "examples");
    let has_tests = tests(text).next().is_some() || text.contains("const TESTS:");
    is_run || has_tests || text.contains("    def test_")
}

#[test]
fn promises_name_what_holds_them() {
    let specification = read("SPECIFICATION.md");
    assert!(specification.len() <= MOST_SPECIFICATION_BYTES, "{} bytes", specification.len());
    let (held, _) = specification.split_once("\n## Defaults\n").unwrap();
    assert!(promises(held).count() > 10);
    let mut holders = BTreeSet::new();
    for row in promises(held) {
        let words = row[..row.len() - 1].iter().flat_map(|cell| cell.split_whitespace()).count();
        assert!(words <= MOST_ROW_WORDS, "{words} words: {row:?}");
        let held_by = row[row.len() - 1];
        assert!(held_by == "[pending]" || held_by.starts_with('`'), "nothing holds: {row:?}");
        for name in quoted(held_by) {
            let text = fs::read_to_string(root().join(name));
            let text = text.unwrap_or_else(|error| panic!("`{name}`: {error}: {row:?}"));
            assert!(holds_promises(name, &text), "`{name}` has no test: {row:?}");
            holders.insert(name);
        }
    }
    for (name, _) in sources() {
        if Path::new(&name).parent().is_some_and(|folder| folder.ends_with("benches")) {
            assert!(holders.contains(name.as_str()), "SPECIFICATION.md has no row for {name}");
        }
    }
}

/// A default, as the code and SPECIFICATION.md both write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Absent,
    Flag(bool),
    Count(u64),
    Time(Duration),
}

impl Value {
    /// Reads a cell such as `30 s`, `1 GiB`, `10,000`, `none` or `on`.
    fn written(cell: &str) -> Option<Self> {
        let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
        let number = number.replace(',', "").parse();
        Some(match (number, unit) {
            (Err(_), "") if cell == "none" => Self::Absent,
            (Err(_), "") if cell == "on" || cell == "off" => Self::Flag(cell == "on"),
            (Ok(count), "" | "%") => Self::Count(count),
            (Ok(count), "KiB") => Self::Count(count << 10),
            (Ok(count), "MiB") => Self::Count(count << 20),
            (Ok(count), "GiB") => Self::Count(count << 30),
            (Ok(count), "ms") => Self::Time(Duration::from_millis(count)),
            (Ok(count), "s") => Self::Time(Duration::from_secs(count)),
            (Ok(count), "min") => Self::Time(Duration::from_secs(60 * count)),
            _ => return None,
        })
    }
}

/// The constants of a file, and the fields of its implementations of `Default`.
#[derive(Default)]
struct Declared {
    is_default: bool,
    values: BTreeMap<String, Value>,
}

impl Declared {
    fn of(name: &str) -> Self {
        let mut declared = Self::default();
        declared.visit_file(&syn::parse_file(&read(name)).unwrap());
        declared
    }

    /// Keeps the first value of a name; values may use those before them.
    fn declare(&mut self, name: &Ident, expression: &Expr) {
        if let Some(value) = self.evaluate(expression) {
            self.values.entry(name.to_string()).or_insert(value);
        }
    }

    fn count(&self, expression: &Expr) -> Option<u64> {
        let Value::Count(count) = self.evaluate(expression)? else { return None };
        Some(count)
    }

    fn evaluate(&self, expression: &Expr) -> Option<Value> {
        Some(match expression {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(number) => Value::Count(number.base10_parse().ok()?),
                Lit::Bool(flag) => Value::Flag(flag.value),
                _ => return None,
            },
            Expr::Path(path) if path.path.is_ident("None") => Value::Absent,
            Expr::Path(path) => *self.values.get(&path.path.get_ident()?.to_string())?,
            Expr::Binary(binary) => {
                let (left, right) = (self.count(&binary.left)?, self.count(&binary.right)?);
                match binary.op {
                    BinOp::Shl(_) => Value::Count(left << right),
                    BinOp::Div(_) => Value::Count(left / right),
                    _ => return None,
                }
            }
            Expr::Call(call) => {
                let Expr::Path(function) = &*call.func else { return None };
                let count = self.count(call.args.first()?)?;
                match function.path.segments.last()?.ident.to_string().as_str() {
                    "from_secs" => Value::Time(Duration::from_secs(count)),
                    "from_millis" => Value::Time(Duration::from_millis(count)),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }
}

impl<'ast> Visit<'ast> for Declared {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.declare(&item.ident, &item.expr);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        self.is_default = of.is_some_and(|name| name.ident == "Default");
        visit::visit_item_impl(self, item);
        self.is_default = false;
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if let (true, Member::Named(name)) = (self.is_default, &field.member) {
            self.declare(name, &field.expr);
        }
    }
}

#[test]
fn defaults_are_those_of_the_code() {
    let specification = read("SPECIFICATION.md");
    let (_, defaults) = specification.split_once("\n## Defaults\n").unwrap();
    assert!(promises(defaults).count() > 40);
    let mut declared = Declared::default();
    for row in promises(defaults) {
        let [_, value, place] = row[..] else { panic!("not three cells: {row:?}") };
        let (file, name) = place.trim_matches('`').split_once("::").unwrap();
        if !file.is_empty() {
            declared = Declared::of(file);
        }
        let written = Value::written(value);
        assert!(written.is_some(), "not a value: {row:?}");
        assert_eq!(written.as_ref(), declared.values.get(name), "{row:?}");
    }
}

/// The metrics of the scheduler, in the order of the document. What the pool says comes after.
#[test]
fn every_metric_is_documented_and_set() {
    let document = read("docs/metrics.md");
    let (document, _) = document.split_once("\n## ").unwrap_or((&document, ""));
    let documented: Vec<&str> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("hatchery_"))
        .collect();
    let source = read("scheduler/src/metrics.rs");
    let described = source.split("pub fn describe() {").nth(1).unwrap();
    let described: Vec<&str> =
        described.split('"').filter(|text| text.starts_with("hatchery_")).collect();
    assert_eq!(documented, described);
    for name in described {
        assert!(source.matches(&format!("\"{name}\"")).count() >= 2, "nothing sets {name}");
    }
}

/// The recipes are a shorthand: each command is one that the documents give.
#[test]
fn recipes_are_commands_of_the_documents() {
    let documents = read("README.md") + &read("CONTRIBUTING.md");
    let recipes = read("justfile");
    let commands = recipes
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| !line.starts_with('@'));
    assert!(commands.clone().count() > 5);
    for command in commands {
        let is_there = documents.lines().any(|line| line == command);
        assert!(is_there, "neither README.md nor CONTRIBUTING.md has `{command}`");
    }
}

/// A field or a variant more must not break a program. So what programs can build or match in full
/// is `#[non_exhaustive]`, or stays as it is for a reason.
#[test]
fn exported_types_can_grow() {
    let mut exported = BTreeSet::new();
    exports(&parsed("src/lib.rs"), &mut exported);
    let sources = sources();
    let items: BTreeMap<&str, BTreeMap<String, bool>> =
        CRATES.into_iter().map(|folder| (folder, public_items(folder, &sources))).collect();
    let is_exhaustive = |(folder, name): &(&'static str, String)| {
        let item = items[folder].get(name);
        *item.unwrap_or_else(|| panic!("{folder} has no public `{name}`"))
    };
    let found: BTreeSet<&str> =
        exported.iter().filter(|item| is_exhaustive(item)).map(|(_, name)| name.as_str()).collect();
    let argued: BTreeSet<&str> = EXHAUSTIVE.into_iter().map(|(name, _)| name).collect();
    let grown: Vec<_> = found.difference(&argued).collect();
    assert!(grown.is_empty(), "neither `#[non_exhaustive]` nor in EXHAUSTIVE: {grown:?}");
    let stale: Vec<_> = argued.difference(&found).collect();
    assert!(stale.is_empty(), "no longer what EXHAUSTIVE says: {stale:?}");
}

/// The folders of the crates in which the name of a type says what it is, without its module.
const TELLING_CRATES: [&str; 17] = [
    "apps/batch/src",
    "apps/grade/src",
    "apps/jupyter/src",
    "apps/notebook/src",
    "cli/src",
    "src",
    "engine/src",
    "isolation/channel/src",
    "isolation/confine/src",
    "isolation/egress/src",
    "isolation/process/src",
    "pool/src",
    "replace/src",
    "scheduler/src",
    "serving/cluster/src",
    "serving/serve/src",
    "serving/wire/src",
];

/// Names that say nothing without a prefix.
const GENERIC_NAMES: [&str; 8] =
    ["State", "Kept", "Place", "End", "Entry", "Shared", "Known", "Inner"];

/// The names of the types that a file declares outside of its tests.
#[derive(Default)]
struct TypeNames(Vec<String>);

impl<'ast> Visit<'ast> for TypeNames {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(item) => self.0.push(item.ident.to_string()),
            Item::Enum(item) => self.0.push(item.ident.to_string()),
            Item::Trait(item) => self.0.push(item.ident.to_string()),
            Item::Mod(inner) if inner.ident == "tests" => {}
            _ => visit::visit_item(self, item),
        }
    }
}

#[test]
fn names_of_types_are_telling_and_unique_in_a_crate() {
    let sources = sources();
    for folder in TELLING_CRATES {
        let is_here =
            |name: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let mut found = BTreeMap::new();
        for (name, text) in sources.iter().filter(|(name, _)| is_here(name) && !is_test(name)) {
            // It stands in for another file on systems that lack something.
            if name.ends_with("_disabled.rs") {
                continue;
            }
            let mut types = TypeNames::default();
            types.visit_file(&syn::parse_file(text).unwrap());
            for found_here in types.0 {
                let is_generic = GENERIC_NAMES.contains(&found_here.as_str());
                assert!(!is_generic, "{name}: `{found_here}` says nothing without its module");
                let other = found.insert(found_here.clone(), name);
                assert!(other.is_none(), "`{found_here}` is in {name} and in {other:?}");
            }
        }
    }
}

fn parsed(name: &str) -> Vec<Item> {
    syn::parse_file(&read(name)).unwrap().items
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Finds what a public module of the facade exports: the folder of its crate, and its name there.
fn exports(items: &[Item], found: &mut BTreeSet<(&'static str, String)>) {
    for item in items {
        match item {
            Item::Use(item) if is_public(&item.vis) => exports_of_tree(&item.tree, None, found),
            Item::Mod(inner) if is_public(&inner.vis) => match &inner.content {
                Some((_, items)) => exports(items, found),
                None => exports(&parsed(&format!("src/{}.rs", inner.ident)), found),
            },
            Item::Struct(item) if is_public(&item.vis) => {
                found.insert(("src", item.ident.to_string()));
            }
            Item::Enum(item) if is_public(&item.vis) => {
                found.insert(("src", item.ident.to_string()));
            }
            _ => {}
        }
    }
}

fn exports_of_tree(
    tree: &UseTree,
    folder: Option<&'static str>,
    found: &mut BTreeSet<(&'static str, String)>,
) {
    let mut keep = |name: String| found.insert((folder.unwrap_or("src"), name));
    match tree {
        UseTree::Path(path) => {
            let name = path.ident.to_string();
            let suffix = format!("/{name}/src");
            let is_of = |folder: &&str| format!("/{folder}").ends_with(&suffix);
            let of_crate = CRATES.into_iter().find(is_of);
            exports_of_tree(&path.tree, folder.or(of_crate), found);
        }
        UseTree::Name(name) => drop(keep(name.ident.to_string())),
        UseTree::Rename(rename) => drop(keep(rename.ident.to_string())),
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| exports_of_tree(tree, folder, found));
        }
        UseTree::Glob(_) => panic!("a glob hides what the facade exports"),
    }
}

/// The public items of a crate, each with whether programs can build or match it in full.
fn public_items(folder: &str, sources: &[(String, String)]) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for (name, text) in sources {
        if name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')) {
            keep_public_items(&syn::parse_file(text).unwrap().items, &mut found);
        }
    }
    found
}

fn keep_public_items(items: &[Item], found: &mut BTreeMap<String, bool>) {
    let can_grow = |attributes: &[Attribute]| {
        attributes.iter().any(|attribute| attribute.path().is_ident("non_exhaustive"))
    };
    for item in items {
        let (visibility, name, is_exhaustive) = match item {
            Item::Struct(item) => {
                let is_open = item.fields.iter().any(|field| is_public(&field.vis));
                (&item.vis, &item.ident, is_open && !can_grow(&item.attrs))
            }
            Item::Enum(item) => (&item.vis, &item.ident, !can_grow(&item.attrs)),
            Item::Trait(item) => (&item.vis, &item.ident, false),
            Item::Fn(item) => (&item.vis, &item.sig.ident, false),
            Item::Const(item) => (&item.vis, &item.ident, false),
            Item::Type(item) => (&item.vis, &item.ident, false),
            Item::Mod(inner) => {
                if let Some((_, items)) = &inner.content {
                    keep_public_items(items, found);
                }
                continue;
            }
            _ => continue,
        };
        if is_public(visibility) {
            *found.entry(name.to_string()).or_default() |= is_exhaustive;
        }
    }
}

/// ARCHITECTURE.md lists the files with `unsafe` code, as paths or the ends of paths.
#[test]
fn unsafe_code_is_where_the_architecture_says() {
    let text = read("ARCHITECTURE.md");
    let table = text.split("`unsafe` code is only in these files:").nth(1).unwrap();
    let table = table.split("\n### ").next().unwrap();
    let listed: Vec<&str> = table.lines().filter_map(|line| line.split('|').nth(1)).collect();
    let listed: Vec<&str> =
        listed.iter().flat_map(|cell| cell.split('`')).filter(|part| part.contains('/')).collect();
    let marked = "unsafe_code,";
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|(name, text)| !is_test(name) && text.contains(marked))
        .map(|(name, _)| name)
        .collect();
    let is_of = |name: &str, part: &str| {
        if part.ends_with('/') { name.contains(part) } else { name.ends_with(part) }
    };
    for name in &found {
        assert!(listed.iter().any(|part| is_of(name, part)), "{name} isn't listed");
    }
    for part in listed {
        assert!(found.iter().any(|name| is_of(name, part)), "`{part}` has no unsafe code");
    }
}
