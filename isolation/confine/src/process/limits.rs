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
    let mut taken = [&STANDARD, kept].concat();
    taken.sort_unstable();
    taken.dedup();

    limit(Resource::As, confinement.address_space_bytes)?;
    limit(Resource::Data, confinement.private_bytes)?;
    limit(Resource::Cpu, confinement.cpu_seconds)?;
    limit(Resource::Fsize, Some(confinement.file_bytes))?;
    limit(Resource::Nofile, Some(bound(&taken, confinement.new_descriptors)))?;
    for unused in [Resource::Core, Resource::Memlock, Resource::Msgqueue, Resource::Nice] {
        limit(unused, Some(0))?;
    }
    limit(Resource::Rtprio, Some(0))?;
    // Elsewhere, all processes of the user count.
    if has_own_users {
        limit(Resource::Nproc, Some(confinement.threads))?;
    }
    Ok(())
}

/// Lowers both limits of a resource. The CPU time has a second between them, so that the first signal
/// says what happened.
fn limit(resource: Resource, most: Option<u64>) -> io::Result<()> {
    let Some(most) = most else { return Ok(()) };
    let before = getrlimit(resource);
    let at_most = |bound: Option<u64>, most: u64| bound.map_or(most, |bound| bound.min(most));
    let spare = u64::from(resource == Resource::Cpu);
    let maximum = at_most(before.maximum, most.saturating_add(spare));
    let current = at_most(before.current, most).min(maximum);
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
