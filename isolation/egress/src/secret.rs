//! Secrets that requests carry to their own hosts, and the placeholders that programs see.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header, request};
use memchr::memmem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::failure::{Failure, FailureReason};
use crate::needles::Needles;
use crate::origin::{Origin, OriginPattern};

/// What placeholders begin with.
const PREFIX: &str = "hatchery-secret-";
/// Secrets are at least this long, so that no other text is taken for one.
const SHORTEST_BYTES: usize = 8;
const LONGEST_BYTES: usize = 8192;
/// What a query's value has to percent-encode.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A secret that one host gets: `NAME=env:VARIABLE@https://api.example.com`.
///
/// - `NAME` is the environment variable in which the program finds a placeholder.
/// - The source is `env:VARIABLE` of this process or `file:PATH`. Line ends at its end are taken
///   off.
/// - The host is like that of a [`Rule`](crate::Rule), without a path.
/// - Further words: `query` or `body` if the placeholder may also be there, not only in headers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SecretSource {
    name: String,
    place: SecretPlace,
    destination: Destination,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SecretPlace {
    Variable(String),
    File(PathBuf),
}

/// Where a secret may go.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Destination {
    origins: OriginPattern,
    in_query: bool,
    in_body: bool,
}

/// Why a secret can't be used. It holds nothing of the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret `{name}` can't be used: {problem}")]
pub struct InvalidSecret {
    name: String,
    problem: String,
}

impl FromStr for SecretSource {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        let invalid = |problem: String| InvalidSecret { name: name.to_owned(), problem };
        let form = "write it as `NAME=env:VARIABLE@https://host` or `NAME=file:PATH@https://host`";
        let at = rest.rfind("@https://").or_else(|| rest.rfind("@http://"));
        let (source, target) = rest.split_at(at.ok_or_else(|| invalid(form.to_owned()))?);
        let place = match source.split_once(':') {
            Some(("env", variable)) if variable.starts_with("HATCHERY_") => {
                let why = "worker processes get the variables that begin with `HATCHERY_`";
                return Err(invalid(format!("{why}: rename `{variable}`")));
            }
            Some(("env", variable)) if !variable.is_empty() => {
                SecretPlace::Variable(variable.to_owned())
            }
            Some(("file", path)) if !path.is_empty() => SecretPlace::File(path.into()),
            _ => return Err(invalid(form.to_owned())),
        };
        let destination = Destination::parse(&target[1..]).map_err(invalid)?;
        check_name(name).map_err(invalid)?;
        Ok(Self { name: name.to_owned(), place, destination })
    }
}

impl TryFrom<String> for SecretSource {
    type Error = InvalidSecret;

    fn try_from(text: String) -> Result<Self, InvalidSecret> {
        text.parse()
    }
}

impl Destination {
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (origins, path) = OriginPattern::parse(words.next().unwrap_or_default())?;
        if !matches!(&*path, "" | "/") {
            return Err(format!("it goes to a whole host: leave `{path}` out"));
        }
        let mut destination = Self { origins, in_query: false, in_body: false };
        for word in words {
            match word {
                "query" => destination.in_query = true,
                "body" => destination.in_body = true,
                _ => return Err(format!("`{word}` isn't known here: `query` and `body` are")),
            }
        }
        Ok(destination)
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match is_name && !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit()) {
        true => Ok(()),
        false => Err("its name must be letters, digits and `_`, without a digit first".to_owned()),
    }
}

impl SecretSource {
    /// Reads the secret.
    pub fn load(&self) -> Result<Secret, InvalidSecret> {
        let invalid = |problem| InvalidSecret { name: self.name.clone(), problem };
        let value = Zeroizing::new(match &self.place {
            SecretPlace::Variable(variable) => std::env::var(variable)
                .map_err(|_| invalid(format!("set the environment variable `{variable}`")))?,
            SecretPlace::File(path) => std::fs::read_to_string(path)
                .map_err(|error| invalid(format!("`{}` can't be read: {error}", path.display())))?,
        });
        Secret::checked(self.name.clone(), &value, self.destination.clone())
    }
}

