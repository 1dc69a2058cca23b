//! The commands of the prompt, which start with `:` as no Python does. Parses, does nothing.

use std::path::PathBuf;

/// What `:help` prints.
pub(super) const HELP: &str = "\
:fork NAME     go on in a copy of this session; the session stays as it is
:sessions      list the sessions; `*` marks the present one
:switch NAME   go on in another session
:save FILE     write this session to a file, for `hatchery repl --session FILE` or `:load`
:load FILE     go on in a session from a file, beside those that are open
:reset         forget what this session did
:help          show this
:quit          leave; so do Ctrl-D and `sys.exit()`

Ctrl-C interrupts the program, and a second one stops it, which costs the session.
Everything else is Python. A block ends with an empty line.";

/// The longest name of a session, which the prompt shows.
const LONGEST_NAME: usize = 40;

/// What the user wants of the prompt itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Fork(String),
    Sessions,
    Switch(String),
    Save(PathBuf),
    Load(PathBuf),
    Reset,
    Quit,
}

/// The command in a line; `None` if it is Python. The error says what to write instead.
pub(super) fn parse(line: &str) -> Option<Result<Command, String>> {
    let text = line.trim().strip_prefix(':')?;
    let (word, argument) = match text.split_once(char::is_whitespace) {
        Some((word, argument)) => (word, argument.trim()),
        None => (text, ""),
    };
    Some(command(word, argument))
}

fn command(word: &str, argument: &str) -> Result<Command, String> {
    let alone = |command: Command| match argument {
        "" => Ok(command),
        _ => Err(format!("`:{word}` takes nothing; write it alone")),
    };
    let path = || match argument {
        "" => Err(format!("`:{word}` wants a file: `:{word} FILE`")),
        _ => Ok(PathBuf::from(argument)),
    };
    match word {
        "help" => alone(Command::Help),
        "fork" => Ok(Command::Fork(name(word, argument)?)),
        "sessions" => alone(Command::Sessions),
        "switch" => Ok(Command::Switch(name(word, argument)?)),
        "save" => Ok(Command::Save(path()?)),
        "load" => Ok(Command::Load(path()?)),
        "reset" => alone(Command::Reset),
        "quit" => alone(Command::Quit),
        _ => Err(format!("there is no command `:{word}`; `:help` lists them")),
    }
}

/// A name that the prompt can show: a word of letters, digits, `_`, `-` and `.`.
fn name(word: &str, argument: &str) -> Result<String, String> {
    if argument.is_empty() {
        return Err(format!("`:{word}` wants the name of a session: `:{word} NAME`"));
    }
    let is_short = argument.chars().count() <= LONGEST_NAME;
    if is_short && argument.chars().all(is_plain) {
        return Ok(argument.to_owned());
    }
    Err(format!(
        "a session's name has letters, digits, `_`, `-` and `.`, at most {LONGEST_NAME}; \
         `{argument}` is none"
    ))
}

fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.')
}

/// A name for a session that comes from a file, made of the file's own.
pub(super) fn name_of_file(file: &std::path::Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |character| if is_plain(character) { character } else { '-' };
    let name: String = stem.chars().take(LONGEST_NAME).map(plain).collect();
    if name.is_empty() { "loaded".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        for (line, expected) in [
            (":help", Command::Help),
            (":fork try-2", Command::Fork("try-2".to_owned())),
            ("  :fork\t été ", Command::Fork("été".to_owned())),
            (":sessions", Command::Sessions),
            (":switch repl", Command::Switch("repl".to_owned())),
            (":save a b.session", Command::Save("a b.session".into())),
            (":load /tmp/x", Command::Load("/tmp/x".into())),
            (":reset ", Command::Reset),
            (":quit", Command::Quit),
        ] {
            assert_eq!(parse(line), Some(Ok(expected)), "{line}");
        }
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let long = format!(":fork {}", "x".repeat(41));
        for (line, expected) in [
            (":", ":help"),
            (":fro", ":help"),
            (":Quit", ":help"),
            (": quit", ":help"),
            (":fork", ":fork NAME"),
            (":switch", ":switch NAME"),
            (":save", ":save FILE"),
            (":load  ", ":load FILE"),
            (":quit now", "alone"),
            (":fork a b", "`a b` is none"),
            (":fork a/b", "letters"),
            (&long, "at most 40"),
        ] {
            let problem = parse(line).unwrap().unwrap_err();
            assert!(problem.contains(expected), "{line}: {problem}");
        }
    }

    #[test]
    fn everything_else_is_python() {
        for line in ["", "x", "x: int", "def f():", "'a' :", "#:quit"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    /// The help is what a reader has to go by, so it lists every command in its own words.
    #[test]
    fn the_help_lists_commands_that_there_are() {
        for line in HELP.lines().filter(|line| line.starts_with(':')) {
            let usage = line.split("  ").next().unwrap();
            assert!(matches!(parse(usage), Some(Ok(_))), "{usage}");
        }
    }

    #[test]
    fn sessions_from_files_have_names_for_the_prompt() {
        for (file, name) in
            [("/tmp/sales.session", "sales"), ("a b", "a-b"), ("/", "loaded"), (".x", ".x")]
        {
            assert_eq!(name_of_file(file.as_ref()), name);
        }
    }
}
