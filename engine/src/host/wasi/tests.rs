//! What the functions of WASIX do for a guest, call by call.

use std::sync::Arc;

use parking_lot::Mutex;

use super::bytes::GuestBytes;
use super::descriptors::Open;
use super::{HostState, RunStreams, Wasi};
use crate::errno::Errno;
use crate::files::quota::FileQuota;
use crate::host::layout::Layout;
use crate::host::network::RunNetwork;
use crate::interpreter::image::format::SavedHost;
use crate::limits::{LimitKind, Limits};
use crate::memory::{GuestMemory, WASM_PAGE_BYTES};
use crate::places::ARCHIVE_PATH;
use crate::python::library::{Library, LibraryFile};
use crate::run::program::Deterministic;
use crate::run::transcript::Transcript;

mod bound;
mod channels;
mod emscripten;
mod fuzz;
mod python;

const OUT: u32 = 0;
const PATH: u32 = 64;
const TABLE: u32 = 8 << 10;
const DATA: u32 = 64 << 10;

/// Rights to read and write.
const READ_WRITE: u64 = 1 << 1 | 1 << 6;
const CREATE: u32 = 1;

fn layout() -> Layout {
    let file = |path: &str| LibraryFile {
        path: path.to_owned(),
        contents: ::bytes::Bytes::from_static(b"contents"),
    };
    Layout::new(&Library { files: vec![file(ARCHIVE_PATH)], matplotlib_data: vec![file("a.ttf")] })
}

/// A guest, and short names for what a C library does.
struct Guest {
    layout: Layout,
    wasi: Wasi,
}

impl Guest {
    fn new() -> Self {
        let layout = layout();
        let state = HostState::new(&layout, Some(&Deterministic::new(1)));
        let mut wasi = Wasi::new(layout.workspace, state);
        wasi.guest = GuestBytes::of(&Arc::new(GuestMemory::new(8 * WASM_PAGE_BYTES).unwrap()));
        let mut guest = Self { layout, wasi };
        guest.begin_run();
        guest
    }

    fn begin_run(&mut self) {
        let transcript = Arc::new(Transcript::default());
        transcript.begin(&Limits::default());
        self.wasi.begin_run(RunStreams {
            transcript,
            stdin: b"input".to_vec(),
            stops_at_output_limit: false,
            most_calls: u64::MAX,
            network: RunNetwork::default(),
        });
        self.wasi.tree.begin(FileQuota { bytes: 1 << 20, count: 100, open: 10 }, false);
    }

    fn call(&mut self, call: impl FnOnce(&mut Wasi) -> Result<(), Errno>) -> Result<(), Errno> {
        self.wasi.open.check_invariants();
        let result = call(&mut self.wasi);
        self.wasi.open.check_invariants();
        result
    }

    /// Returns the number that the call wrote to `OUT`.
    fn number(&mut self, call: impl FnOnce(&mut Wasi) -> Result<(), Errno>) -> Result<u32, Errno> {
        self.call(call)?;
        Ok(u32::from_le_bytes(self.wasi.guest.read(OUT).unwrap()))
    }

    fn pair(
        &mut self,
        call: impl FnOnce(&mut Wasi) -> Result<(), Errno>,
    ) -> Result<(u32, u32), Errno> {
        let first = self.number(call)?;
        Ok((first, u32::from_le_bytes(self.wasi.guest.read(OUT + 4).unwrap())))
    }

    fn put(&self, at: u32, bytes: &[u8]) -> u32 {
        self.wasi.guest.write(at, bytes).unwrap();
        bytes.len() as u32
    }

    fn put_table(&self, len: u32) {
        self.put(TABLE, &[DATA.to_le_bytes(), len.to_le_bytes()].concat());
    }

    fn open(&mut self, path: &str) -> Result<u32, Errno> {
        let len = self.put(PATH, path.as_bytes());
        self.number(|wasi| wasi.path_open2(3, 1, PATH, len, CREATE, READ_WRITE, 0, 0, 1, OUT))
    }

    fn close(&mut self, fd: u32) -> Result<(), Errno> {
        self.call(|wasi| wasi.fd_close(fd))
    }

    fn pipe(&mut self) -> Result<(u32, u32), Errno> {
        self.pair(|wasi| wasi.fd_pipe(OUT, OUT + 4))
    }

    fn sockets(&mut self) -> Result<(u32, u32), Errno> {
        self.pair(|wasi| wasi.sock_pair(3, 1, 6, OUT, OUT + 4))
    }

