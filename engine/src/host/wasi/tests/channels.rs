//! Pipes and connected sockets: what they return, and what a poll says about them.

use super::*;
use crate::host::wasi::pipe::PIPE_BYTES;

const READ: u8 = 1;
const WRITE: u8 = 2;

impl Guest {
    /// Polls for one event of a descriptor, with a clock if there is a timeout. Returns the error,
    /// the bytes and whether the other end hung up; `None` if the clock came first.
    fn poll(
        &mut self,
        fd: u32,
        kind: u8,
        timeout: Option<u64>,
    ) -> Result<Option<(u16, u64, bool)>, Errno> {
        let mut subscriptions = [0; 96];
        subscriptions[0] = 77;
        subscriptions[8] = kind;
        subscriptions[16..20].copy_from_slice(&fd.to_le_bytes());
        subscriptions[48 + 16] = 1;
        subscriptions[48 + 24..48 + 32].copy_from_slice(&timeout.unwrap_or(0).to_le_bytes());
        self.put(PATH, &subscriptions);
        let count = 1 + u32::from(timeout.is_some());
        let happened = self.number(|wasi| {
            let poll = wasi.poll_begin(PATH, count, true)?;
            wasi.poll_end(&poll, DATA, OUT)
        })?;
        let event = self.data(32);
        assert_eq!(happened, 1);
        let bytes = u64::from_le_bytes(event[16..24].try_into().unwrap());
        let error = u16::from_le_bytes([event[8], event[9]]);
        Ok((event[0] == 77).then_some((error, bytes, event[24] == 1)))
    }
}

#[test]
fn a_pipe_carries_bytes_and_ends_with_its_writer() {
    let mut guest = Guest::new();
    let (reader, writer) = guest.pipe().unwrap();
    assert_eq!(guest.write(writer, b"hello"), Ok(5));
    assert_eq!(guest.read(reader, 2).as_deref(), Ok(&b"he"[..]));
    let copy = guest.dup(writer, 0).unwrap();
    guest.close(writer).unwrap();
    assert_eq!(guest.read(reader, 9).as_deref(), Ok(&b"llo"[..]));
    assert_eq!(guest.read(reader, 9), Err(Errno::Deadlock));
    guest.close(copy).unwrap();
    assert_eq!(guest.read(reader, 9).as_deref(), Ok(&b""[..]));
    assert_eq!(guest.write(reader, b"x"), Err(Errno::BadDescriptor));
}

#[test]
fn a_full_pipe_says_so() {
    let mut guest = Guest::new();
    let (reader, writer) = guest.pipe().unwrap();
    guest.set_nonblocking(writer);
    assert_eq!(guest.read(reader, 9), Err(Errno::Deadlock));
    guest.set_nonblocking(reader);
    assert_eq!(guest.read(reader, 9), Err(Errno::Again));
    assert_eq!(guest.write(writer, &[7; PIPE_BYTES + 9]), Ok(PIPE_BYTES as u32));
    assert_eq!(guest.write(writer, b"x"), Err(Errno::Again));
    assert_eq!(guest.read(reader, 100).map(|bytes| bytes.len()), Ok(100));
    // A short write isn't split, a long one is.
    assert_eq!(guest.write(writer, &[7; 101]), Err(Errno::Again));
    assert_eq!(guest.write(writer, &[7; 5000]), Ok(100));
    guest.call(|wasi| wasi.fd_fdstat_set_flags(writer, 0)).unwrap();
    assert_eq!(guest.write(writer, b"x"), Err(Errno::Deadlock));
    guest.close(reader).unwrap();
    assert_eq!(guest.write(writer, b"x"), Err(Errno::BrokenPipe));
}

#[test]
fn a_pipe_has_no_position() {
    let mut guest = Guest::new();
    let (reader, writer) = guest.pipe().unwrap();
    for fd in [reader, writer] {
        let seek = guest.call(|wasi| wasi.fd_seek(fd, 0, 1, OUT));
        assert_eq!(seek, Err(Errno::NotSeekable));
        let read = guest.call(|wasi| wasi.fd_pread(fd, TABLE, 1, 0, OUT));
        assert_eq!(read, Err(Errno::NotSeekable));
        guest.call(|wasi| wasi.fd_filestat_get(fd, DATA)).unwrap();
        assert_eq!(guest.data(24)[16], 0);
    }
}

#[test]
fn a_poll_says_which_end_is_ready() {
    let mut guest = Guest::new();
    let (reader, writer) = guest.pipe().unwrap();
    assert_eq!(guest.poll(reader, READ, None), Err(Errno::Deadlock));
    assert_eq!(guest.poll(reader, READ, Some(1_000)), Ok(None));
    assert_eq!(guest.poll(writer, READ, Some(0)), Ok(None));
    let room = PIPE_BYTES as u64;
    assert_eq!(guest.poll(writer, WRITE, None), Ok(Some((0, room, false))));
    guest.write(writer, b"abc").unwrap();
    assert_eq!(guest.poll(reader, READ, Some(1_000)), Ok(Some((0, 3, false))));
    // Less room than a write that isn't split may need.
    guest.write(writer, &[0; PIPE_BYTES - 1000]).unwrap();
    assert_eq!(guest.poll(writer, WRITE, Some(0)), Ok(None));
    guest.close(writer).unwrap();
    assert_eq!(guest.poll(reader, READ, None), Ok(Some((0, room - 997, true))));
    assert_eq!(guest.poll(99, READ, None), Ok(Some((Errno::BadDescriptor as u16, 0, false))));
    assert_eq!(guest.poll(0, READ, None), Ok(Some((0, 0, false))));
    // Nothing here has urgent data.
    assert_eq!(guest.poll(0, 3, Some(0)), Ok(None));
    assert_eq!(guest.poll(0, 9, None), Ok(Some((Errno::Invalid as u16, 0, false))));
}

