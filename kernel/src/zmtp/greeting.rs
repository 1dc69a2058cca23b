//! The greeting of a connection, and the `READY` command by which each side says what it is.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};

use super::frames::{FrameReader, FrameWriter, Incoming, invalid};

const GREETING_BYTES: usize = 64;
/// The version that is spoken. In 3.0 subscriptions are messages, which every peer of 3.1 still sends
/// to a socket that greets with it.
const VERSION: [u8; 2] = [3, 0];
/// The only mechanism, in its field of 20 bytes: neither encryption nor passwords.
const MECHANISM: &[u8; 20] = b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const READY: &[u8] = b"\x05READY";
/// The longest identity of a peer.
const MOST_IDENTITY_BYTES: usize = 255;

/// What kind of socket greets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Router,
    Publisher,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Router => "ROUTER",
            Self::Publisher => "XPUB",
        }
    }

    /// Returns whether it talks to a socket of this type.
    fn talks_to(self, other: &[u8]) -> bool {
        match self {
            Self::Router => matches!(other, b"DEALER" | b"REQ" | b"ROUTER"),
            Self::Publisher => matches!(other, b"SUB" | b"XSUB"),
        }
    }
}

/// Greets a peer, and returns its identity, which is empty if it chose none.
///
/// # Errors
/// The connection ended, or the peer speaks another protocol, an older version or another mechanism,
/// or is no partner of this kind of socket.
pub(super) async fn greet(
    kind: Kind,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
) -> io::Result<Bytes> {
    writer.bytes(&greeting()).await?;
    writer.flush().await?;
    check(&reader.exactly().await?)?;
    writer.command(&ready(kind)).await?;
    writer.flush().await?;
    let Incoming::Command(body) = reader.next().await? else {
        return Err(invalid("a message precedes `READY`"));
    };
    let metadata = body.strip_prefix(READY).ok_or_else(|| invalid("it isn't ready"))?;
    let mut identity = Bytes::new();
    let mut other = None;
    for property in properties(metadata) {
        let (name, value) = property.ok_or_else(|| invalid("`READY` is damaged"))?;
        if name.eq_ignore_ascii_case(b"socket-type") {
            other = Some(value);
        } else if name.eq_ignore_ascii_case(b"identity") {
            identity = Bytes::copy_from_slice(value);
        }
    }
    if !other.is_some_and(|other| kind.talks_to(other)) {
        return Err(invalid("its socket is of another type"));
    }
    // Those that begin with 0 are the ones that routers make up.
    if identity.len() > MOST_IDENTITY_BYTES || identity.first() == Some(&0) {
        return Err(invalid("its identity isn't allowed"));
    }
    Ok(identity)
}

fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    (greeting[0], greeting[9]) = (0xff, 0x7f);
    greeting[10..12].copy_from_slice(&VERSION);
    greeting[12..32].copy_from_slice(MECHANISM);
    greeting
}

fn check(greeting: &[u8; GREETING_BYTES]) -> io::Result<()> {
    if (greeting[0], greeting[9]) != (0xff, 0x7f) {
        return Err(invalid("it doesn't speak ZMTP"));
    }
    if greeting[10] < VERSION[0] {
        return Err(invalid("it speaks an older version of ZMTP"));
    }
    match greeting[12..32] == MECHANISM[..] {
        true => Ok(()),
        false => Err(invalid("it wants encryption or a password")),
    }
}

fn ready(kind: Kind) -> Bytes {
    let mut body = BytesMut::from(READY);
    for (name, value) in [("Socket-Type", kind.name()), ("Identity", "")] {
        body.put_u8(u8::try_from(name.len()).expect("names are short"));
        body.put(name.as_bytes());
        body.put_u32(u32::try_from(value.len()).expect("values are short"));
        body.put(value.as_bytes());
    }
    body.freeze()
}

/// Returns names and values of metadata; `None` for what is cut off, which ends them.
fn properties(mut rest: &[u8]) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let property = property(rest);
        rest = property.map_or(&[], |(_, _, rest)| rest);
        Some(property.map(|(name, value, _)| (name, value)))
    })
}

/// Splits off the first property.
fn property(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    Some((name, value, rest))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};

    use super::*;
    use crate::zmtp::frames::Large;

    /// Returns what a router makes of a peer that sends this.
    async fn greeted(sent: &[u8]) -> Result<Bytes, String> {
        let (mut near, far) = duplex(1 << 12);
        near.write_all(sent).await.unwrap();
        near.shutdown().await.unwrap();
        let (reader, writer) = split(far);
        let mut reader = FrameReader::new(Box::new(reader), 1 << 20, Large::default());
        let mut writer = FrameWriter::new(Box::new(writer));
        let greeted = greet(Kind::Router, &mut reader, &mut writer).await;
        drop((reader, writer));
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer[..12], [0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0]);
        greeted.map_err(|error| error.to_string())
    }

    fn with(changes: impl FnOnce(&mut [u8; GREETING_BYTES]), ready: &[u8]) -> Vec<u8> {
        let mut sent = greeting();
        changes(&mut sent);
        let length = u8::try_from(ready.len()).unwrap();
        [&sent[..], &[4, length], ready].concat()
    }

    const DEALER: &[u8] = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x02ab";

    #[tokio::test]
    async fn a_peer_says_who_it_is() {
        assert_eq!(greeted(&with(|_| {}, DEALER)).await.unwrap(), "ab");
        // libzmq's greeting has a length in it, and a later version.
        let sent = with(|it| (it[8], it[11]) = (1, 1), DEALER);
        assert_eq!(greeted(&sent).await.unwrap(), "ab");
        let request = b"\x05READY\x0bSocket-Type\0\0\0\x03REQ";
        assert_eq!(greeted(&with(|_| {}, request)).await.unwrap(), "");
    }

    #[tokio::test]
    async fn others_are_refused() {
        for (sent, problem) in [
            (b"GET / HTTP/1.1\r\n".repeat(5), "doesn't speak ZMTP"),
            (with(|it| it[10] = 1, DEALER), "older version"),
            (with(|it| it[12..17].copy_from_slice(b"PLAIN"), DEALER), "encryption"),
            (with(|_| {}, b"\x05READY\x0bSocket-Type\0\0\0\x03SUB"), "another type"),
            (with(|_| {}, b"\x05READY"), "another type"),
            (with(|_| {}, b"\x05READY\x0bSocket-Type\xff\xff\xff\xff"), "damaged"),
            (with(|_| {}, b"\x05ERROR\x02no"), "isn't ready"),
            ([&greeting()[..], &[0, 1, b'a']].concat(), "precedes"),
            (greeting()[..40].to_vec(), "eof"),
        ] {
            let told = greeted(&sent).await.unwrap_err();
            assert!(told.contains(problem), "{told}");
        }
        let reserved = [&DEALER[..DEALER.len() - 2], b"\0a"].concat();
        assert!(greeted(&with(|_| {}, &reserved)).await.unwrap_err().contains("identity"));
    }
}
