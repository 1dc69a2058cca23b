//! What the functions of Emscripten do for a guest, call by call.

use super::{DATA, Guest, OUT, PATH};
use crate::errno::Errno;
use crate::host::wasi::emscripten::CURRENT_FOLDER;

const OTHER_PATH: u32 = 1024;
const CREATE_TO_WRITE: u32 = 0o101;
const READ_ONLY: u32 = 0;

impl Guest {
    fn path(&self, at: u32, path: &str) -> u32 {
        self.put(at, format!("{path}\0").as_bytes());
        at
    }

    fn open_as(&mut self, path: &str, flags: u32) -> Result<u32, Errno> {
        let path = self.path(PATH, path);
        self.wasi.__syscall_openat(CURRENT_FOLDER, path, flags, 0)
    }

    fn stat_word(&mut self, path: &str, at: u32) -> Result<u32, Errno> {
        let path = self.path(PATH, path);
        self.wasi.__syscall_stat64(path, DATA)?;
        Ok(u32::from_le_bytes(self.wasi.guest.read(DATA + at).unwrap()))
    }
}

#[test]
fn files_are_those_of_wasi() {
    let mut guest = Guest::new();
    let path = guest.path(PATH, "/workspace");
    guest.wasi.__syscall_chdir(path).unwrap();
    let file = guest.open_as("a", CREATE_TO_WRITE).unwrap();
    assert_eq!(guest.write(file, b"text"), Ok(4));
    guest.close(file).unwrap();
    assert_eq!(guest.stat_word("a", 4), Ok(0o100_644));
    assert_eq!(guest.stat_word("../workspace/a", 24), Ok(4));
    assert_eq!(guest.stat_word("/workspace", 4), Ok(0o040_755));
    assert_eq!(guest.stat_word("b", 0), Err(Errno::NoEntry));
    let (from, to) = (guest.path(PATH, "a"), guest.path(OTHER_PATH, "b"));
    assert_eq!(guest.wasi.__syscall_truncate64(from, u64::MAX), Err(Errno::Invalid));
    guest.wasi.__syscall_symlinkat(from, CURRENT_FOLDER, to).unwrap();
    assert_eq!(guest.wasi.__syscall_readlinkat(CURRENT_FOLDER, to, DATA, 9), Ok(1));
    assert_eq!(guest.data(1), b"a");
    guest.wasi.__syscall_unlinkat(CURRENT_FOLDER, to, 0).unwrap();
    guest.wasi.__syscall_renameat(CURRENT_FOLDER, from, CURRENT_FOLDER, to).unwrap();
    let file = guest.open_as("b", READ_ONLY).unwrap();
    assert_eq!(guest.read(file, 9), Ok(b"text".to_vec()));
    assert_eq!(guest.open_as("a", READ_ONLY), Err(Errno::NoEntry));
    assert_eq!(guest.wasi.__syscall_getcwd(DATA, 10), Err(Errno::Range));
    assert_eq!(guest.wasi.__syscall_getcwd(DATA, 99), Ok(11));
    assert_eq!(guest.data(11), b"/workspace\0");
    let end = guest.wasi.guest.memory().unwrap().len() as u32 - 2;
    guest.put(end, b"ab");
    assert_eq!(guest.wasi.__syscall_chdir(end), Err(Errno::Fault));
    guest.put(DATA, &[b'a'; 5000]);
    assert_eq!(guest.wasi.__syscall_chdir(DATA), Err(Errno::NameTooLong));
}

#[test]
fn a_folder_is_listed_once_whatever_fits_into_a_call() {
    for room in [32, 56, 4096] {
        let mut guest = Guest::new();
        for name in ["one", "two", "three"] {
            let file = guest.open_as(&format!("/tmp/{name}"), CREATE_TO_WRITE).unwrap();
            guest.close(file).unwrap();
        }
        let folder = guest.open_as("/tmp", READ_ONLY).unwrap();
        for _ in 0..2 {
            let mut names = Vec::new();
            loop {
                let count = guest.wasi.__syscall_getdents64(folder, DATA, room).unwrap();
                let bytes = guest.data(count);
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let size = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
                    let name = rest[19..size].split(|byte| *byte == 0).next().unwrap();
                    names.push((rest[18], String::from_utf8(name.to_vec()).unwrap()));
                    rest = &rest[size..];
                }
                if count == 0 {
                    break;
                }
            }
            names.sort();
            let names: Vec<_> = names.iter().map(|(kind, name)| (*kind, &**name)).collect();
            assert_eq!(names, [(4, "."), (4, ".."), (8, "one"), (8, "three"), (8, "two")]);
        }
        assert_eq!(guest.wasi.__syscall_getdents64(folder, DATA, 8), Err(Errno::Invalid));
    }
}

