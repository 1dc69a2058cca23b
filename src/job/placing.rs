//! Where and when a job runs: whose it is, how urgent, and on which Python build.

use std::sync::Arc;
use std::time::Duration;

use scheduler::Priority;

use super::Job;

impl Job {
    /// Sets the tenant whose job it is. Tenants share the CPU time by their weights, however many
    /// jobs each submits; see [`Builder::tenant`](crate::Builder::tenant). Any name is allowed.
    /// Default: [`DEFAULT_TENANT`](crate::DEFAULT_TENANT).
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("1 + 1").tenant("web");
    /// ```
    pub fn tenant(mut self, name: impl Into<Arc<str>>) -> Self {
        self.tenant = Some(name.into());
        self
    }

    /// Sets its priority among the jobs of its tenant. No job waits forever: a job of normal
    /// priority counts as submitted 30 seconds later than it was, one of low priority 60. The turns
    /// of a session still run in order. Default: [`Priority::Normal`].
    ///
    /// ```
    /// use hatchery::{Job, Priority};
    ///
    /// let job = Job::code("1 + 1").priority(Priority::High);
    /// ```
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets when the outcome is due, from submission. If the measured times say that it can't be
    /// met, or it is zero, the job is refused at once with the estimate,
    /// [`Refusal::DeadlineTooSoon`](crate::Refusal::DeadlineTooSoon). If the deadline passes while
    /// the job waits or runs, the job ends with the limit
    /// [`LimitKind::Deadline`](crate::LimitKind::Deadline), by an interrupt as for any limit on
    /// time. An early deadline doesn't move a job ahead. Default: none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hatchery::{Job, Priority};
    /// let job = Job::code("1 + 1")
    ///     .tenant("notebook")
    ///     .priority(Priority::High)
    ///     .deadline(Duration::from_millis(200));
    /// ```
    pub fn deadline(mut self, from_submission: Duration) -> Self {
        self.deadline = Some(from_submission);
        self
    }

    /// Sets whether the job may safely run twice. If so, it is retried in a fresh interpreter when
    /// the sandbox fails or its worker dies, up to [`Builder::retries`](crate::Builder::retries)
    /// times; a failure of the program itself is never retried. A job of a session is never
    /// retried. Readers of its events see
    /// [`EventKind::Retried`](crate::event::EventKind::Retried) between two tries. Default: yes for
    /// a job without a session that can call no host functions.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// // It calls a host function that sends a message, so it must not run twice.
    /// let job = Job::code("from hatchery import host; host.send(text='hi')").idempotent(false);
    /// ```
    pub fn idempotent(mut self, is_idempotent: bool) -> Self {
        self.idempotent = Some(is_idempotent);
        self
    }

    /// Sets the Python build on which the job runs, by its name in the pool
    /// ([`Builder::python_named`](crate::Builder::python_named)); `default` is the default build. A
    /// job for a build that the pool doesn't have is refused with
    /// [`InvalidPython`](crate::error::InvalidPython), which lists those it has. In a session it can
    /// only be the session's build. Default: the session's build, else the default one.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("import sys; sys.version").python("3.12");
    /// ```
    pub fn python(mut self, name: impl Into<Arc<str>>) -> Self {
        self.python = Some(name.into());
        self
    }

    /// Returns the name of the build that it asks for.
    pub(crate) fn wanted_python(&self) -> Option<&str> {
        self.python.as_deref()
    }
}
