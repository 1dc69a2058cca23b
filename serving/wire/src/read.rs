//! Reads a job from JSON, with errors that name the field, and checks jobs built otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::intake::{Field, Intake};
use crate::job::{
    Call, Contents, Deterministic, Job, LEAST_MEMORY, Limits, MOST_MEMORY, MOST_SECONDS, Priority,
};
use crate::problem::InvalidJob;

/// Characters of a value that an error shows.
const SHOWN: usize = 40;

const COUNT: &str = "a whole number";
const BYTES: &str = "a whole number of bytes";

/// An object that names each field once. Of two, an earlier reader may have taken the
/// other one.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Once)
    }
}

struct Once;

impl<'de> Visitor<'de> for Once {
    type Value = Fields;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Fields, A::Error> {
        let mut fields = Map::new();
        while let Some((name, value)) = entries.next_entry::<String, Value>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("`{}` occurs twice", cut(&name))));
            }
            fields.insert(name, value);
        }
        Ok(Fields(fields))
    }
}

impl Intake {
    /// Reads a job from the text of a JSON object.
    ///
    /// # Errors
    /// The text isn't JSON, names a field twice, or the job is invalid, as for [`Self::job`].
    pub fn parse(&self, text: &[u8]) -> Result<Job, InvalidJob> {
        match text.trim_ascii_start().first() {
            Some(b'{') => self.job(serde_json::from_slice::<Fields>(text)?.0.into()),
            _ => self.job(serde_json::from_slice(text)?),
        }
    }

    /// Reads a job from a JSON object.
    ///
    /// ```
    /// use wire::Intake;
    ///
    /// let error = Intake::TOOL.job(serde_json::json!({ "code": 1 })).unwrap_err();
    /// assert_eq!(error.to_string(), "`code` must be a string, not 1");
    /// ```
    ///
    /// # Errors
    /// A field is unknown, not accepted, or has the wrong type or an invalid value. Or the fields
    /// name no program, or more than one.
    pub fn job(&self, value: Value) -> Result<Job, InvalidJob> {
        let Value::Object(fields) = value else { return Err(InvalidJob::NotAnObject) };
        let is_known = |name: &&String| name.parse::<Field>().is_ok();
        if let Some(name) = fields.keys().find(|name| !is_known(name)) {
            let known = self.fields().map(|field| field.name().to_owned()).collect();
            return Err(InvalidJob::Unknown { field: cut(name), known });
        }
        let mut job = Job::default();
        for (name, value) in fields {
            let Some(field) = name.parse::<Field>().ok().filter(|_| !value.is_null()) else {
                continue;
            };
            if !self.takes(field) {
                return Err(InvalidJob::NotTaken(field));
            }
            job.set(field, value, self)?;
        }
        self.check_program(&job)?;
        Ok(job)
    }

    /// Checks a job that was built in Rust or deserialized.
    ///
    /// # Errors
    /// A field isn't accepted, a number is out of range, or there isn't exactly one program.
    pub fn check(&self, job: &Job) -> Result<(), InvalidJob> {
        if let Some(field) = job.given().find(|field| !self.takes(*field)) {
            return Err(InvalidJob::NotTaken(field));
        }
        self.check_program(job)?;
        let check = |field, time: Option<Duration>, most| {
            time.map_or(Ok(()), |time| above_zero(field, time.as_secs_f64(), most).map(drop))
        };
        check("timeout", job.timeout, self.most_seconds)?;
        check("deadline", job.deadline, MOST_SECONDS)?;
        let Some(limits) = &job.limits else { return Ok(()) };
        check("limits.cpu_time", limits.cpu_time, MOST_SECONDS)?;
        if let Some(grace) = limits.grace {
            from_zero("limits.grace", grace.as_secs_f64())?;
        }
        limits.memory.map_or(Ok(()), |bytes| memory(bytes).map(drop))
    }

    fn check_program(&self, job: &Job) -> Result<(), InvalidJob> {
        let mut programs = job.given().filter(|field| {
            matches!(field, Field::Code | Field::File | Field::Shell | Field::Call)
        });
        match (programs.next(), programs.next()) {
            (Some(_), None) => Ok(()),
            (None, _) => Err(InvalidJob::NoProgram(self.programs())),
            (Some(first), Some(second)) => Err(InvalidJob::TwoPrograms { first, second }),
        }
    }
}

