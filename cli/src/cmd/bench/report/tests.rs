//! Tests of the report.

use super::*;

fn report() -> Report {
    let machine = Machine {
        cpu_model: Some("Some CPU".to_owned()),
        cpus: 2,
        memory_bytes: Some(8 << 30),
        kernel: None,
        mapping: ImageMapping::PageScan,
        load: Some(0.5),
    };
    let mut samples = Samples::default();
    for _ in 0..LEAST_ROUNDS * 100 {
        samples.push(Figure::Fresh, 0.25);
        samples.push(Figure::Turn, 0.5);
    }
    for rate in 0..LEAST_ROUNDS * 5 {
        samples.push(Figure::OneWorker, 4_000.0 + rate as f64);
        samples.push_cpu(Figure::OneWorker, 0.2);
        samples.push_cpu(Figure::Fresh, 0.3);
    }
    samples.push(Figure::Numpy, 1.0);
    Report {
        is_quick: true,
        is_complete: false,
        machine,
        python3: None,
        build: None,
        samples,
        load: None,
        preparation: Some(Duration::from_millis(1_250)),
        began: Instant::now(),
        took: Duration::from_secs(61),
    }
}

#[test]
fn the_table_has_the_figures_that_are_known() {
    let report = report();
    let (facts, table) = (report.facts(), report.table());
    let expected = "\
hatchery VERSION
cpu      Some CPU
cpus     2
memory   8.0 GiB
kernel   unknown
images   mapped copy-on-write, with the kernel's page scan
load     0.50 at the start, unknown at the end";
    let expected = expected.replace("VERSION", env!("CARGO_PKG_VERSION"));
    assert_eq!(facts.join("\n"), expected);
    let expected = [
        ["FIGURE", "MEDIAN", "P5", "P95", "P99", "CPU PER JOB", "SAMPLES"],
        ["fresh job", "250 µs", "250 µs", "250 µs", "250 µs", "300 µs", "500"],
        ["turn of a session", "500 µs", "500 µs", "500 µs", "500 µs", "-", "500"],
        ["fresh jobs, one worker", "4012/s", "4001/s", "4023/s", "-", "200 µs", "25"],
    ];
    assert_eq!(table, expected.map(|row| row.map(str::to_owned)));
    assert_eq!(report.ratios(), ["a turn takes 2.00 times as long as a fresh job"]);
    assert_eq!(report.duration(), "took 61.0 s, 1.25 s of that to start");
}

#[test]
fn a_report_without_figures_has_no_table() {
    let report =
        Report { samples: Samples::default(), preparation: None, load: Some(1.0), ..report() };
    let (facts, table, ratios) = (report.facts(), report.table(), report.ratios());
    assert_eq!(facts.last().unwrap(), "load     0.50 at the start, 1.00 at the end");
    assert_eq!((facts.len(), table.len(), ratios.len()), (7, 0, 0), "{facts:?}");
    assert_eq!(report.duration(), "ended after 61.0 s, before it had started");
}

#[test]
fn the_facts_say_what_ran_the_programs() {
    let build = Build {
        name: "some-python==1".to_owned(),
        version: "3.15.0".to_owned(),
        image: Some("0123456789abcdef".to_owned()),
        science_image: None,
        memory_limit_bytes: 6 << 30,
    };
    let lines = Report { build: Some(build), ..report() }.facts();
    for fact in [
        "memory   8.0 GiB, of which a pool uses 6.0 GiB at most",
        "python   3.15.0, some-python==1",
        "images   0123456789ab, unknown with numpy and pandas; mapped copy-on-write, with the \
         kernel's page scan",
        "python3  not installed",
    ] {
        assert!(lines.iter().any(|line| line == fact), "{fact}: {lines:#?}");
    }
    let start = Spread::of(&[12.0, 14.0, 13.0], 3).unwrap();
    let python3 = Some(Python3 { version: "3.12.1".to_owned(), start });
    let lines = Report { python3, ..report() }.facts();
    let fact = "python3  3.12.1; `python3 -c pass` takes 13.0 ms, 12.0 ms to 14.0 ms";
    assert!(lines.iter().any(|line| line == fact), "{lines:#?}");
}

#[test]
fn the_object_has_every_field_and_null_for_what_is_not_known() {
    let value = report().json();
    for figure in Figure::all() {
        assert!(value["figures"].get(figure.name()).is_some(), "{}", figure.name());
    }
    let figures = &value["figures"];
    assert_eq!(
        figures["fresh"],
        json!({
            "samples": 500,
            "p5_ms": 0.25,
            "p50_ms": 0.25,
            "p95_ms": 0.25,
            "p99_ms": 0.25,
            "cpu_ms_per_job": 0.3,
        })
    );
    assert_eq!(
        figures["throughput_one_worker"],
        json!({
            "samples": 25,
            "p5_per_second": 4_001.0,
            "p50_per_second": 4_012.0,
            "p95_per_second": 4_023.0,
            "cpu_ms_per_job": 0.2,
        })
    );
    assert_eq!(figures["turn"]["cpu_ms_per_job"], Value::Null);
    // One sample is too few.
    assert_eq!(figures["numpy"], Value::Null);
    assert_eq!(value["ratios"]["turn_to_fresh"], 2.0);
    assert_eq!(value["ratios"]["fib_to_python3"], Value::Null);
    assert_eq!((&value["machine"]["kernel"], &value["build"]), (&Value::Null, &Value::Null));
    assert_eq!(value["machine"]["has_page_scan"], true);
    assert_eq!(value["is_complete"], false);
}
