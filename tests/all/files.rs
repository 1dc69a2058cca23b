//! Files: inputs, reported changes, and undone changes.

use hatchery::files::ChangeKind;
use hatchery::{Error, Job, LimitKind, Limits, Outcome, Refusal, SandboxFailure, Verdict};
use serde_json::json;

use crate::support::{calm, exception, run_job, value, with_pool, with_preloaded_pool};

fn told(outcome: &Outcome) -> Vec<(&str, ChangeKind, &[u8])> {
    let files = outcome.files.iter();
    files.map(|file| (file.path.as_str(), file.kind, file.contents.as_slice())).collect()
}

#[test]
fn exactly_the_changes_are_reported() {
    let source = "import os\n\
                  open('new.txt', 'w').write('n'); open('same.txt', 'r+').write('same')\n\
                  open('changed.txt', 'a').write('!'); os.remove('gone.txt')\n\
                  os.makedirs('a/b'); os.rename('moved.txt', 'a/b/moved.txt')\n\
                  open('/tmp/elsewhere', 'w').write('x'); open('brief', 'w').close(); os.remove('brief')\n\
                  open('read.txt').read(); os.symlink('read.txt', 'link'); os.utime('read.txt')";
    let mut job = Job::code(source);
    for name in ["same.txt", "changed.txt", "gone.txt", "moved.txt", "read.txt"] {
        job = job.input(name, "same").unwrap();
    }
    let outcome = run_job(job);
    assert!(outcome.is_success(), "{outcome:?}");
    let expected: Vec<(&str, ChangeKind, &[u8])> = vec![
        ("a/b/moved.txt", ChangeKind::Created, b"same"),
        ("changed.txt", ChangeKind::Modified, b"same!"),
        ("gone.txt", ChangeKind::Deleted, b""),
        ("moved.txt", ChangeKind::Deleted, b""),
        ("new.txt", ChangeKind::Created, b"n"),
    ];
    assert_eq!(told(&outcome), expected);
}

#[test]
fn a_session_shows_its_files_without_a_job() {
    with_pool(|pool| async {
        let session = pool.session("files").await.unwrap();
        assert_eq!(session.workspace().await.unwrap().files(), []);
        let writes = "import os; os.makedirs('a/b'); open('a/b/c', 'w').write('one')\n\
                      open('/tmp/d', 'w').write('two'); os.symlink('/tmp/d', 'link')\n\
                      os.chdir('a'); os.listdir = None";
        let job = Job::code(writes).input("given", "three").unwrap();
        assert!(session.run(job).await.unwrap().is_success());
        let workspace = session.workspace().await.unwrap();
        let found: Vec<_> = vec![("a/b/c".to_owned(), 3), ("given".to_owned(), 5)];
        assert_eq!(workspace.files(), found);
        let read = |path| workspace.read(path);
        for (path, contents) in [("a/b/c", "one"), ("/tmp/d", "two"), ("link", "two")] {
            assert_eq!(read(path).as_deref(), Some(contents.as_bytes()), "{path}");
        }
        for path in ["", "a", "missing", "a/b/c/", "/usr/local", "../../etc/passwd"] {
            assert_eq!(read(path), None, "{path}");
        }
        // It is a snapshot.
        session.run(Job::code("open('/workspace/given', 'a').write('!')")).await.unwrap();
        assert_eq!(workspace.read("given").as_deref(), Some(b"three".as_slice()));
        let now = session.workspace().await.unwrap();
        assert_eq!(now.read("given").as_deref(), Some(b"three!".as_slice()));
        let ticket = session.submit(Job::code("while True: pass")).await.unwrap();
        let refused = session.workspace().await.unwrap_err();
        assert!(matches!(refused, Error::Refused(Refusal::SessionBusy)), "{refused}");
        drop(ticket);
        session.close();
    });
}

#[test]
fn files_unpacked_from_archives_can_be_read() {
    let source = "import os, tarfile, zipfile\n\
                  os.makedirs('d/e'); open('d/f', 'w').close()\n\
                  with tarfile.open('d.tar', 'w') as tar: tar.add('d')\n\
                  with zipfile.ZipFile('d.zip', 'w') as archive: archive.write('d'); archive.write('d/f')\n\
                  modes = {i.name: oct(i.mode & 0o777) for i in tarfile.open('d.tar')}\n\
                  [modes, [oct(i.external_attr >> 16 & 0o777) for i in zipfile.ZipFile('d.zip').infolist()]]";
    let modes = json!({"d": "0o755", "d/e": "0o755", "d/f": "0o644"});
    assert_eq!(value(&run_job(Job::code(source))), json!([modes, ["0o755", "0o644"]]));
}

