//! Checks the host, origin and token of each request first.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::credentials;
use super::failure::Failure;
use super::state::{AppState, Client};
use crate::caller::Caller;

/// What every answer says that has nothing stricter to say.
const HEADERS: [(HeaderName, &str); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'self'"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The headers that pages of other origins may send: those of our API and of MCP.
const ALLOWED: &str = "authorization, content-type, idempotency-key, last-event-id, mcp-method, \
                       mcp-name, mcp-protocol-version, mcp-session-id";

/// Checks where a request was sent to, which page sent it, and that its body can be read. Everything
/// passes here.
pub(super) async fn check_host(
    State(state): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let checked = check_encoding(request.uri(), headers)
        .and_then(|()| check_place(&state, request.method(), request.uri(), headers));
    credentials::mark_browser(&mut request);
    // What is behind this may have stricter rules of its own, as that for agents has.
    let origin = request.headers_mut().remove(header::ORIGIN);
    let mut response = match checked {
        Ok(None) => next.run(request).await,
        Ok(Some(preflight)) => preflight,
        Err(failure) => failure.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    if let Some(origin) = origin.filter(|origin| is_listed(&state.config.origins, origin)) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        let shown = HeaderValue::from_static("Hatchery-Job, Mcp-Session-Id, Retry-After");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown);
    }
    response
}

/// Finds out who sent a request.
pub(super) async fn check_token(
    State(state): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let client = match client(&state, &mut request) {
        Ok(client) => client,
        Err(failure) => return failure.into_response(),
    };
    request.extensions_mut().insert(client.caller.clone());
    request.extensions_mut().insert(client);
    next.run(request).await
}

/// Refuses a compressed body, which would be taken for broken JSON. Files of E2B's clients are
/// unpacked in their sandbox.
fn check_encoding(uri: &Uri, headers: &HeaderMap) -> Result<(), Failure> {
    match single(headers, &header::CONTENT_ENCODING)? {
        None | Some("identity") => Ok(()),
        Some("gzip") if uri.path() == "/files" => Ok(()),
        Some(encoding) => {
            let message =
                format!("bodies in the encoding `{encoding}` can't be read; send it plain");
            Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoding", message))
        }
    }
}

/// Returns the answer if the request only asks what an origin may do.
fn check_place(
    state: &AppState,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Response>, Failure> {
    let host = single(headers, &header::HOST)?.ok_or_else(|| {
        Failure::new(StatusCode::BAD_REQUEST, "host", "a request needs the header `Host`")
    })?;
    // A request's line can name a host as well, which then counts.
    let named = uri.authority().map(axum::http::uri::Authority::as_str);
    for host in [Some(host), named].into_iter().flatten() {
        // Everybody who can reach another address may watch there, under any name.
        let may_watch =
            |address: &SocketAddr| state.config.watching_only && !address.ip().is_loopback();
        let is_ours = |address: &SocketAddr| is_host(host, *address, &state.config.hosts);
        if !state.addresses.iter().any(|address| may_watch(address) || is_ours(address)) {
            let message =
                "this server isn't known by that host name; its option `--host-name` adds one";
            return Err(Failure::new(StatusCode::MISDIRECTED_REQUEST, "host", message));
        }
    }
    let Some(origin) = single(headers, &header::ORIGIN)? else { return Ok(None) };
    let value = headers.get(header::ORIGIN);
    let is_listed = value.is_some_and(|value| is_listed(&state.config.origins, value));
    if !is_listed && !is_same(origin, host) {
        let message =
            "pages of that origin may not call this server; its option `--origin` adds one";
        return Err(Failure::new(StatusCode::FORBIDDEN, "origin", message));
    }
    let asks = headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    Ok((is_listed && asks && method == Method::OPTIONS).then(preflight))
}

/// Says what pages of another origin may do.
fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = HeaderValue::from_static(ALLOWED);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    response
}

/// Returns the text of a header that may be there once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Failure> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str());
    match (value, values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => {
            let message = format!("the header `{name}` must occur once, as plain text");
            Err(Failure::new(StatusCode::BAD_REQUEST, "header", message))
        }
    }
}

/// Whether a host, with or without a port, is one of this server. Ports don't matter: a page that
/// has its own name lead to this machine can't choose another name.
fn is_host(host: &str, address: SocketAddr, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || port.starts_with(':') => name,
            _ => return false,
        },
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    if names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
        return true;
    }
    let own = address.ip();
    if let Ok(ip) = name.parse::<IpAddr>() {
        // On every address of this machine, any address may be one of them.
        return ip == own || own.is_unspecified() || (own.is_loopback() && ip.is_loopback());
    }
    (own.is_loopback() || own.is_unspecified()) && name.eq_ignore_ascii_case("localhost")
}

/// Whether a page of this origin was loaded from this host.
fn is_same(origin: &str, host: &str) -> bool {
    let of = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    of.is_some_and(|of| of.eq_ignore_ascii_case(host))
}

fn is_listed(origins: &[String], origin: &HeaderValue) -> bool {
    origins.iter().any(|listed| listed.as_bytes() == origin.as_bytes())
}

fn client(state: &Arc<AppState>, request: &mut Request) -> Result<Client, Failure> {
    let tokens = &state.config.tokens;
    if tokens.is_empty() {
        let caller = Caller::of_this_machine();
        return Ok(Client { state: Arc::clone(state), caller, is_administrator: false });
    }
    let token = credentials::take(tokens, request)?;
    let (caller, is_administrator) = (token.caller.clone(), token.is_administrator());
    Ok(Client { state: Arc::clone(state), caller, is_administrator })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_of_the_server_or_a_name_of_it() {
        let names = ["proxy.example".to_owned()];
        let is = |host: &str, address: &str| is_host(host, address.parse().unwrap(), &names);
        for (host, on_loopback, on_one, on_all) in [
            ("127.0.0.1", true, false, true),
            ("127.0.0.1:8000", true, false, true),
            ("127.9.9.9:1", true, false, true),
            ("[::1]:8000", true, false, true),
            ("[::1]", true, false, true),
            ("LOCALHOST:8000", true, false, true),
            ("192.0.2.7:80", false, true, true),
            ("proxy.example", true, true, true),
            ("Proxy.Example:443", true, true, true),
            ("evil.example", false, false, false),
            ("localhost.evil.example", false, false, false),
            ("127.0.0.1.evil.example", false, false, false),
            ("evil.example@127.0.0.1", false, false, false),
            ("[::1]evil", false, false, false),
            ("[::1", false, false, false),
            ("2130706433", false, false, false),
            ("", false, false, false),
        ] {
            assert_eq!(is(host, "127.0.0.1:8000"), on_loopback, "{host}");
            assert_eq!(is(host, "192.0.2.7:8000"), on_one, "{host}");
            assert_eq!(is(host, "0.0.0.0:8000"), on_all, "{host}");
        }
    }

    #[test]
    fn an_origin_is_the_same_with_its_port() {
        assert!(is_same("http://localhost:8000", "localhost:8000"));
        assert!(is_same("https://proxy.example", "Proxy.Example"));
        for other in ["http://localhost", "http://localhost:8001", "null", "localhost:8000", ""] {
            assert!(!is_same(other, "localhost:8000"), "{other}");
        }
    }
}
