//! What hostile programs try, by name: each attempt is refused for its own reason, or harmless.
//!
//! A row has the attempt's name, what the program does, what comes of it, and what the server that
//! the rules name got. What comes of it is the label of a refusal, with `open` before it if there was
//! no stream, or else the statuses of the responses.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use egress::{EgressLimits, Secret};
use http::Response;

use crate::support::{Guest, Server, TableResolver, egress_with, full};

const VALUE: &str = "sk-live-0123456789abcdef";

/// Addresses to which a name of a rule may lead, and what allows it: the word `private`, or nothing
/// but a rule that names the address.
const ADDRESSES: [(&str, &str, bool); 36] = [
    ("loopback", "127.0.0.1", true),
    ("another loopback", "127.255.255.254", true),
    ("a private 10", "10.0.0.1", true),
    ("a private 172", "172.31.255.255", true),
    ("a private 192", "192.168.1.1", true),
    ("shared by carriers", "100.64.0.1", true),
    ("link-local", "169.254.1.1", false),
    ("metadata", "169.254.169.254", false),
    ("metadata of Azure", "168.63.129.16", false),
    ("metadata of Alibaba", "100.100.100.200", false),
    ("metadata of Oracle", "192.0.0.192", false),
    ("unspecified", "0.0.0.0", false),
    ("this network", "0.1.2.3", false),
    ("broadcast", "255.255.255.255", false),
    ("reserved", "240.0.0.1", false),
    ("multicast", "224.0.0.1", false),
    ("for documentation", "192.0.2.1", false),
    ("for benchmarks", "198.18.0.1", false),
    ("6to4 relays", "192.88.99.1", false),
    ("IPv6 loopback", "::1", true),
    ("IPv6 unspecified", "::", false),
    ("mapped loopback", "::ffff:127.0.0.1", false),
    ("mapped metadata", "::ffff:169.254.169.254", false),
    ("mapped public", "::ffff:8.8.8.8", false),
    ("compatible loopback", "::127.0.0.1", false),
    ("NAT64 of metadata", "64:ff9b::a9fe:a9fe", false),
    ("local NAT64", "64:ff9b:1::1", false),
    ("6to4 of loopback", "2002:7f00:1::", false),
    ("Teredo", "2001::1", false),
    ("unique local", "fc00::1", true),
    ("IPv6 metadata", "fd00:ec2::254", false),
    ("IPv6 link-local", "fe80::1", false),
    ("IPv6 site-local", "fec0::1", false),
    ("IPv6 multicast", "ff02::1", false),
    ("IPv6 for documentation", "2001:db8::1", false),
    ("IPv6 not assigned", "4000::1", false),
];

