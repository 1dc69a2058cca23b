//! The JSON schema of a job, derived from its type, and of the part of it that an intake takes.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use serde_json::{Map, Value, json};

use crate::VERSION;
use crate::intake::{Field, Intake};
use crate::job::Job;

/// Returns the JSON schema of a job with all its fields, in the dialect of draft 2020-12. Its `$id`
/// ends in the format's [`VERSION`].
///
/// ```
/// let schema = wire::job_schema();
/// assert_eq!(schema["$id"], "urn:hatchery:job:1");
/// assert_eq!(schema["additionalProperties"], false);
/// ```
pub fn job_schema() -> Value {
    let mut schema = Intake::BATCH.schema();
    schema["$id"] = format!("urn:hatchery:job:{VERSION}").into();
    schema
}

impl Intake {
    /// Returns the JSON schema of the jobs that it takes, in the dialect of draft 2020-12. It
    /// doesn't say what must hold within strings: base64, paths, and names of variables.
    pub fn schema(&self) -> Value {
        let settings = SchemaSettings::draft2020_12();
        let settings = settings.with(|settings| settings.inline_subschemas = true);
        let mut schema = settings.into_generator().into_root_schema_for::<Job>();
        RecursiveTransform(plain).transform(&mut schema);
        let mut schema = schema.to_value();
        let properties = fields_of(&mut schema, "properties");
        properties.retain(|name, _| name.parse().is_ok_and(|field: Field| self.takes(field)));
        if let Some(timeout) = properties.get_mut("timeout") {
            timeout["maximum"] = self.most_seconds.into();
        }
        if self.lowers_only() {
            append(
                properties,
                "timeout",
                "It can be shorter than the pool's own limit, not longer.",
            );
            append(properties, "limits", "Each can be lower than the pool's own, not higher.");
        }
        let programs = [Field::Code, Field::File, Field::Shell, Field::Call];
        let programs: Vec<Field> =
            programs.into_iter().filter(|field| self.takes(*field)).collect();
        match programs[..] {
            [one] => {
                schema["required"] = json!([one.name()]);
                not_null(&mut schema["properties"][one.name()]);
            }
            _ => schema["oneOf"] = programs.iter().map(|field| given(*field)).collect(),
        }
        schema
    }

    /// Returns the same schema without `null`, for callers that leave fields out, as models do.
    pub fn plain_schema(&self) -> Value {
        let mut schema = self.schema();
        fields_of(&mut schema, "properties").values_mut().for_each(not_null);
        schema
    }
}

/// Says that a field is there and not null.
fn given(field: Field) -> Value {
    let kind = if field == Field::Call { "object" } else { "string" };
    let name = field.name();
    json!({ "properties": { name: { "type": kind } }, "required": [name] })
}

/// Takes `null` off the types of a schema, and of what is in it.
fn not_null(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(Value::Array(kinds)) = fields.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = &kinds[..] {
            let kind = kind.clone();
            fields.insert("type".to_owned(), kind);
        }
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(not_null);
    }
}

fn append(properties: &mut Map<String, Value>, name: &str, sentence: &str) {
    if let Some(Value::String(description)) =
        properties.get_mut(name).and_then(|property| property.get_mut("description"))
    {
        *description = format!("{description} {sentence}");
    }
}

fn fields_of<'a>(schema: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    schema[name].as_object_mut().expect("the schema of a struct has properties")
}

/// Leaves out what says nothing in JSON: formats of numbers, line ends in descriptions, and the schema
/// of anything.
fn plain(schema: &mut schemars::Schema) {
    schema.remove("format");
    if schema.get("additionalProperties") == Some(&Value::Bool(true)) {
        schema.remove("additionalProperties");
    }
    if schema.get("items") == Some(&Value::Bool(true)) {
        schema.remove("items");
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}
