//! Sessions that are recorded, and what is done with the recordings.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hatchery::record::{RecordError, RecordFolder, RecordingFile, Verified};
use hatchery::{
    Array, Deterministic, Error, Hatchery, HostError, HostFunction, Job, Limits, Verdict,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{builder, calm, value, with_own_pool, with_pool, with_preloaded_pool};

fn price() -> HostFunction {
    HostFunction::sync("price", |arguments: Value| match arguments["item"].as_str() {
        Some("nothing") => Err(HostError::new("KeyError", "nothing")),
        item => Ok(json!({ "item": item, "euros": 12 })),
    })
}

/// Records the jobs in a session, and returns the recording's path.
async fn recorded(pool: &Hatchery, folder: &Path, name: &str, jobs: Vec<Job>) -> PathBuf {
    let path = folder.join(format!("{name}.recording"));
    let session = pool.session(name).await.unwrap().function(price()).unwrap();
    session.record(&path).await.unwrap();
    for job in jobs {
        session.run(job).await.unwrap();
    }
    session.stop_recording().await.unwrap();
    session.close();
    path
}

/// Runs a recording again; returns a word for each turn.
async fn verified(pool: &Hatchery, path: &Path) -> Vec<String> {
    let recording = RecordingFile::open(path).await.unwrap();
    assert_eq!(recording.cut(), None);
    let mut words = Vec::new();
    let tell = |_: &_, verified: &Verified| {
        words.push(match verified {
            Verified::Equal => "equal".to_owned(),
            Verified::Taken(reason) => reason.clone(),
            Verified::Differs(parts) => {
                let text = |bytes: &Option<Vec<u8>>| {
                    bytes.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                };
                let shown = |part: &hatchery::record::DifferentPart| {
                    format!("{}: {:?} {:?}", part.name, text(&part.recorded), text(&part.found))
                };
                panic!("{:#?}", parts.iter().map(shown).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        });
    };
    assert!(recording.verify(pool, tell).await.unwrap());
    words
}

fn many() -> Vec<Job> {
    let spin = "n = 0\ntry:\n    while True: n += 1\nfinally: print('over')";
    let limits = |limits: Limits| Job::code("x = bytearray(10**9)").limits(limits);
    vec![
        Job::code("import random, time, uuid\nprint(random.random(), time.time(), uuid.uuid4())"),
        Job::code("from hatchery import host\nhost.price(item='chair')"),
        Job::code("host.price(item='nothing')"),
        Job::code("open('a.txt', 'w').write('kept'); 1/0").keep_files(),
        Job::code("open('a.txt').read(), object()"),
        Job::code(spin).timeout(Duration::from_millis(300)),
        Job::code("n > 0, random.random()"),
        Job::code("sum(given), text, len(raw)")
            .variable("given", Array::from_slice(&[1.5, 2.5]))
            .variable("text", json!({ "a": ["ä", null] }))
            .variable("raw", vec![0, 255]),
        Job::code("import sys; print(sys.argv, sys.stdin.read()); sys.exit(3)")
            .args(["a", "b"])
            .stdin("typed"),
        limits(Limits { memory_bytes: 128 << 20, ..calm() }),
        Job::code("import os; os._exit(5)"),
        Job::code("print(open('b/c.txt').read()); b'bytes'").input("b/c.txt", "in").unwrap(),
        Job::code("print('x' * 5000)").limits(Limits { output_bytes: 100, ..calm() }),
        Job::call("__main__:random.random", Vec::<Value>::new()),
        Job::expression("random.random() + time.time()"),
    ]
}

#[test]
fn a_recorded_session_repeats_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    with_pool(|pool| async {
        let path = recorded(pool, folder.path(), "repeated", many()).await;
        let words = verified(pool, &path).await;
        let expected: Vec<&str> =
            (1..=many().len()).map(|turn| if turn == 6 { "time" } else { "equal" }).collect();
        assert_eq!(words, expected);
    });
}

#[test]
fn interrupts_are_taken_from_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("interrupted.recording");
    with_pool(|pool| async {
        let session = pool.session("stopped").await.unwrap();
        session.record(&path).await.unwrap();
        for catches in [false, true] {
            let spin = "print('begun', flush=True)\nn = 0\ntry:\n    while True: n += 1\n";
            let end = if catches { "except KeyboardInterrupt: 7" } else { "finally: pass" };
            let ticket = session.submit(Job::code(format!("{spin}{end}"))).await.unwrap();
            let mut events = ticket.events();
            while !matches!(
                events.next().await.map(|event| event.kind),
                Some(hatchery::event::EventKind::Output { .. })
            ) {}
            ticket.interrupt();
            let outcome = ticket.await;
            assert_eq!(matches!(outcome.verdict, Verdict::Raised(_)), !catches, "{outcome:?}");
            session.run(Job::code("n, n > 0")).await.unwrap();
        }
        let dropped = session.submit(Job::code("while True: pass")).await.unwrap();
        drop(dropped);
        session.run(Job::code("n")).await.unwrap();
        session.stop_recording().await.unwrap();
        session.close();
        let words = verified(pool, &path).await;
        assert_eq!(words, ["interrupt", "equal", "interrupt", "equal", "interrupt", "equal"]);
    });
}

#[test]
fn every_changed_byte_is_noticed_and_a_cut_leaves_whole_turns() {
    let folder = tempfile::tempdir().unwrap();
    let changed = folder.path().join("changed");
    with_pool(|pool| async {
        let jobs = (0..3).map(|n| Job::code(format!("print({n})"))).collect();
        let path = recorded(pool, folder.path(), "flipped", jobs).await;
        let bytes = fs::read(&path).unwrap();
        let open = |bytes: &[u8]| {
            fs::write(&changed, bytes).unwrap();
            RecordingFile::open(&changed)
        };
        let step = (bytes.len() / 5000).max(1);
        for at in (0..bytes.len()).step_by(step).chain(bytes.len() - 300..bytes.len()) {
            let mut other = bytes.clone();
            other[at] ^= 1 << (at % 8);
            let is_noticed = open(&other).await.map_or(true, |file| file.cut().is_some());
            assert!(is_noticed, "byte {at} of {}", bytes.len());
        }
        let mut most = 0;
        for cut in (0..bytes.len()).step_by((bytes.len() / 500).max(1)) {
            match open(&bytes[..cut]).await {
                Ok(file) => {
                    assert!(file.cut().is_some() && file.turns().len() >= most, "{cut}");
                    most = file.turns().len();
                }
                Err(error) => assert!(most == 0, "{cut}: {error}"),
            }
        }
        assert_eq!(most, 3);
    });
}

/// Changes a recording's records, and seals them again.
fn resealed(path: &Path, change: impl Fn(&mut serde_json::Map<String, Value>)) {
    let bytes = fs::read(path).unwrap();
    let (mut rest, mut seal, mut changed) = (&bytes[..], [0; 32], Vec::new());
    while !rest.is_empty() {
        let line = rest.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let mut head = serde_json::from_slice(&rest[..line]).unwrap();
        change(&mut head);
        let lengths = head.get("blobs").and_then(Value::as_array).into_iter().flatten();
        let blobs: u64 = lengths.map(|length| length.as_u64().unwrap()).sum();
        let end = line + usize::try_from(blobs).unwrap() + 1;
        let record = [format!("{}\n", Value::Object(head)).as_bytes(), &rest[line..end]].concat();
        seal = Sha256::new().chain_update(seal).chain_update(&record).finalize().into();
        changed.extend(record);
        changed.extend(seal.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
        changed.push(b'\n');
        rest = &rest[end + 65..];
    }
    fs::write(path, changed).unwrap();
}

#[test]
fn a_recording_that_was_made_to_harm_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &'static str| {
        move |head: &mut serde_json::Map<String, Value>| {
            if let Some(program) = head.get_mut("program").and_then(Value::as_object_mut) {
                program.remove(name);
            }
        }
    };
    with_pool(async |pool| {
        let make = async |name: &str| {
            recorded(pool, folder.path(), name, vec![Job::code("print(1)")]).await
        };
        let run = async |path: &Path| {
            let recording = RecordingFile::open(path).await?;
            recording.verify(pool, |_, _| {}).await
        };
        let path = make("unchanged").await;
        resealed(&path, |_| {});
        assert!(run(&path).await.unwrap());
        // Without a seed, a program would make requests of its own.
        let path = make("seedless").await;
        resealed(&path, part("deterministic"));
        let refused = run(&path).await.unwrap_err().to_string();
        assert!(refused.contains("it has no seed"), "{refused}");
        let path = make("imageless").await;
        resealed(&path, |head| drop(head.remove("image")));
        assert!(matches!(run(&path).await, Err(Error::Record(RecordError::OtherImage { .. }))));
        // A state that names one part again and again.
        let path = make("huge").await;
        resealed(&path, |head| {
            if head["type"] == "state" {
                head.insert("pages".to_owned(), vec![0; (1 << 20) + 1].into());
            }
        });
        let refused = run(&path).await.unwrap_err().to_string();
        assert!(refused.contains("too large"), "{refused}");
    });
}

