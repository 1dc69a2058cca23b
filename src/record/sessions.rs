//! Recording sessions, and jobs that run on their own.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use engine::{Cause, Deterministic, Outcome};
use scheduler::Ticket;
use serde_json::{Map, Value as Json};

use super::error::RecordError;
use super::recorders::SessionRecorder;
use super::writer::{RecordingKind, RecordingWriter, write_sample as write};
use crate::failure::Error;
use crate::job::Job;
use crate::runtime::Hatchery;
use crate::session::Session;

impl Session {
    /// Records the session in a new file from now on, whatever handle its jobs come from.
    ///
    /// The session becomes [deterministic](crate::Job::deterministic), with a random seed and a
    /// clock that begins now, so it must not have run a job with the machine's. A job is submitted
    /// once the one before it has ended. [`Self::stop_recording`] ends the file, as do
    /// [`Self::close`] and [`Hatchery::drain`]. [`RecordingFile`](super::RecordingFile) reads it.
    /// It may contain secrets of its programs, unencrypted.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let session = pool.session("analysis").await?;
    /// session.record("analysis.recording").await?;
    /// session.run(Job::code("import random; random.random()")).await?;
    /// session.stop_recording().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The file exists or can't be written, the session is recorded already, or it has run jobs that
    /// weren't deterministic. Or a job of it runs or waits, or the session is gone. A job that another
    /// handle submits before this returns may not be recorded.
    pub async fn record(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let recorders = &self.hatchery.recorders;
        if recorders.of(self.session).is_some() {
            return Err(RecordError::Twice.into());
        }
        recorders.close_ended(|id| self.hatchery.scheduler.session_name(id).is_some());
        let state = self.state().await?;
        SessionRecorder::check(&state)?;
        let image = self.hatchery.image_of(self.python())?.cloned();
        let image = image.ok_or(engine::SessionError::NotSuspendable)?;
        let kind = RecordingKind { kind: "session", session: Some(self.name().to_owned()), image };
        let writer = RecordingWriter::create(path.as_ref(), kind, Some(&state)).await?;
        Ok(recorders.begin(self.session, writer)?)
    }

    /// Ends the recording of the session, once its last job has ended. Does nothing if it isn't
    /// recorded.
    ///
    /// # Errors
    /// The file couldn't be written.
    pub async fn stop_recording(&self) -> Result<(), Error> {
        match self.hatchery.recorders.take(self.session) {
            Some(recorder) => recorder.finish(self.state()).await,
            None => Ok(()),
        }
    }
}

/// Records jobs that run on their own, each in a fresh interpreter, in one file.
#[derive(Debug)]
pub struct Recorder {
    hatchery: Hatchery,
    writer: RecordingWriter,
}

impl Hatchery {
    /// Creates a file to record jobs that run on their own. Each is
    /// [deterministic](crate::Job::deterministic), with its own seed unless it has one.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let recorder = pool.recorder("jobs.recording").await?;
    /// recorder.submit(Job::code("print(6 * 7)")).await?.await;
    /// recorder.finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The file exists or can't be written, or the pool's default build has no images.
    pub async fn recorder(&self, path: impl AsRef<Path>) -> Result<Recorder, Error> {
        let image = self.image().cloned().ok_or(engine::SessionError::NotSuspendable)?;
        let kind = RecordingKind { kind: "jobs", session: None, image };
        let writer = RecordingWriter::create(path.as_ref(), kind, None).await?;
        Ok(Recorder { hatchery: self.clone(), writer })
    }
}

impl Recorder {
    /// Submits a job that is recorded.
    ///
    /// # Errors
    /// The job was refused, or an earlier one couldn't be recorded.
    pub async fn submit(&self, mut job: Job) -> Result<Ticket, Error> {
        let (turn, _) = self.writer.turn(false).await?;
        job.turn = Some(turn);
        self.hatchery.submit(job).await
    }

    /// Runs a job that is recorded, and waits for its outcome.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub async fn run(&self, job: Job) -> Result<Outcome, Error> {
        Ok(self.submit(job).await?.await)
    }

    /// Ends the file once its jobs have ended.
    ///
    /// # Errors
    /// The file couldn't be written.
    pub async fn finish(&self) -> Result<(), Error> {
        Ok(self.writer.finish().await?)
    }
}

