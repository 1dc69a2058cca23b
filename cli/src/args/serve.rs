//! Arguments of `hatchery serve`.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::Args;
use hatchery::{SessionsConfig, TenantConfig};

use super::groups::{HostFolders, PoolSize};
use super::limits::{ProgramArguments, parse_duration, parse_size, parse_time, whole};
use super::nats::AccessArguments;

/// More descriptors than a process gets by default.
const MOST_CONNECTIONS: usize = 1 << 20;

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("ways").required(true).multiple(true))]
pub(crate) struct ServeArguments {
    /// Serve the process that started this one, in frames over standard input and output. The pool
    /// ends when that process closes the input.
    #[arg(long, group = "ways")]
    pub(crate) stdio: bool,

    /// Listen at this Unix socket, for frames from processes of the same user.
    #[arg(long, value_name = "PATH", group = "ways")]
    pub(crate) unix: Option<PathBuf>,

    /// Serve HTTP at this address, such as 127.0.0.1:8000. Port 0 picks a free port. Also serves
    /// agents at `/mcp`, and clients of SandboxFusion, E2B and Piston. Can be repeated.
    #[arg(long, value_name = "ADDR", group = "ways")]
    pub(crate) http: Vec<String>,

    /// Record each session in a new file in this folder, for `hatchery replay`. Programs then see a clock
    /// that begins now and advances only while they run.
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,

    /// Read the tokens that HTTP requests need. Each line has a token, a space and its tenant; an
    /// administrator's has only the token. Without this option, only this machine is served.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) token_file: Option<PathBuf>,

    /// Serve every HTTP client without a token, also from other machines. Only for a private network:
    /// each client can run programs, and read and change the sessions and sandboxes of all others.
    #[arg(long, requires = "http", conflicts_with = "token_file")]
    pub(crate) trust_network: bool,

    /// A further name by which HTTP clients may call this server, such as that of a proxy. Can be
    /// repeated.
    #[arg(long, value_name = "NAME", requires = "http")]
    pub(crate) host_name: Vec<String>,

    /// The origin of a web page whose scripts may call this server, such as
    /// `https://grafana.example`. Can be repeated.
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub(crate) origin: Vec<String>,

    /// Maximum number of HTTP connections. A further one replaces the longest idle one, and waits
    /// if none is idle. Default: 1024.
    #[arg(long, value_name = "N", requires = "http", value_parser = whole(1..=MOST_CONNECTIONS))]
    pub(crate) connections: Option<usize>,

    #[command(flatten)]
    pub(crate) size: PoolSize,

    /// How long jobs may take to end after SIGTERM, SIGHUP or Ctrl-C; then they are cancelled. A
    /// second Ctrl-C cancels them at once.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub(crate) drain_time: Duration,

    /// Also show the pool of workers with a queue on this NATS server, on the page and at
    /// `/v1/cluster`.
    #[arg(long, value_name = "URL", requires = "http")]
    pub(crate) nats: Option<String>,

    #[command(flatten)]
    pub(crate) folders: HostFolders,

    #[command(flatten)]
    pub(crate) access: AccessArguments,

    #[command(flatten)]
    pub(crate) sessions: SessionArguments,

    #[command(flatten)]
    pub(crate) programs: ProgramArguments,
}

/// What becomes of sessions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sessions")]
pub(crate) struct SessionArguments {
    /// Number of sessions that may be open. Default: 10000.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    sessions: Option<usize>,

    /// Number of sessions in memory; the longest idle ones beyond that go to disk. Default: 2000.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    sessions_in_memory: Option<usize>,

    /// Size of the sessions on disk, compressed. Default: 8GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    sessions_on_disk: Option<ByteSize>,

    /// Close a session that has been idle for this time. Default: never.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    close_sessions_after: Option<Duration>,

    /// Number of sessions of a tenant that may be open, forks included. Default: no bound.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    tenant_sessions: Option<usize>,

    /// Size of the states of a tenant's sessions from which no more are opened. Default: no bound.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    tenant_session_bytes: Option<ByteSize>,

    /// Number of forks between a session and one that isn't a fork. Default: 1000.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    fork_depth: Option<usize>,
}

impl SessionArguments {
    pub(crate) fn config(&self) -> SessionsConfig {
        let default = SessionsConfig::default();
        SessionsConfig {
            open: self.sessions.unwrap_or(default.open),
            in_memory: self.sessions_in_memory.unwrap_or(default.in_memory),
            disk_bytes: self.sessions_on_disk.map_or(default.disk_bytes, |size| size.as_u64()),
            close_after: self.close_sessions_after,
            depth: self.fork_depth.unwrap_or(default.depth),
            ..default
        }
    }

    /// Returns what each tenant may have.
    pub(crate) fn of_tenant(&self) -> TenantConfig {
        let default = TenantConfig::default();
        TenantConfig {
            sessions: self.tenant_sessions.unwrap_or(default.sessions),
            session_bytes: self
                .tenant_session_bytes
                .map_or(default.session_bytes, |size| size.as_u64()),
            ..default
        }
    }
}
