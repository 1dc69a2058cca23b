//! Host functions of one job or one session: who can call them, and which of the same name is
//! called.

use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use hatchery::error::InvalidFunction;
use hatchery::{Error, HostError, HostFunction, Job, Outcome};
use serde_json::{Value, json};

use crate::support::{Shared, builder, exception, value};

/// A function that answers with a text.
fn says(name: &str, answer: &'static str) -> HostFunction {
    HostFunction::sync(name, move |()| Ok::<_, HostError>(answer)).no_parameters().doc(answer)
}

/// A pool that lends `whose` and `common`.
static POOL: LazyLock<Shared> = LazyLock::new(|| {
    let builder = builder();
    Shared::start(builder.function(says("whose", "the pool's")).function(says("common", "all")))
});

/// Tells what a program sees of the host's functions.
const LOOK: &str = "from hatchery import host\n\
                    {n: [getattr(host, n)(), getattr(host, n).__doc__] for n in dir(host)}";

fn look() -> Job {
    Job::code(LOOK)
}

/// What a program sees of functions that were made by `says`.
fn seen(functions: &[(&str, &str)]) -> Value {
    functions.iter().map(|(name, answer)| ((*name).to_owned(), json!([answer, answer]))).collect()
}

/// What a program sees that has only the pool's functions.
fn pools() -> Value {
    seen(&[("common", "all"), ("whose", "the pool's")])
}

fn assert_missing(outcome: &Outcome, name: &str) {
    let exception = exception(outcome);
    assert_eq!(exception.type_name, "AttributeError");
    assert_eq!(exception.message, format!("the host has no function `{name}` for this job"));
}

#[test]
fn the_jobs_function_comes_before_the_sessions_and_that_before_the_pools() {
    POOL.with(|pool| async {
        let session = pool.session("layers").await.unwrap();
        assert_eq!(value(&session.run(look()).await.unwrap()), pools());
        let of_session = [says("whose", "the session's"), says("tell", "told")];
        let session = session.functions(of_session).unwrap();
        let expected = seen(&[("common", "all"), ("tell", "told"), ("whose", "the session's")]);
        assert_eq!(value(&session.run(look()).await.unwrap()), expected);
        let job = look().function(says("whose", "the job's")).function(says("one", "only"));
        let own = [("common", "all"), ("one", "only"), ("tell", "told"), ("whose", "the job's")];
        assert_eq!(value(&session.run(job).await.unwrap()), seen(&own));
        // The next job has none of it.
        assert_eq!(value(&session.run(look()).await.unwrap()), expected);
        assert_eq!(value(&pool.run(look()).await.unwrap()), pools());
        session.close();
    });
}

/// With a single worker, the later job runs where the earlier one ran.
#[test]
fn a_later_job_on_the_same_worker_neither_sees_nor_calls_the_functions_of_an_earlier_one() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let pool = builder().workers(1).start().await.unwrap();
        let other = pool.session("another's").await.unwrap();
        let theirs = |code: &str| Job::code(code).tenant("theirs");
        other.run(theirs("from hatchery import host")).await.unwrap();
        for round in 0..3 {
            let source = "from hatchery import host\nimport hatchery, builtins, sys\n\
                          help(host.secret)\nhatchery.kept = builtins.kept = host.secret\n\
                          sys.modules['kept'] = host.secret\nhost.kept = host.secret\nhost.secret()";
            let job = Job::code(source).tenant("ours").function(says("secret", "1234"));
            assert_eq!(value(&pool.run(job).await.unwrap()), json!("1234"), "{round}");
            let source = "import hatchery, builtins, sys, pydoc\nfrom hatchery import host\n\
                          [dir(host), hasattr(host, 'secret'), hasattr(host, 'kept'),\n\
                          hasattr(hatchery, 'kept'), hasattr(builtins, 'kept'), 'kept' in sys.modules,\n\
                          'secret' in pydoc.render_doc(host), 'secret' in repr(vars(host))]";
            let nothing = json!([[], false, false, false, false, false, false, false]);
            for outcome in [pool.run(theirs(source)).await, other.run(theirs(source)).await] {
                assert_eq!(value(&outcome.unwrap()), nothing, "{round}");
            }
            // Around the Python module, by the name alone.
            let source = "from hatchery._host import bridge\nbridge.call('secret', {})";
            for outcome in [pool.run(theirs(source)).await, other.run(theirs(source)).await] {
                assert_missing(&outcome.unwrap(), "secret");
            }
        }
        pool.abort().await;
    });
}

#[test]
fn a_reference_that_a_session_kept_says_that_the_function_is_not_there() {
    POOL.with(|pool| async {
        let session = pool.session("keeps").await.unwrap();
        let source = "from hatchery import host\nkept = host.own\nkept()";
        let job = Job::code(source).function(says("own", "first"));
        assert_eq!(value(&session.run(job).await.unwrap()), json!("first"));
        assert_missing(&session.run(Job::code("kept()")).await.unwrap(), "own");
        assert_missing(&session.run(Job::code("await kept.aio()")).await.unwrap(), "own");
        let gone = session.run(Job::code("host.own")).await.unwrap();
        let message = &exception(&gone).message;
        assert!(message.ends_with("no function 'own'; available: common, whose"), "{message}");
        // A reference is a name: it calls whatever has that name.
        let job = Job::code("kept()").function(says("own", "second"));
        assert_eq!(value(&session.run(job).await.unwrap()), json!("second"));
        session.close();
    });
}

