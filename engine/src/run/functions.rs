//! Functions of the host that programs can call: their signatures and their calls.
//!
//! The engine runs none of them itself. It hands each call to its [`Callee`], which returns at once
//! and answers later from any thread. The guest's thread waits for answers in the host, where an
//! interrupt reaches it (`functions/calls.rs`).

use std::collections::BTreeMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::run::message::encoding::optional_text;
use crate::run::names::is_name;
use crate::run::value::marshal::Marshal;

pub use self::calls::Reply;
pub use self::error::HostError;
pub use self::recording::{Delivery, RecordedAnswer, RecordedCall, Recording};
pub use self::rooms::Room;

pub(crate) mod calls;
mod error;
mod recording;
mod rooms;
pub(crate) mod served;

/// Executes a host function.
pub trait Callee: Send + Sync + 'static {
    /// Accepts a call. Returns at once, since the guest's thread waits for it, and answers later
    /// through the call's reply, from any thread.
    fn call(&self, call: HostCall);
}

/// The id of a run, unique in the process. A run whose first call comes later has a larger number.
///
/// A run is one try of a job, so a retried job has several. It says which calls share a run's
/// limits. The ids of jobs are the scheduler's, and the engine doesn't know them.
#[derive(Debug, derive_more::Display, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[display("run-{_0}")]
pub struct RunId(pub u64);

/// One call of a host function.
#[derive(Debug)]
pub struct HostCall {
    /// The arguments by name. They come from the program and are untrusted.
    pub arguments: Map<String, Json>,
    /// The calling run.
    pub run: RunId,
    /// The call's share of its run's limits. Whatever works on the call keeps this until it has
    /// ended, and drops it before it answers.
    pub room: Room,
    /// Takes the answer. Dropped without one, the call fails.
    pub reply: Reply,
}

/// The description of a host function that programs see.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// Its name, a Python identifier.
    pub name: String,
    /// Its documentation; may be empty.
    pub doc: String,
    /// Its parameters, those with a default last. Without a list it accepts any arguments.
    pub parameters: Option<Vec<Parameter>>,
    /// The type of its result in Python syntax; may be empty.
    pub returns: String,
    /// Whether its arguments, defaults and results are in the form of
    /// [`Tagged`](crate::run::value::Tagged), with bytes in base64. Otherwise they are what JSON
    /// can hold.
    pub is_tagged: bool,
}

/// A parameter of a host function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name, a Python identifier.
    pub name: String,
    /// Its type in Python syntax; may be empty. It isn't checked.
    pub hint: String,
    /// The value that a call passes if it doesn't name the parameter.
    #[serde(with = "optional_text")]
    pub default: Option<Json>,
}

/// The description of a host function is invalid in Python.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidFunction {
    /// The name of a function or a parameter is invalid.
    #[error(
        "`{name}` can't be the name of a host function or a parameter: use an identifier of ASCII \
         letters, digits and `_` that isn't a keyword and doesn't begin with `__`"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Two functions, or two parameters of one, have the same name.
    #[error("`{name}` is defined twice: rename one of them")]
    Twice {
        /// The name.
        name: String,
    },
    /// A required parameter follows one with a default.
    #[error("`{name}` has no default and follows a parameter that has one")]
    Order {
        /// The parameter.
        name: String,
    },
}

/// The host functions of a run, in layers. Cheap to clone; clones share everything.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("{:?}", self.visible().keys())]
pub struct HostFunctions {
    top: Option<Arc<Layer>>,
}

/// Functions that were given together. They hide those of the same names below.
struct Layer {
    entries: BTreeMap<String, FunctionEntry>,
    below: HostFunctions,
}

type FunctionEntry = (Signature, Arc<dyn Callee>);

impl Drop for Layer {
    /// Drops one function after another. If what one of them owns panics then, that harms neither
    /// the others nor the thread. The thread may be a worker's.
    fn drop(&mut self) {
        for (name, entry) in mem::take(&mut self.entries) {
            if catch_unwind(AssertUnwindSafe(|| drop(entry))).is_err() {
                tracing::error!(parent: None, function = name, "dropping a host function panicked");
            }
        }
    }
}

