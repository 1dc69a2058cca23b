//! Calls every function with random arguments: none panics, hangs or grows the host.
//!
//! The seed is fixed. `HATCHERY_FUZZ_CALLS` sets the number of calls; SPECIFICATION.md states the
//! promised number.

use std::sync::Arc;

use parking_lot::Mutex;
use wasmer::{FunctionEnv, Instance, Value};

use crate::files::mount::Mount;
use crate::files::quota::FileQuota;
use crate::host::GuestHost;
use crate::host::call_channel::CallChannel;
use crate::host::env::{GuestEnv, Parts};
use crate::host::layout::Layout;
use crate::host::layout::put_mount;
use crate::host::network::RunNetwork;
use crate::host::reactor::ReactorHost;
use crate::host::wasi::binding;
use crate::host::wasi::bytes::GuestBytes;
use crate::host::wasi::random::Random;
use crate::host::wasi::{HostState, RunStreams, Wasi};
use crate::interrupt::gate::{Gate, ThreadGate};
use crate::limits::Limits;
use crate::memory::{GuestMemory, WASM_PAGE_BYTES};
use crate::python::library::{Library, LibraryFile};
use crate::python::module::imports::{self, EMSCRIPTEN, HOST, ImportRule, THREADS, WASI, WASIX};
use crate::python::module::new_engine;
use crate::run::network::Destination;
use crate::run::program::Deterministic;
use crate::run::transcript::Transcript;

const DEFAULT_CALLS: u64 = 10_000_000;
const GUEST_CALLS: u64 = 200_000;
/// The first page holds texts and tables that calls can point to; the other pages are scratch.
const MEMORY_BYTES: usize = 4 * WASM_PAGE_BYTES;
const TEXTS_AT: u32 = 1024;
const TABLES_AT: u32 = 16 << 10;
const QUOTA: FileQuota = FileQuota { bytes: 1 << 20, count: 100, open: 20 };

const TEXTS: [&str; 28] = [
    "a",
    "b",
    "c",
    "d/e",
    "d",
    "..",
    ".",
    "/",
    "//",
    "a/",
    "../a",
    "/workspace/a",
    "/tmp/x",
    "l",
    "l/a",
    "l2",
    "/usr/local/lib/python315.zip",
    "/mounted",
    "/mounted/in",
    "/mounted/../a",
    "\0",
    "ä",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/dev/new",
    "d/../../../../a",
    "",
];

/// Numbers from a seeded stream, drawn in blocks.
struct Numbers {
    stream: Random,
    block: Vec<u8>,
}

impl Numbers {
    fn next(&mut self) -> u64 {
        if self.block.len() < 8 {
            self.block.resize(1 << 16, 0);
            self.stream.fill(&mut self.block).unwrap();
        }
        let rest = self.block.split_off(self.block.len() - 8);
        u64::from_le_bytes(rest.try_into().unwrap())
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }

    /// Returns an argument for a parameter of this name: mostly a plausible one, else an arbitrary
    /// one.
    fn argument(&mut self, name: &str, text: &mut usize) -> u64 {
        if self.below(10) == 0 {
            return self.arbitrary();
        }
        match name {
            "fd" | "old_fd" | "new_fd" | "to" if self.below(2) == 0 => 3,
            "fd" | "old_fd" | "new_fd" | "to" | "least" => u64::from(self.below(24)),
            "path" | "old_path" | "new_path" | "target" => {
                *text = self.below(TEXTS.len() as u32) as usize;
                u64::from(TEXTS_AT) + *text as u64 * 64
            }
            "len" | "old_len" | "new_len" | "target_len" => TEXTS[*text].len() as u64,
            "buffers" => u64::from(TABLES_AT + self.below(32) * 8),
            "count" | "how" | "flags" | "look" | "whence" | "id" | "kind" | "option"
            | "command" => u64::from(self.below(16)),
            "mode" => u64::from(self.below(2) * 0o600),
            "family" | "protocol" => u64::from(self.below(8)),
            "offset" | "size" | "delta" | "cookie" => 1 << self.below(24),
            "out" | "at" | "buffer" | "reader" | "writer" | "first" | "second" | "out_len"
            | "timeout" => u64::from(self.below(MEMORY_BYTES as u32)),
            _ => self.arbitrary(),
        }
    }

    fn arbitrary(&mut self) -> u64 {
        match self.below(6) {
            0 => u64::from(self.below(64)),
            1 => u64::from(self.below(MEMORY_BYTES as u32 + 64)),
            2 => self.next(),
            3 => 1 << self.below(64),
            4 => (1_u64 << self.below(64)).wrapping_neg(),
            _ => u64::MAX,
        }
    }
}

