//! Starts a pool, and says what a user should know of it.

use hatchery::{Builder, Error, Hatchery};

use crate::terminal;

/// Starts the pool. Notes which layers of the wall around worker processes this system lacks.
pub(crate) async fn start_pool(builder: Builder) -> Result<Hatchery, Error> {
    let pool = builder.start().await?;
    for layer in &pool.status().isolation.missing {
        terminal::note(format_args!("worker processes go without a layer of their wall: {layer}"));
    }
    Ok(pool)
}
