//! Each layer by itself, as far as others don't hide it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use confine::{ConfineError, Confinement, Layer, Report};

use super::support::{
    End, be_parent, become_nobody, borrowed, confine, confine_bare, now, of_child, raw, run,
    shared, start, wait,
};

/// What this machine offers, as it tells a process that asks for everything.
fn offered(is_root: bool) -> Report {
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    let end = run(|| {
        if !is_root {
            become_nobody();
        }
        let confinement = Confinement { keep: &[writer.as_fd()], ..of_child() };
        let report = confine(&confinement).unwrap();
        writer.write_all(&serde_json::to_vec(&report).unwrap()).unwrap();
        0
    });
    drop(writer);
    assert_eq!(end, End::Exit(0));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn user(is_root: bool) -> &'static str {
    if is_root { "this user" } else { "nobody" }
}

pub(crate) fn all_layers_show_from_outside() {
    for is_root in [true, false] {
        let report = offered(is_root);
        println!("confine as {}:\n{report:#?}", user(is_root));
        assert!(Layer::ALL.iter().all(|layer| report.layers.contains_key(layer)));
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let leaked = File::open("/etc/passwd").unwrap();
        let child = start(|| {
            if !is_root {
                become_nobody();
            }
            let confinement = Confinement {
                keep: &[there.as_fd()],
                private_bytes: Some(1 << 39),
                file_bytes: 4096,
                new_descriptors: 1,
                ..of_child()
            };
            confine(&confinement).unwrap();
            there.write_all(b"x").unwrap();
            i32::from(there.read_exact(&mut [0]).is_err())
        });
        here.read_exact(&mut [0]).unwrap();
        let seen = Seen { child };
        let status = seen.read("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().to_owned()
        };
        assert_eq!(field("NoNewPrivs"), "1");
        assert_eq!((field("Seccomp"), field("Seccomp_filters")), ("2".into(), "2".into()));
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        // The rest belongs to root, since the process isn't dumpable.
        if raw(libc::SYS_geteuid, []) != 0 {
            let hidden = fs::read_dir(format!("/proc/{child}/fd")).unwrap_err();
            assert_eq!(hidden.kind(), std::io::ErrorKind::PermissionDenied);
            here.write_all(b"x").unwrap();
            assert_eq!(wait(child), End::Exit(0));
            continue;
        }
        let mut descriptors = seen.names("fd");
        descriptors.sort();
        assert_eq!(descriptors, ["0", "1", "2", &there.as_raw_fd().to_string()]);
        for standard in 0..3 {
            let leads_to = fs::read_link(format!("/proc/{child}/fd/{standard}")).unwrap();
            assert!(leads_to.to_string_lossy().starts_with("pipe:"), "{}", leads_to.display());
        }
        assert!(there.as_raw_fd() != leaked.as_raw_fd());
        // A process that isn't dumpable belongs to root there.
        let owner = fs::metadata(format!("/proc/{child}/environ")).unwrap().uid();
        assert_eq!(owner, 0);
        let limits = seen.read("limits");
        for (limit, soft, hard) in [
            ("Max file size", "4096", "4096"),
            ("Max core file size", "0", "0"),
            ("Max data size", "549755813888", "549755813888"),
            ("Max locked memory", "0", "0"),
        ] {
            let line = limits.lines().find_map(|line| line.strip_prefix(limit)).unwrap();
            let values: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(values[..2], [soft, hard], "{limit}");
        }
        let namespace =
            |process: &str, kind: &str| fs::read_link(format!("/proc/{process}/ns/{kind}"));
        for (layer, kind) in [
            (Layer::UserNamespace, "user"),
            (Layer::NetworkNamespace, "net"),
            (Layer::IpcNamespace, "ipc"),
            (Layer::MountNamespace, "mnt"),
        ] {
            let is_own =
                namespace(&child.to_string(), kind).unwrap() != namespace("self", kind).unwrap();
            assert!(is_own || !report.has(layer), "{layer}");
        }
        if report.has(Layer::MountNamespace) {
            assert_eq!(seen.names("root"), Vec::<String>::new());
            let mounts = seen.read("mounts");
            assert_eq!(mounts.lines().count(), 1, "{mounts}");
            assert!(mounts.contains(" / tmpfs ro,nosuid,nodev,noexec"), "{mounts}");
        }
        here.write_all(b"x").unwrap();
        assert_eq!(wait(child), End::Exit(0));
    }
}

