//! Puts the results of a batch's shards together, or finds out what is missing of them.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::Value;

use crate::error::Error;
use crate::line::{self, NoRequest};
use crate::lines::Lines;
use crate::parts::{Parts, Surplus};
use crate::pool_runner::prepare;
use crate::shard::Shard;
use crate::tally::Tally;

/// The most lines of a shard that are named when their results are missing.
const MOST_NAMED: usize = 10;

/// The results of a batch's shards, in the order of the batch's lines.
///
/// ```no_run
/// use std::io;
/// use std::path::Path;
///
/// use batch::{Lines, Merge, Parts};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let parts = Parts::read(&["part-1".into(), "part-2".into()])?;
/// let merge = Merge::of(Lines::open(Path::new("jobs.jsonl")).await?, parts).await?;
/// for missing in merge.missing() {
///     eprintln!("{} results are missing, of lines {:?} and so on", missing.count, missing.first);
/// }
/// merge.write(&mut io::stdout().lock())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Merge {
    parts: Parts,
    /// The results of the lines that have one.
    order: Vec<usize>,
    missing: Vec<Missing>,
    tally: Tally,
    reruns: usize,
}

/// The lines of a shard that have no result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The shard; `None` if no part says how many shards there are.
    pub shard: Option<Shard>,
    /// How many lines there are, at least 1.
    pub count: usize,
    /// The numbers of the first 10 of them.
    pub first: Vec<usize>,
}

impl Merge {
    /// Finds the results of these lines in the parts.
    ///
    /// # Errors
    /// The lines can't be read, or no file descriptor is left for a program that one names.
    pub async fn of(mut lines: Lines, mut parts: Parts) -> Result<Self, Error> {
        let mut order = Vec::new();
        let mut missing: BTreeMap<Option<Shard>, Missing> = BTreeMap::new();
        while let Some(line) = lines.next().await.map_err(Error::Read)? {
            let number = lines.number();
            let shards = parts.shards();
            let (found, shard) = match line {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(line) => {
                    (find(&mut parts, &line, number)?, shards.map(|count| Shard::of(&line, count)))
                }
                Err(_) => {
                    let shard = shards.map(|count| Shard::of_too_long(number, count));
                    (parts.take(&number.into(), None), shard)
                }
            };
            match found {
                Some(found) => order.push(found),
                None => missing.entry(shard).or_insert_with(|| Missing::new(shard)).add(number),
            }
        }
        let (mut tally, mut reruns) = (Tally::default(), 0);
        for found in &order {
            let (ending, may_change) = parts.ending(*found);
            tally.count(ending);
            reruns += usize::from(may_change);
        }
        Ok(Self { parts, order, missing: missing.into_values().collect(), tally, reruns })
    }

    /// Returns which lines have no result, by shard.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Returns the part that has results of a shard, if one has.
    pub fn part_of(&self, shard: Shard) -> Option<&Path> {
        self.parts.of_shard(shard)
    }

    /// Returns the results of lines that have another one, as from two parts with the same results.
    pub fn twins(&self) -> Option<Surplus> {
        let [twins, _] = self.parts.left();
        twins
    }

    /// Returns the results that belong to no line: they are of another batch, or their lines or
    /// programs have changed since.
    pub fn others(&self) -> Option<Surplus> {
        let [_, others] = self.parts.left();
        others
    }

    /// Returns the lines that have a result, by how they ended. Whatever prevents a success counts as
    /// a failure.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns how many of the results aren't final: resuming their shards makes them again.
    pub fn reruns(&self) -> usize {
        self.reruns
    }

    /// Writes the results as a batch without shards writes them in the order of the lines.
    ///
    /// # Errors
    /// A part can't be read, or the results can't be written.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut to = BufWriter::new(to);
        for found in &self.order {
            to.write_all(self.parts.line(*found)?.as_bytes())?;
        }
        to.flush()
    }
}

impl Missing {
    fn new(shard: Option<Shard>) -> Self {
        Self { shard, count: 0, first: Vec::new() }
    }

    fn add(&mut self, number: usize) {
        self.count += 1;
        if self.first.len() < MOST_NAMED {
            self.first.push(number);
        }
    }
}

/// Finds the result of a line: that of its job, or of its refusal or its mistake.
fn find(parts: &mut Parts, line: &[u8], number: usize) -> Result<Option<usize>, Error> {
    let parsed = line::parse(line, number, false, &[], |line| prepare(line, |job| job));
    let (id, digest) = match parsed {
        Ok(Some(request)) => (request.id, Some(request.digest)),
        Ok(None) => (Value::from(number), None),
        Err(NoRequest::Bad(bad)) => (bad.id, None),
        Err(NoRequest::NoDescriptor(problem)) => {
            return Err(Error::NoDescriptor { line: number, problem });
        }
    };
    let of_job = digest.and_then(|digest| parts.take(&id, Some(&digest)));
    Ok(of_job.or_else(|| parts.take(&id, None)))
}