/// Attempts to connect: the host, and what comes of it.
const HOSTS: [(&str, &str, &str); 62] = [
    ("the host itself", "api.example.com", "200"),
    ("another host", "evil.example.org", "open rule"),
    ("a name below", "x.api.example.com", "open rule"),
    ("the name above", "example.com", "open rule"),
    ("the name as a prefix", "api.example.com.evil.org", "open rule"),
    ("the name as a suffix", "evilapi.example.com", "open rule"),
    ("upper case", "API.Example.COM", "200"),
    ("a dot at the end", "api.example.com.", "200"),
    ("two dots at the end", "api.example.com..", "open invalid"),
    ("a dot at the begin", ".api.example.com", "open invalid"),
    ("full-width letters", "\u{ff41}pi.example.com", "200"),
    ("a full-width dot", "api\u{3002}example.com", "200"),
    ("a soft hyphen", "a\u{ad}pi.example.com", "200"),
    ("a Cyrillic letter", "\u{430}pi.example.com", "open rule"),
    ("its punycode", "xn--pi-7kc.example.com", "open rule"),
    ("no valid punycode", "xn--a.example.com", "open invalid"),
    ("punycode of ASCII", "xn--api-.example.com", "open invalid"),
    ("the wildcard's own name", "wild.example.net", "open rule"),
    ("a name below the wildcard", "a.wild.example.net", "200"),
    ("two below the wildcard", "a.b.wild.example.net", "200"),
    ("the wildcard as a suffix", "evilwild.example.net", "open rule"),
    ("an empty label", "a..wild.example.net", "open invalid"),
    ("a star", "*.wild.example.net", "200"),
    ("NUL", "api.example.com\0.evil.org", "open invalid"),
    ("an encoded NUL", "api.example.com%00", "open invalid"),
    ("a space", "api.example.com evil.org", "open invalid"),
    ("a line end", "api.example.com\r\nX: y", "open invalid"),
    ("an at sign", "api.example.com@evil.org", "open invalid"),
    ("a slash", "api.example.com/evil.org", "open invalid"),
    ("a backslash", "api.example.com\\evil.org", "open invalid"),
    ("a hash", "api.example.com#.evil.org", "open invalid"),
    ("a question mark", "api.example.com?.evil.org", "open invalid"),
    ("a port in the host", "api.example.com:80", "open invalid"),
    ("an encoded dot", "api%2eexample.com", "200"),
    ("encoded twice", "api%252eexample.com", "open invalid"),
    ("nothing", "", "open invalid"),
    ("a dot", ".", "open invalid"),
    ("a path", "/var/run/docker.sock", "open invalid"),
    ("localhost", "localhost", "open rule"),
    ("LOCALHOST", "LOCALHOST", "open rule"),
    ("127.0.0.1", "127.0.0.1", "open rule"),
    ("127.1", "127.1", "open rule"),
    ("hexadecimal", "0x7f.1", "open rule"),
    ("octal", "0177.0.0.01", "open rule"),
    ("an integer", "2130706433", "open rule"),
    ("a hexadecimal integer", "0x7f000001", "open rule"),
    ("full-width digits", "\u{ff11}\u{ff12}\u{ff17}.0.0.1", "open rule"),
    ("a dot after an address", "127.0.0.1.", "open rule"),
    ("zero", "0", "open rule"),
    ("too large", "256.256.256.256", "open invalid"),
    ("five numbers", "1.2.3.4.5", "open invalid"),
    ("an integer too large", "4294967296", "open invalid"),
    ("[::1]", "[::1]", "open rule"),
    ("::1", "::1", "open rule"),
    ("::1 in full", "0:0:0:0:0:0:0:1", "open rule"),
    ("mapped", "::ffff:127.0.0.1", "open rule"),
    ("mapped in hexadecimal", "::ffff:7f00:1", "open rule"),
    ("a zone", "fe80::1%eth0", "open invalid"),
    ("an encoded zone", "[fe80::1%25eth0]", "open invalid"),
    ("half a bracket", "[::1", "open invalid"),
    ("metadata", "169.254.169.254", "open rule"),
    ("metadata in hexadecimal", "0xA9FEA9FE", "open rule"),
];

