//! What the kernel says about itself: `kernel_info_request`.

use serde_json::{Value, json};

use crate::message::PROTOCOL;

/// What a front end learns of the kernel.
#[derive(Debug, Clone)]
pub(crate) struct Info {
    /// The version of Python in the sandbox.
    python: String,
}

impl Info {
    pub(crate) fn new(python: String) -> Self {
        Self { python }
    }

    pub(crate) fn reply(&self) -> Value {
        let version = env!("CARGO_PKG_VERSION");
        let python = &self.python;
        json!({
            "status": "ok",
            "protocol_version": PROTOCOL,
            "implementation": "hatchery",
            "implementation_version": version,
            "language_info": {
                "name": "python",
                "version": python,
                "mimetype": "text/x-python",
                "file_extension": ".py",
                "pygments_lexer": "ipython3",
                "codemirror_mode": { "name": "ipython", "version": 3 },
                "nbconvert_exporter": "python",
            },
            "banner": format!("Hatchery {version}: Python {python} in a sandbox"),
            "help_links": [
                { "text": "Python", "url": "https://docs.python.org/3" },
            ],
            "debugger": false,
        })
    }
}
