//! `hatchery kernel`: a Jupyter kernel, and its installation.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hatchery::{Builder, Hatchery, Job};
use jupyter::{Connection, Kernel, KernelSpec, Place};

use crate::args::{InstallArguments, KernelArguments, KernelCommand, KernelOptions, typed_options};
use crate::exit::{Exit, UsageError};
use crate::pool::start_pool;
use crate::{inputs, progress, signals, terminal};

pub(super) mod shared;

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
        let served = shared::serve(path, file);
        return until_ended(served).await;
    }
    let limits = options.limits.limits();
    let given = given(options)?;
    let builder = builder(options)?;
    // A front end interrupts by a message. Ctrl-C in a terminal means the same.
    let mut interrupts = signals::interrupts(u32::MAX)?;
    // Before the pool starts, so that a front end sees the kernel's heartbeat.
    let kernel = Kernel::bind(&connection).await.with_context(unusable)?;
    let interrupter = kernel.interrupter();
    let interrupting = async {
        let mut heard = 0;
        loop {
            heard = interrupts.more_than(heard).await;
            interrupter.interrupt();
        }
    };
    let serving = async {
        let pool = start_pool(builder).await?;
        let served = kernel.serve(pool.clone(), limits, given, std::future::pending()).await;
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
        Some(prefix) => Place::Prefix(prefix),
        None if sys_prefix => Place::Environment,
        None => Place::User,
    };
    // As a kernel would, so that a mistake shows now.
    given(&options)?;
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let program = program.to_string_lossy().into_owned();
    let mut command = vec![program, "kernel".to_owned()];
    command.extend(typed_options());
    let spec = KernelSpec::new(name, display_name, command);
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

/// Returns a job with the folders that the cells can read.
fn given(options: &KernelOptions) -> anyhow::Result<Job> {
    let job = inputs::add_mounts(Job::default(), &options.mount)?;
    let Some(folder) = &options.beside else { return Ok(job) };
    job.beside(folder).with_context(|| UsageError("can't open the folder of `--beside`".to_owned()))
}

fn builder(options: &KernelOptions) -> anyhow::Result<Builder> {
    let builder = Hatchery::builder().limits(options.limits.limits()).progress(progress::sink());
    // More than one only for sessions with threads, which can't give way to each other.
    let builder = builder.workers_between(1..=4);
    options.image.apply(builder)
}
