//! Arguments about the HTTP requests of programs.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use hatchery::Builder;
use hatchery::egress::{EgressFile, Rule, SecretSource};

use crate::exit::UsageError;

/// What programs may reach over HTTP, on any build and isolation. Nothing without these options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct EgressArguments {
    /// HTTP requests that programs may make: methods and a URL, such as
    /// `GET,POST https://api.example.com/v1/*`. Can be repeated. Default: none.
    #[arg(long, value_name = "RULE", value_parser = str::parse::<Rule>)]
    pub(crate) allow_http: Vec<Rule>,

    /// A secret that programs use without seeing it: `NAME=env:VARIABLE@https://host` or
    /// `NAME=file:PATH@https://host`. `os.environ["NAME"]` holds a placeholder, which is replaced
    /// in the headers of requests to that host alone. Can be repeated.
    #[arg(long, value_name = "SECRET", value_parser = str::parse::<SecretSource>)]
    pub(crate) secret: Vec<SecretSource>,

    /// A file in PEM with certificates that programs' requests trust besides those of the system.
    /// Can be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) http_root: Vec<PathBuf>,

    /// A TOML file that has the same as lists `allow`, `secrets` and `roots`, limits in `[limits]`,
    /// and rules of single tenants in `[tenants]`.
    #[arg(long, value_name = "FILE")]
    pub(crate) egress: Option<PathBuf>,
}

impl EgressArguments {
    /// Returns whether none of these options is given.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { allow_http, secret, http_root, egress } = self;
        allow_http.is_empty() && secret.is_empty() && http_root.is_empty() && egress.is_none()
    }

    /// Lets programs make these requests. Reads the file, the secrets and the certificates.
    pub(crate) fn apply(&self, builder: Builder) -> anyhow::Result<Builder> {
        if self.is_empty() {
            return Ok(builder);
        }
        let Self { allow_http, secret, http_root, egress } = self;
        let mut file = match egress {
            None => EgressFile::default(),
            Some(path) => {
                let unusable = || UsageError(format!("can't use `{}`", path.display()));
                let text = fs::read_to_string(path).with_context(unusable)?;
                toml::from_str(&text).with_context(unusable)?
            }
        };
        file.allow.extend(allow_http.iter().cloned());
        file.secrets.extend(secret.iter().cloned());
        file.roots.extend(http_root.iter().cloned());
        let loaded = file.load().map_err(|error| UsageError(error.to_string()))?;
        Ok(builder.egress(loaded))
    }
}
