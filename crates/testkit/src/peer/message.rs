//! Messages as this peer reads and writes them. Ids and results stay text, because some faults
//! are about their exact bytes.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What arrived on one line.
#[derive(Deserialize)]
pub(crate) struct Incoming<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Option<String>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
}

/// A request to be answered; small enough to be stored for later.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    /// The id exactly as it arrived.
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) modern: bool,
    /// Whether faults apply to the response.
    pub(crate) faulty: bool,
    pub(crate) nonce: Option<String>,
}

/// The response to a request.
pub(crate) enum Answer {
    Result(Value),
    /// A text result whose reply is a line of that many bytes, newline included.
    Padded(u64),
    Error(RpcError),
    /// Nothing now: the answer comes later, or never.
    Later,
}

#[derive(Debug)]
pub(crate) struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    pub(crate) fn no_method(method: &str) -> Self {
        Self::new(-32601, format!("method not found: {method}"))
    }

    pub(crate) fn bad_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    pub(crate) fn to_value(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

impl From<RpcError> for Answer {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// The part of a reply that is not its envelope, as JSON text.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Result(String),
    Error(String),
}

impl Body {
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Result(_) => "result",
            Self::Error(_) => "error",
        }
    }

    pub(crate) fn json(&self) -> &str {
        match self {
            Self::Result(json) | Self::Error(json) => json,
        }
    }
}

/// Returns a notification's line.
pub(crate) fn notification(method: &str, params: Value) -> Vec<u8> {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
        .to_string()
        .into_bytes()
}