/// A secret. Its value is in no `Debug`, and is overwritten when the last job with it has ended.
#[derive(Clone, derive_more::Debug)]
#[debug("Secret({name})")]
pub struct Secret {
    name: String,
    value: Zeroizing<String>,
    destination: Destination,
}

impl Secret {
    /// Returns a secret of this value. `destination` is like `https://api.example.com query`.
    pub fn new(name: &str, value: &str, destination: &str) -> Result<Self, InvalidSecret> {
        let invalid = |problem| InvalidSecret { name: name.to_owned(), problem };
        check_name(name).map_err(invalid)?;
        let destination = Destination::parse(destination).map_err(invalid)?;
        Self::checked(name.to_owned(), value, destination)
    }

    /// Makes a placeholder. A pool's programs all find the same one, so that a session or its fork
    /// can use what an earlier turn read.
    pub(crate) fn placeholder(&self) -> Result<String, getrandom::Error> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        Ok(format!("{PREFIX}{}-{}", self.name, hex::encode(random)))
    }

    /// Returns the environment variable in which the program finds the placeholder.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn checked(name: String, value: &str, destination: Destination) -> Result<Self, InvalidSecret> {
        let value = value.trim_end_matches(['\r', '\n']);
        let problem = match value.len() {
            ..SHORTEST_BYTES => format!("it must have at least {SHORTEST_BYTES} characters"),
            SHORTEST_BYTES..=LONGEST_BYTES if value.bytes().all(|it| matches!(it, b' '..=b'~')) => {
                return Ok(Self { name, value: Zeroizing::new(value.to_owned()), destination });
            }
            SHORTEST_BYTES..=LONGEST_BYTES => "it must be one line of ASCII characters".to_owned(),
            _ => format!("it must have at most {LONGEST_BYTES} characters"),
        };
        Err(InvalidSecret { name, problem })
    }
}

/// The secrets of a job with its placeholders.
#[derive(Default)]
pub(crate) struct JobSecrets {
    secrets: Vec<(Arc<Secret>, String)>,
    /// The placeholders, replaced by the secrets.
    placeholders: Needles,
    /// The placeholders in base64.
    encoded_placeholders: Needles,
}

impl JobSecrets {
    /// Prepares the secrets' placeholders, or those that a recording has.
    pub(crate) fn new(
        secrets: &[(Arc<Secret>, String)],
        recorded: &BTreeMap<String, String>,
    ) -> Self {
        let mut own = Self::default();
        for (number, (secret, placeholder)) in secrets.iter().enumerate() {
            let placeholder = recorded.get(&secret.name).unwrap_or(placeholder).clone();
            own.placeholders.add(number, placeholder.as_bytes(), Some(secret.value.as_bytes()));
            own.encoded_placeholders.add_in_base64(number, placeholder.as_bytes(), None);
            own.secrets.push((Arc::clone(secret), placeholder));
        }
        own
    }

