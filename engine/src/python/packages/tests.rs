//! Which wheels and folders are packages, and which are refused.

use std::fs;
use std::io::{Cursor, Write};
use std::path::PathBuf;

use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::files::quota::MOST_NAME_BYTES;
use crate::places::COMMON_PACKAGES;

const METADATA: &str = "Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.2\n";
const WHEEL: &str = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
const NAME: &str = "some_thing-1.2-py3-none-any.whl";

type Writer = ZipWriter<Cursor<Vec<u8>>>;

/// Adds an entry to an archive.
fn put(writer: &mut Writer, name: &str, contents: &[u8]) {
    writer.start_file(name, SimpleFileOptions::default()).unwrap();
    writer.write_all(contents).unwrap();
}

fn finished(writer: Writer) -> Vec<u8> {
    writer.finish().unwrap().into_inner()
}

/// Returns the bytes of a ZIP archive with these entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    entries.iter().for_each(|(name, contents)| put(&mut writer, name, contents));
    finished(writer)
}

/// Begins a wheel with complete metadata and no other files.
fn begun_wheel() -> Writer {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    put(&mut writer, "some_thing-1.2.dist-info/METADATA", METADATA.as_bytes());
    put(&mut writer, "some_thing-1.2.dist-info/WHEEL", WHEEL.as_bytes());
    writer
}

/// Returns the bytes of a wheel with these files.
fn wheel(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = begun_wheel();
    files.iter().for_each(|(name, contents)| put(&mut writer, name, contents));
    finished(writer)
}

fn opened(name: &str, bytes: &[u8]) -> Result<Package, PackageError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    Package::open(&path, &PythonTarget::default())
}

/// Creates a folder with these files.
fn folder(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("thing");
    for (path, contents) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    (base, root)
}

fn paths(package: &Package) -> Vec<&str> {
    package.inner.files.keys().map(String::as_str).collect()
}

#[test]
fn a_pure_wheel_is_what_site_packages_would_hold() {
    let bytes = wheel(&[
        ("some_thing/__init__.py", b"x = 1"),
        ("some_thing/data/table.csv", b"a,b"),
        ("some_thing/__pycache__/__init__.cpython-315.pyc", b"compiled"),
        ("some_thing-1.2.data/purelib/other.py", b"y = 2"),
        ("some_thing-1.2.data/scripts/run", b"#!python"),
    ]);
    let package = opened(NAME, &bytes).unwrap();
    assert_eq!(
        paths(&package),
        [
            "other.py",
            "some_thing-1.2.dist-info/METADATA",
            "some_thing-1.2.dist-info/WHEEL",
            "some_thing/__init__.py",
            "some_thing/data/table.csv"
        ]
    );
    let [info] = package.infos() else { panic!("{package:?}") };
    assert_eq!(info.to_string(), "Some_Thing 1.2");
    assert_eq!(info.origin, PackageOrigin::Wheel(NAME.to_owned()));
}

#[test]
fn packages_are_equal_if_their_contents_are() {
    let one = opened(NAME, &wheel(&[("a.py", b"1")])).unwrap();
    let same = opened("Some.Thing-1.2-py2.py3-none-any.whl", &wheel(&[("a.py", b"1")])).unwrap();
    let other = opened(NAME, &wheel(&[("a.py", b"2")])).unwrap();
    assert_eq!(one, same);
    assert_ne!(one, other);
    let alone = |package: &Package| identity(std::slice::from_ref(package));
    assert_eq!(alone(&one), alone(&same));
    assert_ne!(identity(&[one.clone(), other.clone()]), identity(&[other, one]));
}

