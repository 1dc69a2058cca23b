//! What a pool or a job may reach, and with which secrets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use tokio_rustls::rustls;

use crate::address::{Resolver, SystemResolver};
use crate::limits::EgressLimits;
use crate::rule::{Rule, Rules};
use crate::secret::{InvalidSecret, Secret, SecretSource};
use crate::upstream::{Connector, tls_config};

/// What a file says about the network, such as one in TOML:
///
/// ```toml
/// allow = ["GET,POST https://api.example.com/v1/*"]
/// secrets = ["API_KEY=env:EXAMPLE_KEY@https://api.example.com"]
/// roots = ["ca.pem"]
///
/// [limits]
/// requests = 100
///
/// [tenants]
/// ada = ["GET https://api.example.com/v1/*"]
/// "*" = []
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct EgressFile {
    /// Rules.
    pub allow: Vec<Rule>,
    /// Secrets.
    pub secrets: Vec<SecretSource>,
    /// Files in PEM with certificates to trust besides those of the system.
    pub roots: Vec<PathBuf>,
    /// Limits.
    pub limits: EgressLimits,
    /// Rules of tenants, as in [`Egress::with_tenant`].
    pub tenants: BTreeMap<String, Vec<Rule>>,
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// A secret.
    #[error(transparent)]
    Secret(#[from] InvalidSecret),
    /// Two secrets have one name.
    #[error("two secrets are called `{0}`: give each its own name")]
    Twice(String),
    /// Certificates.
    #[error("the certificates in `{origin}` can't be used: {problem}; give them in PEM")]
    Roots {
        /// The file, or the parameter.
        origin: String,
        /// What is wrong.
        problem: String,
    },
    /// TLS can't be set up.
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
    /// The system has no random numbers.
    #[error("the system has no random numbers for placeholders")]
    Random(#[from] getrandom::Error),
}

/// What a pool may reach. It is made once, since it reads the system's certificates.
#[derive(Debug)]
pub struct Egress {
    pub(crate) rules: Rules,
    /// With their placeholders.
    pub(crate) secrets: Vec<(Arc<Secret>, String)>,
    pub(crate) limits: EgressLimits,
    pub(crate) connector: Connector,
    /// What jobs of these tenants may reach.
    tenants: BTreeMap<String, Arc<Self>>,
}

/// Stands for the tenants that have no rules of their own.
const OTHER_TENANTS: &str = "*";

impl EgressFile {
    /// Reads the secrets and the certificates that it names.
    ///
    /// # Errors
    /// A secret or a certificate can't be read, or two secrets have one name.
    pub fn load(&self) -> Result<Egress, EgressError> {
        let secrets = self.secrets.iter().map(SecretSource::load).collect::<Result<_, _>>()?;
        let mut roots = Vec::new();
        for path in &self.roots {
            let invalid =
                |problem| EgressError::Roots { origin: path.display().to_string(), problem };
            let text = std::fs::read(path).map_err(|error| invalid(error.to_string()))?;
            roots.extend(certificates(&text).map_err(invalid)?);
        }
        let (allow, limits) = (self.allow.clone(), self.limits.clone());
        let egress = Egress::of(allow, secrets, limits, roots, Arc::new(SystemResolver))?;
        let tenants = self.tenants.iter();
        Ok(tenants.fold(egress, |egress, (name, allow)| egress.with_tenant(name, allow.clone())))
    }
}

/// Reads certificates in PEM, of which there must be some.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if read.is_empty() => Err("it has none".to_owned()),
        read => read.map_err(|error| error.to_string()),
    }
}

impl Egress {
    /// Allows these requests. The certificates in `roots`, a text in PEM, are trusted besides the
    /// system's; it may be empty.
    ///
    /// # Errors
    /// Two secrets have one name, or the certificates can't be used.
    pub fn new(
        allow: Vec<Rule>,
        secrets: Vec<Secret>,
        limits: EgressLimits,
        roots: &[u8],
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, EgressError> {
        let roots = match roots {
            [] => Vec::new(),
            roots => certificates(roots)
                .map_err(|problem| EgressError::Roots { origin: "roots".to_owned(), problem })?,
        };
        Self::of(allow, secrets, limits, roots, resolver)
    }

    fn of(
        allow: Vec<Rule>,
        secrets: Vec<Secret>,
        limits: EgressLimits,
        roots: Vec<CertificateDer<'static>>,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, EgressError> {
        let mut names: Vec<&str> = secrets.iter().map(Secret::name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(EgressError::Twice(twice[0].to_owned()));
        }
        let mut store = RootCertStore::empty();
        // Certificates of the system that can't be read are left out, as other programs do.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for root in roots {
            store.add(root)?;
        }
        let connector = Connector {
            resolver,
            tls: tls_config(store)?,
            connect_time: limits.connect_time,
            head_bytes: limits.head_bytes,
        };
        let with_placeholder = |secret: Secret| {
            let placeholder = secret.placeholder()?;
            Ok((Arc::new(secret), placeholder))
        };
        let secrets =
            secrets.into_iter().map(with_placeholder).collect::<Result<_, EgressError>>()?;
        Ok(Self { rules: Rules::new(allow), secrets, limits, connector, tenants: BTreeMap::new() })
    }

    /// Gives a tenant rules of its own: its jobs, in sessions and outside of them, may make only
    /// requests that both these and the pool's rules allow. The name `*` stands for all tenants
    /// without rules of their own. Default: tenants may make all requests that the pool allows.
    #[must_use]
    pub fn with_tenant(mut self, name: impl Into<String>, allow: Vec<Rule>) -> Self {
        let own = Arc::new(self.restricted(allow));
        self.tenants.insert(name.into(), own);
        self
    }

    /// Returns what jobs of a tenant may reach.
    pub fn of_tenant<'a>(self: &'a Arc<Self>, name: &str) -> &'a Arc<Self> {
        let own = self.tenants.get(name).or_else(|| self.tenants.get(OTHER_TENANTS));
        own.unwrap_or(self)
    }

    /// Returns the names of the secrets with their placeholders.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = (&str, &str)> {
        self.secrets.iter().map(|(secret, placeholder)| (secret.name(), &**placeholder))
    }

    /// Returns what a job with these rules may reach: only what both allow.
    pub fn restricted(&self, allow: Vec<Rule>) -> Self {
        let rules = self.rules.restricted(allow);
        let (secrets, limits) = (self.secrets.clone(), self.limits.clone());
        let (connector, tenants) = (self.connector.clone(), BTreeMap::new());
        Self { rules, secrets, limits, connector, tenants }
    }
}
