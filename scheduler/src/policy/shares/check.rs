//! What holds of the shares after every decision. The ids are those of `docs/invariants.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::Shares;

impl Shares {
    /// Says which invariant is broken, if one is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ensure = |holds: bool, text: &str| if holds { Ok(()) } else { Err(text.to_owned()) };
        for tenant in self.tenants.values() {
            ensure(tenant.running <= tenant.limit, "S-1: no more of a tenant run than may")?;
            ensure(
                tenant.eligible.len() <= tenant.queued(),
                "S-9: of a tenant no more could run than wait",
            )?;
        }
        let could_run: usize = self.tenants.values().map(super::Tenant::could_run).sum();
        let waits = self.tenants.values().filter(|tenant| tenant.queued() > 0);
        let weights: u64 = waits.map(|tenant| u64::from(tenant.weight)).sum();
        ensure(
            (could_run, weights) == (self.could_run, self.weights),
            "S-9: what all tenants have is the sum of what each has",
        )?;
        let ready: BTreeMap<_, _> = self
            .tenants
            .iter()
            .filter(|(_, tenant)| tenant.could_run() > 0)
            .filter_map(|(name, tenant)| {
                Some(((tenant.virtual_time, *tenant.eligible.first()?), name.clone()))
            })
            .collect();
        ensure(ready == self.ready, "S-10: the ready tenants are known by their virtual times")?;
        let resting: BTreeSet<_> = self
            .tenants
            .iter()
            .filter(|(_, tenant)| !tenant.has_jobs())
            .map(|(name, tenant)| (tenant.virtual_time, name.clone()))
            .collect();
        ensure(resting == self.resting, "S-10: the resting tenants are those without jobs")?;
        ensure(
            self.resting.len() <= self.remembered(),
            "S-10: few tenants without jobs are remembered that are not ahead, and not too many that are",
        )
    }
}
