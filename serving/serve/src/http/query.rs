//! Parses the path and the query of a request.

use std::collections::BTreeMap;

use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::failure::Failure;

/// The options of a job that aren't part of the job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// The session to run in.
    pub(super) session: Option<String>,
    /// Whether the result has the contents of files.
    pub(super) has_files: bool,
}

/// Reads a query, which may have these options, each once.
pub(super) fn all(
    query: Option<&str>,
    known: &[&str],
) -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        if !known.contains(&name.as_ref()) {
            let message = match known {
                [] => "this path takes no options".to_owned(),
                known => format!("there is no such option; use {}", known.join(", ")),
            };
            return Err(Failure::usage(message));
        }
        if found.insert(name.into_owned(), value.into_owned()).is_some() {
            return Err(Failure::usage("an option is given twice"));
        }
    }
    Ok(found)
}

impl Options {
    /// Reads a query, which may have these options: `session`, `files`.
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Failure> {
        let mut found = all(query, known)?;
        let has_files = match found.remove("files").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(Failure::usage("`files` is true or false")),
        };
        Ok(Self { session: found.remove("session"), has_files })
    }
}

/// The parts of a path that a route leaves open.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(named)| Self(named)).map_err(|_| {
            let message = "the path isn't valid: names are UTF-8, and ids are numbers";
            Failure::new(StatusCode::BAD_REQUEST, "path", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_and_given_once() {
        let known = ["session", "files"];
        let read = |query| Options::read(Some(query), &known);
        assert_eq!(Options::read(None, &known).unwrap(), Options::default());
        let expected = Options { session: Some("a b/ä".to_owned()), has_files: true };
        assert_eq!(read("session=a+b%2F%C3%A4&files=true").unwrap(), expected);
        for query in ["sesion=a", "files=1", "files=true&files=false", "session"] {
            let status = read(query).map_err(|failure| failure.status);
            // A name without a value is an empty name, which no session has.
            let empty = Options { session: Some(String::new()), ..Options::default() };
            let expected =
                if query == "session" { Ok(empty) } else { Err(StatusCode::BAD_REQUEST) };
            assert_eq!(status, expected, "{query}");
        }
        assert!(Options::read(Some("session=a"), &["files"]).is_err());
    }
}
