//! Where a request has its token.
//!
//! `Authorization: Bearer` is the way in; the others are for clients that can't send it. A token as
//! the password of Basic is for programs alone: a browser would send it with the requests of other
//! sites as well. What E2B's SDK sends to a sandbox opens that sandbox alone.

use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::uri::PathAndQuery;
use axum::http::{Extensions, HeaderMap, StatusCode, Uri};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use percent_encoding::percent_decode_str;

use super::config::{Token, find};
use super::failure::Failure;
use crate::facades::e2b;

/// E2B's SDK sends its key so.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What a browser says of the page that a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Before a token in a path.
const PREFIX: &str = "/t/";

/// The token that was in the path of a request, as the client sent it.
#[derive(Clone)]
struct PathToken(Vec<u8>);

/// A request that a page in a browser may have made.
#[derive(Clone)]
struct FromBrowser;

/// Takes the token out of a request's path, `/t/TOKEN/…`, so that nothing behind this shows it.
pub(super) fn take_from_path(mut request: Request) -> Request {
    let uri = request.uri();
    let Some((token, rest)) = uri.path().strip_prefix(PREFIX).and_then(|of| of.split_once('/'))
    else {
        return request;
    };
    let token = PathToken(percent_decode_str(token).collect());
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = uri.clone().into_parts();
    // A part of a valid path is one.
    parts.path_and_query = format!("/{rest}{query}").parse::<PathAndQuery>().ok();
    if let Ok(plain) = Uri::from_parts(parts) {
        *request.uri_mut() = plain;
        request.extensions_mut().insert(token);
    }
    request
}

/// Marks a request if a page in a browser may have made it, before its origin is taken away.
pub(super) fn mark_browser(request: &mut Request) {
    let headers = request.headers();
    if headers.contains_key(header::ORIGIN) || headers.contains_key(FETCH_SITE) {
        request.extensions_mut().insert(FromBrowser);
    }
}

/// Takes all tokens out of a request, and returns the first that is one of these.
pub(super) fn take<'a>(tokens: &'a [Token], request: &mut Request) -> Result<&'a Token, Failure> {
    let found = first(tokens, request.headers(), request.extensions(), request.uri().path());
    let (key, sandbox) = (API_KEY, HeaderName::from_static(e2b::ACCESS_TOKEN));
    // Nothing behind this needs them, so nothing behind this can show them.
    for name in [header::AUTHORIZATION, key, sandbox] {
        request.headers_mut().remove(name);
    }
    request.extensions_mut().remove::<PathToken>();
    found
}

fn first<'a>(
    tokens: &'a [Token],
    headers: &HeaderMap,
    extensions: &Extensions,
    path: &str,
) -> Result<&'a Token, Failure> {
    let refused = |message: &str| Failure::new(StatusCode::UNAUTHORIZED, "token", message);
    let single = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter().map(|value| value.as_bytes());
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(refused(&format!("send the header `{name}` once"))),
        }
    };
    let authorization = single(&header::AUTHORIZATION)?;
    let is_browsers = extensions.get::<FromBrowser>().is_some();
    let password = authorization.and_then(password);
    if is_browsers && password.is_some() {
        return Err(refused("pages in browsers send a token as `Authorization: Bearer TOKEN`"));
    }
    let key = single(&API_KEY)?;
    let in_path = extensions.get::<PathToken>().map(|token| token.0.as_slice());
    let sent = [authorization.and_then(bearer), password.as_deref(), key, in_path];
    let mut sent = sent.into_iter().flatten().peekable();
    let of_sandbox = e2b::access(headers, path);
    if sent.peek().is_none() && of_sandbox.is_none() {
        return Err(refused("send a token as `Authorization: Bearer TOKEN`"));
    }
    let found = sent.find_map(|sent| find(tokens, sent));
    found
        .or_else(|| {
            let (sandbox, access) = of_sandbox?;
            // The digests are compared in constant time.
            let opens = |token: &&Token| token.caller.access_to(sandbox) == Some(access);
            tokens.iter().filter(opens).fold(None, |_, token| Some(token))
        })
        .ok_or_else(|| refused("there is no such token"))
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    of_scheme(value, b"bearer ")
}

/// Returns the password of Basic; `None` if there is none, as where E2B's SDK names a user.
fn password(value: &[u8]) -> Option<Vec<u8>> {
    let pair = BASE64_STANDARD.decode(of_scheme(value, b"basic ")?).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec()).filter(|password| !password.is_empty())
}

