//! `/openapi.json`: this server as an OpenAPI document, with the schemas of jobs and results.

use axum::http::StatusCode;
use axum::response::Response;
use hatchery::tool::result_schema;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use wire::{Field, Intake, Problem};

use super::pool::Drain;
use super::sessions;
use crate::answer;

/// A line for each operation: its method, its path, what it takes and gives, and what it does.
const OPERATIONS: &str = include_str!("operations.txt");

/// Returns the document.
pub(super) async fn document() -> Response {
    answer::json(StatusCode::OK, &openapi())
}

fn openapi() -> Value {
    let schemas = json!({
        "Job": adapted(job()),
        "Result": adapted(result_schema()),
        "Problem": schema_of::<Problem>(),
    });
    let mut paths = Map::new();
    for line in OPERATIONS.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [method, path, takes, gives, summary @ ..] = &words[..] else { continue };
        let item = paths.entry(*path).or_insert_with(|| json!({}));
        item[method] = operation(path, &summary.join(" "), takes, gives);
        item[method]["operationId"] = operation_id(method, path).into();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hatchery",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A pool of Python sandboxes. An error of a program is a result with the \
                status 200; a request that failed has a problem.",
        },
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// Returns the name that most generators would make up, such as `post_v1_run`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(['/', '.']).map(|word| word.trim_matches(['{', '}']));
    let words = words.filter(|word| !word.is_empty());
    [method].into_iter().chain(words).collect::<Vec<_>>().join("_")
}

fn operation(path: &str, summary: &str, takes: &str, gives: &str) -> Value {
    let mut operation = json!({ "summary": summary, "responses": responses(gives) });
    let mut parameters: Vec<Value> = ["name", "path", "id"]
        .into_iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| {
            let kind = if name == "id" { "integer" } else { "string" };
            json!({ "name": name, "in": "path", "required": true, "schema": { "type": kind } })
        })
        .collect();
    if ["job", "lines"].contains(&takes) {
        parameters.push(json!({
            "name": "files", "in": "query", "schema": { "type": "boolean" },
            "description": "Whether results have the contents of files, in base64.",
        }));
    }
    if takes == "job" {
        if path == "/v1/run" {
            parameters.push(json!({
                "name": "session", "in": "query", "schema": { "type": "string" },
                "description": "The session to run in.",
            }));
        }
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header",
            "schema": { "type": "string", "maxLength": 255 },
            "description": "The same request under the same key, within 10 minutes, returns the \
                first one's result.",
        }));
    }
    if path == "/v1/packages" {
        parameters.push(json!({
            "name": "python", "in": "query", "schema": { "type": "string" },
            "description": "The Python build whose packages are listed.",
        }));
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if path == "/healthz" {
        operation["security"] = json!([]);
    }
    if let Some(body) = body(takes) {
        operation["requestBody"] = body;
    }
    operation
}

fn body(takes: &str) -> Option<Value> {
    const JSON: &str = "application/json";
    let (kind, schema) = match takes {
        "job" => (JSON, reference("Job")),
        "lines" => ("application/x-ndjson", reference("Job")),
        "name" => (JSON, schema_of::<sessions::Name>()),
        "session" => (JSON, schema_of::<sessions::Open>()),
        "to" => (JSON, schema_of::<sessions::To>()),
        "count" => (JSON, schema_of::<sessions::Count>()),
        "explore" => (JSON, explore()),
        "seconds" => (JSON, schema_of::<Drain>()),
        _ => return None,
    };
    Some(json!({ "required": takes != "seconds", "content": { kind: { "schema": schema } } }))
}

