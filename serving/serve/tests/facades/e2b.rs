//! `/execute` and `/contexts`.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::Server;

/// A new context's id.
fn context() -> String {
    let made = Server::shared().post("/contexts", &json!({})).json();
    assert_eq!([&made["language"], &made["cwd"]], ["python", "/home/user"]);
    made["id"].as_str().unwrap().to_owned()
}

/// The lines of one cell, without times; parts of a line of output are put together.
#[track_caller]
fn execute(context: &str, code: &str) -> Vec<Value> {
    let request = json!({ "code": code, "context_id": context });
    let mut lines: Vec<Value> = Vec::new();
    for mut line in Server::shared().post("/execute", &request).lines() {
        if let Some(timestamp) = line.as_object_mut().unwrap().remove("timestamp") {
            // Nanoseconds since 1970.
            assert!(timestamp.as_u64().unwrap() > 1_700_000_000_000_000_000);
        }
        match lines.last_mut() {
            Some(last)
                if last["type"] == line["type"]
                    && (line["type"] == "stdout" || line["type"] == "stderr") =>
            {
                let text = [&last["text"], &line["text"]].map(|text| text.as_str().unwrap());
                last["text"] = text.concat().into();
            }
            _ => lines.push(line),
        }
    }
    lines
}

fn number(count: u64) -> Value {
    json!({ "type": "number_of_executions", "execution_count": count })
}

fn main_text(text: &str) -> Value {
    json!({ "type": "result", "is_main_result": true, "text": text })
}

#[test]
fn what_happens_comes_in_order() {
    let context = context();
    let code = "
import sys
print('one')
print('two', file=sys.stderr)
display(3)
print('four')
x = 5
x
";
    let expected = [
        number(1),
        json!({ "type": "stdout", "text": "one\n" }),
        json!({ "type": "stderr", "text": "two\n" }),
        json!({ "type": "result", "is_main_result": false, "text": "3" }),
        json!({ "type": "stdout", "text": "four\n" }),
        main_text("5"),
    ];
    assert_eq!(execute(&context, code), expected);
    assert_eq!(execute(&context, "x + 1"), [number(2), main_text("6")]);
    assert_eq!(execute(&context, "'text'"), [number(3), main_text("text")]);
    assert_eq!(execute(&context, "_ + '!'"), [number(4), main_text("text!")]);
    assert_eq!(execute(&context, "y = 1"), [number(5)]);
}

#[test]
fn cells_have_what_ipython_gives_them() {
    let context = context();
    assert_eq!(execute(&context, "%matplotlib inline"), [number(1)]);
    assert_eq!(execute(&context, "6 * 7;"), [number(2)]);
    let bold = json!({
        "type": "result", "is_main_result": true, "html": "<b>",
        "text": "<IPython.core.display.HTML object>",
    });
    let code = "from IPython.display import HTML, JSON, Markdown\nHTML('<b>')";
    assert_eq!(execute(&context, code), [number(3), bold]);
    assert_eq!(execute(&context, "41")[1], main_text("41"));
    assert_eq!(execute(&context, "Out[4] + 1, _, In[4]")[1], main_text("(42, 41, '41')"));
    let shell = execute(&context, "get_ipython().__class__.__name__");
    assert_eq!(shell[1], main_text("ZMQInteractiveShell"));
    assert_eq!(execute(&context, "    x = 1\n    x")[1], main_text("1"));
    let failed = |code: &str| execute(&context, code)[1]["traceback"].as_str().unwrap().to_owned();
    assert_eq!(execute(&context, "!echo said")[1]["text"], "said\n");
    assert!(failed("%%perl\n1").contains("has only Python and a shell"));
    assert!(failed("%pip install nowhere").contains("The server adds packages"));
    assert!(failed("open('a.csv')").contains("`sandbox.files.write(\"a.csv\", …)`"));
    assert!(failed("input()").contains("assign the answer in the code"));
    assert_eq!(execute(&context, "class A:\n def __repr__(self): 1 / 0\nA()")[1]["type"], "error");
}

