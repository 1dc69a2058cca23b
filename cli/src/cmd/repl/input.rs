//! Decides when typed lines make a complete input, as Python's own prompt does.
//!
//! Each line is scanned once, just far enough to know what is open: brackets, strings with their
//! replacement fields, a backslash at the end, and blocks, which last until an empty line. The
//! scanner knows no other Python. Wrong code counts as complete, since Python then reports the
//! error: so an unclosed bracket doesn't swallow everything that follows.

/// Words that open a block even if code follows their `:` on the same line, since `else` may
/// follow.
const OPENERS: [&str; 8] = ["async", "class", "def", "for", "if", "try", "while", "with"];

/// Words that continue a block although they aren't indented.
const CONTINUERS: [&str; 4] = ["elif", "else", "except", "finally"];

/// Words that never occur in an expression, so that one inside brackets is an error.
const STATEMENTS: [&str; 18] = [
    "assert", "break", "class", "continue", "def", "del", "elif", "except", "finally", "global",
    "import", "nonlocal", "pass", "raise", "return", "try", "while", "with",
];

/// Words that continue an expression after an operand.
const JOINERS: [&str; 11] =
    ["and", "as", "async", "else", "for", "from", "if", "in", "is", "not", "or"];

/// Keywords that are operands.
const OPERANDS: [&str; 3] = ["False", "None", "True"];

/// Keywords before an operand.
const OPERATORS: [&str; 3] = ["await", "lambda", "yield"];

/// The lines of one input, as far as they have been typed.
#[derive(Debug, Default)]
pub(super) struct Input {
    text: String,
    scanner: Scanner,
}

