//! An early module behaves as the whole one.

use wasmer::sys::vm::TrapCode;
use wasmer::sys::wasmparser::{Parser, Payload, TypeRef};
use wasmer::{Instance, Store, TypedFunction, imports};

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Compilation;
use super::*;
use crate::cache::CacheDir;
use crate::cause::chain;
use crate::config::{EngineConfig, ProgressSink, Silent};
use crate::error::ModuleError;
use crate::interpreter::engine::Engine;
use crate::interrupt::gate::Stopped;
use crate::interrupt::gate::tests::gate;
use crate::interrupt::here::RunsHere;
use crate::interrupt::reason::StopReason;
use crate::interrupt::stop::StopHandle;
use crate::interrupt::watchdog::Stopwatch;
use crate::limits::Limits;
use crate::memory::tunables::{InstanceMemory, with_memory};
use crate::python::module::linked::Linked;
use crate::python::module::native::NativeEngine;
use crate::python::module::{
    CompiledModule, Source, compile, engine_for, load_or_compile, load_unnamed, start_early,
};
use crate::run::outcome::Verdict;
use crate::run::program::Program;
use lazy::{FullModule, LazyFunctions};

/// The functions 0 to 4 call the others in each way that there is. These are directly, through a
/// table, and with arguments on the stack. Others are with an exception through both modules, and
/// with results in memory.
const MODULE: &str = r#"(module
    (memory (export "memory") 1)
    (table 2 funcref)
    (elem (i32.const 0) func $seven $many)
    (type $number (func (result i32)))
    (tag $error (param i32))
    (global $calls (mut i32) (i32.const 0))
    (func (export "direct") (param i32) (result i32)
        (i32.add (call $seven) (call $divide (i32.const 42) (local.get 0))))
    (func (export "indirect") (param i32) (result i32)
        (call_indirect (type $number) (local.get 0)))
    (func (export "many") (param i32) (result i32)
        (i32.trunc_f64_s (call $many
            (i32.const 1) (f64.const 2) (i64.const 3) (f32.const 4) (i32.const 5) (f64.const 6)
            (i32.const 7) (f64.const 8) (i64.const 9) (f32.const 10) (i32.const 11) (f64.const 12)
            (i32.const 13) (f64.const 14) (i64.const 15) (f32.const 16) (i32.const 17)
            (f64.convert_i32_s (local.get 0)))))
    (func (export "catch") (param i32) (result i32)
        (block $caught (result i32)
            (try_table (catch $error $caught) (drop (call $through (local.get 0))))
            (unreachable)))
    (func $throw (param i32) (throw $error (local.get 0)))
    (func $seven (type $number)
        (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (i32.add (i32.const 6) (global.get $calls)))
    (func $divide (param i32 i32) (result i32)
        (i32.store (i32.const 8) (local.get 0))
        (i32.div_s (i32.load (i32.const 8)) (local.get 1)))
    (func $many
        (param i32 f64 i64 f32 i32 f64 i32 f64 i64 f32 i32 f64 i32 f64 i64 f32 i32 f64)
        (result f64)
        (f64.add (f64.add (f64.add (f64.add (f64.add (f64.add (f64.add (f64.add (f64.add
            (f64.convert_i32_s (local.get 0)) (local.get 1)) (f64.convert_i64_s (local.get 2)))
            (f64.promote_f32 (local.get 3))) (local.get 5)) (local.get 7))
            (f64.convert_i64_s (local.get 14))) (f64.promote_f32 (local.get 15)))
            (f64.convert_i32_s (local.get 16))) (local.get 17)))
    (func $through (param i32) (result i32) (call $throw (local.get 0)) (i32.const 1))
    (func (export "two") (param i32) (result i32 i64)
        (if (local.get 0) (then (return (i32.const 1) (i64.const 2))))
        (loop (br 0))
        (unreachable))
    (func (export "load") (param i32) (result i32) (i32.load (local.get 0))))"#;

/// The functions of `MODULE` that are compiled first.
const FIRST: &str = "0 4";

struct Running {
    store: Store,
    instance: Instance,
    _memory: InstanceMemory,
    rest: &'static LazyFunctions,
    early: CompiledModule,
    _engine: NativeEngine,
}

impl Running {
    fn new() -> Self {
        let (wasm, engine) = (wat::parse_str(MODULE).unwrap(), engine_for(&[], None));
        let first = Arc::new(HotFunctions::parse(FIRST).unwrap());
        let (early, rest) = start_early(&engine, &wasm, &first, &silent()).unwrap();
        let mut store = engine.store();
        let (instance, memory) =
            with_memory(None, || Instance::new(&mut store, early.module(), &imports! {}).unwrap());
        Self { store, instance, _memory: memory.unwrap(), rest, early, _engine: engine }
    }