/// A child, as `/proc` shows it.
struct Seen {
    child: i32,
}

impl Seen {
    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child)).unwrap()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(format!("/proc/{}/{folder}/", self.child)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// A process that doesn't want to die of a refused call does, maybe without telling which one it was.
pub(crate) fn a_second_handler_changes_nothing() {
    type Trick = fn();
    let block: Trick = || {
        let blocked = u64::MAX;
        let blocked = std::ptr::from_ref(&blocked).addr() as i64;
        assert_eq!(raw(libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK.into(), blocked, 0, 8]), 0);
    };
    let no_stack: Trick = || {
        let stack = [8i64, 0, 65_536];
        assert_eq!(raw(libc::SYS_sigaltstack, [stack.as_ptr().addr() as i64, 0]), 0);
    };
    let again: Trick = || {
        let action = [on_signal as *const () as i64, 0, 0, 0];
        raw(libc::SYS_rt_sigaction, [libc::SIGSYS.into(), action.as_ptr().addr() as i64, 0, 8]);
    };
    for (trick, signals) in [
        (block, &[libc::SIGSYS][..]),
        (no_stack, &[libc::SIGSYS, libc::SIGSEGV]),
        (again, &[libc::SIGSYS]),
    ] {
        let shared = shared();
        let end = run(|| {
            confine_bare(shared);
            trick();
            raw(libc::SYS_getppid, []);
            shared.words[0].store(1, Ordering::SeqCst);
            0
        });
        assert!(signals.iter().any(|signal| end == End::Signal(*signal)), "{end:?}");
        assert_eq!(shared.words[0].load(Ordering::SeqCst), 0);
    }
    // Without a word for it, the signal alone says that a call was refused.
    let end = run(|| {
        confine(&of_child()).unwrap();
        raw(libc::SYS_getppid, []);
        0
    });
    assert_eq!(end, End::Signal(libc::SIGSYS));
}

extern "C" fn on_signal(_signal: i32) {}

pub(crate) fn limits_hold() {
    let confinement = Confinement {
        new_descriptors: 2,
        file_bytes: 8192,
        private_bytes: Some(1 << 28),
        ..of_child()
    };
    let memory_file = || raw(libc::SYS_memfd_create, [c"a".as_ptr().addr() as i64, 1]);
    let errno = |error: i32| -i64::from(error);
    let end = run(|| {
        confine(&confinement).unwrap();
        let byte = [0u8; 1];
        let byte = byte.as_ptr().addr() as i64;
        assert_eq!(raw(libc::SYS_read, [0, byte, 1]), 0);
        assert_eq!(raw(libc::SYS_write, [1, byte, 1]), errno(libc::EBADF));
        eprintln!("nobody reads this, and nothing panics");
        let (first, second) = (memory_file(), memory_file());
        assert!(first >= 0 && second >= 0, "{first} {second}");
        assert_eq!(memory_file(), errno(libc::EMFILE));
        assert_eq!(raw(libc::SYS_close, [second]), 0);
        assert_eq!(memory_file(), second);
        assert_eq!(memory_file(), errno(libc::EMFILE));
        let copy = [first, libc::F_DUPFD_CLOEXEC.into(), 0];
        assert_eq!(raw(libc::SYS_fcntl, copy), errno(libc::EMFILE));
        assert_eq!(raw(libc::SYS_ftruncate, [first, 8192]), 0);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let map = |bytes: i64, access: i32| {
            raw(libc::SYS_mmap, [0, bytes, access.into(), flags.into(), -1, 0])
        };
        assert_eq!(map(1 << 29, libc::PROT_READ | libc::PROT_WRITE), errno(libc::ENOMEM));
        assert!(map(1 << 29, libc::PROT_NONE) > 0, "what is only reserved isn't counted");
        0
    });
    assert_eq!(end, End::Exit(0));
    let end = run(|| {
        confine(&confinement).unwrap();
        let file = memory_file();
        raw(libc::SYS_ftruncate, [file, 8193]);
        0
    });
    assert_eq!(end, End::Signal(libc::SIGXFSZ));
    // The kernel excepts root from this one.
    if offered(false).has(Layer::UserNamespace) {
        for is_separate in [false, true] {
            assert_eq!(run(|| start_threads(is_separate)), End::Exit(0));
        }
    }
}

