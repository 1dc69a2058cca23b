//! What it shows of recordings, and of files that only look like some.

use std::fs;
use std::path::{Path, PathBuf};

use hatchery::{HostError, HostFunction, Job};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::browser::Browser;
use crate::hostile::{HTML, is_text};
use crate::looks::resize;
use crate::server::{POOL, open, wait};

/// Records a session with these turns.
fn recorded(folder: &Path, name: &str, turns: &[&str]) -> PathBuf {
    let file = folder.join("a.recording");
    let price = HostFunction::sync("price", |arguments: Value| {
        Ok::<_, HostError>(json!({ "of": arguments["item"], "euros": 3 }))
    });
    wait(async {
        let session = POOL.session(name).await.unwrap().function(price).unwrap();
        session.record(&file).await.unwrap();
        for code in turns {
            session.run(Job::code(*code)).await.unwrap();
        }
        session.stop_recording().await.unwrap();
        session.close();
    });
    file
}

/// Seals these records as those of a recording.
fn sealed(records: impl Iterator<Item = Value>) -> Vec<u8> {
    let (mut file, mut seal) = (Vec::new(), [0; 32]);
    for record in records {
        let sealed = format!("{record}\n\n");
        seal = Sha256::new().chain_update(seal).chain_update(&sealed).finalize().into();
        let digits: String = seal.iter().map(|byte| format!("{byte:02x}")).collect();
        file.extend_from_slice(format!("{sealed}{digits}\n").as_bytes());
    }
    file
}

/// Opens a file in the page, and waits until it was read.
fn show(browser: &Browser, file: &Path) -> String {
    browser.choose("input[type=file]", file);
    let about = browser
        .until("!/Reading|not sent/.test(text('.recording .about')) && text('.recording .about')");
    about.as_str().unwrap().to_owned()
}

/// Opens a turn, and returns its text.
fn turn(browser: &Browser, number: usize) -> String {
    let details = format!("all('.turns details')[{}]", number - 1);
    browser.run(&format!("{details}.open = true;"));
    let body = browser.until(&format!("{details}.querySelector('.turn dl')?.parentNode.innerText"));
    body.as_str().unwrap().to_owned()
}

#[test]
fn a_recording_is_a_timeline_with_programs_outputs_figures_errors_and_host_calls() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    // A narrow page has no bars.
    resize(&browser, 1280, "light");
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(
        folder.path(),
        "analysis",
        &[
            "import sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)",
            "class Drawn:\n    def _repr_svg_(self):\n        return '<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"30\"/>'\n\
             display(Drawn())",
            "from hatchery import host\nhost.price(item='tea')['euros'] * 2",
            "open('left.txt', 'w').write('x' * 12)",
            "{}['region']",
        ],
    );
    let about = show(&browser, &file);
    assert!(about.starts_with("Session analysis, 5 turns, "), "{about}");
    assert!(about.ends_with("Its seals are right."), "{about}");
    let rows = browser.run("return all('.turns summary').map((row) => row.innerText)");
    let rows: Vec<String> = serde_json::from_value(rows).unwrap();
    assert!(rows[0].contains("import sys") && rows[0].contains("completed"), "{rows:?}");
    assert!(rows[4].contains("{}['region']") && rows[4].contains("raised"), "{rows:?}");
    let bars = browser
        .run("return all('.turns .bar span').map((bar) => bar.getBoundingClientRect().left)");
    let bars: Vec<f64> = serde_json::from_value(bars).unwrap();
    assert!(bars.len() == 5 && bars.is_sorted() && bars[0] < bars[4], "{bars:?}");

    assert!(turn(&browser, 1).contains("print('to stdout')"));
    assert_eq!(browser.run("return text('.turn .stdout')"), "to stdout\n");
    assert_eq!(browser.run("return text('.turn .stderr')"), "to stderr\n");
    turn(&browser, 2);
    browser.until("root.querySelector('.turn img')?.naturalWidth === 40");
    let called = turn(&browser, 3);
    for part in [r#"price({"item":"tea"}) → {"#, r#""euros":3"#, "\n6\n"] {
        assert!(called.contains(part), "{called}");
    }
    let written = turn(&browser, 4);
    assert!(written.contains("left.txt (12 B)"), "{written}");
    let failed = turn(&browser, 5);
    assert!(failed.contains("KeyError: 'region'") && failed.contains("raised · "), "{failed}");

    // It is gone once it is closed.
    browser.run("button('Close recording').click();");
    assert_eq!(browser.run("return all('.turns li').length"), 0);
}

