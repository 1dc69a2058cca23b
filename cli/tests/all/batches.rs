//! Batches: order, resuming, cut stragglers, and files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::{hatchery, interrupt, json_of, read_results, run, run_with_stdin, text};

/// A folder with the lines of a batch.
struct Jobs {
    folder: tempfile::TempDir,
}

impl Jobs {
    fn new(lines: &[Value]) -> Self {
        let jobs = Self { folder: tempfile::tempdir().unwrap() };
        jobs.write(lines);
        jobs
    }

    fn write(&self, lines: &[Value]) {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.path("jobs"), lines).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the command of a batch that writes to `out`.
    fn batch(&self, arguments: &[&str]) -> Command {
        let mut command = hatchery();
        command.arg("batch").arg(self.path("jobs")).arg("--out").arg(self.path("out"));
        command.args(["--workers", "2"]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.batch(arguments).output().unwrap()
    }

    fn results(&self) -> Vec<Value> {
        read_results(&self.path("out"))
    }

    fn ids(&self) -> Vec<Value> {
        self.results().iter().map(|result| result["id"].clone()).collect()
    }
}

/// Returns the complete lines of a file that may not exist yet.
fn whole_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned()
}

fn wait_until(holds: impl Fn() -> bool) {
    let held = (0..5000).any(|_| {
        let waited = Command::new("sleep").arg("0.02").status();
        waited.is_ok() && holds()
    });
    assert!(held);
}

#[test]
fn an_interrupted_batch_resumes_with_exactly_the_missing_lines() {
    const COUNT: u64 = 60;
    let line = |id| json!({ "id": id, "code": format!("import time; time.sleep(0.1); {id}") });
    for order in [&[][..], &["--ordered"]] {
        let jobs = Jobs::new(&(0..COUNT).map(line).collect::<Vec<_>>());
        let arguments = [&["--resume"][..], order].concat();
        let mut child = jobs.batch(&arguments).stderr(Stdio::null()).spawn().unwrap();
        wait_until(|| whole_lines(&jobs.path("out")).lines().count() >= 5);
        interrupt(child.id());
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let before = whole_lines(&jobs.path("out"));
        let done = before.lines().count() as u64;
        assert_eq!(fs::read_to_string(jobs.path("out")).unwrap(), before, "no line is cut off");
        assert!((5..COUNT).contains(&done), "{done}");
        // As if it had crashed in the middle of a line.
        let mut out = fs::OpenOptions::new().append(true).open(jobs.path("out")).unwrap();
        out.write_all(b"{\"bundle\":null,\"displays\":[],\"err").unwrap();

        let output = jobs.run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(&format!("{COUNT} succeeded, 0 did not")), "{said}");
        assert!(said.contains(&format!("{done} of these from an earlier run")), "{said}");
        assert!(fs::read_to_string(jobs.path("out")).unwrap().starts_with(&before));
        let mut ids: Vec<u64> = jobs.ids().iter().map(|id| id.as_u64().unwrap()).collect();
        if order.is_empty() {
            ids.sort_unstable();
        }
        assert_eq!(ids, (0..COUNT).collect::<Vec<_>>());
        assert!(jobs.results().iter().all(|result| result["value"] == result["id"]));
    }
}

