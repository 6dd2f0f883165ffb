//! Native tools whose arguments and results are the author's own types.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{NativeCall, NativeOutput, NativeTool};

impl NativeTool {
    /// Creates a tool whose arguments and result are Rust types.
    ///
    /// The arguments already match the schema, and are moved out of the call. A text is returned as
    /// it is, an object as a structured result, anything else as JSON. An `Err` is the tool's own
    /// failure, which the model reads.
    pub fn typed<A, O, H, F>(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
        handler: H,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        H: Fn(A, NativeCall) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O, String>> + Send + 'static,
    {
        let handler = std::sync::Arc::new(handler);
        Self::new(name, description, input_schema, move |mut call| {
            let handler = std::sync::Arc::clone(&handler);
            async move {
                let arguments = serde_json::from_value(call.arguments.take())
                    .map_err(|error| format!("the arguments cannot be used: {error}"))?;
                let answer = handler(arguments, call).await?;
                let answer = serde_json::to_value(answer)
                    .map_err(|error| format!("the result cannot be serialized: {error}"))?;
                Ok(output(answer))
            }
        })
    }
}

fn output(answer: Value) -> NativeOutput {
    match answer {
        Value::String(text) => NativeOutput::text(text),
        Value::Object(_) => NativeOutput::structured(answer),
        Value::Null => NativeOutput::text(""),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            NativeOutput::text(answer.to_string())
        }
    }
}
