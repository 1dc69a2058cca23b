//! Who may do what.

use hatchery::Hatchery;
use serde_json::{Value, json};
use test_support::http;

use crate::browser::Browser;
use crate::pool::{enter, run};
use crate::server::{ADA, OPERATOR, POOL, guarded, open, start};

/// Sends a request from the page, and returns the status.
fn post(browser: &Browser, path: &str, token: Option<&str>) -> Value {
    let headers =
        token.map_or(json!({}), |token| json!({ "Authorization": format!("Bearer {token}") }));
    browser.finish(&format!(
        "fetch('{path}', {{ method: 'POST', headers: {headers} }}).then(({{ status }}) => done(status));"
    ))
}

#[test]
fn a_server_without_tokens_offers_no_buttons_and_says_why() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    browser.until(
        "text('.why').includes('--token-file') && all('[aria-label=Workers] tbody tr').length",
    );
    let enabled = "return all('header button:enabled, .buttons button:enabled')\
                   .filter((button) => button.checkVisibility()).length";
    assert_eq!(browser.run(enabled), 0);
    assert_eq!(post(&browser, "v1/drain", None), 403);
}

#[test]
fn a_tenant_sees_own_jobs_and_has_no_buttons() {
    let page = guarded(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    enter(&browser, "not-a-token-of-this-server");
    browser.until("text('.refused').includes('doesn’t know')");
    enter(&browser, ADA);
    browser.until("text('.who') === 'tenant ada'");
    assert_eq!(browser.run("return pool.getStatus().state"), "idle");
    assert_eq!(
        browser.run("return root.querySelector('[aria-label=Workers]').checkVisibility()"),
        false
    );
    assert_eq!(browser.run("return all('header button:enabled').length"), 1);
    assert_eq!(post(&browser, "v1/drain", Some(ADA)), 403);
    assert_eq!(post(&browser, "v1/drain", None), 401);
    // The token outlives a reload of the tab, and isn't kept beyond it.
    browser.load(&page);
    browser.until("text('.who') === 'tenant ada'");
    assert_eq!(browser.run("return [localStorage.length, document.cookie]"), json!([0, ""]));
    browser.run("button('Forget token').click();");
    browser.until("!root.querySelector('.gate').hidden && pool.getStatus().state === 'disabled'");
    assert_eq!(browser.run("return sessionStorage.length"), 0);
}

/// Programs, results and errors of one user are not for the next one at the same screen.
#[test]
fn forgetting_the_token_leaves_nothing_of_its_user() {
    let pool = start(|builder| builder.workers(1));
    let page = guarded(&pool);
    let Some(browser) = Browser::open(&page) else { return };
    enter(&browser, OPERATOR);
    browser.until("text('.who') === 'administrator'");
    let shows = "import matplotlib.pyplot as plt, pandas as pd\n\
                 print('private-output'); plt.plot([1, 2]); plt.show()\n\
                 display(pd.DataFrame({'private-column': [1]}))\n\
                 raise ValueError('private-error')";
    run(&browser, shows);
    browser.until("root.querySelector('.output img') && root.querySelector('.frame')");
    browser.until("text('[aria-label=\"Last errors\"]').includes('private-error')");
    browser.run("button('Reset statistics').click();");
    browser.until("text('.notice')");
    browser.run("button('Forget token').click();");
    browser.until("!root.querySelector('.gate').hidden");
    let left = "[root.textContent, root.querySelector('textarea').value, root.innerHTML].join()";
    let left = browser.run(&format!("return {left}"));
    let left = left.as_str().unwrap();
    for private in ["private", "<img", "<figure", "begin again", "administrator"] {
        assert!(!left.contains(private), "{private}: {left}");
    }
    assert_eq!(browser.run("return pool.getStatus().lastActivity"), json!(null));
    // The next one types at once.
    assert_eq!(browser.run("return root.activeElement.id"), "token");
}

#[test]
fn the_pool_is_drained_with_the_token() {
    let pool: Hatchery = start(|builder| builder.workers(1));
    let page = guarded(&pool);
    let Some(browser) = Browser::open(&page) else { return };
    enter(&browser, OPERATOR);
    browser.until("button('Drain…')?.disabled === false");
    browser.run("button('Drain…').click();");
    browser.until("root.querySelector('dialog').open");
    browser.run("button('Cancel').click();");
    assert_eq!(browser.run("return text('.phase')"), "open");
    browser.run("button('Drain…').click();");
    browser.run("button('Drain').click();");
    browser.until("text('.phase') === 'drained' && pool.getStatus().state === 'disabled'");
    assert_eq!(browser.run("return button('Drain…').disabled"), true);
}

#[test]
fn a_worker_is_retired_with_the_token_and_another_takes_its_place() {
    let pool: Hatchery = start(|builder| builder.workers(1));
    let page = guarded(&pool);
    let Some(browser) = Browser::open(&page) else { return };
    enter(&browser, OPERATOR);
    let first = pool.status().workers[0].worker;
    let retire = |worker: hatchery::WorkerId| {
        let worker = worker.0;
        format!("root.querySelector('[aria-label=\"Retire worker {worker}\"]')")
    };
    browser.until(&format!("{}?.disabled === false", retire(first)));
    browser.run(&format!("{}.click();", retire(first)));
    browser.until(&format!(
        "!{} && root.querySelector('[aria-label^=\"Retire worker\"]:enabled')",
        retire(first)
    ));
    assert_ne!(pool.status().workers[0].worker, first);
}

#[test]
fn the_page_itself_needs_no_token_and_says_what_it_may_do() {
    let page = guarded(&POOL);
    let policies = ["", "page/page.css", "page/hatchery-pool.js"].map(|path| {
        let answer = http::request("GET", &format!("{page}{path}"), &[], b"").unwrap();
        assert_eq!(answer.status, 200);
        let header = |name: &str| answer.header(name).unwrap().to_owned();
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("x-frame-options"), "DENY");
        header("content-security-policy")
    });
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for",
    ] {
        assert!(policies.iter().all(|policy| policy.contains(part)), "{policies:?}");
    }
    assert!(!policies[0].contains("unsafe"), "{policies:?}");
}
