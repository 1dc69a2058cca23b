//! A client of `hatchery serve` in frames.

use std::io::{Read, Write};

use serde_json::{Value, json};

/// One side of a connection.
pub(crate) struct Client<R, W> {
    reader: R,
    writer: W,
}

/// A frame: its message and its attachments.
pub(crate) type Frame = (Value, Vec<Vec<u8>>);

impl<R: Read, W: Write> Client<R, W> {
    pub(super) fn greeted(reader: R, writer: W) -> Self {
        let mut client = Self { reader, writer };
        client.send(json!({ "type": "hello", "version": 1 }), &[]);
        assert_eq!(client.receive().0["type"], "hello");
        client
    }

    pub(crate) fn send(&mut self, mut message: Value, attachments: &[&[u8]]) {
        if !attachments.is_empty() {
            let lengths: Vec<usize> = attachments.iter().map(|bytes| bytes.len()).collect();
            message["attachments"] = json!(lengths);
        }
        let header = message.to_string();
        let length = u32::try_from(header.len()).unwrap().to_le_bytes();
        let frame = [&length, header.as_bytes(), &attachments.concat()].concat();
        self.writer.write_all(&frame).unwrap();
        self.writer.flush().unwrap();
    }

    pub(crate) fn receive(&mut self) -> Frame {
        self.next().expect("the server sends on")
    }

    /// Returns the next frame, or `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut length = [0; 4];
        self.reader.read_exact(&mut length).ok()?;
        let mut header = vec![0; u32::from_le_bytes(length) as usize];
        self.reader.read_exact(&mut header).unwrap();
        let message: Value = serde_json::from_slice(&header).unwrap();
        let lengths = message["attachments"].as_array().cloned().unwrap_or_default();
        let attachments = lengths.iter().map(|length| {
            let mut bytes = vec![0; length.as_u64().unwrap() as usize];
            self.reader.read_exact(&mut bytes).unwrap();
            bytes
        });
        let attachments = attachments.collect();
        Some((message, attachments))
    }

    /// Receives events until the output ends in a line `begun`, which may come in parts.
    pub(crate) fn await_begun(&mut self) {
        let mut output = Vec::new();
        while !output.ends_with(b"begun\n") {
            let (message, attachments) = self.receive();
            assert_eq!(message["type"], "event", "{message}");
            if message["event"]["kind"] == "output" {
                output.extend_from_slice(&attachments[0]);
            }
        }
    }

    pub(crate) fn ask(&mut self, message: Value) -> Value {
        self.send(message, &[]);
        self.receive().0
    }

    /// Runs a program and returns its result.
    pub(crate) fn result(&mut self, session: Option<&str>, code: &str) -> Value {
        let run = json!({ "type": "run", "id": "r", "session": session, "job": { "code": code } });
        let answer = self.ask(run);
        assert_eq!(answer["type"], "outcome", "{answer}");
        answer["result"].clone()
    }

    pub(crate) fn value(&mut self, session: Option<&str>, code: &str) -> Value {
        let result = self.result(session, code);
        assert_eq!(result["success"], true, "{result}");
        result["value"].clone()
    }

    pub(crate) fn session(&mut self, name: &str, action: Value) -> Value {
        self.ask(json!({ "type": "session", "id": "s", "session": name, "action": action }))
    }

    pub(super) fn refusal(&mut self, message: Value) -> String {
        let answer = self.ask(message);
        assert_eq!(answer["type"], "refused", "{answer}");
        answer["problem"]["message"].as_str().unwrap().to_owned()
    }
}
