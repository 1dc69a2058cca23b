//! Host functions: closures that programs can call, run on tokio.
//!
//! Plain closures run on blocking threads and futures as tasks. The program's thread only waits,
//! and can be interrupted.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use engine::{Callee, HostCall, HostError, HostFunctions, Parameter, Room, RunId, Signature};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Error;

/// How many plain functions of a pool run at once, abandoned ones included. It is an eighth of the
/// blocking threads of tokio's default runtime, since the pool and the embedding program need some
/// too.
const PLAIN_AT_ONCE: usize = 64;

/// How many of them one job may run at once, so that no job makes all others wait.
const PLAIN_AT_ONCE_OF_A_JOB: usize = PLAIN_AT_ONCE / 2;

type Arguments = Map<String, Value>;
type Answer = Result<Value, HostError>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A function of the host that programs can call.
///
/// It belongs to all programs of a pool ([`Builder::function`](crate::Builder::function)), to those
/// of a session ([`Session::function`](crate::Session::function)) or to one job
/// ([`Job::function`](crate::Job::function)). Of functions with the same name the job's is called,
/// else the session's, else the pool's. Two of one pool, session or job are an error.
///
/// serde deserializes its arguments, usually into a struct with a field for each parameter, and
/// serializes its result. In Python, `host.price(item="chair")` waits for the result. `await
/// host.price.aio(item="chair")` lets other tasks run meanwhile, so `asyncio.gather` can have many
/// calls in flight. `help(host.price)` shows parameters and documentation.
///
/// An error made by [`HostError::new`] raises an exception of its type. Of any other error, and of
/// a panic, the program learns only that the function failed. If the program is interrupted,
/// cancelled or ended, its calls are dropped: a future at its next `await`, a plain closure only if
/// no thread has started it. A plain closure that has started runs to its end without a receiver.
/// Until then it counts towards [`Limits::functions_in_flight`](crate::Limits::functions_in_flight)
/// and the limit on arguments. So a plain closure that may block for long should have a timeout.
///
/// Plain closures run on the blocking threads of the runtime on which the pool was started. At most
/// 64 of a pool and 32 of one job run at once. Further calls wait in order of arrival. Futures have
/// no such bound.
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
/// .doc("Returns the price of `count` items.")
/// .parameter("item", "str")
/// .parameter_with_default("count", "int", 1)
/// .returns("float");
/// # drop(price);
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("HostFunction({signature:?}, {timeout:?})")]
#[must_use = "a function has no effect until it is lent to a pool, a session or a job"]
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

impl HostFunction {
    /// Creates a function that runs on a blocking thread. A pool runs 64 at once. A function that
    /// waits for a job of the same pool, which calls further functions, may deadlock. Use
    /// [`future`](Self::future) for that.
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

    /// Creates a function that runs as a future.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use hatchery::{HostError, HostFunction};
    ///
    /// let pause = HostFunction::future("pause", |()| async {
    ///     tokio::time::sleep(Duration::from_millis(10)).await;
    ///     Ok::<_, HostError>("done")
    /// })
    /// .no_parameters();
    /// ```
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

    /// Sets its documentation, for `help` and `__doc__`.
    pub fn doc(mut self, text: impl Into<String>) -> Self {
        self.signature.doc = text.into();
        self
    }

    /// Adds a parameter with its type in Python's notation, such as `list[str]`, for readers of the
    /// signature. A function without parameters accepts any keyword arguments.
    pub fn parameter(self, name: impl Into<String>, hint: impl Into<String>) -> Self {
        self.add(Parameter { name: name.into(), hint: hint.into(), default: None })
    }

    /// Adds an optional parameter.
    pub fn parameter_with_default(
        self,
        name: impl Into<String>,
        hint: impl Into<String>,
        default: impl Into<Value>,
    ) -> Self {
        let default = Some(default.into());
        self.add(Parameter { name: name.into(), hint: hint.into(), default })
    }

    /// Declares that it takes no arguments. Its closure is given `()`.
    pub fn no_parameters(mut self) -> Self {
        self.signature.parameters = Some(Vec::new());
        self
    }

    /// Sets the type of its result in Python's notation.
    pub fn returns(mut self, hint: impl Into<String>) -> Self {
        self.signature.returns = hint.into();
        self
    }

    /// Also passes what JSON can't hold: arguments, defaults and results have the form of
    /// [`Tagged`](crate::value::Tagged), with bytes in base64.
    pub fn tagged(mut self) -> Self {
        self.signature.is_tagged = true;
        self
    }

