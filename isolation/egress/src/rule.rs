//! The rules by which requests are allowed; what no rule allows is refused.
//!
//! What is checked is what is sent: the path without `.` and `..`, as the `url` crate writes it. Some
//! servers decode a path several times, take `\` for `/`, or ignore parameters, and find further `..`
//! there. Such a path only meets rules for all paths.

use std::str::FromStr;

use http::Method;
use percent_encoding::percent_decode;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::failure::{Failure, FailureReason};
use crate::origin::{Origin, OriginPattern};

/// A rule: `GET,POST https://api.example.com/v1/*`.
///
/// - Methods, separated by commas, or `*` for all. CONNECT and TRACE are never allowed.
/// - Scheme and host: a name, an address, or `*.example.com` for all names below one. The port is
///   the scheme's unless the URL has one.
/// - A path, in which each `*` stands for any characters. Queries are free.
/// - The word `private`, if the name may lead to addresses that are loopback, private or shared by
///   carriers. All others that aren't public, such as those of metadata services, are only allowed
///   where a rule names the address itself.
#[derive(
    Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Debug, derive_more::Display,
)]
#[serde(try_from = "String", into = "String")]
#[debug("Rule({text:?})")]
#[display("{text}")]
pub struct Rule {
    text: String,
    /// `None` for all.
    methods: Option<Vec<Method>>,
    origins: OriginPattern,
    path: SentPath,
    allows_private: bool,
}

/// Why a text isn't a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rule `{rule}` can't be used: {problem}")]
pub struct InvalidRule {
    rule: String,
    problem: String,
}

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(rule: &str) -> Result<Self, InvalidRule> {
        Self::parse(rule).map_err(|problem| InvalidRule { rule: rule.to_owned(), problem })
    }
}

impl TryFrom<String> for Rule {
    type Error = InvalidRule;

    fn try_from(rule: String) -> Result<Self, InvalidRule> {
        rule.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.text
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (methods, url, allows_private) = match words[..] {
            [methods, url] => (methods, url, false),
            [methods, url, "private"] => (methods, url, true),
            [_, _, word] => return Err(format!("`{word}` isn't known here: only `private` is")),
            _ => return Err("write methods and a URL, as in `GET https://host/*`".to_owned()),
        };
        let methods = match methods {
            "*" => None,
            methods => Some(methods.split(',').map(parse_method).collect::<Result<_, _>>()?),
        };
        let (origins, path) = OriginPattern::parse(url)?;
        if path.is_empty() {
            return Err(format!("it has no path: write `{url}/*` for all paths"));
        }
        let has_dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
        let path = SentPath::of(&path)
            .filter(|path| !path.is_ambiguous && !has_dots)
            .ok_or("its path has `..`, `.` or control characters: write what they lead to")?;
        Ok(Self { text: words.join(" "), methods, origins, path, allows_private })
    }

    fn allows(&self, method: &Method, origin: &Origin, path: &SentPath) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method))
            && self.origins.matches(origin)
            && self.path.covers(path)
    }
}

fn parse_method(text: &str) -> Result<Method, String> {
    let is_name =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    match Method::from_bytes(text.as_bytes()) {
        Ok(Method::CONNECT | Method::TRACE) => Err(format!("{text} is never allowed")),
        Ok(method) if is_name => Ok(method),
        _ => Err(format!("`{text}` isn't a method: write upper-case names, such as `GET,POST`")),
    }
}

/// A path as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentPath {
    /// Without percent-encodings of letters and such.
    text: Vec<u8>,
    /// Whether servers may take it for another one.
    is_ambiguous: bool,
}

/// How often a path may be percent-encoded.
const MOST_ENCODINGS: usize = 4;

impl SentPath {
    /// Returns what is sent for a path; `None` if it isn't one.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let url = Url::parse(&format!("http://host{path}")).ok()?;
        let (text, is_ambiguous) = (with_plain_letters(url.path()), is_ambiguous(url.path()));
        Some(Self { text, is_ambiguous })
    }

    /// Whether this path of a rule covers the path of a request.
    fn covers(&self, path: &Self) -> bool {
        is_like(&self.text, &path.text) && (!path.is_ambiguous || self.text == b"/*")
    }
}