#[test]
fn a_session_opens_in_the_state_after_any_turn() {
    let folder = tempfile::tempdir().unwrap();
    with_pool(|pool| async {
        let jobs = std::iter::once("import random; drawn = []")
            .chain(std::iter::repeat_n("drawn.append(random.random())", 24));
        let path = recorded(pool, folder.path(), "turns", jobs.map(Job::code).collect()).await;
        let recording = RecordingFile::open(&path).await.unwrap();
        assert_eq!((recording.turns().len(), recording.is_session()), (25, true));
        let mut drawn = Vec::new();
        for turn in [25, 11, 3, 1] {
            let session = recording.session_at(pool, "there", turn).await.unwrap();
            let found = value(&session.run(Job::code("drawn")).await.unwrap());
            let found = found.as_array().unwrap().clone();
            assert_eq!(found.len(), turn - 1);
            if drawn.is_empty() {
                drawn = found.clone();
            }
            assert_eq!(drawn[..turn - 1], found);
            session.close();
        }
        let beyond = recording.session_at(pool, "there", 26).await.unwrap_err();
        assert!(matches!(beyond, Error::Record(RecordError::NoTurn { .. })), "{beyond}");
    });
}

#[test]
fn what_is_done_to_a_recorded_session_is_in_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replaced.recording");
    with_pool(|pool| async {
        let session = pool.session("replaced").await.unwrap();
        session.record(&path).await.unwrap();
        let twice = session.record(folder.path().join("other")).await.unwrap_err();
        assert!(matches!(twice, Error::Record(RecordError::Twice)), "{twice}");
        session.run(Job::code("x = 1")).await.unwrap();
        let checkpoint = session.checkpoint().await.unwrap();
        session.run(Job::code("x = 2")).await.unwrap();
        session.restore(&checkpoint).await.unwrap();
        // Another handle of the session records, too.
        let other = pool.session("replaced").await.unwrap();
        assert_eq!(value(&other.run(Job::code("x")).await.unwrap()), json!(1));
        session.reset().await.unwrap();
        assert!(!session.run(Job::code("x")).await.unwrap().is_success());
        session.stop_recording().await.unwrap();
        session.close();
        assert_eq!(verified(pool, &path).await, ["equal"; 4]);
    });
}