#[test]
fn descriptors_have_flags_and_copies() {
    let mut guest = Guest::new();
    let file = guest.open_as("/tmp/a", CREATE_TO_WRITE | 0o2000).unwrap();
    assert_eq!(guest.wasi.__syscall_fcntl64(file, 3, OUT), Ok(0o2001));
    guest.put(OUT, &20_u32.to_le_bytes());
    assert_eq!(guest.wasi.__syscall_fcntl64(file, 0, OUT), Err(Errno::Invalid));
    guest.put(OUT, &9_u32.to_le_bytes());
    assert_eq!(guest.wasi.__syscall_fcntl64(file, 1030, OUT), Ok(9));
    assert_eq!(guest.wasi.__syscall_fcntl64(9, 1, OUT), Ok(1));
    assert_eq!(guest.wasi.__syscall_dup3(file, file, 0), Err(Errno::Invalid));
    assert_eq!(guest.wasi.__syscall_dup3(file, 9, 0), Ok(9));
    assert_eq!(guest.wasi.__syscall_fcntl64(9, 1, OUT), Ok(0));
    assert_eq!(guest.wasi.__syscall_fcntl64(99, 1, OUT), Err(Errno::BadDescriptor));
    guest.put(OUT, &DATA.to_le_bytes());
    assert_eq!(guest.wasi.__syscall_fcntl64(file, 13, OUT), Ok(0));
    assert_eq!(guest.wasi.__syscall_fcntl64(file, 12, OUT), Ok(0));
    assert_eq!(guest.data(2), [2, 0]);
}

#[test]
fn times_are_set_as_utimensat_says() {
    let mut guest = Guest::new();
    let file = guest.open_as("/tmp/a", CREATE_TO_WRITE).unwrap();
    let time = |seconds: u64, nanoseconds: u32| {
        [&seconds.to_le_bytes()[..], &nanoseconds.to_le_bytes(), &[0; 4]].concat()
    };
    guest.put(DATA, &[time(7, 5), time(9, 0x3fff_fffe)].concat());
    let path = guest.path(PATH, "/tmp/a");
    guest.wasi.__syscall_utimensat(CURRENT_FOLDER, path, DATA, 0).unwrap();
    assert_eq!(guest.stat_word("/tmp/a", 40), Ok(7));
    assert_eq!(guest.stat_word("/tmp/a", 48), Ok(5));
    assert_ne!(guest.stat_word("/tmp/a", 56), Ok(9));
    guest.put(DATA, &[time(7, 0), time(9, 0)].concat());
    guest.wasi.__syscall_utimensat(file, 0, DATA, 0).unwrap();
    assert_eq!(guest.stat_word("/tmp/a", 56), Ok(9));
}

#[test]
fn a_poll_finds_what_is_ready() {
    let mut guest = Guest::new();
    let (reader, writer) = guest.pipe().unwrap();
    let polled =
        |fd: u32, flags: u16| [&fd.to_le_bytes()[..], &flags.to_le_bytes(), &[9; 2]].concat();
    guest.put(DATA + 64, &[polled(reader, 1), polled(writer, 4), polled(99, 1)].concat());
    let found = |guest: &Guest, number: u32| {
        u16::from_le_bytes(guest.wasi.guest.read(DATA + 64 + 8 * number + 6).unwrap())
    };
    assert_eq!(guest.wasi.poll_now(DATA + 64, 3, true), Ok(2));
    assert_eq!([0, 1, 2].map(|number| found(&guest, number)), [0, 4, 32]);
    assert_eq!(guest.wasi.poll_now(DATA + 64, 1, false), Ok(0));
    assert_eq!(guest.wasi.poll_now(DATA + 64, 1, true), Err(Errno::Deadlock));
    guest.write(writer, b"x").unwrap();
    assert_eq!(guest.wasi.poll_now(DATA + 64, 1, true), Ok(1));
    assert_eq!(found(&guest, 0), 1);
    guest.read(reader, 1).unwrap();
    guest.close(writer).unwrap();
    assert_eq!(guest.wasi.poll_now(DATA + 64, 1, true), Ok(1));
    assert_eq!(found(&guest, 0) & 16, 16);
}

#[test]
fn dates_are_those_of_the_calendar() {
    let mut guest = Guest::new();
    for (seconds, date) in [
        (0, [0, 0, 0, 1, 0, 70, 4, 0]),
        (-1, [59, 59, 23, 31, 11, 69, 3, 364]),
        (951_782_400, [0, 0, 0, 29, 1, 100, 2, 59]),
        (951_868_800, [0, 0, 0, 1, 2, 100, 3, 60]),
        (1_796_083_199, [59, 59, 23, 30, 10, 126, 1, 333]),
        (4_107_542_399, [59, 59, 23, 28, 1, 200, 0, 58]),
        (-2_203_891_200, [0, 0, 0, 1, 2, 0, 4, 59]),
        (253_402_300_799, [59, 59, 23, 31, 11, 8099, 5, 364]),
    ] {
        guest.wasi.write_date(seconds, DATA).unwrap();
        let written: Vec<i32> = guest
            .data(32)
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| i32::from_le_bytes(*bytes))
            .collect();
        assert_eq!(written, date, "{seconds}");
        assert_eq!(guest.wasi.seconds_of_date(DATA), Ok(seconds));
    }
    // The 40th of January, an hour before midnight: as `mktime` takes it.
    let odd = [0, 0, -1, 40, 0, 126].map(i32::to_le_bytes);
    guest.put(DATA, odd.as_flattened());
    assert_eq!(guest.wasi.seconds_of_date(DATA), Ok(1_770_591_600));
    assert_eq!(guest.data(24)[12..20], [[8, 0, 0, 0], [1, 0, 0, 0]].concat());
}