    /// Ends calls that take longer, with `TimeoutError` in Python; waiting for a thread counts. A
    /// plain closure that has started runs on unheard. Default: none, so a call may take as long as
    /// its job.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use hatchery::{HostError, HostFunction};
    ///
    /// let version = HostFunction::sync("version", |()| Ok::<_, HostError>("1.0"))
    ///     .no_parameters()
    ///     .timeout(Duration::from_secs(1));
    /// ```
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    fn add(mut self, parameter: Parameter) -> Self {
        self.signature.parameters.get_or_insert_default().push(parameter);
        self
    }
}

/// The functions that a pool, a session or a job lends to programs, bound to what runs them. Cheap
/// to clone.
#[derive(Debug, Clone)]
pub(crate) struct ExposedFunctions {
    pub(crate) functions: HostFunctions,
    runtime: Handle,
    threads: Arc<Threads>,
}

impl ExposedFunctions {
    /// Lends the functions of a pool, which run on the current runtime.
    pub(crate) fn by_pool(functions: Vec<HostFunction>) -> Result<Self, Error> {
        let threads = Arc::new(Threads::new(PLAIN_AT_ONCE, PLAIN_AT_ONCE_OF_A_JOB));
        let none = HostFunctions::default();
        Self { functions: none, runtime: Handle::current(), threads }.with(functions)
    }

    /// Lends these as well. They hide functions of the same names, and share the pool's runtime and
    /// its threads.
    pub(crate) fn with(
        &self,
        functions: impl IntoIterator<Item = HostFunction>,
    ) -> Result<Self, Error> {
        let bound = functions.into_iter().map(|HostFunction { signature, body, timeout }| {
            let (runtime, threads) = (self.runtime.clone(), Arc::clone(&self.threads));
            let callee: Arc<dyn Callee> = Arc::new(Bound { body, timeout, runtime, threads });
            (signature, callee)
        });
        Ok(Self { functions: self.functions.with(bound)?, ..self.clone() })
    }
}

/// A function bound to the runtime that it runs on.
struct Bound {
    body: Body,
    timeout: Option<Duration>,
    runtime: Handle,
    threads: Arc<Threads>,
}

impl Callee for Bound {
    fn call(&self, call: HostCall) {
        let HostCall { arguments, run, room, reply } = call;
        let cancellation = reply.cancellation();
        let (body, timeout) = (self.body.clone(), self.timeout);
        let threads = Arc::clone(&self.threads);
        let task = self.runtime.spawn(async move {
            let work = async move {
                match body {
                    Body::Plain(work) => {
                        let permit = threads.permit(run).await;
                        on_a_thread((permit, room), move || work(arguments)).await
                    }
                    Body::Future(work) => in_room(room, work(arguments)).await,
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

/// The threads that plain functions of a pool, its sessions and its jobs may use.
#[derive(Debug)]
struct Threads {
    all: Arc<Semaphore>,
    of_a_run: usize,
    /// The share of each run that uses threads or waits for them.
    shares: Mutex<BTreeMap<RunId, Weak<Semaphore>>>,
}

/// The permit to use a thread: one of the run's share, and one of all.
type Permit = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl Threads {
    fn new(count: usize, of_a_run: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(count)), of_a_run, shares: Mutex::default() }
    }

    /// Waits for the permit to use a thread for a run. It must be held until the work has ended.
    async fn permit(&self, run: RunId) -> Permit {
        // The run's share comes first: calls beyond it don't queue with those of other runs.
        let own = permit_of(self.share(run)).await;
        (own, permit_of(Arc::clone(&self.all)).await)
    }

    fn share(&self, run: RunId) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&run).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.of_a_run));
        shares.insert(run, Arc::downgrade(&share));
        share
    }
}

async fn permit_of(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("the semaphore is never closed")
}

/// Runs work on a blocking thread. `held` is dropped once the work has ended or has left the queue.
/// Cancelling a call doesn't end work that has started.
async fn on_a_thread<T: Send + 'static>(
    held: T,
    work: impl FnOnce() -> Answer + Send + 'static,
) -> Answer {
    let task = tokio::task::spawn_blocking(move || {
        let _held = held;
        work()
    });
    // Takes abandoned work out of the queue for threads. Otherwise a program could fill that queue with
    // calls that it cancels, and other programs would wait behind them.
    let _abort_on_drop = scopeguard::guard(task.abort_handle(), |task| task.abort());
    match task.await {
        Ok(answer) => answer,
        Err(error) => Err(error.into()),
    }
}

