//! Batches on a pool of this process, as a pipeline that embeds them runs them.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::path::Path;

use batch::{Batch, Ending, Event, Lines, Merge, Output, Parts, PoolRunner, Shard, Summary};
use hatchery::Hatchery;
use hatchery::files::OutputFolder;
use serde_json::Value;

const LINES: &str = r#"{"id": "sum", "code": "rate * 2"}
{"id": "file", "code": "open('made.txt', 'w').write('here')"}
{"id": "fails", "code": "1/0"}
{"id": "no job"}
{"id": "alone", "code": "'text'"}
"#;

/// A pool, and a folder with the jobs.
struct Bench {
    pool: Hatchery,
    folder: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let builder = Hatchery::builder().workers(2).queue_limit_bytes(usize::MAX);
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("jobs"), LINES).unwrap();
        Self { pool: builder.start().await.unwrap(), folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    async fn lines(&self) -> Lines {
        Lines::open(&self.path("jobs")).await.unwrap()
    }

    /// Runs the jobs. Returns how that ended, and how many lines it was told of.
    async fn run(&self, output: Output) -> (Summary, usize) {
        let runner = PoolRunner::new(self.pool.clone(), 2)
            .give(|job| job.variable("rate", 21))
            .keep_files(OutputFolder::open(&self.path("made")).unwrap());
        let mut told = 0;
        let observe = |event: Event<'_>| told += usize::from(matches!(event, Event::Done { .. }));
        let summary = Batch::new(runner).ordered().run(self.lines().await, output, observe).await;
        (summary.unwrap(), told)
    }
}

fn results(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_runs_in_order_keeps_files_and_resumes() {
    let bench = Bench::new().await;
    let out = bench.path("out");
    let (Summary { tally, unclaimed, .. }, told) =
        bench.run(Output::create(&out, None).await.unwrap()).await;
    assert_eq!((tally.succeeded(), tally.of(Ending::Failed), tally.malformed()), (3, 1, 1));
    assert_eq!((told, tally.earlier(), unclaimed), (5, 0, 0));
    let all = results(&out);
    let ids: Vec<&str> = all.iter().map(|result| result["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["sum", "file", "fails", "no job", "alone"]);
    assert_eq!((&all[0]["value"], &all[2]["status"]), (&42.into(), &"raised".into()));
    assert_eq!(fs::read_to_string(bench.path("made/file/made.txt")).unwrap(), "here");

    // Without one of the results, and with half of another.
    let text = fs::read_to_string(&out).unwrap();
    let kept: Vec<&str> = text.lines().skip(1).collect();
    let torn = &kept[3][..kept[3].len() / 2];
    fs::write(&out, format!("{}\n{torn}", kept[..3].join("\n"))).unwrap();
    let output = Output::resume(&out, None).unwrap();
    let resumed = output.resumed.unwrap();
    assert_eq!((resumed.results, resumed.removed, resumed.was_cut_off), (2, 1, true));
    let (Summary { tally, .. }, told) = bench.run(output).await;
    assert_eq!((tally.earlier(), tally.done(), told), (2, 5, 5));
    assert_eq!(results(&out).len(), 5);
    bench.pool.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_merge_into_the_results_of_the_whole_batch() {
    let bench = Bench::new().await;
    let parts = ["part-1", "part-2"].map(|part| bench.path(part));
    let mut told = 0;
    for (part, shard) in parts.iter().zip(["1/2", "2/2"]) {
        let shard: Shard = shard.parse().unwrap();
        told += bench.run(Output::create(part, Some(shard)).await.unwrap()).await.1;
        let problem = Output::resume(part, None).unwrap_err();
        let problem = hatchery::error::chain(&problem).to_string();
        assert!(problem.contains("give each shard its own file"), "{problem}");
    }
    assert_eq!(told, 5);
    let merge = Merge::of(bench.lines().await, Parts::read(&parts).unwrap()).await.unwrap();
    assert_eq!((merge.missing.len(), &merge.twins, &merge.others), (0, &None, &None));
    assert_eq!((merge.tally.succeeded(), merge.tally.malformed()), (3, 1));
    let mut merged = Vec::new();
    merge.write(&mut merged).unwrap();
    bench.run(Output::create(&bench.path("whole"), None).await.unwrap()).await;
    let ids = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|result| result["id"].to_string()).collect()
    };
    let whole = fs::read_to_string(bench.path("whole")).unwrap();
    assert_eq!(ids(&String::from_utf8(merged).unwrap()), ids(&whole));

    let one = Parts::read(&parts[..1]).unwrap();
    let merge = Merge::of(bench.lines().await, one).await.unwrap();
    let [missing] = &merge.missing[..] else { panic!("{:?}", merge.missing) };
    assert_eq!(missing.shard, Some("2/2".parse().unwrap()));
    assert_eq!(missing.count, results(&parts[1]).len());
    bench.pool.drain().await;
}
