//! Where a batch writes its results, and what an earlier run left there.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use hatchery::wire::to_line;
use replace::{Access, lock_current, replace, through_links};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};

use crate::error::{Error, InvalidResults};
use crate::line::short_digest;
use crate::shard::Shard;

/// The destination of a batch's results. If it belongs to a [`Shard`], the batch runs the lines of
/// that shard alone, and each result names it.
///
/// A file is locked: no other batch writes to it until this is dropped.
#[derive(derive_more::Debug)]
#[must_use = "a batch writes its results there"]
pub struct Output {
    #[debug(skip)]
    pub(crate) sink: Sink,
    #[debug(skip)]
    pub(crate) earlier: Earlier,
    pub(crate) shard: Option<Shard>,
    /// What an earlier run left; `None` if this doesn't resume.
    pub resumed: Option<Resumed>,
}

impl Output {
    /// Writes results to a stream, such as standard output. Those that have come by then are written
    /// together, and flushed.
    ///
    /// ```
    /// let output = batch::Output::stream(tokio::io::sink(), None);
    /// assert!(output.resumed.is_none());
    /// ```
    pub fn stream(stream: impl AsyncWrite + Unpin + Send + 'static, shard: Option<Shard>) -> Self {
        let sink = Sink::Stream(Box::new(BufWriter::new(stream)));
        Self { sink, earlier: Earlier::default(), shard, resumed: None }
    }

    /// Writes results to a file, which is created or emptied. Or writes to a pipe that has a name, and
    /// waits for its reader.
    ///
    /// # Errors
    /// The file can't be written, or another batch writes to it.
    pub async fn create(path: &Path, shard: Option<Shard>) -> Result<Self, Error> {
        let unwritable = |source| Error::Create(path.to_owned(), source);
        // Not truncated before the lock shows that nobody else writes to it.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        // Opening a pipe waits for its reader.
        let opening = tokio::fs::OpenOptions::from(options.clone());
        let file = opening.open(path).await.map_err(unwritable)?;
        if !file.metadata().await.map_err(unwritable)?.is_file() {
            // A pipe, whose reader may be slow.
            return Ok(Self::stream(file, shard));
        }
        let file = claim(file.into_std().await, path, &options)?;
        file.set_len(0).map_err(unwritable)?;
        let earlier = Earlier::default();
        Ok(Self { sink: Sink::File(file), earlier, shard, resumed: None })
    }

    /// Writes results to a file behind those that an earlier run of the batch left there, if it
    /// exists. Lines that have a final result in it don't run again.
    ///
    /// Results that aren't final are removed, so that their lines run again. They are those of invalid
    /// or refused lines, lost files, sandbox failures and deadlines. So is an incomplete last one.
    /// Blocks.
    ///
    /// # Errors
    /// The file holds other data than results of this shard, can't be read or written, or another
    /// batch writes to it.
    pub fn resume(path: &Path, shard: Option<Shard>) -> Result<Self, Error> {
        let (earlier, file, resumed) = resume(path, shard)?;
        Ok(Self { sink: Sink::File(file), earlier, shard, resumed: Some(resumed) })
    }
}

/// Bytes of results that may wait for those of earlier lines. Beyond it, no further lines are read
/// until the first of these has ended.
const MOST_HELD_BYTES: usize = 64 << 20;

/// The destination of results.
pub(crate) enum Sink {
    /// Written synchronously by the batch's task, so that an interrupt leaves whole lines.
    File(File),
    Stream(Box<dyn AsyncWrite + Unpin + Send>),
}

/// Writes results as they come, or in the order of their lines.
pub(crate) struct Results {
    sink: Sink,
    order: Option<Order>,
}

/// Holds results that wait for those of earlier lines.
#[derive(Debug, Default)]
struct Order {
    /// The index of the result to write next.
    next: u64,
    held: BTreeMap<u64, String>,
    bytes: usize,
}

