//! Arguments of the tools that are no jobs, with errors that name the field.

use hatchery::wire::{Problem, ProblemKind};
use rmcp::model::JsonObject;
use serde_json::Value;

/// The characters of a field's name that an error shows.
const SHOWN: usize = 40;

/// Takes a field that is a text; one that is `null` is not given.
///
/// # Errors
/// It is something else.
pub(super) fn take_text(
    arguments: &mut JsonObject,
    field: &str,
) -> Result<Option<String>, Problem> {
    match arguments.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(usage(format!("`{field}` must be a string"))),
    }
}

/// Reads arguments that are all texts: `required` fields, and an `optional` one.
///
/// # Errors
/// A field is missing, unknown, or no text.
pub(super) fn texts<const N: usize>(
    mut arguments: JsonObject,
    required: [&str; N],
    optional: Option<&str>,
) -> Result<([String; N], Option<String>), Problem> {
    let known: Vec<String> =
        required.iter().copied().chain(optional).map(|field| format!("`{field}`")).collect();
    let mut given: [String; N] = std::array::from_fn(|_| String::new());
    for (field, given) in required.into_iter().zip(&mut given) {
        let missing = || usage(format!("give `{field}`, a string"));
        *given = take_text(&mut arguments, field)?.ok_or_else(missing)?;
    }
    let more = optional.map(|field| take_text(&mut arguments, field)).transpose()?.flatten();
    match arguments.keys().next() {
        None => Ok((given, more)),
        Some(field) => {
            let field: String = field.chars().take(SHOWN).collect();
            let known = match known.is_empty() {
                true => "the tool has no arguments".to_owned(),
                false => format!("use {}", known.join(", ")),
            };
            Err(usage(format!("there is no field `{field}`; {known}")))
        }
    }
}

pub(super) fn usage(message: impl Into<String>) -> Problem {
    Problem::new(ProblemKind::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(arguments: Value, optional: Option<&str>) -> String {
        let arguments = arguments.as_object().unwrap().clone();
        texts(arguments, ["session"], optional).unwrap_err().message
    }

    #[test]
    fn errors_name_the_field() {
        assert_eq!(problem(json!({}), None), "give `session`, a string");
        assert_eq!(problem(json!({"session": null}), None), "give `session`, a string");
        assert_eq!(problem(json!({"session": 1}), None), "`session` must be a string");
        let unknown = problem(json!({"session": "a", "nam": "b"}), Some("name"));
        assert_eq!(unknown, "there is no field `nam`; use `session`, `name`");
        let none = texts(json!({"a": 1}).as_object().unwrap().clone(), [], None).unwrap_err();
        assert_eq!(none.message, "there is no field `a`; the tool has no arguments");
    }

    #[test]
    fn optional_fields_may_be_left_out() {
        let given = json!({"session": "a", "name": null}).as_object().unwrap().clone();
        assert_eq!(texts(given, ["session"], Some("name")).unwrap(), (["a".to_owned()], None));
        let given = json!({"session": "a", "name": "b"}).as_object().unwrap().clone();
        let (session, name) = texts(given, ["session"], Some("name")).unwrap();
        assert_eq!((session, name), (["a".to_owned()], Some("b".to_owned())));
    }
}