/// Starts two threads, and fails to start a third one.
fn start_threads(is_separate: bool) -> i32 {
    become_nobody();
    be_parent();
    let separation = is_separate.then(|| confine::separate().unwrap());
    let end = run(|| {
        confine(&Confinement { threads: 3, separation: separation.as_ref(), ..of_child() })
            .unwrap();
        let wait = Arc::new(Barrier::new(3));
        let spawn = || {
            let wait = Arc::clone(&wait);
            std::thread::Builder::new().spawn(move || wait.wait())
        };
        let threads = [spawn(), spawn()];
        assert!(threads.iter().all(Result::is_ok));
        assert_eq!(spawn().unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        wait.wait();
        0
    });
    i32::from(end != End::Exit(0))
}

pub(crate) fn only_harmless_descriptors_are_kept() {
    let (stream, _other) = UnixStream::pair().unwrap();
    let (datagram, _other_datagram) = UnixDatagram::pair().unwrap();
    let folder = File::open("/").unwrap();
    let file = File::open("/etc/passwd").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = UnixListener::bind_addr(&abstract_address()).unwrap();
    for (descriptor, is_kept) in [
        (stream.as_fd(), true),
        (file.as_fd(), true),
        (folder.as_fd(), false),
        (datagram.as_fd(), false),
        (tcp.as_fd(), false),
        (udp.as_fd(), false),
        (listener.as_fd(), false),
        (borrowed(999), false),
    ] {
        let end = run(|| match confine(&Confinement { keep: &[descriptor], ..of_child() }) {
            Ok(_) => 1,
            Err(ConfineError::Descriptor { .. }) => 2,
            Err(ConfineError::Unknown { descriptor: 999, .. }) => 3,
            Err(_) => 4,
        });
        let expected = if is_kept {
            1
        } else if descriptor.as_raw_fd() == 999 {
            3
        } else {
            2
        };
        assert_eq!(end, End::Exit(expected), "{descriptor:?}");
    }
}

fn abstract_address() -> std::os::unix::net::SocketAddr {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("confine-{}", std::process::id());
    std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap()
}

pub(crate) fn a_process_with_threads_is_refused() {
    let end = run(|| {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<()>(0);
        let thread = std::thread::spawn(move || receiver.recv());
        let refused = matches!(confine(&of_child()), Err(ConfineError::Threads))
            && matches!(confine::separate(), Err(ConfineError::Threads));
        drop(sender);
        assert!(thread.join().unwrap().is_err());
        i32::from(!refused)
    });
    assert_eq!(end, End::Exit(0));
}

/// Waits until no process holds the other end any more.
fn wait_for_end(reader: &mut UnixStream) {
    reader.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "a process is left");
}

pub(crate) fn it_dies_with_its_parent() {
    for is_separate in [false, true] {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let (mut ready, mut tell) = UnixStream::pair().unwrap();
        let zygote = start(|| {
            be_parent();
            let separation = is_separate.then(|| confine::separate().unwrap());
            start(|| {
                let keep = [writer.as_fd(), tell.as_fd()];
                let separation = separation.as_ref();
                confine(&Confinement { keep: &keep, separation, ..of_child() }).unwrap();
                tell.write_all(b"x").unwrap();
                raw(libc::SYS_poll, [0, 0, -1]) as i32
            });
            // Killed, so it tells nobody that it ends.
            (&ready).read_exact(&mut [0]).unwrap();
            raw(libc::SYS_kill, [std::process::id().into(), libc::SIGKILL.into()]) as i32
        });
        drop((writer, tell));
        assert_eq!(wait(zygote), End::Signal(libc::SIGKILL));
        wait_for_end(&mut reader);
        wait_for_end(&mut ready);
    }
}

pub(crate) fn a_parent_that_is_gone_is_noticed() {
    let shared = shared();
    let (mut reader, writer) = UnixStream::pair().unwrap();
    let end = run(|| {
        be_parent();
        let parent = std::process::id();
        start(|| {
            // Until the parent has ended.
            while raw(libc::SYS_getppid, []) == i64::from(parent) {
                raw(libc::SYS_sched_yield, []);
            }
            let refused = confine(&Confinement { keep: &[writer.as_fd()], ..of_child() });
            let is_noticed = matches!(refused, Err(ConfineError::ParentGone));
            shared.words[0].store(1 + u32::from(is_noticed), Ordering::SeqCst);
            0
        });
        0
    });
    drop(writer);
    assert_eq!(end, End::Exit(0));
    wait_for_end(&mut reader);
    assert_eq!(shared.words[0].load(Ordering::SeqCst), 2);
}