/// Whether a path has `..` once it is decoded, or what no path should have.
fn is_ambiguous(path: &str) -> bool {
    let mut bytes = path.as_bytes().to_vec();
    for _ in 0..=MOST_ENCODINGS {
        let decoded: Vec<u8> = percent_decode(&bytes).collect();
        if decoded == bytes {
            let Ok(text) = str::from_utf8(&bytes) else { return true };
            let is_dots = |segment: &str| {
                let name = segment.split(';').next().unwrap_or_default();
                matches!(name.trim(), "." | "..")
            };
            return text.chars().any(char::is_control) || text.split(['/', '\\']).any(is_dots);
        }
        bytes = decoded;
    }
    true
}

/// Decodes what needs no percent-encoding, and writes the rest in upper case.
fn with_plain_letters(path: &str) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let decoded = match rest {
            [b'%', high, low, ..] => {
                percent_decode(&[b'%', *high, *low]).next().filter(|byte| *byte != b'%')
            }
            _ => None,
        };
        match decoded {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                plain.push(byte)
            }
            Some(_) => plain.extend(rest[..3].to_ascii_uppercase()),
            None => plain.push(first),
        }
        rest = if decoded.is_some() { &rest[3..] } else { after };
    }
    plain
}

/// Whether a text is like a pattern in which `*` stands for any bytes.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = memchr::memmem::find(rest, part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Rules in layers, such as those of a pool and those of a job: each layer must allow a request.
#[derive(Debug, Clone)]
pub(crate) struct Rules(Vec<Vec<Rule>>);

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self(vec![rules])
    }

    pub(crate) fn restricted(&self, rules: Vec<Rule>) -> Self {
        Self(self.0.iter().cloned().chain([rules]).collect())
    }

    fn refusal(&self, what: String) -> Failure {
        let layers = match self.0.len() {
            ..2 => "",
            _ => "; the pool's rules and those of the tenant and the job must all allow it",
        };
        Failure::new(FailureReason::Rule, format!("no rule allows {what}{layers}"))
    }

    /// Returns what no rule allows as a refusal that names one that would.
    pub(crate) fn check(
        &self,
        method: &Method,
        origin: &Origin,
        path: &str,
    ) -> Result<(), Failure> {
        let refused = |why: &str| Err(self.refusal(format!("{method} {origin}{path}: {why}")));
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return refused("this method is never allowed");
        }
        let Some(path) = SentPath::of(path) else { return refused("it isn't a path") };
        let allows =
            |layer: &Vec<Rule>| layer.iter().any(|rule| rule.allows(method, origin, &path));
        match self.0.iter().all(allows) {
            true => Ok(()),
            false if path.is_ambiguous => refused(&format!(
                "its path is ambiguous, so only the rule `{method} {origin}/*` would"
            )),
            false => {
                let path = String::from_utf8_lossy(&path.text);
                refused(&format!("the rule `{method} {origin}{path}` would"))
            }
        }
    }

    /// Returns whether connections to this host may be to private addresses, or the refusal of them
    /// all.
    pub(crate) fn check_host(&self, host: &Host, port: u16) -> Result<bool, Failure> {
        let reaches = |rule: &&Rule| rule.origins.reaches(host, port);
        if !self.0.iter().all(|layer| layer.iter().any(|rule| reaches(&rule))) {
            let origin = Origin::likely(host.clone(), port);
            return Err(self.refusal(format!(
                "connections to {host}:{port}: a rule such as `GET {origin}/*` would"
            )));
        }
        let is_private =
            |layer: &Vec<Rule>| layer.iter().filter(reaches).any(|rule| rule.allows_private);
        Ok(self.0.iter().all(is_private))
    }
}
