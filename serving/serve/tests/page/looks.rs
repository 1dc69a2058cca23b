//! How the page looks, and how it is reached.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hatchery::{Job, Priority};
use serde_json::{Value, json};

use crate::browser::{Browser, Key};
use crate::pool::{enter, run};
use crate::server::{OPERATOR, POOL, guarded, open, start, submit, wait};

pub(crate) fn resize(browser: &Browser, width: u32, scheme: &str) {
    let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    browser.command("Emulation.setDeviceMetricsOverride", &size);
    let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    browser.command("Emulation.setEmulatedMedia", &scheme);
}

#[test]
fn it_fits_wide_and_narrow_screens_in_light_and_dark() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    browser.until("all('[aria-label=Workers] tbody tr').length");
    let mut grounds = Vec::new();
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (320, "dark")] {
        resize(&browser, width, scheme);
        browser.until(&format!("innerWidth === {width}"));
        let surplus = "return document.documentElement.scrollWidth - innerWidth";
        assert_eq!(browser.run(surplus), 0, "{width}");
        grounds.push(browser.run("return getComputedStyle(pool).backgroundColor"));
    }
    assert!(grounds[0] == grounds[2] && grounds[1] == grounds[3] && grounds[0] != grounds[1]);
}

#[test]
fn colours_are_on_what_they_are_about() {
    let pool = start(|builder| builder.workers(1));
    let page = open(&pool);
    let Some(browser) = Browser::open(&page) else { return };
    let result = submit(&page, "", "while True: pass");
    let row = "all('[aria-label=Workers] tbody tr')[0]";
    browser.until(&format!("{row}?.className === 'running'"));
    let colours = format!(
        "const row = {row};
        const colour = (name) =>
            getComputedStyle(row.querySelector(`[data-label=\"${{name}}\"]`)).color;
        return [colour('worker'), colour('python'), colour('state')];"
    );
    let colours = browser.run(&colours);
    assert!(colours[0] == colours[1] && colours[1] != colours[2], "{colours}");
    wait(pool.abort());
    result.join().unwrap();
}

/// Lines of equal values lie on each other: those below are wider.
#[test]
fn no_percentile_hides_another_one() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    let widths = "all('.chart .line.p50, .chart .line.p95, .chart .line.p99')\
                  .map((line) => parseFloat(getComputedStyle(line).strokeWidth))";
    let widths = browser.until(widths);
    let widths: Vec<f64> = serde_json::from_value(widths).unwrap();
    assert!(widths.len() == 3 && widths.is_sorted_by(|below, above| below > above), "{widths:?}");
}

#[test]
fn everything_is_reached_by_keyboard_with_a_visible_focus_and_a_name() {
    let page = guarded(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    browser.until("!root.querySelector('.gate').hidden");
    // The token is the first thing that the tabulator reaches, and Enter sends it.
    browser.press(&[Key::Tab]);
    assert_eq!(browser.run("return root.activeElement.id"), "token");
    enter(&browser, OPERATOR);
    browser
        .until("text('.who') === 'administrator' && root.querySelector('.buttons button:enabled')");
    let mut reached = Vec::new();
    browser.run("root.activeElement?.blur();");
    for _ in 0..16 {
        browser.press(&[Key::Tab]);
        let focused = browser.run(
            "const focused = root.activeElement;
            if (!focused) return null;
            const { outlineStyle, outlineWidth } = getComputedStyle(focused);
            const name = focused.ariaLabel ?? focused.innerText;
            return [name, outlineStyle === 'solid' && outlineWidth === '2px'];",
        );
        if let Some(name) = focused[0].as_str() {
            assert_eq!(focused[1], true, "{name} doesn't show that it has the focus");
            reached.push(name.to_owned());
        }
    }
    for name in [
        "Forget token",
        "Reset statistics",
        "Drain…",
        "Program",
        "Run",
        "Where the program runs",
        "Retire worker 1",
    ] {
        assert!(reached.iter().any(|reached| reached == name), "{name} isn't among {reached:?}");
    }
    let unnamed = "return all('button, input, select, textarea, svg')\
                   .filter((part) => !(part.ariaLabel ?? part.innerText) && !part.labels?.length).length";
    assert_eq!(browser.run(unnamed), 0);
}

/// What a picture shows.
const PROGRAM: &str = "import matplotlib.pyplot as plt
import pandas as pd

sales = pd.DataFrame({\"city\": [\"Oslo\", \"Lima\", \"Pune\"],
                      \"orders\": [412, 388, 530]})
figure, axes = plt.subplots(figsize=(4.8, 1.2), layout=\"constrained\")
axes.barh(sales[\"city\"], sales[\"orders\"])
plt.show()
sales
";

/// Says that it is over when it is dropped, so also if a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Draws the pictures of the guide into the folder that `HATCHERY_PICTURES` names, in five minutes;
/// does nothing without.
#[test]
fn pictures_of_the_guide_are_drawn_if_a_folder_is_given() {
    let Some(folder) = std::env::var_os("HATCHERY_PICTURES").map(PathBuf::from) else { return };
    let pool = start(|builder| builder.workers(3));
    let page = guarded(&pool);
    let Some(browser) = Browser::open(&page) else { return };
    enter(&browser, OPERATOR);
    let sessions =
        ["ada/notebook", "ada/report", "eve/scratch"].map(|name| wait(pool.session(name)).unwrap());
    for session in &sessions {
        wait(async {
            session.submit(Job::code("rows = list(range(20_000))")).await.unwrap().await
        });
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for (tenant, priority, count, ms) in [
            ("web", Priority::High, 2, 20),
            ("nightly", Priority::Low, 6, 60),
            ("ada", Priority::Normal, 3, 40),
        ] {
            for number in 0..count {
                let (pool, is_over) = (&pool, &is_over);
                scope.spawn(move || {
                    let mut round = number;
                    while !is_over.load(Ordering::Relaxed) {
                        round += 7;
                        let wait_ms = ms + (round * 37) % 90;
                        let failing = if round % 181 == 0 { "int('12,5')" } else { "" };
                        let code = format!("import time; time.sleep({wait_ms} / 1000)\n{failing}");
                        let job = Job::code(code).tenant(tenant).priority(priority);
                        wait(async { pool.submit(job).await.unwrap().await });
                    }
                });
            }
        }
        // A script may take 30 seconds, and the charts cover three minutes.
        for seconds in (20..=200).step_by(20) {
            browser.until(&format!("performance.now() > {seconds}_000"));
        }
        run(&browser, PROGRAM);
        let failing = sessions[1].submit(Job::code("{}['region']").tenant("ada"));
        wait(async { failing.await.unwrap().await });
        browser.until("text('[aria-label=\"Last errors\"]').includes('KeyError')");
        for (name, width, scheme) in [
            ("wide-light", 1280, "light"),
            ("wide-dark", 1280, "dark"),
            ("narrow-light", 390, "light"),
            ("narrow-dark", 390, "dark"),
        ] {
            resize(&browser, width, scheme);
            browser.until(&format!(
                "innerWidth === {width} && root.querySelector('.output img').complete"
            ));
            let shot = json!({ "captureBeyondViewport": true, "format": "png" });
            let Value::String(data) =
                browser.command("Page.captureScreenshot", &shot)["data"].take()
            else {
                panic!("no picture");
            };
            let picture = BASE64_STANDARD.decode(data).unwrap();
            std::fs::write(folder.join(format!("page-{name}.png")), picture).unwrap();
        }
    });
}
