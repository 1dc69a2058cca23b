//! What a worker needs still works.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use confine::Confinement;
use linux_raw_sys::general::{
    PAGE_IS_PRESENT, UFFD_API, UFFD_FEATURE_WP_ASYNC, UFFD_FEATURE_WP_UNPOPULATED,
    UFFD_USER_MODE_ONLY, UFFDIO_REGISTER_MODE_WP, page_region, pm_scan_arg, uffdio_api,
    uffdio_range, uffdio_register,
};
use linux_raw_sys::ioctl::{UFFDIO_API, UFFDIO_REGISTER};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, UserfaultfdFlags};
use rustix::process::Resource;

use super::support::{End, become_nobody, borrowed, confine, of_child, raw, run, shared};

const PAGE: usize = 4096;

pub(crate) fn a_worker_does_its_work() {
    for is_root in [true, false] {
        let shared = shared();
        let (parent, child) = UnixStream::pair().unwrap();
        let child = File::from(OwnedFd::from(child));
        let worker = super::support::start(|| {
            if !is_root {
                become_nobody();
            }
            let pagemap = File::open("/proc/self/pagemap").unwrap();
            let watch = write_watch();
            let keep = [child.as_fd(), pagemap.as_fd(), watch.as_fd(), borrowed(2)];
            let confinement = Confinement {
                keep: &keep,
                new_descriptors: 3,
                file_bytes: 1 << 36,
                refused: Some(&shared.refused),
                threads: 3,
                ..of_child()
            };
            confine(&confinement).unwrap();
            work(&child, &pagemap, &watch);
            0
        });
        drop(child);
        let served = run(|| i32::from(serve(&parent).is_err()));
        let ended = super::support::wait(worker);
        assert_eq!(
            (ended, served),
            (End::Exit(0), End::Exit(0)),
            "refused: {:?}",
            shared.refused()
        );
    }
}

