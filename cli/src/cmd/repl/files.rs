//! Moves files, folders and displays into and out of the current session.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use hatchery::error::{chain, counted};
use hatchery::files::ChangeKind;
use hatchery::record::RecordError;
use hatchery::{Error, Job, Outcome, Verdict};

use super::{Repl, workspace};
use crate::displays;
use crate::exit::{Exit, UsageError};
use crate::follow::follow;
use crate::terminal::{note, print};

impl Repl {
    /// Runs a job of the prompt's own and hides its output.
    async fn ask(&mut self, job: Job) -> anyhow::Result<Outcome> {
        let mut ticket = self.session().submit(job).await?;
        let followed = follow(&mut ticket, false, &mut self.interrupts, &mut ()).await?;
        self.interrupts.forget();
        Ok(followed.outcome)
    }

    /// Gives the current session the files and mounts that the command line names.
    pub(super) async fn give_files(&mut self) -> anyhow::Result<()> {
        self.begin().await?;
        if self.files.is_empty() {
            return Ok(());
        }
        let there = self.session().workspace().await?;
        for (name, contents) in self.files.clone() {
            self.give(&name, contents).await?;
            if there.contains(&name) {
                note(format_args!("replaced the session's `{name}` by the file of --input"));
            }
        }
        Ok(())
    }

    /// Installs the prompt's helpers in the current session and mounts folders. Copies of a session
    /// and session files have no mounts.
    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        if let Some(folder) = &self.record {
            match folder.record(&self.session()).await {
                Err(Error::Record(error @ RecordError::NotDeterministic)) => {
                    note(format_args!("this session isn't recorded: {error}"));
                }
                recorded => recorded?,
            }
        }
        let begin = self.begin.clone();
        match self.ask(begin).await {
            Ok(outcome) => match outcome.verdict {
                Verdict::Completed { .. } => {}
                Verdict::SandboxFailed(_) => {
                    return Err(UsageError(workspace::failure(&outcome)).into());
                }
                // For instance because no memory is left.
                _ => {
                    let failure = workspace::failure(&outcome);
                    note(format_args!("Tab and `%time` don't work in this session: {failure}"));
                }
            },
            Err(error) => self.complain(Exit::Sandbox, format_args!("{error:#}")),
        }
        Ok(())
    }

    /// Puts a file into the current session's workspace.
    async fn give(&mut self, name: &str, contents: Vec<u8>) -> anyhow::Result<()> {
        let outcome = self.ask(Job::code("").named("<put>").input(name, contents)?).await?;
        match outcome.verdict {
            Verdict::Completed { .. } => Ok(()),
            _ => Err(UsageError(workspace::failure(&outcome)).into()),
        }
    }

    /// `:put`.
    pub(super) async fn put(&mut self, file: &Path, path: Option<&str>) -> anyhow::Result<()> {
        let name = workspace::name_for(file, path).map_err(UsageError)?;
        let contents = fs::read(file).map_err(|error| UsageError(error.to_string()))?;
        let is_there = self.session().workspace().await?.contains(&name);
        let (length, verb) = (contents.len(), if is_there { "replaced" } else { "put" });
        self.give(&name, contents).await?;
        note(format_args!("{verb} `{name}`, {}", counted(length, "byte")));
        Ok(())
    }

    /// `:get`.
    pub(super) async fn get(&mut self, path: &str, file: Option<&Path>) -> anyhow::Result<()> {
        let local = workspace::local_for(path, file).map_err(UsageError)?;
        let name = local.display();
        // Checked before the file is read for nothing.
        if local.symlink_metadata().is_ok() {
            let advice = "name another file with `:get PATH FILE`";
            return Err(UsageError(format!("`{name}` exists already; {advice}")).into());
        }
        let contents = self.session().workspace().await?.read(path).ok_or_else(|| {
            UsageError(
                "it is not among the session's own files, which `:files` lists; mounted files are \
                 on your machine"
                    .to_owned(),
            )
        })?;
        File::create_new(&local)
            .and_then(|mut file| file.write_all(&contents))
            .with_context(|| UsageError(format!("can't write `{name}`")))?;
        note(format_args!("copied `{path}` to `{name}`, {}", counted(contents.len(), "byte")));
        Ok(())
    }

    /// `:files`.
    pub(super) async fn list_files(&mut self) -> anyhow::Result<()> {
        let workspace = match self.session().workspace().await {
            Ok(workspace) => workspace,
            Err(error) => {
                self.complain(Exit::Sandbox, chain(&error));
                return Ok(());
            }
        };
        let files = workspace.files();
        if files.is_empty() {
            note("the session has no files in its workspace");
        }
        for (path, bytes) in files {
            print(format_args!("{bytes:>12}  {path}"))?;
        }
        Ok(())
    }

    /// `:displays`.
    pub(super) fn keep_displays(&mut self, folder: &Path) {
        if self.shown.is_empty() {
            self.complain(Exit::Usage, "no input has displayed anything to save");
            return;
        }
        let added = fs::create_dir_all(folder).and_then(|()| displays::add(&self.shown, folder));
        match added {
            Ok(paths) => {
                for path in paths {
                    note(format_args!("wrote `{}`", path.display()));
                }
            }
            Err(error) => self.complain(
                Exit::Sandbox,
                format_args!("can't write into `{}`: {error}", folder.display()),
            ),
        }
    }

    /// Writes the files and displays of an input, or notes how to fetch them. So many of its displays
    /// were drawn.
    pub(super) fn keep_results(&mut self, outcome: &Outcome, drawn: usize) {
        match &mut self.outputs {
            Some(outputs) => {
                if !outputs.keep(&outcome.files) {
                    self.fail_with(Exit::Failed);
                }
            }
            None => self.note_files(outcome),
        }
        let shown = displays::shown(outcome);
        if shown.is_empty() {
            return;
        }
        let mut has_image = displays::images(outcome) > drawn;
        if let Verdict::Completed { bundle, .. } = &outcome.verdict {
            // A terminal that is gone is found out by the next prompt.
            let is_drawn = displays::draw(bundle).unwrap_or(false);
            has_image |= !is_drawn && displays::has_image(bundle);
        }
        self.shown = shown;
        match self.display_folder.clone() {
            Some(folder) => self.keep_displays(&folder),
            None if has_image => note(
                "the program displayed an image; save it with `:displays DIR`, or all images with \
                 --save-displays DIR",
            ),
            None => {}
        }
    }

    /// Notes once that files exist only in the session.
    fn note_files(&mut self, outcome: &Outcome) {
        let mut written = outcome.files.iter().filter(|file| file.kind != ChangeKind::Deleted);
        if let Some(file) = written.next().filter(|_| !self.has_noted_files) {
            self.has_noted_files = true;
            note(format_args!(
                "`{}` exists only in the session; `:get {}` fetches it, `:files` lists such files, \
                 --output-dir DIR fetches all",
                file.path, file.path
            ));
        }
    }
}