#[test]
fn output_comes_while_the_cell_runs() {
    let context = context();
    // One write, since a line of `print` may come in parts.
    let code = "import sys\nsys.stdout.write('started\\n')\nwhile True: pass";
    let request = json!({ "code": code, "context_id": context });
    let mut lines = Server::shared().lines("/execute", &request);
    assert_eq!(lines.next(), Some(number(1)));
    assert_eq!(lines.next().unwrap()["text"], "started\n");
    // A restart ends it, and the context is as new.
    let path = format!("/contexts/{context}/restart");
    assert_eq!(Server::shared().post(&path, &json!({})).json(), Value::Null);
    let last: Vec<Value> = lines.collect();
    assert_eq!(last.len(), 1);
    assert_eq!([&last[0]["type"], &last[0]["name"]], ["error", "ContextRestarting"]);
    let lines = execute(&context, "import os; 'x' in globals(), os.getcwd()");
    assert_eq!(lines, [number(1), main_text("(False, '/home/user')")]);
}

#[test]
fn results_have_all_their_forms() {
    let context = context();
    let code = "
class Rich:
    def _repr_html_(self): return '<b>'
    def _repr_markdown_(self): return '**'
    def _repr_latex_(self): return '$'
    def _repr_svg_(self): return '<svg>'
    def _repr_json_(self): return {'a': [1]}
    def _repr_jpeg_(self): return b'\\xff\\xd8'
    def _repr_mimebundle_(self, **_): return {'text/x-own': 'own'}
    def __repr__(self): return 'plain'
Rich()
";
    let lines = execute(&context, code);
    let mut result = lines[1].clone();
    // A bundle of its own goes over its other forms.
    assert_eq!([&result["text"], &result["extra"]["text/x-own"]], ["plain", "own"]);
    let without =
        code.replace("    def _repr_mimebundle_(self, **_): return {'text/x-own': 'own'}\n", "");
    result = execute(&context, &without)[1].clone();
    for (form, expected) in [
        ("text", json!("plain")),
        ("html", json!("<b>")),
        ("markdown", json!("**")),
        ("latex", json!("$")),
        ("svg", json!("<svg>")),
        ("json", json!({ "a": [1] })),
        ("jpeg", json!("/9g=")),
    ] {
        assert_eq!(result[form], expected, "{form}: {result}");
    }
    let table = execute(&context, "import pandas; pandas.DataFrame({'n': [1]})")[1].clone();
    assert!(table["html"].as_str().unwrap().contains("<table"), "{table}");
    assert!(table["is_main_result"].as_bool().unwrap());

    let code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()";
    let lines = execute(&context, code);
    let figure = lines.iter().find(|line| line.get("png").is_some()).unwrap();
    assert_eq!(figure["is_main_result"], false);
    assert!(figure["png"].as_str().unwrap().starts_with("iVBORw0KGgo"), "{lines:?}");
}

#[test]
fn failures_are_errors_and_the_context_goes_on() {
    let context = context();
    for (code, name, value) in [
        ("x = 1; 1 / 0", "ZeroDivisionError", "division by zero"),
        ("def f(:", "SyntaxError", ""),
        ("import sys; sys.exit(3)", "SystemExit", "3"),
        ("import os; os._exit(4)", "SystemExit", "4"),
    ] {
        let lines = execute(&context, code);
        let error = lines.last().unwrap();
        assert_eq!([&error["type"], &error["name"]], ["error", name], "{lines:?}");
        assert!(error["value"].as_str().unwrap().contains(value), "{error}");
    }
    assert_eq!(execute(&context, "x"), [number(5), main_text("1")]);
}

#[test]
fn variables_of_the_environment_are_for_one_cell() {
    let context = context();
    let code = "import os; os.environ.get('MODE')";
    let request = json!({ "code": code, "context_id": context, "env_vars": { "MODE": "test" } });
    assert_eq!(Server::shared().post("/execute", &request).lines()[1]["text"], "test");
    assert_eq!(execute(&context, code), [number(2)]);
}