fn write_watch() -> OwnedFd {
    let flags = UserfaultfdFlags::CLOEXEC
        | UserfaultfdFlags::NONBLOCK
        | UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
    // SAFETY: the kernel itself serves the faults of write protection.
    let watch = unsafe { rustix::mm::userfaultfd(flags) }.unwrap();
    let features = u64::from(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
    let mut argument = uffdio_api { api: UFFD_API.into(), features, ioctls: 0 };
    let argument = (&raw mut argument).addr() as i64;
    assert_eq!(raw(libc::SYS_ioctl, [watch.as_raw_fd().into(), UFFDIO_API.into(), argument]), 0);
    watch
}

/// The parent's side: gets a memory file, and sends another.
fn serve(parent: &UnixStream) -> std::io::Result<()> {
    let sent = receive(parent.as_raw_fd());
    let mut text = String::new();
    sent.take(5).read_to_string(&mut text)?;
    assert_eq!(text, "state");
    let file = File::from(rustix::fs::memfd_create("answer", MemfdFlags::CLOEXEC)?);
    file.write_all_at(b"answer", 0)?;
    send(parent.as_raw_fd(), &file);
    let mut line = [0; 4];
    (&*parent).read_exact(&mut line)?;
    assert_eq!(&line, b"done");
    Ok(())
}

fn work(socket: &File, pagemap: &File, watch: &OwnedFd) {
    memory(pagemap, watch);
    allocator();
    threads();
    signals();
    clocks();
    files(socket);
    let panicked = std::panic::catch_unwind(|| {
        std::panic::resume_unwind(Box::new("as an import of a guest may"));
    });
    assert!(panicked.is_err());
    (&*socket).write_all(b"done").unwrap();
}

fn memory(pagemap: &File, watch: &OwnedFd) {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let len = 1 << 32;
    // SAFETY: fresh memory, which only this function uses.
    unsafe {
        let area =
            rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags).unwrap();
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap_anonymous(area, 16 * PAGE, writable, flags | MapFlags::FIXED).unwrap();
        let further = area.byte_add(16 * PAGE);
        rustix::mm::mprotect(further, PAGE, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
        area.cast::<u8>().write(1);
        further.cast::<u8>().write(1);
        register(watch, area, 16 * PAGE);
        assert_eq!(scan(pagemap, area, 32 * PAGE), 2);
        rustix::mm::madvise(area, PAGE, Advice::LinuxDontNeed).unwrap();
        assert_eq!((area.cast::<u8>().read(), further.cast::<u8>().read()), (0, 1));
        rustix::mm::mprotect(further, PAGE, MprotectFlags::empty()).unwrap();
        rustix::mm::munmap(area, len).unwrap();
    }
    let mut word = [0; 8];
    let at = word.as_ptr().addr() / PAGE * 8;
    pagemap.read_exact_at(&mut word, at as u64).unwrap();
}

/// Has the kernel note writes to these pages.
fn register(watch: &OwnedFd, area: *mut c_void, len: usize) {
    let range = uffdio_range { start: area.addr() as u64, len: len as u64 };
    let mut argument = uffdio_register { range, mode: UFFDIO_REGISTER_MODE_WP.into(), ioctls: 0 };
    let argument = (&raw mut argument).addr() as i64;
    assert_eq!(
        raw(libc::SYS_ioctl, [watch.as_raw_fd().into(), UFFDIO_REGISTER.into(), argument]),
        0
    );
}

/// Counts the ranges of pages that are there.
fn scan(pagemap: &File, area: *mut c_void, len: usize) -> i64 {
    const PAGEMAP_SCAN: u32 = rustix::ioctl::opcode::read_write::<pm_scan_arg>(b'f', 16);
    let mut found = [page_region { start: 0, end: 0, categories: 0 }; 8];
    let start = area.addr() as u64;
    let mut argument = pm_scan_arg {
        size: size_of::<pm_scan_arg>() as u64,
        flags: 0,
        start,
        end: start + len as u64,
        walk_end: 0,
        vec: found.as_mut_ptr().addr() as u64,
        vec_len: found.len() as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: PAGE_IS_PRESENT.into(),
        category_anyof_mask: 0,
        return_mask: PAGE_IS_PRESENT.into(),
    };
    let argument = (&raw mut argument).addr() as i64;
    raw(libc::SYS_ioctl, [pagemap.as_raw_fd().into(), PAGEMAP_SCAN.into(), argument])
}

fn allocator() {
    let mut bytes: Vec<u8> = vec![1; 1 << 20];
    for _ in 0..6 {
        bytes.resize(bytes.len() * 2, 2);
    }
    bytes.shrink_to(10);
    let map: HashMap<usize, String> =
        (0..10_000).map(|number| (number, number.to_string())).collect();
    assert_eq!((map[&77].as_str(), bytes[0]), ("77", 1));
}

fn threads() {
    let state = Arc::new((Mutex::new(0), Condvar::new()));
    let spawn = |state: Arc<(Mutex<i32>, Condvar)>| {
        let thread = std::thread::Builder::new().name("hatchery-watchdog".to_owned());
        thread.spawn(move || {
            // A second heap would be shrunk here.
            let blocks: Vec<Vec<u8>> = (0..2_000).map(|_| vec![0; 100_000]).collect();
            drop(blocks);
            *state.0.lock().unwrap() += 1;
            state.1.notify_all();
            std::thread::yield_now();
        })
    };
    for _ in 0..3 {
        let thread = spawn(Arc::clone(&state)).unwrap();
        let before = Duration::from_secs(60);
        let guard = state.0.lock().unwrap();
        let waited = state.1.wait_timeout_while(guard, before, |count| *count == 0).unwrap();
        assert!(!waited.1.timed_out());
        drop(waited);
        *state.0.lock().unwrap() = 0;
        thread.join().unwrap();
    }
}

static FAULTS: AtomicUsize = AtomicUsize::new(0);
static PROTECTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_fault(signal: i32) {
    FAULTS.fetch_add(1, Ordering::SeqCst);
    if signal == libc::SIGSEGV {
        let page = ptr::with_exposed_provenance_mut(PROTECTED.load(Ordering::SeqCst));
        // SAFETY: the page of `signals`.
        let _ = unsafe { rustix::mm::mprotect(page, PAGE, MprotectFlags::READ) };
    }
}

fn signals() {
    // SAFETY: handlers that may run at any time, a stack and a page that live as long as they do.
    unsafe {
        let mut stack = vec![0u8; 65_536];
        let stack =
            libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
        assert_eq!(libc::sigaltstack(&raw const stack, ptr::null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        for signal in [libc::SIGSEGV, libc::SIGUSR1] {
            assert_eq!(libc::sigaction(signal, &raw const action, ptr::null_mut()), 0);
        }
        let flags = MapFlags::PRIVATE;
        let page =
            rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, ProtFlags::empty(), flags).unwrap();
        PROTECTED.store(page.expose_provenance(), Ordering::SeqCst);
        assert_eq!(page.cast::<u8>().read_volatile(), 0);
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
        assert_eq!(FAULTS.load(Ordering::SeqCst), 2);
        for signal in [libc::SIGSEGV, libc::SIGUSR1] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let off = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        assert_eq!(libc::sigaltstack(&raw const off, ptr::null_mut()), 0);
    }
}

fn clocks() {
    let before = super::support::now();
    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let slept =
        rustix::thread::clock_nanosleep_relative(rustix::thread::ClockId::Monotonic, &pause);
    assert!(matches!(slept, rustix::thread::NanosleepRelativeResult::Ok));
    assert!(super::support::now() - before >= 2_000_000);
    let thread = raw(libc::SYS_gettid, []);
    let cpu_clock = !thread << 3 | 6;
    let mut time = [0i64; 2];
    assert_eq!(raw(libc::SYS_clock_gettime, [cpu_clock, time.as_mut_ptr().addr() as i64]), 0);
    assert!(time[0] > 0 || time[1] > 0);
    // SAFETY: all zeroes are a value of this plain structure, which is ours to write.
    let faults = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_minflt
    };
    assert!(faults > 0);
    let mut random = [0u8; 32];
    assert_eq!(raw(libc::SYS_getrandom, [random.as_mut_ptr().addr() as i64, 32, 0]), 32);
    assert_ne!(random, [0; 32]);
}

fn files(socket: &File) {
    assert_eq!(rustix::process::getrlimit(Resource::Fsize).current, Some(1 << 36));
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("state", flags).unwrap());
    rustix::fs::ftruncate(&file, 1 << 36).unwrap();
    file.write_all_at(b"state", 0).unwrap();
    file.write_all_at(b"more", 1 << 30).unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, 1 << 30, PAGE as u64).unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 1 << 36);
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::WRITE).unwrap();
    assert!(rustix::fs::fcntl_get_seals(&file).unwrap().contains(SealFlags::WRITE));
    let again = file.try_clone().unwrap();
    send(socket.as_raw_fd(), &again);
    let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which the kernel may write to.
    assert_eq!(unsafe { libc::poll(&raw mut polled, 1, 60_000) }, 1);
    let answer = receive(socket.as_raw_fd());
    let mut bytes = [0; 6];
    answer.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"answer");
}

