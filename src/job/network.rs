//! What one job may connect to.

use engine::{Destination, Network};

use super::Job;

impl Job {
    /// Lets the job connect to these destinations alone, out of those that the pool allows
    /// ([`Builder::allow_connect`](crate::Builder::allow_connect)); without any, to nothing. A job
    /// that asks for another one is refused when it is submitted. Default: to all that the pool
    /// allows.
    ///
    /// A connection ends with the job, also in a session. A deterministic job, and one whose host
    /// calls are replayed, connects to nothing.
    ///
    /// ```
    /// use hatchery::{Destination, Job};
    ///
    /// let api: Destination = "api.example.com:443".parse()?;
    /// let job = Job::code("import socket").allow_connect([api]);
    /// # Ok::<(), hatchery::error::InvalidDestination>(())
    /// ```
    pub fn allow_connect(mut self, destinations: impl IntoIterator<Item = Destination>) -> Self {
        self.network = Some(destinations.into_iter().collect::<Network>());
        self
    }

    pub(crate) fn take_network(&mut self) -> Option<Network> {
        self.network.take()
    }
}
