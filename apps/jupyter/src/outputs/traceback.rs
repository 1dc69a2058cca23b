//! Tracebacks in the colours of Python's own prompt, as ANSI escape sequences.

const FILE: &str = "\x1b[35m";
const NAME: &str = "\x1b[1;35m";
const PLACE: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// Returns the lines of a traceback with colours. Escape sequences of the program's own stay: front
/// ends show colours and drop the rest.
pub(crate) fn colored(traceback: &str) -> Vec<String> {
    traceback.lines().map(line).collect()
}

fn line(line: &str) -> String {
    let marks = line.trim_start();
    if let Some(place) = place(line) {
        return place;
    }
    if !marks.is_empty() && marks.chars().all(|mark| "^~ ".contains(mark)) {
        return format!("{PLACE}{line}{PLAIN}");
    }
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|part| part.is_alphanumeric() || "_.".contains(part))
    };
    match line.split_once(": ") {
        Some((name, message)) if is_name(name) => {
            format!("{NAME}{name}{PLAIN}: {FILE}{message}{PLAIN}")
        }
        _ if is_name(line) => format!("{NAME}{line}{PLAIN}"),
        _ => line.to_owned(),
    }
}

/// Colours `  File "…", line 1, in f`; `None` for other lines.
fn place(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("File \"")?;
    if !before.trim().is_empty() {
        return None;
    }
    let (file, rest) = rest.split_once("\", line ")?;
    let (number, function) = match rest.split_once(", in ") {
        Some((number, function)) => (number, format!(", in {FILE}{function}{PLAIN}")),
        None => (rest, String::new()),
    };
    Some(format!("{before}File {FILE}\"{file}\"{PLAIN}, line {FILE}{number}{PLAIN}{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_marks_and_the_exception_have_colours() {
        let traceback = "Traceback (most recent call last):\n  \
                         File \"In[1]\", line 1, in <module>\n    1/0\n    ~^~\n\
                         ZeroDivisionError: division by zero\n";
        let shown = colored(traceback).join("\n");
        let shown = shown.replace(FILE, "<f>").replace(NAME, "<n>");
        let shown = shown.replace(PLACE, "<p>").replace(PLAIN, "<>");
        let expected = "Traceback (most recent call last):\n  \
                        File <f>\"In[1]\"<>, line <f>1<>, in <f><module><>\n    1/0\n\
                        <p>    ~^~<>\n\
                        <n>ZeroDivisionError<>: <f>division by zero<>";
        assert_eq!(shown, expected);
        assert_eq!(colored("KeyboardInterrupt"), [format!("{NAME}KeyboardInterrupt{PLAIN}")]);
        assert_eq!(colored("a text: of a program"), ["a text: of a program"]);
    }
}