fn wasi() -> Wasi {
    let library = Library {
        files: vec![LibraryFile {
            path: crate::places::ARCHIVE_PATH.to_owned(),
            contents: ::bytes::Bytes::from_static(b"archive"),
        }],
        matplotlib_data: vec![LibraryFile {
            path: "fonts/a.ttf".to_owned(),
            contents: ::bytes::Bytes::from_static(b"font"),
        }],
    };
    let layout = Layout::new(&library);
    let state = HostState::new(&layout, Some(&Deterministic::new(1)));
    let mut wasi = Wasi::new(layout.workspace, state);
    let transcript = Arc::new(Transcript::default());
    transcript.begin(&Limits { output_bytes: 1 << 16, ..Limits::default() });
    wasi.begin_run(RunStreams {
        transcript,
        stdin: b"input".to_vec(),
        stops_at_output_limit: false,
        most_calls: u64::MAX,
        network: RunNetwork::default(),
    });
    // So that sockets can be opened. No argument below is this address.
    let granted: Destination = "127.0.0.1:1".parse().unwrap();
    wasi.network = RunNetwork::new([granted].into_iter().collect(), 1 << 20);
    wasi
}

/// Writes likely paths, 64 bytes apart, and a table of buffers.
fn put_texts(guest: &GuestBytes) {
    for (index, text) in TEXTS.iter().enumerate() {
        guest.write(TEXTS_AT + index as u32 * 64, text.as_bytes()).unwrap();
    }
    for index in 0..32_u32 {
        let at = TABLES_AT + index * 8;
        let place = index.wrapping_mul(0x1357_9bdf) % (5 * WASM_PAGE_BYTES as u32);
        guest.write_u32(at, place).unwrap();
        guest.write_u32(at + 4, (1_u32 << (index % 24)) - 1).unwrap();
    }
}

#[test]
fn no_call_panics_hangs_or_grows_beyond_the_quotas() {
    let calls = std::env::var("HATCHERY_FUZZ_CALLS").ok();
    let calls = calls.map_or(DEFAULT_CALLS, |calls| calls.parse().expect("a number of calls"));
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("in"), "mounted").unwrap();
    let mount = Arc::new(Mount::open(host.path()).unwrap());
    let mut wasi = wasi();
    put_mount(&mut wasi.tree, "/mounted", &mount, 0).unwrap();
    wasi.tree.begin(QUOTA, false);
    let before = wasi.tree.clone();
    let memory = Arc::new(GuestMemory::new(MEMORY_BYTES).unwrap());
    wasi.guest = GuestBytes::of(&memory);
    let mut numbers = Numbers { stream: Random::seeded(7), block: Vec::new() };
    let (mut served, mut waits) = ([0_u64; binding::FUNCTIONS.len()], 0);
    for call in 0..calls {
        if call % 1_000 == 0 {
            // Calls overwrite the texts. Undo some changes, as between two runs.
            put_texts(&wasi.guest);
            wasi.tree.check_invariants();
            wasi.open.check_invariants();
            if call % 5_000 == 0 {
                wasi.undo_to(&before);
            }
        }
        let function = numbers.below(binding::FUNCTIONS.len() as u32) as usize;
        let mut text = 0;
        let mut pick = |name: &str| numbers.argument(name, &mut text);
        let result = binding::call(function, &mut wasi, &mut pick);
        served[function] += u64::from(result.is_ok());
        if call % 64 == 0 {
            let mut pick = |name: &str| pick(name) as u32;
            let (at, out) = (pick("at"), pick("out"));
            let futex = wasi.futex_begin(at, pick("timeout"), out);
            let poll = wasi.poll_begin(at, pick("count"), true);
            let polled = poll.is_ok_and(|poll| wasi.poll_end(&poll, out, at).is_ok());
            waits += u64::from(futex.is_ok()) + u64::from(polled);
        }
    }
    assert!(waits > 0);
    wasi.tree.check_invariants();
    assert!(wasi.open.count() <= QUOTA.open);
    // Every function has succeeded that ever does.
    for ((name, _), served) in binding::FUNCTIONS.iter().zip(served) {
        // No name and no address among the arguments is granted, and nobody connects.
        let fails = ["resolve", "sock_accept", "sock_connect"].contains(name) || is_refused(name);
        assert_eq!(served == 0, fails, "`{name}` succeeded {served} times");
    }
}

fn is_refused(name: &str) -> bool {
    matches!(imports::judgement(WASIX, name), ImportRule::Refused(_))
}

/// The functions that exist only in the binding, with the names of their parameters. `futex_wait`
/// isn't here, since a futex without a timeout waits for a stop.
const BOUND_ONLY: [(&str, &str, &[&str]); 10] = [
    (EMSCRIPTEN, "__syscall_poll", &["at", "count", "timeout"]),
    (WASI, "poll_oneoff", &["at", "out", "count", "out"]),
    (WASI, "proc_exit", &["id"]),
    (WASIX, "callback_signal", &["path", "len"]),
    (WASIX, "proc_exit2", &["id"]),
    (WASIX, "proc_signal", &["id", "id"]),
    (WASIX, "thread_exit", &["id"]),
    (WASIX, "thread_signal", &["id", "id"]),
    (THREADS, "thread-spawn", &["at"]),
    (HOST, "call", &["at", "len", "out", "out"]),
];