/// Formats a result as a line, which says which shard it is of, if it is of one.
pub(crate) fn line_of(mut result: Value, shard: Option<Shard>) -> String {
    if let Some(shard) = shard {
        result["shard"] = shard.to_string().into();
    }
    let mut line = to_line(&result);
    line.push('\n');
    line
}

impl Results {
    pub(crate) fn new(sink: Sink, is_ordered: bool) -> Self {
        Self { sink, order: is_ordered.then(Order::default) }
    }

    /// Takes the result of the line at this index among those that get one, from 0.
    pub(crate) async fn put(&mut self, place: u64, line: String) -> Result<(), Error> {
        let Some(order) = &mut self.order else {
            return self.write(line).await;
        };
        order.hold(place, line);
        while let Some(line) = self.order.as_mut().and_then(Order::next) {
            self.write(line).await?;
        }
        Ok(())
    }

    async fn write(&mut self, line: String) -> Result<(), Error> {
        let written = match &mut self.sink {
            Sink::File(file) => file.write_all(line.as_bytes()),
            Sink::Stream(stream) => stream.write_all(line.as_bytes()).await,
        };
        written.map_err(Error::Write)
    }

    /// Has readers of a stream see what was put. The stream may have a thread of its own, which is
    /// woken once for several results in this way.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        match &mut self.sink {
            Sink::File(_) => Ok(()),
            Sink::Stream(stream) => stream.flush().await.map_err(Error::Write),
        }
    }

    /// Returns how many results wait for those of earlier lines.
    pub(crate) fn held(&self) -> usize {
        self.order.as_ref().map_or(0, |order| order.held.len())
    }

    /// Returns whether further results may wait too.
    pub(crate) fn has_room(&self) -> bool {
        self.order.as_ref().is_none_or(|order| order.bytes < MOST_HELD_BYTES)
    }
}

impl Order {
    fn hold(&mut self, place: u64, line: String) {
        self.bytes += line.len();
        self.held.insert(place, line);
    }

    /// Takes the next result in order, if it has arrived.
    fn next(&mut self) -> Option<String> {
        let line = self.held.remove(&self.next)?;
        self.next += 1;
        self.bytes -= line.len();
        Some(line)
    }
}

// Results that an earlier run of a batch left in its file, so that their lines are skipped.
//
// A result belongs to a line by `id` and `digest`, so a changed line has no earlier result.
// Results that aren't final are removed from the file. They are those of invalid or refused lines, and
// those whose files couldn't be written. So are those that the sandbox or a deadline ended. What a
// program did, other limits, and cut stragglers are final.

/// The reason in the results of stragglers.
pub(crate) const STRAGGLER: &str = "straggler";

/// The results that count. Identical lines, ids included, have one each.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// Keyed by a digest of `id` and `digest`, since ids can be long and lines many.
    /// Counts successes and failures.
    results: HashMap<[u8; 16], [u32; 2]>,
}

/// The fields of a result that decide whether it counts.
#[derive(Deserialize)]
#[serde(expecting = "an object with `id` and `success`")]
pub(crate) struct EarlierResult {
    pub(crate) id: Value,
    pub(crate) success: bool,
    pub(crate) digest: Option<String>,
    pub(crate) shard: Option<String>,
    status: Option<String>,
    error: Option<EarlierError>,
    output_error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
pub(crate) struct EarlierError {
    kind: Option<String>,
    reason: Option<String>,
    limit: Option<String>,
}

/// What the file holds.
#[derive(Debug, Default)]
struct Scan {
    earlier: Earlier,
    /// Ranges to remove.
    dropped: Vec<Range<u64>>,
    /// Results to produce again.
    reruns: usize,
    /// Whether the last line is incomplete.
    is_cut_off: bool,
    /// Whether the last line is a result without a line end.
    lacks_end: bool,
    bytes: u64,
}

impl Earlier {
    /// Takes the result of this line, if there is one, and returns whether it was a success.
    pub(crate) fn take(&mut self, id: &Value, digest: &str) -> Option<bool> {
        let counts = self.results.get_mut(&key(id, digest))?;
        let index = counts.iter().position(|count| *count > 0)?;
        counts[index] -= 1;
        Some(index == 0)
    }

