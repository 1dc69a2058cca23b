//! The report as a page of HTML: no script, no other file, and every text of a sample escaped.

use std::fmt::Write;

use super::{Report, shown};
use crate::verdict::Graded;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;\
padding:0 1rem;color:#222;background:#fff}h1{font-size:1.4rem}table{border-collapse:collapse;\
width:100%;margin:1rem 0}th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd;\
vertical-align:top}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}\
.passed{color:#176b2c}.failed,.error,.task_error{color:#a11616}.limit,.undecided{color:#8a5a00}.sandbox{color:#6b2fa0}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;font-size:.85em}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}\
.passed{color:#6fce87}.failed,.error,.task_error{color:#ff8f8f}.limit,.undecided{color:#e5b45e}.sandbox{color:#c79df2}}";

/// Returns the page.
pub(super) fn page(report: &Report, title: &str, results: &[Graded]) -> String {
    let mut page = String::new();
    let title = escaped(title);
    // Writing to a text can't fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><h1>{title}</h1>\n<table>\n"
    );
    let mut row = |name: &str, value: &str| {
        let (name, value) = (escaped(name), escaped(value));
        let _ = writeln!(page, "<tr><th>{name}</th><td>{value}</td></tr>");
    };
    row("Tasks", &report.tasks.to_string());
    row("Samples", &report.samples.to_string());
    for (name, count) in &report.verdicts {
        row(name, &count.to_string());
    }
    for (k, estimate) in &report.pass_at {
        row(&format!("pass@{k}, 95 % interval"), &shown(estimate));
    }
    if let Some(credit) = &report.credit {
        row("Tests passed, mean over tasks", &shown(credit));
    }
    if report.unguarded > 0 {
        row("Unguarded samples", &report.unguarded.to_string());
    }
    row("CPU time of samples", &format!("{:.1} s", report.cpu_seconds));
    row("CPU time of tests", &format!("{:.1} s", report.tests_cpu_seconds));
    page.push_str(
        "</table>\n<h2>Samples</h2>\n<table>\n<tr><th>Task</th><th class=\"number\">Sample\
        </th><th>Verdict</th><th class=\"number\">Tests</th><th class=\"number\">CPU</th>\
        <th>Failures</th></tr>\n",
    );
    results.iter().for_each(|graded| sample(&mut page, graded));
    page.push_str("</table>\n</body></html>\n");
    page
}

fn sample(page: &mut String, graded: &Graded) {
    let name = graded.verdict.name();
    let verdict = match &graded.limit {
        Some(limit) => format!("limit: {limit}"),
        None => name.to_owned(),
    };
    let guard = if graded.guarded { "" } else { " (unguarded)" };
    let _ = write!(
        page,
        "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"{name}\">{}{guard}</td>\
         <td class=\"number\">{}/{}</td><td class=\"number\">{:.1} ms</td><td>",
        escaped(&graded.task_id),
        graded.sample,
        escaped(&verdict),
        graded.tests_passed,
        graded.tests_total,
        graded.cpu_ms,
    );
    if graded.failures.is_empty() {
        let _ = write!(page, "<pre>{}</pre>", escaped(&graded.message));
    } else {
        let _ = write!(page, "<details><summary>{}</summary>", escaped(&graded.message));
        for failure in &graded.failures {
            let (test, message) = (escaped(&failure.test), escaped(&failure.message));
            let _ = write!(page, "<pre>{test}: {message}</pre>");
        }
        page.push_str("</details>");
    }
    page.push_str("</td></tr>\n");
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Other control characters have no meaning in HTML.
            '\n' | '\t' => escaped.push(character),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
