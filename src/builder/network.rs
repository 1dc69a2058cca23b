//! What a pool's programs may connect to.

use engine::Destination;

use super::Builder;

impl Builder {
    /// Lets every job open TCP connections to exactly these destinations, on builds that have
    /// sockets, which are those for WASIX. It can be repeated. A job can ask for fewer
    /// ([`Job::allow_connect`](crate::Job::allow_connect)), but not for more, and jobs that come as
    /// JSON can't ask at all. Default: none.
    ///
    /// A name leads to the public addresses that this machine finds for it; loopback and private
    /// addresses are reached only if they are listed as addresses. The start fails if no build of
    /// the pool has sockets, or if its interpreters are in processes.
    ///
    /// ```
    /// use hatchery::{Destination, Hatchery};
    ///
    /// let destinations = ["api.example.com:443", "127.0.0.1:5432"];
    /// let destinations: Result<Vec<Destination>, _> =
    ///     destinations.into_iter().map(str::parse).collect();
    /// let builder = Hatchery::builder().allow_connect(destinations?);
    /// # Ok::<(), hatchery::error::InvalidDestination>(())
    /// ```
    pub fn allow_connect(mut self, destinations: impl IntoIterator<Item = Destination>) -> Self {
        let before = self.network.destinations().cloned();
        self.network = before.chain(destinations).collect();
        self
    }
}