    fn compile(&self) {
        let linked = compile(&wat::parse_str(MODULE).unwrap(), &silent()).unwrap();
        self.rest.set(Ok(whole(self.store.engine(), &linked)));
        assert!(self.rest.whole().is_some());
    }

    fn call(&mut self, name: &str, argument: i32) -> Result<i32, Option<TrapCode>> {
        let function: TypedFunction<i32, i32> =
            self.instance.exports.get_typed_function(&self.store, name).unwrap();
        function.call(&mut self.store, argument).map_err(|error| error.to_trap())
    }
}

#[test]
fn functions_of_both_modules_call_each_other() {
    let mut running = Running::new();
    running.compile();
    assert_eq!(running.call("direct", 6), Ok(7 + 7));
    assert_eq!(running.call("indirect", 0), Ok(8));
    // 1, 2, 3, 4, 6, 8, 15, 16, 17 and the argument.
    assert_eq!(running.call("many", 100), Ok(172));
    assert_eq!(running.call("catch", 5), Ok(5));
    let two: TypedFunction<i32, (i32, i64)> =
        running.instance.exports.get_typed_function(&running.store, "two").unwrap();
    assert_eq!(two.call(&mut running.store, 1).unwrap(), (1, 2));
    assert_eq!(running.call("load", 65_532), Ok(0));
    assert_eq!(running.rest.called(), [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1].map(|called| called == 1));
}

#[test]
fn traps_of_the_rest_keep_their_kinds() {
    let mut running = Running::new();
    running.compile();
    for _ in 0..2 {
        assert_eq!(running.call("direct", 0), Err(Some(TrapCode::IntegerDivisionByZero)));
        assert_eq!(running.call("indirect", 1), Err(Some(TrapCode::BadSignature)));
        assert_eq!(running.call("load", 65_533), Err(Some(TrapCode::HeapAccessOutOfBounds)));
    }
}

#[test]
fn a_function_of_the_rest_waits_until_it_is_compiled() {
    let mut running = Running::new();
    std::thread::scope(|scope| {
        let (rest, engine) = (running.rest, running.store.engine().clone());
        scope.spawn(move || {
            let linked = compile(&wat::parse_str(MODULE).unwrap(), &silent()).unwrap();
            rest.set(Ok(whole(&engine, &linked)));
        });
        assert_eq!(running.call("many", 100), Ok(172));
    });
}

#[test]
fn a_stop_ends_a_run_that_waits_for_the_rest() {
    let mut running = Running::new();
    let gate = gate();
    let (run, interrupt) = (gate.begin(), Arc::clone(&gate));
    let watch = Stopwatch::start().guard(&Limits::default(), run, interrupt.clone(), None);
    let _here = RunsHere::begin(&gate, watch.stop_requester());
    let function: TypedFunction<i32, i32> =
        running.instance.exports.get_typed_function(&running.store, "many").unwrap();
    std::thread::scope(|scope| {
        let ended = gate.guest(|| {
            scope.spawn(|| interrupt.stop(run, StopReason::Cancelled));
            function.call(&mut running.store, 1)
        });
        let error = ended.unwrap().unwrap_err();
        assert_eq!(error.downcast_ref::<Stopped>(), Some(&Stopped));
    });
    assert_eq!(gate.end().stop, Some(StopReason::Cancelled));
}

#[test]
fn a_rest_that_is_never_compiled_ends_the_run() {
    let mut running = Running::new();
    running.rest.set(Err("out of memory".into()));
    assert_eq!(running.call("many", 1), Err(None));
    assert_eq!(running.call("catch", 1), Err(None));
    let _ = &running.early;
}

#[test]
fn whoever_waits_for_the_rest_hears_why_it_can_not_be_compiled() {
    let panics: fn() -> Result<FullModule, ModuleError> = || panic!("of the compiler");
    let fails: fn() -> Result<FullModule, ModuleError> =
        || Err(ModuleError::Compile("no memory".into()));
    for (compile, why) in [(panics, "the compiler panicked"), (fails, "no memory")] {
        let compilation =
            Compilation::begin(LazyFunctions::new(0), move |_| compile(), &silent()).unwrap();
        for _ in 0..2 {
            let cause = compilation.finish().unwrap_err();
            assert!(chain(&cause).to_string().contains(why), "{cause}");
        }
    }
}