impl HostFunctions {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.top.is_none()
    }

    /// Creates a set of functions.
    ///
    /// # Errors
    /// A description is invalid.
    pub fn new(
        functions: impl IntoIterator<Item = FunctionEntry>,
    ) -> Result<Self, InvalidFunction> {
        Self::default().with(functions)
    }

    /// Adds a layer: a function hides those that were there under its name.
    ///
    /// # Errors
    /// A description is invalid, or two of the new functions have the same name.
    pub fn with(
        &self,
        functions: impl IntoIterator<Item = FunctionEntry>,
    ) -> Result<Self, InvalidFunction> {
        let mut entries = BTreeMap::new();
        for (signature, callee) in functions {
            signature.check()?;
            let name = signature.name.clone();
            if entries.insert(name.clone(), (signature, callee)).is_some() {
                return Err(InvalidFunction::Twice { name });
            }
        }
        if entries.is_empty() {
            return Ok(self.clone());
        }
        Ok(Self { top: Some(Arc::new(Layer { entries, below: self.clone() })) })
    }

    /// The layers, the top one first.
    fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::successors(self.top.as_deref(), |layer| layer.below.top.as_deref())
    }

    /// Returns the descriptions of the functions that a program sees, by name.
    pub fn signatures(&self) -> impl Iterator<Item = &Signature> {
        self.visible().into_values().map(|(signature, _)| signature)
    }

    fn callee(&self, name: &str) -> Option<&Arc<dyn Callee>> {
        self.layers().find_map(|layer| layer.entries.get(name)).map(|(_, callee)| callee)
    }

    /// The functions that no other hides.
    fn visible(&self) -> BTreeMap<&str, &FunctionEntry> {
        let mut visible = BTreeMap::new();
        for (name, entry) in self.layers().flat_map(|layer| &layer.entries) {
            visible.entry(name.as_str()).or_insert(entry);
        }
        visible
    }

    /// Encodes the descriptions for the guest, in the format of `marshal`.
    pub(crate) fn table(&self) -> Vec<u8> {
        let visible = self.visible();
        let signatures = visible.values().map(|(signature, _)| signature.value());
        Marshal::List(signatures.collect()).encode()
    }
}

impl Signature {
    fn check(&self) -> Result<(), InvalidFunction> {
        check_name(&self.name)?;
        let parameters = self.parameters.as_deref().unwrap_or_default();
        for (at, Parameter { name, default, .. }) in parameters.iter().enumerate() {
            check_name(name)?;
            let before = &parameters[..at];
            if before.iter().any(|other| other.name == *name) {
                return Err(InvalidFunction::Twice { name: name.clone() });
            }
            if default.is_none() && before.iter().any(|other| other.default.is_some()) {
                return Err(InvalidFunction::Order { name: name.clone() });
            }
        }
        Ok(())
    }

    fn value(&self) -> Marshal<'_> {
        let Self { name, doc, parameters, returns, is_tagged } = self;
        let parameters = parameters
            .as_ref()
            .map(|parameters| Marshal::List(parameters.iter().map(Parameter::value).collect()));
        Marshal::dict([
            ("name", name.as_str().into()),
            ("doc", doc.as_str().into()),
            ("parameters", parameters.unwrap_or(Marshal::None)),
            ("returns", returns.as_str().into()),
            ("tagged", (*is_tagged).into()),
        ])
    }
}

impl Parameter {
    fn value(&self) -> Marshal<'_> {
        let Self { name, hint, default } = self;
        let value = default.as_ref().map_or(Marshal::None, Marshal::from);
        Marshal::List(vec![
            name.as_str().into(),
            hint.as_str().into(),
            default.is_some().into(),
            value,
        ])
    }
}

