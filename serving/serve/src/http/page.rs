//! The page: what the pool does, in a browser.
//!
//! Its files contain no data of the pool, so they need no token. The page asks for one if the
//! server requires it. A program's text stays text there: the module is the only script, and
//! `require-trusted-types-for` refuses code that writes HTML.

use std::sync::Arc;

use axum::Router;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;

use super::state::AppState;
use crate::answer;

const PAGE: &str = include_str!("../../page/index.html");
const STYLE: &str = include_str!("../../page/page.css");

/// One module, in the order in which its parts are run.
const MODULE: &str = concat!(
    include_str!("../../page/hatchery-pool/widget.js"),
    include_str!("../../page/hatchery-pool/text.js"),
    include_str!("../../page/hatchery-pool/elements.js"),
    include_str!("../../page/hatchery-pool/table.js"),
    include_str!("../../page/hatchery-pool/chart.js"),
    include_str!("../../page/hatchery-pool/server.js"),
    include_str!("../../page/hatchery-pool/history.js"),
    include_str!("../../page/hatchery-pool/forms.js"),
    include_str!("../../page/hatchery-pool/output.js"),
    include_str!("../../page/hatchery-pool/runner.js"),
    include_str!("../../page/hatchery-pool/recording.js"),
    include_str!("../../page/hatchery-pool/timeline.js"),
    include_str!("../../page/hatchery-pool/status.js"),
    include_str!("../../page/hatchery-pool/tables.js"),
    include_str!("../../page/hatchery-pool/cluster.js"),
    include_str!("../../page/hatchery-pool/view.js"),
    "const STYLE = String.raw`\n",
    include_str!("../../page/hatchery-pool/style.css"),
    "`;\n\n",
    include_str!("../../page/hatchery-pool/component.js"),
    include_str!("../../page/hatchery-pool/define.js"),
);

/// What the page may do. Figures of programs are `data:` images.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; trusted-types 'none'; \
                      require-trusted-types-for 'script'";

/// What the page says beside what every answer does.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Returns the routes of the page.
pub(super) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", PAGE)))
        .route("/page/page.css", get(async || file("text/css; charset=utf-8", STYLE)))
        .route(
            "/page/hatchery-pool.js",
            get(async || file("text/javascript; charset=utf-8", MODULE)),
        )
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = answer::of(StatusCode::OK, kind, text.into());
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_style_ends_where_its_text_does() {
        let style = include_str!("../../page/hatchery-pool/style.css");
        assert!(!style.contains('`') && !style.contains("${"));
    }

    #[test]
    fn nothing_writes_html_or_runs_text() {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!MODULE.contains(word), "{word}");
        }
        // Scripts and styles within the page would be refused by its policy.
        assert!(!PAGE.contains("<style") && !PAGE.contains(" style=") && !PAGE.contains(" on"));
    }
}
