//! Images: building, finding, listing and removing them, and what prevents it.
//!
//! They are built in the cache that all tests share, since a fresh one would compile Python again.
//! Each test has its own setup, and so an image that no other test touches.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::{hatchery, json_of, run, said_by_program, text};

/// Writes a setup that no other test run uses.
fn setup(source: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prepare.py");
    std::fs::write(&path, format!("# {}\n{source}", folder.path().display())).unwrap();
    (folder, path)
}

fn build(setup: &Path) -> Value {
    let arguments = ["image", "build", "--preload", "json, string", "--json", "--setup"];
    let output = hatchery().args(arguments).arg(setup).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    json_of(&output)
}

/// Removes the image that these arguments built, so that tests don't fill the cache.
pub(crate) fn remove(arguments: &[&str]) {
    let built = hatchery().args(["image", "build", "--json"]).args(arguments).output().unwrap();
    let removed = run(&["image", "remove", json_of(&built)["key"].as_str().unwrap()]);
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
}

fn listed_keys() -> Vec<String> {
    let images = json_of(&run(&["image", "list", "--json"]));
    let keys = images.as_array().unwrap().iter().map(|image| image["key"].as_str().unwrap());
    keys.map(str::to_owned).collect()
}

#[test]
fn an_image_is_made_once_and_found_until_it_is_removed() {
    let (_folder, setup) = setup("given = 42");
    let made = build(&setup);
    let key = made["key"].as_str().unwrap();
    assert_eq!(made["found"], false);
    assert_eq!(made["preload"], serde_json::json!(["json", "string"]));
    assert!(made["setup"].as_str().unwrap().ends_with("prepare.py"), "{made}");
    assert!(made["file_bytes"].as_u64().unwrap() > 0, "{made}");
    assert!(Path::new(made["path"].as_str().unwrap()).exists(), "{made}");

    let again = build(&setup);
    assert_eq!((&again["key"], &again["found"]), (&made["key"], &Value::from(true)));
    assert!(listed_keys().iter().any(|listed| listed == key));
    let table = text(&run(&["image", "list"]).stdout);
    assert!(table.starts_with("KEY ") && table.contains(&key[..12]), "{table}");
    assert!(table.contains("json,string"), "{table}");

    let info = run(&["image", "info", &key[..16]]);
    assert_eq!(info.status.code(), Some(0), "{info:?}");
    assert!(text(&info.stdout).contains(key), "{info:?}");
    assert_eq!(json_of(&run(&["image", "info", key, "--json"]))["key"], *key);

    let removed = run(&["image", "remove", &key[..16], key]);
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    assert_eq!(text(&removed.stdout), format!("removed {}\n", &key[..12]));
    assert!(!listed_keys().iter().any(|listed| listed == key));
    for command in ["info", "remove"] {
        let gone = run(&["image", command, key]);
        assert_eq!(gone.status.code(), Some(2), "{gone:?}");
        assert!(text(&gone.stderr).contains("hatchery image list"), "{gone:?}");
    }
}

#[test]
fn programs_find_what_their_image_has() {
    let (_folder, setup) = setup("import math\ngiven = math.floor(42.5)");
    let setup = setup.to_str().unwrap();
    let source = "import sys; print(given, 'string' in sys.modules)";
    for _ in 0..2 {
        let output = run(&["run", "-c", source, "--setup", setup, "--preload", "string"]);
        assert_eq!(text(&output.stdout), "42 True\n", "{output:?}");
        assert_eq!(said_by_program(&output), "", "{output:?}");
    }
    let job = "{\"code\": \"given = given + 1; given\"}\n".repeat(3);
    let arguments = ["batch", "-", "--workers", "1", "--setup", setup];
    let output = crate::run_with_stdin(&arguments, &job);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout).matches("\"value\":43").count(), 3, "{output:?}");
    remove(&["--setup", setup, "--preload", "string"]);
    remove(&["--setup", setup]);
}

#[test]
fn a_batch_hides_in_its_image_what_its_lines_import_often() {
    let (folder, setup) = setup("import math");
    let (setup, jobs) = (setup.to_str().unwrap(), folder.path().join("jobs"));
    // So often that it pays on any machine.
    let line =
        r#"{"code": "import sys\nif len(sys.argv) > 9: import sympy\n'sympy' in sys.modules"}"#;
    std::fs::write(&jobs, format!("{line}\n").repeat(3_000)).unwrap();
    for (preload, hidden) in [(&["--preload", "none"][..], None), (&[], Some("sympy"))] {
        let out = folder.path().join("out");
        let mut batch = hatchery();
        batch.arg("batch").arg(&jobs).arg("--out").arg(&out).args(["--setup", setup]).args(preload);
        let output = batch.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let results = std::fs::read_to_string(&out).unwrap();
        assert_eq!(results.matches("\"value\":false").count(), 3_000);
        let images = json_of(&run(&["image", "list", "--json"]));
        let mut images = images.as_array().unwrap().iter();
        let image = images.find(|image| image["setup"] == setup && image["hidden"][0] == "sympy");
        assert_eq!(image.is_some(), hidden.is_some(), "{image:?}");
        if let Some(image) = image {
            run(&["image", "remove", image["key"].as_str().unwrap()]);
        }
    }
    remove(&["--setup", setup]);
}

#[test]
fn mistakes_about_images_say_what_to_do() {
    for (arguments, expected) in [
        (&["run", "-c", "1", "--preload", "os;print()"][..], "numpy,pandas"),
        (&["batch", "-", "--preload", "a-b"], "matplotlib.pyplot"),
        (&["run", "-c", "1", "--preload", "auto"], "name the modules"),
        (&["batch", "-", "--preload", "json,auto"], "alone, without modules"),
        (&["run", "-c", "1", "--preload", "none,json"], "alone, without modules"),
        (&["repl", "--preload", "numpy,"], "numpy,pandas"),
        (&["image", "build", "--setup", "missing.py"], "missing.py"),
        (&["run", "-c", "1", "--setup", "examples"], "examples"),
        (&["image", "info", "xyz"], "hatchery image list"),
        (&["image", "remove"], "KEY"),
        (&["image", "remove", "abcd", "--all"], "--all"),
        (&["image", "info", "00000000000000000000"], "hatchery image list"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {output:?}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
    }
}

#[test]
fn an_image_that_can_not_be_made_says_why() {
    let output = run(&["image", "build", "--preload", "no_such_module"]);
    assert!(!output.status.success(), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("no_such_module") && said.contains("ModuleNotFoundError"), "{said}");

    let (_folder, setup) = setup("def prepare():\n    return 1/0\nprepare()");
    let output = hatchery().args(["run", "-c", "print(1)", "--setup"]).arg(setup).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let said = text(&output.stderr);
    for expected in ["prepare.py\", line 3, in prepare", "return 1/0", "ZeroDivisionError"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(output.stdout, b"");
}

#[test]
fn an_empty_cache_has_no_images() {
    let cache = tempfile::tempdir().unwrap();
    let list = |arguments: &[&str]| {
        let mut command = hatchery();
        command.args(arguments).env("HATCHERY_CACHE_DIR", cache.path()).output().unwrap()
    };
    let output = list(&["image", "list"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()));
    assert!(text(&output.stderr).contains("hatchery image build"), "{output:?}");
    assert_eq!(text(&list(&["image", "list", "--json"]).stdout), "[]\n");
    assert_eq!(list(&["image", "remove", "--all"]).status.code(), Some(0));
}