    fn write(&mut self, fd: u32, bytes: &[u8]) -> Result<u32, Errno> {
        let len = self.put(DATA, bytes);
        self.put_table(len);
        self.number(|wasi| wasi.fd_write(fd, TABLE, 1, OUT))
    }

    fn read(&mut self, fd: u32, len: u32) -> Result<Vec<u8>, Errno> {
        self.put_table(len);
        let read = self.number(|wasi| wasi.fd_read(fd, TABLE, 1, OUT))?;
        Ok(self.data(read))
    }

    fn data(&self, len: u32) -> Vec<u8> {
        let buffer = super::bytes::Buffer { at: DATA, len };
        self.wasi.guest.with(buffer, |bytes| bytes.to_vec()).unwrap()
    }

    fn set_nonblocking(&mut self, fd: u32) {
        self.call(|wasi| wasi.fd_fdstat_set_flags(fd, 4)).unwrap();
    }

    fn chdir(&mut self, path: &str) -> Result<(), Errno> {
        let len = self.put(PATH, path.as_bytes());
        self.call(|wasi| wasi.chdir(PATH, len))
    }

    fn getcwd(&mut self, room: u32) -> Result<String, Errno> {
        self.put(OUT, &room.to_le_bytes());
        let len = self.number(|wasi| wasi.getcwd(DATA, OUT))?;
        let text = self.data(len + 1);
        assert_eq!(text.last(), Some(&0));
        Ok(String::from_utf8(text[..len as usize].to_vec()).unwrap())
    }

    fn dup(&mut self, fd: u32, least: u32) -> Result<u32, Errno> {
        self.number(|wasi| wasi.fd_dup2(fd, least, 0, OUT))
    }

    fn dup2(&mut self, fd: u32, to: u32) -> Result<(), Errno> {
        self.call(|wasi| wasi.fd_renumber(fd, to))
    }
}

#[test]
fn the_current_folder_is_the_one_that_was_chosen() {
    let mut guest = Guest::new();
    assert_eq!(guest.getcwd(100).as_deref(), Ok("/"));
    guest.chdir("workspace").unwrap();
    let len = guest.put(PATH, b"workspace/inner");
    guest.call(|wasi| wasi.path_create_directory(3, PATH, len)).unwrap();
    guest.chdir("./inner/../inner/").unwrap();
    assert_eq!(guest.getcwd(17).as_deref(), Ok("/workspace/inner"));
    assert_eq!(guest.getcwd(16), Err(Errno::Range));
    let needed = guest.wasi.guest.read(OUT).unwrap();
    assert_eq!(u32::from_le_bytes(needed), 17);
    assert_eq!(guest.chdir("nothing"), Err(Errno::NoEntry));
    guest.open("/workspace/file").unwrap();
    assert_eq!(guest.chdir("../file"), Err(Errno::NotFolder));
    guest.chdir("..").unwrap();
    guest.chdir("inner").unwrap();
    let len = guest.put(PATH, b"workspace/inner");
    guest.call(|wasi| wasi.path_remove_directory(3, PATH, len)).unwrap();
    assert_eq!(guest.getcwd(100), Err(Errno::NoEntry));
    assert_eq!(guest.chdir(".."), Err(Errno::NoEntry));
    guest.chdir("/tmp").unwrap();
    assert_eq!(guest.getcwd(100).as_deref(), Ok("/tmp"));
}

#[test]
fn duplicates_share_their_position() {
    let mut guest = Guest::new();
    let file = guest.open("/tmp/file").unwrap();
    guest.write(file, b"one two").unwrap();
    let copy = guest.dup(file, 0).unwrap();
    assert_eq!(copy, file + 1);
    guest.call(|wasi| wasi.fd_seek(file, 4, 0, OUT)).unwrap();
    assert_eq!(guest.read(copy, 10).as_deref(), Ok(&b"two"[..]));
    assert_eq!(guest.read(file, 10).as_deref(), Ok(&b""[..]));
    guest.close(file).unwrap();
    guest.call(|wasi| wasi.fd_seek(copy, 0, 0, OUT)).unwrap();
    assert_eq!(guest.read(copy, 3).as_deref(), Ok(&b"one"[..]));
    assert_eq!(guest.dup(file, 0), Err(Errno::BadDescriptor));
    assert_eq!(guest.dup(copy, 12), Ok(12));
    assert_eq!(guest.dup(copy, 1 << 30), Err(Errno::Invalid));
}

