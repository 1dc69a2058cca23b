//! The command line: parse, run, and the one place where results become exit codes.

use std::process::ExitCode;

use crate::args::{Arguments, Command, NotebookCommand, PythonCommand, ToolCommand};
use crate::exit::Exit;

mod args;
mod cmd;
mod displays;
mod escapes;
mod exit;
mod follow;
mod inputs;
mod monitor;
mod output;
mod progress;
mod replace;
mod signals;
mod terminal;

fn main() -> ExitCode {
    let arguments = args::parse();
    start_log();
    match block_on(arguments) {
        Ok(exit) => exit.into(),
        Err(error) => {
            let exit = Exit::of_error(&error);
            if exit != Exit::BrokenPipe {
                terminal::note(format_args!("{error:#}"));
            }
            exit.into()
        }
    }
}

fn block_on(arguments: Arguments) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run(arguments));
    // A thread that reads standard input can't be interrupted; the process doesn't wait for it.
    runtime.shutdown_background();
    result
}

async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Run(arguments) => cmd::run::run(*arguments).await,
        Command::Batch(arguments) => cmd::batch::run(*arguments).await,
        Command::Top(arguments) => cmd::top::run(arguments).await,
        Command::Repl(arguments) => cmd::repl::run(*arguments).await,
        Command::Notebook { command: NotebookCommand::Run(arguments) } => {
            cmd::notebook::run(*arguments).await
        }
        Command::Image { command } => cmd::image::run(command).await,
        Command::Tool { command: ToolCommand::Schema { result } } => cmd::tool::schema(result),
        Command::Tool { command: ToolCommand::Run(arguments) } => cmd::tool::run(*arguments).await,
        Command::Packages(arguments) => cmd::packages::run(arguments).await,
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
