//! A report of a run as a page: self-contained, and harmless whatever the outputs contain.
//!
//! Every text is escaped. HTML of outputs is in frames with an empty sandbox, so it runs no script.
//! The page's content security policy, which the frames inherit, loads nothing. Images are data,
//! and only if they are base64.

use std::fmt::Write as _;

use hatchery::error::counted;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::document::{Notebook, View, text_of};
use crate::report::{NotebookEnd, Report};

const STYLE: &str = include_str!("html/style.css");

/// The policy of the page. It has no script.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

/// The largest part of one notebook, in bytes. Outputs that don't fit are left out, and said to be.
const MOST_BYTES: usize = 64 << 20;

/// The forms of an output, the best for a reader first.
const FORMS: [&str; 9] = [
    "text/html",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "image/gif",
    "text/markdown",
    "text/latex",
    "application/json",
    "text/plain",
];

/// Returns the page of these parts, in their order.
pub fn page<'a>(title: &str, parts: impl IntoIterator<Item = &'a Part>) -> String {
    let parts: Vec<&Part> = parts.into_iter().collect();
    let title = escaped(title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<table>\n"
    );
    for (number, Part { name, state, summary, .. }) in (1..).zip(&parts) {
        let name = escaped(name);
        let summary = escaped(summary);
        let row = format!(
            "<tr><td><a href=\"#n{number}\">{name}</a></td><td class=\"{state}\">{summary}</td></tr>\n"
        );
        page.push_str(&row);
    }
    page.push_str("</table>\n");
    for (number, Part { name, body, .. }) in (1..).zip(&parts) {
        let name = escaped(name);
        let _ = writeln!(page, "<section id=\"n{number}\">\n<h2>{name}</h2>\n{body}</section>");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// The part of one notebook.
#[derive(Debug, Clone)]
pub struct Part {
    name: String,
    /// A class of the style.
    state: &'static str,
    summary: String,
    body: String,
}

impl Part {
    /// Describes how a notebook ended, with its cells and their outputs. `remarks` are paragraphs
    /// that follow its name, such as how outputs differ.
    pub fn new(name: &str, report: &Report, remarks: &[String]) -> Self {
        let total = report.notebook.code().count();
        let is_good = match report.end {
            NotebookEnd::Completed => remarks.is_empty(),
            _ => report.end.is_success(),
        };
        let state = if is_good { "good" } else { "bad" };
        let mut summary = report.end.text(total);
        if report.end == NotebookEnd::Completed && !is_good {
            summary += ", with remarks";
        }
        let remarks = remarks.iter().map(|remark| format!("<pre>{}</pre>\n", escaped(remark)));
        let mut body: String = remarks.collect();
        cells(&report.notebook, &mut body);
        Self { name: name.to_owned(), state, summary, body }
    }
}

/// Appends the cells of a notebook.
fn cells(notebook: &Notebook, body: &mut String) {
    let mut left_out = 0;
    for view in notebook.views() {
        let View { is_code, source, count, outputs } = view;
        let mut cell = match (is_code, count) {
            (false, _) => format!("<pre class=\"text\">{}</pre>\n", escaped(&source)),
            (true, count) => {
                let count = count.map_or(" ".to_owned(), |count| count.to_string());
                format!("<pre class=\"code\"><b>[{count}]</b> {}</pre>\n", escaped(&source))
            }
        };
        outputs.iter().for_each(|output| self::output(output, &mut cell));
        if body.len() + cell.len() > MOST_BYTES {
            left_out += 1;
            continue;
        }
        body.push_str(&cell);
    }
    if left_out > 0 {
        let bound = MOST_BYTES >> 20;
        let _ = writeln!(
            body,
            "<p>{} left out, since a notebook has {bound} MiB in a report.</p>",
            counted(left_out, "cell")
        );
    }
}

/// Appends an output.
fn output(output: &Value, cell: &mut String) {
    let text = match output["output_type"].as_str() {
        Some("stream") => {
            let class = if output["name"] == "stderr" { "stderr" } else { "stdout" };
            format!("<pre class=\"{class}\">{}</pre>\n", escaped(&text(&output["text"])))
        }
        Some("error") => {
            let lines = output["traceback"].as_array().into_iter().flatten();
            let lines: Vec<&str> = lines.filter_map(Value::as_str).collect();
            format!("<pre class=\"error\">{}</pre>\n", escaped(&lines.join("\n")))
        }
        _ => match FORMS.into_iter().find_map(|form| shown(form, output["data"].get(form)?)) {
            Some(shown) => shown,
            None => return,
        },
    };
    cell.push_str(&text);
}

/// Returns a form of an output as HTML; `None` if it can't be shown.
fn shown(form: &str, value: &Value) -> Option<String> {
    let text = text(value);
    match form {
        "text/html" => {
            // A frame doesn't grow by itself, and the page has no script.
            let rows = (text.matches("<tr").count() * 2 + text.lines().count()).clamp(4, 30);
            Some(format!(
                "<iframe sandbox=\"\" style=\"height: {rows}em\" srcdoc=\"{}\"></iframe>\n",
                escaped(&text)
            ))
        }
        // As an image, it runs no script.
        "image/svg+xml" => {
            let text = utf8_percent_encode(&text, NON_ALPHANUMERIC);
            Some(format!("<img alt=\"\" src=\"data:image/svg+xml,{text}\">\n"))
        }
        "image/png" | "image/jpeg" | "image/gif" => {
            let data: String = text.split_whitespace().collect();
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
            let is_base64 = !data.is_empty() && data.bytes().all(is_part);
            is_base64.then(|| format!("<img alt=\"\" src=\"data:{form};base64,{data}\">\n"))
        }
        _ => Some(format!("<pre>{}</pre>\n", escaped(&text))),
    }
}

fn text(value: &Value) -> String {
    text_of(value).unwrap_or_else(|| format!("{value:#}"))
}

/// Escapes a text for an element or an attribute in double quotes. Colours of terminals and control
/// characters are left out.
fn escaped(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    // A letter ends each sequence.
    let is_last = |letter: char| ('@'..='~').contains(&letter);
    plain.extend(parts.filter_map(|part| Some(part.split_once(is_last)?.1)));
    plain.retain(|character| !character.is_control() || "\n\t".contains(character));
    let escaped = plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: Value) -> String {
        let mut cell = String::new();
        output(&value, &mut cell);
        cell
    }

    #[test]
    fn outputs_can_not_leave_their_place() {
        let attack = "</pre><script>alert(1)</script>\"'>";
        let shown = [
            of(json!({ "output_type": "stream", "name": "stdout", "text": [attack] })),
            of(json!({ "output_type": "error", "traceback": [attack] })),
            of(json!({ "output_type": "display_data", "data": { "text/plain": attack } })),
            of(json!({ "output_type": "display_data", "data": { "text/html": attack } })),
            of(json!({ "output_type": "display_data", "data": { "image/svg+xml": attack } })),
            of(
                json!({ "output_type": "display_data", "data": { "application/json": [1, attack] } }),
            ),
        ];
        for shown in shown {
            assert!(!shown.contains("<script") && !shown.contains("\">alert"), "{shown}");
            assert!(!shown.contains("'>") && shown.len() > 40, "{shown}");
        }
        let frame = of(json!({ "output_type": "display_data", "data": { "text/html": "<b>" } }));
        assert!(frame.starts_with("<iframe sandbox=\"\" "), "{frame}");
        let image = json!({ "image/png": "x\" onerror=\"y", "text/plain": "a figure" });
        let image = of(json!({ "output_type": "display_data", "data": image }));
        assert_eq!(image, "<pre>a figure</pre>\n");
        assert_eq!(of(json!({ "output_type": "display_data", "data": { "a/b": "c" } })), "");
    }

    #[test]
    fn a_page_has_its_policy_before_anything_else() {
        let part = Part {
            name: "<a>".to_owned(),
            state: "good",
            summary: "1 < 2".to_owned(),
            body: String::new(),
        };
        let page = page("a & b", [&part]);
        assert!(page.find("Content-Security-Policy").unwrap() < page.find("<title>").unwrap());
        assert!(page.contains("<h1>a &amp; b</h1>") && page.contains("&lt;a&gt;</a>"), "{page}");
        assert!(page.contains("default-src 'none'") && !page.contains("<script"), "{page}");
        assert_eq!(escaped("a\u{1b}[31mred\u{1b}[0m\r\u{7}b\u{1b}"), "aredb");
    }
}