#[test]
fn a_client_that_goes_away_interrupts_its_cell() {
    let context = context();
    let code = "
x = 1
print('started', flush=True)
try:
    while True: pass
except KeyboardInterrupt:
    interrupted = True
    raise
";
    let body = json!({ "code": code, "context_id": context }).to_string();
    let mut client = TcpStream::connect(Server::shared().address()).unwrap();
    let length = body.len();
    write!(
        client,
        "POST /execute HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let (mut said, mut piece) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&said).contains("started") {
        let count = client.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&said));
        said.extend(&piece[..count]);
    }
    drop(client);
    assert_eq!(execute(&context, "x, interrupted"), [number(2), main_text("(1, True)")]);
}

#[test]
fn contexts_are_made_listed_and_removed() {
    let server = Server::shared();
    let request = json!({ "language": "Python", "cwd": "/home/user/project" });
    let made = server.post("/contexts", &request).json();
    let id = made["id"].as_str().unwrap();
    assert_eq!(made, json!({ "id": id, "language": "python", "cwd": "/home/user/project" }));
    assert!(server.get("/contexts").json().as_array().unwrap().contains(&made));
    let lines = execute(id, "import os; os.getcwd()");
    assert_eq!(lines, [number(1), main_text("/home/user/project")]);
    // Where the last cell was.
    execute(id, "os.chdir('/tmp')");
    assert_eq!(execute(id, "os.getcwd()"), [number(3), main_text("/tmp")]);

    assert_eq!(server.delete(&format!("/contexts/{id}")).json(), Value::Null);
    assert!(!server.get("/contexts").json().as_array().unwrap().contains(&made));
    let after = server.post("/execute", &json!({ "code": "1", "context_id": id }));
    assert_eq!(after.status, 404);
    assert_eq!(server.delete(&format!("/contexts/{id}")).status, 404);
    assert_eq!(server.post(&format!("/contexts/{id}/restart"), &json!({})).status, 404);
}

#[test]
fn without_a_context_there_is_one_for_each_tenant() {
    let server = Server::shared();
    let run = |tenant, code: &str| {
        let answer = server.post_as(tenant, "/execute", &json!({ "code": code }));
        answer.lines().last().unwrap().clone()
    };
    run("red", "x = 'red'");
    assert_eq!(run("red", "x"), main_text("red"));
    assert_eq!(run("blue", "x")["name"], "NameError");
    let by_language = json!({ "code": "x", "language": "python" });
    assert_eq!(server.post_as("red", "/execute", &by_language).lines()[1], main_text("red"));

    let of = |tenant| server.get_as(tenant, "/contexts").json();
    let (red, blue) = (of("red"), of("blue"));
    assert_eq!((red.as_array().unwrap().len(), blue.as_array().unwrap().len()), (1, 1));
    assert_ne!(red, blue);
    let request = json!({ "code": "x", "context_id": red[0]["id"] });
    assert_eq!(server.post_as("red", "/execute", &request).lines()[1], main_text("red"));
    assert_eq!(server.post_as("blue", "/execute", &request).status, 404);
}

#[test]
fn a_tenant_has_so_many_contexts() {
    let server = Server::shared();
    let open = || server.post_as("many", "/contexts", &json!({}));
    let ids: Vec<Value> = (0..256).map(|_| open().json()["id"].take()).collect();
    let refused = open();
    assert_eq!((refused.status, refused.retry_after.as_deref()), (429, Some("1")));
    assert!(refused.text.contains("256 contexts"), "{}", refused.text);
    // Others have room, and no id is given twice.
    assert_eq!(server.delete(&format!("/contexts/{}", context())).status, 200);
    assert_eq!(ids.iter().map(Value::to_string).collect::<HashSet<_>>().len(), 256);
}

