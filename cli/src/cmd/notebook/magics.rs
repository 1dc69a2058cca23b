//! Translates a cell to Python: IPython's additions to the language become calls of
//! `get_ipython()`, as in IPython itself.
//!
//! A line is translated only where a statement can begin: not inside brackets or strings, and not
//! after a backslash. Lines keep their numbers. The calls are implemented in `guest/`.

use crate::cmd::guest::literal;
use crate::cmd::repl::input::Scanner;

/// A cell as Python.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) source: String,
    /// Whether the cell ends with `;`, so that its last value isn't displayed.
    pub(super) is_quiet: bool,
}

pub(super) fn translate(cell: &str) -> Translated {
    let cell = cell.replace("\r\n", "\n");
    cell_magic(&cell).unwrap_or_else(|| translate_lines(&cell))
}

/// Translates a cell whose first line that isn't empty begins with `%%`.
fn cell_magic(cell: &str) -> Option<Translated> {
    let content = cell.trim_start_matches(['\n', ' ', '\t']);
    let above = cell[..cell.len() - content.len()].matches('\n').count();
    let (line, body) = content.split_once('\n').unwrap_or((content, ""));
    let (name, arguments) = named(line.strip_prefix("%%")?)?;
    // IPython ends each body with a line end.
    let end = if body.is_empty() || body.ends_with('\n') { "" } else { "\n" };
    let body = format!("{body}{end}");
    let body = match name {
        // These run their body like the rest of the notebook.
        "capture" | "time" | "timeit" => translate(&body),
        _ => Translated { source: body, is_quiet: false },
    };
    let call = call("run_cell_magic", &[name, arguments, &body.source]);
    Some(Translated { source: "\n".repeat(above) + &call, is_quiet: body.is_quiet })
}

fn translate_lines(cell: &str) -> Translated {
    let mut scanner = Scanner::default();
    let mut source = String::with_capacity(cell.len());
    let mut last = None;
    let mut lines = cell.split('\n').peekable();
    while let Some(line) = lines.next() {
        if !scanner.is_open()
            && let Some(begun) = Begun::of(line)
        {
            let mut line = line.to_owned();
            let mut joined = 0;
            // Only calls of magics and commands continue after a backslash.
            while line.ends_with('\\') && lines.peek().is_some() {
                line.pop();
                line.push_str(lines.next().unwrap_or_default());
                joined += 1;
            }
            last = line.trim_end().chars().last();
            let begun = Begun::of(&line).unwrap_or(begun);
            source.push_str(&begun.python());
            source.push_str(&"\n".repeat(joined));
        } else {
            scanner.line(line);
            last = scanner.last().or(last);
            source.push_str(line);
        }
        if lines.peek().is_some() {
            source.push('\n');
        }
    }
    Translated { source, is_quiet: last == Some(';') }
}

/// A line that isn't Python.
struct Begun {
    /// The unchanged beginning: the indentation, and perhaps `name = `.
    before: String,
    call: String,
}

impl Begun {
    fn of(line: &str) -> Option<Self> {
        let content = line.trim_start_matches([' ', '\t']);
        let indentation = &line[..line.len() - content.len()];
        let content = content.trim_end();
        if let Some(call) = magic_or_command(content).or_else(|| help(content)) {
            return Some(Self { before: indentation.to_owned(), call });
        }
        let (targets, value) = content.split_once('=')?;
        let are_targets = !targets.trim().is_empty()
            && targets
                .chars()
                .all(|character| is_word(character) || " \t,._[]".contains(character));
        // `a = b = !ls` isn't IPython either.
        let call = magic_or_command(value.trim_start()).filter(|_| are_targets)?;
        let call = call.replacen(".system(", ".getoutput(", 1);
        Some(Self { before: format!("{indentation}{targets}= "), call })
    }

    fn python(&self) -> String {
        format!("{}{}", self.before, self.call)
    }
}

/// Translates `%name arguments`, `!command` and `!!command`.
fn magic_or_command(content: &str) -> Option<String> {
    if let Some(command) = content.strip_prefix("!!") {
        return Some(call("getoutput", &[command]));
    }
    if let Some(command) = content.strip_prefix('!') {
        // No command begins with `!=`.
        return (!command.starts_with('=')).then(|| call("system", &[command]));
    }
    let rest = content.strip_prefix('%')?;
    // A cell magic that isn't at the top of its cell.
    let (mark, rest) = match rest.strip_prefix('%') {
        Some(rest) => ("%", rest),
        None => ("", rest),
    };
    let (name, arguments) = named(rest)?;
    if name.ends_with('?') {
        return None;
    }
    Some(call("run_line_magic", &[&format!("{mark}{name}"), arguments]))
}

