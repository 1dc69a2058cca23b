//! Descriptors over a Unix socket: each message is one packet with the number of its descriptors.
//!
//! The two calls are the C library's, since those of `rustix` need a feature that would change all
//! of wasmer's tree.
#![expect(
    unsafe_code,
    reason = "two calls of the C library, and the walk through what they fill in"
)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};

use crate::error::{Error, Lie};

/// The most descriptors of one message: the kernel takes no more.
pub const MOST_DESCRIPTORS: usize = 253;

/// The bytes of a control message with so many descriptors.
const fn space(count: usize) -> usize {
    // SAFETY: arithmetic on a small number.
    unsafe { libc::CMSG_SPACE((count * size_of::<RawFd>()) as u32) as usize }
}

/// Control messages that are aligned as their headers need it, with room for one descriptor more than
/// a message may have.
#[repr(C)]
union Control {
    _header: libc::cmsghdr,
    bytes: [MaybeUninit<u8>; space(MOST_DESCRIPTORS + 1)],
}

/// One side of a socket over which descriptors pass.
#[derive(Debug)]
pub struct Descriptors {
    socket: OwnedFd,
}

impl Descriptors {
    /// Creates both sides. Both are closed on exec, and wait.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let mut sockets = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the pointer is to two integers.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, sockets.as_mut_ptr()) };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else knows them.
        let [first, second] = sockets.map(|socket| unsafe { OwnedFd::from_raw_fd(socket) });
        Ok((Self { socket: first }, Self { socket: second }))
    }

    /// Takes over a side that another process made, a Unix socket of packets.
    pub fn from_socket(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sets whether calls fail with [`io::ErrorKind::WouldBlock`] instead of waiting. A caller that doesn't
    /// trust the other side wants that: it sends descriptors before the frame that tells of them.
    /// The other processes that have this side of the socket share the setting.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.socket)?;
        flags.set(OFlags::NONBLOCK, is_nonblocking);
        Ok(fcntl_setfl(&self.socket, flags)?)
    }

    /// Sends descriptors, which stay the sender's, too.
    ///
    /// # Errors
    /// [`Error::System`]: there are none, or more than [`MOST_DESCRIPTORS`]; the socket is full and
    /// doesn't wait; the kernel refuses. [`Error::Closed`]: the other side is closed.
    pub fn send(&self, descriptors: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let count = descriptors.len();
        if count == 0 || count > MOST_DESCRIPTORS {
            let message = format!("{count} descriptors; a message has 1 to {MOST_DESCRIPTORS}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message).into());
        }
        let mut announced = [count as u8];
        let mut bytes = slice_of(&mut announced);
        // SAFETY: a union of bytes and integers, for which zeroes are fine.
        let mut control: Control = unsafe { mem::zeroed() };
        let header = message(&mut bytes, &mut control, space(count));
        let length = size_of_val(descriptors);
        // SAFETY: the control buffer has room for a header and `count` descriptors, which are
        // integers in memory, and nothing else refers to it.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(length as u32) as usize;
            ptr::copy_nonoverlapping(
                descriptors.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(first),
                length,
            );
        }
        let sent = again(|| {
            // SAFETY: the header's pointers are to locals that outlive the call.
            unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) }
        });
        match sent {
            Ok(_) => Ok(()),
            Err(error) if is_closed(&error) => Err(Error::Closed),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives the descriptors of one message, at most `most` of them, closed on exec. What came
    /// with a message that is refused is closed.
    ///
    /// Closing a descriptor may take its time, as with a socket that lingers: what a worker may send
    /// is for its system call filter to say.
    ///
    /// # Errors
    /// [`Error::Lied`]: more came than `most`, or not as many as announced. [`Error::Closed`]: the
    /// other side is closed. [`Error::System`]: nothing is there and the socket doesn't wait; or this
    /// process has too many descriptors, so that some of the message are lost.
    pub fn receive(&self, most: usize) -> Result<Vec<OwnedFd>, Error> {
        let most = most.min(MOST_DESCRIPTORS);
        let mut announced = [0; 2];
        let mut bytes = slice_of(&mut announced);
        // SAFETY: as in `send`.
        let mut control: Control = unsafe { mem::zeroed() };
        // One more, so that a message that has too many isn't taken for a process that has.
        let mut header = message(&mut bytes, &mut control, space(most + 1));
        let length = again(|| {
            // SAFETY: the header's pointers are to locals that outlive the call, of the lengths given.
            unsafe {
                libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC)
            }
        });
        let length = match length {
            Err(error) if is_closed(&error) => return Err(Error::Closed),
            length => length?,
        };
        // Before anything is judged, so that all are closed again if something is wrong.
        let found = take(&header);
        if length == 0 && found.is_empty() {
            return Err(Error::Closed);
        }
        let [count, _] = announced;
        let count = usize::from(count);
        if length != 1 || count == 0 || count > most || found.len() > count {
            return Err(Lie::Descriptors.into());
        }
        let is_cut = header.msg_flags & libc::MSG_CTRUNC != 0;
        if is_cut {
            // The kernel had room for all that may come, so it couldn't open them in this process.
            return Err(io::Error::from_raw_os_error(libc::EMFILE).into());
        }
        if found.len() != count {
            return Err(Lie::Descriptors.into());
        }
        Ok(found)
    }
}

impl AsFd for Descriptors {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn slice_of(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn message(bytes: &mut libc::iovec, control: &mut Control, length: usize) -> libc::msghdr {
    assert!(length <= size_of::<Control>(), "as many descriptors as a message may have");
    // SAFETY: a struct of integers and pointers, for which zeroes are fine.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = bytes;
    header.msg_iovlen = 1;
    header.msg_control = ptr::from_mut(control).cast();
    header.msg_controllen = length;
    header
}

/// Takes the descriptors of all control messages that the kernel wrote.
fn take(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the kernel wrote whole control messages into the buffer, whose lengths and descriptors
    // are its own and not the sender's, and set `msg_controllen` to what it wrote. Each descriptor is
    // new in this process, so it is ours to close. Only descriptors are read, and unaligned.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while !next.is_null() {
            let one = &*next;
            if one.cmsg_level == libc::SOL_SOCKET && one.cmsg_type == libc::SCM_RIGHTS {
                let length = one.cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(next).cast::<RawFd>();
                for index in 0..length / size_of::<RawFd>() {
                    found.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    found
}

/// Calls once more after a signal.
fn again(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    let failed = |_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO);
    Ok(retry_on_intr(|| usize::try_from(call()).map_err(failed))?)
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected)
}
