//! The key that front end and kernel share, and the signatures that it makes.

use std::fmt::{Debug, Formatter};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The length of a signature, in bytes; in a message it is written in hexadecimal.
const SIGNATURE_BYTES: usize = 32;

/// A key of HMAC-SHA256. An empty key signs nothing and accepts everything.
#[derive(Clone)]
pub(crate) struct Key(Option<Hmac<Sha256>>);

impl Debug for Key {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

impl Key {
    pub(crate) fn new(key: &[u8]) -> Self {
        let mac = (!key.is_empty()).then(|| Hmac::new_from_slice(key));
        Self(mac.map(|mac| mac.expect("HMAC takes keys of any length")))
    }

    /// Returns the signature of the parts of a message.
    pub(crate) fn sign<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> String {
        let Some(mac) = self.mac_of(parts) else { return String::new() };
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns whether a signature is that of the parts, in a time that doesn't depend on how much
    /// of it is right.
    pub(crate) fn verifies<'a>(
        &self,
        signature: &[u8],
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        match (self.mac_of(parts), from_hexadecimal(signature)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mac), Some(signature)) => mac.verify_slice(&signature).is_ok(),
        }
    }

    fn mac_of<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Option<Hmac<Sha256>> {
        let mut mac = self.0.clone()?;
        parts.into_iter().for_each(|part| mac.update(part));
        Some(mac)
    }
}

fn from_hexadecimal(text: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != SIGNATURE_BYTES || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; SIGNATURE_BYTES];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}
