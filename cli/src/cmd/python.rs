//! `hatchery python`: the Python build and its cache.

use std::fs;
use std::path::Path;

use hatchery::Hatchery;
use hatchery::cache::CacheDir;
use hatchery::config::EngineConfig;

use crate::exit::Exit;
use crate::{progress, terminal};

pub(crate) async fn install() -> anyhow::Result<Exit> {
    let hatchery = Hatchery::builder().workers(1).progress(progress::sink()).start().await?;
    hatchery.abort().await;
    info()
}

pub(crate) fn info() -> anyhow::Result<Exit> {
    let config = EngineConfig::from_env();
    let cache = CacheDir::open(config.cache_dir.as_deref())?;
    terminal::print(format_args!("build    {}", hatchery::python::WHEEL_REQUIREMENT))?;
    terminal::print(format_args!("cache    {}", cache.root().display()))?;
    for (name, what) in [("builds", "fetched"), ("modules", "compiled")] {
        let bytes = size_of(&cache.root().join(name));
        let state = match bytes {
            0 => format!("not yet {what}"),
            _ => format!("{what}, {} MB", bytes / 1_000_000),
        };
        terminal::print(format_args!("{name:8} {state}"))?;
    }
    Ok(Exit::Success)
}

/// Returns the bytes of all files below `folder`; unreadable ones count as nothing.
fn size_of(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
