//! What a model reads before it calls: the tools with their schemas, and the server's instructions.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::content::{ALWAYS, LEFT_OUT};

/// How sessions get their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// The client names them. It is the only one.
    Free,
    /// They are random: a caller who knows a name has the session.
    Random,
}

/// The names of the tools, in the order of the list.
pub(super) const NAMES: [&str; 5] =
    ["run_python", "fork_session", "reset_session", "list_packages", "read_file"];

/// The argument that opens a session under a random name.
pub(super) const NEW: &str = "new";

/// The most sessions that `fork_session` opens at once: a model reads their names.
pub(super) const MOST_FORKS: usize = 100;

/// Returns what a client tells its model about the server.
pub(super) fn instructions(naming: Naming) -> String {
    let sessions = match naming {
        Naming::Free => "Name a session of your choice to keep them from call to call",
        Naming::Random => {
            "To keep them from call to call, give `session` as \"new\", and afterwards the name \
             that the result has"
        }
    };
    format!(
        "Runs Python programs in a sandbox: CPython without pip; `subprocess` runs common commands in \
         the sandbox. Its network is no more than HTTP requests that the operator allows; others raise PermissionError. Programs can import the standard library, numpy, pandas, scipy, matplotlib and whatever \
         `list_packages` lists. Each call of `run_python` starts fresh, with no variables and no \
         files. {sessions}. Files are in the working directory; `read_file` returns them. \
         `fork_session` copies a session to try something, `reset_session` empties one. Figures of \
         matplotlib come back as images."
    )
}

/// What tools say of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolTraits {
    /// The names of its Python builds.
    pub(super) pythons: Arc<[String]>,
    /// Whether programs can reach anything outside of the sandbox.
    pub(super) has_network: bool,
}

/// Returns the tools of a pool.
pub(super) fn tools(naming: Naming, pool: &PoolTraits) -> Vec<Tool> {
    NAMES.into_iter().filter_map(|name| tool(name, naming, pool)).collect()
}

/// Returns the tool of this name.
pub(super) fn tool(name: &str, naming: Naming, pool: &PoolTraits) -> Option<Tool> {
    let (named, pythons) = (text("The session."), &*pool.pythons);
    let tool = match name {
        "run_python" => {
            let tool = run_python(naming, pythons);
            tool.with_annotations(hints("Run Python", false, false).open_world(pool.has_network))
        }
        "fork_session" => {
            let mut properties = json!({ "session": named });
            properties["count"] = json!({
                "type": "integer", "minimum": 1, "maximum": MOST_FORKS,
                "description": "How many sessions to open; 1 without it.",
            });
            if naming == Naming::Free {
                let about = "The name of the new session; a random one without it. Several get \
                    `-1`, `-2` and so on after it.";
                properties["name"] = text(about);
            }
            let description = "Opens new sessions that continue from the present state of a \
                session: variables, modules and files. From then on they are independent, so each \
                can try something else. The result has their names. Don't call it while a program \
                runs in the session.";
            let all = json!({
                "type": "array", "items": { "type": "string" }, "description": "All of them.",
            });
            let first = text("The first of them.");
            let output =
                object(json!({ "session": first, "sessions": all }), &["session", "sessions"]);
            Tool::new("fork_session", description, object(properties, &["session"]))
                .with_raw_output_schema(output)
                .with_annotations(hints("Copy a session", false, false))
        }
        "reset_session" => {
            let description = "Empties a session: its variables, modules and files are lost. Don't \
                call it while a program runs in the session.";
            Tool::new(
                "reset_session",
                description,
                object(json!({ "session": named }), &["session"]),
            )
            .with_annotations(hints("Reset a session", false, true))
        }
        "list_packages" => {
            let description = "Lists the packages that programs can import beyond the standard \
                library, with their versions. No others can be installed.";
            let package = json!({
                "type": "object",
                "properties": {
                    "name": { "type": "string" },
                    "version": { "type": ["string", "null"] },
                },
                "required": ["name", "version"],
            });
            let output = json!({ "packages": { "type": "array", "items": package } });
            let about = "The Python build whose packages are listed; `default` without it.";
            let properties = python(pythons, about)
                .map_or_else(|| json!({}), |python| json!({ "python": python }));
            Tool::new("list_packages", description, object(properties, &[]))
                .with_raw_output_schema(object(output, &["packages"]))
                .with_annotations(hints("List packages", true, false))
        }
        "read_file" => {
            let description = "Returns a file of a session's working directory: a text as text, an \
                image as an image, other files in base64. For a part of a large file use \
                `run_python`. Don't call it while a program runs in the session.";
            let path = text("The path, relative to the working directory.");
            let properties = json!({ "session": named, "path": path });
            Tool::new("read_file", description, object(properties, &["session", "path"]))
                .with_annotations(hints("Read a file", true, false))
        }
        _ => return None,
    };
    Some(tool)
}