#[test]
fn a_sandbox_belongs_to_the_tenant_who_created_it() {
    let server = Server::shared();
    let template = json!({ "templateID": "base", "envVars": { "A": "1" } });
    let made = server.post_as("sand-red", "/v2/sandboxes", &template);
    assert_eq!(made.status, 201, "{}", made.text);
    let made: Value = serde_json::from_str(&made.text).unwrap();
    let id = made["sandboxID"].as_str().unwrap();
    let run = |sandbox, tenant| {
        let cell = json!({ "code": "import os; x = os.environ['A']; x" });
        server.post_to(sandbox, tenant, "/execute", &cell)
    };
    assert_eq!(run(id, "sand-red").lines()[1], main_text("1"));
    assert_eq!(server.get_as("sand-red", &format!("/sandboxes/{id}")).json()["state"], "running");
    // To others, and with another id, there is none.
    for (sandbox, tenant) in [(id, "sand-blue"), (id, ""), ("guessed", "sand-red"), ("", "")] {
        let refused = run(sandbox, tenant);
        assert_eq!(refused.status, 502, "{sandbox} {tenant} {}", refused.text);
    }
    let path = format!("/sandboxes/{id}");
    assert_eq!(server.get_as("sand-blue", &path).status, 404);
    assert_eq!(server.get_as("sand-blue", "/v2/sandboxes").json(), json!([]));
    assert_eq!(server.post_as("sand-blue", &format!("{path}/timeout"), &json!({})).status, 404);
    assert_eq!(server.delete_as("sand-blue", &path).status, 404);
    // What a tenant does outside of sandboxes is apart from them.
    let outside = server.post_as("sand-red", "/execute", &json!({ "code": "x" })).lines();
    assert_eq!(outside.last().unwrap()["name"], "NameError");
    assert_eq!(server.get_as("sand-red", "/contexts").json().as_array().unwrap().len(), 1);
    assert_eq!(server.delete_as("sand-red", &path).status, 204);
    assert_eq!(run(id, "sand-red").status, 502);
}

#[test]
fn a_sandbox_reaches_a_part_of_what_the_pool_allows() {
    // Nothing listens at either port, which a request that is allowed is told.
    let server = Server::allowing(&["GET http://127.0.0.1/*", "GET http://127.0.0.1:1/*"]);
    let create = |server: &Server, mut asked: Value| {
        asked["templateID"] = json!("base");
        server.post("/v2/sandboxes", &asked)
    };
    let code = "import urllib.request as r
def get(url):
    try: r.urlopen(url)
    except OSError as e: return next((s for s in ('no rule', 'no network') if s in str(e)), 'sent')
print(get('http://127.0.0.1/'), get('http://127.0.0.1:1/'), sep=', ')";
    let network = |network: Value| json!({ "network": network });
    let all = "0.0.0.0/0";
    for (asked, expected) in [
        (json!({}), "sent, sent"),
        (json!({ "allow_internet_access": true }), "sent, sent"),
        (json!({ "allow_internet_access": false }), "no network, no network"),
        (network(json!({ "denyOut": [all] })), "no network, no network"),
        (network(json!({ "allowOut": ["127.0.0.1"], "denyOut": [all] })), "sent, no rule"),
        (network(json!({ "allowOut": ["api.example.com"] })), "no rule, no rule"),
        (network(json!({ "allowOut": [all] })), "sent, sent"),
    ] {
        let made = create(&server, asked.clone());
        assert_eq!(made.status, 201, "{}", made.text);
        let made: Value = serde_json::from_str(&made.text).unwrap();
        let id = made["sandboxID"].as_str().unwrap();
        let ran = server.post_to(id, "", "/execute", &json!({ "code": code })).text;
        assert!(ran.contains(&format!("\"{expected}\\n\"")), "{asked}: {ran}");
    }
    for (server, asked, why) in [
        (&server, network(json!({ "allowOut": ["10.0.0.0/8"] })), "`allowOut` can't have"),
        (&server, network(json!({ "allowOut": ["a b"] })), "can't be used"),
        (&server, network(json!({ "denyOut": ["8.8.8.8"] })), "`denyOut` can't have `8.8.8.8`"),
        (&server, network(json!({ "rules": {} })), "rules"),
        (Server::shared(), json!({ "allow_internet_access": true }), "no requests over HTTP"),
        (
            Server::shared(),
            network(json!({ "allowOut": ["example.com"] })),
            "no requests over HTTP",
        ),
    ] {
        let refused = create(server, asked);
        assert!(refused.status >= 400 && refused.text.contains(why), "{}", refused.text);
    }
}

