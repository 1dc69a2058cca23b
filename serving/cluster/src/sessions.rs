//! Sessions with a home: a state that lives on in the cluster, whoever runs its turns.
//!
//! A turn is a job of a session. It waits in a stream of its own, whose subjects name one of 64
//! partitions, the tenant and the session. The partition follows from the session's name, and each
//! partition has one consumer, which the server pins to one worker at a time: the home of its
//! sessions. Which worker asks for which partition follows from who lives, by `policy/homes.rs`.
//!
//! | name | what it holds |
//! |---|---|
//! | `hatchery-POOL-turns` | turns, until their results are stored |
//! | `hatchery-POOL-sessions` | a record of each session: its last turn, its state, its owner |
//! | `hatchery-POOL-states` | the states, as `Session::save` writes them |
//!
//! The pin only keeps workers from doing the same work. What is promised rests on the record, which
//! is only ever replaced by compare-and-set, in these steps:
//!
//! 1. The owner looks for the first turn of the session in the stream. Consumers tell that there is
//!    one, never which: a stream keeps its order, whatever is delivered again.
//! 2. If the record isn't the owner's, it *takes over*: it writes itself into the record. From then
//!    on whatever an earlier owner still does fails.
//! 3. It runs the turn on the state that the record names, and stores the new state under a name
//!    that nobody else uses.
//! 4. It *commits*: the number of the turn, its key, its result and the digest of the state go into
//!    the record together. Whoever fails here drops its copy and the state that it stored.
//! 5. It stores the result, and then removes the turn. A turn whose key is that of the record is in
//!    the state already, so whoever finds one goes on here.
//!
//! So a turn is in the state once, in order, with the result that belongs to it. It may be run more
//! often: an owner that dies or is taken for dead before step 4 has run it in vain.
//!
//! Everything is created by the first turn of a pool. A record that nobody has written for as long
//! as results are kept is dropped by the server, and its state some time later.

pub(crate) use key::{PARTITIONS, SessionKey, Turn};
pub use list::{SessionEntry, SessionList};
pub(crate) use store::{GROUP, LARGEST_STATE, RecordError, Replaced, Revised, Sessions};

mod key;
mod list;
mod store;
