//! Checks what holds after every decision. The ids are those of `docs/invariants.md`.

use super::*;

impl FairQueue {
    /// Returns the first broken invariant as an error.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ensure = |holds: bool, text: &str| if holds { Ok(()) } else { Err(text.to_owned()) };
        for tenant in self.tenants.values() {
            ensure(tenant.running <= tenant.limit, "S-1: too many jobs of a tenant run")?;
            ensure(
                tenant.eligible.len() <= tenant.queued(),
                "S-9: more jobs of a tenant could run than are queued",
            )?;
        }
        let could_run: usize = self.tenants.values().map(Tenant::could_run).sum();
        let waits = self.tenants.values().filter(|tenant| tenant.queued() > 0);
        let weights: u64 = waits.map(|tenant| u64::from(tenant.weight)).sum();
        ensure(
            (could_run, weights) == (self.could_run, self.weights),
            "S-9: a total isn't the sum over the tenants",
        )?;
        let ready: BTreeMap<_, _> = self
            .tenants
            .iter()
            .filter(|(_, tenant)| tenant.could_run() > 0)
            .filter_map(|(name, tenant)| {
                Some(((tenant.virtual_time, *tenant.eligible.first()?), name.clone()))
            })
            .collect();
        ensure(ready == self.ready, "S-10: the ready tenants aren't sorted by virtual time")?;
        let resting: BTreeSet<_> = self
            .tenants
            .iter()
            .filter(|(_, tenant)| !tenant.has_jobs())
            .map(|(name, tenant)| (tenant.virtual_time, name.clone()))
            .collect();
        ensure(resting == self.resting, "S-10: the resting tenants aren't those without jobs")?;
        ensure(
            self.resting.len() <= self.remembered(),
            "S-10: too many tenants without jobs are remembered",
        )
    }
}
