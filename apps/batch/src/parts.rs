//! The results of a batch's shards, found by their lines.
//!
//! Only where a result is and how it ended is kept in memory, some 60 bytes for each; the results
//! themselves are read again when they are written.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use replace::is_same;
use serde_json::Value;

use crate::earlier::{EarlierResult, is_cut_off, key};
use crate::error::{Error, InvalidResults};
use crate::results::line_of;
use crate::shard::Shard;
use crate::tally::Ending;

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
    offset: u64,
    bytes: usize,
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
    pub first: Place,
}

/// Where a result is. It is written as ``line 3 of `part-1` ``.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The number of its line there, from 1.
    pub line: usize,
    /// The part.
    pub path: PathBuf,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {} of `{}`", self.line, self.path.display())
    }
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
            parts.add(path).map_err(|source| Error::Part { path: path.clone(), source })?;
        }
        Ok(parts)
    }

    fn add(&mut self, path: &Path) -> Result<(), InvalidResults> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(InvalidResults::NoFile);
        }
        let mut reader = BufReader::new(file.try_clone()?);
        let part = self.parts.len();
        self.parts.push(Part { path: path.to_owned(), file, shard: None, is_cut_off: false });
        let (mut line, mut offset) = (Vec::new(), 0);
        for number in 1.. {
            line.clear();
            let bytes = reader.read_until(b'\n', &mut line)?;
            if bytes == 0 {
                break;
            }
            let start = offset;
            offset += bytes as u64;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let result = match serde_json::from_slice::<EarlierResult>(&line) {
                Ok(result) => result,
                Err(error) if line.starts_with(b"{") && is_cut_off(&error, &line) => {
                    self.parts[part].is_cut_off = true;
                    break;
                }
                Err(source) => return Err(InvalidResults::NoResult { line: number, source }),
            };
            let shard = result.shard.as_ref().and_then(|shard| shard.parse().ok());
            self.check(part, number, shard)?;
            let found = Found {
                part,
                number,
                offset: start,
                bytes,
                ending: match (result.success, result.is_malformed()) {
                    (true, _) => Ending::Succeeded,
                    (false, true) => Ending::Malformed,
                    (false, false) => Ending::Failed,
                },
                is_final: result.is_final(),
                next: None,
            };
            let key = key(&result.id, result.digest.as_deref().unwrap_or_default());
            let chain = self.keys.entry(key).or_default();
            let next = chain.next.replace(self.results.len());
            self.results.push(Found { next, ..found });
        }
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

    /// Returns how many shards the batch has; `None` if no part has a result.
    pub fn shards(&self) -> Option<u32> {
        self.shards
    }

    /// Returns the parts whose last result is incomplete. It counts as missing.
    pub fn cut_off(&self) -> impl Iterator<Item = &Path> {
        let cut_off = self.parts.iter().filter(|part| part.is_cut_off);
        cut_off.map(|part| part.path.as_path())
    }

    /// Takes the result of a line, if there is one, by its id and digest. Without a digest it is a
    /// line that was no job or was refused.
    pub(crate) fn take(&mut self, id: &Value, digest: Option<&str>) -> Option<usize> {
        let chain = self.keys.get_mut(&key(id, digest.unwrap_or_default()))?;
        chain.is_known = true;
        let index = chain.next?;
        chain.next = self.results[index].next;
        Some(index)
    }

    /// Returns the results that no line has taken: those of lines that have another one, as from two
    /// parts, and those of lines that there aren't.
    pub(crate) fn left(&self) -> [Option<Surplus>; 2] {
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
            Some(Surplus { count: results.len(), first: Place { line: first.number, path } })
        })
    }

    /// Returns the part that has results of a shard, if one has.
    pub(crate) fn of_shard(&self, shard: Shard) -> Option<&Path> {
        let part = self.parts.iter().find(|part| part.shard == Some(shard))?;
        Some(&part.path)
    }

    /// Returns how the line of a result ended, as far as it tells success, failure and lines that are
    /// no jobs apart; and whether running the line again could give another result.
    pub(crate) fn ending(&self, index: usize) -> (Ending, bool) {
        let found = &self.results[index];
        (found.ending, !found.is_final && found.ending != Ending::Malformed)
    }

    /// Reads a result, and returns its line as a batch without shards would have written it.
    pub(crate) fn line(&self, index: usize) -> io::Result<String> {
        let found = &self.results[index];
        let mut bytes = vec![0; found.bytes];
        self.parts[found.part].file.read_exact_at(&mut bytes, found.offset)?;
        let mut result: Value = serde_json::from_slice(&bytes)?;
        if let Some(fields) = result.as_object_mut() {
            fields.remove("shard");
        }
        Ok(line_of(result, None))
    }
}
