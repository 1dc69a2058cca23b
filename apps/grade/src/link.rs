//! The exchange between a judge and a candidate: one request at a time, each with one answer, as text
//! that only the judge reads.
//!
//! Both ends are host functions. The candidate's may be called by the candidate itself, with anything:
//! that is an answer like any other. What it can't do is to be asked twice, to answer when nothing was
//! asked, or to learn anything but requests.

use std::sync::{Arc, Mutex, PoisonError};

use hatchery::{HostError, HostFunction};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot, watch};

/// The exchange of one candidate with its judge. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link(Arc<LinkShared>);

struct LinkShared {
    /// Where the answer to the open request goes.
    open: Mutex<Option<oneshot::Sender<String>>>,
    /// Requests, of which there is at most one; `None` once the judge has ended.
    requests: Mutex<Option<mpsc::Sender<String>>>,
    taken: tokio::sync::Mutex<mpsc::Receiver<String>>,
    /// Whether the candidate has ended.
    is_over: watch::Sender<bool>,
}

#[derive(Deserialize)]
struct Request {
    request: String,
}

#[derive(Deserialize)]
struct Answer {
    answer: Option<String>,
}

impl Link {
    pub(crate) fn new() -> Self {
        let (requests, taken) = mpsc::channel(1);
        Self(Arc::new(LinkShared {
            open: Mutex::new(None),
            requests: Mutex::new(Some(requests)),
            taken: tokio::sync::Mutex::new(taken),
            is_over: watch::Sender::new(false),
        }))
    }

    /// Returns the judge's function, which sends a request and returns its answer.
    pub(crate) fn ask(&self) -> HostFunction {
        let link = self.clone();
        HostFunction::future("hatchery_grade_ask", move |Request { request }| {
            let link = link.clone();
            async move { link.0.ask(request).await }
        })
        .parameter("request", "str")
    }

    /// Returns the candidate's function, which answers the open request, if there is an answer, and
    /// returns the next one; `None` if there will be none.
    pub(crate) fn next(&self) -> HostFunction {
        let link = self.clone();
        HostFunction::future("hatchery_grade_next", move |Answer { answer }| {
            let link = link.clone();
            async move { link.0.next(answer).await }
        })
        .parameter("answer", "str | None")
    }

    /// Says that the candidate has ended, so that nothing waits for it.
    pub(crate) fn candidate_ended(&self) {
        self.0.is_over.send_replace(true);
    }

    /// Says that the judge has ended, so that the candidate gets no more requests.
    pub(crate) fn judge_ended(&self) {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl LinkShared {
    async fn ask(&self, request: String) -> Result<String, HostError> {
        let gone = || HostError::new("CandidateGone", "the candidate's interpreter has ended");
        let mut is_over = self.is_over.subscribe();
        let (sender, answer) = oneshot::channel();
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let exchange = async {
            requests?.send(request).await.ok()?;
            answer.await.ok()
        };
        tokio::select! {
            biased;
            answer = exchange => answer.ok_or_else(gone),
            _ = is_over.wait_for(|is_over| *is_over) => Err(gone()),
        }
    }

    async fn next(&self, answer: Option<String>) -> Result<Option<String>, HostError> {
        if let Some(answer) = answer {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
            let open = open.ok_or_else(|| HostError::new("RuntimeError", "nothing was asked"))?;
            // The judge may have ended meanwhile.
            let _ = open.send(answer);
        }
        Ok(self.taken.lock().await.recv().await)
    }
}
