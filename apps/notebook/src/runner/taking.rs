//! From where a notebook continues: its saved session, or the state that an earlier command left.

use std::sync::Arc;

use hatchery::error::chain;

use super::{Run, session_name};
use crate::error::Error;
use crate::prefixes::state::take_over;

impl Run<'_> {
    /// Revives the saved session, or says why not.
    pub(super) async fn resume(&mut self) -> Result<(), String> {
        let record = self.task.places.record()?;
        let name = session_name(&self.task);
        let session = self.settings.pool.revive(&name, &self.task.places.session).await;
        let session = session.map_err(|error| chain(&error).to_string())?;
        let (image, inputs) = (self.settings.image(), self.settings.input_digest());
        match record.apply(&mut self.task.notebook, image, inputs) {
            Ok((done, places)) => {
                (self.done, self.traces.places) = (done, places);
                self.session = Some(session);
                Ok(())
            }
            Err(why) => {
                // A fresh session takes its name.
                let reset = session.reset().await;
                reset.map_err(|error| chain(&error).to_string())?;
                Err(why)
            }
        }
    }

    /// Takes over the latest state that an earlier command left.
    pub(super) async fn take_from_shelf(&mut self) -> Result<(), Error> {
        let Some(shelf) = self.shelf() else { return Ok(()) };
        for count in (1..=self.keys.len()).rev() {
            let (key, place) = (self.keys[count - 1], Arc::clone(shelf));
            let found = tokio::task::spawn_blocking(move || place.find(key, count)).await;
            let Some((kept, path)) = found.ok().flatten() else { continue };
            let (is_whole, has_files) = (count == self.total, kept.has_files());
            let session = match is_whole && !has_files {
                true => None,
                // Another command may have removed it, and it may be damaged.
                false => match self.settings.pool.revive(&session_name(&self.task), &path).await {
                    Ok(session) => Some(session),
                    Err(_) => {
                        shelf.remove(key);
                        continue;
                    }
                },
            };
            let workspace = match &session {
                Some(session) if has_files => Some(session.workspace().await?),
                _ => None,
            };
            let contents = |path: &str| workspace.as_ref()?.read(path);
            let Some((outputs, traces)) = kept.open(contents) else {
                shelf.remove(key);
                // An earlier state, or a fresh session, takes its name.
                if let Some(session) = session {
                    session.close();
                }
                continue;
            };
            self.session = session;
            take_over(&mut self.task.notebook, &outputs);
            self.traces = traces;
            self.pass(count, false);
            if !is_whole {
                self.start_session(false).await?;
            }
            return Ok(());
        }
        Ok(())
    }
}
