//! Splits Python into the parts that a prompt shows in colours, whether it is complete or not.

const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// Returns whether a word is a keyword of Python.
pub fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

/// What may stand before the quotes of a string, in lower case.
const PREFIXES: [&str; 11] = ["r", "b", "u", "f", "t", "br", "rb", "fr", "rf", "tr", "rt"];

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// A word of the language.
    Keyword,
    /// A number.
    Number,
    /// A string, with its prefix and quotes.
    String,
    /// A comment.
    Comment,
    /// Names, operators and spaces.
    Other,
}

/// Passes on all parts of a text. Returns the string or comment that its end is in, else `Other`.
pub fn parts<'a>(text: &'a str, visit: impl FnMut(Part, &'a str)) -> Part {
    let mut lexer = Lexer { rest: text, visit, end: Part::Other };
    lexer.code(false);
    lexer.end
}

/// Returns whether a character can be part of a name.
pub fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

struct Lexer<'a, V> {
    rest: &'a str,
    visit: V,
    /// What the text before `rest` leaves open.
    end: Part,
}

impl<'a, V: FnMut(Part, &'a str)> Lexer<'a, V> {
    /// Passes on the next bytes.
    fn pass(&mut self, part: Part, length: usize) {
        let (read, rest) = self.rest.split_at(length);
        (self.visit)(part, read);
        self.rest = rest;
    }

    /// Reads code up to its end: that of the text, or the `}` or `:` at the end of a replacement field's code.
    fn code(&mut self, is_field: bool) {
        let mut brackets = 0_usize;
        while let Some(first) = self.rest.chars().next() {
            let rest = self.rest;
            let up_to = |end: Option<usize>| end.unwrap_or(rest.len());
            self.end = Part::Other;
            match first {
                '}' | ':' if is_field && brackets == 0 => {
                    self.end = Part::String;
                    return self.pass(Part::Other, 1);
                }
                '#' => {
                    self.end = Part::Comment;
                    self.pass(Part::Comment, up_to(rest.find('\n')));
                }
                '\'' | '"' => self.string(false),
                _ if is_word(first) => {
                    let (word, behind) = rest.split_at(up_to(rest.find(|next| !is_word(next))));
                    let prefix = word.to_ascii_lowercase();
                    if behind.starts_with(['\'', '"']) && PREFIXES.contains(&prefix.as_str()) {
                        self.pass(Part::String, word.len());
                        self.string(prefix.contains(['f', 't']));
                    } else {
                        self.pass(Part::of_word(first, word), word.len());
                    }
                }
                _ => {
                    match first {
                        '(' | '[' | '{' => brackets += 1,
                        ')' | ']' | '}' => brackets = brackets.saturating_sub(1),
                        _ => {}
                    }
                    self.pass(Part::Other, first.len_utf8());
                }
            }
        }
    }

    /// Reads a string from its quotes to its end, with the code in its replacement fields.
    fn string(&mut self, has_fields: bool) {
        let quote = &self.rest[..1];
        let triple = quote.repeat(3);
        let quotes = if self.rest.starts_with(&triple) { &triple } else { quote };
        self.pass(Part::String, quotes.len());
        self.end = Part::String;
        while let Some(first) = self.rest.chars().next() {
            self.end = Part::String;
            let behind = &self.rest[first.len_utf8()..];
            if self.rest.starts_with(quotes) {
                self.end = Part::Other;
                return self.pass(Part::String, quotes.len());
            }
            if first == '\n' {
                self.pass(Part::Other, 1);
                if quotes.len() == 1 {
                    self.end = Part::Other;
                    return;
                }
                continue;
            }
            let is_pair = match first {
                // A quote there never ends the string, raw or not, but a brace begins a field.
                '\\' => !(has_fields && behind.starts_with('{')),
                '{' => has_fields && behind.starts_with('{'),
                _ => false,
            };
            let second = behind.chars().next().filter(|_| is_pair).map_or(0, char::len_utf8);
            self.pass(Part::String, first.len_utf8() + second);
            if has_fields && first == '{' && !is_pair {
                self.code(true);
            }
        }
    }
}

impl Part {
    /// Returns the kind of a word of code that begins with `first`.
    fn of_word(first: char, word: &str) -> Self {
        match word {
            _ if first.is_numeric() => Self::Number,
            _ if KEYWORDS.contains(&word) => Self::Keyword,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Part::{Comment, Other, String as Text};
    use super::*;

    /// Writes the kind of each part that isn't `Other` before it, and the part in `<>`.
    fn marked(text: &str) -> String {
        let (mut marked, mut last) = (String::new(), Other);
        let mut visit = |part, piece: &str| {
            if part != last {
                marked.push_str(if last == Other { "" } else { ">" });
                let kind = format!("{part:?}<").to_lowercase();
                marked.push_str(if part == Other { "" } else { &kind });
                last = part;
            }
            marked.push_str(piece);
        };
        parts(text, &mut visit);
        visit(Other, "");
        marked
    }

    #[test]
    fn parts_are_told_apart() {
        for (text, expected) in [
            ("if x1 == 12: y", "keyword<if> x1 == number<12>: y"),
            ("rb'a' # if", "string<rb'a'> comment<# if>"),
            ("'''for\n'''in", "string<'''for>\nstring<'''>keyword<in>"),
            ("'a\nin", "string<'a>\nkeyword<in>"),
            ("'a\\\nin'", "string<'a\\\nin'>"),
            (r"r'\'' or", r"string<r'\''> keyword<or>"),
            (r"'\\' or", r"string<'\\'> keyword<or>"),
            ("f'{x:>{w}} 1'", "string<f'{>x:string<>{>w}string<} 1'>"),
            ("f'{{1}} {x['a']}'", "string<f'{{1}} {>x[string<'a'>]}string<'>"),
            ("f'{ {1: 2}[1] }'", "string<f'{> {number<1>: number<2>}[number<1>] }string<'>"),
            (r"rf'\{x}'", r"string<rf'\{>x}string<'>"),
            ("b'{1}' if'{1}'", "string<b'{1}'> keyword<if>string<'{1}'>"),
        ] {
            assert_eq!(marked(text), expected);
        }
    }

    #[test]
    fn the_end_is_in_a_string_a_comment_or_code() {
        for (text, expected) in [
            ("", Other),
            ("x = 'a", Text),
            ("x = 'a'", Other),
            ("'''a\n", Text),
            ("'a\n", Other),
            ("f'{x", Other),
            ("f'{x}", Text),
            ("f'{'a'", Other),
            ("f'{x:", Text),
            ("x # 'a", Comment),
            ("x # a\n", Other),
        ] {
            assert_eq!(parts(text, |_, _| {}), expected, "{text}");
        }
    }
}