#[test]
fn results_of_programs_are_final_and_other_failures_are_retried() {
    let jobs = Jobs::new(&[]);
    let lines = [
        json!({ "id": "raises", "code": "1/0" }),
        json!({ "id": "late", "code": "while True: pass", "deadline": 0.5 }),
        json!({ "id": "missing", "file": jobs.path("program.py") }),
        json!({ "code": "2" }),
        json!({ "code": "2" }),
    ];
    jobs.write(&lines);
    assert_eq!(jobs.run(&[]).status.code(), Some(2));
    assert_eq!(jobs.results().len(), 5);
    let of = |id: Value| {
        let results = jobs.results();
        results.into_iter().filter(|result| result["id"] == id).collect::<Vec<_>>()
    };
    let raised = of(json!("raises"));

    fs::write(jobs.path("program.py"), "3").unwrap();
    let output = jobs.run(&["--resume"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("removed 2 results"), "{said}");
    assert!(said.contains("3 of these from an earlier run"), "{said}");
    assert_eq!(jobs.results().len(), 5);
    assert_eq!((of(json!("raises")), &of(json!("missing"))[0]["value"]), (raised, &json!(3)));
    assert_eq!((of(json!(4)).len(), of(json!(5)).len()), (1, 1));

    // A changed line is run, and its older result stays.
    let changed = json!({ "id": "raises", "code": "4" });
    jobs.write(&[changed, lines[3].clone(), lines[2].clone()]);
    let output = jobs.run(&["--resume"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stderr).contains("earlier results belong to lines"), "{output:?}");
    let both = of(json!("raises"));
    assert_eq!((both.len(), &both[1]["value"]), (2, &json!(4)));
    assert_ne!(both[0]["digest"], both[1]["digest"]);
}

#[test]
fn a_file_without_results_is_not_resumed() {
    let jobs = Jobs::new(&[json!({ "code": "1" })]);
    fs::write(jobs.path("out"), "notes\n").unwrap();
    let output = jobs.run(&["--resume"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("line 1 is not a result"), "{output:?}");
    assert_eq!(fs::read_to_string(jobs.path("out")).unwrap(), "notes\n");
    // Without `--resume` the file is overwritten, as by any `--out`.
    assert_eq!(jobs.run(&[]).status.code(), Some(0));
    assert_eq!(jobs.ids(), [json!(1)]);
}

#[test]
fn results_are_in_the_order_of_their_lines_if_that_is_wanted() {
    let slow = "import time; time.sleep(0.3)";
    let line = |id| json!({ "id": id, "code": if id % 50 == 0 { slow } else { "1" } });
    let mut lines: Vec<Value> = (0..300).map(line).collect();
    lines.insert(5, json!({ "id": "no job" }));
    let jobs = Jobs::new(&lines);
    let output = jobs.run(&["--ordered"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(jobs.ids(), lines.iter().map(|line| line["id"].clone()).collect::<Vec<_>>());
}

#[test]
fn a_straggler_is_cut_and_says_why() {
    let mut lines: Vec<Value> =
        (0..8).map(|id| json!({ "id": id, "code": "import time; time.sleep(0.2)" })).collect();
    lines.push(json!({ "id": "slow", "code": "import time\ntime.sleep(25)" }));
    let jobs = Jobs::new(&lines);
    let output = jobs.run(&["--cut-stragglers", "10"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("8 succeeded, 1 did not"), "{output:?}");
    let results = jobs.results();
    let slow = results.iter().find(|result| result["id"] == "slow").unwrap();
    assert_eq!((&slow["status"], &slow["success"]), (&json!("cancelled"), &json!(false)));
    assert_eq!(slow["error"]["kind"], "cancelled");
    assert_eq!(slow["error"]["reason"], "straggler");
    assert!(slow["error"]["message"].as_str().unwrap().contains("--cut-stragglers 10"), "{slow}");
    assert!(slow["interrupted_at"].as_str().unwrap().contains("line 2"), "{slow}");
    let time = slow["execution_time"].as_f64().unwrap();
    assert!((1.5..20.0).contains(&time), "{time}");
    // The result is final.
    let output = jobs.run(&["--cut-stragglers", "10", "--resume"]);
    assert!(text(&output.stderr).contains("9 of these from an earlier run"), "{output:?}");
}

#[test]
fn lines_have_files_and_those_of_programs_are_kept_apart() {
    let copy = "import os\nopen('d/out', 'wb').write(open('in', 'rb').read() * 2)";
    let code = format!("import os; os.mkdir('d')\n{copy}");
    let lines = [
        json!({ "id": "../a", "code": code, "files": { "in": "text" } }),
        json!({ "id": 2, "code": code, "files": { "in": { "base64": "/w==" } } }),
        json!({ "id": "2", "code": code }),
        json!({ "code": "open('/data/sales.csv').read(4)" }),
        json!({ "id": "bad", "code": "", "files": { "../in": "" } }),
    ];
    let jobs = Jobs::new(&lines);
    fs::write(jobs.path("shared"), "all").unwrap();
    let input = format!("{}=in", jobs.path("shared").display());
    let (kept, mount) = (jobs.path("kept"), "examples/data");
    let output = jobs.run(&[
        "--input",
        &input,
        "--mount",
        mount,
        "--output-dir",
        kept.to_str().unwrap(),
        "--file-contents",
        "--ordered",
    ]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let read = |path: &str| fs::read(kept.join(path)).unwrap();
    assert_eq!(read("%2E.%2Fa/d/out"), b"texttext");
    assert_eq!(read("2/d/out"), [0xff, 0xff]);
    assert_eq!(read("2~3/d/out"), b"allall");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 3);
    let results = jobs.results();
    assert_eq!(results[1]["files"][0]["data"], "//8=");
    assert_eq!(results[2]["output_dir"], kept.join("2~3").to_str().unwrap());
    assert_eq!((&results[3]["value"], &results[3]["output_dir"]), (&json!("date"), &Value::Null));
    assert!(results[4]["error"]["message"].as_str().unwrap().contains("../in"), "{output:?}");
}

#[test]
fn options_of_a_batch_hold_for_every_line() {
    let random = "import random, time; [random.random(), time.time()]";
    let jobs = Jobs::new(&[json!({ "code": random }), json!({ "code": random })]);
    let output = jobs.run(&["--deterministic", "7"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let results = jobs.results();
    assert_eq!(results[0]["value"], results[1]["value"]);

    jobs.write(&[json!({ "code": "open('f', 'w').write('x')" })]);
    assert_eq!(jobs.run(&["--read-only"]).status.code(), Some(1));
    jobs.write(&[json!({ "code": "open('f', 'w').write('x'); 1/0" })]);
    assert_eq!(jobs.run(&[]).status.code(), Some(1));
    assert_eq!(jobs.results()[0]["files"], json!([]));
    assert_eq!(jobs.run(&["--keep-files"]).status.code(), Some(1));
    assert_eq!(jobs.results()[0]["files"][0]["path"], "f");
}

#[test]
fn files_that_can_not_be_written_are_reported_and_retried() {
    let jobs = Jobs::new(&[json!({ "id": "a", "code": "open('f', 'w').write('new')" })]);
    let kept = jobs.path("kept");
    fs::create_dir_all(kept.join("a")).unwrap();
    fs::write(jobs.path("outside"), "old").unwrap();
    symlink(jobs.path("outside"), kept.join("a/f")).unwrap();
    let arguments = ["--resume", "--output-dir", kept.to_str().unwrap()];
    let output = jobs.run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let result = &jobs.results()[0];
    assert_eq!(result["success"], true);
    assert!(result["output_error"].as_str().unwrap().contains("symbolic link"), "{result}");
    assert_eq!(fs::read_to_string(jobs.path("outside")).unwrap(), "old");

    fs::remove_file(kept.join("a/f")).unwrap();
    assert_eq!(jobs.run(&arguments).status.code(), Some(0));
    assert_eq!((jobs.results().len(), &jobs.results()[0]["output_error"]), (1, &Value::Null));
    assert_eq!(fs::read_to_string(kept.join("a/f")).unwrap(), "new");
}

#[test]
fn a_run_follows_no_link_in_its_output_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (out, outside) = (folder.path().join("out"), folder.path().join("outside"));
    fs::create_dir_all(&out).unwrap();
    fs::create_dir_all(&outside).unwrap();
    symlink(&outside, out.join("d")).unwrap();
    let code = "import os; os.mkdir('d'); open('d/f', 'w').write('x'); open('g', 'w').write('y')";
    let path = out.to_str().unwrap();
    let output = run(&["run", "--json", "--file-contents", "-c", code, "--output-dir", path]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("symbolic link"), "{output:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(out.join("g")).unwrap(), "y");
    let result = json_of(&output);
    assert_eq!(
        (&result["files"][0]["data"], &result["files"][1]["data"]),
        (&json!("eA=="), &json!("eQ=="))
    );
}

#[test]
fn a_run_says_which_files_it_does_not_keep() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let said = |code: &str| text(&run(&["run", "-c", code, "--output-dir", path]).stderr);
    let code = "import os; open('f', 'w').write('x'); os.symlink('f', 'l')";
    let kept = said(code);
    assert!(kept.contains("1 symbolic link is not kept"), "{kept}");
    let failed = said(&format!("{code}; open('g', 'w').write('y'); 1 / 0"));
    let note = "the program failed, so 2 files are not kept; `--keep-files`";
    assert!(failed.contains(note), "{failed}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(!said("1 / 0").contains("not kept"));
    let code = json!({ "code": code }).to_string();
    let output = run_with_stdin(&["tool", "run", "--output-dir", path], &code);
    assert!(text(&output.stderr).contains("1 symbolic link is not kept"), "{output:?}");
}

#[test]
fn a_tool_is_given_files_and_keeps_those_of_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let code =
        "open('out', 'w').write(open('Cargo.toml').readline() + open('/data/sales.csv').read(4))";
    let call = json!({ "code": code }).to_string();
    let arguments = ["tool", "run", "--input", "Cargo.toml", "--mount", "examples/data"];
    let arguments = [&arguments[..], &["--output-dir", path, "--file-contents"]].concat();
    let output = run_with_stdin(&arguments, &call);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let kept = fs::read_to_string(folder.path().join("out")).unwrap();
    assert_eq!(kept, "[workspace]\ndate");
    assert_eq!(json_of(&output)["files"][0]["data"], "W3dvcmtzcGFjZV0KZGF0ZQ==");
    let call = json!({ "code": "open('Cargo.toml').read()", "files": { "Cargo.toml": "own" } });
    let output = run_with_stdin(&arguments, &call.to_string());
    assert_eq!(json_of(&output)["value"], "own");
}

#[test]
fn an_interrupted_tool_says_so_as_a_run_does() {
    let mut child = hatchery()
        .args(["tool", "run"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let call = json!({ "code": "while True: pass" }).to_string();
    child.stdin.take().unwrap().write_all(call.as_bytes()).unwrap();
    wait_until(|| hears_interrupts(child.id()));
    // By then it runs; a queued one would be cancelled, with the same code.
    assert!(Command::new("sleep").arg("1").status().unwrap().success());
    interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(json_of(&output)["success"], false);
}

/// Returns whether a process handles SIGINT.
fn hears_interrupts(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(line.trim(), 16).unwrap();
    // Signal 2 is the second bit.
    caught & 2 != 0
}

#[test]
fn one_batch_at_a_time_writes_to_a_file() {
    let jobs = Jobs::new(&[json!({ "code": "1" })]);
    fs::write(jobs.path("out"), "what the other one has written\n").unwrap();
    let other = fs::File::open(jobs.path("out")).unwrap();
    other.try_lock().unwrap();
    for arguments in [&[][..], &["--resume"]] {
        let output = jobs.batch(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("another batch writes to"), "{output:?}");
        let there = fs::read_to_string(jobs.path("out")).unwrap();
        assert_eq!(there, "what the other one has written\n");
    }
    drop(other);
    assert!(jobs.batch(&[]).output().unwrap().status.success());
}

#[test]
fn what_is_not_a_regular_file_is_refused_without_blocking() {
    let jobs = Jobs::new(&[]);
    let pipe = jobs.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    jobs.write(&[
        json!({ "id": "pipe", "file": pipe }),
        json!({ "id": "device", "file": "/dev/zero" }),
        json!({ "id": "folder", "file": jobs.path("") }),
        json!({ "id": "code", "code": "1" }),
    ]);
    let output = jobs.run(&["--ordered"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let results = jobs.results();
    for (result, expected) in results.iter().zip(["it is a pipe", "a device", "it is a folder"]) {
        assert_eq!(result["error"]["kind"], "usage");
        let message = result["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!((results.len(), &results[3]["value"]), (4, &json!(1)));
}

#[test]
fn lines_wait_for_descriptors_and_run_afterwards() {
    const COUNT: u64 = 150;
    let jobs = Jobs::new(&[]);
    let script = |folder: &str, value: u64| {
        let folder = jobs.path(folder);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("beside.py"), format!("x = {value}")).unwrap();
        fs::write(folder.join("main.py"), "import beside\nbeside.x").unwrap();
        folder.join("main.py")
    };
    let shared = script("shared", COUNT);
    let mut lines = vec![json!({ "file": shared }); COUNT as usize];
    lines.extend((0..COUNT).map(|id| json!({ "file": script(&id.to_string(), id) })));
    jobs.write(&lines);
    let batch = jobs.batch(&["--ordered"]);
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 96 && exec \"$@\"", "sh"]);
    few.arg(batch.get_program()).args(batch.get_args());
    let output = few.current_dir(batch.get_current_dir().unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let values: Vec<Value> = jobs.results().iter().map(|result| result["value"].clone()).collect();
    let expected = std::iter::repeat_n(COUNT, COUNT as usize).chain(0..COUNT);
    assert_eq!(values, expected.map(Value::from).collect::<Vec<_>>());
}

#[test]
fn displays_of_each_line_have_a_folder() {
    let shows = "display({'image/png': b'\\x89', 'text/plain': 'x'}, raw=True)\n\
                 class A: _repr_html_ = lambda self: '<b>'\nA()";
    let jobs = Jobs::new(&[
        json!({ "id": "a/b", "code": shows }),
        json!({ "id": "plain", "code": "1" }),
        json!({ "id": "raises", "code": format!("{shows}\n1/0") }),
    ]);
    let root = jobs.path("shown");
    let arguments = ["--ordered", "--save-displays", root.to_str().unwrap()];
    let output = jobs.run(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let results = jobs.results();
    let kept = |name: &str| fs::read(root.join(name)).unwrap();
    assert_eq!(
        (kept("a%2Fb/display-1.png"), kept("a%2Fb/result.html")),
        (vec![0x89], b"<b>".into())
    );
    assert_eq!(results[0]["displays_dir"], root.join("a%2Fb").to_str().unwrap());
    assert_eq!(results[0]["output_error"], Value::Null);
    assert_eq!(kept("raises/display-1.png"), [0x89]);
    assert!(results[0].get("output_dir").is_none(), "{results:?}");

    fs::remove_dir_all(root.join("raises")).unwrap();
    fs::write(root.join("raises"), "in the way").unwrap();
    let output = jobs.run(&arguments);
    assert!(text(&output.stderr).contains("line with id \"raises\""), "{output:?}");
    let raises = &jobs.results()[2];
    assert!(raises["output_error"].as_str().unwrap().contains("raises"), "{raises}");
}

#[test]
fn repeated_ids_are_reported_once() {
    let line = |id: u32| json!({ "id": id, "code": "1" });
    let lines: Vec<Value> = (0..5).chain(0..5).map(line).collect();
    let jobs = Jobs::new(&lines);
    let output = jobs.run(&[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stderr);
    assert_eq!(said.matches("`id`").count(), 1, "{said}");
    assert!(said.contains("5 lines have the `id` of an earlier line"), "{said}");
    assert!(said.contains("line 6 with 0"), "{said}");
    assert_eq!(jobs.results().len(), 10);
    jobs.write(&lines[..5]);
    assert!(!text(&jobs.run(&[]).stderr).contains("`id`"));
}

#[test]
fn progress_counts_each_kind_of_ending() {
    let endless = json!({ "code": "while True: pass", "timeout": 0.2 });
    let mut lines = vec![json!({ "code": "1/0" }), endless, json!({ "cod": "1" })];
    lines.extend((0..6).map(|_| json!({ "code": "1" })));
    let jobs = Jobs::new(&lines);
    let output = jobs.run(&["--progress", "json", "-q"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = text(&output.stderr);
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    for (name, expected) in [
        ("done", json!(9)),
        ("total", json!(9)),
        ("succeeded", json!(6)),
        ("failed", json!(1)),
        ("limited", json!(1)),
        ("sandbox_failed", json!(0)),
        ("malformed", json!(1)),
        ("earlier", json!(0)),
        ("left_seconds", json!(0.0)),
        ("is_over", json!(true)),
    ] {
        assert_eq!(last[name], expected, "{name}: {last}");
    }
    assert!(last["jobs_per_second"].as_f64().unwrap() > 0.0, "{last}");

    let said = text(&jobs.run(&["--progress", "lines"]).stderr);
    assert!(said.contains("9 of 9 done: 6 succeeded, 1 failed, 1 limited, 1 invalid, "), "{said}");
    for form in ["auto", "bar", "none"] {
        let said = text(&jobs.run(&["--progress", form]).stderr);
        assert!(!said.contains("done:") && !said.contains('\x1b'), "{form}: {said}");
    }
    assert_eq!(text(&jobs.run(&["-q"]).stderr), "");
}
