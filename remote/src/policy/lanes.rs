//! Which lane of the queue a pool asks next. A lane is one priority of one tenant, a consumer of
//! its own on the server.
//!
//! Tenants share the time of the pool's slots by weight: the tenant that has had least for its
//! weight is asked first, and there its highest priority that isn't known to be empty. A job is
//! charged with its tenant's mean when it is asked for, and with its own time when it ends. A tenant
//! that comes back from a rest starts level with the others, so it can't save up for later.
//!
//! A lane that turned out empty is left alone for a while, for ever longer as long as it stays so.
//! When no lane is known to have jobs, requests wait on the server: one for each free slot, on the
//! lanes that were asked longest ago, so that an idle pool hears of a job at once.

use std::time::Duration;

/// The number of priorities of a tenant, of which 0 is the highest.
pub const PRIORITIES: usize = 3;

/// How long a lane that turned out empty is left alone at first, and at most. The longest is the
/// delay for a tenant's first job in a pool that is busy with others.
const EMPTY_AT_FIRST: Duration = Duration::from_millis(250);
const EMPTY_AT_MOST: Duration = Duration::from_secs(4);

/// How long a request of an idle pool waits on the server. Longer, and an idle pool with more lanes
/// than free slots hears of a job later; shorter, and it sends more requests.
const LONG_POLL: Duration = Duration::from_secs(2);

/// What a job is expected to take, in seconds, before any of its tenant has ended.
const UNKNOWN_SECONDS: f64 = 1.0;

/// The weight of the newest job in a tenant's mean.
const NEWEST: f64 = 0.05;

/// A tenant's place in [`Lanes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantIndex(usize);

/// One priority of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// Whose jobs these are.
    pub tenant: TenantIndex,
    /// Their priority, below [`PRIORITIES`]; 0 is the highest.
    pub priority: usize,
}

/// A request for jobs of one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Which jobs.
    pub lane: Lane,
    /// At most how many, at least 1.
    pub count: usize,
    /// How long the request waits on the server for the first of them; zero for those that are
    /// there.
    pub wait: Duration,
}

/// What a pool knows of the lanes that it takes jobs from.
#[derive(Debug, Clone, Default)]
pub struct Lanes {
    tenants: Vec<Tenant>,
    /// The share that the last tenant asked had had: where one that comes back starts.
    level: f64,
}

#[derive(Debug, Clone)]
struct Tenant {
    weight: f64,
    /// Seconds of slots that it has had, expected ones included, for each unit of weight.
    had: f64,
    mean_seconds: f64,
    /// Jobs that were asked for or claimed and haven't ended, and what they were charged.
    held: usize,
    charged_seconds: f64,
    lanes: [State; PRIORITIES],
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    is_asked: bool,
    asked_at: Duration,
    /// For how long it was left alone last, if its last answer was empty.
    empty_for: Option<Duration>,
    empty_until: Duration,
}

impl State {
    fn may_have_jobs(&self, now: Duration) -> bool {
        !self.is_asked && (self.empty_for.is_none() || self.empty_until <= now)
    }
}

impl Lanes {
    /// Adds a tenant of this weight; 0 counts as 1.
    pub fn add(&mut self, weight: u32) -> TenantIndex {
        self.tenants.push(Tenant {
            weight: f64::from(weight.max(1)),
            had: self.level,
            mean_seconds: UNKNOWN_SECONDS,
            held: 0,
            charged_seconds: 0.0,
            lanes: Default::default(),
        });
        TenantIndex(self.tenants.len() - 1)
    }

    /// Returns the next request of a pool that wants `wanted` further jobs, as [`Load::wanted`]
    /// says, and counts it as sent; `None` if it has nothing to ask now. Call it until then, with
    /// what is still wanted after each request, and again when a request is answered, when a job
    /// ends, and at [`Lanes::next_at`].
    ///
    /// [`Load::wanted`]: super::Load::wanted
    pub fn next(&mut self, wanted: usize, now: Duration) -> Option<Ask> {
        if wanted == 0 {
            return None;
        }
        let is_idle = !self.states().any(|(_, state)| state.empty_for.is_none());
        let ask = match self.poorest(now).filter(|_| !is_idle) {
            Some(lane) => {
                self.level = self.level.max(self.tenants[lane.tenant.0].had);
                Ask { lane, count: self.count(lane, wanted, now), wait: Duration::ZERO }
            }
            None if is_idle => {
                let waiting = self.states().filter(|(_, state)| !state.is_asked);
                let (lane, _) = waiting.min_by_key(|(_, state)| state.asked_at)?;
                Ask { lane, count: 1, wait: LONG_POLL }
            }
            None => return None,
        };
        let tenant = &mut self.tenants[ask.lane.tenant.0];
        let state = &mut tenant.lanes[ask.lane.priority];
        (state.is_asked, state.asked_at) = (true, now);
        for _ in 0..ask.count {
            tenant.charge();
        }
        Some(ask)
    }

