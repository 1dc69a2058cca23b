//! Reads a distribution's `METADATA` as far as an image needs it: name, version, required Python,
//! and required distributions.
//!
//! Only simple versions and markers are understood. The rest counts as met, since this only serves
//! warnings and refusals.

use std::cmp::Ordering;

use super::info::PythonTarget;
use super::info::{name_of, normalized};

/// The headers of a `METADATA` file that matter here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
    pub(super) requires_python: Option<String>,
    requires: Vec<String>,
}

impl Metadata {
    pub(super) fn parse(text: &str) -> Self {
        let mut metadata = Self::default();
        for (name, value) in headers(text) {
            match name.to_ascii_lowercase().as_str() {
                "name" => metadata.name = Some(value.to_owned()),
                "version" => metadata.version = Some(value.to_owned()),
                "requires-python" => metadata.requires_python = Some(value.to_owned()),
                "requires-dist" => metadata.requires.push(value.to_owned()),
                _ => {}
            }
        }
        metadata
    }

    pub(super) fn runs_on(&self, target: &PythonTarget) -> bool {
        self.requires_python.as_deref().is_none_or(|wanted| meets(&target.version, wanted))
    }

    /// Returns the normalised names of the distributions that it requires on this Python, without
    /// extras.
    pub(super) fn needs(&self, target: &PythonTarget) -> impl Iterator<Item = String> {
        self.requires.iter().filter_map(move |requirement| {
            let (wanted, marker) = requirement.split_once(';').unwrap_or((requirement, ""));
            let name = normalized(name_of(wanted));
            let applies = marker.trim().is_empty() || applies(marker, target);
            (applies && !name.is_empty()).then_some(name)
        })
    }
}

/// Returns the headers of a text in mail format, up to its first empty line, without continuation
/// lines.
fn headers(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .take_while(|line| !line.trim().is_empty())
        .filter(|line| !line.starts_with([' ', '\t']))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
}

/// Returns whether a version meets all clauses such as `>=3.8,!=3.9.*`.
fn meets(version: &[u32], clauses: &str) -> bool {
    clauses.split(',').map(str::trim).filter(|clause| !clause.is_empty()).all(|clause| {
        let at = clause.find(|c: char| !"<>=!~".contains(c)).unwrap_or(clause.len());
        compares(version, &clause[..at], clause[at..].trim()).unwrap_or(true)
    })
}

/// Evaluates `version operator wanted`; `None` if that isn't understood, as with epochs, local
/// versions and post-releases.
fn compares(version: &[u32], operator: &str, wanted: &str) -> Option<bool> {
    if wanted.contains(['!', '+']) || wanted.contains("post") {
        return None;
    }
    let prefix = wanted.strip_suffix(".*");
    let wanted = release(prefix.unwrap_or(wanted))?;
    let begins = |parts: &[u32]| padded(version, parts.len())[..parts.len()] == *parts;
    let order = order(version, &wanted);
    Some(match operator {
        "==" if prefix.is_some() => begins(&wanted),
        "!=" if prefix.is_some() => !begins(&wanted),
        "==" | "===" => order == Ordering::Equal,
        "!=" => order != Ordering::Equal,
        ">=" => order != Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        "<" => order == Ordering::Less,
        "~=" => order != Ordering::Less && begins(&wanted[..wanted.len().saturating_sub(1)]),
        _ => return None,
    })
}

/// Returns the numbers of a version without a suffix such as `a6`; `None` if it has none.
fn release(version: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in version.split('.') {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        match part[..end].parse() {
            Ok(number) => numbers.push(number),
            Err(_) => break,
        }
        if end < part.len() {
            break;
        }
    }
    (!numbers.is_empty()).then_some(numbers)
}

fn order(a: &[u32], b: &[u32]) -> Ordering {
    let len = a.len().max(b.len());
    padded(a, len).cmp(&padded(b, len))
}

fn padded(version: &[u32], len: usize) -> Vec<u32> {
    let mut version = version.to_vec();
    version.resize(len.max(version.len()), 0);
    version
}

/// Returns whether a requirement with this marker applies to this Python. An unknown marker doesn't
/// apply, so that no warning is about a distribution that may not be needed.
fn applies(marker: &str, target: &PythonTarget) -> bool {
    let marker = marker.trim();
    let inner = marker.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(marker);
    if inner.contains(['(', ')']) {
        return false;
    }
    let all_hold =
        |group: &str| group.split(" and ").all(|clause| holds(clause, target) == Some(true));
    inner.split(" or ").any(all_hold)
}

