//! Batches in shards: each line in one of them, and their results put together.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use crate::{hatchery, read_results, text};

/// A folder with a batch and the results of its shards.
struct Batch {
    folder: tempfile::TempDir,
}

impl Batch {
    /// Jobs of every kind: with ids, without, alike, that fail, and that are none.
    fn new() -> Self {
        let batch = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(batch.path("program.py"), "7").unwrap();
        let mut lines: Vec<String> = (0..40)
            .map(|id| json!({ "id": id, "code": format!("{id} + 1") }).to_string())
            .collect();
        lines.extend((0..10).map(|number| json!({ "code": format!("{number}") }).to_string()));
        lines.push(json!({ "id": "twin", "code": "'twin'" }).to_string());
        lines.push(String::new());
        lines.push(json!({ "id": "twin", "code": "'twin'" }).to_string());
        lines.push(json!({ "id": "fails", "code": "1/0" }).to_string());
        lines.push(json!({ "id": "script", "file": batch.path("program.py") }).to_string());
        lines.push(json!({ "id": "no job" }).to_string());
        lines.push("not JSON".to_owned());
        fs::write(batch.path("jobs"), lines.join("\n")).unwrap();
        batch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, out: &str, arguments: &[&str]) -> Output {
        let mut command = hatchery();
        command.arg("batch").arg(self.path("jobs")).arg("--out").arg(self.path(out));
        command.args(["--workers", "2"]).args(arguments).output().unwrap()
    }

    /// Runs shards 1 to `count`, each into its own part.
    fn run_shards(&self, count: u32) {
        for index in 1..=count {
            let ended =
                self.run(&format!("part-{index}"), &["--shard", &format!("{index}/{count}")]);
            assert!(matches!(ended.status.code(), Some(0..=2)), "{ended:?}");
        }
    }

    fn merge(&self, parts: &[&str], arguments: &[&str]) -> Output {
        let mut command = hatchery();
        command.arg("batch-merge").arg(self.path("jobs"));
        command.args(parts.iter().map(|part| self.path(part)));
        command.arg("--out").arg(self.path("all")).args(arguments).output().unwrap()
    }

    fn results(&self, name: &str) -> Vec<Value> {
        read_results(&self.path(name))
    }
}

/// The results without what differs from run to run.
fn steady(mut results: Vec<Value>) -> Vec<Value> {
    for result in &mut results {
        let fields = result.as_object_mut().unwrap();
        for varying in ["execution_time", "usage", "error"] {
            let is_there = fields.remove(varying).is_some_and(|value| !value.is_null());
            fields.insert(varying.to_owned(), is_there.into());
        }
    }
    results
}

#[test]
fn shards_are_disjoint_and_their_merged_results_are_those_of_the_whole_batch() {
    let batch = Batch::new();
    let whole = batch.run("whole", &["--ordered"]);
    assert_eq!(whole.status.code(), Some(2), "{whole:?}");
    batch.run_shards(3);
    let mut seen = BTreeSet::new();
    let mut count = 0;
    for index in 1..=3 {
        let results = batch.results(&format!("part-{index}"));
        assert!(results.len() > 5, "{results:?}");
        count += results.len();
        let shard = format!("{index}/3");
        assert!(results.iter().all(|result| result["shard"] == shard.as_str()), "{results:?}");
        seen.extend(results.iter().map(|result| result["id"].to_string()));
    }
    let expected = batch.results("whole");
    // The two that are alike share an id.
    assert_eq!((count, seen.len()), (expected.len(), expected.len() - 1));

    let merged = batch.merge(&["part-3", "part-1", "part-2"], &[]);
    assert_eq!(merged.status.code(), Some(2), "{merged:?}");
    assert_eq!(text(&merged.stderr), text(&whole.stderr).lines().last().unwrap().to_owned() + "\n");
    assert_eq!(steady(batch.results("all")), steady(expected));
    // To standard output it is the same.
    let mut printed = hatchery();
    printed.arg("batch-merge").arg(batch.path("jobs"));
    let printed = printed.args(["part-1", "part-2", "part-3"].map(|part| batch.path(part)));
    assert_eq!(printed.output().unwrap().stdout, fs::read(batch.path("all")).unwrap());
}

