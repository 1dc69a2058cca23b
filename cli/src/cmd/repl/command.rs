//! Parses the prompt's commands, which start with `:` as no Python code does.

use std::path::PathBuf;

use rustyline::completion::unescape;

/// What `:help` prints.
pub(super) const HELP: &str = "\
:fork NAME        continue in a copy of this session; the original stays as it is
:sessions         list the sessions; `*` marks the current one
:switch NAME      continue in another session
:save FILE        write this session to a file, for `hatchery repl --session FILE` or `:load`
:load FILE        continue in a session from a file; open sessions stay open
:put FILE [PATH]  copy a file into the session's workspace, as PATH or under its own name
:get PATH [FILE]  copy a file out of the session; existing files are not overwritten
:files            list the files in the session's workspace
:displays DIR     write the last figures and tables that an input displayed into a folder
:reset            reset this session to its start
:help             show this
:quit             leave; so do Ctrl-D and `sys.exit()`

Tab completes names, attributes, commands and files. `?NAME` and `help(NAME)` say what something
is. `%time CODE` and `%timeit CODE` measure how long code takes. Ctrl-C interrupts the program; a
second one stops it and undoes its changes. Everything else is Python. A block ends with an empty
line.";

/// The longest name of a session, since the prompt shows it.
const LONGEST_NAME: usize = 40;

/// Returns the words that commands begin with, without the `:`.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    usages().filter_map(|usage| usage.split(' ').next())
}

/// Returns whether a command takes files of the host.
pub(super) fn takes_file(word: &str) -> bool {
    let mut usages = usages().filter(|usage| usage.split(' ').next() == Some(word));
    usages.any(|usage| usage.contains("FILE") || usage.contains("DIR"))
}

/// Returns the usages in the help, without the `:`.
fn usages() -> impl Iterator<Item = &'static str> {
    let usages = HELP.lines().filter_map(|line| line.strip_prefix(':'));
    usages.map(|line| line.split("  ").next().unwrap_or(line))
}

/// A command to the prompt itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplCommand {
    Help,
    Fork(String),
    Sessions,
    Switch(String),
    Save(PathBuf),
    Load(PathBuf),
    /// A file of the host, and its name in the workspace.
    Put(PathBuf, Option<String>),
    /// A file of the session, and its destination.
    Get(String, Option<PathBuf>),
    Files,
    Displays(PathBuf),
    Reset,
    Quit,
}

/// Parses a line as a command; `None` if it is Python. The error says what to write instead.
pub(super) fn parse(line: &str) -> Option<Result<ReplCommand, String>> {
    let text = line.trim().strip_prefix(':')?;
    let (word, argument) = match text.split_once(char::is_whitespace) {
        Some((word, argument)) => (word, argument.trim()),
        None => (text, ""),
    };
    Some(command(word, argument))
}

fn command(word: &str, argument: &str) -> Result<ReplCommand, String> {
    let alone = |command: ReplCommand| match argument {
        "" => Ok(command),
        _ => Err(format!("`:{word}` takes no argument")),
    };
    let path = || match argument {
        "" => Err(format!("`:{word}` needs a file: `:{word} FILE`")),
        _ => Ok(PathBuf::from(plain(argument))),
    };
    match word {
        "help" => alone(ReplCommand::Help),
        "fork" => Ok(ReplCommand::Fork(name(word, argument)?)),
        "sessions" => alone(ReplCommand::Sessions),
        "switch" => Ok(ReplCommand::Switch(name(word, argument)?)),
        "save" => Ok(ReplCommand::Save(path()?)),
        "load" => Ok(ReplCommand::Load(path()?)),
        "put" => one_or_two(argument, "`:put FILE` or `:put FILE PATH`")
            .map(|(file, path)| ReplCommand::Put(file.into(), path)),
        "get" => one_or_two(argument, "`:get PATH` or `:get PATH FILE`")
            .map(|(path, file)| ReplCommand::Get(path, file.map(PathBuf::from))),
        "files" => alone(ReplCommand::Files),
        "displays" if argument.is_empty() => Err("write `:displays DIR`".to_owned()),
        "displays" => Ok(ReplCommand::Displays(plain(argument).into())),
        "reset" => alone(ReplCommand::Reset),
        "quit" => alone(ReplCommand::Quit),
        _ => Err(format!("there is no command `:{word}`; `:help` lists them")),
    }
}