/// The longest part of a file's name that is made of a session's.
const MOST_NAME_CHARACTERS: usize = 64;
/// How many recordings of one name a folder can have.
const MOST_OF_A_NAME: usize = 100_000;

/// A folder of recordings, each in a new file.
#[derive(Debug, Clone)]
pub struct RecordFolder(PathBuf);

impl RecordFolder {
    /// Opens the folder, or creates it.
    ///
    /// # Errors
    /// It can't be created.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        // The names of its files are those of sessions.
        match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
            Ok(()) => Ok(Self(path)),
            Err(cause) => Err(RecordError::File { action: "create", path, cause }.into()),
        }
    }

    /// Records a session from now on, unless it is recorded already. The file has the name of the
    /// session, as far as a file can, and a number.
    ///
    /// # Errors
    /// As [`Session::record`].
    pub async fn record(&self, session: &Session) -> Result<(), Error> {
        for path in self.paths(session.name()) {
            match session.record(&path).await {
                Err(Error::Record(RecordError::Twice)) => return Ok(()),
                recorded if is_taken(&recorded) => {}
                recorded => return recorded,
            }
        }
        Err(self.full().into())
    }

    /// Creates a file to record jobs that run on their own.
    ///
    /// # Errors
    /// As [`Hatchery::recorder`].
    pub async fn recorder(&self, pool: &Hatchery, name: &str) -> Result<Recorder, Error> {
        for path in self.paths(name) {
            let recorder = pool.recorder(&path).await;
            if !is_taken(&recorder) {
                return recorder;
            }
        }
        Err(self.full().into())
    }

    /// Writes a recording of one sample, which an application can judge again: any JSON object,
    /// which [`RecordingFile::sample`](super::RecordingFile::sample) returns.
    ///
    /// # Errors
    /// The file can't be written, or the pool's default build has no images.
    pub async fn write_sample(
        &self,
        pool: &Hatchery,
        name: &str,
        deterministic: Deterministic,
        mut sample: Map<String, Json>,
    ) -> Result<(), Error> {
        let image = pool.image().cloned().ok_or(engine::SessionError::NotSuspendable)?;
        let kind = RecordingKind { kind: "sample", session: None, image };
        sample.insert("type".to_owned(), "sample".into());
        let folder = self.clone();
        let paths = self.paths(name);
        let writing = tokio::task::spawn_blocking(move || {
            let sample = Json::Object(sample);
            let write = |path: PathBuf| write(&path, &kind, deterministic, sample.clone());
            let mut written = paths.map(|path| write(path).map_err(Error::from));
            written.find(|written| !is_taken(written)).unwrap_or_else(|| Err(folder.full().into()))
        });
        writing.await.map_err(|error| Error::Load(Cause::new(error)))?
    }

    fn paths(&self, name: &str) -> impl Iterator<Item = PathBuf> + use<> {
        let is_plain =
            |character: &char| character.is_ascii_alphanumeric() || "_-.".contains(*character);
        let plain =
            name.chars().map(|character| if is_plain(&character) { character } else { '-' });
        // The end of a path says more than its beginning.
        let skipped = name.chars().count().saturating_sub(MOST_NAME_CHARACTERS);
        let name: String = plain.skip(skipped).collect();
        let name = name.trim_start_matches(['.', '-']).to_owned();
        let folder = self.0.clone();
        (1..=MOST_OF_A_NAME).map(move |number| folder.join(format!("{name}-{number}.recording")))
    }

    fn full(&self) -> RecordError {
        let cause = std::io::Error::other("there are too many recordings of this name");
        RecordError::File { action: "create", path: self.0.clone(), cause }
    }
}

/// Returns whether a file is there already.
fn is_taken<T>(created: &Result<T, Error>) -> bool {
    matches!(
        created,
        Err(Error::Record(RecordError::File { cause, .. })) if cause.kind() == ErrorKind::AlreadyExists
    )
}