#[test]
fn ranges_are_parsed_and_searched() {
    let functions = HotFunctions::parse("0 1\n5 5\n7 9\n").unwrap();
    let contained: Vec<u32> = (0..12).filter(|index| functions.contains(*index)).collect();
    assert_eq!(contained, [0, 1, 5, 7, 8, 9]);
    for invalid in ["1 0", "5 6\n6 7", "1", "a b", "1 4294967295"] {
        assert_eq!(HotFunctions::parse(invalid), None, "{invalid}");
    }
    assert!(HotFunctions::parse(OF_THE_DEFAULT_BUILD).is_some());
}

#[test]
fn an_early_start_leaves_the_whole_module_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let cache = CacheDir::open(Some(folder.path())).unwrap();
    let read = || Ok(wat::parse_str(MODULE).unwrap().into());
    let load = |starts_early| {
        let source = Source { hash: NOTHING_FIRST, read: &read, pinned: None, starts_early };
        load_or_compile(&engine_for(&[], None), &cache, &source, &silent()).unwrap()
    };
    let early = load(true);
    assert!(early.is_early());
    early.finish().unwrap();
    assert!(!load(true).is_early(), "the next start finds it in the cache");
}

fn whole(engine: &wasmer::Engine, linked: &Linked) -> FullModule {
    let whole = load_unnamed(engine, linked, None).unwrap();
    FullModule { module: whole.module().clone(), _kept: Box::new(whole) }
}

fn silent() -> Arc<dyn ProgressSink> {
    Arc::new(Silent)
}

const RECORD_VARIABLE: &str = "HATCHERY_TEST_RECORD_FIRST";

/// The hash of a build of which nothing is compiled first.
const NOTHING_FIRST: &str = "nothing first";

/// While functions are recorded, none is compiled first.
static RECORDS: AtomicBool = AtomicBool::new(false);

pub(super) fn recorded(hash: &str) -> Option<&'static Arc<HotFunctions>> {
    static NONE: LazyLock<Arc<HotFunctions>> = LazyLock::new(Arc::default);
    let is_recorded = hash == WASM_SHA256 && RECORDS.load(Ordering::Relaxed);
    (is_recorded || hash == NOTHING_FIRST).then_some(&NONE)
}

/// CPython and its library; the C and C++ libraries, SQLite and others that it links.
const CPYTHON: [Range<u32>; 2] = [0..8_400, 84_600..89_060];

/// What first programs may do, each in an interpreter of its own.
const PROGRAMS: [&str; 3] = [
    "import numpy as np\n\
     a = np.arange(12.0).reshape(3, 4)\n\
     print(a @ a.T, a.sum(axis=0), a[a > 3], np.sin(a).mean(), a.std(), np.argsort(-a))\n\
     random = np.random.default_rng(0)\n\
     print(np.zeros(2, dtype=object), np.empty((2, 2), dtype=object), random.normal(size=3), \
     random.integers(0, 9, 3), np.unique([3, 1, 3]), repr(a))",
    "import io\n\
     import pandas as pd\n\
     text = 'day,kind,n,price\\n' + ''.join(f'2026-0{1 + n % 6}-01,{n % 3}k,{n},{n}.5\\n' \
     for n in range(40))\n\
     frame = pd.read_csv(io.StringIO(text), parse_dates=['day'])\n\
     frame['sum'] = frame.n * frame.price\n\
     frame['month'] = frame.day.dt.strftime('%Y-%m')\n\
     frame['period'] = frame.day.dt.to_period('M')\n\
     print(frame.groupby('kind').sum(numeric_only=True), frame.describe(), frame.dtypes)\n\
     print(frame.groupby(['kind', 'month']).agg({'n': 'mean', 'sum': ['min', 'max']}).round(1))\n\
     print(frame.pivot_table(index='kind', columns='period', values='n', aggfunc='sum',\n\
         fill_value=0, margins=True, margins_name='all').to_string())\n\
     print(frame.kind.unique(), frame.kind.astype(object).unique(), frame.kind.factorize()[0])\n\
     print(frame.month.unique(), pd.factorize(frame.kind.to_numpy(dtype=object))[0].sum())\n\
     wide = frame.pivot_table(index='kind', columns='month', values='sum', aggfunc='sum', \
         margins=True, margins_name='all')\n\
     print(wide.fillna(0).round(0).astype(int).to_string())\n\
     print(frame.groupby('kind').agg(n=('n', 'sum'), total=('sum', 'sum'), count=('n', 'count')) \
         .sort_values('total', ascending=False).to_string(float_format='{:,.2f}'.format))\n\
     print(frame.set_index('day').n.resample('MS').sum(), frame.kind.value_counts())\n\
     print(frame.drop(columns='period').merge(frame.n).head().to_json(), frame.sort_values('price').tail())\n\
     print(frame.n.rolling(3).mean().dropna().head(), frame.isna().any(), frame.query('n > 37'))\n\
     print(frame.kind.str.upper().str.contains('K').sum(), frame.price.apply(lambda p: p + 1).max())\n\
     print(pd.concat([frame, frame]).drop_duplicates().shape, frame.to_csv(index=False)[:20])\n\
     print(frame[['n', 'price']].corr(), frame.loc[frame.kind == '1k', 'n'].cumsum().iloc[-1])\n\
     print(frame.to_string(formatters={'price': '{:,.2f}'.format}), frame.to_dict('records')[:1])\n\
     frame",
    "import pandas as pd\n\
     frame = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y'], 'd': [1.5, 2], \
     'c': pd.to_datetime(['2026-01-01'] * 2)})\n\
     with pd.ExcelWriter('/tmp/book.xlsx') as book:\n\
     \x20   frame.to_excel(book, sheet_name='first', index=False)\n\
     \x20   frame.pivot_table(index='b', columns='c', values='a', aggfunc='sum', margins=True) \
     .to_excel(book, sheet_name='second')\n\
     \x20   frame.groupby('b').agg(n=('a', 'sum')).to_excel(book, sheet_name='third')\n\
     print(pd.read_excel('/tmp/book.xlsx'))",
];