/// Its copied pages are in more ranges than one scan of the page map returns.
#[test]
fn a_session_with_a_figure_is_recorded_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    with_preloaded_pool(|pool| async {
        let figure = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.show(); x = 5";
        let spin = Job::code("while True: pass").timeout(Duration::from_millis(100));
        let jobs = vec![Job::code(figure), spin, Job::code("plt.plot([x]); plt.show()")];
        let path = recorded(pool, folder.path(), "figures", jobs).await;
        assert_eq!(verified(pool, &path).await, ["equal", "time", "equal"]);

        let session = pool.session("saved figure").await.unwrap();
        session.run(Job::code(figure)).await.unwrap();
        session.save(folder.path().join("saved")).await.unwrap();
        let revived = pool.revive("revived figure", folder.path().join("saved")).await.unwrap();
        assert_eq!(value(&revived.run(Job::code("x")).await.unwrap()), json!(5));
        revived.close();
        session.close();
    });
}

#[test]
fn only_a_session_that_can_be_repeated_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    with_pool(|pool| async {
        let session = pool.session("late").await.unwrap();
        session.run(Job::code("x = 1")).await.unwrap();
        let late = session.record(path("late")).await.unwrap_err();
        assert!(matches!(late, Error::Record(RecordError::NotDeterministic)), "{late}");
        session.close();

        let session = pool.session("seeded").await.unwrap();
        let first = Job::code("import random").deterministic(Deterministic::new(5));
        session.run(first).await.unwrap();
        session.record(path("seeded")).await.unwrap();
        session.run(Job::code("random.random()")).await.unwrap();
        // It reads a folder of the host, whose contents aren't recorded, and so may later jobs.
        let mounted = Job::code("import os; os.listdir('/data')").mount(folder.path(), "/data");
        session.run(mounted.unwrap()).await.unwrap();
        session.run(Job::code("1")).await.unwrap();
        session.stop_recording().await.unwrap();
        session.close();
        assert_eq!(verified(pool, &path("seeded")).await, ["equal", "folders", "folders"]);
        let exists = pool.recorder(path("seeded")).await.unwrap_err();
        assert!(exists.to_string().starts_with("can't create the recording"), "{exists}");
    });
}

