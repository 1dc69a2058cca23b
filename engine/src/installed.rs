//! The compiled module that was installed with this program, as wheels and packages do.
//!
//! It is `share/hatchery/python.module`, in the folder that has the program's folder, and the file
//! beside it has its SHA-256. Only that hash is trusted, and only if no user can write it who can't
//! write the program. The module itself is checked against it like any other. The hash comes with the
//! program, the module perhaps not.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MODULE: &str = "share/hatchery/python.module";
const HASH: &str = "share/hatchery/python.module.sha256";
/// Bytes of the file with the hash that are read. It needs 64.
const MOST_READ: u64 = 1024;

/// Returns the module that was installed with this program, if there is one, and its SHA-256 in
/// hexadecimal.
pub(crate) fn module() -> Option<(PathBuf, String)> {
    beside(&std::env::current_exe().ok()?)
}

fn beside(program: &Path) -> Option<(PathBuf, String)> {
    let folder = program.parent()?.parent()?;
    let module = folder.join(MODULE);
    if !module.exists() {
        return None;
    }
    let file = File::open(folder.join(HASH)).ok()?;
    if !is_as_safe(&file.metadata().ok()?, &fs::metadata(program).ok()?) {
        let path = folder.join(HASH);
        tracing::warn!(
            path = %path.display(),
            "the compiled module beside the program isn't used: others can write its hash"
        );
        return None;
    }
    let mut text = String::new();
    file.take(MOST_READ).read_to_string(&mut text).ok()?;
    // As `sha256sum` writes it: the hash, then perhaps a name.
    let sha256 = text.split_whitespace().next()?.to_owned();
    Some((module, sha256))
}

/// Returns whether everybody who can write `file` can write `program` too.
fn is_as_safe(file: &Metadata, program: &Metadata) -> bool {
    const GROUP: u32 = 0o020;
    const OTHERS: u32 = 0o002;
    let may = |file: &Metadata, who: u32| file.mode() & who != 0;
    let is_same_group = file.gid() == program.gid() && may(program, GROUP);
    (file.uid() == 0 || file.uid() == program.uid())
        && (!may(file, GROUP) || is_same_group)
        && (!may(file, OTHERS) || may(program, OTHERS))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_module_beside_the_program_is_found_if_its_hash_is_as_safe_as_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let [program, module, hash] =
            ["bin/program", MODULE, HASH].map(|name| folder.path().join(name));
        for path in [&program, &hash] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        fs::write(&program, "").unwrap();
        set_mode(&program, 0o755);
        assert_eq!(beside(&program), None);

        fs::write(&hash, "ab12  python.module\n").unwrap();
        assert_eq!(beside(&program), None, "a hash whose module isn't installed");

        fs::write(&module, "").unwrap();
        let found = Some((module, "ab12".to_owned()));
        for (of_program, of_hash, is_used) in [
            (0o755, 0o644, true),
            (0o755, 0o664, false),
            (0o755, 0o646, false),
            (0o775, 0o664, true),
            (0o775, 0o666, false),
        ] {
            set_mode(&program, of_program);
            set_mode(&hash, of_hash);
            let expected = found.clone().filter(|_| is_used);
            assert_eq!(beside(&program), expected, "{of_program:o} {of_hash:o}");
        }

        set_mode(&hash, 0o644);
        fs::write(&hash, "\n").unwrap();
        assert_eq!(beside(&program), None, "a file without a hash");
    }
}
