//! A session of the cluster, from the side that submits its turns.

use crate::client::{Client, Ticket, Wants};
use crate::error::Error;
use crate::names::Lane;
use crate::result::JobResult;
use crate::sessions::SessionKey;

/// A state in the cluster that lives from job to job, under a name. Cheap to clone.
///
/// Its jobs run in the order in which the server got them, one at a time, on any worker. Each is
/// applied exactly once, although a worker that dies may have run it before without a result. The field
/// `session` of a result has the name and the number of the turn.
///
/// Nothing is opened: the first turn starts with a fresh state. So does the first one after the
/// session has expired.
///
/// ```no_run
/// # async fn example(client: cluster::Client) -> Result<(), cluster::Error> {
/// let session = client.session("analysis")?;
/// session.run(&wire::Job::code("x = 42")).await?;
/// let result = session.run(&wire::Job::code("x")).await?;
/// assert_eq!(result.json()["value"], 42);
/// assert_eq!(result.json()["session"]["turn"], 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    client: Client,
    name: String,
    tenant: Option<String>,
}

impl Client {
    /// Returns the session of this name, of jobs without a tenant.
    ///
    /// # Errors
    /// A session can't have this name: it has 1 to 128 bytes, no control characters, and
    /// no blanks at its ends.
    pub fn session(&self, name: &str) -> Result<Session, Error> {
        let session = Session { client: self.clone(), name: name.to_owned(), tenant: None };
        session.key().map(|_| session)
    }
}

impl Session {
    /// Returns this tenant's session of the same name. Its jobs are the tenant's.
    ///
    /// # Errors
    /// The tenant's name is too long.
    pub fn tenant(self, tenant: impl Into<String>) -> Result<Self, Error> {
        let session = Self { tenant: Some(tenant.into()), ..self };
        session.key().map(|_| session)
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a job as the next turn, and waits for its result.
    ///
    /// # Errors
    /// As for [`Client::submit`], or the job's tenant is another one than the session's.
    pub async fn run(&self, job: &wire::Job) -> Result<JobResult, Error> {
        self.submit(job).await?.await
    }

    /// Submits a job as the next turn. Returns when the server has it.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub async fn submit(&self, job: &wire::Job) -> Result<Ticket, Error> {
        self.submit_wanting(job.clone(), Wants::default()).await
    }

    /// Submits a job as the next turn, and asks for more than its result. The turn has its place as
    /// soon as this returns, so several futures can be awaited in any order.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn submit_wanting(
        &self,
        job: wire::Job,
        wants: Wants,
    ) -> impl Future<Output = Result<Ticket, Error>> + Send + use<> {
        let session = self.clone();
        let placed = self.key_of(&job).map(|key| (key.clone(), self.client.place(key)));
        async move {
            let (key, place) = placed?;
            let _place = place.await;
            session.client.streams().sessions().await?;
            let job = wire::Job { tenant: session.tenant, ..job };
            session.client.send(&job, wants, Some((&key, &session.name))).await
        }
    }

    /// Forgets the session: its next turn begins with a fresh state. What a turn does that runs
    /// meanwhile is lost.
    ///
    /// # Errors
    /// The server doesn't answer, or refuses.
    pub async fn forget(&self) -> Result<(), Error> {
        let sessions = self.client.streams().sessions().await?;
        let forgotten = sessions.forget(&self.key()?).await;
        forgotten.map_err(|error| Error::server("forget a session", error))
    }

    /// Checks that a job can be a turn.
    fn key_of(&self, job: &wire::Job) -> Result<SessionKey, Error> {
        if job.file.is_some() {
            return Err(Error::File);
        }
        if job.tenant.is_some() && job.tenant != self.tenant {
            return Err(Error::SessionTenant);
        }
        self.key()
    }

    fn key(&self) -> Result<SessionKey, Error> {
        let job = wire::Job { tenant: self.tenant.clone(), ..wire::Job::default() };
        SessionKey::of(&Lane::of(&job)?, &self.name)
    }
}
