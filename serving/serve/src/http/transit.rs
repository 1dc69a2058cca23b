//! The bytes of requests and answers that are on their way, by tenant.
//!
//! Whatever is received or waits to be read takes memory that no job's limit covers: bodies, lines of
//! batches, results with files. All of it is counted against one bound, which the pool's ledger of
//! memory has reserved.

use axum::http::StatusCode;
use hatchery::Hatchery;

use crate::shares::{Full, Shares};

use super::config::HttpConfig;
use super::failure::Failure;

/// The part of the pool's memory that requests and answers may take.
const PART: u64 = 4;

/// Reserves the bytes in the pool's ledger.
pub(super) fn of_pool(pool: &Hatchery, config: &HttpConfig) -> Shares {
    let part = pool.status().memory.limit_bytes / PART;
    let most = config.bodies_bytes.min(usize::try_from(part).unwrap_or(usize::MAX));
    // Otherwise no body could be as large as it may be.
    let most = most.max(config.body_bytes.saturating_mul(2));
    pool.reserve_memory(part.min(most as u64));
    Shares::new(most)
}

impl From<Full> for Failure {
    fn from(Full { own, most }: Full) -> Self {
        let message = format!(
            "your requests and answers that are on their way have {own} bytes, and this server has \
             room for {most} bytes of all callers: read the answers, send fewer or smaller requests \
             at once, and try again"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, "bodies", message)
    }
}