#[test]
fn packages_for_one_machine_are_refused_with_the_reason() {
    let pure = wheel(&[("a.py", b"")]);
    for (name, expected) in [
        ("some_thing-1.2-cp312-cp312-manylinux_2_17_x86_64.whl", "manylinux_2_17_x86_64"),
        ("some_thing-1.2-cp312-abi3-any.whl", "abi3"),
    ] {
        let error = opened(name, &pure).unwrap_err();
        assert!(matches!(error, PackageError::Native { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains(name), "{text}");
    }
    for file in ["some_thing/_speed.so", "a/libz.so.1", "a/b.PYD", "a/c.dylib"] {
        let error = opened(NAME, &wheel(&[("a.py", b""), (file, b"\x7fELF")])).unwrap_err();
        assert!(matches!(error, PackageError::Native { .. }), "{error}");
        assert!(error.to_string().contains(file), "{error}");
    }
}

#[test]
fn machine_code_that_a_package_can_do_without_is_left_out() {
    let wheel = |name: &str, version: &str, files: &[(&str, &[u8])]| {
        let info = format!("{name}-{version}.dist-info");
        let metadata = format!("Name: {name}\nVersion: {version}\n");
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        put(&mut writer, &format!("{info}/METADATA"), metadata.as_bytes());
        put(&mut writer, &format!("{info}/WHEEL"), b"Root-Is-Purelib: false\n");
        files.iter().for_each(|(name, contents)| put(&mut writer, name, contents));
        let platform = "cp312-cp312-manylinux2014_x86_64.whl";
        opened(&format!("{name}-{version}-{platform}"), &finished(writer))
    };
    let files: [(&str, &[u8]); 2] = [("msgpack/__init__.py", b"x"), ("msgpack/_c.so", b"\x7fELF")];
    let package = wheel("msgpack", "1.0", &files).unwrap();
    assert_eq!(paths(&package)[2..], ["msgpack/__init__.py"]);

    let pinned = |name: &str| {
        let line = COMMON_PACKAGES.lines().find_map(|line| line.strip_prefix(&format!("{name}==")));
        line.unwrap().split(' ').next().unwrap()
    };
    let files: [(&str, &[u8]); 2] = [("psutil/__init__.py", b"x"), ("psutil/_c.abi3.so", b"")];
    let package = wheel("psutil", pinned("psutil"), &files).unwrap();
    assert_eq!(paths(&package)[2..], ["psutil/__init__.py", "psutil/_sandbox.py"]);
    let text = &package.inner.files["psutil/__init__.py"];
    assert!(text.ends_with(b"del platform\nx"), "the stand-in comes first: {text:?}");

    let error = wheel("orjson", "0.1", &[("orjson/__init__.py", b"")]).unwrap_err();
    let expected = format!("stand-in for its machine code for version {} only", pinned("orjson"));
    assert!(error.to_string().contains(&expected), "{error}");
}

#[test]
fn packages_for_another_python_are_refused() {
    let metadata = format!("{METADATA}Requires-Python: <3.12\n");
    let bytes = archive(&[
        ("some_thing-1.2.dist-info/METADATA", metadata.as_bytes()),
        ("some_thing-1.2.dist-info/WHEEL", WHEEL.as_bytes()),
        ("a.py", b""),
    ]);
    let error = opened(NAME, &bytes).unwrap_err();
    assert!(matches!(error, PackageError::Python { .. }), "{error}");
    assert!(error.to_string().contains("<3.12") && error.to_string().contains("3.15"), "{error}");
    let error = opened("some_thing-1.2-py2-none-any.whl", &wheel(&[("a.py", b"")])).unwrap_err();
    assert!(matches!(error, PackageError::Python { .. }), "{error}");
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    let deep = format!("{}a.py", "a/".repeat(MOST_PARTS));
    let long = format!("{}.py", "a".repeat(MOST_NAME_BYTES));
    for path in
        ["../a.py", "/etc/a.py", "a/../../b.py", "a\\b.py", "a//b.py", "./a.py", &deep, &long]
    {
        let error = opened(NAME, &wheel(&[("a.py", b""), (path, b"")])).unwrap_err();
        assert!(matches!(error, PackageError::NotAPackage { .. }), "{path}: {error}");
        assert!(error.to_string().contains("isn't a plain path"), "{path}: {error}");
    }
    let mut writer = begun_wheel();
    writer.add_symlink("link.py", "/etc/passwd", SimpleFileOptions::default()).unwrap();
    let error = opened(NAME, &finished(writer)).unwrap_err();
    assert!(error.to_string().contains("`link.py` in it is a link"), "{error}");
}

#[test]
fn an_invalid_wheel_is_refused_with_the_reason() {
    for (name, bytes, expected) in [
        ("thing.whl", wheel(&[("a.py", b"")]), "NAME-VERSION-PYTHON-ABI-PLATFORM"),
        ("thing.zip", wheel(&[("a.py", b"")]), "ends in `.whl`"),
        (NAME, b"not an archive".to_vec(), "isn't a ZIP archive"),
        (NAME, archive(&[("a.py", b"")]), ".dist-info"),
        (NAME, wheel(&[("other-1.dist-info/METADATA", b""), ("a.py", b"")]), "more than one"),
        (NAME, wheel(&[("readme.txt", b"")]), "nothing in it that can be imported"),
        (NAME, wheel(&[("a", b""), ("a/b.py", b"")]), "a file and a folder"),
        ("other-1.2-py3-none-any.whl", wheel(&[("a.py", b"")]), "`Some_Thing`"),
    ] {
        let error = opened(name, &bytes).unwrap_err();
        assert!(error.to_string().contains(expected), "{name}: {error}");
    }
    let error = Package::open(Path::new("/nowhere/a.whl"), &PythonTarget::default()).unwrap_err();
    assert!(matches!(error, PackageError::Read(..)), "{error}");
}

/// Zeros compress to a thousandth.
#[test]
fn a_wheel_that_unpacks_to_too_much_is_refused_when_it_does() {
    let mut writer = begun_wheel();
    let options = SimpleFileOptions::default();
    writer.start_file("bomb.py", options.compression_level(Some(1))).unwrap();
    let zeroes = vec![0_u8; 1 << 20];
    for _ in 0..=MOST_BYTES >> 20 {
        writer.write_all(&zeroes).unwrap();
    }
    let bytes = finished(writer);
    assert!((bytes.len() as u64) < MOST_BYTES / 50, "{}", bytes.len());
    let error = opened(NAME, &bytes).unwrap_err();
    assert!(matches!(error, PackageError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("384 MiB"), "{error}");
}

#[test]
fn a_folder_is_one_package_or_holds_several() {
    let files =
        [("__init__.py", "x = 1"), ("part.py", ""), (".git/x", ""), ("__pycache__/x.pyc", "")];
    let (_base, root) = folder(&files);
    let package = Package::open(&root, &PythonTarget::default()).unwrap();
    assert_eq!(paths(&package), ["thing/__init__.py", "thing/part.py"]);
    let origin = PackageOrigin::Folder("thing".to_owned());
    let info = PackageInfo { name: "thing".to_owned(), version: None, origin };
    assert_eq!(package.infos(), [info]);

    let (_base, root) = folder(&[
        ("one.py", ""),
        ("two/__init__.py", ""),
        ("two-2.0.dist-info/METADATA", "Name: two\nVersion: 2.0\nRequires-Dist: three\n"),
    ]);
    let package = Package::open(&root, &PythonTarget::default()).unwrap();
    assert_eq!(paths(&package), ["one.py", "two-2.0.dist-info/METADATA", "two/__init__.py"]);
    assert_eq!(package.name(), "two 2.0");
    assert_eq!(package.inner.needs, ["three".to_owned()].into());
}

#[test]
fn a_folder_that_is_no_package_says_what_to_give() {
    let (_base, root) = folder(&[("pyproject.toml", ""), ("src/thing/__init__.py", "")]);
    let error = Package::open(&root, &PythonTarget::default()).unwrap_err();
    assert!(error.to_string().contains("pip wheel"), "{error}");
    assert!(Package::open(&root.join("src"), &PythonTarget::default()).is_ok());
    let (_base, root) = folder(&[("a.py", ""), ("_speed.so", "")]);
    let error = Package::open(&root, &PythonTarget::default()).unwrap_err();
    assert!(matches!(error, PackageError::Native { .. }), "{error}");
    let (_base, root) = folder(&[("a.py", "")]);
    std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
    let error = Package::open(&root, &PythonTarget::default()).unwrap_err();
    assert!(error.to_string().contains("is a link"), "{error}");
}

#[test]
fn packages_of_one_image_have_no_file_twice_unless_it_is_the_same() {
    let package = |files: &[(&str, &str)]| {
        let (_base, root) = folder(files);
        Package::open(&root, &PythonTarget::default()).unwrap()
    };
    let one = package(&[("space/a.py", "a"), ("space/both.py", "")]);
    let two = package(&[("space/b.py", "b"), ("space/both.py", "")]);
    let three = package(&[("space/a.py", "another")]);
    let four = package(&[("space", "a file"), ("x.py", "")]);
    assert!(check(&[one.clone(), two.clone()]).is_ok());
    assert_eq!(files(&[one.clone(), two]).len(), 3);
    for other in [three, four] {
        let error = check(&[one.clone(), other]).unwrap_err();
        assert!(matches!(error, PackageError::Conflict { .. }), "{error}");
        assert!(error.to_string().contains("`space/a.py`"), "{error}");
    }
}

#[test]
fn unmet_needs_and_names_taken_by_the_build_are_warned_of() {
    let metadata = format!("{METADATA}Requires-Dist: numpy\nRequires-Dist: absent>=1\n");
    let bytes = archive(&[
        ("some_thing-1.2.dist-info/METADATA", metadata.as_bytes()),
        ("some_thing-1.2.dist-info/WHEEL", WHEEL.as_bytes()),
        ("some_thing.py", b""),
        ("json/__init__.py", b""),
    ]);
    let package = opened(NAME, &bytes).unwrap();
    let own = |name: &str, version: &str| PackageInfo {
        name: name.to_owned(),
        version: Some(version.to_owned()),
        origin: PackageOrigin::Build,
    };
    let mut build = Inventory {
        distributions: vec![own("numpy", "2.5.2")],
        modules: ["json", "numpy"].map(str::to_owned).into(),
    };
    let warnings_now = warnings(std::slice::from_ref(&package), &build);
    assert_eq!(warnings_now.len(), 2, "{warnings_now:?}");
    assert!(warnings_now[0].contains("needs `absent`"), "{warnings_now:?}");
    assert!(warnings_now[1].contains("`json` of Some_Thing 1.2"), "{warnings_now:?}");
    build.distributions.push(own("some-thing", "1.1"));
    let warnings_now = warnings(&[package], &build);
    assert!(warnings_now[1].contains("some-thing 1.1, which comes first"), "{warnings_now:?}");
}