/// Checks that a name is a plain identifier. Names that begin with two underscores are Python's.
fn check_name(name: &str) -> Result<(), InvalidFunction> {
    let is_plain = is_name(name)
        && name.is_ascii()
        && !name.starts_with("__")
        && !name.starts_with("_hatchery");
    if is_plain { Ok(()) } else { Err(InvalidFunction::Name { name: name.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::run::value::tests::as_python_reads;

    struct Nothing;

    impl Callee for Nothing {
        fn call(&self, _call: HostCall) {}
    }

    fn parameter(name: &str, default: Option<Json>) -> Parameter {
        Parameter { name: name.to_owned(), hint: "int".to_owned(), default }
    }

    fn functions(signatures: &[Signature]) -> Result<HostFunctions, InvalidFunction> {
        let callee: Arc<dyn Callee> = Arc::new(Nothing);
        HostFunctions::new(signatures.iter().map(|one| (one.clone(), Arc::clone(&callee))))
    }

    fn signature(name: &str, parameters: Vec<Parameter>) -> Signature {
        Signature { name: name.to_owned(), parameters: Some(parameters), ..Signature::default() }
    }

    /// Counts, and panics when it is dropped.
    struct Panics(Arc<AtomicUsize>);

    impl Callee for Panics {
        fn call(&self, _call: HostCall) {}
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("this function is scripted to panic");
        }
    }

    #[test]
    fn functions_that_panic_when_they_are_dropped_harm_nobody() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let panics = |name| {
            let callee: Arc<dyn Callee> = Arc::new(Panics(Arc::clone(&dropped)));
            (signature(name, Vec::new()), callee)
        };
        let session = HostFunctions::new([panics("a"), panics("b")]).unwrap();
        let job = session.with([panics("b"), panics("c")]).unwrap();
        drop(session);
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        drop(job);
        assert_eq!(dropped.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn only_valid_python_signatures_are_accepted() {
        for name in ["", "1a", "a b", "a.b", "class", "\u{e4}", "__dict__", "_hatchery_call"] {
            assert!(functions(&[signature(name, Vec::new())]).is_err(), "{name:?}");
            let parameters = vec![parameter(name, None)];
            assert!(functions(&[signature("f", parameters)]).is_err(), "{name:?}");
        }
        let one = parameter("x", Some(Json::Null));
        for parameters in [vec![one.clone(), one.clone()], vec![one, parameter("y", None)]] {
            assert!(functions(&[signature("f", parameters)]).is_err());
        }
        let twice = [signature("f", Vec::new()), signature("f", Vec::new())];
        assert_eq!(functions(&twice).unwrap_err(), InvalidFunction::Twice { name: "f".to_owned() });
    }

    #[test]
    fn the_guest_gets_every_signature() {
        let price = Signature {
            doc: "The price.".to_owned(),
            returns: "float".to_owned(),
            ..signature("price", vec![parameter("item", None), parameter("n", Some(2.into()))])
        };
        let any = Signature { parameters: None, ..signature("any", Vec::new()) };
        let table = functions(&[price, any]).unwrap().table();
        let expected = serde_json::json!([
            {"name": "any", "doc": "", "parameters": null, "returns": "", "tagged": false},
            {"name": "price", "doc": "The price.", "returns": "float", "tagged": false,
             "parameters": [["item", "int", false, null], ["n", "int", true, 2]]},
        ]);
        assert_eq!(as_python_reads(&table), expected);
    }

    #[test]
    fn a_layer_hides_only_its_names_and_changes_nothing_below() {
        let named = |name: &str, doc: &str| {
            let callee: Arc<dyn Callee> = Arc::new(Nothing);
            (Signature { doc: doc.to_owned(), ..signature(name, Vec::new()) }, callee)
        };
        let seen = |functions: &HostFunctions| {
            let visible = functions.visible();
            let described = visible.values().map(|(signature, _)| {
                assert!(functions.callee(&signature.name).is_some());
                format!("{} {}", signature.name, signature.doc)
            });
            described.collect::<Vec<_>>()
        };
        let pool = HostFunctions::new([named("a", "pool"), named("b", "pool")]).unwrap();
        let session = pool.with([named("b", "session"), named("c", "session")]).unwrap();
        let job = session.with([named("c", "job")]).unwrap();
        assert_eq!(seen(&job), ["a pool", "b session", "c job"]);
        assert_eq!(seen(&session), ["a pool", "b session", "c session"]);
        assert_eq!(seen(&pool), ["a pool", "b pool"]);
        assert!(pool.callee("c").is_none());
        let twice = pool.with([named("c", ""), named("c", "")]);
        assert_eq!(twice.unwrap_err(), InvalidFunction::Twice { name: "c".to_owned() });
        // Nothing costs nothing.
        let same = pool.with([]).unwrap();
        assert!(Arc::ptr_eq(same.top.as_ref().unwrap(), pool.top.as_ref().unwrap()));
        assert!(HostFunctions::default().with([]).unwrap().is_empty());
    }
}
