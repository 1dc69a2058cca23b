//! The state of a session in which the stand-in for IPython is installed. Fresh sessions continue
//! from it: installing takes some 250 ms of compiling, continuing takes a few.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hatchery::{Checkpoint, Error, Hatchery, Job, Limits, Session};
use tokio::sync::Mutex;

use crate::guest;
use crate::problem::Problem;

/// What the name of a session begins with in which a state is prepared. No client can send it.
const NAME: &str = "\u{1}notebook";

/// The prepared states of one pool, one for each Python build that sessions were opened on. Clones
/// share them.
///
/// ```no_run
/// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
/// use hatchery::Limits;
/// use notebook::Prepared;
///
/// let prepared = Prepared::default();
/// let session = pool.session("notebook").await?;
/// session.run(prepared.first_job(&pool, &session, &Limits::default()).await).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    states: Arc<Mutex<HashMap<String, Checkpoint>>>,
}

impl Prepared {
    /// Returns the first job of a fresh session, after which it runs cells with these limits. The
    /// session takes the prepared state now. If that is impossible, the job installs everything in the
    /// session, and says why if that fails, too.
    pub async fn first_job(&self, pool: &Hatchery, session: &Session, limits: &Limits) -> Job {
        let taken = match self.state(pool, session.python(), limits).await {
            Some(state) => session.restore(&state).await.is_ok(),
            None => false,
        };
        if taken { guest::start(limits) } else { guest::begin(limits) }
    }

    /// Returns the state for a build, which is prepared if it isn't yet.
    async fn state(&self, pool: &Hatchery, python: &str, limits: &Limits) -> Option<Checkpoint> {
        let mut states = Arc::clone(&self.states).lock_owned().await;
        if let Some(state) = states.get(python) {
            return Some(state.clone());
        }
        let (pool, python, limits) = (pool.clone(), python.to_owned(), limits.clone());
        // It goes on if the caller leaves, since others wait for it.
        let preparing = tokio::spawn(async move {
            let prepared = prepare(&pool, &python, &limits).await.ok().flatten()?;
            states.insert(python, prepared.clone());
            Some(prepared)
        });
        preparing.await.ok().flatten()
    }
}

/// Prepares a state; `None` if its job fails.
async fn prepare(
    pool: &Hatchery,
    python: &str,
    limits: &Limits,
) -> Result<Option<Checkpoint>, Error> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let session = pool.session_on(&format!("{NAME} {number}"), python).await?;
    let prepared = in_session(&session, limits).await;
    session.close();
    prepared
}

async fn in_session(session: &Session, limits: &Limits) -> Result<Option<Checkpoint>, Error> {
    if Problem::of(&session.run(guest::begin(limits)).await?).is_some() {
        return Ok(None);
    }
    let state = session.checkpoint().await?;
    // A copy that only its worker process has is lost with that. Continuing from it fetches it.
    session.restore(&state).await?;
    let started = session.run(guest::start(limits)).await?;
    Ok(Problem::of(&started).is_none().then_some(state))
}
