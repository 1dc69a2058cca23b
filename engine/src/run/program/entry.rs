//! Which part of a program runs, and where its script is.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::InvalidProgram;
use crate::files::mount::Mount;
use crate::run::names::is_name;
use crate::run::value::{Value, number};

/// Which part of a program runs.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Entry {
    /// Its source, statement by statement; if the last one is an expression, its value is the
    /// result.
    #[default]
    Statements,
    /// Its source, which has to be one expression.
    Expression,
    /// A function of a module, instead of source.
    Call(Call),
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// The module, such as `json` or `__main__`.
    pub module: String,
    /// The function in it, such as `dumps` or `Class.method`.
    pub function: String,
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Keyword arguments.
    pub keywords: BTreeMap<String, Value>,
}

impl Call {
    /// Creates a call of `target`, such as `json:dumps`, without arguments. An invalid target is
    /// refused when the job is submitted.
    pub fn new(target: &str) -> Self {
        let (module, function) = target.split_once(':').unwrap_or((target, ""));
        let (module, function) = (module.to_owned(), function.to_owned());
        Self { module, function, args: Vec::new(), keywords: BTreeMap::new() }
    }

    /// Adds a positional argument.
    pub fn arg(mut self, value: impl Into<Value>) -> Self {
        self.args.push(value.into());
        self
    }

    /// Adds a keyword argument.
    pub fn keyword(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.keywords.insert(name.into(), value.into());
        self
    }

    /// Checks the names and values of the call.
    ///
    /// # Errors
    /// The module or the function isn't a dotted name, or an argument is invalid.
    pub(super) fn check(&self) -> Result<(), InvalidProgram> {
        let Self { module, function, args, keywords } = self;
        if ![module, function].into_iter().all(|dotted| dotted.split('.').all(is_name)) {
            // As the user wrote it: without a function there may have been no colon.
            let target = match function.as_str() {
                "" => module.clone(),
                function => format!("{module}:{function}"),
            };
            return Err(InvalidProgram::Call { target });
        }
        keywords.iter().try_for_each(|(name, value)| check_given(name, value))?;
        args.iter().try_for_each(|value| check_value("an argument", value))
    }
}

/// The place of a script, so that the program finds the modules beside it.
#[derive(Debug, Clone)]
pub struct Script {
    /// The folder, of which only modules are visible.
    pub folder: Arc<Mount>,
    /// The script's name in the folder.
    pub name: String,
}

/// The deepest nesting of a value; the other direction has the same
/// (`agent/hatchery/_describe.py`).
const MOST_DEPTH: usize = 100;

/// Checks that a program can be given the value under this name.
pub(super) fn check_given(name: &str, value: &Value) -> Result<(), InvalidProgram> {
    if !is_name(name) {
        return Err(InvalidProgram::Name { name: name.to_owned() });
    }
    check_value(name, value)
}

fn check_value(name: &str, value: &Value) -> Result<(), InvalidProgram> {
    match value {
        Value::Json(json) if !is_within(json, MOST_DEPTH) => {
            Err(InvalidProgram::Depth { name: name.to_owned() })
        }
        Value::Json(json) => number::check(json)
            .map_err(|problem| InvalidProgram::Number { name: name.to_owned(), problem }),
        _ => Ok(()),
    }
}

fn is_within(json: &serde_json::Value, depth: usize) -> bool {
    let is_within = |item| depth > 0 && is_within(item, depth - 1);
    match json {
        serde_json::Value::Array(items) => items.iter().all(is_within),
        serde_json::Value::Object(items) => items.values().all(is_within),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::program::Program;

    #[test]
    fn calls_name_a_module_and_a_function() {
        let call = |target| Program { entry: Entry::Call(Call::new(target)), ..Program::default() };
        for target in ["json:dumps", "os.path:join", "__main__:Class.method"] {
            assert!(call(target).check().is_ok(), "{target}");
        }
        for target in ["json", "json:", ":dumps", "json:dumps()", "a:b:c", "os..path:join", ""] {
            assert!(call(target).check().is_err(), "{target}");
        }
        let mut named = Call::new("json:dumps");
        named.keywords.insert("class".to_owned(), Value::from(1));
        assert!(Program { entry: Entry::Call(named), ..Program::default() }.check().is_err());
    }

    #[test]
    fn variables_have_names_and_an_end() {
        let with = |name: &str, value: serde_json::Value| Program {
            variables: [(name.to_owned(), value.into())].into(),
            ..Program::default()
        };
        let nested = |depth| (0..depth).fold(serde_json::json!(1), |value, _| [value].into());
        assert!(with("x", nested(100)).check().is_ok());
        assert!(with("x", nested(101)).check().is_err());
        assert!(with("x y", nested(0)).check().is_err());
    }
}