/// Returns the schema of what [`wire::message::Explore`] reads.
fn explore() -> Value {
    let first = json!({
        "type": "object", "properties": { "first": { "type": "integer", "minimum": 0 } },
        "required": ["first"], "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": {
            "candidates": {
                "type": "array", "items": reference("Job"),
                "description": "The programs.",
            },
            "keep": {
                "oneOf": [{ "type": "string", "enum": ["all", "none", "succeeded"] }, first],
                "description": "Which forks stay open: all, none, those whose program succeeds \
                    (the default), or the first so many of those.",
            },
            "most_bytes": {
                "type": "integer", "minimum": 0,
                "description": "No further fork is opened while the states of those that are open \
                    take so many bytes, beside what they share.",
            },
        },
        "required": ["candidates"],
        "additionalProperties": false,
    })
}

fn schema_of<T: JsonSchema>() -> Value {
    adapted(SchemaGenerator::default().into_root_schema_for::<T>().to_value())
}

fn responses(gives: &str) -> Value {
    let object = json!({ "type": "object" });
    let text = json!({ "type": "string" });
    let (status, content) = match gives {
        "created" => ("201", json!({ "application/json": { "schema": object } })),
        "accepted" => ("202", json!({ "application/json": { "schema": object } })),
        // A stream of events only if it is asked for, so clients needn't tell texts from results.
        "result" => ("200", json!({ "application/json": { "schema": reference("Result") } })),
        "lines" => ("200", json!({ "application/x-ndjson": { "schema": reference("Result") } })),
        "explored" => ("200", json!({ "application/x-ndjson": { "schema": object } })),
        "bytes" => ("200", json!({ "application/octet-stream": {} })),
        "events" => ("200", json!({ "text/event-stream": { "schema": text } })),
        "text" => ("200", json!({ "text/plain": { "schema": text } })),
        _ => ("200", json!({ "application/json": { "schema": object } })),
    };
    let error = json!({
        "type": "object", "properties": { "error": reference("Problem") }, "required": ["error"],
    });
    json!({
        status: { "description": "The request succeeded, or its answer streams.", "content": content },
        "default": {
            "description": "The request failed.",
            "content": { "application/json": { "schema": error } },
        },
    })
}

/// Returns the schema of a job as clients send it. Generators make no types of alternatives that
/// differ only in what is required. So words say which fields exclude each other.
fn job() -> Value {
    let mut schema = Intake::BATCH.without(Field::File).plain_schema();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("oneOf");
    }
    schema["description"] = "A job: exactly one of `code` and `call`, and its inputs.".into();
    schema
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Returns a schema without what generators would name its type by.
fn adapted(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.retain(|name, _| !["$schema", "$id", "title"].contains(&name.as_str()));
    }
    add_items(&mut schema);
    schema
}

/// Says of every array that it has items, as OpenAPI wants it.
fn add_items(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("type").is_some_and(|kind| kind == "array") {
                object.entry("items").or_insert_with(|| json!({}));
            }
            object.values_mut().for_each(add_items);
        }
        Value::Array(items) => items.iter_mut().for_each(add_items),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` in a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                if let Some(Value::String(target)) = object.get("$ref") {
                    found.push(target.clone());
                }
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = openapi();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 5, "{found:?}");
        for target in found {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target}");
        }
    }

    #[test]
    fn every_operation_takes_and_gives_what_is_described() {
        for line in OPERATIONS.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert!(words.len() > 5, "{line}");
            assert_eq!(body(words[2]).is_none(), words[2] == "-", "{line}");
            assert_eq!(responses(words[3]) == responses("-"), words[3] == "json", "{line}");
        }
    }

    #[test]
    fn every_route_is_described() {
        let (_, routes) = include_str!("routes.rs").split_once("fn router(").unwrap();
        let (routes, _) = routes.split_once("\n}\n").unwrap();
        let routes: Vec<&str> = routes
            .split(".route(\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .filter(|path| *path != "/openapi.json")
            .collect();
        let document = openapi();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(routes.len(), paths.len());
        for route in routes {
            assert!(paths.contains_key(&route.replace("{*path}", "{path}")), "{route}");
        }
    }
}
