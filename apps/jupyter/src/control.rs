//! Answers the requests of the control socket, also while a cell runs.

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::error::KernelError;
use crate::message::Message;
use crate::shell::status;
use crate::sockets::{Channels, IoPub};

/// The control socket of one kernel.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) channels: Channels,
    pub(crate) iopub: IoPub,
    /// The reply to requests for information.
    pub(crate) info: Value,
    /// Counts the requests to interrupt.
    pub(crate) interrupts: watch::Sender<u64>,
}

impl Control {
    /// Answers requests until one asks the kernel to end.
    ///
    /// # Errors
    /// The socket ended.
    pub(crate) async fn serve(mut self) -> Result<(), KernelError> {
        while let Some(request) = self.channels.requests.recv().await {
            // First of all: what is published waits behind the outputs of the cell.
            if request.kind() == "interrupt_request" {
                self.interrupts.send_modify(|count| *count += 1);
            }
            status(&self.iopub, &request, "busy").await;
            let ends = self.answer(&request).await;
            status(&self.iopub, &request, "idle").await;
            if ends {
                return Ok(());
            }
        }
        Err(KernelError::Ended)
    }

    /// Answers a request, and returns whether the kernel is to end.
    async fn answer(&mut self, request: &Message) -> bool {
        let (kind, content) = match request.kind() {
            "interrupt_request" => ("interrupt_reply", json!({ "status": "ok" })),
            "shutdown_request" => {
                let restart = request.flag("restart", false);
                let content = json!({ "status": "ok", "restart": restart });
                self.iopub.publish(request, "shutdown_reply", &content).await;
                ("shutdown_reply", content)
            }
            "kernel_info_request" => ("kernel_info_reply", self.info.clone()),
            "debug_request" => {
                let content = json!({
                    "status": "error",
                    "ename": "NotImplementedError",
                    "evalue": "this kernel has no debugger",
                    "traceback": [],
                });
                ("debug_reply", content)
            }
            other => {
                tracing::debug!(kind = other, "a request was left unanswered");
                return false;
            }
        };
        self.channels.replies.send(request, kind, &content).await;
        kind == "shutdown_reply"
    }
}