    /// Returns the environment variables with the placeholders.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let pair = |(secret, placeholder): &(Arc<Secret>, String)| {
            (secret.name.clone(), placeholder.clone())
        };
        self.secrets.iter().map(pair).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Replaces the placeholders in the head of a request, or refuses it. `query` is that of its
    /// target.
    pub(crate) fn replace_in_head(
        &self,
        origin: &Origin,
        head: &mut request::Parts,
        path: &str,
        query: &mut Option<String>,
    ) -> Result<(), Failure> {
        if self.is_empty() {
            return Ok(());
        }
        let decoded = |text| Cow::<[u8]>::from(percent_decode_str(text));
        self.check(origin, head.method.as_str().as_bytes(), "the method", |_| false)?;
        self.check(origin, &decoded(path), "the path", |_| false)?;
        if let Some(query) = query {
            self.check(origin, &decoded(query), "the query", |to| to.in_query)?;
            let mut encoded = Needles::default();
            for (number, (secret, placeholder)) in self.secrets.iter().enumerate() {
                encoded.add(number, placeholder.as_bytes(), Some(secret.in_query().as_bytes()));
            }
            if let Some(replaced) = encoded.replace(query.as_bytes()) {
                *query = String::from_utf8_lossy(&replaced).into_owned();
            }
        }
        self.replace_in_headers(origin, &mut head.headers)
    }

    /// Replaces the placeholders in headers or trailers of a request, or refuses it.
    pub(crate) fn replace_in_headers(
        &self,
        origin: &Origin,
        headers: &mut HeaderMap,
    ) -> Result<(), Failure> {
        if self.is_empty() {
            return Ok(());
        }
        for (name, value) in headers.iter_mut() {
            if name.as_str().contains(PREFIX) {
                return Err(misplaced(origin, "a header's name", "NAME"));
            }
            let basic = basic_credentials(name, value);
            let text = basic.as_ref().map_or(value.as_bytes(), |text| text);
            self.check(origin, text, "a header", |_| true)?;
            let replaced = self.placeholders.replace(text);
            if memmem::find(replaced.as_deref().map_or(text, Vec::as_slice), PREFIX.as_bytes())
                .is_some()
            {
                let text = format!(
                    "a request to {origin} is refused: a header has the placeholder of a secret that \
                     this pool doesn't have; read the environment variable again"
                );
                return Err(Failure::new(FailureReason::Secret, text));
            }
            let Some(replaced) = replaced else { continue };
            let replaced = match &basic {
                Some(_) => format!("Basic {}", STANDARD.encode(&*replaced)).into_bytes(),
                None => replaced.to_vec(),
            };
            *value = HeaderValue::from_maybe_shared(Bytes::from(replaced))
                .map_err(|_| misplaced(origin, "a header", "NAME"))?;
            value.set_sensitive(true);
        }
        Ok(())
    }

    /// Refuses a text with a placeholder, unless its secret is for this host and may be here. In
    /// base64 it may not.
    fn check(
        &self,
        origin: &Origin,
        text: &[u8],
        place: &str,
        may_be_here: impl Fn(&Destination) -> bool,
    ) -> Result<(), Failure> {
        for (secret, placeholder) in &self.secrets {
            let destination = &secret.destination;
            let is_allowed = destination.origins.matches(origin) && may_be_here(destination);
            if !is_allowed && memmem::find(text, placeholder.as_bytes()).is_some() {
                return Err(misplaced(origin, place, &secret.name));
            }
        }
        match self.encoded_placeholders.find(text) {
            Some((_, needle)) => {
                let secret = &self.secrets[needle.secret].0;
                Err(misplaced(origin, &format!("{place}, in base64"), &secret.name))
            }
            None => Ok(()),
        }
    }

    /// Returns what to look for in the body of a request to a host, and whether a part of it is
    /// replaced.
    pub(crate) fn in_request(&self, origin: &Origin, head: &request::Parts) -> (Needles, bool) {
        let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let (mut needles, mut is_replaced) = (Needles::default(), false);
        for (number, (secret, placeholder)) in self.secrets.iter().enumerate() {
            let (destination, placeholder) = (&secret.destination, placeholder.as_bytes());
            if destination.in_body && destination.origins.matches(origin) {
                needles.add(number, placeholder, Some(&secret.written_as(kind)));
                is_replaced = true;
            } else {
                needles.add(number, placeholder, None);
                needles.add_in_base64(number, placeholder, None);
            }
        }
        (needles, is_replaced)
    }

    /// Returns what to replace in responses of a host: its secrets in the forms in which servers
    /// write such things.
    pub(crate) fn in_response(&self, origin: &Origin) -> Needles {
        let mut needles = Needles::default();
        for (number, (secret, placeholder)) in self.secrets.iter().enumerate() {
            if secret.destination.origins.matches(origin) {
                let placeholder = Some(placeholder.as_bytes());
                secret.forms().iter().for_each(|form| needles.add(number, form, placeholder));
                needles.add_in_base64(number, secret.value.as_bytes(), placeholder);
            }
        }
        needles
    }

    /// Returns the refusal of a body with a placeholder.
    pub(crate) fn misplaced_in_body(&self, origin: &Origin, number: usize) -> Failure {
        misplaced(origin, "the body", &self.secrets[number].0.name)
    }
}