#[test]
fn a_sandbox_is_forked_as_the_api_of_e2b_defines_it() {
    let server = Server::shared();
    let template = json!({ "templateID": "base", "envVars": { "A": "1" } });
    let made = server.post_as("fork-red", "/v2/sandboxes", &template);
    let made: Value = serde_json::from_str(&made.text).unwrap();
    let id = made["sandboxID"].as_str().unwrap();
    let run = |sandbox: &str, code: &str| {
        server.post_to(sandbox, "fork-red", "/execute", &json!({ "code": code })).lines()
    };
    run(id, "import os; x = 1; open('f', 'w').write('kept')");
    let path = format!("/sandboxes/{id}/fork");
    let forks = server.post_as("fork-red", &path, &json!({ "count": 2, "timeout": 60 }));
    assert_eq!(forks.status, 201, "{}", forks.text);
    let forks: Value = serde_json::from_str(&forks.text).unwrap();
    let forks: Vec<&str> = forks
        .as_array()
        .unwrap()
        .iter()
        .map(|fork| {
            assert_eq!(fork["sandbox"]["templateID"], "code-interpreter-v1");
            fork["sandbox"]["sandboxID"].as_str().unwrap()
        })
        .collect();
    assert_eq!(forks.len(), 2);
    for (number, fork) in forks.iter().enumerate() {
        let code = format!("x += {number}; (x, open('f').read(), os.environ['A'])");
        let expected = main_text(&format!("({}, 'kept', '1')", 1 + number));
        assert!(run(fork, &code).contains(&expected), "{number}");
    }
    assert!(run(id, "x").contains(&main_text("1")));
    // Without a body there is one, for 15 s.
    let one = server.post_as("fork-red", &path, &json!({}));
    let one: Value = serde_json::from_str(&one.text).unwrap();
    assert_eq!(one.as_array().unwrap().len(), 1);
    for (body, status) in [(json!({ "count": 0 }), 400), (json!({ "count": 101 }), 400)] {
        assert_eq!(server.post_as("fork-red", &path, &body).status, status, "{body}");
    }
    assert_eq!(server.post_as("fork-blue", &path, &json!({})).status, 404);
    for sandbox in forks.into_iter().chain([id]) {
        assert_eq!(server.delete_as("fork-red", &format!("/sandboxes/{sandbox}")).status, 204);
    }
}

#[test]
fn a_paused_sandbox_keeps_its_state_and_has_no_end() {
    let server = Server::shared();
    let create = |mut asked: Value| {
        asked["templateID"] = json!("base");
        let made = server.post_as("pausing", "/v2/sandboxes", &asked);
        let made: Value = serde_json::from_str(&made.text).unwrap();
        made["sandboxID"].as_str().unwrap().to_owned()
    };
    let run =
        |id: &str, code: &str| server.post_to(id, "pausing", "/execute", &json!({ "code": code }));
    let state = |id: &str| {
        let found = server.get_as("pausing", &format!("/sandboxes/{id}"));
        (found.status == 200).then(|| found.json()["state"].as_str().unwrap().to_owned())
    };
    let ask = |id: &str, action: &str, body: Value| {
        server.post_as("pausing", &format!("/sandboxes/{id}/{action}"), &body).status
    };
    let id = create(json!({ "timeout": 600 }));
    run(&id, "x = 1; open('f', 'w').write('kept')");
    assert_eq!(ask(&id, "pause", json!({ "memory": false })), 400);
    assert_eq!(server.post_as("others", &format!("/sandboxes/{id}/pause"), &json!({})).status, 404);
    // The SDK takes 409 for one that is paused already.
    assert_eq!([ask(&id, "pause", json!({})), ask(&id, "pause", json!({}))], [204, 409]);
    assert_eq!(state(&id).as_deref(), Some("paused"));
    let listed = |state: &str| {
        let listed = server.get_as("pausing", &format!("/v2/sandboxes?state={state}")).json();
        listed.as_array().unwrap().iter().any(|found| found["sandboxID"] == id.as_str())
    };
    assert_eq!(["paused", "running", "running,paused"].map(listed), [true, false, true]);
    let refused = run(&id, "x");
    assert_eq!(refused.status, 502);
    assert!(refused.text.contains("was not found: it is paused"), "{}", refused.text);
    assert_eq!(
        [ask(&id, "timeout", json!({ "timeout": 0 })), ask(&id, "fork", json!({}))],
        [409, 409]
    );
    assert_eq!(ask(&id, "connect", json!({ "memory": false })), 400);
    assert_eq!([ask(&id, "connect", json!({})), ask(&id, "connect", json!({}))], [201, 200]);
    assert_eq!(run(&id, "x, open('f').read()").lines()[1], main_text("(1, 'kept')"));

    // At its end one is paused instead of killed, if that was wanted.
    let pausing = create(json!({ "timeout": 600, "autoPause": true }));
    run(&pausing, "y = 2");
    assert_eq!(ask(&pausing, "timeout", json!({ "timeout": 0 })), 204);
    while state(&pausing).as_deref() == Some("running") {
        thread::yield_now();
    }
    assert_eq!(state(&pausing).as_deref(), Some("paused"));
    assert_eq!(ask(&pausing, "resume", json!({ "timeout": 600 })), 201);
    assert_eq!(run(&pausing, "y").lines()[1], main_text("2"));
    let without_memory =
        json!({ "templateID": "base", "autoPause": true, "autoPauseMemory": false });
    assert_eq!(server.post_as("pausing", "/v2/sandboxes", &without_memory).status, 400);
    // A paused one can be killed.
    assert_eq!(ask(&pausing, "pause", json!({})), 204);
    for id in [&pausing, &id] {
        assert_eq!(server.delete_as("pausing", &format!("/sandboxes/{id}")).status, 204);
        assert_eq!(state(id), None);
    }
}

