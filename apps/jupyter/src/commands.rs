//! The magics that the kernel executes itself. They copy or replace a session's state, which is
//! impossible while a cell runs: `%fork`, `%switch`, `%sessions`, `%checkpoint`, `%restore`.
//!
//! They are the only lines of their cell. In other cells the guest refuses them.

/// The checkpoint that has no name.
const DEFAULT_CHECKPOINT: &str = "checkpoint";

/// The longest name of a session or checkpoint, in characters.
const LONGEST_NAME: usize = 100;

/// What a line of such a cell asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Open another session that continues from the present one's state, and go on there.
    Fork(String),
    /// Go on in a session that is open.
    Switch(String),
    /// List the sessions and checkpoints.
    Sessions,
    /// Keep the present state under this name.
    Checkpoint(String),
    /// Return to the state of this name.
    Restore(String),
}

/// Returns the commands of a cell that consists of them; `None` for any other cell.
pub(crate) fn parse<'a>(source: &'a str) -> Option<Result<Vec<Command>, String>> {
    let lines = source.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let words = |line: &'a str| {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is_known = ["%fork", "%switch", "%sessions", "%checkpoint", "%restore"].contains(&name);
        is_known.then(|| (name, rest.trim().to_owned()))
    };
    let lines: Vec<_> = lines.map(words).collect::<Option<_>>()?;
    let commands = lines.into_iter().map(|(magic, rest)| command(magic, rest));
    (commands.len() > 0).then(|| commands.collect())
}

fn command(magic: &str, rest: String) -> Result<Command, String> {
    let is_name = |name: &str| {
        name.chars().count() <= LONGEST_NAME
            && name.chars().all(|part| part.is_alphanumeric() || "-_.".contains(part))
    };
    if !is_name(&rest) {
        return Err(format!(
            "`{magic}` takes a name of at most {LONGEST_NAME} letters, digits, `-`, `.` and `_`"
        ));
    }
    match (magic, rest.as_str()) {
        ("%fork" | "%switch", "") => {
            Err(format!("`{magic}` needs a name, as in `{magic} attempt`"))
        }
        ("%sessions", "") => Ok(Command::Sessions),
        ("%sessions", _) => Err("`%sessions` takes no name".to_owned()),
        ("%checkpoint", "") => Ok(Command::Checkpoint(DEFAULT_CHECKPOINT.to_owned())),
        ("%restore", "") => Ok(Command::Restore(DEFAULT_CHECKPOINT.to_owned())),
        ("%fork", _) => Ok(Command::Fork(rest)),
        ("%switch", _) => Ok(Command::Switch(rest)),
        ("%checkpoint", _) => Ok(Command::Checkpoint(rest)),
        _ => Ok(Command::Restore(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_commands_alone_are_commands() {
        let fork = Command::Fork("a-1".to_owned());
        assert_eq!(parse("  %fork a-1 \n"), Some(Ok(vec![fork.clone()])));
        let both = parse("# try it\n%checkpoint\n\n%fork a-1\n");
        let checkpoint = Command::Checkpoint(DEFAULT_CHECKPOINT.to_owned());
        assert_eq!(both, Some(Ok(vec![checkpoint, fork])));
        for source in ["", "# nothing", "x = 1\n%fork a", "%forked a", "%time x", "fork a"] {
            assert_eq!(parse(source), None, "{source}");
        }
        for source in ["%fork", "%switch", "%fork a b", "%sessions a", "%restore ../a"] {
            assert!(matches!(parse(source), Some(Err(_))), "{source}");
        }
    }
}
