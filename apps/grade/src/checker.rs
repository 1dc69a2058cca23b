//! Compares the output of a program with the expected one.

use std::collections::BTreeSet;

use hatchery::error::counted;

use crate::task::Checker;

/// The longest part of a text that a message repeats, in characters.
const SHOWN: usize = 60;

/// Returns what is wrong with an output, if anything is. Programs that check aren't run here.
pub(crate) fn wrong(checker: &Checker, output: &str, expected: &str) -> Option<String> {
    match checker {
        Checker::Exact => {
            let is_same = output.trim_end() == expected.trim_end();
            (!is_same).then(|| format!("{} instead of {}", shown(output), shown(expected)))
        }
        Checker::Lines => differing_lines(output, expected),
        Checker::Apps => differing_by_apps(output, expected),
        Checker::Tokens => differing(output, expected, |one, other| one == other),
        Checker::Floats(tolerance) => {
            differing(output, expected, |one, other| one == other || near(one, other, *tolerance))
        }
        Checker::Program(_) => None,
    }
}

fn differing(
    output: &str,
    expected: &str,
    are_same: impl Fn(&str, &str) -> bool,
) -> Option<String> {
    let (mut words, mut others) = (output.split_whitespace(), expected.split_whitespace());
    let mut place = 0;
    loop {
        place += 1;
        return match (words.next(), others.next()) {
            (None, None) => None,
            (Some(one), Some(other)) if are_same(one, other) => continue,
            (Some(one), Some(other)) => {
                Some(format!("word {place} is {} instead of {}", shown(one), shown(other)))
            }
            (Some(one), None) => Some(format!("word {place}, {}, is extra", shown(one))),
            (None, Some(other)) => Some(format!("word {place}, {}, is missing", shown(other))),
        };
    }
}

/// Compares line by line: the same words, or only numbers, which are equal.
fn differing_lines(output: &str, expected: &str) -> Option<String> {
    let (lines, others) = (output.trim().lines(), expected.trim().lines());
    let (count, wanted) = (lines.clone().count(), others.clone().count());
    if count != wanted {
        return Some(format!("it has {} instead of {wanted}", counted(count, "line")));
    }
    let are_same = |(_, (line, other)): &(usize, (&str, &str))| {
        let (line, other) = (line.trim(), other.trim());
        let numbers = |text: &str| text.split_whitespace().map(decimal).collect::<Option<Vec<_>>>();
        line == other || numbers(line).is_some_and(|found| Some(found) == numbers(other))
    };
    let (place, (line, other)) = lines.zip(others).enumerate().find(|pair| !are_same(pair))?;
    Some(format!("line {} is {} instead of {}", place + 1, shown(line.trim()), shown(other.trim())))
}

/// Compares as APPS does. Lines must be the same but for white space; or each a number near the other's; or
/// have the same words, or numbers of three decimals, where neither the order of lines nor that of words in
/// them counts, nor how often they occur.
fn differing_by_apps(output: &str, expected: &str) -> Option<String> {
    fn lines(text: &str) -> impl Iterator<Item = &str> {
        text.lines().map(str::trim).filter(|line| !line.is_empty())
    }
    fn sets<Word: Ord>(
        text: &str,
        word: impl Fn(&str) -> Option<Word>,
    ) -> Option<BTreeSet<BTreeSet<Word>>> {
        lines(text).map(|line| line.split_whitespace().map(&word).collect()).collect()
    }
    let numbers =
        |text: &str| lines(text).map(|line| line.parse::<f64>().ok()).collect::<Option<Vec<_>>>();
    let are_near = |one: &[f64], other: &[f64]| {
        let mut pairs = one.iter().zip(other);
        one.len() == other.len()
            && pairs.all(|(one, other)| {
                let is_near = (one - other).abs() <= 1e-8 + 1e-5 * other.abs();
                one == other || other.is_finite() && is_near
            })
    };
    let rounded = |word: &str| {
        let number = word.parse::<f64>().ok().filter(|number| !number.is_nan())?;
        let text = format!("{number:.3}");
        Some(if text == "-0.000" { "0.000".to_owned() } else { text })
    };
    let word = |word: &str| Some(word.to_owned());
    let is_same =
        numbers(output).zip(numbers(expected)).is_some_and(|(one, other)| are_near(&one, &other))
            || sets(output, word) == sets(expected, word)
            || sets(output, rounded).is_some_and(|found| Some(found) == sets(expected, rounded));
    if is_same {
        return None;
    }
    let pair = lines(output).zip(lines(expected)).find(|(one, other)| one != other);
    let (one, other) = pair.unwrap_or((output, expected));
    Some(format!("{} instead of {}", shown(one), shown(other)))
}