pub(crate) fn children_share_namespaces() {
    for is_root in [true, false] {
        let shared = shared();
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let end = run(|| {
            if !is_root {
                become_nobody();
            }
            be_parent();
            let separation = confine::separate().unwrap();
            println!("separate as {}:\n{:#?}", user(is_root), separation.report);
            let Some(keeper) = separation.keeper else {
                assert!(!separation.report.has(Layer::PidNamespace));
                return 0;
            };
            // The parent of workers opens files for them.
            assert!(File::open("/proc/self/status").is_ok());
            let mut inside = Vec::new();
            for worker in 0..3 {
                let child = start(|| {
                    let confinement = Confinement {
                        separation: Some(&separation),
                        refused: Some(&shared.refused),
                        keep: &[writer.as_fd()],
                        ..of_child()
                    };
                    let report = confine(&confinement).unwrap();
                    assert!(report.has(Layer::MountNamespace), "{report:?}");
                    assert!(Layer::ALL.iter().all(|layer| report.layers.contains_key(layer)));
                    for layer in Layer::INHERITED {
                        assert_eq!(report.layers[&layer], separation.report.layers[&layer]);
                    }
                    shared.words[worker].store(raw(libc::SYS_getpid, []) as u32, Ordering::SeqCst);
                    i32::from(std::process::id() > 4)
                });
                assert_eq!(wait(child), End::Exit(0));
                inside.push(shared.words[worker].load(Ordering::SeqCst));
            }
            assert_eq!(inside, [2, 3, 4]);
            // One that dies takes none with it.
            assert_eq!(raw(libc::SYS_kill, [keeper.into(), 0]), 0);
            let end = run(|| {
                let separation = Some(&separation);
                let confinement =
                    Confinement { separation, refused: Some(&shared.refused), ..of_child() };
                confine(&confinement).unwrap();
                raw(libc::SYS_kill, [-1, libc::SIGKILL.into()]) as i32
            });
            assert_eq!(end, End::Signal(libc::SIGSYS));
            assert_eq!(shared.refused().as_deref(), Some("kill"));
            let end = run(|| 7);
            assert_eq!(end, End::Exit(7));
            0
        });
        drop(writer);
        assert_eq!(end, End::Exit(0));
        wait_for_end(&mut reader);
    }
}

pub(crate) fn confining_takes_no_time() {
    const TIMES: usize = 200;
    for is_separate in [false, true] {
        let shared = shared();
        let times = |words: &[std::sync::atomic::AtomicU32; 8]| words[0].load(Ordering::SeqCst);
        let end = run(|| {
            be_parent();
            let before = now();
            let separation = is_separate.then(|| confine::separate().unwrap());
            shared.words[1].store(((now() - before) / 1000) as u32, Ordering::SeqCst);
            let mut all: Vec<u32> = Vec::new();
            for _ in 0..TIMES {
                let end = run(|| {
                    let before = now();
                    let separation = separation.as_ref();
                    confine(&Confinement { separation, ..of_child() }).unwrap();
                    shared.words[0].store(((now() - before) / 1000) as u32, Ordering::SeqCst);
                    0
                });
                assert_eq!(end, End::Exit(0));
                all.push(times(&shared.words));
            }
            all.sort_unstable();
            shared.words[2].store(all[TIMES / 2], Ordering::SeqCst);
            shared.words[3].store(all[TIMES * 99 / 100], Ordering::SeqCst);
            0
        });
        assert_eq!(end, End::Exit(0));
        let [separate, median, p99] =
            [1, 2, 3].map(|word| shared.words[word].load(Ordering::SeqCst));
        let how =
            if is_separate { "in its parent's namespaces" } else { "with its own namespaces" };
        println!(
            "confine {how}: {median} µs in the median, {p99} µs at p99; separate: {separate} µs"
        );
        assert!(median < 50_000, "{median} µs");
    }
}