/// A message of one byte with room for one descriptor.
struct Message {
    byte: [u8; 1],
    control: [u64; 3],
}

impl Message {
    fn with(&mut self, work: impl FnOnce(&mut libc::msghdr) -> isize) {
        let mut part = libc::iovec { iov_base: self.byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: all zeroes are a value of this plain structure.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&self.control);
        assert_eq!(work(&mut header), 1, "{}", std::io::Error::last_os_error());
    }
}

fn send(socket: i32, file: &File) {
    let mut message = Message { byte: [1], control: [0; 3] };
    message.with(|header| {
        // SAFETY: the header has room for one descriptor behind its own.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(control).cast::<i32>().write_unaligned(file.as_raw_fd());
            libc::sendmsg(socket, header, 0)
        }
    });
}

fn receive(socket: i32) -> File {
    let mut message = Message { byte: [0], control: [0; 3] };
    let mut descriptor = -1;
    message.with(|header| {
        // SAFETY: the kernel fills at most the room that there is.
        unsafe {
            let received = libc::recvmsg(socket, header, libc::MSG_CMSG_CLOEXEC);
            let control = libc::CMSG_FIRSTHDR(header);
            assert!(!control.is_null() && (*control).cmsg_type == libc::SCM_RIGHTS);
            descriptor = libc::CMSG_DATA(control).cast::<i32>().read_unaligned();
            received
        }
    });
    // SAFETY: just received, so nobody else owns it.
    unsafe { File::from_raw_fd(descriptor) }
}
