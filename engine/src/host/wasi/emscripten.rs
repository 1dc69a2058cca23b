//! The functions of Emscripten's C library that Python needs beside those of WASI.
//!
//! They are system calls of Linux in Emscripten's form: paths end with a NUL, relative ones begin at
//! the current folder, and further arguments are in memory. Errors have WASI's numbers.

use std::sync::Arc;

use super::Wasi;
use super::bytes::Buffer;
use super::descriptors::Open;
use super::path::{ACCESSED_NOW, MODIFIED_NOW, SET_ACCESSED, SET_MODIFIED};
use super::stat::{self, mode};
use crate::errno::{Errno, Result};
use crate::files::quota::MOST_PATH_BYTES;
use crate::files::resolve::Base;

/// In place of a folder's descriptor: the current folder, `AT_FDCWD`.
pub(super) const CURRENT_FOLDER: u32 = (-100_i32).cast_unsigned();
/// Flags of functions that take a path: `AT_SYMLINK_NOFOLLOW`, `AT_REMOVEDIR`, `AT_EMPTY_PATH`.
const KEEP_LINK: u32 = 0x100;
const REMOVE_FOLDER: u32 = 0x200;
const EMPTY_PATH: u32 = 0x1000;

/// Flags of `open`.
const WRITE_ONLY: u32 = 0o1;
const READ_AND_WRITE: u32 = 0o2;
const ACCESS: u32 = 0o3;
const APPEND: u32 = 0o2000;
const NONBLOCKING: u32 = 0o4000;
const NO_FOLLOW: u32 = 0o400_000;
const CLOSE_ON_EXEC: u32 = 0o2_000_000;
/// Flags of `open` beside those of WASI's `path_open`: create, folder, exclusive, truncate.
const HOW: [(u32, u32); 4] = [(0o100, 1), (0o200_000, 2), (0o200, 4), (0o1000, 8)];

/// Commands of `fcntl`.
const DUPLICATE: u32 = 0;
const GET_DESCRIPTOR_FLAGS: u32 = 1;
const SET_DESCRIPTOR_FLAGS: u32 = 2;
const GET_FLAGS: u32 = 3;
const SET_FLAGS: u32 = 4;
/// Locks are free and granted: nobody else could have one.
const GET_LOCK: u32 = 12;
const SET_LOCK: u32 = 13;
const WAIT_FOR_LOCK: u32 = 14;
/// The kind of a lock that is free, which begins its description.
const UNLOCKED: u16 = 2;
const DUPLICATE_AND_CLOSE_ON_EXEC: u32 = 1030;

/// Nanoseconds of a `timespec` that mean something else: now, and as before.
const NOW: u32 = 0x3fff_ffff;
const OMIT: u32 = 0x3fff_fffe;

const NANOSECONDS: u64 = 1_000_000_000;
/// The most descriptors in a call of `poll`.
const MOST_POLLED: u32 = 1024;
const DAY_SECONDS: i64 = 86_400;
/// The days from the first of March of the year 0 to 1970, and of 400 years.
const DAYS_TO_1970: i64 = 719_468;
const DAYS_OF_400_YEARS: i64 = 146_097;

impl Wasi {
    pub(crate) fn __syscall_openat(
        &mut self,
        fd: u32,
        path: u32,
        flags: u32,
        _arguments: u32,
    ) -> Result<u32> {
        let path = self.text_at(path)?;
        let has = |flag: u32| flags & flag == flag;
        let how = HOW.iter().filter(|(flag, _)| has(*flag)).fold(0, |all, (_, flag)| all | flag);
        let rights = match flags & ACCESS {
            0 => stat::RIGHT_READ,
            WRITE_ONLY => stat::RIGHT_WRITE,
            _ => stat::RIGHT_READ | stat::RIGHT_WRITE,
        };
        let (look, append) = (u32::from(!has(NO_FOLLOW)), u32::from(has(APPEND)));
        self.open_path(fd, look, path, how, rights, append, has(CLOSE_ON_EXEC))
    }