#[test]
fn a_writer_learns_that_its_reader_is_gone() {
    let mut guest = Guest::new();
    let (reader, writer) = guest.pipe().unwrap();
    guest.close(reader).unwrap();
    assert_eq!(guest.poll(writer, READ, None), Ok(Some((0, 0, true))));
    assert_eq!(guest.poll(writer, WRITE, None), Ok(Some((0, 0, true))));
}

#[test]
fn sockets_carry_bytes_in_both_directions() {
    let mut guest = Guest::new();
    let (one, other) = guest.sockets().unwrap();
    for (from, to) in [(one, other), (other, one)] {
        let len = guest.put(DATA, b"datagram");
        guest.put_table(len);
        let sent = guest.number(|wasi| wasi.sock_send(from, TABLE, 1, 0, OUT));
        assert_eq!(sent, Ok(8));
        assert_eq!(guest.poll(to, READ, None), Ok(Some((0, 8, false))));
        guest.put_table(4);
        let peek = guest.number(|wasi| wasi.sock_recv(to, TABLE, 1, 1, OUT, OUT + 8));
        assert_eq!((peek, guest.data(4)), (Ok(4), b"data".to_vec()));
        let received =
            guest.number(|wasi| wasi.sock_recv_from(to, TABLE, 1, 0, OUT, OUT + 8, PATH));
        assert_eq!((received, guest.data(4)), (Ok(4), b"data".to_vec()));
        assert_eq!(guest.read(to, 9).as_deref(), Ok(&b"gram"[..]));
    }
    guest.set_nonblocking(one);
    assert_eq!(guest.read(one, 1), Err(Errno::Again));
    assert_eq!(guest.read(other, 1), Err(Errno::Deadlock));
    guest.close(other).unwrap();
    assert_eq!(guest.read(one, 1).as_deref(), Ok(&b""[..]));
    assert_eq!(guest.write(one, b"x"), Err(Errno::BrokenPipe));
}

#[test]
fn a_socket_is_shut_down_in_one_direction() {
    let mut guest = Guest::new();
    let (one, other) = guest.sockets().unwrap();
    guest.write(one, b"last").unwrap();
    guest.call(|wasi| wasi.sock_shutdown(one, 2)).unwrap();
    assert_eq!(guest.write(one, b"x"), Err(Errno::BrokenPipe));
    assert_eq!(guest.read(other, 9).as_deref(), Ok(&b"last"[..]));
    assert_eq!(guest.read(other, 9).as_deref(), Ok(&b""[..]));
    guest.write(other, b"still").unwrap();
    assert_eq!(guest.read(one, 9).as_deref(), Ok(&b"still"[..]));
    guest.call(|wasi| wasi.sock_shutdown(one, 1)).unwrap();
    assert_eq!(guest.read(one, 9).as_deref(), Ok(&b""[..]));
    assert_eq!(guest.write(other, b"x"), Err(Errno::BrokenPipe));
    assert_eq!(guest.call(|wasi| wasi.sock_shutdown(one, 4)), Err(Errno::Invalid));
}

#[test]
fn sockets_have_a_type_options_and_no_name() {
    let mut guest = Guest::new();
    let (socket, _) = guest.sockets().unwrap();
    guest.call(|wasi| wasi.fd_fdstat_get(socket, DATA)).unwrap();
    assert_eq!(guest.data(1), [6]);
    guest.put(DATA, &[9; 20]);
    guest.call(|wasi| wasi.sock_addr_local(socket, DATA)).unwrap();
    assert_eq!(guest.data(20), [&[3][..], &[0; 19]].concat());
    for (option, expected) in [(11, Ok(0)), (16, Ok(64 << 10)), (23, Err(Errno::NoProtocolOption))]
    {
        let size = guest.number(|wasi| wasi.sock_get_opt_size(socket, option, OUT));
        assert_eq!(size, expected);
    }
    guest.call(|wasi| wasi.sock_set_opt_flag(socket, 2, 1)).unwrap();
    let kind = guest.pair(|wasi| wasi.sock_pair(3, 2, 17, OUT, OUT + 4));
    assert_eq!(kind, Err(Errno::NotSupported));
}

#[test]
fn nothing_else_is_a_socket() {
    let mut guest = Guest::new();
    let (reader, _) = guest.pipe().unwrap();
    for (fd, expected) in [
        (0, Errno::NotSocket),
        (3, Errno::NotSocket),
        (reader, Errno::NotSocket),
        (99, Errno::BadDescriptor),
    ] {
        let calls = [
            guest.call(|wasi| wasi.sock_recv(fd, TABLE, 0, 0, OUT, OUT)),
            guest.call(|wasi| wasi.sock_send(fd, TABLE, 0, 0, OUT)),
            guest.call(|wasi| wasi.sock_shutdown(fd, 1)),
            guest.call(|wasi| wasi.sock_accept(fd, 0, OUT)),
            guest.call(|wasi| wasi.sock_get_opt_flag(fd, 2, OUT)),
        ];
        assert_eq!(calls, [Err(expected); 5]);
    }
}
