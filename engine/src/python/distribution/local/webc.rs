//! Packages `.webc`: a module with the library in the package's volumes, read with wasmer's crate.
//! Nothing is fetched: a package that takes its module or its library from another one is refused.
//!
//! ```text
//! module    the atom of the entry point, else of the only command, else of the command `python`;
//!           without commands, the only atom
//! library   files that the volumes have below /usr/local/lib or /lib; the guest sees them below
//!           /usr/local/lib, where CPython looks for them
//! ```
//!
//! A package's environment variables, arguments and other files are left out.

use bytes::Bytes;
use webc::metadata::Manifest;
use webc::{Container, Metadata, PathSegments, ToPathSegments, Volume};

use crate::cause::Cause;

/// Where a package may have its library.
const FOLDERS: [&str; 2] = ["/usr/local/lib/", "/lib/"];
/// The command that is taken of several if the package names no entry point.
const COMMAND: &str = "python";
/// The most files and folders of a package's volumes.
const MOST_ENTRIES: usize = 100_000;

/// Returns the module of a package's command.
///
/// # Errors
/// The package is damaged, says of no command that it is meant, or has its module elsewhere.
pub(super) fn module(contents: Vec<u8>) -> Result<Vec<u8>, Cause> {
    let package = open(contents)?;
    let name = atom_name(package.manifest())?;
    let atom = package.get_atom(&name);
    atom.map(|atom| atom.to_vec()).ok_or_else(|| format!("it has no atom `{name}`").into())
}

