//! `hatchery cache`: lists what the cache holds, and prunes it.

use std::time::SystemTime;

use bytesize::ByteSize;
use hatchery::cache::{CacheDir, CacheEntry, Prune};
use hatchery::config::EngineConfig;
use serde_json::{Value, json};

use super::image::{age, cache_dir};
use crate::args::{CacheCommand, PruneArguments};
use crate::exit::Exit;
use crate::terminal;

/// Characters of a name that distinguish entries for a reader.
const SHOWN_CHARACTERS: usize = 32;

pub(crate) fn run(command: CacheCommand) -> anyhow::Result<Exit> {
    match command {
        CacheCommand::Info { json } => info(json),
        CacheCommand::Prune(arguments) => prune(&arguments),
    }
}

fn info(is_json: bool) -> anyhow::Result<Exit> {
    let EngineConfig { cache_dir, cache_bound_bytes, .. } = EngineConfig::from_env();
    let root = CacheDir::open(cache_dir.as_deref())?.root().to_owned();
    let entries = hatchery::cache::entries(cache_dir.as_deref())?;
    if is_json {
        terminal::print(json!({
            "path": root.to_string_lossy(),
            "bytes": bytes(&entries),
            "bound_bytes": cache_bound_bytes,
            "entries": Value::from_iter(entries.iter().map(as_json)),
        }))?;
        return Ok(Exit::Success);
    }
    terminal::print_table(&table(&entries, SystemTime::now()))?;
    let [size, bound] = [bytes(&entries), cache_bound_bytes].map(ByteSize::b);
    terminal::print(format_args!(
        "{size} in `{}`; above {bound}, each start prints a note",
        root.display()
    ))?;
    Ok(Exit::Success)
}

fn prune(arguments: &PruneArguments) -> anyhow::Result<Exit> {
    let request = Prune {
        older_than: arguments.older_than,
        to_bytes: arguments.to_size.map(|size| size.as_u64()),
        is_dry_run: arguments.dry_run,
    };
    let pruned = hatchery::cache::prune(cache_dir().as_deref(), &request)?;
    let (removed, kept) = (bytes(&pruned.removed), bytes(&pruned.kept));
    if arguments.json {
        terminal::print(json!({
            "is_dry_run": request.is_dry_run,
            "removed_bytes": removed,
            "kept_bytes": kept,
            "removed": Value::from_iter(pruned.removed.iter().map(as_json)),
        }))?;
        return Ok(Exit::Success);
    }
    if !pruned.removed.is_empty() {
        terminal::print_table(&table(&pruned.removed, SystemTime::now()))?;
    }
    let done = if request.is_dry_run { "would remove" } else { "removed" };
    let [removed, left] = [removed, kept].map(ByteSize::b);
    let in_use = pruned.kept.iter().filter(|entry| entry.is_in_use).count();
    let used = match in_use {
        0 => String::new(),
        count => format!(", {count} of them in use"),
    };
    terminal::print(format_args!(
        "{done} {}, {removed}; {} left, {left}{used}",
        entries(pruned.removed.len()),
        entries(pruned.kept.len())
    ))?;
    Ok(Exit::Success)
}

/// Returns a number of entries with its noun.
fn entries(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

fn bytes(entries: &[CacheEntry]) -> u64 {
    entries.iter().map(|entry| entry.bytes).sum()
}

fn as_json(entry: &CacheEntry) -> Value {
    json!({
        "kind": entry.kind,
        "name": entry.name,
        "path": entry.path.to_string_lossy(),
        "bytes": entry.bytes,
        "last_used": humantime::format_rfc3339_seconds(entry.last_used).to_string(),
        "is_in_use": entry.is_in_use,
        "is_needed": entry.is_needed,
    })
}

/// Formats a heading and a row for each entry.
fn table(entries: &[CacheEntry], now: SystemTime) -> Vec<[String; 5]> {
    let mut rows = vec![["KIND", "NAME", "SIZE", "LAST USED", ""].map(str::to_owned)];
    rows.extend(entries.iter().map(|entry| {
        let name = entry.name.chars().take(SHOWN_CHARACTERS).collect();
        let remark = match (entry.is_in_use, entry.is_needed) {
            (true, _) => "in use",
            (false, true) => "needed by every start",
            (false, false) => "",
        };
        let size = ByteSize::b(entry.bytes).to_string();
        [entry.kind.name().to_owned(), name, size, age(entry.last_used, now), remark.to_owned()]
    }));
    rows
}
