//! The command line: parse, run, and the one place where results become exit codes.

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Arguments, Command, PythonCommand};
use crate::exit::Exit;

mod args;
mod cmd;
mod exit;
mod inputs;
mod progress;
mod signals;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log();
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(arguments)));
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("hatchery: {error:#}");
            Exit::of_error(&error).into()
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Run(arguments) => cmd::run::run(arguments).await,
        Command::Batch(arguments) => cmd::batch::run(arguments).await,
        Command::Python { command: PythonCommand::Install } => cmd::python::install().await,
        Command::Python { command: PythonCommand::Info } => cmd::python::info(),
    }
}

/// Writes what `RUST_LOG` asks for to standard error; warnings without it.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