#[test]
fn a_replaced_stream_is_back_in_the_next_run() {
    let mut guest = Guest::new();
    let file = guest.open("/tmp/out").unwrap();
    guest.dup2(file, 1).unwrap();
    guest.close(file).unwrap();
    assert_eq!(guest.write(1, b"to the file"), Ok(11));
    guest.call(|wasi| wasi.fd_seek(1, 0, 0, OUT)).unwrap();
    assert_eq!(guest.read(1, 20).as_deref(), Ok(&b"to the file"[..]));
    let len = guest.put(PATH, b"tmp/out");
    guest.call(|wasi| wasi.path_unlink_file(3, PATH, len)).unwrap();
    assert_eq!(guest.wasi.tree.nameless().len(), 1);
    guest.begin_run();
    assert!(matches!(guest.wasi.open.get(1), Ok(Open::Stdout)));
    assert!(guest.wasi.tree.nameless().is_empty());
}

#[test]
fn dup2_closes_what_was_there_and_spares_preopened_folders() {
    let mut guest = Guest::new();
    let (reader, writer) = guest.pipe().unwrap();
    let file = guest.open("/tmp/file").unwrap();
    guest.dup2(file, writer).unwrap();
    assert_eq!(guest.read(reader, 5).as_deref(), Ok(&b""[..]));
    assert_eq!(guest.dup2(file, 3), Err(Errno::NotPermitted));
    assert_eq!(guest.dup2(file, 4), Err(Errno::NotPermitted));
    assert_eq!(guest.dup2(file, 15), Err(Errno::BadDescriptor));
    guest.dup2(file, 14).unwrap();
    guest.dup2(file, file).unwrap();
    guest.write(14, b"same").unwrap();
    guest.call(|wasi| wasi.fd_seek(file, 0, 0, OUT)).unwrap();
    assert_eq!(guest.read(file, 5).as_deref(), Ok(&b"same"[..]));
    // A copy of a preopened folder isn't one, and can be closed.
    let folder = guest.dup(3, 0).unwrap();
    let prestat = guest.call(|wasi| wasi.fd_prestat_get(folder, OUT));
    assert_eq!(prestat, Err(Errno::BadDescriptor));
    guest.close(folder).unwrap();
    assert_eq!(guest.close(3), Err(Errno::NotPermitted));
}

#[test]
fn preview_1_moves_a_descriptor() {
    let mut guest = Guest::new();
    let file = guest.open("/tmp/file").unwrap();
    let other = guest.open("/tmp/other").unwrap();
    guest.call(|wasi| wasi.fd_move(file, other)).unwrap();
    assert_eq!(guest.close(file), Err(Errno::BadDescriptor));
    guest.write(other, b"moved").unwrap();
    assert_eq!(guest.call(|wasi| wasi.fd_move(other, 12)), Err(Errno::BadDescriptor));
}

#[test]
fn the_flag_for_exec_reads_back_and_copies_lose_it() {
    let mut guest = Guest::new();
    let flags = |guest: &mut Guest, fd| {
        guest.put(OUT, &[0; 4]);
        guest.number(|wasi| wasi.fd_fdflags_get(fd, OUT))
    };
    let file = guest.open("/tmp/file").unwrap();
    assert_eq!(flags(&mut guest, file), Ok(1));
    let copy = guest.dup(file, 0).unwrap();
    guest.dup2(file, 12).unwrap();
    assert_eq!((flags(&mut guest, copy), flags(&mut guest, 12)), (Ok(0), Ok(0)));
    guest.call(|wasi| wasi.fd_fdflags_set(12, 1)).unwrap();
    assert_eq!((flags(&mut guest, copy), flags(&mut guest, 12)), (Ok(0), Ok(1)));
    assert_eq!(flags(&mut guest, 99), Err(Errno::BadDescriptor));
}

#[test]
fn every_kind_of_descriptor_meets_the_limit() {
    let mut guest = Guest::new();
    for _ in 0..4 {
        guest.pipe().unwrap();
    }
    guest.dup(1, 0).unwrap();
    assert_eq!(guest.pipe(), Err(Errno::TooManyOpen));
    assert_eq!(guest.sockets(), Err(Errno::TooManyOpen));
    guest.dup(3, 0).unwrap();
    assert_eq!(guest.dup(0, 0), Err(Errno::TooManyOpen));
    assert_eq!(guest.open("/tmp/file"), Err(Errno::TooManyOpen));
    // It takes the place of another, so there are no more than before.
    guest.dup2(0, 5).unwrap();
    let hit = guest.wasi.tree.refusals().all().next().unwrap();
    assert_eq!((hit.limit, hit.allowed), (LimitKind::OpenFiles, 10));
}

