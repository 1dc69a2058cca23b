//! What the page shows of the pool and of programs.

use serde_json::json;
use test_support::http;

use crate::browser::{Browser, Key};
use crate::server::{ADA, OPERATOR, POOL, guarded, open, open_with_cluster, post, start, submit};

/// Enters a token where the page asks for one.
pub(crate) fn enter(browser: &Browser, token: &str) {
    browser.until("!root.querySelector('.gate').hidden");
    let enter = format!(
        "root.querySelector('.gate input').value = '{token}';
        root.querySelector('.gate').requestSubmit();"
    );
    browser.run(&enter);
}

/// Runs a program in the page, and waits for its end.
pub(crate) fn run(browser: &Browser, code: &str) {
    browser.until("root.querySelector('.runner button.main:enabled')");
    let set = format!("root.querySelector('.runner textarea').value = {};", json!(code));
    browser.run(&format!("{set} root.querySelector('.runner button.main').click();"));
    browser.until("root.querySelector('.runner button.main:enabled')");
}

#[test]
fn a_job_appears_is_interrupted_and_its_error_is_listed() {
    // Alone, so that the job is the one that is interrupted.
    let pool = start(|builder| builder.workers(1));
    let page = guarded(&pool);
    let Some(browser) = Browser::open(&page) else { return };
    enter(&browser, OPERATOR);
    browser.until("text('.who') === 'administrator'");
    let worker = "all('[aria-label=Workers] tbody tr').find((row) => row.cells[4].innerText > 0)";
    let result = submit(&page, ADA, "while True: pass");
    browser.until(&format!("{worker} && pool.getStatus().state === 'active'"));
    let tenant = browser
        .until("all('.tenants tbody tr').find((row) => /^ada/.test(row.innerText))?.innerText");
    assert!(tenant.as_str().unwrap().contains('1'), "{tenant}");
    browser.until(&format!("{worker}?.querySelector('button:enabled')"));
    browser.run(&format!("{worker}.querySelector('button').click();"));
    let result = result.join().unwrap();
    assert_eq!(result["error"]["type"], "KeyboardInterrupt", "{result}");
    browser.until(&format!("!{worker}"));
    let errors = "text('[aria-label=\"Last errors\"] tbody')";
    browser.until(&format!("{errors}.includes('KeyboardInterrupt')"));
}

#[test]
fn an_error_has_its_session_and_where_that_rests() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    let send = |path: &str, body| post(&format!("{page}v1/{path}"), "", &body);
    let turn = |code: &str| send("run?session=notebook", json!({ "code": code }));
    send("sessions", json!({ "name": "notebook" }));
    turn("raise KeyError('left')");
    let row = "all('[aria-label=\"Last errors\"] tbody tr').map((row) => row.innerText)\
               .find((text) => text.includes(\"KeyError: 'left'\"))";
    let row = browser.until(row);
    let row = row.as_str().unwrap();
    assert!(row.contains("notebook"), "{row}");
    assert!(row.contains("on worker") || row.contains("in memory"), "{row}");
    browser.until("text('.sessions').includes('notebook')");
    // It goes on where it was, from the page.
    browser.run("root.querySelector('.runner select').value = 'notebook';");
    turn("kept = 41");
    run(&browser, "kept + 1");
    assert_eq!(browser.run("return text('.output')"), "42\n");
    let closed = http::request("DELETE", &format!("{page}v1/sessions/notebook"), &[], b"").unwrap();
    assert_eq!(closed.status, 200);
    browser.until(
        "all('[aria-label=\"Last errors\"] tbody tr').some((row) => /closed/.test(row.innerText))",
    );
}

#[test]
fn a_program_shows_its_output_as_it_comes_and_its_figures_and_tables() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    // Output is there before the program has ended, which it doesn't by itself.
    let code = "import sys\nprint('first', flush=True)\nprint('second', file=sys.stderr)\n\
                while True: pass";
    browser.run(&format!("root.querySelector('.runner textarea').value = {};", json!(code)));
    browser.run("root.querySelector('.runner textarea').focus();");
    browser.press(&[Key::Control, Key::Enter]);
    browser.until("text('.stdout').includes('first') && text('.stderr').includes('second')");
    browser.run("button('Stop').click();");
    browser.until("text('.runner .state').includes('Stopped')");
    run(
        &browser,
        "import matplotlib.pyplot as plt, pandas as pd\n\
         plt.plot([1, 3, 2]); plt.show()\n\
         display(pd.DataFrame({'<b>city</b>': ['Oslo', 'R&D'], 'n': [1, 2]}))\n\
         {'answer': 42}",
    );
    let state = browser.run("return text('.runner .state')");
    assert!(state.as_str().unwrap().contains("completed"), "{state}");
    browser.until("root.querySelector('.output img')?.naturalWidth > 100");
    let cells = browser.run("return all('.frame :is(th, td)').map((cell) => cell.innerText)");
    assert_eq!(cells, json!(["", "<b>city</b>", "n", "0", "Oslo", "1", "1", "R&D", "2"]));
    assert_eq!(browser.run("return text('.output .value')"), "{'answer': 42}\n");
}