/// Holds room until a future has ended or was dropped.
async fn in_room(_room: Room, work: Answering) -> Answer {
    work.await
}

/// Deserializes the arguments. An error of serde is about what the program passed, so the program
/// may see it.
fn read<A: DeserializeOwned>(arguments: Arguments) -> Result<A, HostError> {
    let is_empty = arguments.is_empty();
    serde_json::from_value(Value::Object(arguments))
        // `()` accepts no arguments.
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
    fn arguments_deserialize_to_the_type_of_the_function() {
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
        let pool = ExposedFunctions::by_pool(vec![named("a"), named("b")]).unwrap();
        for names in [["a", "a"], ["a", "class"], ["a", "b c"]] {
            let by_pool = ExposedFunctions::by_pool(names.map(named).to_vec());
            assert!(matches!(by_pool, Err(Error::Function(_))));
            assert!(matches!(pool.with(names.map(named)), Err(Error::Function(_))));
        }
        let more = pool.with([named("b")]).unwrap();
        assert!(Arc::ptr_eq(&more.threads, &pool.threads), "one bound on threads for all");
    }

    /// Polls once, and returns whether the future is pending.
    async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = std::future::ready(()) => true,
        }
    }

    #[tokio::test]
    async fn a_run_has_its_share_of_threads_and_no_more() {
        let threads = Threads::new(3, 2);
        let (first, _second) = (threads.permit(RunId(1)).await, threads.permit(RunId(1)).await);
        let mut third = Box::pin(threads.permit(RunId(1)));
        assert!(is_pending(&mut third).await);
        let other = threads.permit(RunId(2)).await;
        let mut late = Box::pin(threads.permit(RunId(3)));
        assert!(is_pending(&mut late).await, "all are taken");
        drop(other);
        let late = late.await;
        assert!(is_pending(&mut third).await, "its run has two already");
        drop(first);
        let third = third.await;
        drop((third, late));
        // Abandoned waits leave nothing behind.
        let abandoned = [1, 1, 2, 3].map(|run| Box::pin(threads.permit(RunId(run))));
        for mut wait in abandoned {
            is_pending(&mut wait).await;
        }
        assert_eq!(threads.all.available_permits(), 2);
        let _fourth = threads.permit(RunId(4)).await;
        assert_eq!(threads.shares.lock().unwrap().len(), 2, "those of runs 1 and 4");
    }

    #[tokio::test]
    async fn many_calls_of_one_run_do_not_delay_the_first_call_of_another() {
        let threads = Threads::new(2, 1);
        let (first, _second) = (threads.permit(RunId(1)).await, threads.permit(RunId(2)).await);
        let mut many: Vec<_> = (0..100).map(|_| Box::pin(threads.permit(RunId(1)))).collect();
        for one in &mut many {
            assert!(is_pending(one).await);
        }
        let mut third = Box::pin(threads.permit(RunId(3)));
        assert!(is_pending(&mut third).await);
        drop(first);
        assert!(is_pending(&mut many[0]).await);
        let third = third.await;
        assert!(is_pending(&mut many[0]).await);
        drop(third);
        drop(many.swap_remove(0).await);
    }

    #[tokio::test]
    async fn a_closure_holds_its_room_until_it_ends_even_if_it_is_abandoned() {
        let (begins, begun) = tokio::sync::oneshot::channel();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let (held, mut dropped) = tokio::sync::oneshot::channel::<()>();
        let call = tokio::spawn(on_a_thread(held, move || {
            let _ = begins.send(());
            let _ = released.recv();
            panic!("on purpose");
        }));
        begun.await.unwrap();
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        assert!(is_pending(&mut dropped).await);
        release.send(()).unwrap();
        assert!(dropped.await.is_err(), "nothing was sent");
    }

    #[test]
    fn a_closure_that_is_abandoned_before_it_has_a_thread_never_starts() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let has_begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&has_begun);
        runtime.unwrap().block_on(async {
            let first = tokio::spawn(on_a_thread((), move || {
                let _ = released.recv();
                Ok(json!(1))
            }));
            let second = tokio::spawn(on_a_thread((), move || {
                begins.store(true, Ordering::Relaxed);
                Ok(json!(2))
            }));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            second.abort();
            assert!(second.await.unwrap_err().is_cancelled());
            release.send(()).unwrap();
            assert_eq!(first.await.unwrap(), Ok(json!(1)));
            // The second would have run before this one.
            assert_eq!(on_a_thread((), || Ok(json!(3))).await, Ok(json!(3)));
        });
        assert!(!has_begun.load(Ordering::Relaxed));
    }
}
