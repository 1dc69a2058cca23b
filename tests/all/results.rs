//! What a job returns besides its output: representations of values, displays, figures, exceptions.

use std::io::{Cursor, Read};

use hatchery::files::ChangeKind;
use hatchery::outcome::{MimeBundle, MimeData};
use hatchery::{Exception, Job, LimitKind, Limits, Outcome, Verdict};
use serde_json::json;

use crate::support::{calm, exception, run, run_job, with_pool, with_preloaded_pool};

#[track_caller]
fn bundle(outcome: &Outcome) -> &MimeBundle {
    match &outcome.verdict {
        Verdict::Completed { bundle, .. } => bundle,
        verdict => panic!("{verdict:?}"),
    }
}

/// Returns the width and height of a PNG, from its first chunk.
#[track_caller]
fn size_of_png(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[..16], b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR");
    assert!(bytes.ends_with(b"IEND\xaeB`\x82"));
    let number =
        |at: usize| bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    (number(16), number(20))
}

#[track_caller]
fn png(bundle: &MimeBundle) -> &[u8] {
    match bundle.get("image/png") {
        Some(MimeData::Bytes(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_expression_has_all_its_representations() {
    let source = "class A:\n    def __repr__(self): return 'plain'\n    \
                  def _repr_html_(self): return '<b>ä</b>'\n    \
                  def _repr_png_(self): return bytes([0x89])\nA()";
    let outcome = run(source);
    let Verdict::Completed { value, repr, bundle, .. } = &outcome.verdict else {
        panic!("{outcome:?}")
    };
    assert_eq!((value, repr.as_deref()), (&None, Some("plain")));
    let types: Vec<&str> = bundle.iter().map(|(name, _)| name).collect();
    assert_eq!(types, ["text/html", "image/png"]);
    assert_eq!((bundle.text("text/html"), png(bundle)), (Some("<b>ä</b>"), &[0x89][..]));
    let json = outcome.to_tool_json();
    assert_eq!(json["bundle"], json!({"text/html": "<b>ä</b>", "image/png": "iQ=="}));
    for plain in ["5", "'x'", "[1]", "None", "x = 1", "object()"] {
        assert!(bundle_of(plain).is_empty(), "{plain}");
    }
    let large = "class A:\n    def _repr_html_(self): return 'x' * 2000\nA()";
    let limits = Limits { result_bytes: 1000, ..calm() };
    let outcome = run_job(Job::code(large).limits(limits));
    assert!(self::bundle(&outcome).is_empty());
    assert_eq!(left_out(&outcome), [(LimitKind::Result, 1000, 2009)]);
}

fn left_out(outcome: &Outcome) -> Vec<(LimitKind, u64, u64)> {
    outcome.limits_met.iter().map(|hit| (hit.limit, hit.allowed, hit.used)).collect()
}

#[test]
fn a_value_that_is_too_large_is_left_out_and_reported() {
    for (source, used) in [("'a' * 2_000_000", 2_000_002), ("list(range(400_000))", 3_088_890)] {
        let outcome = run(source);
        assert!(
            matches!(&outcome.verdict, Verdict::Completed { value: None, repr: Some(_), .. }),
            "{source}"
        );
        assert_eq!(left_out(&outcome), [(LimitKind::Result, 1 << 20, used)], "{source}");
    }
    assert_eq!(left_out(&run("'a' * 999_999")), []);
}

fn bundle_of(source: &str) -> MimeBundle {
    bundle(&run(source)).clone()
}

#[test]
fn frames_and_series_are_html() {
    with_preloaded_pool(|pool| async {
        let frame = "import pandas as pd\nframe = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\n";
        for (last, has) in [("frame", "<td>y</td>"), ("frame.a", "<td>2</td>")] {
            let outcome = pool.run(Job::code(format!("{frame}{last}"))).await.unwrap();
            let html = bundle(&outcome).text("text/html").unwrap();
            assert!(html.contains("<table") && html.contains(has), "{html}");
        }
    });
}

#[test]
fn displays_come_in_order() {
    let source = "from hatchery import display as show\n\
                  for i in range(3): show(i)\n\
                  display({'text/html': '<i>', 'image/png': 'iQ=='}, raw=True)\n1 / 0";
    let outcome = run(source);
    assert_eq!(exception(&outcome).type_name, "ZeroDivisionError");
    let [zero, one, two, raw] = outcome.displays.as_slice() else { panic!("{outcome:?}") };
    for (display, text) in [(zero, "0"), (one, "1"), (two, "2")] {
        assert_eq!(display.text("text/plain"), Some(text));
    }
    assert_eq!((raw.text("text/html"), png(raw)), (Some("<i>"), &[0x89][..]));
    assert_eq!(
        outcome.to_tool_json()["displays"][3],
        json!({"text/html": "<i>", "image/png": "iQ=="})
    );
}

#[test]
fn displays_beyond_their_limits_are_dropped_and_the_program_continues() {
    let limits = Limits { display_count: 2, display_bytes: 1000, ..calm() };
    let shown = |source: &str| {
        let outcome = run_job(Job::code(source).limits(limits.clone()));
        assert!(outcome.is_success(), "{outcome:?}");
        let met: Vec<_> = outcome.limits_met.iter().map(|hit| (hit.limit, hit.used)).collect();
        (outcome.displays.len(), met)
    };
    assert_eq!(shown("for i in range(2): display(i)"), (2, vec![]));
    assert_eq!(shown("for i in range(9): display(i)"), (2, vec![(LimitKind::DisplayCount, 9)]));
    let html = "display({'text/html': 'x' * 2000}, {'text/html': 'y'}, raw=True)";
    assert_eq!(shown(html), (1, vec![(LimitKind::DisplayBytes, 2019)]));
    let (count, met) = shown("display({'text/html': 'x' * (1 << 20)}, raw=True)");
    assert!(count == 0 && met[0].0 == LimitKind::DisplayBytes && met[0].1 > 1 << 20);
}

#[test]
fn open_figures_are_shown_at_the_end_and_at_show() {
    with_pool(|pool| async {
        let session = pool.session("figures").await.unwrap();
        let source = "import matplotlib, matplotlib.pyplot as plt\n\
                      plt.figure(figsize=(4, 3), dpi=50); plt.plot([1, 2]); plt.show()\n\
                      display('between')\n\
                      for width in 2, 3: plt.figure(figsize=(width, 1), dpi=100).gca().plot([3])\n\
                      [matplotlib.get_backend().lower(), plt.get_fignums()]";
        let outcome = session.run(Job::code(source)).await.unwrap();
        assert_eq!(crate::support::value(&outcome), json!(["agg", [1, 2, 3]]));
        assert!(!outcome.stderr_text().contains("cannot be shown"), "{}", outcome.stderr_text());
        let [first, between, second, third] = outcome.displays.as_slice() else {
            panic!("{} displays", outcome.displays.len())
        };
        assert_eq!(size_of_png(png(first)), (200, 150));
        assert_eq!(between.text("text/plain"), Some("'between'"));
        assert_eq!((size_of_png(png(second)), size_of_png(png(third))), ((200, 100), (300, 100)));
        // They don't accumulate, even after an exception or if a program chooses Agg itself.
        let source = "matplotlib.use('Agg')\nplt.figure(); plt.show(); plt.figure(); plt.fignum_exists(1) / 0";
        let failed = session.run(Job::code(source)).await.unwrap();
        assert_eq!((failed.displays.len(), failed.stderr_text().as_str()), (2, ""));
        let outcome =
            session.run(Job::code("fig = plt.figure(); display(fig); fig")).await.unwrap();
        assert_eq!(outcome.displays.len(), 1, "each figure is shown once");
        assert_eq!(size_of_png(png(bundle(&outcome))), (640, 480));
        let outcome = session.run(Job::code("plt.get_fignums()")).await.unwrap();
        assert_eq!(crate::support::value(&outcome), json!([]));
        session.close();
    });
}

#[test]
fn a_table_in_a_picture_and_a_workbook_out() {
    with_preloaded_pool(|pool| async {
        let source = "import matplotlib.pyplot as plt, pandas as pd\n\
                      frame = pd.read_csv('in/sales.csv')\n\
                      frame.plot(x='region', y='units', kind='bar', figsize=(4, 3))\n\
                      plt.savefig('plot.png', dpi=100); plt.close('all')\n\
                      frame.groupby('region').sum().to_excel('out/sums.xlsx')";
        let source = format!("import os\nos.mkdir('out')\n{source}");
        let table = "region,units\nNorth,1234\nSouth,20\nNorth,1111\n";
        let job = Job::code(source).input("in/sales.csv", table).unwrap();
        let outcome = pool.run(job).await.unwrap();
        assert!(outcome.is_success(), "{outcome:?}");
        let [workbook, plot] = outcome.files.as_slice() else {
            panic!("{:?}", outcome.files.iter().map(|file| &file.path).collect::<Vec<_>>())
        };
        assert_eq!((workbook.path.as_str(), plot.path.as_str()), ("out/sums.xlsx", "plot.png"));
        assert_eq!((workbook.kind, plot.kind), (ChangeKind::Created, ChangeKind::Created));
        assert_eq!(size_of_png(&plot.contents), (400, 300));
        let mut archive = zip::ZipArchive::new(Cursor::new(&workbook.contents)).unwrap();
        let mut part = |name: &str| {
            let mut text = String::new();
            archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        let sheet = part("xl/worksheets/sheet1.xml");
        assert!(sheet.contains("<v>2345</v>") && sheet.contains("<v>20</v>"), "{sheet}");
        let texts = part("xl/sharedStrings.xml");
        assert!(texts.contains("North") && texts.contains("South"), "{texts}");
    });
}

#[test]
fn exceptions_have_their_frames_notes_and_chains() {
    let source = "def f():\n    try:\n        {}['k']\n    except KeyError as error:\n        \
                  error.add_note('a note')\n        raise OSError(5, 'x') from error\n\
                  try:\n    f()\nexcept OSError:\n    raise ValueError('v')";
    let outcome = run_job(Job::code(source).named("prog.py"));
    let Exception { frames, context, cause, notes, .. } = exception(&outcome);
    let [frame] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!((frame.file.as_str(), frame.line, frame.column), ("prog.py", Some(10), Some(4)));
    assert_eq!((frame.function.as_str(), frame.end_line), ("<module>", Some(10)));
    assert_eq!(frame.source_line.as_deref(), Some("raise ValueError('v')"));
    assert_eq!((cause, notes.len()), (&None, 0));
    let context = context.as_ref().unwrap();
    assert_eq!((context.type_name.as_str(), context.message.as_str()), ("OSError", "[Errno 5] x"));
    let functions: Vec<_> = context.frames.iter().map(|frame| frame.function.as_str()).collect();
    assert_eq!(functions, ["<module>", "f"]);
    let cause = context.cause.as_ref().unwrap();
    assert_eq!(
        (cause.type_name.as_str(), cause.notes.as_slice()),
        ("KeyError", &["a note".to_owned()][..])
    );
    assert_eq!(context.context, None, "a cause is not repeated as the context");
    let error = &outcome.to_tool_json()["error"];
    assert_eq!(error["context"]["cause"]["notes"][0], "a note");
    assert_eq!(error["frames"][0]["source_line"], "raise ValueError('v')");
    let hidden = run("try:\n    1 / 0\nexcept ArithmeticError:\n    raise ValueError from None");
    assert_eq!(exception(&hidden).context, None);
}

#[test]
fn groups_and_syntax_errors_are_structured() {
    let outcome =
        run("raise ExceptionGroup('g', [OSError('a'), ExceptionGroup('h', [ValueError('b')])])");
    let group = &exception(&outcome).group;
    assert_eq!((group.len(), group[1].group[0].message.as_str()), (2, "b"));
    let outcome = run("x = 1\ny = (\n");
    let exception = exception(&outcome);
    let syntax = exception.syntax.as_ref().unwrap();
    assert_eq!((syntax.file.as_deref(), syntax.line), (Some("<job>"), Some(2)));
    assert_eq!((syntax.column, exception.frames.len()), (Some(5), 0));
    assert_eq!(syntax.text.as_deref().map(str::trim), Some("y = ("));
}

#[test]
fn endless_chains_are_truncated() {
    let source =
        "e = None\nfor i in range(2000):\n    n = ValueError(i); n.__cause__ = e; e = n\nraise e";
    let outcome = run(source);
    let first = exception(&outcome);
    assert_eq!(first.message, "1999");
    let depth = std::iter::successors(Some(first), |one| one.cause.as_deref()).count();
    assert_eq!(depth, 50);
    let outcome = run("def f(): f()\nf()");
    let frames = &exception(&outcome).frames;
    assert_eq!((frames.len(), frames[0].function.as_str()), (200, "<module>"));
    let outcome = run("display(1, wrong=2)");
    assert_eq!(exception(&outcome).frames.len(), 1, "the agent's frames are left out");
}