#[test]
fn damage_and_a_cut_are_said_and_what_stands_before_is_shown() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), "damaged", &["print('first')", "print('second')"]);
    let whole = fs::read(&file).unwrap();
    let at = |text: &[u8]| whole.windows(text.len()).rposition(|part| part == text).unwrap();
    let with = |place: usize, byte: u8| {
        let mut changed = whole.clone();
        changed[place] = byte;
        changed
    };
    let lengths = at(br#""blobs":[7,0]"#) + br#""blobs":["#.len();
    for (name, bytes, expected) in [
        ("output", with(at(b"second\n\n"), b'S'), "a seal doesn’t match. What stands before"),
        ("length", with(lengths, b'6'), "a seal doesn’t match"),
        (
            "longer",
            [&whole[..lengths], b"99999", &whole[lengths..]].concat(),
            "longer than the file",
        ),
        ("cut", whole[..lengths].to_vec(), "was cut off within the record at byte"),
    ] {
        let changed = folder.path().join(name);
        fs::write(&changed, bytes).unwrap();
        let about = show(&browser, &changed);
        assert!(about.contains("1 turn,") && about.contains(expected), "{name}: {about}");
        browser.run("button('Close recording').click();");
    }
    // The last record says that it is all.
    let end = whole.windows(15).position(|part| part == br#"{"turns":2,"typ"#).unwrap();
    let ends = folder.path().join("ends");
    fs::write(&ends, &whole[..end]).unwrap();
    let about = show(&browser, &ends);
    assert!(about.contains("2 turns,") && about.contains("cut off after its last"), "{about}");
    for (name, bytes, expected) in [
        ("page", &b"<!doctype html>\n"[..], "a line isn’t a JSON object"),
        ("empty", b"", "The file is empty."),
        ("endless", b"[[[[[[[[[[", "was cut off"),
    ] {
        let other = folder.path().join(name);
        fs::write(&other, bytes).unwrap();
        let about = show(&browser, &other);
        assert!(about.contains(expected), "{name}: {about}");
    }
}

#[test]
fn a_hostile_recording_is_text_and_bounded() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    let folder = tempfile::tempdir().unwrap();
    let code = format!(
        "html = {HTML:?}\n\
         class Shown:\n\
         \x20   def _repr_html_(self): return html\n\
         \x20   def _repr_svg_(self): return '<svg xmlns=\"http://www.w3.org/2000/svg\">' + html + '</svg>'\n\
         print(html, '\\x1b[2J')\n\
         print('x' * 1_000_000)\n\
         for _ in range(300): display(Shown())\n\
         raise ValueError(html)"
    );
    let file = recorded(folder.path(), &format!("a {HTML}"), &[&code, HTML]);
    let about = show(&browser, &file);
    assert!(about.contains("<script>"), "{about}");
    let shown = turn(&browser, 1);
    assert!(shown.contains(&format!("{HTML} ␛[2J")), "{shown}");
    assert!(shown.contains(&format!("ValueError: {HTML}")), "{shown}");
    assert!(shown.contains("998,000 more characters"), "{shown}");
    assert!(shown.len() < 100_000, "{}", shown.len());
    assert!(browser.run("return all('.turn img').length").as_u64() <= Some(200));
    turn(&browser, 2);
    is_text(&browser);

    // Sealed records whose fields have other types than theirs, and more turns than are listed at once.
    let odd = [
        json!({ "type": "recording", "format": 1, "kind": "jobs", "session": [HTML], "seed": { "a": HTML } }),
        json!({ "type": "turn", "program": HTML, "outcome": [HTML], "measured": HTML }),
        json!({ "type": "turn", "program": { "code": 7, "files": { "a": "length" }, "stdin": "at" },
                "outcome": { "stdout": -1, "displays": [null, 7, { "image/png": HTML }], "files": [{}],
                             "exception": [HTML], "status": {} },
                "host_calls": { "calls": [null, { "name": HTML, "answer": 7 }], "network": [HTML] } }),
        json!({ "type": "state", "after": -1 }),
    ];
    let more = (0..1_000).map(|number| json!({ "type": "turn", "program": { "code": number } }));
    let other = folder.path().join("odd");
    fs::write(&other, sealed(odd.into_iter().chain(more))).unwrap();
    let about = show(&browser, &other);
    assert!(about.contains("1,002 runs"), "{about}");
    assert_eq!(browser.run("return all('.turns li').length"), 200);
    browser.run("button('Show 200 more of 802').click();");
    assert_eq!(browser.run("return all('.turns li').length"), 400);
    let shown = turn(&browser, 2);
    assert!(shown.contains("no answer") || shown.contains("→"), "{shown}");
    is_text(&browser);
}