    /// Returns how many results no line has taken.
    pub(crate) fn left(&self) -> usize {
        self.results.values().flatten().map(|count| *count as usize).sum()
    }

    fn add(&mut self, id: &Value, digest: &str, is_success: bool) {
        let counts = self.results.entry(key(id, digest)).or_default();
        counts[usize::from(!is_success)] += 1;
    }
}

/// Returns the key of a result; `line_digest` is empty for those without one.
pub(crate) fn key(id: &Value, line_digest: &str) -> [u8; 16] {
    short_digest(&format!("{line_digest} {id}"))
}

/// What an earlier run left in the file of the results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resumed {
    /// Results that stay.
    pub results: usize,
    /// Results that were removed, since they aren't final. Their lines run again.
    pub removed: usize,
    /// Whether the last result was incomplete. It was removed, and its line runs again.
    pub was_cut_off: bool,
}

/// Reads the results in the file, removes those that aren't final, and opens it to append more.
/// Creates the file if it doesn't exist. All of its results must be of this shard.
pub(crate) fn resume(path: &Path, shard: Option<Shard>) -> Result<(Earlier, File, Resumed), Error> {
    let unusable = |source: InvalidResults| Error::Resume(path.to_owned(), source);
    let unreadable = |source: io::Error| unusable(source.into());
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    let mut reruns = 0;
    let mut is_cut_off = false;
    let (scan, mut file) = loop {
        let file = options.open(path).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            return Err(unusable(InvalidResults::NoFile));
        }
        let file = claim(file, path, &options)?;
        let scan = scan(BufReader::new(&file), shard).map_err(unusable)?;
        reruns += scan.reruns;
        is_cut_off |= scan.is_cut_off;
        if !remove(&file, path, &scan).map_err(Error::Remove)? {
            break (scan, file);
        }
        // Another batch may have locked the new file first, so the loop reads that one too.
    };
    if scan.lacks_end {
        file.write_all(b"\n").map_err(Error::Write)?;
    }
    let results = scan.earlier.left();
    Ok((scan.earlier, file, Resumed { results, removed: reruns, was_cut_off: is_cut_off }))
}

/// Locks the file against other batches until this one ends. A resuming batch may have replaced the
/// file since it was opened; if so, opens and locks the new one.
pub(crate) fn claim(file: File, path: &Path, options: &OpenOptions) -> Result<File, Error> {
    let mut opened = Some(file);
    let locked = lock_current(path, || opened.take().map_or_else(|| options.open(path), Ok))
        .map_err(|source| Error::Create(path.to_owned(), source))?;
    locked.ok_or_else(|| Error::InUse(path.to_owned()))
}

/// A result in a file.
pub(crate) struct ResultLine {
    /// The number of its line, from 1.
    pub(crate) number: usize,
    pub(crate) place: Range<u64>,
    has_end: bool,
    pub(crate) result: EarlierResult,
}

