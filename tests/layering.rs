//! Dependencies point one way, all of them are used, and what is pinned twice is pinned alike.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use toml::Table;

/// What each crate of the workspace may name, of the workspace and of the crates whose use is confined.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("isolation/channel", &[]),
    ("isolation/confine", &["landlock", "seccompiler"]),
    ("isolation/egress", &["engine", "tokio"]),
    ("replace", &[]),
    ("serving/wire", &[]),
    ("engine", &["replace", "wasmer", "wasmer-compiler", "wasmer-types", "wasmer-wasix"]),
    ("pool", &["channel", "crossbeam-channel", "dashmap", "engine", "ractor", "tokio"]),
    ("isolation/process", &["channel", "confine", "engine", "pool"]),
    ("scheduler", &["engine", "pool", "ractor", "tokio"]),
    (".", &["engine", "pool", "process", "replace", "scheduler", "tokio", "wire"]),
    ("apps/batch", &["hatchery", "replace", "tokio"]),
    ("apps/grade", &["hatchery", "tokio"]),
    ("serving/serve", &["hatchery", "notebook", "tokio", "wire"]),
    ("apps/notebook", &["hatchery", "replace", "tokio"]),
    ("apps/jupyter", &["hatchery", "notebook", "tokio", "zeromq"]),
    ("serving/cluster", &["async-nats", "hatchery", "tokio", "wire"]),
    (
        "cli",
        &[
            "anyhow",
            "batch",
            "clap",
            "cluster",
            "confine",
            "grade",
            "hatchery",
            "indicatif",
            "jupyter",
            "notebook",
            "replace",
            "serve",
            "tokio",
        ],
    ),
];

/// Crates that only some of the workspace's may name.
const CONFINED: [&str; 31] = [
    "anyhow",
    "async-nats",
    "batch",
    "channel",
    "clap",
    "cluster",
    "confine",
    "crossbeam-channel",
    "dashmap",
    "engine",
    "grade",
    "hatchery",
    "indicatif",
    "jupyter",
    "landlock",
    "notebook",
    "pool",
    "process",
    "ractor",
    "replace",
    "scheduler",
    "seccompiler",
    "serve",
    "test-support",
    "tokio",
    "wasmer",
    "wasmer-compiler",
    "wasmer-types",
    "wasmer-wasix",
    "wire",
    "zeromq",
];

/// A crate's manifest, in which the dependencies include those for one system alone.
fn manifest(folder: &str) -> Table {
    let path = format!("{}/{folder}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
    let mut manifest: Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let targets = manifest.get("target").and_then(|it| it.as_table()).cloned().unwrap_or_default();
    let dependencies = manifest["dependencies"].as_table_mut().unwrap();
    for target in targets.values() {
        dependencies.extend(target["dependencies"].as_table().unwrap().clone());
    }
    manifest
}

#[test]
fn dependencies_point_down_only() {
    for (folder, allowed) in ALLOWED {
        let manifest = manifest(folder);
        let dependencies = manifest["dependencies"].as_table().unwrap();
        let named: Vec<&str> = dependencies
            .keys()
            .map(String::as_str)
            .filter(|name| CONFINED.contains(name))
            .collect();
        let surplus: Vec<&str> =
            named.iter().copied().filter(|name| !allowed.contains(name)).collect();
        assert!(surplus.is_empty(), "`{folder}` may not name {surplus:?}");
        let unused: Vec<&&str> = allowed.iter().filter(|name| !named.contains(name)).collect();
        assert!(unused.is_empty(), "`{folder}` no longer names {unused:?}; take them off the list");
    }
}

/// The text of all Rust files below this folder, nothing if it isn't there.
fn code(folder: &Path) -> String {
    let mut code = String::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            code += &self::code(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code += &fs::read_to_string(&path).unwrap();
        }
    }
    code
}

/// Whether code has this name as a word of its own.
fn names(code: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    code.split(|character| !is_part(character)).any(|word| word == name)
}

/// Those that are there for their features alone are ignored where cargo-machete ignores them.
#[test]
fn every_dependency_is_used() {
    for (folder, _) in ALLOWED {
        let manifest = manifest(folder);
        let package = &manifest["package"];
        let ignored: Vec<&str> = package
            .get("metadata")
            .and_then(|metadata| metadata.get("cargo-machete")?.get("ignored")?.as_array())
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str())
            .collect();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let source = code(&root.join("src"));
        let others = ["tests", "benches", "examples"].map(|name| code(&root.join(name))).concat();
        for (section, code) in
            [("dependencies", &source), ("dev-dependencies", &format!("{source}{others}"))]
        {
            for name in manifest.get(section).and_then(|it| it.as_table()).into_iter().flatten() {
                let name = name.0.as_str();
                let is_used = names(code, &name.replace('-', "_"));
                assert!(
                    is_used != ignored.contains(&name),
                    "`{name}` in {section} of `{folder}` is unused, or ignored and used"
                );
            }
        }
    }
}

/// The key of the module cache names wasmer's version, which the source can't ask wasmer for.
#[test]
fn the_pinned_wasmer_is_the_one_in_the_cache_key() {
    let manifest = manifest(".");
    let dependencies = &manifest["workspace"]["dependencies"];
    let pinned: BTreeMap<&str, &str> = ["wasmer", "wasmer-compiler", "wasmer-types"]
        .into_iter()
        .map(|name| (name, dependencies[name]["version"].as_str().unwrap()))
        .collect();
    let source = include_str!("../engine/src/python/module/key.rs");
    let in_key = source.split("WASMER_VERSION: &str = \"").nth(1).unwrap();
    let in_key = in_key.split('"').next().unwrap();
    for (name, version) in pinned {
        assert_eq!(version, format!("={in_key}"), "{name}");
    }
}