#[test]
fn a_tenant_has_so_many_sandboxes() {
    let server = Server::shared();
    let create = |tenant| {
        server.post_as(tenant, "/sandboxes", &json!({ "templateID": "base", "timeout": 600 }))
    };
    for _ in 0..256 {
        assert_eq!(create("crowd").status, 201);
    }
    let refused = create("crowd");
    assert_eq!((refused.status, refused.retry_after.as_deref()), (429, Some("1")));
    assert!(refused.text.contains("256 sandboxes"), "{}", refused.text);
    assert_eq!(create("alone").status, 201);
    let page = |query: &str| {
        let listed = server.get_as("crowd", &format!("/v2/sandboxes{query}"));
        listed.json().as_array().unwrap().len()
    };
    let counts = [page(""), page("?limit=7"), page("?nextToken=200"), page("?state=paused")];
    assert_eq!(counts, [100, 7, 56, 0]);
    assert_eq!(server.get_as("crowd", "/v2/sandboxes?template=base").status, 400);
}

#[test]
fn a_tenant_has_so_many_sessions_in_all_its_sandboxes() {
    let server = Server::narrow();
    let create = |tenant| {
        let made = server.post_as(tenant, "/v2/sandboxes", &json!({ "templateID": "base" }));
        let made: Value = serde_json::from_str(&made.text).unwrap();
        made["sandboxID"].as_str().unwrap().to_owned()
    };
    let run = |id: &str, tenant| server.post_to(id, tenant, "/execute", &json!({ "code": "1" }));
    let (one, other) = (create("narrow-red"), create("narrow-red"));
    assert_eq!(run(&one, "narrow-red").lines()[1], main_text("1"));
    let refused = run(&other, "narrow-red");
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert!(refused.text.contains("sessions"), "{}", refused.text);
    let files = server.post_to(&other, "narrow-red", "/filesystem.Filesystem/Stat", &json!({}));
    assert_eq!(files.status, 429, "{}", files.text);
    // Others have room, and so has the tenant once a sandbox was killed.
    assert_eq!(run(&create("narrow-blue"), "narrow-blue").lines()[1], main_text("1"));
    assert_eq!(server.delete_as("narrow-red", &format!("/sandboxes/{one}")).status, 204);
    assert_eq!(run(&other, "narrow-red").lines()[1], main_text("1"));
}

#[test]
fn requests_that_can_not_be_run_say_why() {
    let server = Server::shared();
    for (request, status, reason) in [
        (json!({ "code": "1", "language": "r" }), 400, "\"r\""),
        (json!({ "code": "1", "language": "python", "context_id": "x" }), 400, "Only one"),
        (json!({ "code": "1", "context_id": "guessed" }), 404, "guessed"),
        (json!({ "code": "1", "env_vars": { "": "x" } }), 400, "environment"),
        (json!({ "code": 1 }), 422, "detail"),
    ] {
        let answer = server.post("/execute", &request);
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.text.contains(reason), "{}", answer.text);
    }
    assert_eq!(server.post("/contexts", &json!({ "language": "java" })).status, 400);
    assert_eq!(server.get("/health").json(), "OK");
}