/// Returns the files of the library in a package's volumes, with their paths in the library.
///
/// # Errors
/// The package is damaged, has too many files, or has a folder elsewhere.
pub(super) fn library(contents: Vec<u8>) -> Result<Vec<(String, Bytes)>, Cause> {
    let package = open(contents)?;
    let mappings =
        package.manifest().filesystem().map_err(|error| Cause::from(error.to_string()))?;
    let mut files = Vec::new();
    match mappings {
        Some(mappings) => {
            for mapping in mappings {
                let (name, mounted_at) = (&mapping.volume_name, &mapping.mount_path);
                if let Some(other) = mapping.from {
                    let why = format!("its folder `{mounted_at}` is in the package `{other}`");
                    return Err(why.into());
                }
                let volume = package.get_volume(name);
                let volume =
                    volume.ok_or_else(|| Cause::from(format!("it has no volume `{name}`")))?;
                let inner = mapping.host_path.as_deref().unwrap_or("/");
                add_files(&mut files, &volume, inner, mounted_at)?;
            }
        }
        None => {
            for volume in package.volumes().values() {
                add_files(&mut files, volume, "/", "/")?;
            }
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files.dedup_by(|later, first| later.0 == first.0);
    Ok(files)
}

fn open(contents: Vec<u8>) -> Result<Container, Cause> {
    let version = webc::detect(&*contents).map_err(Cause::new)?;
    Container::from_bytes_and_version(contents.into(), version).map_err(Cause::new)
}

fn atom_name(manifest: &Manifest) -> Result<String, Cause> {
    let Manifest { commands, atoms, entrypoint, .. } = manifest;
    let names = || Vec::from_iter(commands.keys().map(String::as_str)).join(", ");
    let chosen = match entrypoint {
        Some(name) => commands.get_key_value(name),
        None if commands.len() == 1 => commands.first(),
        None => commands.get_key_value(COMMAND),
    };
    if let Some((name, command)) = chosen {
        let atom = command.atom().map_err(|error| Cause::from(error.to_string()))?;
        return match atom {
            None => Ok(name.clone()),
            Some(atom) => match atom.dependency {
                None => Ok(atom.name),
                Some(other) => {
                    Err(format!("its command `{name}` is in the package `{other}`").into())
                }
            },
        };
    }
    match (commands.is_empty(), &*Vec::from_iter(atoms.keys())) {
        (true, [only]) => Ok((*only).clone()),
        (true, atoms) => Err(format!("it has no command, and {} atoms", atoms.len()).into()),
        (false, _) => Err(format!(
            "none of its commands is its entry point or named `{COMMAND}`: {}",
            names()
        )
        .into()),
    }
}

/// Adds the files of a volume's folder that belong to the library where the folder is mounted.
fn add_files(
    files: &mut Vec<(String, Bytes)>,
    volume: &Volume,
    inner: &str,
    mounted_at: &str,
) -> Result<(), Cause> {
    let inner = inner.to_path_segments().map_err(Cause::new)?;
    let mut folders = vec![(inner, format!("/{}", mounted_at.trim_matches('/')))];
    let mut entries = 0;
    while let Some((folder, guest_folder)) = folders.pop() {
        for (name, _, metadata) in volume.read_dir(&folder).unwrap_or_default() {
            entries += 1;
            if entries > MOST_ENTRIES {
                return Err(format!("it has more than {MOST_ENTRIES} files").into());
            }
            let guest_path = format!("{}/{name}", guest_folder.trim_end_matches('/'));
            let path: PathSegments = folder.join(name);
            match metadata {
                Metadata::Dir { .. } => folders.push((path, guest_path)),
                Metadata::File { .. } => {
                    let Some(inner) = FOLDERS.iter().find_map(|at| guest_path.strip_prefix(at))
                    else {
                        continue;
                    };
                    let Some((contents, _)) = volume.read_file(&path) else { continue };
                    files.push((inner.to_owned(), Bytes::copy_from_slice(&contents)));
                }
                // Links aren't followed, as in a folder.
                Metadata::Symlink { .. } => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use webc::PathSegment;
    use webc::v3::write::{DirEntry, Directory, FileEntry, Writer};
    use webc::v3::{SignatureAlgorithm, Timestamps};

    use super::*;

    fn segment(name: &str) -> PathSegment {
        name.parse().unwrap()
    }

    fn folder<const N: usize>(entries: [(&str, DirEntry<'static>); N]) -> Directory<'static> {
        let entries = entries.map(|(name, entry)| (segment(name), entry));
        Directory::new(entries.into(), Timestamps::default())
    }

    /// A package with this manifest, two atoms, and a volume `files` with a library.
    fn package(manifest: serde_json::Value) -> Vec<u8> {
        let atom = |bytes: &'static [u8]| FileEntry::borrowed(bytes, Timestamps::default());
        let file = |bytes: &'static [u8]| DirEntry::File(atom(bytes));
        let python = folder([("os.py", file(b"os"))]);
        let lib = folder([("python3.12", DirEntry::Dir(python)), ("python312.zip", file(b"zip"))]);
        let files = folder([("lib", DirEntry::Dir(lib)), ("share", file(b"other"))]);
        let manifest: Manifest = serde_json::from_value(manifest).unwrap();
        let atoms =
            [(segment("python"), atom(b"\0asm python")), (segment("cowsay"), atom(b"\0asm"))];
        let writer = Writer::default().write_manifest(&manifest).unwrap();
        let writer = writer.write_atoms(atoms.into()).unwrap();
        let writer = writer.with_volume("files", files).unwrap();
        writer.finish(SignatureAlgorithm::None).unwrap().to_vec()
    }

    fn command(atom: serde_json::Value) -> serde_json::Value {
        json!({ "runner": "https://webc.org/runner/wasi", "annotations": { "atom": atom } })
    }

    #[test]
    fn the_module_is_the_atom_of_the_command_that_is_meant() {
        let python = command(json!({ "name": "python" }));
        let other = command(json!({ "name": "cowsay" }));
        for manifest in [
            json!({ "commands": { "any": python } }),
            json!({ "commands": { "python": python, "other": other } }),
            json!({ "commands": { "any": python, "other": other }, "entrypoint": "any" }),
        ] {
            assert_eq!(module(package(manifest)).unwrap(), b"\0asm python");
        }
    }

    #[test]
    fn what_says_of_no_command_that_it_is_meant_is_refused() {
        let python = command(json!({ "name": "python" }));
        let elsewhere = command(json!({ "name": "python", "dependency": "python/python" }));
        let missing = command(json!({ "name": "missing" }));
        for (manifest, said) in [
            (json!({ "commands": { "a": python, "b": python } }), "named `python`: a, b"),
            (json!({ "commands": { "a": elsewhere } }), "in the package `python/python`"),
            (json!({ "commands": { "a": missing } }), "no atom `missing`"),
            (json!({}), "no command, and 0 atoms"),
        ] {
            let refusal = module(package(manifest)).unwrap_err().to_string();
            assert!(refusal.contains(said), "{refusal}");
        }
        assert!(module(b"\0webc003".to_vec()).is_err());
        let mut damaged = package(json!({ "commands": { "any": python } }));
        damaged.truncate(100);
        assert!(module(damaged).is_err());
    }

    #[test]
    fn the_library_is_what_volumes_have_where_a_python_looks() {
        let found = |manifest| {
            let files = library(package(manifest)).unwrap();
            Vec::from_iter(files.into_iter().map(|(path, _)| path))
        };
        let all = ["python3.12/os.py", "python312.zip"];
        assert_eq!(found(json!({})), all);
        let mapped = |from: Option<&str>, at: &str| {
            let mapping = json!({ "from": from, "volume_name": "files", "mount_path": at });
            json!({ "package": { "fs": [mapping] } })
        };
        assert_eq!(found(mapped(None, "/usr/local")), all);
        assert_eq!(found(mapped(None, "/elsewhere")), [""; 0]);
        let refusal = library(package(mapped(Some("python/python"), "/"))).unwrap_err();
        assert!(refusal.to_string().contains("`python/python`"), "{refusal}");
    }
}