/// Finds out which functions of the default build Python's start and the programs call. Prints what
/// belongs into `hot-functions.txt`: these, what they call directly, and CPython. Takes a minute,
/// so it only does so on request. Run it alone and with `--nocapture`, after the build has changed.
#[test]
fn the_first_functions() {
    if std::env::var_os(RECORD_VARIABLE).is_none() {
        return;
    }
    RECORDS.store(true, Ordering::Relaxed);
    let folder = tempfile::tempdir().unwrap();
    let config = EngineConfig {
        cache_dir: Some(folder.path().to_owned()),
        starts_early: true,
        ..EngineConfig::from_env()
    };
    let engine = Engine::load(&config, &silent()).unwrap();
    for source in PROGRAMS {
        let mut interpreter = engine.start().unwrap();
        let program = Program { source: source.to_owned(), ..Program::default() };
        let limits = Limits { wall_time: Duration::from_secs(600), ..Limits::default() };
        let stop = StopHandle::default();
        let (outcome, _) = interpreter.run(&program, &limits, &Arc::default(), &stop, true);
        let is_whole = matches!(outcome.verdict, Verdict::Completed { .. });
        assert!(is_whole, "{:?} {}", outcome.verdict, outcome.stdout_text());
    }
    let called = engine.inner.module.compilation.as_ref().unwrap().rest.called();
    let called = (0..).zip(called).filter(|(_, called)| *called).map(|(function, _)| function);
    let callees = callees(&engine.inner.build.wasm().unwrap());
    let mut first = vec![false; callees.len()];
    let mut open: Vec<u32> = called.chain(CPYTHON.into_iter().flatten()).collect();
    while let Some(function) = open.pop() {
        if !std::mem::replace(&mut first[function as usize], true) {
            open.extend(&callees[function as usize]);
        }
    }
    for range in first.chunk_by(|one, next| one == next).scan(0, |at, chunk| {
        let begin = *at;
        *at += chunk.len();
        Some((begin, *at - 1, chunk[0]))
    }) {
        if let (begin, end, true) = range {
            println!("{begin} {end}");
        }
    }
}

/// Returns which functions each function of a module calls directly, by local indices.
fn callees(wasm: &[u8]) -> Vec<Vec<u32>> {
    let (mut imported, mut callees) = (0, Vec::new());
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.unwrap() {
            Payload::ImportSection(imports) => {
                let imports = imports.into_imports().map(Result::unwrap);
                imported = imports.filter(|import| matches!(import.ty, TypeRef::Func(_))).count();
            }
            Payload::CodeSectionEntry(body) => {
                let operators = body.get_operators_reader().unwrap().into_iter();
                let called = operators.filter_map(|operator| match operator.unwrap() {
                    Operator::Call { function_index } => {
                        function_index.checked_sub(u32::try_from(imported).unwrap())
                    }
                    _ => None,
                });
                callees.push(called.collect());
            }
            _ => {}
        }
    }
    callees
}
