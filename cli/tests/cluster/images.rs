//! The image of a pool: published by one worker, fetched by others, and the same for all.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::commands::{Files, Running, output};
use crate::server::Server;

/// Makes a wheel with a module whose value is the first argument, in the folder that is the second.
const MAKE: &str = r#"
import sys, zipfile
value, folder = sys.argv[1:]
with zipfile.ZipFile(f"{folder}/shared-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("shared.py", f"value = {value!r}\n")
    info = "shared-1.0.dist-info"
    wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: shared\nVersion: 1.0\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
"#;

fn wheel(value: &str, folder: &Path) -> String {
    let folder = folder.to_str().unwrap();
    let made = Command::new("python3").args(["-c", MAKE, value, folder]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    format!("{folder}/shared-1.0-py3-none-any.whl")
}

#[test]
fn a_worker_without_options_begins_from_the_image_of_its_pool() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let package = wheel("first", folder.path());
    let setup = folder.path().join("setup.py");
    std::fs::write(&setup, "import shared\ndoubled = shared.value * 2\n").unwrap();
    let setup = setup.to_str().unwrap().to_owned();
    let options = ["--package", &package, "--setup", &setup, "--publish-image"];
    let mut first = Running::ready_worker(&server, "first", &options);
    let said = first.says("published the image");
    first.says("building an image");
    first.kill();
    // The second one has nothing of it on its disk but what the server sends.
    std::fs::remove_file(&package).unwrap();
    std::fs::remove_file(&setup).unwrap();
    let key = said.split_whitespace().nth(4).unwrap();
    let removed = output(&["image", "remove", key]);
    assert!(removed.status.success(), "{removed:?}");
    let mut second = Running::ready_worker(&server, "second", &[]);
    second.says("starting from the pool's image");
    second.has_not_said("building an image");
    let files = Files::new(&[json!({ "id": 1, "code": "shared.value, doubled" }).to_string()]);
    let (status, said) = Running::submit(&server, &files.jobs(), &files.out("out"), &[]).end();
    assert!(status.success(), "{said}");
    assert_eq!(files.results("out")[0]["value"], json!(["first", "firstfirst"]));
}

#[test]
fn a_worker_with_another_image_takes_nothing() {
    let Some(server) = Server::start() else { return };
    let options = ["--preload", "json", "--publish-image"];
    let _first = Running::ready_worker(&server, "first", &options);
    let (status, said) = Running::worker(&server, "other", &["--preload", "csv"]).end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("the image of the pool `default` is"), "{said}");
    // The same image, made here.
    let _same = Running::ready_worker(&server, "same", &["--preload", "json"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("module.py"), "").unwrap();
    let options = ["--package", folder.path().to_str().unwrap(), "--publish-image"];
    let (status, said) = Running::worker(&server, "folder", &options).end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("it isn't a wheel"), "{said}");
    let options = ["--requirements", "requirements.txt", "--publish-image"];
    let (status, said) = Running::worker(&server, "requirements", &options).end();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("cannot be used with '--publish-image'"), "{said}");
}