#[test]
fn a_failed_jobs_changes_to_files_are_undone_unless_it_keeps_them() {
    with_pool(|pool| async {
        let session = pool.session("undone").await.unwrap();
        session.run(Job::code("open('a', 'w').write('before')")).await.unwrap();
        let bad = "import os\nopen('a', 'w').write('after'); open('/tmp/b', 'w').close()\n\
                   kept = open('c', 'w'); os.mkdir('d'); 1/0";
        let job = Job::code(bad).input("given", "g").unwrap();
        let failed = session.run(job).await.unwrap();
        assert_eq!(
            (told(&failed), exception(&failed).type_name.as_str()),
            (vec![], "ZeroDivisionError")
        );
        let look = "import os\n[open('a').read(), os.listdir('.'), os.listdir('/tmp')]";
        let seen = session.run(Job::code(look)).await.unwrap();
        assert_eq!(value(&seen), json!(["before", ["a"], []]));
        let stale =
            "try:\n    kept.write('x'); kept.flush()\nexcept OSError as error: print(error.errno)";
        let outcome = session.run(Job::code(stale)).await.unwrap();
        assert_eq!(outcome.stdout_text(), "72\n", "a removed file is stale");
        let kept =
            session.run(Job::code("open('a', 'w').write('kept'); 1/0").keep_files()).await.unwrap();
        assert_eq!(told(&kept), [("a", ChangeKind::Modified, &b"kept"[..])]);
        assert_eq!(
            value(&session.run(Job::code("open('a').read()")).await.unwrap()),
            json!("kept")
        );
        session.close();
    });
}

#[test]
fn a_read_only_job_changes_nothing() {
    for source in [
        "open('new', 'w')",
        "open('given', 'a')",
        "import os; os.remove('given')",
        "import os; os.mkdir('d')",
        "import os; os.rename('given', 'b')",
        "import os; os.symlink('given', 'b')",
        "import os; os.link('given', 'b')",
        "import os; os.utime('given')",
        "import os; os.truncate('given', 0)",
        "open('/tmp/x', 'w')",
    ] {
        let job = Job::code(source).input("given", "g").unwrap().read_only();
        let outcome = run_job(job);
        assert_eq!(exception(&outcome).type_name, "OSError", "{source}");
        assert!(exception(&outcome).message.contains("Errno 69"), "{source}");
    }
    let job = Job::code("open('given').read()").input("given", "g").unwrap().read_only();
    assert_eq!(value(&run_job(job)), json!("g"));
}

#[test]
fn matplotlib_and_seaborn_need_no_folder_to_write_to() {
    let source = "import seaborn, matplotlib.pyplot as plt\nplt.plot([1]); plt.gcf()";
    let job = Job::code(source).read_only();
    let outcome = with_preloaded_pool(|pool| async { pool.run(job).await.unwrap() });
    assert!(outcome.is_success() && outcome.stderr.is_empty(), "{outcome:?}");
}

#[test]
fn what_is_left_out_of_the_files_is_counted() {
    let source = "import os\nopen('a', 'w').write('1')\nopen('given', 'a').write('2')\n\
                  os.symlink('a', 'link')";
    let run = |source: String| run_job(Job::code(source).input("given", "g").unwrap());
    let kept = run(source.to_owned());
    assert_eq!((kept.left_out_files.undone, kept.left_out_files.links), (0, 1));
    let failed = run(format!("{source}\n1 / 0"));
    assert_eq!((failed.left_out_files.undone, failed.left_out_files.links), (2, 0));
    assert_eq!(run("1".to_owned()).left_out_files, Default::default());
}

#[test]
fn a_mounted_folder_is_read_only() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.csv"), "a,b\n1,2\n").unwrap();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    std::fs::write(folder.path().join("inner/more"), "m").unwrap();
    std::os::unix::fs::symlink("/etc", folder.path().join("out")).unwrap();
    let job = |source: &str| Job::code(source).mount(folder.path(), "/data").unwrap();
    let source = "import os, pandas\n\
                  walked = sorted((d, sorted(n), sorted(f)) for d, n, f in os.walk('/data'))\n\
                  [int(pandas.read_csv('/data/data.csv').b[0]), walked, open('/data/inner/../inner/more').read()]";
    let walked = json!([["/data", ["inner"], ["data.csv"]], ["/data/inner", [], ["more"]]]);
    assert_eq!(value(&run_job(job(source))), json!([2, walked, "m"]));
    for (source, name) in [
        ("open('/data/out/passwd')", "PermissionError"),
        ("open('/data/../etc/passwd')", "FileNotFoundError"),
        ("open('/data/data.csv', 'a')", "OSError"),
        ("open('/data/new', 'w')", "OSError"),
        ("import os; os.remove('/data/data.csv')", "OSError"),
        ("import os; os.rename('/data/data.csv', 'x')", "OSError"),
        ("import os; os.mkdir('/data/d')", "OSError"),
        ("import os; os.mkdir('/data/inner')", "FileExistsError"),
        ("import os; os.readlink('/data/none')", "FileNotFoundError"),
        ("import os; os.rmdir('/data')", "OSError"),
    ] {
        assert_eq!(exception(&run_job(job(source))).type_name, name, "{source}");
    }
    assert!(matches!(Job::code("").mount("/nowhere", "/x"), Err(Error::Mount(_))));
    assert!(matches!(Job::code("").mount(folder.path(), "x"), Err(Error::MountPath(_))));
    for path in ["/x/../y", "/", "/usr", "/usr/x", "/tmp", "/workspace"] {
        assert!(
            matches!(Job::code("").mount(folder.path(), path), Err(Error::MountPath(_))),
            "{path}"
        );
    }
}

