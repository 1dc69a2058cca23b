//! Packages beyond those of the build, in the image, in its jobs and in revived sessions. Also
//! imports of modules that don't exist. `engine/src/python/packages/tests.rs` tests refusals.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use engine::{
    CacheDir, ImageSpec, Interface, Package, PackageError, PackageOrigin, PythonTarget, Silent,
    Verdict,
};
use serde_json::json;
use sha2::{Digest, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::setup::OwnImage;
use crate::support::{engine, load_or_build, plain, program, revived, turn, value};

const WHEEL: &str = "greeting-1.2-py3-none-any.whl";
const METADATA: &str = "Metadata-Version: 2.1\nName: greeting\nVersion: 1.2\n\
                        Requires-Dist: numpy>=1\nRequires-Dist: absent\n";

/// Returns a pure wheel with one module that reads a file of its package.
fn wheel() -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, contents) in [
        (
            "greeting/__init__.py",
            "import os.path\n\
             words = os.path.join(os.path.dirname(__file__), 'words.txt')\n\
             def hello(): return open(words).read()\n",
        ),
        ("greeting/words.txt", "hello"),
        ("greeting-1.2.dist-info/METADATA", METADATA),
        ("greeting-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"),
        ("greeting-1.2.dist-info/RECORD", ""),
    ] {
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(contents.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// Returns two packages: a wheel, and a folder that is one package.
fn packages(folder: &Path) -> Vec<Package> {
    let wheel_path = folder.join(WHEEL);
    fs::write(&wheel_path, wheel()).unwrap();
    let helpers = folder.join("helpers");
    fs::create_dir(&helpers).unwrap();
    fs::write(helpers.join("__init__.py"), "").unwrap();
    fs::write(helpers.join("part.py"), "x = 42\n").unwrap();
    [wheel_path, helpers]
        .map(|path| Package::open(&path, &PythonTarget::default()).unwrap())
        .to_vec()
}

const LOOK: &str = r"
import importlib.metadata, sys
import greeting
from helpers.part import x
[greeting.hello(), x, importlib.metadata.version('greeting'), greeting.__file__, sys.path[-1]]
";

const CHANGE: &str = r"
import os
site, said = '/hatchery-packages', []
for change in (
    lambda: open(site + '/new.py', 'w'),
    lambda: open(site + '/greeting/__init__.py', 'a'),
    lambda: os.remove(site + '/greeting/words.txt'),
    lambda: os.rename(site + '/helpers', '/tmp/helpers'),
):
    try:
        change()
    except OSError:
        said.append('refused')
said
";

#[test]
fn packages_can_be_imported_in_the_image_in_jobs_and_in_sessions_that_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let spec = ImageSpec {
        packages: packages(folder.path()),
        preload: vec!["greeting".to_owned()],
        ..ImageSpec::default()
    };
    let own = OwnImage::new(&spec);
    let info = own.image.info();
    let names: Vec<String> = info.packages.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["greeting 1.2", "helpers"]);
    assert_eq!(info.packages[0].origin, PackageOrigin::Wheel(WHEEL.to_owned()));
    assert_eq!(info.warnings, ["greeting 1.2 needs `absent`, which is not there"]);

    let site = "/hatchery-packages";
    let seen = json!(["hello", 42, "1.2", format!("{site}/greeting/__init__.py"), site]);
    let mut slot = own.image.start().unwrap();
    assert_eq!(value(&mut slot, "import sys; 'greeting' in sys.modules"), json!(true));
    for _ in 0..2 {
        assert_eq!(value(&mut slot, LOOK), seen);
        assert_eq!(value(&mut slot, CHANGE), json!(["refused", "refused", "refused", "refused"]));
        slot.reset().unwrap();
    }

    // From the cache, and with files that haven't been opened before.
    let again = load_or_build(engine(), &spec).unwrap();
    assert_eq!(again.info().created, info.created);
    assert_eq!(value(&mut again.start().unwrap(), LOOK), seen);

    let path = folder.path().join("saved.session");
    value(&mut slot, "kept = 7; open('kept.txt', 'w').write('kept')");
    slot.suspend().unwrap().save(&path).unwrap();
    slot.resume(&revived(&again, &path).unwrap()).unwrap();
    assert_eq!(value(&mut slot, LOOK), seen);
    assert_eq!(value(&mut slot, "[kept, open('kept.txt').read()]"), json!([7, "kept"]));
}