#[test]
fn missing_results_are_named_by_line_and_shard_and_a_resumed_shard_brings_them() {
    let batch = Batch::new();
    batch.run_shards(2);
    let part = fs::read_to_string(batch.path("part-2")).unwrap();
    let lines: Vec<&str> = part.lines().collect();
    // As if the shard had crashed in the middle of a result.
    let kept = format!("{}\n{}\n{}", lines[0], lines[1], &lines[2][..20]);
    fs::write(batch.path("part-2"), &kept).unwrap();
    fs::write(batch.path("all"), "before\n").unwrap();
    let merged = batch.merge(&["part-1", "part-2"], &[]);
    assert_eq!(merged.status.code(), Some(3), "{merged:?}");
    let said = text(&merged.stderr);
    let lacks = lines.len() - 2;
    assert!(said.contains(&format!("shard 2/2 lacks {lacks} results, lines ")), "{said}");
    let (_, advice) = said.split_once(": hatchery ").unwrap();
    assert!(advice.contains("--shard 2/2") && advice.contains("--resume"), "{said}");
    assert!(!said.contains("shard 1/2"), "{said}");
    assert_eq!(fs::read_to_string(batch.path("all")).unwrap(), "before\n");

    // What there is can be had all the same.
    let partial = batch.merge(&["part-1", "part-2"], &["--partial"]);
    assert_eq!(partial.status.code(), Some(3), "{partial:?}");
    assert_eq!(batch.results("all").len(), batch.results("part-1").len() + 2);

    let resumed = batch.run("part-2", &["--shard", "2/2", "--resume"]);
    assert!(text(&resumed.stderr).contains("2 of these from an earlier run"), "{resumed:?}");
    assert!(fs::read_to_string(batch.path("part-2")).unwrap().starts_with(&kept[..lines[0].len()]));
    let merged = batch.merge(&["part-1", "part-2"], &[]);
    assert_eq!(merged.status.code(), Some(2), "{merged:?}");
    assert_eq!(batch.results("all").len(), 56);

    // A shard without a part.
    let merged = batch.merge(&["part-1"], &[]);
    assert_eq!(merged.status.code(), Some(3), "{merged:?}");
    assert!(text(&merged.stderr).contains("no part has results of it"), "{merged:?}");
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let batch = Batch::new();
    batch.run_shards(2);
    for (out, shard) in [("of-three", "1/3"), ("again", "2/2")] {
        batch.run(out, &["--shard", shard]);
    }
    batch.run("whole", &[]);
    let refused = |parts: &[&str], expected: &str| {
        let merged = batch.merge(parts, &[]);
        assert_eq!(merged.status.code(), Some(2), "{parts:?}: {merged:?}");
        let said = text(&merged.stderr);
        assert!(said.contains(expected), "{parts:?}: {said}");
        assert!(!batch.path("all").exists(), "{parts:?}");
    };
    refused(&["part-1", "of-three"], "the same number of shards");
    refused(&["part-1", "part-2", "again"], "for lines that have one already");
    refused(&["part-1", "part-1"], "are the same file");
    refused(&["whole"], "no `shard`");
    refused(&["part-1", "jobs"], "line 1 is not a result");
    refused(&["part-1", "nowhere"], "nowhere");
    refused(&["part-1", "program.py"], "line 1 is not a result");

    // A line that has changed since.
    let jobs = fs::read_to_string(batch.path("jobs")).unwrap();
    fs::write(batch.path("jobs"), jobs.replace("\"0 + 1\"", "\"0 + 2\"")).unwrap();
    refused(&["part-1", "part-2"], "--drop-others");
    let merged = batch.merge(&["part-1", "part-2"], &["--drop-others"]);
    assert_eq!(merged.status.code(), Some(3), "{merged:?}");
    let said = text(&merged.stderr);
    fs::write(batch.path("all"), "").unwrap();
    let onto_itself = batch.merge(&["part-1", "all"], &[]);
    assert_eq!(onto_itself.status.code(), Some(2), "{onto_itself:?}");
    assert!(text(&onto_itself.stderr).contains("is merged"), "{onto_itself:?}");
    assert!(
        said.contains("left out 1 result of no line") && said.contains("lacks 1 result, line 1"),
        "{said}"
    );
}

#[test]
fn a_file_belongs_to_one_shard() {
    let batch = Batch::new();
    batch.run("part", &["--shard", "1/4"]);
    let before = fs::read(batch.path("part")).unwrap();
    for (other, expected) in [
        (&["--shard", "2/4"][..], "result of shard 1/4, and this is shard 2/4"),
        (&["--shard", "1/5"], "and this is shard 1/5"),
        (&[], "and this is a batch without --shard"),
    ] {
        let refused = batch.run("part", &[&["--resume"][..], other].concat());
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(expected), "{refused:?}");
    }
    assert_eq!(fs::read(batch.path("part")).unwrap(), before);
    for (shard, expected) in [("0/4", "add 1"), ("5/4", "K/N"), ("1", "K/N")] {
        let refused = batch.run("other", &["--shard", shard]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(expected), "{refused:?}");
    }
}
