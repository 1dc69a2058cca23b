//! Packages `.webc`, where Hatchery was built without wasmer's crate for them.

use bytes::Bytes;

use crate::cause::Cause;

pub(super) fn module(_contents: Vec<u8>) -> Result<Vec<u8>, Cause> {
    Err("packages `.webc` need Hatchery's feature `wasix`, which it was built without".into())
}

pub(super) fn library(contents: Vec<u8>) -> Result<Vec<(String, Bytes)>, Cause> {
    module(contents).map(|_| Vec::new())
}