#[test]
fn jobs_on_their_own_are_recorded_in_one_file() {
    let folder = tempfile::tempdir().unwrap();
    with_own_pool(builder(), |pool| async move {
        let folder = RecordFolder::open(folder.path().join("new")).unwrap();
        let recorder = folder.recorder(&pool, "a/b").await.unwrap();
        let jobs = (0..20).map(|n| Job::code(format!("import random; {n}, random.random()")));
        let mut drawn = std::collections::BTreeSet::new();
        for job in jobs {
            drawn.insert(recorder.run(job).await.unwrap().to_tool_json()["repr"].to_string());
        }
        assert_eq!(drawn.len(), 20);
        recorder.finish().await.unwrap();
        pool.drain().await;
    });
}

#[test]
fn a_hundred_turns_are_recorded_in_little_time_and_space() {
    let folder = tempfile::tempdir().unwrap();
    with_pool(|pool| async {
        let job = |n: u32| Job::code(format!("x{n} = list(range({n})); print(sum(x{n}))"));
        let mut medians = Vec::new();
        for is_recorded in [false, true] {
            let session = pool.session("hundred").await.unwrap();
            if is_recorded {
                session.record(folder.path().join("hundred")).await.unwrap();
            }
            let mut times = Vec::new();
            for n in 0..100 {
                let begun = Instant::now();
                session.run(job(n)).await.unwrap();
                times.push(begun.elapsed());
            }
            session.stop_recording().await.unwrap();
            session.close();
            times.sort_unstable();
            medians.push(times[50]);
        }
        let path = folder.path().join("hundred");
        let bytes = fs::metadata(&path).unwrap().len();
        let begun = Instant::now();
        let recording = RecordingFile::open(&path).await.unwrap();
        recording.session_at(pool, "fifty", 50).await.unwrap().close();
        let reached = begun.elapsed();
        println!("turns: {medians:?} p50; file: {bytes} bytes; turn 50 in {reached:?}");
        assert!(bytes < 8 << 20, "{bytes}");
        assert_eq!(verified(pool, &path).await.len(), 100);
    });
}
