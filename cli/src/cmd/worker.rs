//! `hatchery worker`: a pool that takes its jobs from a queue on a NATS server.

use anyhow::Context;
use cluster::{Connection, Images, PoolName, Worker, WorkerConfig};
use hatchery::error::counted;
use hatchery::{Builder, Hatchery, Interface};

use super::image::cache_dir;
use super::nats;
use crate::args::WorkerArguments;
use crate::exit::{Exit, UsageError};
use crate::pool::{start_metrics, start_pool, weighted};
use crate::{signals, terminal};

/// Ctrl-C this often ends the process at once.
const LAST_INTERRUPT: u32 = 2;

/// Runs jobs until a signal comes.
pub(crate) async fn run(arguments: WorkerArguments) -> anyhow::Result<Exit> {
    let mut interrupts = signals::interrupts(LAST_INTERRUPT)?;
    let mut endings = signals::endings()?;
    let (connection, name) =
        nats::connection(&arguments.nats.nats, &arguments.nats.access, "worker")?;
    let mut monitor = start_metrics(arguments.metrics.as_deref(), Some(name.as_str())).await?;
    let starting = async {
        let pool = start(&arguments, &connection, &name).await?;
        let config = config(&arguments);
        let worker = Worker::connect(&connection, name.clone(), pool.clone(), config).await;
        Ok::<_, anyhow::Error>((pool, worker.map_err(nats::explained)?))
    };
    let (pool, worker) = tokio::select! {
        started = starting => started?,
        exit = interrupts.first() => return Ok(exit),
        exit = endings.first() => return Ok(exit),
    };
    if let Some(monitor) = &mut monitor {
        monitor.show(&pool);
    }
    terminal::note(format_args!("taking jobs of the pool `{name}`"));
    let mut exit = Exit::Success;
    let stop = async {
        exit = tokio::select! {
            exit = interrupts.first() => exit,
            exit = endings.first() => exit,
        };
        terminal::note("taking no more jobs");
    };
    let tally = worker.run(stop).await;
    pool.abort().await;
    terminal::note(format_args!(
        "{} done, {} given back, {}, {} refused",
        tally.done,
        tally.given_back,
        counted(tally.dead_letters, "dead letter"),
        tally.refused
    ));
    Ok(exit)
}

/// Starts the pool, with the image that all workers of this pool have.
async fn start(
    arguments: &WorkerArguments,
    connection: &Connection,
    name: &PoolName,
) -> anyhow::Result<Hatchery> {
    let published =
        arguments.publish_image.then(|| arguments.programs.image.source()).transpose()?;
    let images = Images::connect(connection, name.clone()).await.map_err(nats::explained)?;
    let folder = tempfile::tempdir().context("can't make a folder for the image's packages")?;
    let cache = cache_dir();
    let fetched = match published {
        Some(_) => None,
        None => images.fetch(folder.path(), cache.as_deref()).await.map_err(nats::explained)?,
    };
    let mut builder = builder(arguments)?;
    if let Some(image) = fetched.as_ref().filter(|_| arguments.programs.image.is_plain()) {
        terminal::note(format_args!("starting from the pool's image {}", image.key()));
        builder = image.give(builder);
    }
    let pool = start_pool(builder).await?;
    if let Some(image) = &fetched {
        image.check(pool.image()).map_err(nats::explained)?;
    }
    if let Some(source) = published {
        let usage = || UsageError("can't `--publish-image`".to_owned());
        let image = pool.image().context("this pool has no image").with_context(usage)?;
        let settings = nats::settings(&arguments.nats);
        images.publish(&source, image, &settings).await.map_err(nats::explained)?;
        terminal::note(format_args!("published the image {} as the pool's", image.key));
    }
    Ok(pool)
}

fn config(arguments: &WorkerArguments) -> WorkerConfig {
    let mut config = WorkerConfig::new(arguments.size.workers.most());
    if let Some(name) = &arguments.name {
        config.name.clone_from(name);
    }
    config.trusts_jobs = arguments.trust_jobs;
    config.drain_time = arguments.drain_time;
    config.weights = arguments.tenant.iter().cloned().collect();
    config.most_claimed = arguments.tenant_limit.iter().cloned().collect();
    config.settings = nats::settings(&arguments.nats);
    config
}

fn builder(arguments: &WorkerArguments) -> anyhow::Result<Builder> {
    let programs = &arguments.programs;
    let builder = programs.image.apply_to_all(programs.builder())?.interface(Interface::Cluster);
    Ok(weighted(arguments.size.set(builder), &arguments.tenant)?)
}
