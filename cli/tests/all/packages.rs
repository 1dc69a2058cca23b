//! Packages beyond the build's, as a user adds and lists them. The machine's own Python makes the
//! wheels.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::images::remove;
use crate::{hatchery, json_of, run, said_by_program, text};

/// Makes wheels of one module `thing`: a pure one, and others that are refused. Then a requirements
/// file that finds the pure one beside it, and a folder with a lock file.
const MAKE: &str = r#"
import hashlib, json, sys, zipfile
folder, value = sys.argv[1:]
def make(name, metadata="", files={}):
    info = "thing-1.0.dist-info/"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("thing.py", f"value = {value!r}\n")
        wheel.writestr(info + "METADATA", f"Name: thing\nVersion: 1.0\n{metadata}\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        wheel.writestr(info + "RECORD", "")
        for path, contents in files.items():
            wheel.writestr(path, contents)
pure = "thing-1.0-py3-none-any.whl"
make("thing-1.0-cp315-cp315-linux_x86_64.whl")
for part in ("native", "old", "up", "locked"):
    __import__("os").mkdir(f"{folder}/{part}")
make("native/" + pure, files={"thing_speed.so": "x"})
make("old/" + pure, metadata="Requires-Python: <3.10")
make("up/" + pure, files={"../up.py": "x"})
make(pure)
digest = hashlib.sha256(open(f"{folder}/{pure}", "rb").read()).hexdigest()
with open(f"{folder}/requirements.txt", "w") as file:
    file.write(f"--no-index\n--find-links {folder}\nthing==1.0 \\\n    --hash=sha256:{digest}\n")
with open(f"{folder}/pinned.txt", "w") as file:
    file.write(f"--no-index\nthing==1.0 --hash=sha256:{digest}\n")
make("locked/" + pure)
digest = hashlib.sha256(open(f"{folder}/locked/{pure}", "rb").read()).hexdigest()
thing = {"name": "thing", "version": "1.0", "file_name": pure, "sha256": digest, "depends": []}
info = {"platform": "emscripten_5_0_3", "arch": "wasm32", "python": "3.14.2"}
with open(f"{folder}/locked/pyodide-lock.json", "w") as file:
    json.dump({"info": info, "packages": {"thing": thing}}, file)
"#;

/// Uses packages whose machine code is left out.
const STAND_INS: &str = r#"
import blake3, importlib.metadata, Levenshtein, msgpack, orjson, os, psutil, ujson
import boto3, hypothesis, selenium.webdriver
from cryptography.fernet import Fernet
from cryptography.hazmat.backends import default_backend
from fastapi import FastAPI
from fastapi.testclient import TestClient
app = FastAPI()
@app.get("/{x}")
def double(x: int): return {"x": 2 * x}
print(TestClient(app).get("/21").json() == {"x": 42})
box = Fernet(Fernet.generate_key())
print(box.decrypt(box.encrypt(b"x")) == b"x" and default_backend() is not None)
print(orjson.loads(orjson.dumps({"a": [1]}, option=orjson.OPT_SORT_KEYS)) == {"a": [1]})
print(ujson.dumps("/") == r'"\/"' and msgpack.unpackb(msgpack.packb([1])) == [1])
print(Levenshtein.distance("kitten", "sitting") == 3)
print(psutil.Process().pid == os.getpid() and psutil.virtual_memory().total == 4 << 30)
print(blake3.blake3(b"").hexdigest().startswith("af1349b9f5f9a1a6"))
print(importlib.metadata.version("orjson") == orjson.__version__)
"#;

const WHEEL: &str = "thing-1.0-py3-none-any.whl";

/// Creates a folder with wheels whose module has the folder's path as its value, so that no other
/// test run has them.
fn wheels() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let made = Command::new("python3").args(["-c", MAKE]).args([&path, &path]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    (folder, path)
}

/// Removes the packages with this text from the cache, so that tests don't fill it.
fn forget(text_of_module: &str) {
    let info = text(&run(&["python", "info"]).stdout);
    let cache = info.lines().find_map(|line| line.strip_prefix("cache ")).unwrap();
    for entry in std::fs::read_dir(Path::new(cache.trim()).join("packages")).unwrap().flatten() {
        let packed = std::fs::read(entry.path().join("packed")).unwrap_or_default();
        if String::from_utf8_lossy(&packed).contains(text_of_module) {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn programs_import_what_they_are_given_and_it_is_listed() {
    let (_wheels, folder) = wheels();
    let helpers = folder.join("helpers");
    std::fs::create_dir(&helpers).unwrap();
    std::fs::write(helpers.join("__init__.py"), "answer = 42\n").unwrap();
    let wheel = folder.join(WHEEL);
    let given = ["--package", name(&wheel), "--package", name(&helpers)];
    let with = |arguments: &[&str]| hatchery().args(arguments).args(given).output().unwrap();

    let source = "import helpers, importlib.metadata as m, thing\n\
                  print(helpers.answer, thing.value, m.version('thing'))";
    let output = with(&["run", "-c", source]);
    let expected = format!("42 {} 1.0\n", folder.display());
    assert_eq!(text(&output.stdout), expected, "{output:?}");
    assert_eq!(said_by_program(&output), "", "{output:?}");

    let listed = json_of(&with(&["packages", "--json"]));
    let of =
        |name: &str| listed.as_array().unwrap().iter().find(|one| one["name"] == name).cloned();
    assert_eq!(of("thing").unwrap()["version"], "1.0");
    assert_eq!(of("thing").unwrap()["origin"], "wheel");
    assert_eq!(of("thing").unwrap()["file"], WHEEL);
    assert_eq!(of("helpers").unwrap()["origin"], "folder");
    assert_eq!(of("numpy").unwrap()["origin"], "build");

    let image = json_of(&with(&["image", "build", "--json"]));
    assert_eq!((&image["found"], &image["packages"][0]["name"]), (&true.into(), &"thing".into()));
    let key = image["key"].as_str().unwrap();
    let table = text(&run(&["packages", "--image", &key[..16]]).stdout);
    let row = |name: &str| table.lines().find(|line| line.split(' ').next() == Some(name));
    assert!(row("thing").unwrap().contains(" 1.0 "), "{table}");
    assert!(row("thing").unwrap().ends_with(&format!("wheel {WHEEL}")), "{table}");
    assert!(row("pandas").unwrap().ends_with("the build"), "{table}");
    remove(&given);
}

#[test]
fn requirements_come_through_pip_by_name_and_hash() {
    let (_wheels, folder) = wheels();
    let path = folder.join("requirements.txt");
    let given = ["--requirements", name(&path)];
    let expected = format!("{}\n", folder.display());
    // Files in the working directory are not run.
    std::fs::create_dir(folder.join("pip")).unwrap();
    for file in ["__init__.py", "__main__.py"] {
        std::fs::write(folder.join("pip").join(file), "raise SystemExit('not pip')").unwrap();
    }
    // The second time without the wheel: it is in the cache, and so is the image.
    for _ in 0..2 {
        let arguments = ["run", "-c", "print(__import__('thing').value)"];
        let output = hatchery().current_dir(&folder).args(arguments).args(given).output().unwrap();
        assert_eq!(text(&output.stdout), expected, "{output:?}");
        let _ = std::fs::remove_file(folder.join(WHEEL));
    }
    remove(&given);
    forget(name(&folder));
    std::fs::write(&path, "thing==1.0\n").unwrap();
    let output = hatchery().args(["run", "-c", "1"]).args(given).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("line 1") && said.contains("pip-compile --generate-hashes"), "{said}");
}

#[test]
fn a_package_index_is_a_folder_of_wheels_or_has_a_lock_file() {
    let (_wheels, folder) = wheels();
    std::fs::write(folder.join("names.txt"), "thing\n").unwrap();
    let run = |requirements: &str, index: &str| {
        let arguments = ["run", "-c", "print(__import__('thing').value)"];
        let given = ["--requirements", requirements, "--package-index", index];
        // Both paths are from here, and pip starts elsewhere.
        hatchery().current_dir(&folder).args(arguments).args(given).output().unwrap()
    };
    for (requirements, index) in
        [("pinned.txt", "."), ("names.txt", "locked"), ("names.txt", "locked/pyodide-lock.json")]
    {
        let output = run(requirements, index);
        assert_eq!(text(&output.stdout), format!("{}\n", folder.display()), "{output:?}");
    }
    for (requirements, index, expected) in
        [("names.txt", ".", "by name"), ("names.txt", "nowhere", "nowhere")]
    {
        let output = run(requirements, index);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    }
    let [requirements, index] = [folder.join("names.txt"), folder.join("locked")];
    remove(&["--requirements", name(&requirements), "--package-index", name(&index)]);
    forget(name(&folder));
}

/// The packages themselves, which pip fetches the first time.
#[test]
fn the_common_packages_come_in_one_word_and_are_listed_in_one() {
    let source = "import docx, faker, flask, requests, requests_mock\n\
                  with requests_mock.Mocker() as mock:\n\
                  \x20   mock.get('http://a.test', text='mocked')\n\
                  \x20   print(requests.get('http://a.test').text)";
    let given = ["--packages", "common"];
    let output = hatchery().args(["run", "-c", source]).args(given).output().unwrap();
    assert_eq!(text(&output.stdout), "mocked\n", "{output:?}");
    assert_eq!(said_by_program(&output), "", "{output:?}");
    let output = hatchery()
        .args(["run", "--timeout", "300s", "-c", STAND_INS])
        .args(given)
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "True\n".repeat(8), "{output:?}");
    let listed = json_of(&hatchery().args(["packages", "--json"]).args(given).output().unwrap());
    let requests = listed.as_array().unwrap().iter().find(|one| one["name"] == "requests");
    assert_eq!(requests.unwrap()["origin"], "common");
    let table = text(&run(&["image", "list"]).stdout);
    assert!(table.lines().any(|row| row.contains("  common  ")), "{table}");
    remove(&given);
}

#[test]
fn what_can_not_go_into_an_image_is_refused_with_the_reason() {
    let (_wheels, folder) = wheels();
    for (path, expected) in [
        ("thing-1.0-cp315-cp315-linux_x86_64.whl", "made for the platform `linux_x86_64`"),
        ("native/thing-1.0-py3-none-any.whl", "`thing_speed.so` in it is machine code"),
        ("old/thing-1.0-py3-none-any.whl", "requires Python <3.10"),
        ("up/thing-1.0-py3-none-any.whl", "`../up.py` in it isn't a plain path"),
        ("requirements.txt", "ends in `.whl`"),
        ("missing.whl", "missing.whl"),
    ] {
        let path = folder.join(path);
        let output = run(&["run", "-c", "1", "--package", name(&path)]);
        assert_eq!(output.status.code(), Some(2), "{path:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{path:?}: {output:?}");
        assert_eq!(output.stdout, b"", "{path:?}");
    }
    let output = run(&["packages", "--image", "0123", "--package", "x"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn an_import_of_what_is_missing_says_what_to_do() {
    let output = run(&["run", "-c", "import no_such_thing"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    for expected in ["ModuleNotFoundError", "--package", "--requirements", "hatchery packages"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let said = text(&run(&["run", "-c", "import docx"]).stderr);
    assert!(
        said.ends_with("`docx` is not in this image. Add it with `--packages common`.\n"),
        "{said}"
    );
}
