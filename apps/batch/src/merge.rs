//! Merges the results of a batch's shards, or finds what is missing.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use replace::is_same;
use serde_json::Value;

use crate::error::{Error, InvalidResults};
use crate::line::{self, NoRequest};
use crate::lines::Lines;
use crate::output::{ResultLine, key, line_of, read_results};
use crate::pool_runner::prepare;
use crate::shard::Shard;
use crate::tally::{Ending, Tally};

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
/// for missing in &merge.missing {
///     eprintln!("{} results are missing, of lines {:?} and so on", missing.count, missing.first);
/// }
/// merge.write(&mut io::stdout().lock())?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Merge {
    parts: Parts,
    /// The results of the lines that have one.
    order: Vec<usize>,
    /// Which lines have no result, by shard.
    pub missing: Vec<Missing>,
    /// The results of lines that have another one, as from two parts with the same results.
    pub twins: Option<Surplus>,
    /// The results that belong to no line: they are of another batch, or their lines or programs
    /// have changed since.
    pub others: Option<Surplus>,
    /// The lines that have a result, by how they ended. Whatever prevents a success counts as a
    /// failure.
    pub tally: Tally,
    /// How many of the results aren't final: resuming their shards makes them again.
    pub reruns: usize,
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
            let shards = parts.shards;
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
        for found in order.iter().map(|index| &parts.results[*index]) {
            tally.count(found.ending);
            reruns += usize::from(!found.is_final && found.ending != Ending::Malformed);
        }
        let [twins, others] = parts.left();
        let missing = missing.into_values().collect();
        Ok(Self { parts, order, missing, twins, others, tally, reruns })
    }

    /// Returns the part that has results of a shard, if one has.
    pub fn part_of(&self, shard: Shard) -> Option<&Path> {
        let part = self.parts.parts.iter().find(|part| part.shard == Some(shard))?;
        Some(&part.path)
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
            return Err(Error::NoDescriptor(number, problem));
        }
    };
    let of_job = digest.and_then(|digest| parts.take(&id, Some(&digest)));
    Ok(of_job.or_else(|| parts.take(&id, None)))
}

// The results of a batch's shards, found by their lines.
//
// Only where a result is and how it ended is kept in memory, some 60 bytes for each; the results
// themselves are read again when they are written.

/// The results of several shards.
#[derive(Debug, Default)]
pub struct Parts {
    parts: Vec<Part>,
    results: Vec<Found>,
    keys: HashMap<[u8; 16], Chain>,
    /// How many shards the batch has; `None` if no part has a result.
    shards: Option<u32>,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    file: File,
    /// The shard of its last result.
    shard: Option<Shard>,
    /// Whether its last result is incomplete.
    is_cut_off: bool,
}

/// The results of one key: identical lines have one each.
#[derive(Debug, Default)]
struct Chain {
    /// The one to take next, which leads to the others.
    next: Option<usize>,
    is_known: bool,
}

/// A result in a part.
#[derive(Debug)]
struct Found {
    part: usize,
    /// The number of its line there.
    number: usize,
    place: Range<u64>,
    ending: Ending,
    is_final: bool,
    /// Another result of the same key.
    next: Option<usize>,
}

/// Results that no line has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Surplus {
    /// How many there are, at least 1.
    pub count: usize,
    /// Where the first of them is.
    pub first: ResultPlace,
}

/// Where a result is. It is written as ``line 3 of `part-1` ``.
#[derive(Debug, derive_more::Display, Clone, PartialEq, Eq)]
#[display("line {line} of `{}`", path.display())]
#[non_exhaustive]
pub struct ResultPlace {
    /// The number of its line there, from 1.
    pub line: usize,
    /// The part.
    pub path: PathBuf,
}

