//! Host functions: closures that programs can call, with the tokio runtime that runs them.
//!
//! A plain closure runs on a thread for blocking work, a future as a task, so that the program's
//! thread only ever waits, and can be interrupted there.

use std::fmt::{Debug, Formatter};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use engine::{Callee, HostCall, HostError, HostFunctions, Parameter, Signature};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::error::Error;

type Arguments = Map<String, Value>;
type Answer = Result<Value, HostError>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A function of the host that programs can call.
///
/// Its arguments are a type that serde reads, most often a struct with a field for each parameter,
/// and its result one that serde writes. In Python, `host.price(item="chair")` waits for the result
/// and `await host.price.aio(item="chair")` lets other tasks run meanwhile, so that
/// `asyncio.gather` has many calls under way at once; `help(host.price)` shows parameters and
/// documentation.
///
/// An error that [`HostError::new`] makes raises an exception of its type; of any other error, and of
/// a panic, the program learns only that the function failed. A call whose program is interrupted,
/// cancelled or ended is dropped: a future at its next `await`, a plain closure if no thread has taken
/// it yet. One that has begun runs to its end unheard.
///
/// ```
/// use hatchery::{HostError, HostFunction};
///
/// #[derive(serde::Deserialize)]
/// struct Price {
///     item: String,
///     count: u32,
/// }
///
/// let price = HostFunction::sync("price", |Price { item, count }| match item.as_str() {
///     "chair" => Ok(87.5 * f64::from(count)),
///     _ => Err(HostError::new("KeyError", item)),
/// })
/// .doc("What so many of an item cost.")
/// .parameter("item", "str")
/// .parameter_with_default("count", "int", 1)
/// .returns("float");
/// # drop(price);
/// ```
#[derive(Clone)]
#[must_use = "a function is there once a builder has it"]
pub struct HostFunction {
    signature: Signature,
    body: Body,
    timeout: Option<Duration>,
}

#[derive(Clone)]
enum Body {
    Plain(Arc<dyn Fn(Arguments) -> Answer + Send + Sync>),
    Future(Arc<dyn Fn(Arguments) -> Answering + Send + Sync>),
}

impl Debug for HostFunction {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("HostFunction")
            .field("signature", &self.signature)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl HostFunction {
    /// A function that does its work on a thread, which it may block.
    pub fn sync<A, R, E, F>(name: impl Into<String>, work: F) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        E: Into<HostError>,
        F: Fn(A) -> Result<R, E> + Send + Sync + 'static,
    {
        let work = move |arguments| written(work(read(arguments)?));
        Self::new(name.into(), Body::Plain(Arc::new(work)))
    }

    /// A function that does its work in a future.
    pub fn future<A, R, E, F, W>(name: impl Into<String>, work: F) -> Self
    where
        A: DeserializeOwned + Send,
        R: Serialize,
        E: Into<HostError>,
        F: Fn(A) -> W + Send + Sync + 'static,
        W: Future<Output = Result<R, E>> + Send + 'static,
    {
        let work = move |arguments| -> Answering {
            match read(arguments).map(&work) {
                Ok(work) => Box::pin(async move { written(work.await) }),
                Err(error) => Box::pin(std::future::ready(Err(error))),
            }
        };
        Self::new(name.into(), Body::Future(Arc::new(work)))
    }

    fn new(name: String, body: Body) -> Self {
        Self { signature: Signature { name, ..Signature::default() }, body, timeout: None }
    }

    /// Documents it, for `help` and `__doc__`.
    pub fn doc(mut self, text: impl Into<String>) -> Self {
        self.signature.doc = text.into();
        self
    }

    /// Adds a parameter, with its type in Python's words, such as `list[str]`, for whoever reads the
    /// signature. A function without any takes whatever named arguments a call has.
    pub fn parameter(self, name: impl Into<String>, hint: impl Into<String>) -> Self {
        self.add(Parameter { name: name.into(), hint: hint.into(), default: None })
    }

    /// Adds a parameter that calls may leave out.
    pub fn parameter_with_default(
        self,
        name: impl Into<String>,
        hint: impl Into<String>,
        default: impl Into<Value>,
    ) -> Self {
        let default = Some(default.into());
        self.add(Parameter { name: name.into(), hint: hint.into(), default })
    }

    /// Says that it takes no arguments. Its closure is given `()`.
    pub fn no_parameters(mut self) -> Self {
        self.signature.parameters = Some(Vec::new());
        self
    }

    /// Says the type of its result in Python's words.
    pub fn returns(mut self, hint: impl Into<String>) -> Self {
        self.signature.returns = hint.into();
        self
    }

    /// Ends calls that take longer, with `TimeoutError` in Python. Default: they may take as long as
    /// their job.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    fn add(mut self, parameter: Parameter) -> Self {
        self.signature.parameters.get_or_insert_default().push(parameter);
        self
    }
}

