//! Who calls, and what they may request.

use hatchery::{DEFAULT_TENANT, Interface, Job};
use wire::{Field, Intake, Problem, ProblemKind};

/// The longest name of a tenant.
const MOST_TENANT_BYTES: usize = 100;

/// Who calls, as the way in found out.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose jobs and sessions they are; `None` leaves that to each job.
    tenant: Option<String>,
    /// The digest of the token that the caller sent, if any.
    token: Option<blake3::Hash>,
    intake: Intake,
    interface: Interface,
}

/// Why nobody can call on behalf of a tenant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTenant {
    /// The name, of which this is the beginning, is too long, empty, or has other characters.
    #[error(
        "`{0}` can't be a tenant's name: give 1 to {MOST_TENANT_BYTES} bytes without `/`, \
         blanks and control characters"
    )]
    Name(String),
    /// The name is that of jobs without a tenant.
    #[error(
        "`{DEFAULT_TENANT}` can't be a tenant's name: it stands for jobs without a tenant; choose \
         another"
    )]
    Default,
}

impl Caller {
    /// Returns a caller that owns the pool: the user's own process, over its standard streams or a
    /// socket in the user's folder. Such a caller sets the tenant and the limits of each job.
    pub fn owner() -> Self {
        // The path would be one of this process, which may run in another folder.
        let intake = Intake::BATCH.without(Field::File);
        Self { tenant: None, token: None, intake, interface: Interface::Json }
    }

    /// Returns a caller on behalf of a tenant, who can only lower limits and sees only sessions of
    /// that tenant.
    ///
    /// # Errors
    /// The name is [`DEFAULT_TENANT`], empty, longer than 100 bytes, or has `/`, a blank or a
    /// control character.
    pub fn of_tenant(tenant: impl Into<String>) -> Result<Self, InvalidTenant> {
        let tenant = tenant.into();
        let is_part = |character: char| {
            character != '/' && !character.is_whitespace() && !character.is_control()
        };
        if tenant == DEFAULT_TENANT {
            return Err(InvalidTenant::Default);
        }
        // Names of sessions in the pool begin with the tenant and a slash.
        if tenant.is_empty() || tenant.len() > MOST_TENANT_BYTES || !tenant.chars().all(is_part) {
            return Err(InvalidTenant::Name(tenant.chars().take(100).collect()));
        }
        let intake = Intake::BATCH.without(Field::File).without(Field::Tenant).lowering_only();
        Ok(Self { tenant: Some(tenant), token: None, intake, interface: Interface::Http })
    }

    /// Returns a caller of whom nothing is known but that it is on this machine. It can only lower
    /// limits, and sees what all callers of this kind do.
    pub fn of_this_machine() -> Self {
        Self { interface: Interface::Http, ..Self::owner().lowering_only() }
    }

    /// Returns the same caller, who sent the token with this digest.
    pub(crate) fn with_token(self, digest: blake3::Hash) -> Self {
        Self { token: Some(digest), ..self }
    }

    /// Returns the same caller, who can only lower limits.
    pub fn lowering_only(self) -> Self {
        Self { intake: self.intake.lowering_only(), ..self }
    }

    /// Returns the same caller, who came through this interface.
    pub fn by(self, interface: Interface) -> Self {
        Self { interface, ..self }
    }

    /// Returns the tenant, if the way in decided on it.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Returns what only the same caller has: the digest of its token, or of its tenant's name.
    pub(crate) fn identity(&self) -> blake3::Hash {
        let of_tenant = || blake3::hash(self.tenant.as_deref().unwrap_or_default().as_bytes());
        self.token.unwrap_or_else(of_tenant)
    }

    /// Returns the secret that opens one of the caller's sandboxes of E2B, and nothing else; `None`
    /// for a caller without a token. It doesn't tell the token.
    pub(crate) fn access_to(&self, sandbox: &str) -> Option<blake3::Hash> {
        let key = self.token?;
        Some(blake3::keyed_hash(key.as_bytes(), format!("sandbox {sandbox}").as_bytes()))
    }