fn of_scheme<'a>(value: &'a [u8], scheme: &[u8]) -> Option<&'a [u8]> {
    let (begin, rest) = value.split_at_checked(scheme.len())?;
    begin.eq_ignore_ascii_case(scheme).then_some(rest)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const ADA: &str = "secret-of-ada-0123";
    const BOB: &str = "a+b/c=d~0123456789";

    fn request(path: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    /// Whose token a request has, and the path behind the check.
    fn whose(path: &str, headers: &[(&str, &str)]) -> (Option<String>, String) {
        let tokens = Token::read(&format!("{ADA} ada\n{BOB} bob\n")).unwrap();
        let mut request = take_from_path(request(path, headers));
        mark_browser(&mut request);
        let found = take(&tokens, &mut request).ok();
        let tenant = found.and_then(Token::tenant).map(str::to_owned);
        for name in ["authorization", "x-api-key", "x-access-token"] {
            assert!(!request.headers().contains_key(name));
        }
        (tenant, request.uri().to_string())
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(pair))
    }

    #[test]
    fn a_token_is_found_wherever_it_may_be() {
        let ada =
            [format!("Bearer {ADA}"), basic(&format!("any:{ADA}")), basic(&format!(":{ADA}"))];
        for value in &ada {
            let (tenant, _) = whose("/v1/run", &[("authorization", value)]);
            assert_eq!(tenant.as_deref(), Some("ada"), "{value}");
        }
        assert_eq!(whose("/x", &[("x-api-key", BOB)]).0.as_deref(), Some("bob"));
        let in_path = format!("/t/{ADA}/v1/run?files=true");
        assert_eq!(whose(&in_path, &[]), (Some("ada".to_owned()), "/v1/run?files=true".to_owned()));
        let encoded = format!("/t/{}/", BOB.replace('/', "%2F"));
        assert_eq!(whose(&encoded, &[]), (Some("bob".to_owned()), "/".to_owned()));
        // The first that is one counts.
        let both = [("authorization", "Bearer stale"), ("x-api-key", BOB)];
        assert_eq!(whose("/x", &both).0.as_deref(), Some("bob"));
    }

    #[test]
    fn anything_else_is_none() {
        let pairs = [ADA.to_owned(), format!("{ADA}:"), format!("any:{ADA}:"), String::new()];
        let mut values: Vec<String> = pairs.iter().map(|pair| basic(pair)).collect();
        values.extend(["", "Basic", "Basic !", ADA].map(str::to_owned));
        for value in values {
            assert_eq!(whose("/x", &[("authorization", &value)]).0, None, "{value}");
        }
        for path in ["/t/", "/t/x/y", &format!("/t/{ADA}"), &format!("/x/t/{ADA}/y")] {
            assert_eq!(whose(path, &[]).0, None, "{path}");
        }
        assert_eq!(whose("/x", &[("x-api-key", ADA), ("x-api-key", ADA)]).0, None);
        assert_eq!(whose(&format!("/x?token={ADA}"), &[]).0, None);
    }

    #[test]
    fn a_browsers_basic_is_refused() {
        let pair = basic(&format!("any:{ADA}"));
        for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1")] {
            assert_eq!(whose("/x", &[("authorization", &pair), (name, value)]).0, None, "{name}");
            let bearer = format!("Bearer {ADA}");
            assert!(whose("/x", &[("authorization", &bearer), (name, value)]).0.is_some());
        }
    }

    #[test]
    fn the_token_of_a_sandbox_opens_that_sandbox_alone() {
        let tokens = Token::read(&format!("{ADA} ada\n{BOB} bob\n")).unwrap();
        let access = tokens[1].caller.access_to("i1").unwrap().to_hex();
        let of = |path: &str, id: &str| {
            let user = basic("root:");
            let headers = [
                ("x-access-token", access.as_str()),
                ("e2b-sandbox-id", id),
                ("authorization", user.as_str()),
            ];
            whose(path, &headers).0
        };
        for path in ["/execute", "/files", "/contexts/c", "/process.Process/Start", "/health"] {
            assert_eq!(of(path, "i1").as_deref(), Some("bob"), "{path}");
            assert_eq!(of(path, "i2"), None, "{path}");
        }
        for path in ["/v1/run", "/sandboxes/i1", "/v2/sandboxes", "/filesystem", "/contextsx"] {
            assert_eq!(of(path, "i1"), None, "{path}");
        }
    }
}