impl Secret {
    /// Returns the value as a body of this content type has it.
    fn written_as(&self, kind: &[u8]) -> Zeroizing<Vec<u8>> {
        let value = &*self.value;
        Zeroizing::new(if kind.starts_with(b"application/x-www-form-urlencoded") {
            self.in_query().as_bytes().to_vec()
        } else if kind.starts_with(b"application/json") {
            in_json(value).into_bytes()
        } else {
            value.as_bytes().to_vec()
        })
    }

    fn in_query(&self) -> Zeroizing<String> {
        Zeroizing::new(percent_encode(self.value.as_bytes(), IN_QUERY).to_string())
    }

    /// Returns the ways in which servers write the value.
    fn forms(&self) -> Vec<Zeroizing<Vec<u8>>> {
        let value = &*self.value;
        let percent = self.in_query();
        // With the digits of its encodings in lower case.
        let lower = percent.split('%').enumerate().map(|(number, part)| match number {
            0 => part.to_owned(),
            _ => format!("%{}{}", part[..2].to_ascii_lowercase(), &part[2..]),
        });
        let lower = Zeroizing::new(lower.collect::<String>());
        let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let quoted = html.replace('"', "&quot;").replace('\'', "&#39;");
        let forms = [
            value.to_owned(),
            percent.to_string(),
            percent.replace("%20", "+"),
            lower.to_string(),
            lower.replace("%20", "+"),
            in_json(value),
            in_json(value).replace('/', "\\/"),
            hex::encode(value),
            hex::encode_upper(value),
            html,
            quoted,
        ];
        forms.into_iter().map(|form| Zeroizing::new(form.into_bytes())).collect()
    }
}

fn in_json(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Replaces secrets in headers or trailers of a response, and drops headers that they name.
pub(crate) fn hide_in_headers(needles: &Needles, headers: &mut HeaderMap) {
    let shown: Vec<_> = headers
        .keys()
        .filter(|name| needles.find(name.as_str().as_bytes()).is_some())
        .cloned()
        .collect();
    shown.into_iter().for_each(|name| drop(headers.remove(name)));
    for value in headers.values_mut() {
        if let Some(replaced) = needles.replace(value.as_bytes()) {
            *value = HeaderValue::from_bytes(&replaced).unwrap_or(HeaderValue::from_static(""));
        }
    }
}

/// Returns the `user:password` of a header with basic authentication.
fn basic_credentials(name: &header::HeaderName, value: &HeaderValue) -> Option<Zeroizing<Vec<u8>>> {
    let (kind, encoded) = value.as_bytes().split_at_checked("Basic ".len())?;
    let is_basic = *name == header::AUTHORIZATION && kind.eq_ignore_ascii_case(b"Basic ");
    is_basic.then(|| STANDARD.decode(encoded.trim_ascii()).ok().map(Zeroizing::new)).flatten()
}

fn misplaced(origin: &Origin, place: &str, name: &str) -> Failure {
    let text = format!(
        "a request to {origin} is refused: it has a secret's placeholder in {place}; a secret goes to \
         its own host only, in headers, and elsewhere by the words `query` and `body`, as in \
         `{name}=env:VARIABLE@https://host query`"
    );
    Failure::new(FailureReason::Secret, text)
}
