//! Descriptors between two sides of a socket: what arrives, what is refused, what is left open.
//!
//! All in one test, since it counts the descriptors of this process.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]
#![expect(unsafe_code, reason = "a hostile sender calls the C library itself")]

use std::fs::{self, File};
use std::io::{self, IoSlice, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use channel::{Descriptors, Error, Lie, MOST_DESCRIPTORS};
use rustix::io::{FdFlags, fcntl_getfd};

/// How many descriptors this process has.
fn open() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn borrowed(file: &PipeReader, count: usize) -> Vec<BorrowedFd<'_>> {
    vec![file.as_fd(); count]
}

/// Sends a packet with any bytes, and any descriptors in messages of these lengths.
fn send_raw(socket: &Descriptors, bytes: &[u8], descriptors: &[&[i32]]) {
    let mut control = [0u64; 512];
    let mut bytes = IoSlice::new(bytes);
    // SAFETY: zeroes are fine for a struct of integers and pointers. The pointers are to locals, and
    // the buffer has more room than any of these tests fills.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = ptr::from_mut(&mut bytes).cast();
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        let mut used = 0;
        for descriptors in descriptors {
            let length = size_of_val(*descriptors) as u32;
            (*next).cmsg_level = libc::SOL_SOCKET;
            (*next).cmsg_type = libc::SCM_RIGHTS;
            (*next).cmsg_len = libc::CMSG_LEN(length) as usize;
            let data = libc::CMSG_DATA(next).cast::<i32>();
            ptr::copy_nonoverlapping(descriptors.as_ptr(), data, descriptors.len());
            used += libc::CMSG_SPACE(length) as usize;
            next = next.cast::<u8>().add(libc::CMSG_SPACE(length) as usize).cast();
        }
        header.msg_controllen = used;
        let sent = libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, 0);
        assert!(sent >= 0, "{}", io::Error::last_os_error());
    }
}

fn is_lie(received: &Result<Vec<OwnedFd>, Error>) -> bool {
    matches!(received, Err(Error::Lied { what: Lie::Descriptors }))
}

#[test]
fn descriptors_arrive_or_are_closed() {
    let (parent, worker) = Descriptors::pair().unwrap();
    let (pipe, mut writer) = io::pipe().unwrap();
    let before = open();

    // What is sent arrives, closed on exec, and is the same file.
    for count in [1, 2, 100, MOST_DESCRIPTORS] {
        worker.send(&borrowed(&pipe, count)).unwrap();
        let received = parent.receive(MOST_DESCRIPTORS).unwrap();
        assert_eq!((received.len(), open()), (count, before + count));
        for descriptor in &received {
            assert!(fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC));
        }
        writer.write_all(b"x").unwrap();
        let mut byte = [0];
        let last = received.into_iter().next_back().unwrap();
        File::from(last).read_exact(&mut byte).unwrap();
        assert_eq!((byte, open()), (*b"x", before));
    }

    // Messages keep their borders and their order.
    for count in 1..5 {
        worker.send(&borrowed(&pipe, count)).unwrap();
    }
    for count in 1..5 {
        assert_eq!(parent.receive(5).unwrap().len(), count);
    }

    // Too many, for the sender and for the receiver.
    for count in [0, MOST_DESCRIPTORS + 1] {
        let refused = worker.send(&borrowed(&pipe, count));
        assert!(matches!(refused, Err(Error::System(_))), "{refused:?}");
    }
    for (count, most) in [(2, 1), (1, 0), (100, 99), (MOST_DESCRIPTORS, 3)] {
        worker.send(&borrowed(&pipe, count)).unwrap();
        let refused = parent.receive(most);
        assert!(is_lie(&refused), "{refused:?}");
        assert_eq!(open(), before, "{count} for at most {most}");
    }

    // Other descriptors than announced.
    let raw = vec![pipe.as_raw_fd(); 200];
    for (bytes, descriptors) in [
        (&b"\x02"[..], &[&raw[..1]][..]),
        (b"\x01", &[&raw[..2]]),
        (b"\x01", &[&raw[..200]]),
        (b"\x05", &[&raw[..200]]),
        (b"\x05", &[&raw[..2], &raw[..4]]),
        (b"\x00", &[&raw[..1]]),
        (b"\x01", &[]),
        (b"\x01\x01", &[&raw[..1]]),
        (&[1; 5000], &[&raw[..1]]),
        (b"", &[&raw[..1]]),
    ] {
        send_raw(&worker, bytes, descriptors);
        let refused = parent.receive(5);
        assert!(is_lie(&refused), "{bytes:?}, {descriptors:?}: {refused:?}");
        assert_eq!(open(), before, "{bytes:?}, {descriptors:?}");
    }

    // The kernel counts descriptors of one packet, whatever its messages.
    send_raw(&worker, b"\x05", &[&raw[..2], &raw[..3]]);
    assert_eq!(parent.receive(5).unwrap().len(), 5);

    // A process that has no room for all of them keeps none.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let fewer = rustix::process::Rlimit { current: Some(before as u64 + 2), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, fewer).unwrap();
    worker.send(&borrowed(&pipe, 50)).unwrap();
    let refused = parent.receive(50);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let Err(Error::System(error)) = refused else { panic!("{refused:?}") };
    assert_eq!((error.raw_os_error(), open()), (Some(libc::EMFILE), before));

    // Without waiting.
    parent.set_nonblocking(true).unwrap();
    let nothing = parent.receive(5);
    let Err(Error::System(error)) = nothing else { panic!("{nothing:?}") };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    worker.set_nonblocking(true).unwrap();
    let full = loop {
        if let Err(error) = worker.send(&borrowed(&pipe, 1)) {
            break error;
        }
    };
    let Error::System(error) = full else { panic!("{full:?}") };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(parent.receive(5).unwrap().len(), 1);

    // What was sent before the other side closed still arrives.
    drop(worker);
    while let Ok(received) = parent.receive(5) {
        assert_eq!(received.len(), 1);
    }
    assert!(matches!(parent.receive(5), Err(Error::Closed)));
    assert!(matches!(parent.send(&borrowed(&pipe, 1)), Err(Error::Closed)));
    assert_eq!(open(), before - 1);
}