impl Input {
    /// Adds what was typed up to a line end: one line, or several that were pasted or come from the
    /// history. Returns whether the input is complete.
    pub(super) fn push(&mut self, typed: &str) -> bool {
        for line in typed.split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line);
            self.scanner.line(line);
            self.text.push_str(line);
            self.text.push('\n');
        }
        self.scanner.is_whole()
    }

    /// Returns whether what is typed now doesn't belong to the open block, so that the input ends
    /// before it.
    pub(super) fn is_ended_by(&self, typed: &str) -> bool {
        self.scanner.is_ended_by(typed.split('\n').next().unwrap_or(""))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the state after the lines so far.
    pub(super) fn scanner(&self) -> &Scanner {
        &self.scanner
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Takes this input, complete or not, without the blank lines that ended it, and begins the
    /// next one.
    pub(super) fn take(&mut self) -> String {
        let mut text = std::mem::take(self).text;
        text.truncate(text.trim_end_matches([' ', '\t', '\n']).len());
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// An open construct. The scanner keeps them from the outermost to the innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// A bracket that this character closes.
    Bracket(char),
    String(Quotes),
    /// The code of a replacement field in this string.
    Field(Quotes),
    /// The format after the `:` of a replacement field.
    Format(Quotes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quotes {
    quote: char,
    is_triple: bool,
    /// Whether `{` begins a replacement field.
    has_fields: bool,
}

/// The kind of a part of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Keyword,
    Number,
    String,
    Comment,
    /// Names, operators and spaces.
    Other,
}

/// Scans lines one after another.
#[derive(Debug, Default, Clone)]
pub(super) struct Scanner {
    open: Vec<Open>,
    /// Whether the last line ended with a backslash that joins the next one.
    is_joined: bool,
    /// Whether a block was opened, so that indented lines belong to one.
    had_block: bool,
    /// Whether the current block lasts until an empty line.
    in_block: bool,
    /// Whether the last logical line was a decorator.
    is_decorated: bool,
    /// Whether there is an error that no further line can repair.
    is_broken: bool,
    /// The last character of the current logical line that is neither space nor comment.
    last: Option<char>,
    /// Whether the last token ends an operand, so that no other one can follow.
    ends_operand: bool,
}

impl Scanner {
    fn is_whole(&self) -> bool {
        self.is_broken || (self.open.is_empty() && !self.is_joined && !self.in_block)
    }

    /// Scans one line without its end.
    pub(super) fn line(&mut self, line: &str) {
        if !self.is_broken {
            self.parts(line, |_, _| {});
            self.end();
        }
    }

    /// Scans a line, or the beginning of one, and passes on its parts.
    pub(super) fn parts<'a>(&mut self, line: &'a str, mut visit: impl FnMut(Part, &'a str)) {
        let starts_logical_line = self.open.is_empty() && !self.is_joined;
        self.is_joined = false;
        if starts_logical_line {
            self.start(line);
        } else {
            self.is_broken |= self.is_at_odds_with(line);
        }
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let is_text = self.is_in_text();
            let behind = match self.open.last().copied() {
                Some(Open::String(quotes)) => self.in_string(quotes, first, rest),
                Some(Open::Format(quotes)) => self.in_format(quotes, first, rest),
                Some(Open::Bracket(_) | Open::Field(_)) | None => self.in_code(first, rest),
            };
            let read = &rest[..rest.len() - behind.len()];
            visit(if is_text { Part::String } else { Part::of_code(first, read) }, read);
            rest = behind;
        }
    }

    /// Returns whether what follows belongs to a string.
    pub(super) fn is_in_text(&self) -> bool {
        matches!(self.open.last(), Some(Open::String(_) | Open::Format(_)))
    }

    /// Returns whether a line can't continue what is open: it begins with a statement, or with an
    /// operand after another one.
    fn is_at_odds_with(&self, line: &str) -> bool {
        let content = line.trim_start_matches(is_space);
        let length = content.find(|character| !is_word(character)).unwrap_or(content.len());
        let (word, behind) = content.split_at(length);
        let is_string = behind.starts_with(['\'', '"']) && is_prefix(word);
        let is_in_code = matches!(self.open.last(), Some(Open::Bracket(_) | Open::Field(_)));
        if !is_in_code || word.is_empty() || is_string {
            return false;
        }
        STATEMENTS.contains(&word) || (self.ends_operand && !JOINERS.contains(&word))
    }

    /// Returns whether this line doesn't belong to the open block.
    fn is_ended_by(&self, line: &str) -> bool {
        let is_in_line = !self.open.is_empty() || self.is_joined;
        if !self.in_block || is_in_line || self.is_decorated || self.is_broken {
            return false;
        }
        let word = line.split(|character| !is_word(character)).next().unwrap_or("");
        let is_blank = line.trim_ascii().is_empty();
        !(is_blank
            || line.starts_with(is_space)
            || line.starts_with('#')
            || CONTINUERS.contains(&word))
    }

    /// Handles the start of a logical line: it may belong to a block, or open one.
    fn start(&mut self, line: &str) {
        self.last = None;
        let content = line.trim_start_matches(is_space);
        if content.is_empty() {
            self.in_block = false;
        } else if !content.starts_with('#') {
            let is_indented = content.len() < line.len();
            let word = content.split(|character| !is_word(character)).next().unwrap_or("");
            let opens = OPENERS.contains(&word) || content.starts_with('@');
            let continues = self.had_block && (is_indented || CONTINUERS.contains(&word));
            self.is_decorated = content.starts_with('@');
            self.had_block |= opens;
            self.in_block = opens || continues;
        }
    }

    /// Handles the end of a line.
    pub(super) fn end(&mut self) {
        match self.open.last() {
            // Unless a backslash joins the lines, such a string ends on the line where it began.
            Some(Open::String(quotes) | Open::Format(quotes)) if !quotes.is_triple => {
                self.is_broken |= !self.is_joined;
            }
            Some(_) => {}
            None if self.last == Some(':') && !self.is_joined => {
                self.had_block = true;
                self.in_block = true;
            }
            None => {}
        }
    }

    /// Scans from `rest`, which starts with `first`, and returns what is left.
    fn in_code<'a>(&mut self, first: char, rest: &'a str) -> &'a str {
        let behind = &rest[first.len_utf8()..];
        if is_space(first) {
            return behind;
        }
        if first == '#' {
            return "";
        }
        if first == '\\' && behind.is_empty() {
            self.is_joined = true;
            return behind;
        }
        self.last = Some(first);
        self.ends_operand = matches!(first, ')' | ']' | '}');
        match first {
            '\'' | '"' => self.open_string("", rest),
            '(' | '[' | '{' => {
                let closing = match first {
                    '(' => ')',
                    '[' => ']',
                    _ => '}',
                };
                self.open.push(Open::Bracket(closing));
                behind
            }
            ')' | ']' | '}' => {
                let closes = match self.open.pop() {
                    Some(Open::Bracket(closing)) => closing == first,
                    Some(Open::Field(_)) => first == '}',
                    Some(Open::String(_) | Open::Format(_)) | None => false,
                };
                self.is_broken |= !closes;
                behind
            }
            ':' => {
                if let Some(Open::Field(quotes)) = self.open.last().copied() {
                    self.open.pop();
                    self.open.push(Open::Format(quotes));
                }
                behind
            }
            _ if is_word(first) => {
                let length = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
                let (word, behind) = rest.split_at(length);
                if behind.starts_with(['\'', '"']) && is_prefix(word) {
                    return self.open_string(word, behind);
                }
                self.ends_operand = !is_keyword(word) || OPERANDS.contains(&word);
                behind
            }
            _ => behind,
        }
    }

    /// Opens the string whose quotes `rest` starts with.
    fn open_string<'a>(&mut self, prefix: &str, rest: &'a str) -> &'a str {
        let quote = if rest.starts_with('"') { '"' } else { '\'' };
        let is_triple = starts_with_three(rest, quote);
        let has_fields = prefix.contains(['f', 'F', 't', 'T']);
        self.open.push(Open::String(Quotes { quote, is_triple, has_fields }));
        &rest[if is_triple { 3 } else { 1 }..]
    }

    /// Opens a replacement field whose code is `behind`.
    fn open_field<'a>(&mut self, quotes: Quotes, behind: &'a str) -> &'a str {
        self.open.push(Open::Field(quotes));
        self.ends_operand = false;
        behind
    }

    fn in_string<'a>(&mut self, quotes: Quotes, first: char, rest: &'a str) -> &'a str {
        let behind = &rest[first.len_utf8()..];
        match first {
            '\\' => self.escaped(quotes, behind),
            _ if first == quotes.quote => self.quote(quotes, rest),
            '{' if quotes.has_fields => match behind.strip_prefix('{') {
                Some(behind) => behind,
                None => self.open_field(quotes, behind),
            },
            _ => behind,
        }
    }

    fn in_format<'a>(&mut self, quotes: Quotes, first: char, rest: &'a str) -> &'a str {
        let behind = &rest[first.len_utf8()..];
        match first {
            '\\' => self.escaped(quotes, behind),
            '{' => self.open_field(quotes, behind),
            '}' => {
                self.open.pop();
                behind
            }
            // The string ends inside its field.
            _ if first == quotes.quote && (!quotes.is_triple || starts_with_three(rest, first)) => {
                self.is_broken = true;
                ""
            }
            _ => behind,
        }
    }

    /// Skips what follows a backslash in a string, raw or not: a quote there never ends the string,
    /// while a brace still begins or ends a field.
    fn escaped<'a>(&mut self, quotes: Quotes, behind: &'a str) -> &'a str {
        let Some(escaped) = behind.chars().next() else {
            self.is_joined = !quotes.is_triple;
            return behind;
        };
        if quotes.has_fields && matches!(escaped, '{' | '}') {
            return behind;
        }
        &behind[escaped.len_utf8()..]
    }

    /// Handles a quote of the string's own kind.
    fn quote<'a>(&mut self, quotes: Quotes, rest: &'a str) -> &'a str {
        let ends = !quotes.is_triple || starts_with_three(rest, quotes.quote);
        if ends {
            self.open.pop();
            self.last = Some(quotes.quote);
            self.ends_operand = true;
        }
        &rest[if ends && quotes.is_triple { 3 } else { 1 }..]
    }
}