    pub(crate) fn __syscall_faccessat(
        &mut self,
        fd: u32,
        path: u32,
        _mode: u32,
        _flags: u32,
    ) -> Result<u32> {
        let path = self.text_at(path)?;
        self.filestat_at(fd, 1, path).map(|_| 0)
    }

    pub(crate) fn __syscall_chmod(&mut self, path: u32, _mode: u32) -> Result<u32> {
        self.__syscall_faccessat(CURRENT_FOLDER, path, 0, 0)
    }

    pub(crate) fn __syscall_fchmodat2(
        &mut self,
        fd: u32,
        path: u32,
        mode: u32,
        flags: u32,
    ) -> Result<u32> {
        self.__syscall_faccessat(fd, path, mode, flags)
    }

    pub(crate) fn __syscall_fchmod(&mut self, fd: u32, _mode: u32) -> Result<u32> {
        self.open.get(fd).map(|_| 0)
    }

    pub(crate) fn __syscall_chdir(&mut self, path: u32) -> Result<u32> {
        let Buffer { at, len } = self.text_at(path)?;
        self.chdir(at, len).map(|()| 0)
    }

    pub(crate) fn __syscall_fchdir(&mut self, fd: u32) -> Result<u32> {
        self.enter(&self.open.base(fd)?).map(|()| 0)
    }

    pub(crate) fn __syscall_getcwd(&mut self, at: u32, len: u32) -> Result<u32> {
        self.base(CURRENT_FOLDER)?;
        let path = [self.workdir.as_bytes(), &[0]].concat();
        if path.len() > len as usize {
            return Err(Errno::Range);
        }
        self.guest.write(at, &path)?;
        Ok(path.len() as u32)
    }

    pub(crate) fn __syscall_dup(&mut self, fd: u32) -> Result<u32> {
        self.duplicate_from(fd, 0, false)
    }

    pub(crate) fn __syscall_dup3(&mut self, fd: u32, to: u32, flags: u32) -> Result<u32> {
        if fd == to {
            return Err(Errno::Invalid);
        }
        self.fd_renumber(fd, to)?;
        self.open.set_closes_on_exec(to, flags & CLOSE_ON_EXEC != 0)?;
        Ok(to)
    }

    pub(crate) fn __syscall_fcntl64(
        &mut self,
        fd: u32,
        command: u32,
        arguments: u32,
    ) -> Result<u32> {
        let argument = || self.guest.read(arguments).map(u32::from_le_bytes);
        match command {
            DUPLICATE | DUPLICATE_AND_CLOSE_ON_EXEC => {
                self.duplicate_from(fd, argument()?, command != DUPLICATE)
            }
            GET_DESCRIPTOR_FLAGS => self.open.closes_on_exec(fd).map(u32::from),
            SET_DESCRIPTOR_FLAGS => {
                let closes = argument()? & 1 != 0;
                self.open.set_closes_on_exec(fd, closes).map(|()| 0)
            }
            GET_FLAGS => {
                let status = stat::fdstat(self.open.get(fd)?);
                let (flags, rights) = (u32::from(status[2]), u64::from(status[8]));
                let access = match (rights & stat::RIGHT_READ, rights & stat::RIGHT_WRITE) {
                    (_, 0) => 0,
                    (0, _) => WRITE_ONLY,
                    _ => READ_AND_WRITE,
                };
                let append = if flags & stat::APPEND != 0 { APPEND } else { 0 };
                let nonblocking = if flags & stat::NONBLOCKING != 0 { NONBLOCKING } else { 0 };
                Ok(access | append | nonblocking)
            }
            SET_FLAGS => {
                let flags = argument()?;
                let nonblocking = if flags & NONBLOCKING != 0 { stat::NONBLOCKING } else { 0 };
                let append = u32::from(flags & APPEND != 0);
                self.fd_fdstat_set_flags(fd, append | nonblocking).map(|()| 0)
            }
            GET_LOCK => {
                self.open.get(fd)?;
                self.guest.write(argument()?, &UNLOCKED.to_le_bytes()).map(|()| 0)
            }
            SET_LOCK | WAIT_FOR_LOCK => self.open.get(fd).map(|_| 0),
            _ => Err(Errno::Invalid),
        }
    }

