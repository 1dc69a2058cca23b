//! Errors keep their causes and leave them to the code that prints the chain.
//!
//! Reads every production type that derives `Error`. The rule, as `engine/src/error.rs` states it:
//! a field that holds an error is the `source()`, and the message doesn't print it.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Fields, Ident, Item, Meta, Type};

/// Variants that print an error which they hold. wasmer's error for a trap would list the frames of
/// the guest. So only its message is taken.
const PRINTING: [&str; 1] = ["engine/src/interpreter/judge.rs: TurnFailure::Trap"];

#[test]
fn errors_keep_their_causes_and_do_not_print_them() {
    let mut errors = ErrorTypes::default();
    for folder in [
        "serving/wire/src",
        "engine/src",
        "pool/src",
        "scheduler/src",
        "src",
        "apps/batch/src",
        "apps/grade/src",
        "apps/jupyter/src",
        "apps/notebook/src",
        "serving/cluster/src",
        "serving/serve/src",
        "cli/src",
    ] {
        for (name, text) in sources(folder) {
            errors.read(&name, &text);
        }
    }
    assert!(errors.names.len() > 25, "{:?}", errors.names);
    let is_excused =
        |violation: &String| PRINTING.iter().any(|case| violation.starts_with(&format!("{case}:")));
    let violations: Vec<String> =
        errors.violations().into_iter().filter(|violation| !is_excused(violation)).collect();
    assert!(violations.is_empty(), "see the rule in engine/src/error.rs: {violations:#?}");
    let excused = |case: &&&str| errors.cases.iter().any(|Case { name, .. }| name == **case);
    assert_eq!(PRINTING.iter().filter(excused).count(), PRINTING.len(), "one is gone");
}

#[test]
fn an_error_that_hides_or_repeats_its_cause_is_found() {
    let mut errors = ErrorTypes::default();
    errors.read(
        "a.rs",
        r#"
        #[derive(Debug, thiserror::Error)]
        enum Outer {
            #[error("lost: {0}")]
            Repeated(#[from] Inner),
            #[error("lost: {}", .0.message())]
            Argument(#[source] Inner),
            #[error("lost")]
            Hidden(io::Error),
            #[error("lost: {cause:?}")]
            Named { #[source] cause: Option<Arc<dyn Error>> },
            #[error("lost ({})", advice(cause))]
            Advised { #[source] cause: io::Error },
            #[error("lost at {0}")]
            Kept(u64, #[source] Inner),
            #[error(transparent)]
            Passed(#[from] Inner),
        }
        #[derive(Debug, thiserror::Error)]
        #[error("it is gone: {text}")]
        struct Inner { text: String }
        "#,
    );
    let expected = [
        "a.rs: Outer::Repeated: the message prints `0`",
        "a.rs: Outer::Argument: the message prints `0`",
        "a.rs: Outer::Hidden: `0` isn't the source",
        "a.rs: Outer::Named: the message prints `cause`",
    ];
    assert_eq!(errors.violations(), expected);
}

/// A type that derives `Error`, or a variant of one.
struct Case {
    /// The file, and the name in it.
    name: String,
    /// The tokens of its `#[error(..)]`.
    message: Vec<String>,
    fields: Vec<CaseField>,
}

struct CaseField {
    /// The name, or the index.
    name: String,
    /// Whether it is the `source()`.
    is_source: bool,
    /// Every name in its type.
    types: BTreeSet<String>,
}

/// Collects the types that derive `Error`, and their cases.
#[derive(Default)]
struct ErrorTypes {
    file: String,
    names: BTreeSet<String>,
    cases: Vec<Case>,
}

impl ErrorTypes {
    fn read(&mut self, file: &str, text: &str) {
        file.clone_into(&mut self.file);
        self.visit_file(&syn::parse_file(text).unwrap());
    }

    fn keep(&mut self, name: String, attributes: &[Attribute], fields: &Fields) {
        let message = attributes.iter().find_map(|attribute| match &attribute.meta {
            Meta::List(list) if list.path.is_ident("error") => {
                Some(list.tokens.clone().into_iter().map(|token| token.to_string()).collect())
            }
            _ => None,
        });
        let field = |(index, field): (usize, &syn::Field)| {
            let name = field.ident.as_ref().map_or(index.to_string(), Ident::to_string);
            let is_marked = field.attrs.iter().any(|attribute| {
                ["source", "from"].iter().any(|mark| attribute.path().is_ident(mark))
            });
            let is_source = is_marked || name == "source";
            CaseField { is_source, types: names_in(&field.ty), name }
        };
        let fields = fields.iter().enumerate().map(field).collect();
        let name = format!("{}: {name}", self.file);
        self.cases.push(Case { name, message: message.unwrap_or_default(), fields });
    }

    /// What breaks the rule of `engine/src/error.rs`: a field that holds an error is the `source()`
    /// and isn't in the message.
    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for Case { name, message, fields } in &self.cases {
            if message.first().is_some_and(|first| first == "transparent") {
                continue;
            }
            for field in fields.iter().filter(|field| self.is_cause(field)) {
                if !field.is_source {
                    violations.push(format!("{name}: `{}` isn't the source", field.name));
                }
                if prints(message, &field.name) {
                    violations.push(format!("{name}: the message prints `{}`", field.name));
                }
            }
        }
        violations
    }

    fn is_cause(&self, field: &CaseField) -> bool {
        let is_error =
            |name: &String| name.ends_with("Error") || name == "Cause" || self.names.contains(name);
        field.is_source || field.name == "cause" || field.types.iter().any(is_error)
    }
}

impl<'ast> Visit<'ast> for ErrorTypes {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Mod(inner) if is_for_tests(&inner.attrs) => return,
            Item::Enum(item) => (&item.attrs, &item.ident),
            Item::Struct(item) => (&item.attrs, &item.ident),
            item => return visit::visit_item(self, item),
        };
        let derives_error = attributes.iter().any(|attribute| match &attribute.meta {
            Meta::List(list) if list.path.is_ident("derive") => {
                list.tokens.clone().into_iter().any(|token| token.to_string() == "Error")
            }
            _ => false,
        });
        if !derives_error {
            return;
        }
        self.names.insert(name.to_string());
        match item {
            Item::Enum(item) => item.variants.iter().for_each(|variant| {
                self.keep(format!("{name}::{}", variant.ident), &variant.attrs, &variant.fields);
            }),
            Item::Struct(item) => self.keep(name.to_string(), &item.attrs, &item.fields),
            _ => {}
        }
    }
}

/// Every name in a type.
fn names_in(ty: &Type) -> BTreeSet<String> {
    struct Names(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_ident(&mut self, name: &'ast Ident) {
            self.0.insert(name.to_string());
        }
    }
    let mut names = Names(BTreeSet::new());
    names.visit_type(ty);
    names.0
}

/// Whether the tokens of `#[error(..)]` print this field: in braces, or as what an argument begins
/// with. A function of the field, which advises what to do, doesn't.
fn prints(message: &[String], field: &str) -> bool {
    let mut parts = message.split(|token| token == ",");
    let format = parts.next().into_iter().flatten().next().map_or("", String::as_str);
    let is_in_braces = ["}", ":"].iter().any(|end| format.contains(&format!("{{{field}{end}")));
    let is_argument = |part: &[String]| match part {
        [dot, first, ..] if dot == "." => first == field,
        [first, ..] => first == field,
        [] => false,
    };
    is_in_braces || parts.any(is_argument)
}

/// The Rust files of a folder, with their paths from the root.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join(folder)];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                sources.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    sources
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}