/// Translates `?name`, `name?` and the same with two marks.
fn help(content: &str) -> Option<String> {
    let name = content.trim_matches('?');
    let marks = content.len() - name.len();
    let is_name = name.starts_with(|character: char| is_word(character) && !character.is_numeric())
        && name.chars().all(|character| is_word(character) || ".[]".contains(character));
    let is_at_one_end = content.starts_with('?') != content.ends_with('?');
    if !is_name || !is_at_one_end || marks > 2 {
        return None;
    }
    let magic = if marks == 2 { "pinfo2" } else { "pinfo" };
    Some(call("run_line_magic", &[magic, name]))
}

/// Splits the name of a magic from its arguments; `None` if there is no name.
fn named(text: &str) -> Option<(&str, &str)> {
    let (name, arguments) = match text.split_once([' ', '\t']) {
        Some((name, arguments)) => (name, arguments.trim()),
        None => (text.trim_end(), ""),
    };
    let is_name = name.starts_with(|character: char| character == '_' || character.is_alphabetic());
    is_name.then_some((name, arguments))
}

fn call(method: &str, arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|text| literal(text)).collect();
    format!("get_ipython().{method}({})", arguments.join(", "))
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(cell: &str) -> String {
        translate(cell).source
    }

    #[test]
    fn python_stays_as_it_is() {
        for cell in [
            "",
            "x = 1\n\nx % 2\n",
            "x = 5 \\\n%3",
            "x = (5\n%3)",
            "text = '''\n%time\n!ls\nwhat?\n'''",
            "f'''{\n%x}'''",
            "x != 3\nx %= 3\nx == 4",
            "# why?\n'a?'",
            "f(x)?",
            "% 3",
            "x = y?",
        ] {
            assert_eq!(python(cell), cell);
        }
    }

    #[test]
    fn magics_and_commands_are_calls() {
        for (line, expected) in [
            ("%matplotlib inline", "get_ipython().run_line_magic('matplotlib', 'inline')"),
            ("%time  f('a')", "get_ipython().run_line_magic('time', 'f(\\'a\\')')"),
            ("x = %time f()", "x = get_ipython().run_line_magic('time', 'f()')"),
            ("a, b = %x", "a, b = get_ipython().run_line_magic('x', '')"),
            ("%pip install x", "get_ipython().run_line_magic('pip', 'install x')"),
            ("!ls -l", "get_ipython().system('ls -l')"),
            ("!!ls", "get_ipython().getoutput('ls')"),
            ("files = !ls", "files = get_ipython().getoutput('ls')"),
            ("?open", "get_ipython().run_line_magic('pinfo', 'open')"),
            ("np.sum??", "get_ipython().run_line_magic('pinfo2', 'np.sum')"),
            ("%%time", "get_ipython().run_cell_magic('time', '', '')"),
            (
                "%%writefile a.py\nx = '\\n'\ny",
                "get_ipython().run_cell_magic('writefile', 'a.py', 'x = \\'\\\\n\\'\\ny\\n')",
            ),
        ] {
            assert_eq!(python(line), expected);
        }
    }

    #[test]
    fn lines_keep_their_numbers_and_their_indentation() {
        assert_eq!(
            python("if x:\n    %time f()\n    !ls \\\n  -l\ny"),
            "if x:\n    get_ipython().run_line_magic('time', 'f()')\n    get_ipython().system('ls   -l')\n\ny"
        );
        assert_eq!(python("\n%%html\n<b>"), "\nget_ipython().run_cell_magic('html', '', '<b>\\n')");
        // The bodies of these are translated too, and may be such cells themselves.
        let pwd = "get_ipython().run_line_magic('pwd', '')\n";
        let timed = call("run_cell_magic", &["time", "", pwd]);
        let captured = call("run_cell_magic", &["capture", "out", &timed]);
        assert_eq!(python("%%capture out\n%%time\n%pwd"), captured);
        // Below the top it is a mistake, which the guest reports.
        assert_eq!(python("x\n%%html\ny"), "x\nget_ipython().run_line_magic('%html', '')\ny");
        assert_eq!(python("x\r\n%time y\r\n"), "x\nget_ipython().run_line_magic('time', 'y')\n");
    }

    #[test]
    fn a_semicolon_at_the_end_silences_the_cell() {
        for (cell, is_quiet) in [
            ("plot(x);", true),
            ("plot(x); # shown\n\n# so\n", true),
            ("';'", false),
            ("x; y", false),
            ("plot(x); #\ny", false),
            ("f(';')", false),
            ("%time f();", true),
            ("%%time\nf();", true),
            ("%%html\n<b>;", false),
            ("", false),
        ] {
            assert_eq!(translate(cell).is_quiet, is_quiet, "{cell:?}");
        }
    }
}
