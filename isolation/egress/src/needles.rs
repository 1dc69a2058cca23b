//! Finds and replaces texts in what passes, also where a text is split over chunks.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use memchr::memmem;
use zeroize::Zeroizing;

/// A text to look for.
pub(crate) struct Needle {
    text: Zeroizing<Vec<u8>>,
    /// `None` if the text must not pass.
    replacement: Option<Zeroizing<Vec<u8>>>,
    /// The number of the secret that it stands for.
    pub(crate) secret: usize,
}

/// Texts to look for. It has no `Debug`, since some are secret.
#[derive(Default)]
pub(crate) struct Needles(Vec<Needle>);

impl Needles {
    /// Looks for a text, which must not pass if there is no replacement.
    pub(crate) fn add(&mut self, secret: usize, text: &[u8], replacement: Option<&[u8]>) {
        if self.0.iter().all(|needle| *needle.text != text) {
            let text = Zeroizing::new(text.to_vec());
            let replacement = replacement.map(|it| Zeroizing::new(it.to_vec()));
            self.0.push(Needle { text, replacement, secret });
        }
    }

    /// Also looks for the text where it is a part of something in base64: what it looks like there
    /// depends on where it begins, modulo 3, apart from its ends.
    pub(crate) fn add_in_base64(&mut self, secret: usize, text: &[u8], replacement: Option<&[u8]>) {
        for (shift, begin) in [(0, 0), (1, 2), (2, 3)] {
            let shifted = Zeroizing::new([&[0; 2][..shift], text].concat());
            let end = shifted.len() * 8 / 6;
            for encoded in [STANDARD_NO_PAD.encode(&*shifted), URL_SAFE_NO_PAD.encode(&*shifted)] {
                let encoded = Zeroizing::new(encoded);
                self.add(secret, &encoded.as_bytes()[begin..end], replacement);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the first needle, and of several there the longest. Returns where it begins.
    pub(crate) fn find(&self, text: &[u8]) -> Option<(usize, &Needle)> {
        let found = self
            .0
            .iter()
            .filter_map(|needle| memmem::find(text, &needle.text).map(|at| (at, needle)));
        found.min_by_key(|(at, needle)| (*at, usize::MAX - needle.text.len()))
    }

    /// Replaces every needle; `None` if there is none.
    pub(crate) fn replace(&self, text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (mut replaced, rest) = self.replace_whole(text).ok()?;
        replaced.extend_from_slice(rest);
        (rest.len() < text.len()).then_some(replaced)
    }

    /// Replaces needles in the text up to the last one, and returns it with what follows. The error
    /// is the number of a secret that must not pass.
    fn replace_whole<'a>(&self, text: &'a [u8]) -> Result<(Zeroizing<Vec<u8>>, &'a [u8]), usize> {
        let mut replaced = Zeroizing::new(Vec::new());
        let mut rest = text;
        while let Some((at, needle)) = self.find(rest) {
            replaced.extend_from_slice(&rest[..at]);
            replaced.extend_from_slice(needle.replacement.as_ref().ok_or(needle.secret)?);
            rest = &rest[at + needle.text.len()..];
        }
        Ok((replaced, rest))
    }

    /// Returns the length of the longest end of the text with which a needle begins.
    fn begun(&self, text: &[u8]) -> usize {
        let begun = |needle: &Needle| {
            let most = text.len().min(needle.text.len().saturating_sub(1));
            (1..=most).rev().find(|length| text.ends_with(&needle.text[..*length])).unwrap_or(0)
        };
        self.0.iter().map(begun).max().unwrap_or(0)
    }
}

/// Replaces needles in a text that comes in chunks. It only holds back what may begin one.
#[derive(Default)]
pub(crate) struct Replacing {
    held: Zeroizing<Vec<u8>>,
}

impl Replacing {
    /// Takes a chunk, the last one if `is_end`, and returns what can be passed on. The error is the
    /// number of a secret that must not pass.
    pub(crate) fn push(
        &mut self,
        needles: &Needles,
        chunk: Bytes,
        is_end: bool,
    ) -> Result<Bytes, usize> {
        let held = std::mem::take(&mut self.held);
        let joined;
        let text: &[u8] = match held.is_empty() {
            true => &chunk,
            false => {
                joined = Zeroizing::new([&held, &chunk[..]].concat());
                &joined
            }
        };
        let (mut passed, rest) = needles.replace_whole(text)?;
        let kept = if is_end { 0 } else { needles.begun(rest) };
        let (sent, kept) = rest.split_at(rest.len() - kept);
        self.held.extend_from_slice(kept);
        if held.is_empty() && rest.len() == chunk.len() {
            return Ok(chunk.slice(..sent.len()));
        }
        passed.extend_from_slice(sent);
        Ok(Bytes::copy_from_slice(&passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needles() -> Needles {
        let mut needles = Needles::default();
        needles.add(0, b"secret-value", Some(b"<0>"));
        needles.add_in_base64(0, b"secret-value", Some(b"<0>"));
        needles.add(1, b"other-value", Some(b"<1>"));
        needles
    }

    #[test]
    fn needles_split_over_chunks_are_replaced() {
        let needles = needles();
        let text = b"a secret-value, secret-secret-valu and other-valuesecret-valueother-valu";
        let expected = b"a <0>, secret-secret-valu and <1><0>other-valu";
        for size in 1..=text.len() {
            let mut replacing = Replacing::default();
            let mut passed = Vec::new();
            for chunk in text.chunks(size) {
                passed.extend(
                    replacing.push(&needles, Bytes::copy_from_slice(chunk), false).unwrap(),
                );
            }
            passed.extend(replacing.push(&needles, Bytes::new(), true).unwrap());
            assert_eq!(passed, expected, "{size}");
        }
    }

    #[test]
    fn only_what_may_begin_a_needle_is_held_back() {
        let needles = needles();
        let mut replacing = Replacing::default();
        let mut pass = |text: &'static str| {
            replacing.push(&needles, Bytes::from_static(text.as_bytes()), false).unwrap()
        };
        assert_eq!(pass("data: 1\n"), "data: 1\n");
        assert_eq!(pass("data: se"), "data: ");
        assert_eq!(pass("cond"), "second");
    }

    #[test]
    fn base64_is_found_wherever_it_begins() {
        let needles = needles();
        for before in ["", "u", "us", "user:", "user:x", "user:xy"] {
            for after in ["", "z", "zz"] {
                let encoded = STANDARD_NO_PAD.encode(format!("{before}secret-value{after}"));
                let replaced = needles.replace(encoded.as_bytes());
                assert!(replaced.is_some_and(|text| text.len() < 20), "{before:?} {after:?}");
            }
        }
        assert!(needles.replace(b"secret_value").is_none());
    }

    #[test]
    fn what_must_not_pass_stops_the_text() {
        let mut needles = needles();
        needles.add(2, b"placeholder", None);
        let mut replacing = Replacing::default();
        let mut pass = |text: &'static str| {
            replacing.push(&needles, Bytes::from_static(text.as_bytes()), false)
        };
        assert_eq!(pass("x secret-value place").unwrap(), "x <0> ");
        assert_eq!(pass("holder"), Err(2));
    }
}
