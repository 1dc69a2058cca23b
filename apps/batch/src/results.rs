//! The results of lines: as they come, or in the order of their lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use hatchery::wire::to_line;
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::error::Error;
use crate::shard::Shard;

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

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::io::{AsyncReadExt, BufWriter};

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
}
