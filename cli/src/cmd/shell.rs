//! The command line about itself: completions for shells, man pages, and what the configuration sets.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;

use crate::args::definition;
use crate::exit::{Exit, UsageError};
use crate::settings::{self, Settings};
use crate::terminal;

/// `hatchery completions`.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut definition(), "hatchery", &mut text);
    terminal::write(&text)?;
    Ok(Exit::Success)
}

/// `hatchery man`.
pub(crate) fn man(out: Option<&Path>) -> anyhow::Result<Exit> {
    let Some(folder) = out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(definition()).render(&mut page)?;
        terminal::write(&page)?;
        return Ok(Exit::Success);
    };
    let unwritable = || UsageError(format!("can't write pages into `{}`", folder.display()));
    fs::create_dir_all(folder).with_context(unwritable)?;
    clap_mangen::generate_to(definition(), folder).with_context(unwritable)?;
    Ok(Exit::Success)
}

/// `hatchery config`.
pub(crate) fn config(settings: Option<&Settings>) -> anyhow::Result<Exit> {
    let Some(Settings { path, list }) = settings else {
        let own = settings::users_own(|name| std::env::var_os(name));
        let own =
            own.map_or_else(String::new, |path| format!("; `{}` would be it", path.display()));
        terminal::note(format_args!("there is no configuration file{own}"));
        return Ok(Exit::Success);
    };
    let mut rows = vec![["setting", "value", "from"].map(str::to_owned)];
    for setting in list {
        let place = format!("{}:{}", path.display(), setting.line);
        let (value, place) = match setting.overridden_by {
            Some(name) => {
                (std::env::var(name).unwrap_or_default(), format!("${name}, not {place}"))
            }
            None => (setting.values.join(", "), place),
        };
        rows.push([setting.option.to_owned(), value, place]);
    }
    terminal::print_table(&rows)?;
    Ok(Exit::Success)
}