/// Evaluates a clause such as `python_version < "3.8"`; `None` if it isn't understood.
fn holds(clause: &str, target: &PythonTarget) -> Option<bool> {
    let clause = clause.trim();
    let at = clause.find(|c: char| "<>=!~".contains(c))?;
    let (variable, rest) = clause.split_at(at);
    let end = rest.find(|c: char| !"<>=!~".contains(c))?;
    let (operator, value) = rest.split_at(end);
    let value = value.trim().trim_matches(['"', '\'']);
    let here = match variable.trim() {
        "python_version" => return compares(&target.version[..2], operator, value),
        "python_full_version" => return compares(&target.version, operator, value),
        "sys_platform" => target.platform.as_str(),
        "os_name" => "posix",
        "implementation_name" => "cpython",
        "platform_python_implementation" => "CPython",
        "platform_system" => "wasi",
        _ => return None,
    };
    match operator {
        "==" => Some(here == value),
        "!=" => Some(here != value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> Metadata {
        Metadata::parse(&lines.join("\n"))
    }

    #[test]
    fn headers_end_at_the_first_empty_line() {
        let metadata = parse(&[
            "Metadata-Version: 2.1",
            "Name: Some.Thing",
            "version: 1.0",
            " Name: continued",
            "",
            "Name: described",
        ]);
        assert_eq!(metadata.name.as_deref(), Some("Some.Thing"));
        assert_eq!(metadata.version.as_deref(), Some("1.0"));
        assert!(metadata.runs_on(&PythonTarget::default()));
    }

    #[test]
    fn the_wanted_python_is_compared_with_the_builds() {
        for (wanted, runs) in [
            (">=3.8", true),
            (">=3.8, <4", true),
            ("<3.15", false),
            (">=3.16", false),
            ("!=3.15.*", false),
            ("==3.*", true),
            ("~=3.9", true),
            ("~=3.9.1", false),
            (">3.14,<=3.15", true),
            (">=2.7, !=3.0.*, !=3.1.*", true),
            ("==2.7", false),
            ("<3.15.0a1", false),
            (">=3.15.0rc1", true),
            ("<3.15.1.dev0", true),
            ("<3.15.dev0", false),
            ("<3.16a0", true),
            (">=3.6.*", true),
            ("<3.15.*", false),
            ("==3.15.0.*", true),
            (">=3.15.0.0", true),
            ("==3.15", true),
            ("===3.15.0", true),
            ("!=3.15", false),
            ("!=1.5.*", true),
            ("~=2.2", false),
            (">= 3.8.1 , < 4.0.0", true),
            (">=3.7,<3.11", false),
            ("anything", true),
            ("~=3", true),
            ("", true),
            // Not understood, so they count as met.
            (">=1!2.0", true),
            ("<1!0", true),
            ("==3.15.0+abc", true),
            ("<3.15.0.post1", true),
            (">=1.0.post1", true),
        ] {
            let metadata = parse(&["Name: x", &format!("Requires-Python: {wanted}")]);
            assert_eq!(metadata.runs_on(&PythonTarget::default()), runs, "{wanted}");
        }
    }

    #[test]
    fn needs_are_names_that_hold_here() {
        let metadata = parse(&[
            "Requires-Dist: numpy>=1.20",
            "Requires-Dist: Typing_Extensions (>=4) ; python_version >= \"3.8\"",
            "Requires-Dist: colorama; sys_platform == 'win32'",
            "Requires-Dist: backport ; python_version < \"3.11\" or os_name == 'nt'",
            "Requires-Dist: pytest ; extra == 'test'",
            "Requires-Dist: docs; python_version > '3' and extra == 'docs'",
            "Requires-Dist: odd; (python_version > '3') and (os_name == 'posix')",
            "Requires-Dist: requests[socks]~=2.0",
            "Requires-Dist: zope.interface",
            "Requires-Dist: first; python_version>='3.8' and python_version<'4.0'",
            "Requires-Dist: second; (python_full_version >= '3.8.1')",
            "Requires-Dist: third; python_version < '3' or platform_python_implementation != 'PyPy'",
            "Requires-Dist: extra; python_version < '3.9' and extra == 'x'",
            "Requires-Dist: old; python_full_version < '3.11.0a7'",
            "Requires-Dist: other; (sys_platform == 'win32') and (python_version < '3.5' or extra == 'x')",
            // Not understood, so they don't count as needed, although they are.
            "Requires-Dist: machine; platform_machine != 'aarch64'",
            "Requires-Dist: reversed; '3.8' <= python_version",
            "Requires-Dist: within; sys_platform not in 'win32'",
        ]);
        let needs: Vec<String> = metadata.needs(&PythonTarget::default()).collect();
        let understood = ["first", "second", "third"];
        let expected = ["numpy", "typing-extensions", "requests", "zope-interface"];
        assert_eq!(needs, [&expected[..], &understood].concat());
        let older = PythonTarget::new([3, 10, 2], "win32");
        let needs: Vec<String> = metadata.needs(&older).collect();
        for needed in ["colorama", "backport", "old"] {
            assert!(needs.iter().any(|need| need == needed), "{needed}: {needs:?}");
        }
    }
}