#[test]
fn an_import_of_what_is_nowhere_says_what_to_do_and_can_be_caught_as_ever() {
    let mut slot = plain().start().unwrap();
    for (source, expected) in [
        (
            "import nowhere.at.all",
            "`nowhere` is not in this image. `Builder::package` adds a pure-Python wheel",
        ),
        ("import tkinter", "`tkinter` can't be imported here: the sandbox has no screen"),
        (
            "try:\n    import nowhere\nexcept ImportError as e:\n    raise ImportError('get it') from e",
            "`nowhere` is not in this image",
        ),
    ] {
        let mut outcome = turn(&mut slot, &program(source));
        outcome.word_for(Interface::default());
        let Verdict::Raised(exception) = outcome.verdict else { panic!("{source}") };
        let text = exception.traceback.trim_end();
        assert!(text.lines().last().is_some_and(|line| line.contains(expected)), "{text}");
        assert!(!exception.message.contains("package"), "{}", exception.message);
    }
    let mut outcome = turn(&mut slot, &program("import json.nowhere"));
    outcome.word_for(Interface::default());
    let Verdict::Raised(exception) = outcome.verdict else { panic!("there is no such module") };
    assert!(!exception.traceback.contains("package adds"), "{}", exception.traceback);
    let caught = "import importlib.util\n\
                  found = importlib.util.find_spec('nowhere') is not None\n\
                  try:\n    import nowhere\n\
                  except ImportError as error:\n    said = [str(error), hasattr(error, '__notes__')]\n\
                  [found, *said]";
    assert_eq!(value(&mut slot, caught), json!([false, "No module named 'nowhere'", false]));
}

/// pip, but no network: the wheel is in a folder.
#[test]
fn requirements_are_fetched_by_name_and_hash_and_then_come_from_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::open(Some(&folder.path().join("cache"))).unwrap();
    let wheels = folder.path().join("wheels");
    fs::create_dir(&wheels).unwrap();
    fs::write(wheels.join(WHEEL), wheel()).unwrap();
    let path = folder.path().join("requirements.txt");
    let load =
        || Package::from_requirements(&cache, &path, None, &PythonTarget::default(), &Silent);
    let write = |hash: &str| {
        let links = wheels.display();
        let text =
            format!("--no-index\n--find-links {links}\ngreeting==1.2 --hash=sha256:{hash}\n");
        fs::write(&path, text).unwrap();
    };
    let digest = Sha256::digest(wheel());
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();

    write(&hash.replace(|digit: char| digit.is_ascii_digit(), "0"));
    let error = load().unwrap_err();
    assert!(matches!(error, PackageError::Pip(..)), "{error}");
    assert!(error.to_string().contains("requirements.txt"), "{error}");

    write(&hash);
    let fetched = load().unwrap();
    let [package] = fetched.as_slice() else { panic!("{fetched:?}") };
    assert_eq!(package.infos()[0].to_string(), "greeting 1.2");
    assert_eq!(package.infos()[0].origin, PackageOrigin::Requirements(WHEEL.to_owned()));

    fs::remove_dir_all(&wheels).unwrap();
    assert_eq!(load().unwrap(), fetched, "it isn't fetched twice");
    let entries = fs::read_dir(cache.root().join("packages")).unwrap().flatten();
    let cached: Vec<_> = entries.map(|entry| entry.path().join("packed")).collect();
    assert_eq!(cached.len(), 1, "{cached:?}");
    fs::write(&cached[0], b"damaged").unwrap();
    let error = load().unwrap_err();
    assert!(matches!(error, PackageError::Pip(..)), "{error}");
}
