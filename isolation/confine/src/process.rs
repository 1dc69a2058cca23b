//! Applies the layers, in an order in which none prevents another.
//!
//! Namespaces come first, since they need rights and paths that later layers take. The filter comes
//! last, since it refuses what the others do.
#![expect(
    unsafe_code,
    reason = "closing descriptors that others may own, which a caller answers for"
)]

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetStatus, Scope};
use rustix::fs::FileType;
use rustix::process::{DumpableBehavior, Signal, getpid, getppid};
use rustix::thread::CapabilitySets;

use crate::confinement::{ConfineError, Confinement, Separation};
use crate::report::{Layer, Report};
use filters::Filters;

pub use sys::{reuse_large_blocks, use_one_heap};
pub use table::CALLS;

mod filters;
mod limits;
mod namespaces;
mod sigsys;
mod sys;
mod table;

/// The newest version of Landlock's interface that this crate was written for. An older kernel
/// enforces what it knows of it.
const LANDLOCK: ABI = ABI::V10;

/// Why Landlock isn't enforced.
const NO_LANDLOCK: &str = "this kernel was built or started without Landlock (`lsm=landlock,…`)";

/// Confines the calling process, permanently. Afterwards it can open nothing. Files that describe
/// it, such as `/proc/self/pagemap`, then belong to root, so open them before.
///
/// `RLIMIT_NOFILE` also bounds how many descriptors one `poll` takes.
///
/// # Errors
/// The process isn't as [`Confinement`] demands, or its parent has ended. It is then confined in
/// part, and must end.
///
/// # Safety
/// Nothing uses or closes a descriptor any more that isn't in [`Confinement::keep`].
pub unsafe fn confine(confinement: &Confinement<'_>) -> Result<Report, ConfineError> {
    sys::check_single_thread()?;
    let mut kept: Vec<RawFd> = confinement.keep.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    kept.iter().try_for_each(|descriptor| check(*descriptor))?;
    let filters = Filters::new(getpid().as_raw_nonzero().get().cast_unsigned())?;
    let mut report = Report::default();

    sys::use_one_heap();
    sys::forbid_implied_exec().map_err(|source| ConfineError::Step {
        step: "keep readable memory from being executable",
        source,
    })?;
    let has_own_users = namespaces::enter(confinement.separation, &mut report);
    report.record(Layer::NoNewPrivileges, rustix::thread::set_no_new_privs(true));
    report.record(Layer::Landlock, restrict_files());
    report.record(Layer::NoCapabilities, drop_capabilities());
    // SAFETY: the caller's promise.
    report.record(Layer::DescriptorsClosed, unsafe { sys::close_others(&kept) });
    report.record(Layer::Limits, limits::apply(confinement, &kept, has_own_users));
    report.record(
        Layer::NotDumpable,
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable),
    );
    // After whatever changes credentials, which would clear it.
    let dies = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    report.record(Layer::DiesWithParent, dies);
    let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get().cast_unsigned());
    // A process outside of its namespace of process ids has the id 0 there.
    let is_outside = confinement.separation.is_some_and(|it| it.report.has(Layer::PidNamespace));
    if parent != if is_outside { 0 } else { confinement.parent } {
        return Err(ConfineError::ParentGone);
    }
    if let Some(word) = confinement.refused {
        sigsys::report_to(word)
            .map_err(|source| ConfineError::Step { step: "handle `SIGSYS`", source })?;
    }
    report.record(Layer::Seccomp, filters.apply());
    Ok(report)
}

/// Makes namespaces for the children that the calling process forks from here on: they are in a network
/// without interfaces, and see no process but each other. The calling process itself is there as
/// well, except for the process ids. Its files stay as they are; [`confine`] takes those of each child.
///
/// The first process of a namespace of process ids is its init, and the namespace ends with it. So
/// this forks a child that sleeps until its parent ends: [`Separation::keeper`].
///
/// # Errors
/// The process has other threads, or can't fork.
pub fn separate() -> Result<Separation, ConfineError> {
    sys::check_single_thread()?;
    let mut report = Report::default();
    let keeper = namespaces::make_shared(&mut report)?;
    Ok(Separation { report, keeper })
}

/// Refuses descriptors that lead to more than they are.
fn check(descriptor: RawFd) -> Result<(), ConfineError> {
    let unknown = |source| ConfineError::Unknown { descriptor, source };
    let refused = |reason| Err(ConfineError::Descriptor { descriptor, reason });
    match sys::file_type(descriptor).map_err(unknown)? {
        FileType::Directory => refused("it is a folder"),
        FileType::Socket if !sys::is_unix_connection(descriptor).map_err(unknown)? => {
            refused("it is a socket other than a connected Unix socket of a stream or of packets")
        }
        _ => Ok(()),
    }
}

/// Puts the calling thread under a Landlock domain without any rule.
fn restrict_files() -> Result<(), String> {
    let enforced = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(LANDLOCK)))
        .and_then(|rules| rules.scope(Scope::from_all(LANDLOCK)))
        .and_then(landlock::Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(|error| error.to_string())?;
    match enforced.ruleset {
        RulesetStatus::NotEnforced => Err(NO_LANDLOCK.to_owned()),
        _ => Ok(()),
    }
}

fn drop_capabilities() -> io::Result<()> {
    let none = rustix::thread::CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::net::{TcpListener, TcpStream};

    use landlock::{CompatLevel, Compatible};

    /// Landlock and capabilities are of a thread, so one can try them without the other layers.
    #[test]
    fn landlock_alone_takes_files_and_networks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let confined = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            let networks = AccessNet::from_all(ABI::V4);
            let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
            let has_networks = required.handle_access(networks).is_ok();
            if let Err(reason) = restrict_files() {
                // The kernel of this machine is configured without it.
                assert_eq!(reason, NO_LANDLOCK);
                return;
            }
            drop_capabilities().unwrap();
            let denied = io::ErrorKind::PermissionDenied;
            assert_eq!(File::open("/etc/passwd").unwrap_err().kind(), denied);
            assert_eq!(std::fs::read_dir("/").unwrap_err().kind(), denied);
            let folder = std::env::temp_dir().join("confine-made-by-a-test");
            assert_eq!(std::fs::create_dir(folder).unwrap_err().kind(), denied);
            if has_networks {
                assert_eq!(TcpStream::connect(address).unwrap_err().kind(), denied);
                assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), denied);
            }
            let capabilities = rustix::thread::capabilities(None).unwrap();
            assert!(capabilities.effective.is_empty() && capabilities.permitted.is_empty());
        });
        confined.join().unwrap();
        assert!(File::open("/etc/passwd").is_ok(), "other threads go on as before");
    }
}
