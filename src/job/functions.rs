//! The host functions of one job.

use super::Job;
use crate::functions::HostFunction;

impl Job {
    /// Adds a host function that only this job can call. It comes before a function of the same
    /// name of the session or the pool. An invalid name, and two functions of the job with the same
    /// name, are refused when the job is submitted.
    ///
    /// A later job of the same session can't call it: a reference that the program kept raises
    /// `AttributeError` then, unless that job has a function of the same name. What the closure
    /// holds is dropped once the job and its calls have ended and no clone of the job is left.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::{HostError, HostFunction, Job};
    ///
    /// let user = "ada".to_owned();
    /// let name = HostFunction::sync("user", move |()| Ok::<_, HostError>(user.clone()));
    /// let source = "from hatchery import host; 'hello ' + host.user()";
    /// let outcome = pool.run(Job::code(source).function(name.no_parameters())).await?;
    /// assert!(outcome.is_success());
    /// # Ok(())
    /// # }
    /// ```
    pub fn function(mut self, function: HostFunction) -> Self {
        self.functions.push(function);
        self
    }

    /// Adds host functions that only this job can call, as [`Self::function`] does.
    ///
    /// ```
    /// use hatchery::{HostError, HostFunction, Job};
    ///
    /// let constants = [("e", 2.718), ("pi", 3.142)].map(|(name, value)| {
    ///     HostFunction::sync(name, move |()| Ok::<_, HostError>(value)).no_parameters()
    /// });
    /// let job = Job::code("from hatchery import host; host.pi() / 2").functions(constants);
    /// ```
    pub fn functions(mut self, functions: impl IntoIterator<Item = HostFunction>) -> Self {
        self.functions.extend(functions);
        self
    }

    pub(crate) fn take_functions(&mut self) -> Vec<HostFunction> {
        std::mem::take(&mut self.functions)
    }
}
