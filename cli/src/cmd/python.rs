//! `hatchery python`: the Python build and its cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery::cache::{CacheDir, CacheEntryKind};
use hatchery::config::{EngineConfig, HostKind, PYTHON_MODULE_VARIABLE};
use hatchery::progress::{Progress, ProgressSink};
use hatchery::{DEFAULT_PYTHON, Hatchery};

use crate::args::PythonCommand;
use crate::args::image::{PythonArgument, default_of};
use crate::exit::Exit;
use crate::{progress, terminal};

pub(crate) async fn python(command: PythonCommand) -> anyhow::Result<Exit> {
    match command {
        PythonCommand::Install { module, sha256 } => install(module.zip(sha256)).await,
        PythonCommand::Precompile { file } => precompile(&file),
        PythonCommand::Info { pythons, host } => info_of(&pythons, host),
    }
}

async fn install(module: Option<(PathBuf, String)>) -> anyhow::Result<Exit> {
    let mut builder = Hatchery::builder().workers(1).progress(progress::sink());
    if let Some((path, sha256)) = module {
        builder = builder.python_module(path, sha256);
    }
    builder.start().await?.abort().await;
    info()
}

fn precompile(file: &Path) -> anyhow::Result<Exit> {
    let progress: Arc<dyn ProgressSink> = Arc::new(progress::sink());
    let packed = hatchery::python::precompile(&EngineConfig::from_env(), file, &progress)?;
    progress.report(Progress::Ready);
    let path = file.display();
    terminal::print(format_args!("module   {path}, for {}", packed.target))?;
    terminal::print(format_args!("sha256   {}", packed.sha256))?;
    let hash = packed.sha256;
    terminal::note(format_args!(
        "another machine installs it with `hatchery python install --module {path} --sha256 {hash}`"
    ));
    Ok(Exit::Success)
}

fn info() -> anyhow::Result<Exit> {
    let config = EngineConfig::from_env();
    let cache = CacheDir::open(config.cache_dir.as_deref())?;
    terminal::print(format_args!("build    {}", hatchery::python::WHEEL_REQUIREMENT))?;
    terminal::print(format_args!("cache    {}", cache.root().display()))?;
    let compiled = format!("compiled for {}", hatchery::python::module_target());
    let entries = hatchery::cache::entries(config.cache_dir.as_deref())?;
    for (name, kind, what) in [
        ("builds", CacheEntryKind::Build, "fetched"),
        ("modules", CacheEntryKind::Module, &compiled),
    ] {
        let of_kind = entries.iter().filter(|entry| entry.kind == kind);
        let state = match of_kind.map(|entry| entry.bytes).sum::<u64>() {
            0 => format!("not yet {what}"),
            bytes => format!("{what}, {} MB", bytes / 1_000_000),
        };
        terminal::print(format_args!("{name:8} {state}"))?;
    }
    let packed = config.module.map_or_else(
        || "none".to_owned(),
        |module| {
            let is_named = std::env::var_os(PYTHON_MODULE_VARIABLE).is_some_and(|v| !v.is_empty());
            let from = match is_named {
                true => format!("named by {PYTHON_MODULE_VARIABLE}"),
                false => "installed with this program".to_owned(),
            };
            format!("{}, {from}", module.path.display())
        },
    );
    terminal::print(format_args!("packed   {packed}"))?;
    Ok(Exit::Success)
}

/// Shows the builds of a command with these `--python`: the default one, and those with names.
fn info_of(pythons: &[PythonArgument], host: HostKind) -> anyhow::Result<Exit> {
    let config = EngineConfig { host, ..EngineConfig::from_env() };
    let default = default_of(pythons)?.cloned().or_else(|| config.python.clone());
    let named: Vec<(&String, &PathBuf)> =
        pythons.iter().filter_map(|python| Some((python.name.as_ref()?, &python.path))).collect();
    if !named.is_empty() {
        terminal::print(format_args!("name     {DEFAULT_PYTHON}"))?;
    }
    match default {
        Some(path) => describe(EngineConfig { python: Some(path), ..config.clone() })?,
        None => info()?,
    };
    for (name, path) in named {
        terminal::print(format_args!("\nname     {name}"))?;
        describe(EngineConfig { python: Some(path.clone()), module: None, ..config.clone() })?;
    }
    Ok(Exit::Success)
}

/// Shows what a build of the user's is and can do.
fn describe(config: EngineConfig) -> anyhow::Result<Exit> {
    let progress: Arc<dyn ProgressSink> = Arc::new(progress::sink());
    let build = hatchery::python::describe(&config, &progress)?;
    progress.report(Progress::Ready);
    terminal::print(format_args!("build    {}", build.name))?;
    terminal::print(format_args!("version  {}", build.version))?;
    terminal::print(format_args!("kind     {}, served by {}", build.kind, build.interfaces))?;
    terminal::print(format_args!("host     {}", build.host))?;
    for (feature, missing) in build.features {
        let state = missing.map_or("yes".to_owned(), |why| format!("no: {why}"));
        terminal::print(format_args!("{feature}: {state}"))?;
    }
    Ok(Exit::Success)
}
