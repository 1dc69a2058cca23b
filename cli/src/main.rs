//! The command line: parse, run, and the one place where results become exit codes.

use std::process::ExitCode;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::args::{Arguments, Command, NotebookCommand, ToolCommand};
use crate::exit::Exit;
use crate::settings::Settings;

mod args;
mod cmd;
mod displays;
mod exit;
mod follow;
mod inputs;
mod output;
mod pool;
mod progress;
mod settings;
mod signals;
mod stdout;
mod terminal;

fn main() -> ExitCode {
    hatchery::be_helper();
    confine::reuse_large_blocks();
    let (arguments, settings) = args::parse();
    if let Command::Run(_) = &arguments.command {
        // One program, and few threads that would wait for each other.
        confine::use_one_heap();
    }
    terminal::set_verbosity(arguments.quiet, arguments.verbose > 0);
    start_log(&arguments);
    match block_on(arguments.command, settings) {
        Ok(exit) => exit.into(),
        Err(error) => {
            let exit = Exit::of_error(&error);
            if exit != Exit::BrokenPipe {
                terminal::error(format_args!("{error:#}"));
            }
            exit.into()
        }
    }
}

fn block_on(command: Command, settings: Option<Settings>) -> anyhow::Result<Exit> {
    if command.prints_results() {
        stdout::check()?;
    }
    match &command {
        Command::Completions { shell } => return cmd::shell::completions(*shell),
        Command::Man { out } => return cmd::shell::man(out.as_deref()),
        Command::Config => return cmd::shell::config(settings.as_ref()),
        _ => {}
    }
    // Everything below needs threads and can't do without them.
    pool::check_threads()?;
    // Interpreters have threads of their own. What is left keeps one thread busy; with a second one,
    // both spend their time on waking each other.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(run(command));
    // A thread that reads standard input can't be interrupted; the process doesn't wait for it.
    runtime.shutdown_background();
    result
}

/// Runs a command that has a task for each line on the thread of its tasks: each would otherwise wake
/// one thread from the other.
async fn beside_its_tasks(
    command: impl Future<Output = anyhow::Result<Exit>> + Send + 'static,
) -> anyhow::Result<Exit> {
    match tokio::spawn(command).await {
        Ok(ended) => ended,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Run(arguments) => cmd::run::run(*arguments).await,
        Command::Batch(arguments) => beside_its_tasks(cmd::batch::run(*arguments)).await,
        Command::BatchMerge(arguments) => cmd::batch::merge::merge(arguments).await,
        Command::Serve(arguments) => cmd::serve::run(*arguments).await,
        Command::Worker(arguments) => cmd::worker::run(*arguments).await,
        Command::Submit(arguments) => beside_its_tasks(cmd::batch::submit(*arguments)).await,
        Command::Top(arguments) => cmd::top::run(arguments).await,
        Command::Replay(arguments) => cmd::replay::run(*arguments).await,
        Command::Repl(arguments) => cmd::repl::run(*arguments).await,
        Command::Notebook(NotebookCommand::Run(arguments)) => cmd::notebook::run(*arguments).await,
        Command::Kernel(arguments) => cmd::kernel::run(*arguments).await,
        Command::Notebook(NotebookCommand::Parameters(arguments)) => {
            cmd::notebook::tasks::list(*arguments).await
        }
        Command::Grade(arguments) => cmd::grade::run(*arguments).await,
        Command::Image(command) => cmd::image::run(command).await,
        Command::Tool(ToolCommand::Schema { result, job }) => cmd::tool::schema(result, job),
        Command::Tool(ToolCommand::Run(arguments)) => cmd::tool::run(*arguments).await,
        Command::Mcp(arguments) => cmd::mcp::run(*arguments).await,
        Command::Packages(arguments) => cmd::image::run_packages(arguments).await,
        Command::Cache(command) => cmd::cache::run(command),
        Command::Bench { quick, json } => cmd::bench::run(quick, json).await,
        Command::Python(command) => cmd::python::python(command).await,
        // They need no threads, and have run.
        Command::Completions { .. } | Command::Man { .. } | Command::Config => Ok(Exit::Success),
    }
}

/// The crates that count as Hatchery's own in the log.
const OWN_CRATES: [&str; 8] =
    ["hatchery", "scheduler", "pool", "engine", "process", "serve", "jupyter", "cluster"];

/// Starts the log on standard error, filtered by `RUST_LOG`, else by the options. Without either, it
/// has Hatchery's own warnings: what libraries log isn't written for users.
fn start_log(arguments: &Arguments) {
    let (level, own_level) = match (arguments.quiet, arguments.verbose) {
        (true, _) => ("off", "error"),
        (false, 0) => ("off", "warn"),
        (false, 1) => ("warn", "info"),
        (false, _) => ("info", "debug"),
    };
    let from_environment = EnvFilter::try_from_default_env().ok();
    // Spans report their duration when they close.
    let logs_spans = arguments.verbose > 0 || from_environment.is_some();
    let spans = if logs_spans { FmtSpan::CLOSE } else { FmtSpan::NONE };
    let own = OWN_CRATES.map(|name| format!(",{name}={own_level}")).concat();
    let filter = from_environment.unwrap_or_else(|| EnvFilter::new(format!("{level}{own}")));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_span_events(spans);
    if logs_spans {
        log.with_ansi(terminal::has_colors()).with_writer(|| terminal::AboveBars).init();
    } else {
        let log = log.without_time().with_level(false).with_target(false).with_ansi(false);
        log.with_writer(|| terminal::Warnings).init();
    }
}