#[test]
fn a_copied_guest_has_its_own_pipes_and_folder() {
    let mut guest = Guest::new();
    let (reader, writer) = guest.pipe().unwrap();
    let (one, other) = guest.sockets().unwrap();
    guest.write(writer, b"before").unwrap();
    guest.write(one, b"socket").unwrap();
    guest.dup2(writer, 14).unwrap();
    guest.chdir("/tmp").unwrap();
    let state = guest.wasi.state();
    let saved = SavedHost::of(&state);
    assert!(SavedHost::is_all_of(&state));

    // What happens later is only here.
    assert_eq!(guest.read(reader, 10).as_deref(), Ok(&b"before"[..]));
    guest.close(writer).unwrap();
    guest.close(14).unwrap();
    guest.call(|wasi| wasi.sock_shutdown(one, 3)).unwrap();
    guest.chdir("/home").unwrap();
    assert_eq!(guest.read(reader, 10).as_deref(), Ok(&b""[..]));

    let revived = saved.revive(&guest.layout).unwrap();
    assert_eq!(SavedHost::of(&revived), SavedHost::of(&state));
    for state in [state, revived] {
        guest.wasi.set_state(state);
        guest.begin_run();
        assert_eq!(guest.getcwd(100).as_deref(), Ok("/tmp"));
        guest.close(writer).unwrap();
        assert_eq!(guest.write(14, b" after"), Ok(6));
        assert_eq!(guest.read(reader, 20).as_deref(), Ok(&b"before after"[..]));
        assert_eq!(guest.read(other, 20).as_deref(), Ok(&b"socket"[..]));
        assert_eq!(guest.write(other, b"back"), Ok(4));
    }
}

#[test]
fn saved_descriptors_that_contradict_themselves_are_refused() {
    let mut guest = Guest::new();
    guest.pipe().unwrap();
    let saved = serde_json::to_value(SavedHost::of(&guest.wasi.state())).unwrap();
    let revived = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut saved = saved.clone();
        change(&mut saved);
        serde_json::from_value::<SavedHost>(saved).unwrap().revive(&layout())
    };
    assert!(revived(&|_| {}).is_some());
    let channel = |index: u64, receives: u64| {
        serde_json::json!({"Channel": {
            "receives": receives, "sends": null, "is_socket": false, "is_nonblocking": index > 9
        }})
    };
    let cases: [&dyn Fn(&mut serde_json::Value); 9] = [
        &|saved| saved["workdir"] = "relative".into(),
        &|saved| saved["open"]["slots"][0]["open"] = 99.into(),
        &|saved| saved["open"]["slots"][5] = serde_json::Value::Null,
        &|saved| saved["open"]["slots"][3] = serde_json::Value::Null,
        &|saved| saved["open"]["slots"] = serde_json::json!([]),
        &|saved| saved["open"]["pipes"] = serde_json::json!([]),
        &|saved| saved["open"]["pipes"][0] = vec![0; (64 << 10) + 1].into(),
        &|saved| saved["open"]["opens"][6] = channel(6, 0),
        &|saved| saved["open"]["opens"][5] = channel(5, 7),
    ];
    for (index, case) in cases.into_iter().enumerate() {
        assert!(revived(case).is_none(), "case {index}");
    }
}

#[test]
fn a_process_has_a_number_and_no_relatives() {
    let mut guest = Guest::new();
    assert_eq!(guest.number(|wasi| wasi.proc_id(OUT)), Ok(1));
    assert_eq!(guest.number(|wasi| wasi.proc_parent(1, OUT)), Ok(0));
    let stranger = guest.number(|wasi| wasi.proc_parent(7, OUT));
    assert_eq!(stranger, Err(Errno::NoProcess));
    assert_eq!(guest.number(|wasi| wasi.thread_parallelism(OUT)), Ok(1));
    assert_eq!(guest.number(|wasi| wasi.proc_signals_sizes_get(OUT)), Ok(0));
    assert_eq!(guest.call(|wasi| wasi.proc_raise_interval(14, 0, 0)), Ok(()));
    let timer = guest.call(|wasi| wasi.proc_raise_interval(14, 1000, 0));
    assert_eq!(timer, Err(Errno::NotSupported));
    assert_eq!(guest.pair(|wasi| wasi.tty_get(OUT)), Ok((80, 25)));
}