/// Reads a file of results, and gives each to `take`. Returns the size of the file, and where its last
/// line is if that is incomplete. An error names its line.
pub(crate) fn read_results(
    mut reader: impl BufRead,
    mut take: impl FnMut(ResultLine) -> Result<(), InvalidResults>,
) -> Result<(u64, Option<Range<u64>>), InvalidResults> {
    let (mut line, mut bytes) = (Vec::new(), 0);
    for number in 1.. {
        line.clear();
        let place = bytes..bytes + reader.read_until(b'\n', &mut line)? as u64;
        bytes = place.end;
        if line.is_empty() {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let has_end = line.ends_with(b"\n");
        match serde_json::from_slice(&line) {
            Ok(result) => take(ResultLine { number, place, has_end, result })?,
            // Only a line that starts like a result counts as incomplete: the file may be something
            // else.
            Err(error) if !has_end && line.starts_with(b"{") && is_cut_off(&error, &line) => {
                return Ok((bytes, Some(place)));
            }
            Err(source) => return Err(InvalidResults::NoResult(number, source)),
        }
    }
    Ok((bytes, None))
}

/// Reads what an earlier run left in the file.
fn scan(reader: impl BufRead, shard: Option<Shard>) -> Result<Scan, InvalidResults> {
    let mut scan = Scan::default();
    let shard = shard.map(|shard| shard.to_string());
    let (bytes, cut_off) =
        read_results(reader, |ResultLine { number, place, has_end, result }| {
            if result.shard != shard {
                let name = |shard: Option<&String>| match shard {
                    Some(shard) => format!("shard {shard}"),
                    None => "a batch without --shard".to_owned(),
                };
                let (there, here) = (name(result.shard.as_ref()), name(shard.as_ref()));
                return Err(InvalidResults::OtherShard { line: number, there, here });
            }
            if !result.is_final() {
                scan.reruns += 1;
                scan.leave_out(place);
                return Ok(());
            }
            let digest = result.digest.ok_or(InvalidResults::NoDigest(number))?;
            scan.earlier.add(&result.id, &digest, result.success);
            scan.lacks_end = !has_end;
            Ok(())
        })?;
    scan.bytes = bytes;
    scan.is_cut_off = cut_off.is_some();
    cut_off.into_iter().for_each(|place| scan.leave_out(place));
    Ok(scan)
}

/// Returns whether a line is incomplete, or ends in the zeros of a block that was never written.
fn is_cut_off(error: &serde_json::Error, line: &[u8]) -> bool {
    error.is_eof() || line.ends_with(b"\0")
}

impl Scan {
    fn leave_out(&mut self, place: Range<u64>) {
        match self.dropped.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => self.dropped.push(place),
        }
    }
}

impl EarlierResult {
    /// Returns whether the line was no job.
    pub(crate) fn is_malformed(&self) -> bool {
        let kind = self.error.as_ref().and_then(|error| error.kind.as_deref());
        self.status.is_none() && kind == Some("usage")
    }

    /// Returns whether running the line again could tell nothing new.
    pub(crate) fn is_final(&self) -> bool {
        let error = self.error.as_ref();
        let kind = error.and_then(|error| error.kind.as_deref());
        let reason = error.and_then(|error| error.reason.as_deref());
        let limit = error.and_then(|error| error.limit.as_deref());
        let is_of_program = match self.status.as_deref() {
            // Invalid and refused lines have no status, and always an error.
            None => !matches!(kind, Some("usage" | "refused")),
            Some("sandbox_failed") => false,
            Some("cancelled") => reason == Some(STRAGGLER),
            Some("limit") => limit != Some("deadline"),
            Some(_) => true,
        };
        is_of_program && self.output_error.is_none()
    }
}

