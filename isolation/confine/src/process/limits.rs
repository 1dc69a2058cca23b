//! The limits of the process, which it can't raise again.

use std::io;
use std::os::fd::RawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::sys::STANDARD;
use crate::confinement::Confinement;

/// Sets all limits. `kept` are the descriptors that stay open beside the standard ones, in order.
pub(super) fn apply(
    confinement: &Confinement<'_>,
    kept: &[RawFd],
    has_own_users: bool,
) -> io::Result<()> {
    use Resource::{Core, Memlock, Msgqueue, Nice, Rtprio};
    let mut taken = [&STANDARD, kept].concat();
    taken.sort_unstable();
    taken.dedup();

    if let Some(most) = confinement.private_bytes {
        limit(Resource::Data, most)?;
    }
    limit(Resource::Fsize, confinement.file_bytes)?;
    limit(Resource::Nofile, bound(&taken, confinement.new_descriptors))?;
    for unused in [Core, Memlock, Msgqueue, Nice, Rtprio] {
        limit(unused, 0)?;
    }
    // Elsewhere, all processes of the user count.
    if has_own_users {
        limit(Resource::Nproc, confinement.threads)?;
    }
    Ok(())
}

/// Lowers both limits of a resource.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let before = getrlimit(resource);
    let maximum = before.maximum.map_or(most, |bound| bound.min(most));
    let current = before.current.map_or(maximum, |bound| bound.min(maximum));
    Ok(setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })?)
}

/// Returns the smallest bound on the numbers of descriptors below which `spare` ones are free. Those
/// above it that are open stay so.
fn bound(kept: &[RawFd], spare: u64) -> u64 {
    let mut bound = spare;
    for number in kept.iter().filter_map(|number| u64::try_from(*number).ok()) {
        if number < bound {
            bound += 1;
        }
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_new_descriptors_have_room() {
        for (kept, spare, expected) in [
            (&[][..], 0, 0),
            (&[], 2, 2),
            (&[0, 1, 2], 0, 0),
            (&[0, 1, 2], 1, 4),
            (&[3, 57], 2, 2),
            (&[3, 57], 4, 5),
            (&[1, 3], 2, 3),
            (&[1, 2, 3], 2, 5),
        ] {
            let bound = bound(kept, spare);
            let free = (0..bound).filter(|number| !kept.contains(&(*number as RawFd))).count();
            assert_eq!((bound, free as u64), (expected, spare), "{kept:?}");
        }
    }
}