/// Describes the argument that chooses one of these Python builds, if there are several.
fn python(pythons: &[String], about: &str) -> Option<Value> {
    let mut property = text(about);
    property["enum"] = json!(pythons);
    (pythons.len() > 1).then_some(property)
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn run_python(naming: Naming, pythons: &[String]) -> Tool {
    let mut input = hatchery::tool::schema();
    let about = match naming {
        Naming::Free => {
            "Keeps variables, modules and files for later calls that name the same session. Any \
             name: a session is opened when it is first named. Without it the program starts fresh \
             and leaves nothing."
        }
        Naming::Random => {
            "Keeps variables, modules and files for later calls. Give \"new\" to open a session; \
             the result has its name, to be given in later calls. Without it the program starts \
             fresh and leaves nothing."
        }
    };
    input["properties"]["session"] = text(about);
    let about = "The Python build that runs it. A session keeps the one on which it was opened. \
        Without it the session's runs, or else `default`.";
    if let Some(python) = python(pythons, about) {
        input["properties"]["python"] = python;
    }
    let description = input["description"].as_str().unwrap_or_default().to_owned()
        + " Figures and other images come back as images. There is no pip; `list_packages` lists \
           what can be imported.";
    let mut output = hatchery::tool::result_schema();
    output["properties"]["session"] = json!({
        "type": ["string", "null"],
        "description": "The session in which it ran; name it to continue there.",
    });
    output["properties"]["displays"]["description"] =
        "What the program showed, as texts. Images are contents of their own.".into();
    if let Some(properties) = output["properties"].as_object_mut() {
        properties.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
    }
    // What is null, empty or false isn't there.
    output["required"] = json!(ALWAYS);
    for schema in [&mut input, &mut output] {
        let schema = schema.as_object_mut().expect("a schema is an object");
        for said_elsewhere in ["$schema", "title", "description"] {
            schema.remove(said_elsewhere);
        }
    }
    Tool::new("run_python", description, fields(input)).with_raw_output_schema(fields(output))
}

/// What a client may tell its user of a tool that reaches nothing outside of the sandbox.
fn hints(title: &str, is_read_only: bool, is_destructive: bool) -> ToolAnnotations {
    ToolAnnotations::with_title(title)
        .read_only(is_read_only)
        .destructive(is_destructive)
        .open_world(false)
}

fn object(properties: Value, required: &[&str]) -> Arc<JsonObject> {
    fields(json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    }))
}

fn fields(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(fields) => Arc::new(fields),
        _ => Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_says_what_it_takes() {
        for naming in [Naming::Free, Naming::Random] {
            let pythons = ["default", "3.12"].map(str::to_owned).into();
            let tools = tools(naming, &PoolTraits { pythons, has_network: true });
            let reaches_out = |tool: &Tool| tool.annotations.as_ref().unwrap().open_world_hint;
            assert_eq!(tools.iter().filter(|tool| reaches_out(tool) == Some(true)).count(), 1);
            assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), NAMES);
            for tool in tools {
                assert_eq!(tool.input_schema["type"], "object");
                assert_eq!(tool.input_schema["additionalProperties"], false);
                let described = tool.input_schema["properties"].as_object().unwrap().values();
                described.for_each(|field| assert!(field["description"].is_string(), "{field}"));
                assert!(tool.description.unwrap().len() < 600);
            }
            assert!(instructions(naming).len() < 900);
        }
    }

    #[test]
    fn a_call_is_the_wires_and_a_session() {
        let pool = PoolTraits::default();
        let schema = |naming| tool("run_python", naming, &pool).unwrap().input_schema;
        let fields: Vec<String> =
            schema(Naming::Free)["properties"].as_object().unwrap().keys().cloned().collect();
        let mut expected: Vec<&str> =
            hatchery::wire::Intake::TOOL.fields().map(hatchery::wire::Field::name).collect();
        expected.push("session");
        expected.sort_unstable();
        let mut sorted = fields.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
        let about = |naming| schema(naming)["properties"]["session"]["description"].clone();
        assert!(about(Naming::Random).as_str().unwrap().contains("\"new\""));
        assert_ne!(about(Naming::Random), about(Naming::Free));
        let forked = tool("fork_session", Naming::Random, &pool).unwrap().input_schema;
        assert!(forked["properties"].get("name").is_none(), "names are not for clients to choose");
    }
}