/// Removes the dropped ranges. If that is more than the end, a copy of the rest replaces the file, so
/// that a crash loses nothing. Returns whether the path now names a new file.
fn remove(file: &File, path: &Path, scan: &Scan) -> io::Result<bool> {
    match &scan.dropped[..] {
        [] => return Ok(false),
        [end] if end.end == scan.bytes => return file.set_len(end.start).map(|()| false),
        _ => {}
    }
    replace(&through_links(path), Access::AsBefore, |copy| {
        let mut from = file;
        let end = scan.bytes..scan.bytes;
        let mut kept_from = 0;
        for dropped in scan.dropped.iter().chain([&end]) {
            from.seek(SeekFrom::Start(kept_from))?;
            io::copy(&mut from.take(dropped.start - kept_from), copy)?;
            kept_from = dropped.end;
        }
        Ok(())
    })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hatchery::error::chain;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, BufWriter};

    use super::*;

    /// Returns what the file holds after each result.
    async fn written(is_ordered: bool, places: &[u64]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut results = Results::new(Sink::File(File::create(&path).unwrap()), is_ordered);
        let mut written = Vec::new();
        for place in places {
            results.put(*place, place.to_string()).await.unwrap();
            written.push(std::fs::read_to_string(&path).unwrap());
        }
        assert_eq!(results.held(), 0);
        written
    }

    #[tokio::test]
    async fn results_come_as_they_end_or_in_order() {
        assert_eq!(written(false, &[2, 0, 1]).await, ["2", "20", "201"]);
        assert_eq!(written(true, &[2, 0, 1, 3]).await, ["", "0", "012", "0123"]);
    }

    #[tokio::test]
    async fn results_of_a_stream_are_written_together_when_it_is_flushed() {
        let (to, mut from) = tokio::io::duplex(1 << 20);
        let stream = Sink::Stream(Box::new(BufWriter::new(to)));
        let mut results = Results::new(stream, false);
        for (place, line) in ["one\n", "two\n"].into_iter().enumerate() {
            results.put(place as u64, line.to_owned()).await.unwrap();
        }
        tokio::select! {
            biased;
            read = from.read_u8() => panic!("{read:?} was written before"),
            () = std::future::ready(()) => {}
        }
        results.flush().await.unwrap();
        let mut written = [0; 8];
        from.read_exact(&mut written).await.unwrap();
        assert_eq!(&written, b"one\ntwo\n");
    }

    #[tokio::test]
    async fn results_that_wait_are_bounded() {
        let mut results = Results::new(Sink::Stream(Box::new(tokio::io::sink())), true);
        results.put(1, "x".repeat(MOST_HELD_BYTES)).await.unwrap();
        assert_eq!((results.held(), results.has_room()), (1, false));
        results.put(0, String::new()).await.unwrap();
        assert_eq!((results.held(), results.has_room()), (0, true));
    }

    fn done(id: u32, success: bool) -> String {
        let status = if success { "completed" } else { "raised" };
        json!({ "id": id, "digest": "d", "success": success, "status": status }).to_string()
    }

    /// Returns what is left of a file, and its results.
    fn resumed(text: &str) -> (String, Earlier) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        fs::write(&path, text).unwrap();
        let (earlier, mut file, resumed) = resume(&path, None).unwrap();
        assert_eq!(resumed.results, earlier.left());
        file.write_all(b"next\n").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        (fs::read_to_string(&path).unwrap(), earlier)
    }

    #[test]
    fn each_result_is_found_once_by_id_and_digest() {
        let text = format!("{}\n\n{}\n{}\n", done(1, true), done(2, false), done(1, true));
        let (left, mut earlier) = resumed(&text);
        assert_eq!(left, format!("{text}next\n"));
        assert_eq!(earlier.take(&json!(1), "other"), None);
        assert_eq!(earlier.take(&json!("1"), "d"), None);
        assert_eq!(earlier.take(&json!(1), "d"), Some(true));
        assert_eq!(earlier.take(&json!(2), "d"), Some(false));
        assert_eq!(earlier.take(&json!(2), "d"), None);
        assert_eq!(earlier.left(), 1);
        assert_eq!(earlier.take(&json!(1), "d"), Some(true));
        assert_eq!(earlier.take(&json!(1), "d"), None);
    }

    #[test]
    fn an_incomplete_last_line_is_removed() {
        let whole = done(1, true);
        for end in [1, whole.len() / 2, whole.len() - 1] {
            let (left, earlier) = resumed(&format!("{whole}\n{}", &whole[..end]));
            assert_eq!((left, earlier.left()), (format!("{whole}\nnext\n"), 1));
        }
        let (left, earlier) = resumed(&format!("{whole}\n{whole}"));
        assert_eq!((left, earlier.left()), (format!("{whole}\n{whole}\nnext\n"), 2));
        assert_eq!(resumed("{\"id\"").0, "next\n");
        assert_eq!(resumed("").0, "next\n");
    }

    #[test]
    fn results_that_are_not_final_are_removed() {
        let reruns = [
            json!({ "id": 1, "success": false, "error": { "kind": "usage", "message": "" } }),
            json!({ "id": 1, "success": false, "error": { "kind": "refused", "reason": null } }),
            json!({ "id": 1, "digest": "d", "success": false, "status": "sandbox_failed" }),
            json!({ "id": 1, "digest": "d", "success": false, "status": "cancelled" }),
            json!({
                "id": 1, "digest": "d", "success": false, "status": "limit",
                "error": { "kind": "limit", "limit": "deadline" },
            }),
            json!({
                "id": 1, "digest": "d", "success": true, "status": "completed",
                "output_error": "no space",
            }),
        ];
        let is_final = [
            json!({
                "id": 1, "digest": "d", "success": false, "status": "cancelled",
                "error": { "kind": "cancelled", "reason": "straggler" }, "output_error": null,
            }),
            json!({
                "id": 1, "digest": "d", "success": false, "status": "limit",
                "error": { "kind": "limit", "limit": "wall" },
            }),
        ];
        let lines = |of: &[Value]| of.iter().map(|line| format!("{line}\n")).collect::<String>();
        let (before, kept) = (done(2, true), lines(&is_final));
        let text =
            format!("{}{before}\n{}{kept}{}", lines(&reruns), lines(&reruns), lines(&reruns));
        let (left, earlier) = resumed(&text);
        assert_eq!(left, format!("{before}\n{kept}next\n"));
        assert_eq!(earlier.left(), 3);
    }

    #[test]
    fn a_file_behind_a_link_is_shortened_there_and_stays_as_private_as_it_was() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("out.ndjson"), folder.path().join("link"));
        let rerun = json!({ "id": 1, "success": false, "error": { "kind": "usage" } });
        fs::write(&path, format!("{rerun}\n{}\n", done(2, true))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        assert_eq!(resume(&link, None).unwrap().0.left(), 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", done(2, true)));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_was_replaced_since_it_was_opened_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let rerun = json!({ "id": 1, "success": false, "error": { "kind": "usage" } });
        fs::write(&path, format!("{rerun}\n{}\n", done(2, true))).unwrap();
        let (one, other) = (options.open(&path).unwrap(), options.open(&path).unwrap());
        let (_, resumed, counts) = resume(&path, None).unwrap();
        assert_eq!(counts, Resumed { results: 1, removed: 1, was_cut_off: false });
        assert!(replace::is_at(&resumed, &path).unwrap());
        assert!(!replace::is_at(&one, &path).unwrap());
        let refused = claim(one, &path, &options).unwrap_err().to_string();
        assert!(refused.contains("another batch"), "{refused}");
        drop(resumed);
        claim(other, &path, &options).unwrap().write_all(b"next").unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("next"));

        // A removed file is created again.
        let file = options.open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let file = claim(file, &path, &options).unwrap();
        assert!(replace::is_at(&file, &path).unwrap());
    }

    #[test]
    fn other_files_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        for (text, expected) in [
            ("{\"id\": 1, \"code\": \"1\"}\n", "line 1 is not a result"),
            ("{\"id\": 1, \"code\": \"1\"}", "line 1 is not a result"),
            ("notes", "line 1 is not a result"),
            (&format!("{}\nnotes\n", done(1, true)), "line 2 is not a result"),
            ("{\"id\": 1, \"success\": true, \"status\": \"completed\"}\n", "without a `digest`"),
        ] {
            fs::write(&path, text).unwrap();
            let error = chain(&resume(&path, None).unwrap_err()).to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert!(resume(folder.path(), None).is_err());
        assert!(resume(Path::new("/dev/null"), None).is_err());
    }
}
