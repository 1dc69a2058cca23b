//! `hatchery kernel`: a Jupyter kernel, and its installation.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use hatchery::error::chain;
use hatchery::record::RecordFolder;
use hatchery::wire::{Problem, ProblemKind, VERSION};
use hatchery::{Builder, Hatchery, Job};
use jupyter::{Connection, InstallLocation, Kernel, KernelSpec};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::args::{
    InstallArguments, KernelArguments, KernelCommand, KernelOptions, kernel_options, typed_options,
};
use crate::exit::{Exit, UsageError};
use crate::pool::start_pool;
use crate::{inputs, signals, terminal};

/// Set by front ends: the process that started this one, and that it should not outlive.
const PARENT_VARIABLE: &str = "JPY_PARENT_PID";

/// How often to look whether that process still runs.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) async fn run(arguments: KernelArguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Some(KernelCommand::Install(arguments)) => install(*arguments).await,
        None => serve(&arguments).await,
    }
}

/// Serves front ends until one of them, a signal or the end of the parent ends the kernel.
async fn serve(arguments: &KernelArguments) -> anyhow::Result<Exit> {
    let KernelArguments { connection_file, options, .. } = arguments;
    // clap requires it.
    let file = connection_file.as_deref().unwrap_or(Path::new(""));
    let unusable = || UsageError(format!("can't use `-f {}`", file.display()));
    let connection = Connection::read(file).with_context(unusable)?;
    if let Some(path) = &options.unix {
        let served = serve_shared(path, file);
        return until_ended(served).await;
    }
    let limits = options.programs.limits();
    let given = given(options)?;
    let builder = builder(options)?;
    // A front end interrupts by a message. Ctrl-C in a terminal means the same.
    let mut interrupts = signals::interrupts(u32::MAX)?;
    // Before the pool starts, so that a front end sees the kernel's heartbeat.
    let kernel = Kernel::bind(&connection).await.with_context(unusable)?;
    let kernel = kernel.with_recordings(recordings(options)?);
    let interrupt = kernel.interrupter();
    let interrupting = async {
        let mut heard = 0;
        loop {
            heard = interrupts.more_than(heard).await;
            interrupt();
        }
    };
    let serving = async {
        let pool = start_pool(builder).await?;
        let served = kernel.serve(pool.clone(), limits, given).await;
        pool.abort().await;
        Ok(served?)
    };
    tokio::select! {
        ended = until_ended(serving) => ended,
        () = interrupting => Ok(Exit::Success),
    }
}

/// Waits until the kernel, a signal or the end of the parent ends this process.
async fn until_ended(serving: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Exit> {
    let mut endings = signals::endings()?;
    tokio::select! {
        served = serving => served.map(|()| Exit::Success),
        ended = endings.first() => Ok(ended),
        () = orphaned() => Ok(Exit::Success),
    }
}

/// Waits until the front end that started this process has ended without ending this one.
async fn orphaned() {
    if std::env::var_os(PARENT_VARIABLE).is_none() {
        return std::future::pending().await;
    }
    let parent = std::os::unix::process::parent_id();
    let mut looks = tokio::time::interval(LOOK);
    while std::os::unix::process::parent_id() == parent {
        looks.tick().await;
    }
}

async fn install(arguments: InstallArguments) -> anyhow::Result<Exit> {
    let InstallArguments { user: _, sys_prefix, prefix, name, display_name, options } = arguments;
    let place = match prefix {
        Some(prefix) => InstallLocation::Prefix(prefix),
        None if sys_prefix => InstallLocation::Environment,
        None => InstallLocation::User,
    };
    // As a kernel would, so that a mistake shows now.
    given(&options)?;
    let program = std::env::current_exe().context("can't find this program's own file")?;
    let program = program.to_string_lossy().into_owned();
    let mut command = vec![program, "kernel".to_owned()];
    command.extend(typed_options());
    let spec = KernelSpec { name, display_name, command };
    let folder = jupyter::install(&spec, &place).map_err(|error| {
        anyhow::Error::from(error).context(UsageError("can't install".to_owned()))
    })?;
    if options.unix.is_none() {
        // Front ends give a kernel less time than the first start on a machine takes.
        start_pool(builder(&options)?).await?.drain().await;
    }
    terminal::note(format_args!("installed the kernel `{}` in {}", spec.name, folder.display()));
    Ok(Exit::Success)
}

/// Returns the folder in which its sessions are recorded.
fn recordings(options: &KernelOptions) -> Result<Option<RecordFolder>, hatchery::Error> {
    options.record.clone().map(RecordFolder::open).transpose()
}

/// Returns a job with the folders that the cells can read.
fn given(options: &KernelOptions) -> anyhow::Result<Job> {
    let job = inputs::add_mounts(Job::default(), &options.folders)?;
    let Some(folder) = &options.beside else { return Ok(job) };
    job.beside(folder).with_context(|| UsageError("can't open the folder of `--beside`".to_owned()))
}

fn builder(options: &KernelOptions) -> anyhow::Result<Builder> {
    // More than one only for sessions with threads, which can't give way to each other.
    options.programs.image.apply(options.programs.builder().workers_between(1..=4))
}

// Kernels in a pool that processes share: `hatchery kernel --unix` asks for one, and `hatchery serve`
// runs it.
//
// The server itself listens where front ends expect the kernel, so cells and outputs take no detour.
// The kernel's own process only holds the connection: when it ends, so does the kernel.

/// The longest answer of a server, in bytes. The greeting lists preloaded modules.
const MOST_BYTES: usize = 1 << 20;

/// Asks a server for a kernel, and waits until the server or the connection ends it.
async fn serve_shared(path: &Path, connection_file: &Path) -> anyhow::Result<()> {
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
        bail!("its answer is invalid");
    }
    let mut header = vec![0; length];
    stream.read_exact(&mut header).await?;
    Ok(serde_json::from_slice(&header)?)
}

/// Serves a kernel in the pool of `hatchery serve`.
pub(in crate::cmd) async fn serve_in(
    pool: Hatchery,
    connection: Value,
    options: Vec<String>,
) -> Result<Value, Problem> {
    let usage = |text: String| Problem::new(ProblemKind::Usage, text);
    let connection = Connection::parse(connection.to_string().as_bytes())
        .map_err(|error| usage(chain(&error).to_string()))?;
    let options = kernel_options(&options).map_err(usage)?;
    let given = given(&options).map_err(|error| usage(format!("{error:#}")))?;
    let failed = |error: jupyter::KernelError| usage(chain(&error).to_string());
    let kernel = Kernel::bind(&connection).await.map_err(failed)?;
    let recordings = recordings(&options).map_err(|error| error.problem())?;
    let kernel = kernel.with_recordings(recordings);
    let limits = options.programs.limits();
    kernel.serve(pool, limits, given).await.map_err(failed)?;
    Ok(Value::Null)
}
