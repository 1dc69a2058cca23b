//! The component as a part of other pages.

use serde_json::json;

use crate::browser::Browser;
use crate::server::{OPERATOR, POOL, guarded, host, open, open_to};

/// Counts what is under way: timers, requests that nobody ended, listeners outside of the component.
const COUNTED: &str = "
    document.querySelector('hatchery-pool').remove();
    const timers = new Set();
    const [signals, listeners] = [[], []];
    let [requests, begun] = [0, 0];
    const count = () => {
        for (const kind of ['Timeout', 'Interval']) {
            const [set, clear] = [window[`set${kind}`], window[`clear${kind}`]];
            window[`set${kind}`] = (call, ...rest) => {
                const timer = set(() => { if (kind === 'Timeout') timers.delete(timer); call(); }, ...rest);
                timers.add(timer);
                begun += 1;
                return timer;
            };
            window[`clear${kind}`] = (timer) => { timers.delete(timer); clear(timer); };
        }
        const fetched = window.fetch;
        window.fetch = async (url, options) => {
            signals.push(options.signal);
            requests += 1;
            try { return await fetched(url, options); } finally { requests -= 1; }
        };
        for (const target of [window, document]) {
            target.addEventListener = (name) => listeners.push(name);
        }
    };
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));";

#[test]
fn a_thousand_attachments_leave_no_timer_and_no_stream() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    let left = browser.finish(&format!(
        "{COUNTED}
        const kept = document.createElement('hatchery-pool');
        const hasBegun = ({{ shadowRoot }}) => shadowRoot.querySelector('[aria-label=Workers] td');
        const cycle = async (index) => {{
            const element = index % 2 ? kept : document.createElement('hatchery-pool');
            document.body.append(element);
            // Most are gone before the server answers; some have their timer and their stream.
            if (index % 50 < 2) while (!hasBegun(element)) await frame();
            else if (index % 5 === 0) await frame();
            element.remove();
            if (element.getStatus().state !== 'disabled') throw new Error('it lives');
        }};
        (async () => {{
            // The driver has a timer of its own, which it sets when this script returns.
            await null;
            count();
            for (let index = 0; index < 1000; index += 1) await cycle(index);
            while (requests > 0) await frame();
            await frame();
            const open = signals.filter((signal) => !signal.aborted).length;
            done([timers.size, open, listeners, begun >= 20, signals.length >= 500]);
        }})().catch((error) => done(String(error)));"
    ));
    assert_eq!(left, json!([0, 0, [], true, true]));
}

#[test]
fn hosts_of_widgets_find_what_they_ask_for() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    let widget =
        browser.finish("import('/page/hatchery-pool.js').then(({ widget }) => done(widget));");
    assert_eq!(
        widget,
        json!({
            "element": "hatchery-pool", "displayName": "Hatchery pool", "icon": "🐣",
            "category": "monitoring", "updateInterval": 2000,
        })
    );
    browser.until("pool.getStatus().primaryMetric");
    let mut names = browser.run("return Object.keys(pool.getStatus())");
    names.as_array_mut().unwrap().sort_by_key(ToString::to_string);
    assert_eq!(
        names,
        json!(["lastActivity", "message", "primaryMetric", "secondaryMetric", "state"])
    );
    // Loading the module twice is no error, and a server that is gone is one that is said.
    browser.finish("import('/page/hatchery-pool.js?again').then(() => done());");
    browser.run("window.fetch = () => Promise.reject(new TypeError('gone'));");
    browser.until("pool.getStatus().state === 'error' && text('.phase') === 'no connection'");
    // What was seen before is old now.
    assert_eq!(browser.run("return text('.why')"), "The server can’t be reached; trying again.");
    let looks = browser.run(
        "const style = (selector) => getComputedStyle(root.querySelector(selector));
        return [style('.figures').opacity < 0.6, style('.why').opacity,
                root.querySelector('.why').classList.contains('problem')];",
    );
    assert_eq!(looks, json!([true, "1", true]));
}

/// Puts the small form in place of the component, and notes its requests and timers.
const SMALL: &str = "
    pool.remove();
    window.requests = [];
    window.delays = [];
    const set = window.setTimeout;
    window.setTimeout = (call, delay, ...rest) => {
        delays.push(delay);
        return set(call, delay, ...rest);
    };
    const fetched = window.fetch;
    window.fetch = (url, options) => {
        requests.push(new URL(url).pathname);
        return fetched(url, options);
    };
    const small = document.createElement('hatchery-pool');
    small.setAttribute('small', '');
    document.body.append(small);";

#[test]
fn the_small_form_is_one_panel_and_asks_for_the_status_alone() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    browser.until("text('.phase') === 'open'");
    browser.run(SMALL);
    browser.until("text('.phase') === 'open' && delays.length");
    let seen = browser.run(
        "return [all('section').length, all('button, textarea, table, svg').length, \
         text('.figures').includes('Running')]",
    );
    assert_eq!(seen, json!([1, 0, true]));
    assert_eq!(browser.run("return pool.getStatus().secondaryMetric"), "0 running, 0 waiting");
    browser.until("requests.length >= 2");
    assert_eq!(browser.run("return [...new Set(requests)]"), json!(["/v1/status"]));
    assert_eq!(browser.run("return [...new Set(delays)].includes(3000)"), true);
}

#[test]
fn the_small_form_is_silent_without_a_token() {
    let page = guarded(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    browser.until("!root.querySelector('.gate').hidden");
    browser.run(SMALL);
    browser.until("requests.length === 1 && pool.getStatus().message.includes('token')");
    let seen =
        browser.run("return [pool.getBoundingClientRect().height, pool.shadowRoot.textContent]");
    assert_eq!(seen[0], 0, "{seen}");
    assert_eq!(browser.run("return pool.getStatus().state"), "disabled");
    // It asks once, until somebody gives it a token. The driver's own timer takes hours.
    let soon = browser.run("return delays.filter((delay) => delay >= 500 && delay < 1e6)");
    assert_eq!(soon, json!([]));
    browser.run(&format!("pool.token = '{OPERATOR}';"));
    browser.until("text('.phase') === 'open' && pool.getBoundingClientRect().height > 0");
}

#[test]
fn other_pages_show_it_if_their_origin_is_allowed() {
    let host = host(&POOL);
    let allowed = open_to(&POOL, host.trim_end_matches('/'));
    let Some(browser) = Browser::open(&format!("{host}host?{allowed}")) else { return };
    browser.until("all('[aria-label=Workers] tbody tr').length && text('.phase') === 'open'");
    let refusing = open(&POOL);
    browser.load(&format!("{host}host?{refusing}"));
    let refused =
        format!("import('{refusing}page/hatchery-pool.js').then(() => done(0), () => done(1));");
    assert_eq!(browser.finish(&refused), 1);
}