#[test]
fn a_sessions_functions_belong_to_the_handle_and_to_its_forks() {
    POOL.with(|pool| async {
        let plain = pool.session("handles").await.unwrap();
        let session = plain.clone().function(says("own", "ours")).unwrap();
        let ours = seen(&[("common", "all"), ("own", "ours"), ("whose", "the pool's")]);
        assert_eq!(value(&session.run(look()).await.unwrap()), ours);
        assert_eq!(value(&session.clone().run(look()).await.unwrap()), ours);
        for other in [&plain, &pool.session("handles").await.unwrap()] {
            assert_eq!(value(&other.run(look()).await.unwrap()), pools());
        }
        let fork = session.fork("handles, a fork").await.unwrap();
        assert_eq!(value(&fork.run(look()).await.unwrap()), ours);
        // The fork's own change nothing about the session's.
        let fork = fork.function(says("further", "more")).unwrap();
        let fork_sees = value(&fork.run(look()).await.unwrap());
        assert_eq!(fork_sees["further"], json!(["more", "more"]));
        assert_eq!(fork_sees["own"], ours["own"]);
        assert_eq!(value(&session.run(look()).await.unwrap()), ours);

        let checkpoint = session.checkpoint().await.unwrap();
        session.reset().await.unwrap();
        assert_eq!(value(&session.run(look()).await.unwrap()), ours);
        session.restore(&checkpoint).await.unwrap();
        assert_eq!(value(&session.run(look()).await.unwrap()), ours);
        fork.close();
        session.close();
    });
}

#[test]
fn a_revived_session_is_given_its_functions_anew() {
    POOL.with(|pool| async {
        let session = pool.session("saved").await.unwrap().function(says("own", "ours")).unwrap();
        let keep = session.run(Job::code("from hatchery import host\nkept = host.own\nkept()"));
        assert_eq!(value(&keep.await.unwrap()), json!("ours"));
        let file = tempfile::NamedTempFile::new().unwrap();
        session.save(file.path()).await.unwrap();
        session.close();
        let revived = pool.revive("revived", file.path()).await.unwrap();
        assert_missing(&revived.run(Job::code("kept()")).await.unwrap(), "own");
        let revived = revived.function(says("own", "given again")).unwrap();
        let outcome = revived.run(Job::code("kept()")).await.unwrap();
        assert_eq!(value(&outcome), json!("given again"));
        revived.close();
    });
}

#[test]
fn names_are_checked_and_two_of_one_job_or_session_are_an_error() {
    POOL.with(|pool| async {
        let twice = [says("a", "1"), says("a", "2")];
        let refused = pool.run(look().functions(twice.clone())).await.unwrap_err();
        assert_eq!(refused.to_string(), "`a` is defined twice: rename one of them");
        let refused = pool.run(look().function(says("a b", ""))).await.unwrap_err();
        assert!(matches!(refused, Error::Function(InvalidFunction::Name { .. })), "{refused}");
        let session = pool.session("names").await.unwrap();
        assert!(session.clone().functions(twice).is_err());
        assert!(session.clone().function(says("class", "")).is_err());
        let refused = session.clone().function(says("a", "1")).unwrap().function(says("a", "2"));
        let is_twice = matches!(refused, Err(Error::Function(InvalidFunction::Twice { .. })));
        assert!(is_twice);
        // The session is as it was.
        assert_eq!(value(&session.run(look()).await.unwrap()), pools());
        session.close();
    });
}

/// Waits until nothing holds it.
async fn is_dropped(held: Weak<()>) {
    while held.strong_count() > 0 {
        #[expect(clippy::disallowed_methods, reason = "no event says that a closure is dropped")]
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn what_a_closure_holds_is_dropped_with_its_job_or_the_sessions_last_handle() {
    fn holding() -> (HostFunction, Weak<()>) {
        let held = Arc::new(());
        let weak = Arc::downgrade(&held);
        let function =
            HostFunction::sync("hold", move |()| Ok::<_, HostError>(Arc::strong_count(&held) > 0));
        (function.no_parameters(), weak)
    }
    POOL.with(|pool| async {
        let call = || Job::code("from hatchery import host\nhost.hold()");
        let (function, held) = holding();
        assert_eq!(value(&pool.run(call().function(function)).await.unwrap()), json!(true));
        is_dropped(held).await;
        let (function, held) = holding();
        let cancelled = pool.submit(Job::code("while True: pass").function(function)).await;
        drop(cancelled.unwrap());
        is_dropped(held).await;
        let (function, held) = holding();
        let session = pool.session("holds").await.unwrap().function(function).unwrap();
        assert_eq!(value(&session.run(call()).await.unwrap()), json!(true));
        assert!(held.strong_count() > 0);
        session.close();
        is_dropped(held).await;
    });
}

#[test]
fn standard_input_comes_from_a_function_of_the_job() {
    POOL.with(|pool| async {
        let job = Job::code("input()").stdin_from("line").function(says("line", "typed\n"));
        assert_eq!(value(&pool.run(job).await.unwrap()), json!("typed"));
    });
}

#[test]
fn calls_of_a_jobs_own_functions_are_recorded_and_replayed() {
    POOL.with(|pool| async {
        let source = "from hatchery import host\n[host.whose(), host.own()]";
        let job = Job::code(source).record_host_calls();
        let own = [says("whose", "the job's"), says("own", "ours")];
        let outcome = pool.run(job.functions(own)).await.unwrap();
        assert_eq!(value(&outcome), json!(["the job's", "ours"]));
        let recording = outcome.recording.clone().expect("the job asked for it");
        assert_eq!(recording.calls.len(), 2);
        // The program must find the function, but the recording answers.
        let job = Job::code(source).replay_host_calls(recording);
        let again = pool.run(job.function(says("own", "not called"))).await.unwrap();
        assert_eq!(value(&again), json!(["the job's", "ours"]));
    });
}
