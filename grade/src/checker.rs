//! Compares the output of a program with what it should be.

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
            (Some(one), None) => Some(format!("word {place}, {}, is too much", shown(one))),
            (None, Some(other)) => Some(format!("word {place}, {}, is missing", shown(other))),
        };
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
    fn checkers_accept_what_they_say_and_nothing_else() {
        let (exact, tokens, floats) = (Checker::Exact, Checker::Tokens, Checker::Floats(1e-6));
        for (checker, output, expected, is_right) in [
            (&exact, "1 2\n", "1 2", true),
            (&exact, "1  2\n", "1 2", false),
            (&tokens, " 1\n2 ", "1 2\n", true),
            (&tokens, "1 2 3", "1 2", false),
            (&tokens, "1", "1 2", false),
            (&tokens, "1.0", "1", false),
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