impl Job {
    /// The fields that are given.
    fn given(&self) -> impl Iterator<Item = Field> {
        Field::ALL.iter().copied().filter(|field| match field {
            Field::Id => self.id.is_some(),
            Field::Code => self.code.is_some(),
            Field::File => self.file.is_some(),
            Field::Shell => self.shell.is_some(),
            Field::Call => self.call.is_some(),
            Field::Variables => !self.variables.is_empty(),
            Field::Args => !self.args.is_empty(),
            Field::Env => !self.env.is_empty(),
            Field::Stdin => !self.stdin.is_empty(),
            Field::Files => !self.files.is_empty(),
            Field::Timeout => self.timeout.is_some(),
            Field::Limits => self.limits.is_some(),
            Field::Deterministic => self.deterministic.is_some(),
            Field::Tenant => self.tenant.is_some(),
            Field::Priority => self.priority.is_some(),
            Field::Deadline => self.deadline.is_some(),
            Field::Python => self.python.is_some(),
            Field::Egress => self.egress.is_some(),
        })
    }

    fn set(&mut self, field: Field, value: Value, intake: &Intake) -> Result<(), InvalidJob> {
        let name = field.name();
        match field {
            Field::Id => self.id = Some(value),
            Field::Code => self.code = Some(text(name, value)?),
            Field::File => self.file = Some(text(name, value)?),
            Field::Shell => self.shell = Some(text(name, value)?),
            Field::Call => self.call = Some(call(value)?),
            Field::Variables => self.variables = by_name(name, value)?,
            Field::Args => self.args = texts(name, value)?,
            Field::Env => self.env = texts_by_name(name, value)?,
            Field::Stdin => self.stdin = text(name, value)?,
            Field::Files => self.files = files(value)?,
            Field::Timeout => self.timeout = Some(time(name, &value, intake.most_seconds)?),
            Field::Limits => self.limits = Some(limits(value)?),
            Field::Deterministic => self.deterministic = Some(deterministic(value)?),
            Field::Tenant => self.tenant = Some(text(name, value)?),
            Field::Priority => self.priority = Some(priority(&value)?),
            Field::Deadline => self.deadline = Some(time(name, &value, MOST_SECONDS)?),
            Field::Python => self.python = Some(text(name, value)?),
            Field::Egress => self.egress = Some(texts(name, value)?),
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Job {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Intake::BATCH.job(value).map_err(serde::de::Error::custom)
    }
}

/// Reads files from a JSON object: by their paths, as in [`Job::files`].
fn files(value: Value) -> Result<BTreeMap<String, Contents>, InvalidJob> {
    let expected = "an object of strings, or for bytes of {\"base64\": string}";
    let contents = |(path, value): (String, Value)| {
        let contents = match value {
            Value::String(text) => Contents::Text(text),
            Value::Object(fields) => match (fields.len(), fields.get("base64")) {
                (1, Some(Value::String(text))) => {
                    let bytes = BASE64_STANDARD.decode(text);
                    Contents::Bytes(bytes.map_err(|_| InvalidJob::Base64(cut(&path)))?)
                }
                _ => return Err(wrong_item("files", expected, &fields.into())),
            },
            value => return Err(wrong_item("files", expected, &value)),
        };
        Ok((path, contents))
    };
    object("files", expected, value)?.into_iter().map(contents).collect()
}

fn call(value: Value) -> Result<Call, InvalidJob> {
    let expected = "an object with `function`, such as \"math:sqrt\"";
    let function = "a string, such as \"math:sqrt\"";
    let mut fields = object("call", expected, value)?;
    let take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
    let [name, args, keywords, tagged] = ["function", "args", "keywords", "tagged"].map(take);
    check_rest::<Call>("call", &fields)?;
    Ok(Call {
        function: match name {
            Some(Value::String(name)) => name,
            other => return Err(wrong("call.function", function, &other.unwrap_or_default())),
        },
        args: match args {
            None => Vec::new(),
            Some(Value::Array(args)) => args,
            Some(other) => return Err(wrong("call.args", "an array", &other)),
        },
        keywords: keywords
            .map_or_else(|| Ok(BTreeMap::new()), |value| by_name("call.keywords", value))?,
        tagged: tagged.map_or(Ok(false), |value| flag("call.tagged", &value))?,
    })
}

fn limits(value: Value) -> Result<Limits, InvalidJob> {
    let mut fields = object("limits", "an object, such as {\"memory\": 268435456}", value)?;
    let mut given = |name: &str| fields.remove(name).filter(|value| !value.is_null());
    let stop = |value: Value| flag("limits.stop_at_output_limit", &value);
    let grace = |value: Value| from_zero("limits.grace", number("limits.grace", &value)?);
    let cpu_time = |value: Value| time("limits.cpu_time", &value, MOST_SECONDS);
    let (cpu_time, grace, stop) = (
        given("cpu_time").map(cpu_time).transpose()?,
        given("grace").map(grace).transpose()?,
        given("stop_at_output_limit").map(stop).transpose()?,
    );
    let mut count = |name: &'static str, expected| {
        let (_, key) = name.split_once('.').unwrap_or_default();
        let read = |value: Value| whole(&value).ok_or_else(|| wrong(name, expected, &value));
        given(key).map(read).transpose()
    };
    let limits = Limits {
        cpu_time,
        grace,
        memory: count("limits.memory", BYTES)?.map(memory).transpose()?,
        output: count("limits.output", BYTES)?,
        stop_at_output_limit: stop,
        file_bytes: count("limits.file_bytes", BYTES)?,
        file_count: count("limits.file_count", COUNT)?,
        open_files: count("limits.open_files", COUNT)?,
        threads: count("limits.threads", COUNT)?,
        network_bytes: count("limits.network_bytes", BYTES)?,
        host_calls: count("limits.host_calls", COUNT)?,
        function_calls: count("limits.function_calls", COUNT)?,
        functions_in_flight: count("limits.functions_in_flight", COUNT)?,
        function_argument_bytes: count("limits.function_argument_bytes", BYTES)?,
        function_result_bytes: count("limits.function_result_bytes", BYTES)?,
        source: count("limits.source", BYTES)?,
        result: count("limits.result", BYTES)?,
        result_data: count("limits.result_data", BYTES)?,
        display_bytes: count("limits.display_bytes", BYTES)?,
        display_count: count("limits.display_count", COUNT)?,
    };
    check_rest::<Limits>("limits", &fields)?;
    Ok(limits)
}

fn deterministic(value: Value) -> Result<Deterministic, InvalidJob> {
    let mut fields = object("deterministic", "an object, such as {\"seed\": 7}", value)?;
    let seed = fields.remove("seed").unwrap_or_default();
    let start = fields.remove("start").filter(|value| !value.is_null());
    check_rest::<Deterministic>("deterministic", &fields)?;
    // A seed is exact, and so is never cut to the largest number.
    let is_exact =
        |_: &u64| seed.is_u64() || seed.as_f64().is_some_and(|seed| seed < 2f64.powi(64));
    let expected = "a whole number from 0 to 18446744073709551615";
    let seconds = "a whole number of seconds since 1970";
    let since =
        |start: Value| whole(&start).ok_or_else(|| wrong("deterministic.start", seconds, &start));
    Ok(Deterministic {
        seed: whole(&seed)
            .filter(is_exact)
            .ok_or_else(|| wrong("deterministic.seed", expected, &seed))?,
        start: start.map(since).transpose()?,
    })
}

fn priority(value: &Value) -> Result<Priority, InvalidJob> {
    let named = value.as_str().and_then(|name| name.parse().ok());
    named.ok_or_else(|| wrong("priority", "`high`, `normal` or `low`", value))
}

fn text(field: &'static str, value: Value) -> Result<String, InvalidJob> {
    match value {
        Value::String(text) => Ok(text),
        value => Err(wrong(field, "a string", &value)),
    }
}

fn texts(field: &'static str, value: Value) -> Result<Vec<String>, InvalidJob> {
    let expected = "an array of strings";
    let Value::Array(items) = value else { return Err(wrong(field, expected, &value)) };
    items.into_iter().map(|item| text_item(field, expected, item)).collect()
}

fn texts_by_name(
    field: &'static str,
    value: Value,
) -> Result<BTreeMap<String, String>, InvalidJob> {
    let expected = "an object of strings";
    let text = |(name, value)| Ok((name, text_item(field, expected, value)?));
    object(field, expected, value)?.into_iter().map(text).collect()
}

fn text_item(
    field: &'static str,
    expected: &'static str,
    item: Value,
) -> Result<String, InvalidJob> {
    match item {
        Value::String(text) => Ok(text),
        item => Err(wrong_item(field, expected, &item)),
    }
}

fn flag(field: &'static str, value: &Value) -> Result<bool, InvalidJob> {
    value.as_bool().ok_or_else(|| wrong(field, "true or false", value))
}

fn by_name(field: &'static str, value: Value) -> Result<BTreeMap<String, Value>, InvalidJob> {
    Ok(object(field, "an object", value)?.into_iter().collect())
}

fn object(
    field: &'static str,
    expected: &'static str,
    value: Value,
) -> Result<Map<String, Value>, InvalidJob> {
    match value {
        Value::Object(fields) => Ok(fields),
        value => Err(wrong(field, expected, &value)),
    }
}

/// Checks that no field of an object is left, of which its type's fields were taken.
fn check_rest<T: JsonSchema>(parent: &str, rest: &Map<String, Value>) -> Result<(), InvalidJob> {
    let Some(name) = rest.keys().next() else { return Ok(()) };
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let known = schema.get("properties").and_then(Value::as_object);
    Err(InvalidJob::Unknown {
        field: format!("{parent}.{}", cut(name)),
        known: known.into_iter().flat_map(Map::keys).cloned().collect(),
    })
}

/// Reads a number of seconds above 0.
fn time(field: &'static str, value: &Value, most: f64) -> Result<Duration, InvalidJob> {
    above_zero(field, number(field, value)?, most)
}

fn number(field: &'static str, value: &Value) -> Result<f64, InvalidJob> {
    value.as_f64().ok_or_else(|| wrong(field, "a number of seconds, such as 1.5", value))
}

fn above_zero(field: &'static str, seconds: f64, most: f64) -> Result<Duration, InvalidJob> {
    let time = Duration::try_from_secs_f64(seconds).ok();
    // What is less than a nanosecond isn't zero.
    time.filter(|_| seconds > 0.0 && seconds <= most)
        .map(|time| time.max(Duration::from_nanos(1)))
        .ok_or_else(|| out_of_range(field, seconds, "above 0", most))
}

fn from_zero(field: &'static str, seconds: f64) -> Result<Duration, InvalidJob> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= MOST_SECONDS);
    time.ok_or_else(|| out_of_range(field, seconds, "from 0", MOST_SECONDS))
}

fn out_of_range(field: &'static str, seconds: f64, least: &str, most: f64) -> InvalidJob {
    let expected = match most {
        MOST_SECONDS if seconds > most => "fewer seconds".to_owned(),
        // No user comes near it.
        MOST_SECONDS => format!("seconds {least}"),
        most => format!("seconds {least}, at most {}", plain(most)),
    };
    InvalidJob::Range { field, found: plain(seconds), expected }
}

/// Formats a number without hundreds of digits.
fn plain(number: f64) -> String {
    let text = format!("{number:?}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn memory(bytes: u64) -> Result<u64, InvalidJob> {
    if (LEAST_MEMORY..=MOST_MEMORY).contains(&bytes) {
        return Ok(bytes);
    }
    let expected = format!("bytes from {LEAST_MEMORY} (32 MiB) to {MOST_MEMORY} (4 GiB)");
    Err(InvalidJob::Range { field: "limits.memory", found: bytes.to_string(), expected })
}

/// Reads a whole number, which may be written as `1e6` or `2.0`. One that is too large for its type
/// becomes the largest.
fn whole(value: &Value) -> Option<u64> {
    let is_whole = |number: &f64| *number >= 0.0 && number.fract() == 0.0;
    value.as_u64().or_else(|| value.as_f64().filter(is_whole).map(|number| number as u64))
}

fn wrong(field: &'static str, expected: &'static str, value: &Value) -> InvalidJob {
    InvalidJob::Type { field, expected, found: shown(value) }
}

/// Names a part of a field as what is wrong with it.
fn wrong_item(field: &'static str, expected: &'static str, item: &Value) -> InvalidJob {
    InvalidJob::Type { field, expected, found: format!("one with {}", shown(item)) }
}

/// Returns a value as JSON, or what it is if that is long.
fn shown(value: &Value) -> String {
    let kind = match value {
        Value::Array(_) => return "an array".to_owned(),
        Value::Object(_) => return "an object".to_owned(),
        Value::String(text) if text.len() > SHOWN => return "a long string".to_owned(),
        Value::String(_) => "a string",
        Value::Number(_) => "a long number",
        Value::Bool(_) | Value::Null => "",
    };
    let text = value.to_string();
    if text.len() > 2 * SHOWN { kind.to_owned() } else { text }
}

/// Cuts a name that may be long.
fn cut(name: &str) -> String {
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
