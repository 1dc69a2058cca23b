//! Who calls, and what they may ask for.

use hatchery::{Interface, Job};
use wire::{Field, Intake, Problem, ProblemKind};

/// Who calls, as the way in found out.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose jobs and sessions they are; `None` leaves that to each job.
    tenant: Option<String>,
    intake: Intake,
    interface: Interface,
}

impl Caller {
    /// Returns a caller who could start the pool as well: the user's own process, over its standard
    /// streams or a socket in a folder of the user. Such a caller sets the tenant and the limits of
    /// each job.
    pub fn owner() -> Self {
        // The path would be one of this process, which may run in another folder.
        let intake = Intake::BATCH.without(Field::File);
        Self { tenant: None, intake, interface: Interface::Json }
    }

    /// Returns a caller on behalf of a tenant, who can only lower limits and sees only sessions of
    /// that tenant.
    pub fn of_tenant(tenant: impl Into<String>) -> Self {
        let intake = Intake::BATCH.without(Field::File).without(Field::Tenant).lowering_only();
        Self { tenant: Some(tenant.into()), intake, interface: Interface::Http }
    }

    /// Returns a caller of whom nothing is known but that it is on this machine. It can only lower
    /// limits, and sees what all callers of this kind do.
    pub fn of_this_machine() -> Self {
        Self { interface: Interface::Http, ..Self::owner().lowering_only() }
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

/// The longest name of a session.
const MOST_NAME_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_can_neither_name_another_nor_raise_limits() {
        let caller = Caller::of_tenant("a");
        let job = wire::Job { tenant: Some("b".to_owned()), ..wire::Job::code("1") };
        let refused = caller.job(job).unwrap_err();
        assert_eq!(refused.kind, ProblemKind::Usage);
        assert!(refused.message.contains("`tenant`"), "{}", refused.message);
        assert!(caller.intake().lowers_only() && !Caller::owner().intake().lowers_only());
        assert!(Caller::owner().lowering_only().intake().lowers_only());
    }

    #[test]
    fn nobody_names_a_file_of_the_servers_machine() {
        for caller in [Caller::owner(), Caller::of_tenant("a")] {
            let refused = caller.job(wire::Job::file("/etc/passwd")).unwrap_err();
            assert!(refused.message.contains("`file`"), "{}", refused.message);
        }
    }

    #[test]
    fn sessions_of_tenants_have_names_of_their_own() {
        let names = [Caller::owner(), Caller::of_tenant("a"), Caller::of_tenant("b")]
            .map(|caller| caller.session_name("s").unwrap());
        assert_eq!(names, ["s", "a/s", "b/s"]);
        for invalid in [String::new(), "x".repeat(201), "a\nb".to_owned()] {
            assert!(Caller::owner().session_name(&invalid).is_err());
        }
    }
}