    pub(crate) fn __syscall_ftruncate64(&mut self, fd: u32, size: u64) -> Result<u32> {
        i64::try_from(size).map_err(|_| Errno::Invalid)?;
        self.fd_filestat_set_size(fd, size).map(|()| 0)
    }

    pub(crate) fn __syscall_truncate64(&mut self, path: u32, size: u64) -> Result<u32> {
        i64::try_from(size).map_err(|_| Errno::Invalid)?;
        let path = self.text_at(path)?;
        let node = self.own_node(CURRENT_FOLDER, 1, path)?;
        self.tree.writable(node)?;
        self.tree.set_len(node, size, self.clock.timestamp()).map(|()| 0)
    }

    pub(crate) fn __syscall_fallocate(
        &mut self,
        fd: u32,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<u32> {
        if mode != 0 {
            return Err(Errno::NotSupported);
        }
        self.fd_allocate(fd, offset, len).map(|()| 0)
    }

    pub(crate) fn __syscall_fdatasync(&mut self, fd: u32) -> Result<u32> {
        self.fd_datasync(fd).map(|()| 0)
    }

    pub(crate) fn __syscall_fstat64(&mut self, fd: u32, out: u32) -> Result<u32> {
        let filestat = self.filestat_of(fd)?;
        self.guest.write(out, &filestat.encode_for_emscripten()).map(|()| 0)
    }

    pub(crate) fn __syscall_stat64(&mut self, path: u32, out: u32) -> Result<u32> {
        self.__syscall_newfstatat(CURRENT_FOLDER, path, out, 0)
    }

    pub(crate) fn __syscall_lstat64(&mut self, path: u32, out: u32) -> Result<u32> {
        self.__syscall_newfstatat(CURRENT_FOLDER, path, out, KEEP_LINK)
    }

    pub(crate) fn __syscall_newfstatat(
        &mut self,
        fd: u32,
        path: u32,
        out: u32,
        flags: u32,
    ) -> Result<u32> {
        let path = self.text_at(path)?;
        if path.len == 0 && flags & EMPTY_PATH != 0 && fd != CURRENT_FOLDER {
            return self.__syscall_fstat64(fd, out);
        }
        let filestat = self.filestat_at(fd, u32::from(flags & KEEP_LINK == 0), path)?;
        self.guest.write(out, &filestat.encode_for_emscripten()).map(|()| 0)
    }

    /// Writes entries that fit. What is left of a listing is kept for the next call; behind its end
    /// begins another one.
    pub(crate) fn __syscall_getdents64(&mut self, fd: u32, at: u32, len: u32) -> Result<u32> {
        let entries = self.listing(fd, false)?;
        let (mut bytes, mut count) = (Vec::new(), 0_usize);
        for entry in entries.iter() {
            // Inode, position, length, kind; then the name and a NUL.
            let size = (19 + entry.name.len() + 1).next_multiple_of(8);
            let end = bytes.len() + size;
            if end > len as usize {
                break;
            }
            count += 1;
            bytes.extend(entry.inode.to_le_bytes());
            bytes.extend((count as u64).to_le_bytes());
            bytes.extend((size as u16).to_le_bytes());
            bytes.push((mode(entry.kind) >> 12) as u8);
            bytes.extend(entry.name.as_bytes());
            bytes.resize(end, 0);
        }
        let is_over = entries.is_empty();
        drop(entries);
        if count == 0 && !is_over {
            return Err(Errno::Invalid);
        }
        self.guest.write(at, &bytes)?;
        if let Open::Folder { listing, .. } = self.open.get_mut(fd)? {
            match listing {
                Some(rest) if !is_over => drop(Arc::make_mut(rest).drain(..count)),
                _ => *listing = None,
            }
        }
        Ok(bytes.len() as u32)
    }

    pub(crate) fn __syscall_mkdirat(&mut self, fd: u32, path: u32, _mode: u32) -> Result<u32> {
        let Buffer { at, len } = self.text_at(path)?;
        self.path_create_directory(fd, at, len).map(|()| 0)
    }

    pub(crate) fn __syscall_unlinkat(&mut self, fd: u32, path: u32, flags: u32) -> Result<u32> {
        let Buffer { at, len } = self.text_at(path)?;
        match flags & REMOVE_FOLDER {
            0 => self.path_unlink_file(fd, at, len),
            _ => self.path_remove_directory(fd, at, len),
        }
        .map(|()| 0)
    }

    pub(crate) fn __syscall_rmdir(&mut self, path: u32) -> Result<u32> {
        self.__syscall_unlinkat(CURRENT_FOLDER, path, REMOVE_FOLDER)
    }

    pub(crate) fn __syscall_renameat(
        &mut self,
        fd: u32,
        path: u32,
        new_fd: u32,
        new_path: u32,
    ) -> Result<u32> {
        let (from, to) = (self.text_at(path)?, self.text_at(new_path)?);
        self.path_rename(fd, from.at, from.len, new_fd, to.at, to.len).map(|()| 0)
    }

    pub(crate) fn __syscall_readlinkat(
        &mut self,
        fd: u32,
        path: u32,
        at: u32,
        len: u32,
    ) -> Result<u32> {
        let path = self.text_at(path)?;
        self.read_link(fd, path, Buffer { at, len })
    }

    pub(crate) fn __syscall_symlinkat(&mut self, target: u32, fd: u32, path: u32) -> Result<u32> {
        let (target, path) = (self.text_at(target)?, self.text_at(path)?);
        self.path_symlink(target.at, target.len, fd, path.at, path.len).map(|()| 0)
    }

    pub(crate) fn __syscall_utimensat(
        &mut self,
        fd: u32,
        path: u32,
        times: u32,
        flags: u32,
    ) -> Result<u32> {
        let (mut given, mut how) =
            ([0; 2], ACCESSED_NOW | SET_ACCESSED | MODIFIED_NOW | SET_MODIFIED);
        if times != 0 {
            let bytes: [u8; 32] = self.guest.read(times)?;
            let (times, _) = bytes.as_chunks::<16>();
            how = 0;
            for ((time, given), (set, now)) in times
                .iter()
                .zip(&mut given)
                .zip([(SET_ACCESSED, ACCESSED_NOW), (SET_MODIFIED, MODIFIED_NOW)])
            {
                let word = |at: usize| time[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
                let seconds = u64::from(word(0)) | (u64::from(word(4)) << 32);
                match word(8) {
                    NOW => how |= set | now,
                    OMIT => {}
                    nanoseconds => {
                        how |= set;
                        let whole = seconds.checked_mul(NANOSECONDS);
                        let whole = whole.and_then(|whole| whole.checked_add(nanoseconds.into()));
                        *given = whole.ok_or(Errno::Invalid)?;
                    }
                }
            }
        }
        let [accessed, modified] = given;
        if path == 0 {
            return self.fd_filestat_set_times(fd, accessed, modified, how).map(|()| 0);
        }
        let path = self.text_at(path)?;
        let node = self.own_node(fd, u32::from(flags & KEEP_LINK == 0), path)?;
        self.set_times(node, accessed, modified, how).map(|()| 0)
    }

    pub(crate) fn __syscall_pipe(&mut self, out: u32) -> Result<u32> {
        let writer = out.checked_add(4).ok_or(Errno::Fault)?;
        self.fd_pipe(out, writer).map(|()| 0)
    }

    /// Writes which of these descriptors are ready, and returns how many are. Without one it fails if
    /// the guest would wait without a timeout.
    pub(crate) fn poll_now(&mut self, at: u32, count: u32, is_endless: bool) -> Result<u32> {
        const READ: u16 = 1;
        const WRITE: u16 = 4;
        const HUNG_UP: u16 = 16;
        const INVALID: u16 = 32;
        if count > MOST_POLLED {
            return Err(Errno::Invalid);
        }
        let mut ready = 0;
        for at in (0..count).map(|number| at.checked_add(number * 8)) {
            let at = at.ok_or(Errno::Fault)?;
            let polled = u64::from_le_bytes(self.guest.read(at)?);
            let (fd, wanted) = (polled as u32, (polled >> 32) as u16);
            let mut found = 0;
            // Negative ones are left out.
            for (flag, writes) in
                [(READ, false), (WRITE, true)].into_iter().filter(|_| fd >> 31 == 0)
            {
                match self.readiness(fd, writes) {
                    Err(_) => found = INVALID,
                    Ok(one) if wanted & flag != 0 || one.is_hung_up => {
                        found |= if one.is_ready { flag & wanted } else { 0 };
                        found |= if one.is_hung_up { HUNG_UP } else { 0 };
                    }
                    Ok(_) => {}
                }
            }
            let flags = at.checked_add(6).ok_or(Errno::Fault)?;
            self.guest.write(flags, &found.to_le_bytes())?;
            ready += u32::from(found != 0);
        }
        if ready == 0 && is_endless { Err(Errno::Deadlock) } else { Ok(ready) }
    }

    /// Reads a path that a NUL ends.
    fn text_at(&self, at: u32) -> Result<Buffer> {
        let room = self.guest.memory()?.len().saturating_sub(at as usize);
        let room = room.min(MOST_PATH_BYTES + 1) as u32;
        let end = |bytes: &[u8]| bytes.iter().position(|byte| *byte == 0);
        let len = self.guest.look(Buffer { at, len: room }, end)?;
        let missing =
            if room as usize > MOST_PATH_BYTES { Errno::NameTooLong } else { Errno::Fault };
        Ok(Buffer { at, len: len.ok_or(missing)? as u32 })
    }

    /// Returns the folder from which paths are resolved.
    pub(super) fn base(&self, fd: u32) -> Result<Base> {
        if fd == CURRENT_FOLDER { self.workdir() } else { self.open.base(fd) }
    }

    /// Returns milliseconds of a clock.
    pub(crate) fn milliseconds(&mut self, clock: u32) -> f64 {
        self.clock.read(clock).unwrap_or(0) as f64 / 1e6
    }

    /// Writes the date and time of day at these seconds since 1970, in UTC.
    pub(crate) fn write_date(&mut self, seconds: i64, out: u32) -> Result {
        let (days, rest) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
        // Years begin in March, so that leap days end them.
        let shifted = days + DAYS_TO_1970;
        let (era, day) =
            (shifted.div_euclid(DAYS_OF_400_YEARS), shifted.rem_euclid(DAYS_OF_400_YEARS));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let of_year = day - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let of_month = of_year - (153 * month + 2) / 5 + 1;
        let month = (month + 2) % 12;
        let year = year + era * 400 + i64::from(month < 2);
        let since_january = days - days_to(year, 0, 1);
        let fields = [
            rest % 60,
            rest / 60 % 60,
            rest / 3600,
            of_month,
            month,
            year - 1900,
            (days + 4).rem_euclid(7),
            since_january,
            0,
            0,
        ];
        let bytes = fields.map(|field| (field as i32).to_le_bytes());
        self.guest.write(out, bytes.as_flattened())
    }

    /// Returns the seconds since 1970 of a date, whose fields may be out of their ranges, and writes
    /// it again with its fields in them.
    pub(crate) fn seconds_of_date(&mut self, at: u32) -> Result<i64> {
        let bytes: [u8; 24] = self.guest.read(at)?;
        let mut fields = [0; 6];
        for (field, bytes) in fields.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *field = i64::from(i32::from_le_bytes(*bytes));
        }
        let [second, minute, hour, day, month, year] = fields;
        let days = days_to(year + 1900 + month.div_euclid(12), month.rem_euclid(12), day);
        let seconds = days * DAY_SECONDS + hour * 3600 + minute * 60 + second;
        self.write_date(seconds, at)?;
        Ok(seconds)
    }
}

/// Returns the days from 1970 to a day of a month, which is counted from 0.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month < 2);
    let since_march = (153 * ((month + 10) % 12) + 2) / 5 + day - 1;
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    era * DAYS_OF_400_YEARS + of_era * 365 + of_era / 4 - of_era / 100 + since_march - DAYS_TO_1970
}
