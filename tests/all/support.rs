//! Shared pools for tests that don't need their own, since loading the build takes a while.

use std::future::Future;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use hatchery::image::ProgramImports;
use hatchery::{Builder, Exception, Hatchery, Job, Outcome, Verdict};
use serde_json::Value;
pub(crate) use test_support::calm::calm;
pub(crate) use test_support::output::next_output;

use crate::found;

/// How long a test may take before it counts as one that hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Returns a builder of pools on which a busy machine changes no verdict.
pub(crate) fn builder() -> Builder {
    Hatchery::builder().limits(calm())
}

/// A pool and the runtime that it runs on.
pub(crate) struct Shared {
    runtime: tokio::runtime::Runtime,
    hatchery: Hatchery,
}

impl Shared {
    pub(crate) fn start(builder: Builder) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
        let hatchery =
            runtime.block_on(builder.workers(2).start()).expect("the build is available");
        Self { runtime, hatchery }
    }

    /// Runs a test on it, with a timeout.
    pub(crate) fn with<T, F: Future<Output = T>>(
        &'static self,
        test: impl FnOnce(&'static Hatchery) -> F,
    ) -> T {
        let limited = async {
            let test = tokio::time::timeout(PATIENCE, test(&self.hatchery));
            test.await.expect("the test ends in time")
        };
        self.runtime.block_on(limited)
    }
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| Shared::start(builder()));
static PRELOADED: LazyLock<Shared> =
    LazyLock::new(|| Shared::start(builder().preload(["numpy", "pandas", "matplotlib"])));

/// A pool whose image hides modules that programs import.
static HIDING: LazyLock<Shared> = LazyLock::new(|| {
    let mut imports = ProgramImports::default();
    // So often that it pays on any machine.
    for _ in 0..2_000 {
        imports.add("import numpy, pandas, unittest, asyncio, yaml, openpyxl");
        imports.add("from matplotlib import pyplot");
    }
    Shared::start(builder().preload_for(imports))
});

/// Pools on the builds beside the default one that are here, with their names.
static OTHERS: LazyLock<Vec<(&str, Shared)>> = LazyLock::new(|| {
    let start = |path: PathBuf| Shared::start(builder().python(path));
    found::others().into_iter().map(|(name, path)| (name, start(path))).collect()
});

/// Returns pools on builds beside the default one.
pub(crate) fn other_builds() -> impl Iterator<Item = (&'static str, &'static Shared)> {
    OTHERS.iter().map(|(name, shared)| (*name, shared))
}

/// Runs a test on the shared pool, with a timeout.
pub(crate) fn with_pool<T, F: Future<Output = T>>(test: impl FnOnce(&'static Hatchery) -> F) -> T {
    SHARED.with(test)
}

/// Runs a test on a pool whose interpreters have imported numpy, pandas and matplotlib.
pub(crate) fn with_preloaded_pool<T, F: Future<Output = T>>(
    test: impl FnOnce(&'static Hatchery) -> F,
) -> T {
    PRELOADED.with(test)
}

/// Runs a test on a pool whose image hides the standard library, numpy, pandas, matplotlib and yaml.
pub(crate) fn with_hiding_pool<T, F: Future<Output = T>>(
    test: impl FnOnce(&'static Hatchery) -> F,
) -> T {
    HIDING.with(test)
}

/// Runs a test on its own pool with two workers, with a timeout.
pub(crate) fn with_own_pool<F: Future<Output = ()>>(
    builder: Builder,
    test: impl FnOnce(Hatchery) -> F,
) {
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        let pool = builder.workers(2).start().await.expect("the build is available");
        tokio::time::timeout(PATIENCE, test(pool)).await.expect("the test ends in time");
    });
}

/// Runs one program on the shared pool.
pub(crate) fn run(source: &str) -> Outcome {
    run_job(Job::code(source))
}

/// Runs one job on the shared pool.
pub(crate) fn run_job(job: Job) -> Outcome {
    with_pool(|pool| async { pool.run(job).await.expect("the queue isn't full") })
}

/// Returns the value of the last expression.
#[track_caller]
pub(crate) fn value(outcome: &Outcome) -> Value {
    match &outcome.verdict {
        Verdict::Completed { value: Some(value), .. } => value.clone(),
        verdict => panic!("{verdict:?}\n{}", outcome.stderr_text()),
    }
}

/// Returns the exception that ended the program.
#[track_caller]
pub(crate) fn exception(outcome: &Outcome) -> &Exception {
    match &outcome.verdict {
        Verdict::Raised(exception) => exception,
        verdict => panic!("{verdict:?}"),
    }
}
