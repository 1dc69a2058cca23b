//! The results of a batch's shards, found by their lines.
//!
//! Only where a result is and how it ended is kept in memory, some 60 bytes for each; the results
//! themselves are read again when they are written.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use replace::is_same;
use serde_json::Value;

use super::earlier::{EarlierResult, is_cut_off, key};
use super::results::{Ending, Tally, line_of};
use crate::exit::UsageError;
use crate::shard::Shard;
use crate::terminal;

/// The results of several shards.
#[derive(Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    results: Vec<Found>,
    keys: HashMap<[u8; 16], Chain>,
    /// How many shards the batch has; `None` if no part has a result.
    pub(super) shards: Option<u32>,
}

struct Part {
    path: PathBuf,
    file: File,
    /// The shard of its last result.
    shard: Option<Shard>,
}

/// The results of one key: identical lines have one each.
#[derive(Default)]
struct Chain {
    /// The one to take next, which leads to the others.
    next: Option<usize>,
    is_known: bool,
}

/// A result in a part.
struct Found {
    part: usize,
    /// The number of its line there.
    number: usize,
    offset: u64,
    bytes: usize,
    ending: End,
    is_final: bool,
    /// Another result of the same key.
    next: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Succeeded,
    Failed,
    Malformed,
}

/// Results that no line has taken.
pub(super) struct Left {
    pub(super) count: usize,
    /// Where the first of them is.
    pub(super) first: String,
}

impl Parts {
    /// Reads the results of all parts. Fails if one can't be read, holds anything but results of a
    /// shard, or is of another number of shards than the others.
    pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut parts = Self::default();
        for (index, path) in paths.iter().enumerate() {
            if let Some(twin) = paths[..index].iter().find(|twin| is_same(twin, path)) {
                let text = format!("`{}` and `{}` are one file", twin.display(), path.display());
                return Err(UsageError(text).into());
            }
            let unreadable = || UsageError(format!("can't merge `{}`", path.display()));
            parts.add(path).with_context(unreadable)?;
        }
        Ok(parts)
    }

    fn add(&mut self, path: &Path) -> anyhow::Result<()> {
        let file = File::open(path)?;
        anyhow::ensure!(file.metadata()?.is_file(), "it is not a regular file");
        let mut reader = BufReader::new(file.try_clone()?);
        let part = self.parts.len();
        self.parts.push(Part { path: path.to_owned(), file, shard: None });
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
                    let path = path.display();
                    terminal::note(format_args!("`{path}` ends in an incomplete result"));
                    break;
                }
                Err(error) => {
                    let text = format!("line {number} is not a result of a batch");
                    return Err(anyhow::Error::new(error).context(text));
                }
            };
            let shard = result.shard.as_ref().and_then(|shard| shard.parse().ok());
            self.check(part, number, shard)?;
            let found = Found {
                part,
                number,
                offset: start,
                bytes,
                ending: match (result.success, result.is_malformed()) {
                    (true, _) => End::Succeeded,
                    (false, true) => End::Malformed,
                    (false, false) => End::Failed,
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
    fn check(&mut self, part: usize, number: usize, shard: Option<Shard>) -> anyhow::Result<()> {
        let Some(shard) = shard else {
            anyhow::bail!(
                "line {number} has no `shard`: it isn't the result of a batch with --shard"
            );
        };
        let shards = *self.shards.get_or_insert(shard.count);
        if shards != shard.count {
            let others = self.parts[..part].iter().find_map(|part| Some((part, part.shard?)));
            let other = others.map_or_else(String::new, |(part, shard)| {
                format!(", and `{}` has results of shard {shard}", part.path.display())
            });
            anyhow::bail!(
                "line {number} is a result of shard {shard}{other}: all parts must be of one number \
                 of shards"
            );
        }
        self.parts[part].shard = Some(shard);
        Ok(())
    }

    /// Takes the result of a line, if there is one, by its id and digest. Without a digest it is a
    /// line that was no job or was refused.
    pub(super) fn take(&mut self, id: &Value, digest: Option<&str>) -> Option<usize> {
        let chain = self.keys.get_mut(&key(id, digest.unwrap_or_default()))?;
        chain.is_known = true;
        let index = chain.next?;
        chain.next = self.results[index].next;
        Some(index)
    }

    /// Returns the results that no line has taken: those of lines that have another one, as from two
    /// parts, and those of lines that there aren't.
    pub(super) fn left(&self) -> [Left; 2] {
        let mut left = [Vec::new(), Vec::new()];
        for chain in self.keys.values() {
            let mut next = chain.next;
            while let Some(index) = next {
                left[usize::from(!chain.is_known)].push(index);
                next = self.results[index].next;
            }
        }
        left.map(|results| Left {
            count: results.len(),
            first: results.into_iter().min().map(|index| self.place(index)).unwrap_or_default(),
        })
    }

    /// Says where a result is.
    fn place(&self, index: usize) -> String {
        let found = &self.results[index];
        format!("line {} of `{}`", found.number, self.parts[found.part].path.display())
    }

    /// Returns the part that has results of a shard, if one has.
    pub(super) fn of_shard(&self, shard: Shard) -> Option<&Path> {
        let part = self.parts.iter().find(|part| part.shard == Some(shard))?;
        Some(&part.path)
    }

    /// Counts a result, and returns whether running its line again could give another.
    pub(super) fn count(&self, index: usize, tally: &mut Tally) -> bool {
        let found = &self.results[index];
        match found.ending {
            End::Succeeded => tally.count(Ending::Succeeded),
            End::Failed => tally.count(Ending::Failed),
            End::Malformed => tally.malformed += 1,
        }
        !found.is_final && !matches!(found.ending, End::Malformed)
    }

    /// Reads a result, and returns its line as a batch without shards would have written it.
    pub(super) fn line(&self, index: usize) -> io::Result<String> {
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