impl Parts {
    /// Reads the results of all parts. Fails if one can't be read, holds anything but results of a
    /// shard, or is of another number of shards than the others. Blocks.
    ///
    /// # Errors
    /// See above; also if two of the paths lead to one file.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Error> {
        let mut parts = Self::default();
        for (index, path) in paths.iter().enumerate() {
            if let Some(twin) = paths[..index].iter().find(|twin| is_same(twin, path)) {
                return Err(Error::SamePart(twin.clone(), path.clone()));
            }
            parts.add(path).map_err(|source| Error::Part(path.clone(), source))?;
        }
        Ok(parts)
    }

    fn add(&mut self, path: &Path) -> Result<(), InvalidResults> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(InvalidResults::NoFile);
        }
        let reader = BufReader::new(file.try_clone()?);
        let part = self.parts.len();
        self.parts.push(Part { path: path.to_owned(), file, shard: None, is_cut_off: false });
        let (_, cut_off) = read_results(reader, |ResultLine { number, place, result, .. }| {
            let shard = result.shard.as_ref().and_then(|shard| shard.parse().ok());
            self.check(part, number, shard)?;
            let ending = match (result.success, result.is_malformed()) {
                (true, _) => Ending::Succeeded,
                (false, true) => Ending::Malformed,
                (false, false) => Ending::Failed,
            };
            let key = key(&result.id, result.digest.as_deref().unwrap_or_default());
            let next = self.keys.entry(key).or_default().next.replace(self.results.len());
            let is_final = result.is_final();
            self.results.push(Found { part, number, place, ending, is_final, next });
            Ok(())
        })?;
        self.parts[part].is_cut_off = cut_off.is_some();
        Ok(())
    }

    /// Checks that the result at a line of a part is of a shard, and of as many as all others.
    fn check(
        &mut self,
        part: usize,
        line: usize,
        shard: Option<Shard>,
    ) -> Result<(), InvalidResults> {
        let shard = shard.ok_or(InvalidResults::NoShard(line))?;
        let shards = *self.shards.get_or_insert(shard.count());
        if shards != shard.count() {
            let others = self.parts[..part].iter().find_map(|part| Some((part, part.shard?)));
            let other = others.map_or_else(String::new, |(part, shard)| {
                format!(", and `{}` has results of shard {shard}", part.path.display())
            });
            return Err(InvalidResults::OtherCount { line, shard, other });
        }
        self.parts[part].shard = Some(shard);
        Ok(())
    }

    /// Returns the parts whose last result is incomplete. It counts as missing.
    pub fn cut_off(&self) -> impl Iterator<Item = &Path> {
        let cut_off = self.parts.iter().filter(|part| part.is_cut_off);
        cut_off.map(|part| part.path.as_path())
    }

    /// Takes the result of a line, if there is one, by its id and digest. Without a digest it is a
    /// line that was no job or was refused.
    fn take(&mut self, id: &Value, digest: Option<&str>) -> Option<usize> {
        let chain = self.keys.get_mut(&key(id, digest.unwrap_or_default()))?;
        chain.is_known = true;
        let index = chain.next?;
        chain.next = self.results[index].next;
        Some(index)
    }

    /// Returns the results that no line has taken: those of lines that have another one, as from two
    /// parts, and those of lines that there aren't.
    fn left(&self) -> [Option<Surplus>; 2] {
        let mut left = [Vec::new(), Vec::new()];
        for chain in self.keys.values() {
            let mut next = chain.next;
            while let Some(index) = next {
                left[usize::from(!chain.is_known)].push(index);
                next = self.results[index].next;
            }
        }
        left.map(|results| {
            let first = &self.results[*results.iter().min()?];
            let path = self.parts[first.part].path.clone();
            Some(Surplus { count: results.len(), first: ResultPlace { line: first.number, path } })
        })
    }

    /// Reads a result, and returns its line as a batch without shards would have written it.
    fn line(&self, index: usize) -> io::Result<String> {
        let found = &self.results[index];
        let mut bytes = vec![0; (found.place.end - found.place.start) as usize];
        self.parts[found.part].file.read_exact_at(&mut bytes, found.place.start)?;
        let mut result: Value = serde_json::from_slice(&bytes)?;
        if let Some(fields) = result.as_object_mut() {
            fields.remove("shard");
        }
        Ok(line_of(result, None))
    }
}
