//! Kernels in a pool that processes share: what `hatchery kernel --unix` asks of `hatchery serve`, and
//! what the server does for it.
//!
//! The server itself listens where front ends expect the kernel, so cells and outputs take no detour.
//! The kernel's own process only holds the connection: when it ends, so does the kernel.

use std::path::Path;

use anyhow::{Context, bail};
use hatchery::Hatchery;
use hatchery::error::chain;
use hatchery::wire::{Problem, ProblemKind, VERSION};
use jupyter::{Connection, Kernel};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::given;
use crate::args::{kernel_options, typed_options};
use crate::exit::UsageError;

/// The longest answer of a server, in bytes. The greeting lists preloaded modules.
const MOST_BYTES: usize = 1 << 20;

/// Asks a server for a kernel, and waits until the server or the connection ends it.
pub(super) async fn serve(path: &Path, connection_file: &Path) -> anyhow::Result<()> {
    let connection: Value = serde_json::from_slice(&std::fs::read(connection_file)?)?;
    let nobody = || {
        UsageError(format!(
            "no pool is served at `--unix {0}`: start one with `hatchery serve --unix {0}`",
            path.display()
        ))
    };
    let mut stream = UnixStream::connect(path).await.with_context(nobody)?;
    send(&mut stream, &json!({ "type": "hello", "version": VERSION })).await?;
    let message = json!({
        "type": "kernel", "id": 1, "connection": connection, "options": options()?,
    });
    send(&mut stream, &message).await?;
    loop {
        let answer = receive(&mut stream).await.context("the server has ended")?;
        match answer["type"].as_str() {
            Some("done") => return Ok(()),
            Some("refused") => {
                let why = answer["problem"]["message"].as_str().unwrap_or("it doesn't say why");
                bail!(UsageError(format!("the server refuses the kernel: {why}")));
            }
            _ => {}
        }
    }
}

/// Returns the options for the server, which runs in another folder.
fn options() -> anyhow::Result<Vec<String>> {
    let mut options = typed_options();
    if let Some(at) = options.iter().position(|option| option == "--unix") {
        options.drain(at..(at + 2).min(options.len()));
    }
    let here = std::env::current_dir().context("the current folder is unknown")?;
    for option in options.iter_mut().filter(|option| *option == "--beside") {
        *option = format!("--beside={}", here.display());
    }
    Ok(options)
}

async fn send(stream: &mut UnixStream, message: &Value) -> anyhow::Result<()> {
    let header = message.to_string().into_bytes();
    let length = u32::try_from(header.len()).context("the connection file is too long")?;
    stream.write_all(&length.to_le_bytes()).await?;
    stream.write_all(&header).await?;
    Ok(())
}

async fn receive(stream: &mut UnixStream) -> anyhow::Result<Value> {
    let length = stream.read_u32_le().await? as usize;
    if length > MOST_BYTES {
        bail!("it sent what is no answer");
    }
    let mut header = vec![0; length];
    stream.read_exact(&mut header).await?;
    Ok(serde_json::from_slice(&header)?)
}

/// Serves kernels in the pool of `hatchery serve`.
#[derive(Debug)]
pub(in crate::cmd) struct Kernels;

impl serve::Kernels for Kernels {
    fn serve(&self, pool: Hatchery, connection: Value, options: Vec<String>) -> serve::Answering {
        Box::pin(async move {
            let usage = |text: String| Problem::new(ProblemKind::Usage, text);
            let connection = Connection::parse(connection.to_string().as_bytes())
                .map_err(|error| usage(chain(&error).to_string()))?;
            let options = kernel_options(&options).map_err(usage)?;
            let given = given(&options).map_err(|error| usage(format!("{error:#}")))?;
            let failed = |error: jupyter::KernelError| usage(chain(&error).to_string());
            let kernel = Kernel::bind(&connection).await.map_err(failed)?;
            let limits = options.limits.limits();
            kernel.serve(pool, limits, given, std::future::pending()).await.map_err(failed)?;
            Ok(Value::Null)
        })
    }
}
