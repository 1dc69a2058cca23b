//! The names of Python.

const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// Returns whether `text` can be a name in a program.
pub(crate) fn is_name(text: &str) -> bool {
    is_identifier(text) && !KEYWORDS.contains(&text)
}

/// Returns whether `text` is an identifier, keywords included.
pub(crate) fn is_identifier(text: &str) -> bool {
    let mut letters = text.chars();
    let begins = letters.next().is_some_and(|first| first == '_' || first.is_alphabetic());
    begins && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pythons() {
        for name in ["x", "_", "x1", "\u{e4}", "match", "__main__"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "1x", "a b", "a.b", "a-b", "None", "lambda", "x\0"] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