/// Removes the backslashes that completion puts before spaces in file names.
fn plain(text: &str) -> String {
    unescape(text, Some('\\')).into_owned()
}

/// Splits one or two words. A word with spaces is quoted, or has a backslash before each space.
fn one_or_two(text: &str, usage: &str) -> Result<(String, Option<String>), String> {
    let mut words = shlex::split(text).ok_or("a quote is not closed")?.into_iter();
    match (words.next(), words.next(), words.next()) {
        (Some(first), second, None) => Ok((first, second)),
        _ => Err(format!("write {usage}; put names with spaces in quotes")),
    }
}

/// Checks a session's name: letters, digits, `_`, `-` and `.`, so that the prompt can show it.
fn name(word: &str, argument: &str) -> Result<String, String> {
    if argument.is_empty() {
        return Err(format!("`:{word}` needs the name of a session: `:{word} NAME`"));
    }
    let is_short = argument.chars().count() <= LONGEST_NAME;
    if is_short && argument.chars().all(is_plain) {
        return Ok(argument.to_owned());
    }
    Err(format!(
        "`{argument}` can't be a session's name: use letters, digits, `_`, `-` and `.`, at most \
         {LONGEST_NAME}"
    ))
}

fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.')
}

/// Makes a session's name from the name of its file.
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
            (":help", ReplCommand::Help),
            (":fork try-2", ReplCommand::Fork("try-2".to_owned())),
            ("  :fork\t été ", ReplCommand::Fork("été".to_owned())),
            (":sessions", ReplCommand::Sessions),
            (":switch repl", ReplCommand::Switch("repl".to_owned())),
            (":save a b.session", ReplCommand::Save("a b.session".into())),
            (":load /tmp/x", ReplCommand::Load("/tmp/x".into())),
            (":put a.csv", ReplCommand::Put("a.csv".into(), None)),
            (":put 'a b.csv'  \"x y\"", ReplCommand::Put("a b.csv".into(), Some("x y".to_owned()))),
            (r":put a\ b.csv x\ y", ReplCommand::Put("a b.csv".into(), Some("x y".to_owned()))),
            (r":save a\ b.session", ReplCommand::Save("a b.session".into())),
            (":get out/a.csv", ReplCommand::Get("out/a.csv".to_owned(), None)),
            (":get a ../b", ReplCommand::Get("a".to_owned(), Some("../b".into()))),
            (":files", ReplCommand::Files),
            (":displays my plots", ReplCommand::Displays("my plots".into())),
            (":reset ", ReplCommand::Reset),
            (":quit", ReplCommand::Quit),
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
            (":put", ":put FILE"),
            (":get a b c", "in quotes"),
            (":put 'a", "quote"),
            (":files x", "takes no argument"),
            (":displays", ":displays DIR"),
            (":quit now", "takes no argument"),
            (":fork a b", "`a b` can't be"),
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

    /// The help is all that a reader has to go by, so it lists every command.
    #[test]
    fn the_help_lists_commands_that_there_are() {
        for line in HELP.lines().filter(|line| line.starts_with(':')) {
            let usage = line.split("  ").next().unwrap().replace(['[', ']'], "");
            assert!(matches!(parse(&usage), Some(Ok(_))), "{usage}");
        }
    }

    #[test]
    fn commands_that_name_files_are_known() {
        let takers: Vec<_> = words().filter(|word| takes_file(word)).collect();
        assert_eq!(takers, ["save", "load", "put", "get", "displays"]);
        assert_eq!(words().count(), 12);
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
