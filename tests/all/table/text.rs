//! Texts of the table: indented blocks, and patterns for text that varies.

/// Matches any text in an expectation, where it varies: addresses, images.
pub(super) const ANY: &str = "‹*›";

/// A text that begins with a newline is a block: its lines without their common indentation, and
/// without the last line, which only indents the closing quote.
pub(super) fn lines(text: &str) -> String {
    let Some(block) = text.strip_prefix('\n') else { return text.to_owned() };
    let indentation = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let is_blank = |line: &&str| line.trim_matches(' ').is_empty();
    let common = block.lines().filter(|line| !is_blank(line)).map(indentation).min().unwrap_or(0);
    let (lines, _) = block.rsplit_once('\n').expect("the closing quote is on its own line");
    lines.lines().map(|line| line.get(common..).unwrap_or("").to_owned() + "\n").collect()
}

/// Returns whether the text matches the pattern, in which `ANY` matches any text.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let Some((pattern, end)) = pattern.rsplit_once(ANY) else { return pattern == text };
    let mut parts = pattern.split(ANY);
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or("")) else { return false };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(end)
}

#[test]
fn blocks_lose_their_indentation_and_patterns_match_whole_texts() {
    assert_eq!(lines("\n    a\n      b\n\n    c\n    "), "a\n  b\n\nc\n");
    assert_eq!(lines(" a\n b"), " a\n b");
    for (pattern, text, expected) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a‹*›c", "abc", true),
        ("a‹*›c", "ac", true),
        ("a‹*›c", "abcd", false),
        ("‹*›b‹*›", "abc", true),
        ("‹*›b‹*›b", "ab", false),
        ("‹*›", "", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}
