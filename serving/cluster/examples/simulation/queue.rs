//! The server's side of the simulation: lanes of jobs, claims and their limits, and counts of
//! messages.

use std::collections::VecDeque;

/// A job's number, below [`Lane::end`] of its lane.
pub(crate) type Job = u32;

/// The jobs of one tenant and priority, as a work queue with one consumer.
#[derive(Debug)]
pub(crate) struct Lane {
    /// The next job that was never claimed, and the first number behind those that were submitted.
    next: Job,
    end: Job,
    /// Jobs that are offered again.
    again: VecDeque<Job>,
    /// Jobs that are claimed now, and at most.
    pub(crate) claimed: u32,
    limit: u32,
    pub(crate) most_claimed: u32,
}

impl Lane {
    pub(crate) fn new(jobs: std::ops::Range<Job>, limit: u32) -> Self {
        let (next, end) = (jobs.start, jobs.end);
        Self { next, end, again: VecDeque::new(), claimed: 0, limit, most_claimed: 0 }
    }

    /// Returns whether the next request gets a job.
    pub(crate) fn is_open(&self) -> bool {
        self.claimed < self.limit && (self.next < self.end || !self.again.is_empty())
    }

    /// Gives the next job to a claim; those that were given before come first.
    pub(crate) fn claim(&mut self) -> Option<Job> {
        if !self.is_open() {
            return None;
        }
        self.claimed += 1;
        self.most_claimed = self.most_claimed.max(self.claimed);
        self.again.pop_front().or_else(|| {
            self.next += 1;
            Some(self.next - 1)
        })
    }

    /// Ends a claim, for good.
    pub(crate) fn acknowledge(&mut self) {
        self.claimed -= 1;
    }

    /// Ends a claim, and offers its job again.
    pub(crate) fn offer_again(&mut self, job: Job) {
        self.claimed -= 1;
        self.again.push_back(job);
    }
}

/// Messages that the server takes and gives, by what they are for.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Messages {
    /// Jobs and results, each with its acknowledgement, and results that the submitter gets.
    pub(crate) jobs: u64,
    /// Requests for jobs, and answers that there is none.
    pub(crate) requests: u64,
    /// Jobs that are given to workers, and their acknowledgements, both ways.
    pub(crate) claims: u64,
    /// Signs of life of claims.
    pub(crate) progress: u64,
    /// Signs of life of workers, and wake-ups.
    pub(crate) presence: u64,
    /// Records of starts, and searches for results, both for jobs that are claimed again.
    pub(crate) records: u64,
}

impl Messages {
    pub(crate) fn total(&self) -> u64 {
        let Self { jobs, requests, claims, progress, presence, records } = self;
        jobs + requests + claims + progress + presence + records
    }
}