/// Returns a decimal number in the one form that all equal ones have: its sign, its digits without zeros
/// around them, and the power of ten of the last digit.
fn decimal(word: &str) -> Option<(bool, String, i64)> {
    let (is_negative, word) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let (digits, exponent) = word.split_once(['e', 'E']).unwrap_or((word, "0"));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = format!("{whole}{part}");
    let exponent = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(part.len()).ok()?)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = digits.trim_end_matches('0');
    let exponent = exponent.checked_add(i64::try_from(digits.len() - kept.len()).ok()?)?;
    let kept = kept.trim_start_matches('0');
    match kept.is_empty() {
        true => Some((false, String::new(), 0)),
        false => Some((is_negative, kept.to_owned(), exponent)),
    }
}

/// Returns whether two words are finite numbers that are near each other, absolutely or relatively.
fn near(one: &str, other: &str, tolerance: f64) -> bool {
    let (Ok(one), Ok(other)) = (one.parse::<f64>(), other.parse::<f64>()) else { return false };
    let difference = (one - other).abs();
    difference.is_finite() && (difference <= tolerance || difference <= tolerance * other.abs())
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    match cut.len() == text.len() {
        true => format!("{cut:?}"),
        false => format!("{cut:?}…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_singular() {
        let told = differing_lines("1", "1\n2");
        assert_eq!(told.as_deref(), Some("it has 1 line instead of 2"));
    }

    #[test]
    fn checkers_accept_what_they_say_and_nothing_else() {
        let (exact, tokens, floats) = (Checker::Exact, Checker::Tokens, Checker::Floats(1e-6));
        let (lines, apps) = (Checker::Lines, Checker::Apps);
        for (checker, output, expected, is_right) in [
            (&exact, "1 2\n", "1 2", true),
            (&exact, "1  2\n", "1 2", false),
            (&tokens, " 1\n2 ", "1 2\n", true),
            (&tokens, "1 2 3", "1 2", false),
            (&tokens, "1", "1 2", false),
            (&tokens, "1.0", "1", false),
            (&lines, " 1 2 \n3\n", "1 2\n3", true),
            (&lines, "1\n2", "1 2", false),
            (&lines, "1.50 -0 2e1", "1.5 0.0 20", true),
            (&lines, "50000000000000001", "50000000000000000", false),
            (&lines, "1.5 a", "1.50 a", false),
            (&lines, "", "1", false),
            (&lines, "0.1000000000000000055", "0.1", false),
            (&apps, " a b\n\nc ", "a b\nc\n", true),
            (&apps, "c\nb a", "a b\nc", true),
            (&apps, "a a b", "a b", true),
            (&apps, "a\nb", "a b", false),
            (&apps, "a b c", "a b", false),
            (&apps, "100000.5\n2", "100001\n2.0", true),
            (&apps, "100002\n2", "100001\n2.0", true),
            (&apps, "10002\n2", "10001\n2.0", false),
            (&apps, "0.3333 -0.0001", "0.33331 0", true),
            (&apps, "0.333 1", "0.334 1", false),
            (&apps, "", "1", false),
            (&apps, "nan", "nan 1", false),
            (&apps, "5", "inf", false),
            (&apps, "inf", "inf", true),
            (&floats, "0.3333333", "0.33333333", true),
            (&floats, "1000000.5", "1000000", true),
            (&floats, "0.34", "0.33", false),
            (&floats, "nan", "0.33", false),
            (&floats, "inf", "1e308", false),
            (&floats, "1", "inf", false),
            (&floats, "yes 1.0000001", "yes 1", true),
            (&floats, "no 1", "yes 1", false),
        ] {
            let wrong = wrong(checker, output, expected);
            assert_eq!(wrong.is_none(), is_right, "{checker:?} {output:?} {expected:?} {wrong:?}");
        }
    }
}
