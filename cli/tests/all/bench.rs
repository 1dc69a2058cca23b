//! `hatchery bench`: its object, and how Ctrl-C ends it. The guide's test compares its table.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::Value;

use crate::{hatchery, interrupt, json_of, run, text};

/// Asserts that there are enough samples, and that the percentiles are positive and in order.
fn check_spread(value: &Value, unit: &str, least: u64) {
    assert!(value["samples"].as_u64().unwrap() >= least, "{value}");
    let at = |percentile: &str| value[format!("{percentile}_{unit}")].as_f64().unwrap();
    let percentiles = ["p5", "p50", "p95"].map(at);
    assert!(percentiles[0] > 0.0 && percentiles.is_sorted(), "{value}");
}

#[test]
fn the_object_has_every_fact_and_figure_and_sane_numbers() {
    // Building an image isn't what is measured.
    assert!(run(&["image", "build", "--preload", "numpy,pandas"]).status.success());
    let output = run(&["bench", "--quick", "--json", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    let report = json_of(&output);
    assert_eq!(report["hatchery_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&report["is_quick"], &report["is_complete"]), (&true.into(), &true.into()));
    let [took, preparation] =
        ["took_seconds", "preparation_seconds"].map(|name| report[name].as_f64().unwrap());
    assert!(preparation > 0.0 && (15.0..60.0).contains(&(took - preparation)), "{report}");

    let machine = &report["machine"];
    for name in ["cpu_model", "kernel"] {
        assert!(machine[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {machine}");
    }
    for name in ["cpu_count", "memory_bytes", "memory_limit_bytes"] {
        assert!(machine[name].as_u64().is_some_and(|number| number > 0), "{name}: {machine}");
    }
    for name in ["load_at_start", "load_at_end"] {
        assert!(machine[name].as_f64().is_some_and(|load| load >= 0.0), "{name}: {machine}");
    }
    assert!(machine["has_copy_on_write"].is_boolean() && machine["has_page_scan"].is_boolean());
    let has_python3 = machine["python3_version"].is_string();
    if has_python3 {
        check_spread(&machine["python3_start"], "ms", 11);
    }
    let build = &report["build"];
    assert!(build["python_version"].as_str().unwrap().starts_with("3."), "{build}");
    assert!(build["name"].as_str().unwrap().contains("=="), "{build}");
    for name in ["image_key", "numpy_pandas_image_key"] {
        assert_eq!(build[name].as_str().map(str::len), Some(32), "{build}");
    }

    let figures = &report["figures"];
    for (name, unit, least) in [
        ("first_outcome", "ms", 5),
        ("fresh", "ms", 500),
        ("fresh_numpy_pandas", "ms", 500),
        ("turn", "ms", 500),
        ("throughput_one_worker", "per_second", 25),
        ("throughput_all_cpus", "per_second", 25),
        ("turn_frame", "ms", 100),
        ("fork_frame", "ms", 25),
        ("save_frame", "ms", 5),
        ("revive_frame", "ms", 5),
        ("fib", "ms", 5),
        ("numpy", "ms", 5),
    ] {
        check_spread(&figures[name], unit, least);
    }
    for name in ["fresh", "fresh_numpy_pandas", "turn"] {
        let figure = &figures[name];
        assert!(figure["p99_ms"].as_f64() >= figure["p95_ms"].as_f64(), "{figure}");
    }
    for name in ["fresh", "turn", "turn_frame", "throughput_one_worker", "throughput_all_cpus"] {
        let cpu = figures[name]["cpu_ms_per_job"].as_f64().unwrap();
        assert!(cpu > 0.0 && cpu < 1_000.0, "{name}: {cpu}");
    }
    for (name, is_known) in [
        ("turn_to_fresh", true),
        ("throughput_all_cpus_to_one_worker", true),
        ("fib_to_python3", has_python3),
    ] {
        let ratio = report["ratios"][name].as_f64();
        assert_eq!(ratio.is_some_and(|ratio| ratio > 0.0), is_known, "{name}: {ratio:?}");
    }
    let pages = [
        include_str!("../../../docs/bench.md"),
        include_str!("../../../docs/guide/performance.md"),
    ];
    for field in fields(&report) {
        let names = ["`", "."].map(|end| format!("{field}{end}"));
        let is_documented = pages.iter().any(|page| names.iter().any(|name| page.contains(name)));
        assert!(is_documented, "neither docs/bench.md nor the guide has `{field}`");
    }
    // A process does more than a job, and its first outcome takes longer.
    assert!(figures["first_outcome"]["p50_ms"].as_f64() > figures["fresh"]["p50_ms"].as_f64());
}

/// Returns the names of all fields of an object and of the objects in it.
fn fields(value: &Value) -> Vec<String> {
    let own = value.as_object().into_iter().flatten();
    own.flat_map(|(name, value)| [vec![name.clone()], fields(value)].concat()).collect()
}

#[test]
fn ctrl_c_ends_it_with_what_is_known() {
    let mut child =
        hatchery().arg("bench").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("measuring for 60 s") {
        assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
    }
    interrupt(child.id());
    let output = child.wait_with_output().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted; only what was measured"), "{said}");
    let printed = text(&output.stdout);
    for fact in ["hatchery ", "cpus ", "python ", "images ", "load ", "took "] {
        assert!(printed.lines().any(|line| line.starts_with(fact)), "{fact}: {printed}");
    }
    // A round takes longer than Ctrl-C, and a figure needs five.
    assert!(!printed.contains("FIGURE"), "{printed}");
}

#[test]
fn it_takes_no_options_of_other_commands() {
    for option in ["--preload=numpy", "--workers=1", "--timeout=1s"] {
        let output = run(&["bench", option]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}
