//! Two notebooks at once: each runs its code cells in order in its own session. One fails, is
//! corrected, and resumes at the cell that failed; the cells before it don't run again.
//!
//! `cargo run --release --example parallel_notebooks`

use std::error::Error;

use hatchery::{Checkpoint, Hatchery, Job, Session, Verdict};
use serde_json::Value;

const TREND: &str = include_str!("data/trend.ipynb");
const PRODUCTS: &str = include_str!("data/products.ipynb");
const SALES: &str = include_str!("data/sales.csv");

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = Hatchery::builder().workers(2).start().await?;
    let trend = Notebook::open(&pool, "trend", TREND).await?;
    let mut products = Notebook::open(&pool, "products", PRODUCTS).await?;
    let right = products.cells.last().ok_or("the notebook has no cells")?.clone();
    if let Some(last) = products.cells.last_mut() {
        *last = format!("no_such_name\n{right}");
    }

    let (trend, products) = (tokio::spawn(trend.resume()), tokio::spawn(products.resume()));
    let (trend, mut products) = (trend.await??, products.await??);
    assert!(trend.is_over() && !products.is_over());
    println!("products stopped at cell {} of {}", products.done + 1, products.cells.len());

    // Correct the cell, and resume from the state before it.
    products.cells[products.done] = right;
    let products = products.resume().await?;
    assert!(products.is_over());
    assert_eq!(products.shown.matches("Out[2]").count(), 1, "the second cell ran once");
    for notebook in [trend, products] {
        print!("== {} ==\n{}", notebook.session.name(), notebook.shown);
        notebook.session.close();
    }
    pool.drain().await;
    Ok(())
}

/// A notebook and how far it has run.
struct Notebook {
    session: Session,
    cells: Vec<String>,
    /// How many cells have completed.
    done: usize,
    /// The state after them.
    checkpoint: Checkpoint,
    /// The output that a reader sees below the cells.
    shown: String,
}

impl Notebook {
    /// Opens a session with the data in its workspace, where every cell finds it.
    async fn open(pool: &Hatchery, name: &str, file: &str) -> Result<Self, Box<dyn Error>> {
        let session = pool.session(name).await?;
        session.run(Job::code("").input("sales.csv", SALES)?).await?;
        let checkpoint = session.checkpoint().await?;
        Ok(Self { session, cells: code_cells(file)?, done: 0, checkpoint, shown: String::new() })
    }

    fn is_over(&self) -> bool {
        self.done == self.cells.len()
    }

    /// Runs the remaining cells, up to one that fails.
    async fn resume(mut self) -> Result<Self, hatchery::Error> {
        self.session.restore(&self.checkpoint).await?;
        while let Some(cell) = self.cells.get(self.done) {
            let number = self.done + 1;
            let job = Job::code(cell).named(format!("In[{number}]"));
            let outcome = self.session.run(job).await?;
            self.shown.push_str(&outcome.stdout_text());
            match outcome.verdict {
                Verdict::Completed { repr: Some(repr), .. } => {
                    self.shown.push_str(&format!("Out[{number}]: {repr}\n"));
                }
                Verdict::Completed { repr: None, .. } => {}
                Verdict::Raised(exception) => {
                    self.shown.push_str(&exception.traceback);
                    break;
                }
                verdict => {
                    self.shown.push_str(&format!("stopped: {verdict:?}\n"));
                    break;
                }
            }
            self.checkpoint = self.session.checkpoint().await?;
            self.done = number;
        }
        Ok(self)
    }
}

fn code_cells(notebook: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let notebook: Value = serde_json::from_str(notebook)?;
    let cells = notebook["cells"].as_array().ok_or("the notebook has no cells")?;
    let code = cells.iter().filter(|cell| cell["cell_type"] == "code");
    Ok(code.map(|cell| source_of(&cell["source"])).collect())
}

/// Returns a cell's source, which is a string or an array of lines.
fn source_of(source: &Value) -> String {
    match source {
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        source => source.as_str().unwrap_or_default().to_owned(),
    }
}
