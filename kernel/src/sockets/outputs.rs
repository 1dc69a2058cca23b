//! The socket to which front ends subscribe for outputs.
//!
//! Nothing is lost by reading slowly: the socket waits for its readers, and the program's output
//! waits in the job's transcript, within the job's limits.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::no_parent;
use crate::message::{Message, Object, Writer};
use crate::zmtp::{Listener, Publisher, Terms};

/// How long each request waits for somebody who sees its outputs, until somebody has subscribed.
const LONGEST_WELCOME: Duration = Duration::from_secs(1);

/// Publishes outputs and status. Clones share the socket.
#[derive(Debug, Clone)]
pub(crate) struct IoPub {
    publisher: Publisher,
    writer: Writer,
}

impl IoPub {
    /// Welcomes subscribers in a task.
    pub(super) fn start(
        listener: Listener,
        terms: Terms,
        writer: Writer,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let welcoming = writer.clone();
        let welcome = move |topic: &Bytes| {
            let content = json!({ "subscription": String::from_utf8_lossy(topic) });
            welcoming.write(std::slice::from_ref(topic), "iopub_welcome", &no_parent(), &content)
        };
        Self { publisher: Publisher::start(listener, terms, tasks, welcome), writer }
    }

    /// Publishes a message about a request.
    pub(crate) async fn publish(&self, request: &Message, kind: &str, content: &Value) {
        let topic = Bytes::from(format!("kernel.{kind}"));
        self.send(topic, kind, &request.header, content).await;
    }

    /// Publishes a status that belongs to no request.
    pub(crate) async fn announce(&self, state: &str) {
        let content = json!({ "execution_state": state });
        self.send(Bytes::from_static(b"kernel.status"), "status", &no_parent(), &content).await;
    }

    /// Waits a while for the first subscriber. Front ends connect all sockets at once, and a request
    /// may come before the subscription.
    pub(crate) async fn wait_for_subscriber(&mut self) {
        let _ = timeout(LONGEST_WELCOME, self.publisher.subscribed()).await;
    }

    async fn send(&self, topic: Bytes, kind: &str, parent: &Object, content: &Value) {
        self.publisher.publish(self.writer.write(&[topic], kind, parent, content)).await;
    }
}