    /// Returns which fields of a job it may use.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Makes a job of what the caller sent.
    ///
    /// # Errors
    /// The caller may not use one of the fields, or a value is invalid.
    pub fn job(&self, mut job: wire::Job) -> Result<Job, Problem> {
        // It names the job for the caller alone.
        job.id = None;
        let job = Job::from_wire(job, &self.intake).map_err(|error| error.problem())?;
        Ok(self.own(job))
    }

    /// Makes a job the caller's.
    pub(crate) fn own(&self, job: Job) -> Job {
        let job = job.interface(self.interface);
        match &self.tenant {
            Some(tenant) => job.tenant(tenant.as_str()),
            None => job,
        }
    }

    /// Returns the name that a session of this caller has in the pool. Two tenants can use the same
    /// name for different sessions.
    pub(crate) fn session_name(&self, name: &str) -> Result<String, Problem> {
        if name.is_empty() || name.len() > MOST_NAME_BYTES || name.chars().any(char::is_control) {
            return Err(Problem::new(
                ProblemKind::Usage,
                format!(
                    "a session's name has 1 to {MOST_NAME_BYTES} bytes and no control characters"
                ),
            ));
        }
        Ok(match &self.tenant {
            Some(tenant) => format!("{tenant}/{name}"),
            None => name.to_owned(),
        })
    }
}

impl Caller {
    /// Returns the name by which the caller knows a session with this name in the pool.
    pub(crate) fn visible_name<'a>(&self, name: &'a str) -> &'a str {
        let own = self.tenant().and_then(|tenant| name.strip_prefix(tenant)?.strip_prefix('/'));
        own.unwrap_or(name)
    }
}

/// Returns 128 random bits as text, which nobody can guess.
///
/// # Panics
/// The system has no random numbers.
pub(crate) fn unguessable() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("Linux gives random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The longest name of a session.
const MOST_NAME_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_can_neither_name_another_nor_raise_limits() {
        let caller = Caller::of_tenant("a").unwrap();
        let job = wire::Job { tenant: Some("b".to_owned()), ..wire::Job::code("1") };
        let refused = caller.job(job).unwrap_err();
        assert_eq!(refused.kind, ProblemKind::Usage);
        assert!(refused.message.contains("`tenant`"), "{}", refused.message);
        assert!(caller.intake().lowers_only() && !Caller::owner().intake().lowers_only());
        assert!(Caller::owner().lowering_only().intake().lowers_only());
    }

    #[test]
    fn names_that_mean_something_here_are_no_tenants() {
        assert!(matches!(Caller::of_tenant("default"), Err(InvalidTenant::Default)));
        for name in ["", "a/b", "a b", "a\n", &"a".repeat(101)] {
            assert!(matches!(Caller::of_tenant(name), Err(InvalidTenant::Name(..))), "{name}");
        }
        assert!(Caller::of_tenant("Default").is_ok());
    }

    #[test]
    fn nobody_names_a_file_of_the_servers_machine() {
        for caller in [Caller::owner(), Caller::of_tenant("a").unwrap()] {
            let refused = caller.job(wire::Job::file("/etc/passwd")).unwrap_err();
            assert!(refused.message.contains("`file`"), "{}", refused.message);
        }
    }

    #[test]
    fn sessions_of_tenants_have_names_of_their_own() {
        let callers = ["a", "b"].map(|tenant| Caller::of_tenant(tenant).unwrap());
        let names = [Caller::owner()].into_iter().chain(callers);
        let names: Vec<_> = names.map(|caller| caller.session_name("s").unwrap()).collect();
        assert_eq!(names, ["s", "a/s", "b/s"]);
        for invalid in [String::new(), "x".repeat(201), "a\nb".to_owned()] {
            assert!(Caller::owner().session_name(&invalid).is_err());
        }
    }

    #[test]
    fn ids_differ() {
        let ids = [unguessable(), unguessable()];
        assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 32), "{ids:?}");
    }
}
