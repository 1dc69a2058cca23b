//! Two notebooks at once: each runs its code cells in order in a session of its own.
//!
//! `cargo run --release --example parallel_notebooks`

use std::error::Error;

use hatchery::{Hatchery, Job, Session, Verdict};
use serde_json::Value;

const NOTEBOOKS: [(&str, &str); 2] = [
    ("trend", include_str!("data/trend.ipynb")),
    ("products", include_str!("data/products.ipynb")),
];
const SALES: &str = include_str!("data/sales.csv");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = Hatchery::builder().workers(2).start().await?;
    let mut runs = Vec::new();
    for (name, notebook) in NOTEBOOKS {
        let cells = code_cells(notebook)?;
        let session = pool.session(name).await?;
        runs.push(tokio::spawn(async move { run(session, cells).await }));
    }
    for run in runs {
        print!("{}", run.await??);
    }
    pool.drain().await;
    Ok(())
}

/// Runs cells until one fails; returns what a reader would see under each.
async fn run(session: Session, cells: Vec<String>) -> Result<String, hatchery::Error> {
    let mut shown = format!("== {} ==\n", session.name());
    for (number, cell) in (1..).zip(cells) {
        // The first cell finds the data in the workspace, and so do all after it.
        let job = Job::code(cell).named(format!("In[{number}]"));
        let job = if number == 1 { job.input("sales.csv", SALES)? } else { job };
        let outcome = session.run(job).await?;
        shown.push_str(&outcome.stdout_text());
        match outcome.verdict {
            Verdict::Completed { repr: Some(repr), .. } => {
                shown.push_str(&format!("Out[{number}]: {repr}\n"));
            }
            Verdict::Completed { repr: None, .. } => {}
            Verdict::Raised(exception) => {
                shown.push_str(&exception.traceback);
                break;
            }
            verdict => {
                shown.push_str(&format!("stopped: {verdict:?}\n"));
                break;
            }
        }
    }
    session.close();
    Ok(shown)
}

fn code_cells(notebook: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let notebook: Value = serde_json::from_str(notebook)?;
    let cells = notebook["cells"].as_array().ok_or("a notebook has cells")?;
    let code = cells.iter().filter(|cell| cell["cell_type"] == "code");
    Ok(code.map(|cell| source_of(&cell["source"])).collect())
}

/// A cell's source is a string, or an array of lines.
fn source_of(source: &Value) -> String {
    match source {
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        source => source.as_str().unwrap_or_default().to_owned(),
    }
}
