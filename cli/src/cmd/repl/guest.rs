//! The prompt's helpers in each session: name lookup for completion, `%time` and `%timeit`.

use crate::cmd::guest::{Module, TIMING, install, literal};

/// The function that lists names.
pub(super) const COMPLETE: &str = "hatchery_prompt:complete";

/// Returns the source that installs the helpers. Running it again changes nothing.
pub(super) fn begin() -> String {
    install(&[TIMING, Module { name: "hatchery_prompt", source: include_str!("guest.py") }])
}

/// Translates an input that begins with `%` to Python; `None` if it is Python already. The error
/// lists what is available.
pub(super) fn magic(input: &str) -> Option<Result<String, String>> {
    let text = input.trim().strip_prefix('%')?;
    let (name, code) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let function = match name {
        "time" => "timed",
        "timeit" => "timeit",
        _ => return Some(Err(format!("there is no `%{name}` here, only `%time` and `%timeit`"))),
    };
    Some(Ok(format!("__import__('hatchery_timing').{function}({})\n", literal(code.trim()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_become_calls() {
        for (input, expected) in [
            ("%time x = f('a')\n", "timed('x = f(\\'a\\')')"),
            ("%timeit  -n 3 x\n", "timeit('-n 3 x')"),
            ("%time for x in y:\n    z\n", "timed('for x in y:\\n    z')"),
            ("%time", "timed('')"),
        ] {
            let python = magic(input).unwrap().unwrap();
            assert_eq!(python, format!("__import__('hatchery_timing').{expected}\n"));
        }
        assert_eq!(magic("x % time\n"), None);
        assert!(magic("%cd /\n").unwrap().unwrap_err().contains("no `%cd`"));
    }
}
