//! Arguments of `hatchery worker`, `submit`, `top --nats` and `serve --nats`: the server, the
//! queue, and the credentials.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::batch::{ProgressForm, parse_tenant};
use super::groups::PoolSize;
use super::limits::{ProgramArguments, parse_duration, whole};

/// Which pool of a server, and how to be let in.
#[derive(Debug, Args)]
pub(crate) struct AccessArguments {
    /// The name of the pool: workers of one name share its queue.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) pool: String,

    /// Present the credentials in this file, as `nsc` writes them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nats_token_file", "nats_nkey_file"])]
    pub(crate) nats_creds: Option<PathBuf>,

    /// Present the token in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "nats_nkey_file")]
    pub(crate) nats_token_file: Option<PathBuf>,

    /// Sign with the seed of an NKey in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_nkey_file: Option<PathBuf>,

    /// Trust servers whose certificates the authorities in this PEM file have signed, and ask for
    /// TLS.
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_tls_ca: Option<PathBuf>,

    /// Present the certificate in this PEM file.
    #[arg(long, value_name = "FILE", requires = "nats_tls_key")]
    pub(crate) nats_tls_cert: Option<PathBuf>,

    /// The key of that certificate, a PEM file.
    #[arg(long, value_name = "FILE", requires = "nats_tls_cert")]
    pub(crate) nats_tls_key: Option<PathBuf>,
}

/// Which server, and how it keeps a pool.
#[derive(Debug, Args)]
pub(crate) struct NatsArguments {
    /// The NATS server with JetStream that has the queue, such as nats://127.0.0.1:4222; several of
    /// one cluster are separated by commas. `tls://` asks for TLS.
    #[arg(long, value_name = "URL")]
    pub(crate) nats: String,

    #[command(flatten)]
    pub(crate) access: AccessArguments,

    /// Number of servers of a cluster that keep the queue and the results, from 1 to 5. The pool's
    /// first worker or submitter sets this and the next three options.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1_u8..=5))]
    pub(crate) replicas: u8,

    /// Time without a heartbeat of its worker after which a job goes to another worker.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    pub(crate) claim_time: Duration,

    /// Maximum number of jobs in the queue on the server; submitters hold further ones back.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = whole::<u64>(..))]
    pub(crate) server_queue: u64,

    /// How long the server keeps results and dead letters.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "7d")]
    pub(crate) keep: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    pub(crate) nats: NatsArguments,

    #[command(flatten)]
    pub(crate) size: PoolSize,

    /// Set a tenant's weight: tenants share the CPU time in proportion to their weights. The
    /// default weight is 1. Can be repeated.
    #[arg(long, value_name = "NAME=WEIGHT", value_parser = parse_tenant)]
    pub(crate) tenant: Vec<(String, u32)>,

    /// Limit the jobs of a tenant that run at once in the whole cluster, to at most 10000. Give every
    /// worker the same limits. Can be repeated.
    #[arg(long, value_name = "NAME=JOBS", value_parser = parse_tenant_limit)]
    pub(crate) tenant_limit: Vec<(String, u32)>,

    /// Publish the image of the options below as the pool's. Workers without such options fetch it
    /// with its packages, and start from it. Packages must be wheels (`pip download` them).
    #[arg(long, conflicts_with_all = ["packages", "requirements"])]
    pub(crate) publish_image: bool,

    /// Let the limits of jobs replace those of this pool, as in a batch. By default, the lower
    /// limit applies.
    #[arg(long)]
    pub(crate) trust_jobs: bool,

    /// The name of this worker in events and lists. Default: the machine's name and the process's
    /// id.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// How long jobs may take to end after SIGTERM, SIGHUP or Ctrl-C; then they return to the
    /// queue. A second Ctrl-C ends at once.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub(crate) drain_time: Duration,

    /// Serve Prometheus metrics, the pool's status and its decisions at this address, such as
    /// 127.0.0.1:9184. Port 0 picks a free port. Anyone who can reach the address can read them.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,

    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

#[derive(Debug, Args)]
pub(crate) struct SubmitArguments {
    /// The jobs, one JSON object per line, as for `hatchery batch`. Only the text of a `file` is sent,
    /// not its folder. `-` reads standard input.
    #[arg(value_name = "IN.ndjson")]
    pub(crate) jobs: PathBuf,

    #[command(flatten)]
    pub(crate) nats: NatsArguments,

    /// Write results to this file. Overwrites the file, unless `--resume` is given.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,

    /// Resume from the results in the file of `--out`, if it exists: lines that have a result there
    /// are skipped. A submission that hasn't ended is continued: its jobs aren't run again.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Write results in the order of the lines, not as jobs end. Results behind a slow job wait in
    /// memory.
    #[arg(long)]
    pub(crate) ordered: bool,

    /// Maximum number of jobs in the queue or running.
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = whole(1_u32..=1_000_000))]
    pub(crate) ahead: u32,

    /// Include the contents of files that programs created or changed in the results, in base64.
    #[arg(long)]
    pub(crate) file_contents: bool,

    /// How to show progress on standard error.
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) progress: ProgressForm,
}

/// The highest limit of a tenant.
const MOST_JOBS: u32 = 10_000;

fn parse_tenant_limit(text: &str) -> Result<(String, u32), String> {
    let limit = parse_tenant(text).ok().filter(|(_, jobs)| *jobs <= MOST_JOBS);
    limit.ok_or_else(|| format!("write NAME=JOBS, with a whole number from 1 to {MOST_JOBS}"))
}
