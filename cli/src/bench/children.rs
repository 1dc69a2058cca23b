//! Child processes of the benchmark: this program, and the machine's own Python.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::bench::clock::now;
use crate::bench::error::Error;

/// Runs a program to its end. Returns what it printed, and how long it took.
///
/// It doesn't hear the terminal's Ctrl-C: that ends the benchmark, not a sample.
pub(crate) async fn run(program: &Path, arguments: &[&str]) -> Result<(String, Duration), Error> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    let running = tokio::task::spawn_blocking(move || {
        let began = now();
        command.output().map(|output| (output, began.elapsed()))
    });
    let unstarted = |source| Error::Start { program: program.to_owned(), source };
    let (output, took) = running.await?.map_err(unstarted)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(Error::Child { program: program.to_owned(), status: output.status, said });
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_that_fails_says_why() {
        let shell = Path::new("sh");
        let (printed, took) = run(shell, &["-c", "echo a"]).await.unwrap();
        assert_eq!(printed, "a\n");
        assert!(took > Duration::ZERO);
        let error = run(shell, &["-c", "echo b >&2; exit 3"]).await.unwrap_err();
        assert!(error.to_string().ends_with("3): b"), "{error}");
        assert!(run(Path::new("/nonexistent"), &[]).await.is_err());
    }
}