#[test]
fn how_a_program_ended_is_said_in_its_own_terms() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    for (code, expected) in [
        ("raise KeyboardInterrupt", "raised"),
        ("import sys; sys.exit(3)", "exited with 3"),
        ("import sys; sys.exit(0)", "exited with 0"),
        ("1", "completed"),
    ] {
        run(&browser, code);
        let said = browser.run("return text('.runner .state')");
        let said = said.as_str().unwrap();
        assert!(said.starts_with("Job ") && said.contains(expected), "{code}: {said}");
    }
    let row = browser.until(
        "all('[aria-label=\"Last errors\"] tbody tr').map((row) => row.innerText)\
         .find((text) => text.includes('KeyboardInterrupt'))",
    );
    assert!(!row.as_str().unwrap().contains("KeyboardInterrupt:"), "{row}");
}

#[test]
fn failures_of_programs_show_in_the_state_with_their_tracebacks_until_one_succeeds() {
    let pool = start(|builder| builder.workers(1));
    let page = guarded(&pool);
    let Some(browser) = Browser::open(&page) else { return };
    enter(&browser, OPERATOR);
    browser.until("text('.who') === 'administrator'");
    assert_eq!(browser.run("return pool.getStatus().lastActivity"), json!(null));
    run(&browser, "def f():\n    return {}['region']\nf()");
    browser.until("pool.getStatus().state === 'error'");
    let message = browser.run("return pool.getStatus().message");
    assert_eq!(message, "The last program failed.");
    // Nothing is wrong with the pool.
    assert_eq!(browser.run("return text('.phase')"), "open");
    browser.run("root.querySelector('[aria-label=\"Last errors\"] summary').click();");
    let traceback = "text('[aria-label=\"Last errors\"] details pre')";
    let traceback = browser.until(traceback);
    let traceback = traceback.as_str().unwrap();
    assert!(traceback.starts_with("Traceback") && traceback.contains("in f"), "{traceback}");
    // A later visitor sees when something happened last.
    browser.load(&page);
    browser.until("pool.getStatus().state === 'error' && pool.getStatus().lastActivity");
    run(&browser, "1");
    browser.until("pool.getStatus().state === 'idle'");
    // Statistics begin again at the press of a button.
    browser.until("text('.figures').includes('2 ended, 1 failed')");
    browser.run("button('Reset statistics').click();");
    browser.until("text('.figures').includes('0 ended, 0 failed')");
    browser.until("text('.notice').includes('begin again')");
    browser.until("text('[aria-label=\"Last errors\"]').includes('No program has failed')");
    run(&browser, "1");
    browser.until("text('.figures').includes('1 ended, 0 failed')");
}

#[test]
fn packages_are_listed_by_a_button_and_stay_within_their_panel() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    browser.until("text('.phase') === 'open'");
    browser.run("button('List packages').click();");
    browser.until("text('.packages').includes('numpy')");
    for width in [1280, 320] {
        crate::looks::resize(&browser, width, "light");
        browser.until(&format!("innerWidth === {width}"));
        let surplus = "const list = root.querySelector('.packages');\
                       return list.scrollWidth - list.clientWidth";
        assert_eq!(browser.run(surplus), 0, "{width}");
    }
    browser.run("button('Hide packages').click();");
    browser.until("text('.packages') === '' && button('List packages')");
}

#[test]
fn a_cluster_has_its_queue_and_its_workers_and_is_hidden_where_there_is_none() {
    let lane = |tenant, waiting| json!({ "tenant": tenant, "priority": "high", "waiting": waiting, "claimed": 1 });
    let worker = json!({
        "name": "<b>one</b>", "version": "1.2.3", "slots": 4, "running": 3, "done": 1000,
        "given_back": 2, "is_draining": true, "keys": [], "at_ms": 0,
    });
    let state = json!({
        "pool": "blue", "jobs": 12_345, "results": 6, "dead_letters": 1,
        "lanes": [lane(json!(null), 2), lane(json!("acme"), 5)], "workers": [worker],
    });
    let page = open_with_cluster(&POOL, Some(state));
    let Some(browser) = Browser::open(&page) else { return };
    browser.until("text('[aria-label=Cluster] .extra').includes('pool blue: 12,345 jobs')");
    let cells = |label: &str| {
        let rows = format!(
            "return all('[aria-label=\"{label}\"] tbody tr').map((row) => \
             [...row.cells].map((cell) => cell.innerText))"
        );
        browser.run(&rows)
    };
    let lanes = json!([["acme", "high", "5", "1"], ["–", "high", "2", "1"]]);
    assert_eq!(cells("Jobs in the queue of the cluster"), lanes);
    let worker = ["<b>one</b> (drains)", "1.2.3", "3", "4", "1,000", "2"];
    let label = "section[aria-label=\"Workers of the cluster\"]";
    let seen = format!("return all('{label} tbody td').map((cell) => cell.innerText)");
    assert_eq!(browser.run(&seen), json!(worker));
    drop(browser);
    // What is wrong with it is said there, and the pool is shown as ever.
    let page = open_with_cluster(&POOL, None);
    let Some(browser) = Browser::open(&page) else { return };
    browser.until("text('[aria-label=Cluster] .extra') === 'the NATS server is gone'");
    browser.until("text('.phase') === 'open'");
    drop(browser);
    let Some(browser) = Browser::open(&open(&POOL)) else { return };
    browser.until("text('.phase') === 'open'");
    browser.until("root.querySelector('[aria-label=Cluster]').hidden");
}
