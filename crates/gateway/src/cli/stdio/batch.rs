//! A client's JSON-RPC batch, and its error responses.
//!
//! In the one protocol version with batches every request of a rejected batch gets an error; in the
//! others a batch is one invalid message with one error. Entry points: [`Batch::error`] and
//! `Bridge::refuse_batch`.

use gantry_model::jsonrpc::{self, Limits, Message, Payload, Raw};

use crate::http::error::Problem;

use super::bridge::Bridge;

/// A larger batch is answered by one error; the gateway accepts far fewer messages.
const MESSAGES: usize = 1000;

/// A line that holds several messages.
#[derive(Debug)]
pub(super) struct Batch {
    text: String,
    /// Whether the negotiated version allows batches.
    is_allowed: bool,
}

impl Batch {
    /// Wraps a batch. Invariant: the text was validated and is a JSON array.
    pub(super) fn new(text: String, is_allowed: bool) -> Self {
        Self { text, is_allowed }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the error response for the whole batch; nothing if it contains no request.
    pub(super) fn error(
        &self,
        code: i64,
        message: &str,
        data: Option<Payload<'_>>,
    ) -> Option<Vec<u8>> {
        let batch = Raw::trusted(&self.text);
        let count = batch.items().take(MESSAGES + 1).count();
        if !self.is_allowed || count == 0 || count > MESSAGES {
            let mut out = Vec::new();
            jsonrpc::write_error(&mut out, None, code, message, data);
            return Some(out);
        }
        let mut out = vec![b'['];
        for item in batch.items() {
            let parsed = jsonrpc::parse(item.text().as_bytes(), &Limits::default());
            let id = match parsed.map(|incoming| incoming.message) {
                Ok(Message::Request(request)) => Some(request.id),
                Ok(Message::Notification(_) | Message::Response(_)) => continue,
                Err(_) => None,
            };
            if out.len() > 1 {
                out.push(b',');
            }
            jsonrpc::write_error(&mut out, id, code, message, data);
        }
        if out.len() == 1 {
            return None;
        }
        out.push(b']');
        Some(out)
    }
}

impl Bridge {
    /// Answers a batch with our own error.
    pub(super) async fn refuse_batch(&self, batch: &Batch, problem: &Problem) {
        let data = problem.rpc_data();
        let data = data.as_deref().map(|data| Payload::Raw(Raw::trusted(data)));
        let answer = batch.error(problem.rpc_code(), problem.rpc_message(), data);
        if let Some(answer) = answer {
            self.say(answer).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MIXED: &str = r#"[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","method":"x"},7,{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;

    fn ids(text: &str, is_allowed: bool) -> Value {
        let answer = Batch::new(text.to_owned(), is_allowed).error(-31_503, "down", None);
        let Some(answer) = answer else {
            return json!("nothing");
        };
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        match answer.as_array() {
            Some(all) => all.iter().map(|error| error["id"].clone()).collect(),
            None => json!({"one": answer["id"]}),
        }
    }

    #[test]
    fn each_request_of_a_batch_is_answered_where_there_are_batches() {
        assert_eq!(ids(MIXED, true), json!(["a", null, 2]));
        assert_eq!(ids(MIXED, false), json!({"one": null}));
        assert_eq!(ids(r#"[{"jsonrpc":"2.0","method":"x"}]"#, true), "nothing");
        assert_eq!(ids("[]", true), json!({"one": null}));
        let many = format!("[{}1]", "1,".repeat(MESSAGES));
        assert_eq!(ids(&many, true), json!({"one": null}));
    }
}
