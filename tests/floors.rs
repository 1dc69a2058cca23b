//! Within each crate, files depend on one another in one direction.
//!
//! Reads the `use` declarations and the paths of every production file (unit tests are free), and
//! finds the file that each of them leads to. The engine's wings stand on floors, and a file may use
//! its own wing and lower floors only. Elsewhere no circle of files is larger than two: a module and
//! one of its parts may know each other.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// The engine's wings and single files, the top floor first.
const FLOORS: [&[&str]; 9] = [
    &["lib"],
    &["interpreter"],
    &["host"],
    &["guest"],
    &["python"],
    &["run", "cache"],
    &["files", "interrupt", "config", "error"],
    &["memory", "limits", "errno", "cause", "installed"],
    &["counted", "owner", "places"],
];

/// Which files of a crate use which, by their module paths.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn wings_of_the_engine_use_only_what_is_below_them() {
    let floor = |module: &str| {
        let wing = module.split("::").next().unwrap();
        let floor = FLOORS.iter().position(|wings| wings.contains(&wing));
        (
            wing.to_owned(),
            floor.unwrap_or_else(|| panic!("`{wing}` has no floor: add it to FLOORS")),
        )
    };
    let mut upward = Vec::new();
    for (module, used) in uses("engine/src") {
        let (wing, from) = floor(&module);
        for target in used {
            let (other, to) = floor(&target);
            if other != wing && to <= from {
                upward.push(format!("{module} uses {target}"));
            }
        }
    }
    assert!(upward.is_empty(), "these run up or sideways: {upward:#?}");
}

#[test]
fn files_form_no_circles() {
    let folders = [
        "isolation/channel/src",
        "isolation/confine/src",
        "isolation/egress/src",
        "replace/src",
        "serving/wire/src",
        "engine/src",
        "pool/src",
        "isolation/process/src",
        "scheduler/src",
        "src",
        "apps/batch/src",
        "serving/cluster/src",
        "serving/serve/src",
        "apps/notebook/src",
        "apps/jupyter/src",
        "apps/grade/src",
        "cli/src",
    ];
    for folder in folders {
        let uses = uses(folder);
        let arrows: usize = uses.values().map(BTreeSet::len).sum();
        let circles = circles(&uses);
        let sizes: Vec<usize> = circles.iter().map(BTreeSet::len).collect();
        println!("{folder}: {} files, {arrows} arrows, circles of {sizes:?}", uses.len());
        let large: Vec<_> = circles.iter().filter(|circle| circle.len() > 2).collect();
        assert!(large.is_empty(), "circles in {folder}: {large:#?}");
    }
}

/// Reads a crate's files. Files that stand in for others on other systems are left out.
fn uses(folder: &str) -> Uses {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut sources = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.to_string_lossy().ends_with("_disabled.rs")
            {
                let text = fs::read_to_string(&path).unwrap();
                sources.insert(module_of(&root, &path), syn::parse_file(&text).unwrap());
            }
        }
    }
    let tests = test_modules(&sources);
    sources.retain(|module, _| !tests.iter().any(|test| is_within(module, test)));
    let modules: BTreeSet<String> = sources.keys().cloned().collect();
    let of_file = |(module, file): (String, syn::File)| {
        let mut paths = Paths { module: segments(&module), found: Vec::new() };
        paths.visit_file(&file);
        let targets = paths.found.iter().filter_map(|path| file_of(path, &modules));
        let used = targets.filter(|target| *target != module).collect();
        (module, used)
    };
    sources.into_iter().map(of_file).collect()
}

/// The module path of a file; the crate's root is `lib`.
fn module_of(root: &Path, path: &Path) -> String {
    let relative: PathBuf = path.strip_prefix(root).unwrap().with_extension("");
    let parts: Vec<String> =
        relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match parts.join("::").as_str() {
        "main" => "lib".to_owned(),
        module => module.to_owned(),
    }
}

fn segments(module: &str) -> Vec<String> {
    if module == "lib" { Vec::new() } else { module.split("::").map(str::to_owned).collect() }
}

fn is_within(module: &str, other: &str) -> bool {
    module.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Modules in files of their own that exist for tests only.
fn test_modules(sources: &BTreeMap<String, syn::File>) -> Vec<String> {
    let mut modules = Vec::new();
    for (module, file) in sources {
        for item in &file.items {
            if let Item::Mod(inner) = item
                && inner.content.is_none()
                && is_for_tests(&inner.attrs)
            {
                let parts = [segments(module), vec![inner.ident.to_string()]].concat();
                modules.push(parts.join("::"));
            }
        }
    }
    modules
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string().contains("test"))
    })
}

/// Collects the paths within the crate that a file names, as segments from the root.
struct Paths {
    module: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Paths {
    fn keep(&mut self, path: &[String]) {
        let Some(first) = path.first() else { return };
        let ups = path.iter().take_while(|part| *part == "super").count();
        self.found.push(match first.as_str() {
            "crate" => path[1..].to_vec(),
            "self" => [&self.module[..], &path[1..]].concat(),
            "super" if ups <= self.module.len() => {
                [&self.module[..self.module.len() - ups], &path[ups..]].concat()
            }
            // Relative to this module, or another crate, which leads to no file of this one.
            _ => [&self.module[..], path].concat(),
        });
    }

    fn keep_tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()][..]].concat();
        match tree {
            UseTree::Path(path) => self.keep_tree(&path.tree, &with(&path.ident)),
            UseTree::Name(name) => self.keep(&with(&name.ident)),
            UseTree::Rename(rename) => self.keep(&with(&rename.ident)),
            UseTree::Glob(_) => self.keep(before),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.keep_tree(tree, before));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(inner) if is_for_tests(&inner.attrs) => {}
            Item::Mod(inner) => {
                self.module.push(inner.ident.to_string());
                visit::visit_item_mod(self, inner);
                self.module.pop();
            }
            Item::Fn(function) if is_for_tests(&function.attrs) => {}
            Item::Impl(block) if is_for_tests(&block.attrs) => {}
            Item::Use(item) if is_for_tests(&item.attrs) => {}
            Item::Use(item) => self.keep_tree(&item.tree, &[]),
            item => visit::visit_item(self, item),
        }
    }

    /// `pub(super)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if parts.first().is_some_and(|first| ["crate", "super"].contains(&first.as_str())) {
            self.keep(&parts);
        }
        visit::visit_path(self, path);
    }
}

/// The file that a path leads to: the longest beginning of it that is a file's module.
fn file_of(path: &[String], modules: &BTreeSet<String>) -> Option<String> {
    let begins = (1..=path.len()).rev().map(|length| path[..length].join("::"));
    begins.into_iter().find(|module| modules.contains(module))
}

/// The strongly connected components of more than one file, by their mutual reachability.
fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|module| (module.as_str(), reachable(uses, module))).collect();
    let circles: BTreeSet<BTreeSet<String>> = uses
        .keys()
        .map(|module| {
            let returns = |other: &&&str| reachable[**other].contains(module.as_str());
            reachable[module.as_str()]
                .iter()
                .filter(returns)
                .map(|&other| other.to_owned())
                .collect()
        })
        .collect();
    circles.into_iter().filter(|circle| circle.len() > 1).collect()
}

fn reachable<'a>(uses: &'a Uses, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = uses[from].iter().map(String::as_str).collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(uses[module].iter().map(String::as_str));
        }
    }
    reached
}