/// The functions without a result.
const WITHOUT_RESULT: [&str; 4] = ["callback_signal", "proc_exit", "proc_exit2", "thread_exit"];
/// The functions that always end the program, and those that may.
const ENDS: [&str; 3] = ["proc_exit", "proc_exit2", "thread_exit"];
const MAY_END: [&str; 2] = ["proc_signal", "thread_signal"];

/// A function's name, and the names of its parameters with whether each has 64 bits.
type Forwarded = (String, Vec<(String, bool)>);

/// Returns a guest that exports a forwarding function for each import.
fn forwarding_guest() -> (String, Vec<Forwarded>) {
    let (mut imports, mut exports, mut functions) = (String::new(), String::new(), Vec::new());
    let mut add = |namespace: &str, name: &str, parameters: Vec<(String, bool)>| {
        let types: Vec<&str> =
            parameters.iter().map(|(_, is_long)| if *is_long { "i64" } else { "i32" }).collect();
        let result = if WITHOUT_RESULT.contains(&name) { "" } else { "(result i32)" };
        let signature = format!("(param {}) {result}", types.join(" "));
        imports += &format!("(import \"{namespace}\" \"{name}\" (func ${name} {signature}))");
        let arguments: String =
            (0..types.len()).map(|index| format!("local.get {index} ")).collect();
        exports += &format!("(func (export \"{name}\") {signature} {arguments} call ${name})");
        functions.push((name.to_owned(), parameters));
    };
    for (name, parameters) in binding::FUNCTIONS {
        let is_long = |ty: &str| ty.ends_with("64");
        let parameters = parameters.iter().map(|(name, ty)| ((*name).to_owned(), is_long(ty)));
        let namespaces = [WASI, WASIX, EMSCRIPTEN];
        let namespace = namespaces.into_iter().find(|one| imports::is_allowed(one, name));
        // It isn't imported by its own name.
        if *name != "fd_move" {
            add(namespace.unwrap(), name, parameters.collect());
        }
    }
    for (namespace, name, parameters) in BOUND_ONLY {
        add(namespace, name, parameters.iter().map(|name| ((*name).to_owned(), false)).collect());
    }
    let alloc = "(func (export \"host_alloc\") (param i32) (result i32) i32.const 65536)";
    let module = format!("(module {imports} (memory (export \"memory\") 4 4) {alloc} {exports})");
    (module, functions)
}

/// The same from inside a guest: through wasmer, the gate and the call channel.
#[test]
fn calls_from_a_guest_neither_panic_nor_hang() {
    let (module, functions) = forwarding_guest();
    let engine = new_engine();
    let module = engine.module(module);
    let mut store = engine.store();
    let wasi = Arc::new(Mutex::new(wasi()));
    wasi.lock().tree.begin(QUOTA, false);
    let (gate, channel) = (Arc::new(Gate::new()), Arc::<Mutex<CallChannel>>::default());
    channel.lock().open(b"request".to_vec(), 1 << 10);
    let passage = Arc::new(ThreadGate::of_main(Arc::clone(&gate)));
    let parts = Parts {
        gate: Arc::clone(&gate),
        wasi: Arc::clone(&wasi),
        channel,
        control: Arc::default(),
        has_kernels: true,
    };
    let env = GuestEnv::new(passage, &parts);
    let env = FunctionEnv::new(&mut store, env);
    let imports = ReactorHost::new(wasi).imports(&mut store, &module, &env, None).unwrap();
    let (instance, memory) = crate::memory::tunables::with_memory(None, || {
        Instance::new(&mut store, &module, &imports).unwrap()
    });
    let memory = memory.unwrap();
    let memory = Arc::clone(memory.shared());
    gate.guard(Arc::clone(&memory));
    let alloc = instance.exports.get_typed_function(&store, "host_alloc").unwrap();
    env.as_mut(&mut store).attach_memory(&memory);
    env.as_mut(&mut store).alloc = Some(alloc);
    gate.begin();
    let mut numbers = Numbers { stream: Random::seeded(8), block: Vec::new() };
    let mut left = 0;
    for call in 0..GUEST_CALLS {
        if call % 1_000 == 0 {
            put_texts(&env.as_ref(&store).guest);
        }
        let (name, parameters) = &functions[numbers.below(functions.len() as u32) as usize];
        let mut text = 0;
        let arguments: Vec<Value> = parameters
            .iter()
            .map(|(name, is_long)| {
                let argument = numbers.argument(name, &mut text);
                if *is_long { Value::I64(argument as i64) } else { Value::I32(argument as i32) }
            })
            .collect();
        let function = instance.exports.get_function(name).unwrap().clone();
        let result = gate.guest(|| function.call(&mut store, &arguments)).unwrap();
        let ends = ENDS.contains(&name.as_str());
        let may_end = ends || MAY_END.contains(&name.as_str());
        assert!(result.is_err() == ends || may_end, "{name} {arguments:?}: {result:?}");
        left += u64::from(result.is_err());
    }
    assert!(left > 0 && gate.end().stop.is_none());
}