/// Has functions run on the runtime that this is called on.
pub(crate) fn bind(functions: Vec<HostFunction>) -> Result<HostFunctions, Error> {
    let bound = functions.into_iter().map(|HostFunction { signature, body, timeout }| {
        let callee: Arc<dyn Callee> = Arc::new(Bound { body, timeout, runtime: Handle::current() });
        (signature, callee)
    });
    Ok(HostFunctions::new(bound)?)
}

/// A function with the runtime that it runs on.
struct Bound {
    body: Body,
    timeout: Option<Duration>,
    runtime: Handle,
}

impl Callee for Bound {
    fn call(&self, call: HostCall) {
        let HostCall { arguments, reply } = call;
        let cancellation = reply.cancellation();
        let (body, timeout) = (self.body.clone(), self.timeout);
        let task = self.runtime.spawn(async move {
            let work = async {
                match body {
                    Body::Plain(work) => on_a_thread(move || work(arguments)).await,
                    Body::Future(work) => work(arguments).await,
                }
            };
            let answer = match timeout {
                None => work.await,
                Some(time) => tokio::time::timeout(time, work).await.unwrap_or_else(|_| {
                    let text = format!("the host took longer than {time:?}");
                    Err(HostError::new("TimeoutError", text))
                }),
            };
            reply.answer(answer);
        });
        cancellation.on_cancel(move || task.abort());
    }
}

async fn on_a_thread(work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    let task = tokio::task::spawn_blocking(work);
    let _given_up = AbortOnDrop(task.abort_handle());
    match task.await {
        Ok(answer) => answer,
        Err(error) => Err(HostError::private(error.to_string())),
    }
}

/// Takes work out of the queue for threads that nobody waits for any more. A program could else fill
/// that with calls that it cancels, for other programs to wait behind.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The arguments as the function wants them. What serde says of wrong ones is about what the program
/// passed, so the program may know.
fn read<A: DeserializeOwned>(arguments: Arguments) -> Result<A, HostError> {
    let is_empty = arguments.is_empty();
    serde_json::from_value(Value::Object(arguments))
        // So that `()` is no arguments.
        .or_else(|error| match is_empty {
            true => serde_json::from_value(Value::Null).map_err(|_| error),
            false => Err(error),
        })
        .map_err(|error| HostError::new("TypeError", format!("wrong arguments: {error}")))
}

fn written<R: Serialize, E: Into<HostError>>(result: Result<R, E>) -> Answer {
    Ok(serde_json::to_value(result.map_err(Into::into)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Pair {
        left: i64,
        #[serde(default)]
        right: i64,
    }

    fn arguments(value: Value) -> Arguments {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn arguments_become_what_the_function_takes() {
        let left = arguments(json!({"left": 1}));
        assert_eq!(read::<Pair>(left), Ok(Pair { left: 1, right: 0 }));
        assert_eq!(read::<()>(Arguments::new()), Ok(()));
        assert_eq!(read::<Value>(Arguments::new()), Ok(json!({})));
        let error = read::<Pair>(Arguments::new()).unwrap_err();
        assert_eq!(error.message(), "wrong arguments: missing field `left`");
        assert!(read::<()>(arguments(json!({"left": 1}))).is_err());
        assert!(read::<Pair>(arguments(json!({"left": "x"}))).is_err());
    }

    #[tokio::test]
    async fn names_are_checked_as_functions_are_bound() {
        let named = |name: &str| HostFunction::sync(name, |(): ()| Ok::<_, HostError>(1));
        assert!(bind(vec![named("a"), named("b")]).is_ok());
        for names in [["a", "a"], ["a", "class"], ["a", "b c"]] {
            assert!(matches!(bind(names.map(named).to_vec()), Err(Error::Function(_))));
        }
    }

    #[test]
    fn a_closure_that_is_given_up_before_it_has_a_thread_never_begins() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let has_begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&has_begun);
        runtime.unwrap().block_on(async {
            let first = tokio::spawn(on_a_thread(move || {
                let _ = released.recv();
                Ok(json!(1))
            }));
            let second = tokio::spawn(on_a_thread(move || {
                begins.store(true, Ordering::Relaxed);
                Ok(json!(2))
            }));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            second.abort();
            assert!(second.await.unwrap_err().is_cancelled());
            release.send(()).unwrap();
            assert_eq!(first.await.unwrap(), Ok(json!(1)));
            // It would have come before this one.
            assert_eq!(on_a_thread(|| Ok(json!(3))).await, Ok(json!(3)));
        });
        assert!(!has_begun.load(Ordering::Relaxed));
    }
}
