//! Notebooks give the same outputs as Jupyter. The files in `cli/tests/notebooks/` have the outputs
//! of Jupyter itself (nbclient 0.11, ipykernel 7.4, IPython 9.18, matplotlib 3.11), with images
//! replaced by their sizes, and Jupyter's folder by the test's.

use std::fs;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::{run, text};

/// Fonts may make images this much wider or higher.
const PIXELS: u32 = 3;

/// Runs one of the notebooks, and returns the differences between its outputs and Jupyter's, with
/// the source of the cells.
fn differences(name: &str) -> Vec<String> {
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/notebooks").join(name);
    let folder = tempfile::tempdir().unwrap();
    let options = ["--allow-errors", "--timeout", "2m", "--cpu-time", "2m", "--output-dir"];
    let mut arguments = vec!["notebook", "run", expected.to_str().unwrap()];
    arguments.extend(options);
    arguments.push(folder.path().to_str().unwrap());
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (expected, given) = (cells(&expected), cells(&folder.path().join(name)));
    assert_eq!(expected.len(), given.len());
    let pairs = expected.iter().zip(&given);
    let differing = pairs.filter_map(|(expected, given)| {
        let [wanted, found] = [expected, given].map(outputs);
        let are_alike = wanted.len() == found.len()
            && wanted.iter().zip(&found).all(|(wanted, found)| are_alike(wanted, found));
        let source = &expected["source"];
        (!are_alike).then(|| format!("{source}\n Jupyter: {wanted:?}\n  ours: {found:?}\n"))
    });
    differing.collect()
}

fn cells(path: &Path) -> Vec<Value> {
    let notebook: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    notebook["cells"].as_array().unwrap().clone()
}

/// Returns a cell's outputs, without what varies from run to run and the layout of tracebacks.
fn outputs(cell: &Value) -> Vec<Value> {
    let outputs = cell["outputs"].as_array().unwrap().iter();
    outputs.map(|output| plain(output, "")).collect()
}

/// Normalizes a value of an output: joins texts, and removes addresses of objects.
fn plain(value: &Value, name: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "traceback");
            fields.map(|(name, value)| (name.clone(), plain(value, name))).collect()
        }
        Value::Array(lines) if !lines.is_empty() && lines.iter().all(Value::is_string) => {
            let joined: String = lines.iter().filter_map(Value::as_str).collect();
            plain(&Value::from(joined), name)
        }
        Value::String(text) if name == "image/png" => Value::from(pixels(text)),
        Value::String(text) if name == "image/svg+xml" && text.contains("matplotlib") => {
            json!("a drawing")
        }
        Value::String(text) => Value::from(without_addresses(text)),
        other => other.clone(),
    }
}

/// Returns the size of an image, if it has one; otherwise the image.
fn pixels(image: &str) -> String {
    let bytes = decoded(image);
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    match (number(16), number(20)) {
        (Some(width), Some(height)) => format!("{width} x {height} pixels"),
        _ => image.to_owned(),
    }
}

/// Returns the beginning of what base64 holds; empty if it is not base64.
fn decoded(text: &str) -> Vec<u8> {
    let beginning: String = text.chars().take(32).collect();
    BASE64_STANDARD.decode(beginning).unwrap_or_default()
}

fn without_addresses(text: &str) -> String {
    let mut parts = text.split(" at 0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
        format!("{all} at 0x…{rest}")
    })
}

fn are_alike(wanted: &Value, found: &Value) -> bool {
    let image = |output: &Value| {
        let size =
            output["data"]["image/png"].as_str()?.strip_suffix(" pixels")?.split_once(" x ")?;
        Some([size.0.parse::<u32>().ok()?, size.1.parse().ok()?])
    };
    let (Some(size), Some(other)) = (image(wanted), image(found)) else { return wanted == found };
    let is_near = size.iter().zip(other).all(|(one, other)| one.abs_diff(other) <= PIXELS);
    let mut found = found.clone();
    found["data"]["image/png"] = wanted["data"]["image/png"].clone();
    is_near && *wanted == found
}

#[track_caller]
fn check(name: &str) {
    let differences = differences(name);
    assert!(differences.is_empty(), "{name}:\n{}", differences.join("\n"));
}

/// Tasks and futures live on from cell to cell.
#[test]
fn tasks_are_as_in_jupyter() {
    check("asyncio.ipynb");
}

/// What `IPython.display` creates, updates and clears.
#[test]
fn displays_are_as_in_jupyter() {
    check("display.ipynb");
}

#[test]
fn errors_are_as_in_jupyter() {
    check("errors.ipynb");
}

/// Sympy's formatters, which it registers with IPython.
#[test]
fn formulas_are_as_in_jupyter() {
    check("formulas.ipynb");
}

/// Earlier results, the pretty printer, magics.
#[test]
fn magics_and_results_are_as_in_jupyter() {
    check("magics.ipynb");
}

/// Figures follow a cell's result, cropped.
#[test]
fn plots_are_as_in_jupyter() {
    check("plots.ipynb");
}

#[test]
fn tables_are_as_in_jupyter() {
    check("tables.ipynb");
}