fn starts_with_three(text: &str, quote: char) -> bool {
    text.chars().take_while(|character| *character == quote).take(3).count() == 3
}

/// Returns whether Python takes a character as space within a line.
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\x0c')
}

pub(super) fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// Returns whether a word is a keyword.
fn is_keyword(word: &str) -> bool {
    STATEMENTS.contains(&word)
        || JOINERS.contains(&word)
        || OPERANDS.contains(&word)
        || OPERATORS.contains(&word)
}

impl Part {
    /// Returns the kind of a token of code that begins with `first`.
    fn of_code(first: char, read: &str) -> Self {
        match first {
            '#' => Self::Comment,
            _ if read.ends_with(['\'', '"']) => Self::String,
            _ if first.is_numeric() => Self::Number,
            _ if is_keyword(read) => Self::Keyword,
            _ => Self::Other,
        }
    }
}

/// Returns whether a word before a quote is a string prefix.
fn is_prefix(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["r", "b", "u", "f", "t", "br", "rb", "fr", "rf", "tr", "rt"].contains(&word.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns after which lines an input typed line by line is complete.
    fn whole_after(lines: &[&str]) -> Vec<bool> {
        let mut input = Input::default();
        lines.iter().map(|line| input.push(line)).collect()
    }

    /// Checks that exactly the last line completes the input.
    fn check(lines: &[&str]) {
        let (last, before) = lines.split_last().unwrap();
        let mut input = Input::default();
        for line in before {
            assert!(!input.push(line), "{lines:?} is whole after {line:?}: {input:?}");
        }
        assert!(input.push(last), "{lines:?} is not whole: {input:?}");
    }

    #[test]
    fn simple_lines_are_whole_at_once() {
        for line in [
            "",
            "   ",
            "x",
            "x = 1",
            "print('a:')",
            "x[1:2]",
            "f(lambda: 1)",
            "# def f():",
            "x = 1  # why:",
            "'#' ':'",
            "{1: 2}",
            "x: int = 1",
            "import a; b()",
            "iffy = 1",
            "format(x)",
            "classes",
            "match(x)",
            "_if",
            "été = 1",
            "\u{fc}: int",
            "pass;",
            "\tx",
            "  indented = 'Python says what is wrong'",
            "x = 1 ",
            "a if b else c",
            "[d for e in f]",
            "\\n",
        ] {
            check(&[line]);
        }
    }

    #[test]
    fn brackets_join_lines() {
        check(&["f(", ")"]);
        check(&["x = [", "    1,", "", "# ]", "]"]);
        check(&["{'a': (1, [", "2]),", "'b:'", "}"]);
        check(&["print('(', \")\", '[')"]);
        check(&["f(a,", "  b='''", ")", "''')"]);
        check(&["x = (1,  # (((", ")"]);
        check(&["f(lambda:", "1)"]);
    }

    #[test]
    fn errors_that_no_line_can_repair_complete_the_input() {
        for line in [")", "f(]", "(}", "x = 'open", "x = \"open", "[1, 2)", "f'{x", "f'{x:>3'"] {
            let is_whole = *whole_after(&[line]).last().unwrap();
            // `f'{x` has a field that may continue, as in CPython 3.12 and later.
            assert_eq!(is_whole, line != "f'{x", "{line}");
        }
        // Nothing that follows opens anything again.
        check(&["x = ')' + (", "]"]);
        check(&["def f(:)", ""]);
        assert_eq!(whole_after(&["'open", "("]), [true, true]);
    }

    /// CPython's own prompt does the same, since it tries to parse the input after each line.
    #[test]
    fn an_unclosed_bracket_ends_at_a_line_that_can_not_continue_it() {
        for (before, line) in [
            ("print((2", "print(3)"),
            ("f(", "def g():"),
            ("x = [1", "2]"),
            ("f(x)[0", "  y"),
            ("('a'", "x"),
            ("(None", "x"),
            ("{1: (2)", "x: 3}"),
            ("f'{x", "y}'"),
            ("(1,", "return x"),
        ] {
            check(&[before, line]);
        }
        check(&["x = (1 if y", "else 2)"]);
        check(&["x = (1", "or 2", "if y else not", "z)"]);
        check(&["[x", "for x in y", "if x", "is not", "None]"]);
        check(&["('a'", "f'b'", "'c')"]);
        check(&["(lambda", "x:", "x", "# why", "+ 1)"]);
        check(&["(yield", "x)"]);
        check(&["f'''{x}", "y {", "z}'''"]);
        check(&["{'a': 1,", "b: 2}"]);
    }

    #[test]
    fn parts_of_lines_are_classified() {
        let mut scanner = Scanner::default();
        let parts = |scanner: &mut Scanner, line: &'static str| {
            let mut found = Vec::new();
            scanner.parts(line, |part, text| found.push((part, text)));
            found.retain(|(_, text)| *text != " ");
            found
        };
        use Part::{Comment, Keyword, Number, Other, String};
        assert_eq!(
            parts(&mut scanner, "if x1 == 12: rb'a' # if"),
            [
                (Keyword, "if"),
                (Other, "x1"),
                (Other, "="),
                (Other, "="),
                (Number, "12"),
                (Other, ":"),
                (String, "rb'"),
                (String, "a"),
                (String, "'"),
                (Comment, "# if"),
            ]
        );
        assert_eq!(
            parts(&mut scanner, "'''for"),
            [(String, "'''"), (String, "f"), (String, "o"), (String, "r"),]
        );
        assert!(scanner.is_in_text());
        assert_eq!(parts(&mut scanner, "'''in")[1], (Keyword, "in"));
    }

    #[test]
    fn strings_with_three_quotes_join_lines() {
        check(&["'''", "it's", "''", "'''"]);
        check(&["x = \"\"\"a", "'''", "", "b\"\"\""]);
        check(&["r'''\\", "'''"]);
        check(&["'''\\'''", "'''"]);
        check(&["'''a''' '''", "'''"]);
        check(&["''''a'''"]);
        check(&["''"]);
        check(&["'''''', ''"]);
        check(&["b'''", "'''"]);
        check(&["Rb\"\"\"", "\"\"\""]);
    }

    #[test]
    fn escaped_quotes_end_nothing() {
        check(&[r"'\''"]);
        check(&[r"r'\''"]);
        check(&[r"'\\'"]);
        check(&[r#""\"(""#]);
        check(&[r"'é\é'"]);
        check(&[r"b'\\' + (", ")"]);
    }

    #[test]
    fn a_backslash_joins_lines() {
        check(&["x = 1 + \\", "2"]);
        check(&["x = 'a\\", "b'"]);
        check(&["x = 'a\\", "b\\", "c'"]);
        check(&["x = \\", ""]);
        check(&["# \\"]);
        check(&["x \\ "]);
        check(&["if a and \\", "b:", "    c", ""]);
        check(&["f'a\\", "{b}'"]);
    }

    #[test]
    fn blocks_go_on_until_an_empty_line() {
        check(&["def f():", "    return 1", ""]);
        check(&["def f(): return 1", ""]);
        check(&["if x: y", ""]);
        check(&["if x:", "    y", "else:", "    z", "  "]);
        check(&["try:", "    a", "except E:", "    b", "finally:", "    c", ""]);
        check(&["for x in y:", "# why", "    z", "    # further", "\t"]);
        check(&["while True:", "    if a:", "        b", "    c", ""]);
        check(&["with a as b, \\", "        c as d:", "    e", ""]);
        check(&["async def f():", "    await g()", ""]);
        check(&["class A:", "    '''doc", "", "    more'''", "    x = 1", ""]);
        check(&["class A(B,", "        C):", "    pass", ""]);
        check(&["match x:", "    case 1:", "        y", "    case {'a': [b]}: z", ""]);
        check(&["if x:  # why", "    y", ""]);
        check(&["if(x): y", ""]);
        check(&["if x: y", "elif a: b", "else: z", ""]);
        check(&["try: a", "except E: b", "finally: c", ""]);
        check(&["else: z"]);
        check(&["def f():", "    return [", "", "    ]", ""]);
        check(&["def f():", "    x = 'broken"]);
    }

    #[test]
    fn decorators_wait_for_what_they_decorate() {
        check(&["@a", "def f(): pass", ""]);
        check(&["@a(1,", "2)", "@b", "class C:", "    d = 1", ""]);
        check(&["@a", "# why", "def f():", "    @b", "    def g(): pass", "    return g", ""]);
    }

    /// Python's own prompt calls this a mistake; a file doesn't.
    #[test]
    fn a_simple_line_behind_a_block_ends_the_input() {
        check(&["def f():", "    return 1", "f()"]);
        check(&["for x in y: z", "x = (", ")"]);
    }

    #[test]
    fn a_line_outside_of_the_block_that_is_open_is_another_input() {
        let is_ended = |typed: &[&str], line: &str| {
            let mut input = Input::default();
            for line in typed {
                assert!(!input.push(line), "{typed:?} is whole");
            }
            input.is_ended_by(line)
        };
        for (typed, line) in [
            (&["if 1: 1/0"][..], "x"),
            (&["if 1: 1/0"], ":quit"),
            (&["def f():", "    return (", ")"], "def g():\n    pass"),
            (&["@a", "def f(): pass"], "@b"),
            (&["if x:"], "y"),
            (&["if x:", "    y", "else: z"], "elsewhere = 1"),
        ] {
            assert!(is_ended(typed, line), "{typed:?} {line}");
        }
        for (typed, line) in [
            (&[][..], "x"),
            (&["(1,"], "x"),
            (&["x = \\"], "1"),
            (&["if 1: x"], ""),
            (&["if 1: x"], " \r"),
            (&["if 1: x"], "# why"),
            (&["if 1: x"], "else: y"),
            (&["try: x"], "except: y"),
            (&["if 1:"], "    x"),
            (&["if 1:", "    \'\'\'"], "x"),
            (&["if 1: f("], "x"),
            (&["@a"], "def f(): pass"),
            (&["@a", "# why"], "class C: pass"),
        ] {
            assert!(!is_ended(typed, line), "{typed:?} {line}");
        }
    }

    #[test]
    fn replacement_fields_hold_code() {
        check(&["f'{x}'"]);
        check(&["f'{x:>{width}}'"]);
        check(&["f'{{'"]);
        check(&["f'{{{x}}}'"]);
        check(&["f'{x[\"a\"]}'"]);
        check(&["f'{x['a']}'"]);
        check(&["f'{f'{f'{1}'}'}'"]);
        check(&["f'{x!r:^10}' + '{'"]);
        check(&["f'{d:%H:%M}'"]);
        check(&["f'{(lambda: 1)()}'"]);
        check(&["f'{ {1: 2}[1] }'"]);
        check(&["rf'\\{x}'"]);
        check(&[r"f'\N{EM DASH} {x}'"]);
        check(&["f'{", "x", "}'"]);
        check(&["f'''{", "x:", "}", "'''"]);
        check(&["f'''a", "{x}", "'''"]);
        check(&["t'{x}'"]);
        check(&["Rt'{x['('] }'"]);
        check(&["'{'"]);
        check(&["b'{'"]);
        check(&["f'}'"]);
        check(&["f'{x='{'}'"]);
    }

    #[test]
    fn words_before_quotes_are_prefixes_only_where_python_has_them() {
        check(&["if'{'in x: y", ""]);
        check(&["rub'{'"]);
        check(&["print(f'{x}', F\"{'a'}\")"]);
    }

    #[test]
    fn several_lines_at_once_are_judged_by_the_last() {
        check(&["def f():\n    a = 1\n\n    return a", ""]);
        check(&["def f():\n    return 1\n"]);
        check(&["def f():\r\n    return 1\r\n\r\nf()"]);
        check(&["x = 1\nfor i in y:\n    z", ""]);
        check(&["a\nb"]);
    }

    #[test]
    fn taking_an_input_begins_the_next_one() {
        let mut input = Input::default();
        assert!(!input.push("def f():\r"));
        assert!(!input.push("    return 1  "));
        assert!(input.push(""));
        assert!(!input.is_empty() && input.len() > 10);
        assert_eq!(input.take(), "def f():\n    return 1\n");
        assert!(input.is_empty());
        assert!(input.push(" \t"));
        assert_eq!(input.take(), "");
        assert!(!input.push("(("));
        assert_eq!(input.take(), "((\n");
        assert!(input.push("x"));
        assert_eq!(input.take(), "x\n");
    }
}