    /// Returns when a lane that was empty is asked again although nothing else happens; `None` if
    /// all of them have been asked.
    pub fn next_at(&self) -> Option<Duration> {
        let left_alone = self.states().filter(|(_, state)| !state.is_asked);
        left_alone.map(|(_, state)| state.empty_until).min()
    }

    /// Notes that a request is over, with `got` of its jobs delivered.
    pub fn answered(&mut self, ask: Ask, got: usize, now: Duration) {
        let level = self.level;
        let tenant = &mut self.tenants[ask.lane.tenant.0];
        for _ in got..ask.count {
            tenant.settle(0.0);
        }
        if got > 0 && tenant.lanes.iter().all(|state| state.empty_for.is_some()) {
            tenant.had = tenant.had.max(level);
        }
        let state = &mut tenant.lanes[ask.lane.priority];
        state.is_asked = false;
        // A waiting request ends with the first job, so it says nothing about a second.
        let is_empty = if ask.wait.is_zero() { got < ask.count } else { got == 0 };
        state.empty_for = is_empty.then(|| match state.empty_for {
            Some(last) if got == 0 => (2 * last).min(EMPTY_AT_MOST),
            _ => EMPTY_AT_FIRST,
        });
        state.empty_until = now + state.empty_for.unwrap_or_default();
    }

    /// Notes that a delivered job is over, whether it ran or not, after it had a slot for this long.
    pub fn ended(&mut self, tenant: TenantIndex, had_slot: Duration) {
        let tenant = &mut self.tenants[tenant.0];
        let seconds = had_slot.as_secs_f64();
        tenant.settle(seconds);
        tenant.mean_seconds += (seconds - tenant.mean_seconds) * NEWEST;
    }

    /// The lane to ask first among those that may have jobs.
    fn poorest(&self, now: Duration) -> Option<Lane> {
        let first = |(index, tenant): (usize, &Tenant)| {
            let priority = tenant.lanes.iter().position(|state| state.may_have_jobs(now))?;
            Some((tenant.had, Lane { tenant: TenantIndex(index), priority }))
        };
        let lanes = self.tenants.iter().enumerate().filter_map(first);
        lanes.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, lane)| lane)
    }

    /// How many of the wanted jobs are this lane's before another tenant is poorer.
    fn count(&self, lane: Lane, wanted: usize, now: Duration) -> usize {
        let others = self.tenants.iter().enumerate().filter(|(index, tenant)| {
            *index != lane.tenant.0 && tenant.lanes.iter().any(|state| state.may_have_jobs(now))
        });
        let next = others.map(|(_, tenant)| tenant.had).min_by(f64::total_cmp);
        let Some(next) = next else { return wanted };
        let tenant = &self.tenants[lane.tenant.0];
        let ahead = (next - tenant.had) * tenant.weight / tenant.mean_seconds.max(1e-6);
        (ahead as usize + 1).min(wanted)
    }

    fn states(&self) -> impl Iterator<Item = (Lane, &State)> {
        self.tenants.iter().enumerate().flat_map(|(index, tenant)| {
            let lane = move |priority| Lane { tenant: TenantIndex(index), priority };
            tenant.lanes.iter().enumerate().map(move |(priority, state)| (lane(priority), state))
        })
    }
}

impl Tenant {
    fn charge(&mut self) {
        self.held += 1;
        self.charged_seconds += self.mean_seconds;
        self.had += self.mean_seconds / self.weight;
    }

    /// Replaces the charge of one held job by what it had.
    fn settle(&mut self, seconds: f64) {
        let charged = self.charged_seconds / self.held.max(1) as f64;
        self.held = self.held.saturating_sub(1);
        self.charged_seconds = if self.held == 0 { 0.0 } else { self.charged_seconds - charged };
        self.had += (seconds - charged) / self.weight;
    }
}

#[cfg(test)]
mod tests;