#[test]
fn a_job_whose_inputs_cannot_be_placed_does_not_run() {
    let limits = Limits { file_bytes: 10, ..calm() };
    let outcome = run_job(Job::code("1").input("a", vec![0; 11]).unwrap().limits(limits));
    let Verdict::Limit(hit) = outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!((hit.limit, hit.allowed, hit.used), (LimitKind::FileBytes, 10, 11));
    let outcome = with_pool(|pool| async {
        let refused = pool.run(Job::code("1").input("a", "").unwrap().input("a/b", "").unwrap());
        let refused = refused.await.unwrap_err();
        assert!(refused.to_string().contains("the folder of `a/b`"), "{refused}");
        let session = pool.session("in its way").await.unwrap();
        assert!(session.run(Job::code("open('a', 'w')")).await.unwrap().is_success());
        let outcome = session.run(Job::code("1").input("a/b", "").unwrap()).await.unwrap();
        session.close();
        outcome
    });
    let Verdict::SandboxFailed(SandboxFailure::Workspace { path, cause }) = &outcome.verdict else {
        panic!("{outcome:?}")
    };
    assert_eq!((path.as_str(), cause.to_string().as_str()), ("a/b", "a file is in the way"));
}

/// Each name counts as a file to the caller that takes the workspace away.
#[test]
fn hard_links_are_charged_for_each_name() {
    let limits = Limits { file_bytes: 1 << 20, ..calm() };
    let source = "import os\nopen('f', 'wb').truncate(400 << 10); os.link('f', 'g')\n\
                  try: os.link('f', 'h')\nexcept OSError as error: print(error.errno)\n\
                  os.remove('g'); os.link('f', 'h'); os.remove('f'); os.remove('h')\n\
                  open('f', 'wb').truncate(1 << 20)";
    let outcome = run_job(Job::code(source).limits(limits));
    assert_eq!(outcome.stdout_text(), "51\n", "{outcome:?}");
    assert!(outcome.is_success(), "{outcome:?}");
}

/// An unnamed file whose last use is in an undone run is dropped all the same.
#[test]
fn unreachable_files_are_dropped_after_an_undo() {
    with_pool(|pool| async {
        let session = pool.session("nameless").await.unwrap();
        let limits = Limits { file_bytes: 1 << 20, ..calm() };
        let run = |source: &'static str| session.run(Job::code(source).limits(limits.clone()));
        for _ in 0..3 {
            let open = "import os\nf = open('a', 'wb'); f.truncate(900 << 10); os.unlink('a')";
            let outcome = run(open).await.unwrap();
            assert!(outcome.is_success(), "{outcome:?}");
            let failed = run("f.close(); 1/0").await.unwrap();
            assert_eq!(exception(&failed).type_name, "ZeroDivisionError");
        }
        session.close();
    });
}

#[test]
fn each_limit_on_files_is_named() {
    let limits = Limits { file_bytes: 1 << 20, file_count: 10, open_files: 10, ..calm() };
    for (source, kind, used) in [
        ("open('f', 'wb').write(bytes(1 << 21))", LimitKind::FileBytes, 1 << 21),
        ("import os\nfor i in range(99): os.mkdir(str(i))", LimitKind::FileCount, 11),
        ("kept = [open('f', 'w') for _ in range(99)]", LimitKind::OpenFiles, 11),
    ] {
        let outcome = run_job(Job::code(source).limits(limits.clone()));
        assert_eq!(exception(&outcome).type_name, "OSError", "{source}");
        let [hit] = outcome.limits_met.as_slice() else { panic!("{source}: {outcome:?}") };
        assert_eq!((hit.limit, hit.used), (kind, used), "{source}");
    }
}