#[test]
fn a_context_that_was_closed_while_idle_is_gone_and_the_default_one_is_new() {
    // Long enough for the next request on a busy machine.
    let (server, pool) = Server::forgetful(Duration::from_secs(2));
    let made = server.post("/contexts", &json!({})).json();
    let cell = json!({ "code": "x = 1; x", "context_id": made["id"] });
    assert_eq!(server.post("/execute", &cell).lines().last(), Some(&main_text("1")));
    let of_default = json!({ "code": "y = 'y' in globals(); y" });
    assert_eq!(server.post("/execute", &of_default).lines().last(), Some(&main_text("False")));
    while !pool.status().sessions.is_empty() {
        thread::yield_now();
    }
    let gone = server.post("/execute", &cell);
    assert_eq!(gone.status, 404, "{}", gone.text);
    assert!(gone.text.contains("not found"), "{}", gone.text);
    // As a removed one.
    assert_eq!(server.delete(&format!("/contexts/{}", made["id"].as_str().unwrap())).status, 404);
    let lines = server.post("/execute", &of_default).lines();
    assert_eq!(lines, [number(1), main_text("False")]);
    while !pool.status().sessions.is_empty() {
        thread::yield_now();
    }
    // Files as well.
    let listed = server.post("/filesystem.Filesystem/ListDir", &json!({ "path": "/home/user" }));
    assert_eq!(listed.json(), json!({ "entries": [] }));
}

#[test]
fn files_are_those_of_the_tenants_default_context() {
    let server = Server::shared();
    let call = |tenant, method: &str, request: Value| {
        server.post_as(tenant, &format!("/filesystem.Filesystem/{method}"), &request)
    };
    let written = "open('/home/user/f', 'w').write('red'); x = 1";
    server.post_as("files-red", "/execute", &json!({ "code": written }));
    assert_eq!(server.get_as("files-red", "/files?path=f").text, "red");
    let missing = server.get_as("files-blue", "/files?path=/home/user/f");
    assert_eq!(missing.status, 404);
    assert!(missing.text.contains("\"code\":404"), "{}", missing.text);
    let entry = call("files-red", "Stat", json!({ "path": "f" })).json()["entry"].clone();
    assert_eq!([&entry["type"], &entry["size"]], [&json!("FILE_TYPE_FILE"), &json!(3)]);
    for (method, request, status, code) in [
        ("Stat", json!({ "path": "none" }), 404, "not_found"),
        ("MakeDir", json!({ "path": "f" }), 409, "already_exists"),
        ("ListDir", json!({ "path": "f" }), 400, "invalid_argument"),
        ("ListDir", json!({ "depth": -1 }), 400, "invalid_argument"),
        ("Remove", json!({ "path": "a\0b" }), 400, "invalid_argument"),
        ("WatchDir", json!({ "path": "f" }), 501, "unimplemented"),
    ] {
        let answer = call("files-red", method, request);
        assert_eq!(answer.status, status, "{method}: {}", answer.text);
        assert!(answer.text.contains(code), "{method}: {}", answer.text);
    }
    for (path, content_type, status) in [
        ("/files", "application/octet-stream", 400),
        ("/files?path=g", "text/plain", 400),
        ("/files?path=g", "multipart/form-data; boundary=b", 400),
        ("/files?path=/etc/passwd", "application/octet-stream", 403),
        ("/files?path=g", "application/octet-stream", 200),
    ] {
        let answer = server.send(path, "new".to_owned(), content_type, Some("files-red"));
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
    }
    // Nothing of this shows in the context.
    let names =
        "[name for name in dir() if name[0] != '_' and name not in ('In', 'Out', 'get_ipython')]";
    let lines = server.post_as("files-red", "/execute", &json!({ "code": names })).lines();
    assert_eq!(lines, [number(2), main_text("['x']")]);
}