/// Attempts by what is written to the stream. `{h}` stands for the host and port, `{s}` for the
/// secret's placeholder, `{b}` for it in base64, `{q}` for that of a secret for queries and bodies,
/// and `{f}` for that of another host's secret. `~` ends a line.
const REQUESTS: [(&str, &str, &str, &str); 153] = [
    // Paths.
    ("another path", "GET /admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("the path's end", "GET /v1 HTTP/1.1~Host: {h}~~", "rule", ""),
    ("the path as a prefix", "GET /v1x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("another case", "GET /V1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("dots", "GET /v1/../admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("dots that stay", "GET /v1/a/../b HTTP/1.1~Host: {h}~~", "200", "GET /v1/b"),
    ("a dot", "GET /v1/./x HTTP/1.1~Host: {h}~~", "200", "GET /v1/x"),
    ("encoded dots", "GET /v1/%2e%2e/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("upper-case encoded dots", "GET /v1/%2E%2E/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("half encoded dots", "GET /v1/.%2e/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("an encoded slash", "GET /v1/..%2fadmin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("an encoded slash before", "GET /v1%2f../admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("all encoded", "GET /v1/%2e%2e%2fadmin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("a backslash", "GET /v1/..\\admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("an encoded backslash", "GET /v1/..%5cadmin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("a parameter", "GET /v1/..;/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("a parameter with a value", "GET /v1/..;x=y/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("encoded twice", "GET /v1/%252e%252e/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("a slash encoded twice", "GET /v1/..%252fadmin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("encoded four times", "GET /v1/..%2525252fadmin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("encoded six times", "GET /v1/..%25252525252fadmin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("encoded at two depths", "GET /v1/..%2fadmin/..%252fv1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("two kinds of dots", "GET /v1/..%5cadmin/..;/v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("dots and a space", "GET /v1/..%20/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("hidden dots where all are allowed", "GET /..%2fx HTTP/1.1~Host: {h}~~", "rule", ""),
    ("slashes and dots", "GET /v1//../admin HTTP/1.1~Host: {h}~~", "200", "GET /v1/admin"),
    ("slashes before", "GET //v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("a host as a path", "GET //evil.org/v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("slashes that stay", "GET /v1//x HTTP/1.1~Host: {h}~~", "200", "GET /v1//x"),
    ("many dots", "GET /v1/..//..//../v1/../admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("overlong UTF-8", "GET /v1/%c0%ae%c0%ae/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("an encoded NUL", "GET /v1/%00 HTTP/1.1~Host: {h}~~", "rule", ""),
    ("dots and NUL", "GET /v1/..%00/admin HTTP/1.1~Host: {h}~~", "rule", ""),
    ("an encoded line end", "GET /v1/%0d%0aX:%20y HTTP/1.1~Host: {h}~~", "rule", ""),
    ("encoded letters", "GET /%761/%78 HTTP/1.1~Host: {h}~~", "200", "GET /%761/%78"),
    (
        "a query with a path",
        "GET /v1/x?/../admin HTTP/1.1~Host: {h}~~",
        "200",
        "GET /v1/x?/../admin",
    ),
    ("a fragment", "GET /v1/x#/../admin HTTP/1.1~Host: {h}~~", "200", "GET /v1/x"),
    (
        "a line end in a query",
        "GET /v1/x?%0d%0aX:y HTTP/1.1~Host: {h}~~",
        "200",
        "GET /v1/x?%0d%0aX:y",
    ),
    ("no slash", "GET v1/x HTTP/1.1~Host: {h}~~", "protocol", ""),
    // Targets and hosts.
    ("an absolute target", "GET http://{h}/v1/x HTTP/1.1~Host: {h}~~", "200", "GET /v1/x"),
    ("of another host", "GET http://evil.org/v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("of another host, both", "GET http://evil.org/v1/x HTTP/1.1~Host: evil.org~~", "rule", ""),
    ("of another scheme", "GET https://{h}/v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("of another port", "GET http://api.example.com:1/v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("with a user", "GET http://u:p@{h}/v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("with the host as a user", "GET http://{h}@evil.org/v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("of FTP", "GET ftp://{h}/v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("a file", "GET file:///etc/passwd HTTP/1.1~Host: {h}~~", "protocol", ""),
    ("a star as a target", "OPTIONS * HTTP/1.1~Host: {h}~~", "rule", ""),
    ("CONNECT", "CONNECT evil.org:443 HTTP/1.1~Host: evil.org:443~~", "rule", ""),
    ("CONNECT to the host", "CONNECT {h} HTTP/1.1~Host: {h}~~", "rule", ""),
    ("another host", "GET /v1/x HTTP/1.1~Host: evil.org~~", "rule", ""),
    ("another allowed host", "GET /v1/x HTTP/1.1~Host: other.example.org~~", "rule", ""),
    ("another port", "GET /v1/x HTTP/1.1~Host: api.example.com:1~~", "rule", ""),
    ("no port", "GET /v1/x HTTP/1.1~Host: api.example.com~~", "rule", ""),
    ("two hosts", "GET /v1/x HTTP/1.1~Host: {h}~Host: evil.org~~", "rule", ""),
    ("the host twice", "GET /v1/x HTTP/1.1~Host: {h}~Host: {h}~~", "rule", ""),
    ("no host", "GET /v1/x HTTP/1.1~~", "rule", ""),
    ("an empty host", "GET /v1/x HTTP/1.1~Host:~~", "rule", ""),
    ("HTTP/1.0 without a host", "GET /v1/x HTTP/1.0~~", "200", "GET /v1/x"),
    ("HTTP/1.0 with another", "GET /v1/x HTTP/1.0~Host: evil.org~~", "rule", ""),
    ("a host with a user", "GET /v1/x HTTP/1.1~Host: u@{h}~~", "rule", ""),
    ("a host with a path", "GET /v1/x HTTP/1.1~Host: {h}/x~~", "rule", ""),
    ("a host with a space", "GET /v1/x HTTP/1.1~Host: {h} evil.org~~", "rule", ""),
    ("hosts with a comma", "GET /v1/x HTTP/1.1~Host: {h},evil.org~~", "rule", ""),
    ("an encoded host", "GET /v1/x HTTP/1.1~Host: %61{h}~~", "rule", ""),
    ("an upper-case host", "GET /v1/x HTTP/1.1~HOST: {H}~~", "200", "GET /v1/x"),
    (
        "a host named by Connection",
        "GET /v1/x HTTP/1.1~Host: {h}~Connection: host~~",
        "200",
        "GET /v1/x",
    ),
    ("X-Forwarded-Host", "GET /v1/x HTTP/1.1~Host: {h}~X-Forwarded-Host: evil.org~~", "rule", ""),
    ("Forwarded", "GET /v1/x HTTP/1.1~Host: {h}~Forwarded: host=evil.org~~", "rule", ""),
    ("X-Host", "GET /v1/x HTTP/1.1~Host: {h}~X-Host: evil.org~~", "rule", ""),
    ("X-Original-URL", "GET /v1/x HTTP/1.1~Host: {h}~X-Original-URL: /admin~~", "rule", ""),
    ("X-Rewrite-URL", "GET /v1/x HTTP/1.1~Host: {h}~X-Rewrite-URL: /admin~~", "rule", ""),
    // Methods.
    ("DELETE", "DELETE /v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("PUT", "PUT /v1/x HTTP/1.1~Host: {h}~Content-Length: 1~~x", "rule", ""),
    ("HEAD", "HEAD /v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("a lower-case method", "get /v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("a longer method", "GETX /v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("TRACE", "TRACE /v1/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("TRACE where all are allowed", "TRACE /all/x HTTP/1.1~Host: {h}~~", "rule", ""),
    ("another where all are allowed", "PURGE /all/x HTTP/1.1~Host: {h}~~", "200", "PURGE /all/x"),
    (
        "a method in a header",
        "POST /v1/x HTTP/1.1~Host: {h}~X-HTTP-Method-Override: DELETE~~",
        "rule",
        "",
    ),
    ("a lower-case one there", "POST /v1/x HTTP/1.1~Host: {h}~X-HTTP-Method: delete~~", "rule", ""),
    (
        "a second one there",
        "POST /v1/x HTTP/1.1~Host: {h}~X-Method-Override: GET~X-Method-Override: PUT~~",
        "rule",
        "",
    ),
    ("two in one there", "POST /v1/x HTTP/1.1~Host: {h}~X-Method-Override: GET, PUT~~", "rule", ""),
    (
        "an allowed one there",
        "POST /v1/x HTTP/1.1~Host: {h}~X-HTTP-Method-Override: GET~~",
        "200",
        "POST /v1/x",
    ),
    // Smuggling.
    (
        "length, then chunked",
        "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: 4~Transfer-Encoding: chunked~~0~~GET /admin HTTP/1.1~Host: {h}~~",
        "200",
        "POST /v1/x",
    ),
    (
        "chunked, then length",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked~Content-Length: 4~~0~~GET /admin HTTP/1.1~Host: {h}~~",
        "200",
        "POST /v1/x",
    ),
    (
        "two lengths",
        "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: 1~Content-Length: 2~~xy",
        "protocol",
        "",
    ),
    (
        "two equal lengths",
        "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: 1~Content-Length: 1~~x",
        "200",
        "POST /v1/x",
    ),
    ("a list of lengths", "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: 1, 1~~x", "protocol", ""),
    ("a signed length", "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: +1~~x", "protocol", ""),
    ("a length below zero", "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: -1~~x", "protocol", ""),
    (
        "a hexadecimal length",
        "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: 0x1~~x",
        "protocol",
        "",
    ),
    (
        "a huge length",
        "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: 18446744073709551616~~x",
        "protocol",
        "",
    ),
    (
        "another encoding",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: xchunked~~0~~",
        "protocol",
        "",
    ),
    (
        "compressed, then chunked",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: gzip, chunked~~0~~",
        "rule",
        "",
    ),
    (
        "chunked, not last",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked, identity~~0~~",
        "protocol",
        "",
    ),
    (
        "chunked in HTTP/1.0",
        "POST /v1/x HTTP/1.0~Host: {h}~Transfer-Encoding: chunked~~0~~",
        "protocol",
        "",
    ),
    (
        "a tab before chunked",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding:\tchunked~~0~~",
        "200",
        "POST /v1/x",
    ),
    (
        "a space before a colon",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding : chunked~~0~~",
        "protocol",
        "",
    ),
    ("a folded line", "GET /v1/x HTTP/1.1~Host: {h}~X: a~ b~~", "protocol", ""),
    ("NUL in a header", "GET /v1/x HTTP/1.1~Host: {h}~X: a\0b~~", "protocol", ""),
    ("CR in a header", "GET /v1/x HTTP/1.1~Host: {h}~X: a\rEvil: b~~", "protocol", ""),
    ("no colon", "GET /v1/x HTTP/1.1~Host: {h}~X~~", "protocol", ""),
    ("an empty name", "GET /v1/x HTTP/1.1~Host: {h}~: x~~", "protocol", ""),
    ("bare LF", "GET /v1/x HTTP/1.1\nHost: {h}\n\n", "200", "GET /v1/x"),
    ("lines before", "~~GET /v1/x HTTP/1.1~Host: {h}~~", "200", "GET /v1/x"),
    (
        "a bad chunk size",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked~~x~~",
        "reset",
        "",
    ),
    (
        "a huge chunk size",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked~~fffffffffffffffff~~",
        "reset",
        "",
    ),
    (
        "a chunk extension",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked~~1;x=y~a~0~~",
        "200",
        "POST /v1/x",
    ),
    (
        "a chunk too short",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked~~5~a~0~~",
        "reset",
        "",
    ),
    (
        "a second request",
        "GET /v1/x HTTP/1.1~Host: {h}~~GET /admin HTTP/1.1~Host: {h}~~",
        "200 rule",
        "GET /v1/x",
    ),
    (
        "a second that is allowed",
        "GET /v1/x HTTP/1.1~Host: {h}~~GET /v1/y HTTP/1.1~Host: {h}~~",
        "200 200",
        "GET /v1/x,GET /v1/y",
    ),
    (
        "a request in a body",
        "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: 20~~GET /admin HTTP/1.1~",
        "200",
        "POST /v1/x",
    ),
    (
        "a GET with a body",
        "GET /v1/x HTTP/1.1~Host: {h}~Content-Length: 20~~GET /admin HTTP/1.1~",
        "200",
        "GET /v1/x",
    ),
    ("a body without a length", "GET /v1/x HTTP/1.1~Host: {h}~~GET /admin", "200", "GET /v1/x"),
    (
        "a length named by Connection",
        "POST /v1/x HTTP/1.1~Host: {h}~Connection: content-length~Content-Length: 1~~x",
        "200",
        "POST /v1/x",
    ),
    ("HTTP/2", "PRI * HTTP/2.0~~SM~~", "protocol", ""),
    ("HTTP/0.9", "GET /v1/x~", "protocol", ""),
    ("HTTP/3.0", "GET /v1/x HTTP/3.0~Host: {h}~~", "protocol", ""),
    ("no version", "GET /v1/x FTP/1.1~Host: {h}~~", "protocol", ""),
    ("TLS in the clear", "\x16\x03\x01\x02\0\x01\0\x01\x03", "protocol", ""),
    ("SSH", "SSH-2.0-OpenSSH_9.9~", "protocol", ""),
    ("SMTP", "EHLO example.com~MAIL FROM:<a@b>~", "protocol", ""),
    ("Redis", "*1\r\n$4\r\nPING\r\n", "protocol", ""),
    (
        "websockets",
        "GET /v1/x HTTP/1.1~Host: {h}~Connection: upgrade~Upgrade: websocket~~",
        "rule",
        "",
    ),
    (
        "HTTP/2 by upgrade",
        "GET /v1/x HTTP/1.1~Host: {h}~Connection: upgrade, http2-settings~Upgrade: h2c~HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA~~",
        "rule",
        "",
    ),
    (
        "to be continued",
        "POST /v1/x HTTP/1.1~Host: {h}~Expect: 100-continue~Content-Length: 1~~x",
        "100 200",
        "POST /v1/x",
    ),
    ("a head without an end", "GET /v1/x HTTP/1.1~Host: {h}~X: y~", "", ""),
    // Secrets.
    (
        "a secret where it belongs",
        "GET /v1/x HTTP/1.1~Host: {h}~Authorization: Bearer {s}~~",
        "200",
        "GET /v1/x",
    ),
    ("as a cookie", "GET /v1/x HTTP/1.1~Host: {h}~Cookie: a=b; token={s}~~", "200", "GET /v1/x"),
    (
        "by basic authentication",
        "GET /v1/x HTTP/1.1~Host: {h}~Authorization: Basic {basic}~~",
        "200",
        "GET /v1/x",
    ),
    ("in the path", "GET /v1/{s} HTTP/1.1~Host: {h}~~", "secret", ""),
    ("in the path, encoded", "GET /v1/%68{t} HTTP/1.1~Host: {h}~~", "secret", ""),
    ("in the path, in base64", "GET /v1/{b} HTTP/1.1~Host: {h}~~", "secret", ""),
    ("in the query", "GET /v1/x?k={s} HTTP/1.1~Host: {h}~~", "secret", ""),
    ("in the query, encoded", "GET /v1/x?k=%68{t} HTTP/1.1~Host: {h}~~", "secret", ""),
    (
        "in the query, where allowed",
        "GET /v1/x?k={q}&l=1 HTTP/1.1~Host: {h}~~",
        "200",
        "GET /v1/x?k=sk%2Fquery%26value%3D%2B1&l=1",
    ),
    ("in the query, both", "GET /v1/x?k={q}&l={s} HTTP/1.1~Host: {h}~~", "secret", ""),
    ("in the body", "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: {n}~~{s}", "secret", ""),
    (
        "in the body, in chunks",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked~~8~hatchery~{m}~{u}~0~~",
        "secret",
        "",
    ),
    (
        "in the body, in base64",
        "POST /v1/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked~~{k}~{b}~0~~",
        "secret",
        "",
    ),
    (
        "in the body, where allowed",
        "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: {o}~~{q}",
        "200",
        "POST /v1/x",
    ),
    (
        "in a trailer",
        "POST /all/x HTTP/1.1~Host: {h}~Transfer-Encoding: chunked~Trailer: x-t~~0~X-T: {f}~~",
        "secret",
        "",
    ),
    ("in a method", "{s} /all/x HTTP/1.1~Host: {h}~~", "secret", ""),
    ("in a header's name", "GET /v1/x HTTP/1.1~Host: {h}~{n1}: x~~", "secret", ""),
    ("in a header, in base64", "GET /v1/x HTTP/1.1~Host: {h}~X: {b}~~", "secret", ""),
    (
        "another host's, in a header",
        "GET /v1/x HTTP/1.1~Host: {h}~Authorization: Bearer {f}~~",
        "secret",
        "",
    ),
    (
        "another host's, basic",
        "GET /v1/x HTTP/1.1~Host: {h}~Authorization: basic {fbasic}~~",
        "secret",
        "",
    ),
    ("another host's, in the query", "GET /v1/x?{f} HTTP/1.1~Host: {h}~~", "secret", ""),
    (
        "another host's, in the body",
        "POST /v1/x HTTP/1.1~Host: {h}~Content-Length: {fn}~~{f}",
        "secret",
        "",
    ),
    (
        "only half of it",
        "GET /v1/hatchery-secret-TOKEN HTTP/1.1~Host: {h}~~",
        "200",
        "GET /v1/hatchery-secret-TOKEN",
    ),
];

#[tokio::test]
async fn addresses_that_are_not_public_need_a_rule() {
    let mut resolver = TableResolver::default();
    let mut rules = Vec::new();
    for (number, (_, address, _)) in ADDRESSES.iter().enumerate() {
        for word in ["", "private"] {
            let name = format!("{word}{number}.example.com");
            // Nothing listens at port 1.
            rules.push(format!("GET http://{name}:1/* {word}"));
            resolver = resolver.with(&name, &[&[address]]);
        }
    }
    let guest = Guest::new(&egress_with(&rules, Vec::new(), EgressLimits::default(), resolver));
    for (number, (name, _, is_allowed)) in ADDRESSES.iter().enumerate() {
        for word in ["", "private"] {
            let can_connect = *is_allowed && word == "private";
            // No other address is connected to.
            if can_connect && !name.ends_with("loopback") {
                continue;
            }
            let (code, text) =
                guest.open(&format!("{word}{number}.example.com"), 1).await.unwrap_err();
            let is_refused = code == 2 && text.contains("its address");
            assert_eq!(is_refused, !can_connect, "{name} {word}: {code} {text}");
            // What would allow it is a rule for the name or for the address.
            let by_name =
                format!("private`, as `GET https://{word}{number}.example.com:1/* private`");
            assert_eq!(text.contains(&by_name), *is_allowed && word.is_empty(), "{name}: {text}");
            let by_address =
                text.contains("names the address, as `GET https://") && text.contains(":1/*`");
            assert_eq!(by_address, !is_allowed, "{name}: {text}");
        }
    }
}

async fn server() -> Server {
    Server::new(false, Arc::new(|_, _| Response::new(full("hello")))).await
}

fn rules(port: u16) -> Vec<String> {
    vec![
        format!("GET,POST http://api.example.com:{port}/v1/* private"),
        format!("* http://api.example.com:{port}/all/* private"),
        format!("GET http://*.wild.example.net:{port}/v1/* private"),
        format!("GET http://other.example.org:{port}/* private"),
        format!("GET http://turns.example.com:{port}/* private"),
        format!("GET http://mixed.example.com:{port}/* private"),
    ]
}

fn secrets(port: u16) -> Vec<Secret> {
    let api = format!("http://api.example.com:{port}");
    vec![
        Secret::new("TOKEN", VALUE, &api).unwrap(),
        Secret::new("QUERY", "sk/query&value=+1", &format!("{api} query body")).unwrap(),
        Secret::new("FOREIGN", "sk-foreign-value", "https://foreign.example.com").unwrap(),
    ]
}

/// Sends bytes, and returns the statuses of the responses and the label of a failure, with all that
/// was read.
async fn attempt(guest: &Guest, host: &str, port: u16, bytes: &[u8]) -> (String, Vec<u8>) {
    let stream = match guest.open(host, port).await {
        Ok(stream) => stream,
        Err((10, _)) => return ("open invalid".to_owned(), Vec::new()),
        Err((code, text)) => {
            assert_eq!(code, 2, "{text}");
            assert!(text.starts_with("no rule allows connections to "), "{text}");
            return ("open rule".to_owned(), Vec::new());
        }
    };
    // The stream may fail before it has taken all.
    drop(guest.write_all(stream, bytes).await);
    guest.end_writing(stream).await;
    let (read, end) = guest.read_all(stream).await;
    let text = String::from_utf8_lossy(&read);
    let statuses = text.split("HTTP/1.").skip(1).map(|response| response[2..5].to_owned());
    let mut outcome: Vec<String> = statuses.collect();
    if let Err((code, text)) = end {
        let label = match code {
            2 if text.contains("placeholder") => "secret",
            2 => "rule",
            7 | 8 => "reset",
            11 => "limit",
            14 => "protocol",
            _ => panic!("{code} {text}"),
        };
        // The server for programs answers itself what it can't read.
        outcome.retain(|status| label != "protocol" || !status.starts_with('4'));
        outcome.push(label.to_owned());
    }
    guest.close(stream).await;
    (outcome.join(" "), read)
}

#[tokio::test]
async fn hosts_that_no_rule_names_are_out_of_reach() {
    let server = server().await;
    let resolver = TableResolver::default();
    let egress =
        egress_with(&rules(server.port), secrets(server.port), EgressLimits::default(), resolver);
    let guest = Guest::new(&egress);
    let mut wrong = Vec::new();
    for (name, host, expected) in HOSTS {
        let normal = host.to_lowercase();
        let shown = match &*normal {
            _ if host.contains("wild") => host,
            _ => "api.example.com",
        };
        let request = format!("GET /v1/x HTTP/1.1\r\nHost: {shown}:{}\r\n\r\n", server.port);
        let (outcome, _) = attempt(&guest, host, server.port, request.as_bytes()).await;
        let count = server.take_seen().len();
        if outcome != expected || count != usize::from(expected == "200") {
            wrong.push(format!("{name}: {outcome} instead of {expected}, {count} requests"));
        }
        // Whatever the host, another port is out of reach.
        let (outcome, _) = attempt(&guest, host, server.port ^ 1, request.as_bytes()).await;
        assert!(outcome.starts_with("open "), "{name}: {outcome}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn hostile_requests_are_refused_or_harmless() {
    let server = server().await;
    let resolver = TableResolver::default();
    let egress =
        egress_with(&rules(server.port), secrets(server.port), EgressLimits::default(), resolver);
    let host = format!("api.example.com:{}", server.port);
    let mut wrong = Vec::new();
    for (name, request, expected, seen) in REQUESTS {
        let guest = Guest::new(&egress);
        let placeholders = guest.0.environment();
        let [s, q, f] = ["TOKEN", "QUERY", "FOREIGN"].map(|name| placeholders[name].clone());
        let written = [
            ("{h}", host.clone()),
            ("{H}", host.to_uppercase()),
            ("{basic}", STANDARD.encode(format!("user:{s}"))),
            ("{fbasic}", STANDARD.encode(format!("user:{f}"))),
            ("{b}", STANDARD.encode(format!("x{s}"))),
            ("{k}", format!("{:x}", STANDARD.encode(format!("x{s}")).len())),
            ("{n1}", s.to_lowercase()),
            ("{n}", s.len().to_string()),
            ("{o}", q.len().to_string()),
            ("{fn}", f.len().to_string()),
            ("{t}", s[1..].to_owned()),
            ("{u}", s[8..].to_owned()),
            ("{m}", format!("{:x}", s[8..].len())),
            ("{s}", s),
            ("{q}", q),
            ("{f}", f),
            ("~", "\r\n".to_owned()),
        ];
        let request =
            written.iter().fold(request.to_owned(), |text, (from, to)| text.replace(from, to));
        let (outcome, read) =
            attempt(&guest, "api.example.com", server.port, request.as_bytes()).await;
        let got = server.take_seen();
        let lines = got.iter().map(|seen| &*seen.line).collect::<Vec<_>>().join(",");
        if outcome != expected || lines != seen {
            wrong.push(format!("{name}: {outcome} instead of {expected}, {lines}"));
        }
        assert!(!String::from_utf8_lossy(&read).contains(VALUE), "{name}");
        for one in got {
            assert!(
                !one.text.contains("sk-foreign") && !one.text.contains("secret-FOREIGN"),
                "{name}"
            );
            let has_secret = name.starts_with("a secret where") || name == "as a cookie";
            assert_eq!(one.text.contains(VALUE), has_secret, "{name}: {}", one.text);
            if name.starts_with("by basic") {
                assert!(one.text.contains(&STANDARD.encode(format!("user:{VALUE}"))), "{name}");
            }
        }
        let outcome = guest.finish();
        let refusal = outcome.requests.iter().find_map(|log| log.failure.clone());
        assert_eq!(
            refusal.is_some(),
            expected.chars().any(char::is_alphabetic),
            "{name}: {outcome:?}"
        );
        assert!(!format!("{outcome:?}").contains("sk-"), "{name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn an_address_that_changes_is_checked_each_time() {
    let server = server().await;
    let resolver = TableResolver::default()
        .with("turns.example.com", &[&["127.0.0.1"], &["169.254.169.254"]])
        .with("mixed.example.com", &[&["169.254.169.254", "127.0.0.1"]]);
    let egress = egress_with(&rules(server.port), Vec::new(), EgressLimits::default(), resolver);
    let guest = Guest::new(&egress);
    let mut first = guest.client("turns.example.com", server.port, false).await.unwrap();
    assert_eq!(first.fetch("GET", "/x", "").await.0, 200);
    // A second stream while the first keeps its connection, so there is a second look-up.
    let second = guest.open("turns.example.com", server.port).await.unwrap_err();
    assert!(second.1.contains("169.254.169.254 is metadata"), "{second:?}");
    assert_eq!(first.fetch("GET", "/x", "").await.0, 200);
    let mut mixed = guest.client("mixed.example.com", server.port, false).await.unwrap();
    assert_eq!(mixed.fetch("GET", "/x", "").await.0, 200);
}

#[tokio::test]
async fn tls_is_for_the_host_of_the_stream() {
    let server = Server::new(true, Arc::new(|_, _| Response::new(full("hello")))).await;
    let port = server.port;
    let rules = [
        format!("GET https://api.example.com:{port}/* private"),
        format!("GET https://wrong.example.com:{port}/* private"),
    ];
    let guest = Guest::new(&egress_with(
        &rules,
        Vec::new(),
        EgressLimits::default(),
        TableResolver::default(),
    ));
    // Another name.
    let stream = guest.open("api.example.com", port).await.unwrap();
    assert_eq!(guest.start_tls(stream, "evil.org").await.unwrap_err().0, 2);
    assert!(!guest.start_tls(stream, "API.example.com.").await.unwrap().is_empty());
    assert_eq!(guest.start_tls(stream, "api.example.com").await.unwrap_err().0, 10);
    // A certificate of another name.
    let stream = guest.open("wrong.example.com", port).await.unwrap();
    let failure = guest.start_tls(stream, "wrong.example.com").await.unwrap_err();
    assert_eq!(failure.0, 12, "{failure:?}");
    assert_eq!(guest.write_all(stream, b"GET / HTTP/1.1\r\n\r\n").await.unwrap_err(), failure);
    // In the clear, although the rule says https.
    let request = format!("GET / HTTP/1.1\r\nHost: api.example.com:{port}\r\n\r\n");
    assert_eq!(attempt(&guest, "api.example.com", port, request.as_bytes()).await.0, "rule");
    // TLS after the first byte.
    let stream = guest.open("api.example.com", port).await.unwrap();
    guest.write_all(stream, b"GET").await.unwrap();
    assert_eq!(guest.start_tls(stream, "api.example.com").await.unwrap_err().0, 10);
    assert!(server.take_seen().is_empty());
    // A server without TLS.
    let plain = self::server().await;
    let rules = [format!("GET https://api.example.com:{}/* private", plain.port)];
    let guest = Guest::new(&egress_with(
        &rules,
        Vec::new(),
        EgressLimits::default(),
        TableResolver::default(),
    ));
    let stream = guest.open("api.example.com", plain.port).await.unwrap();
    assert_eq!(guest.start_tls(stream, "api.example.com").await.unwrap_err().0, 13);
}
