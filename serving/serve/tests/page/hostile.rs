//! Programs that try to be more than text.

use hatchery::Job;
use serde_json::json;

use crate::browser::Browser;
use crate::pool::run;
use crate::server::{POOL, open, wait};

/// Runs a script wherever it is taken for HTML.
pub(crate) const HTML: &str = "<script>window.isTaken = 1</script><img src=x onerror='window.isTaken = 1'><svg onload=isTaken=1>";

/// Elements that only a program could have made.
const MADE: &str = "all('script, iframe, object, embed, link, style, base, form form, .pool form, a')\
                    .concat(all('img').filter((image) => !image.src.startsWith('data:image/')))";

pub(crate) fn is_text(browser: &Browser) {
    let made = format!("return [window.isTaken ?? 0, {MADE}.length, document.title]");
    assert_eq!(browser.run(&made), json!([0, 0, "Hatchery"]));
}

#[test]
fn output_of_programs_is_text() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    let code = format!(
        "html = {html:?}\n\
         print(html)\n\
         print('\\x1b]0;taken\\x07\\x1b[31mred\\x1b[0m', '\\u202egnp.exe')\n\
         class Shown:\n\
         \x20   def __init__(self, **forms): self.forms = forms\n\
         \x20   def _repr_html_(self): return self.forms.get('html')\n\
         \x20   def _repr_svg_(self): return self.forms.get('svg')\n\
         \x20   def __repr__(self): return html\n\
         display(Shown(html=html))\n\
         display(Shown(html='<table><tr><td>' + html + '</td><td>&lt;script&gt;</td></tr></table>'))\n\
         display(Shown(svg='<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\">' + html + '</svg>'))\n\
         raise ValueError(html)",
        html = HTML,
    );
    run(&browser, &code);
    let output = browser.run("return text('.output')");
    let output = output.as_str().unwrap();
    assert!(output.contains(HTML), "{output}");
    assert!(output.contains("␛]0;taken␇␛[31mred␛[0m \\u{202e}gnp.exe"), "{output}");
    assert!(output.contains(&format!("ValueError: {HTML}")), "{output}");
    let cells = browser.run("return all('.frame td').map((cell) => cell.innerText)");
    assert_eq!(cells, json!(["window.isTaken = 1", "<script>"]));
    browser.until("text('[aria-label=\"Last errors\"]').includes('<script>')");
    is_text(&browser);
}

#[test]
fn endless_lines_and_floods_are_cut_and_the_page_goes_on() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    run(&browser, "print('x' * 1_000_000)\nprint('after')\n'y' * 990_000");
    let output = browser.run("return text('.output')");
    let output = output.as_str().unwrap();
    assert!(output.contains("998,000 more characters") && output.contains("after"));
    assert!(output.len() < 30_000, "{}", output.len());
    run(
        &browser,
        "import sys\n\
         for number in range(20_000):\n\
         \x20   print(number); print(number, file=sys.stderr)\n\
         1 / 0",
    );
    let [length, parts, more, state] = [
        "text('.output').length",
        "all('.output pre').length",
        "text('.more')",
        "text('.runner .state')",
    ]
    .map(|part| browser.run(&format!("return {part}")));
    assert!(length.as_u64() < Some(150_000) && parts.as_u64() <= Some(201), "{length} {parts}");
    assert!(more.as_str().unwrap().contains("more characters"), "{more}");
    assert!(state.as_str().unwrap().contains("raised"), "{state}");
    // There is always room for how it ended.
    browser.until("text('.output .error').includes('ZeroDivisionError')");
}

#[test]
fn names_are_text() {
    let page = open(&POOL);
    let Some(browser) = Browser::open(&page) else { return };
    let session = wait(POOL.session(HTML)).unwrap();
    let turn = Job::code("import time\nwhile True: time.sleep(1)").tenant(HTML);
    let ticket = wait(session.submit(turn)).unwrap();
    for place in [".tenants", ".sessions", "[aria-label=Workers]"] {
        browser.until(&format!("text('{place}').includes('<script>')"));
    }
    browser.until("all('.runner option').some((option) => option.text.includes('<script>'))");
    is_text(&browser);
    drop(ticket);
    session.close();
}
