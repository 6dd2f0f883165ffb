//! Tools that run inside the gateway, under the pseudo-server `native` (rows 4.4 and 4.7).
//!
//! They are checked, recorded and listed like a server's. A handler that panics fails only its own
//! call. Entry points: [`NativeTool::new`] for embedding programs, [`Native::call`] for the router.

mod typed;

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use gantry_model::caller::{Caller, Context};
use gantry_model::id::ServerName;
use gantry_model::jsonrpc::{Raw, RawBuf};
use gantry_model::mcp::check_tool_name;
use gantry_model::spec::CallPolicy;
use serde_json::{Value, json};

use crate::error::{CallError, EngineError};
use crate::request::{Reply, Request};
use crate::schema::Permits;
use crate::tool::Tool;

/// The longest definition of a native tool.
const LONGEST_DEFINITION: usize = 64 << 10;

type Answer = Pin<Box<dyn Future<Output = Result<NativeOutput, String>> + Send>>;
type Handler = Arc<dyn Fn(NativeCall) -> Answer + Send + Sync>;

/// A tool that runs inside the gateway.
#[derive(Clone)]
pub struct NativeTool {
    name: String,
    description: String,
    input_schema: Value,
    output_schema: Option<Value>,
    handler: Handler,
}

/// A call of a native tool, its arguments already checked.
#[derive(Debug, Clone)]
pub struct NativeCall {
    /// The arguments, an object that matches the tool's schema.
    pub arguments: Value,
    /// The caller.
    pub caller: Caller,
    /// The caller's context: user, session, run.
    pub context: Context,
}

/// The result of a native tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NativeOutput {
    /// The text for the model; if `None`, the structured result as text.
    pub text: Option<String>,
    /// The structured result.
    pub structured: Option<Value>,
}

impl NativeTool {
    /// Creates a tool from its description and handler. An `Err` of the handler is shown to the
    /// model as the tool's own failure.
    pub fn new<H, F>(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
        handler: H,
    ) -> Self
    where
        H: Fn(NativeCall) -> F + Send + Sync + 'static,
        F: Future<Output = Result<NativeOutput, String>> + Send + 'static,
    {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema,
            output_schema: None,
            handler: Arc::new(move |call| Box::pin(handler(call))),
        }
    }

    /// Declares a structured result that matches this schema.
    #[must_use]
    pub fn with_output(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }
}

impl fmt::Debug for NativeTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeTool")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl NativeOutput {
    /// Returns a text result.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            structured: None,
        }
    }

    /// Returns a structured result.
    pub fn structured(value: Value) -> Self {
        Self {
            text: None,
            structured: Some(value),
        }
    }
}

/// A native tool in the catalog.
pub(crate) struct Native {
    tool: Arc<Tool>,
    permits: Permits,
    handler: Handler,
}

impl Native {
    /// Checks a native tool like one that a server lists.
    pub(crate) fn new(native: NativeTool, permits: Permits) -> Result<Self, EngineError> {
        let NativeTool {
            name,
            description,
            input_schema,
            output_schema,
            handler,
        } = native;
        let refused = |why: String| EngineError::Native {
            name: name.clone(),
            why,
        };
        check_tool_name(&name).map_err(|fault| refused(fault.to_string()))?;
        let mut definition =
            json!({"name": name, "description": description, "inputSchema": input_schema});
        if let Some(schema) = output_schema {
            definition["outputSchema"] = schema;
        }
        let definition = definition.to_string();
        let tool = Tool::admit(Raw::trusted(&definition), LONGEST_DEFINITION).map_err(refused)?;
        // The author can fix it, so it is an error.
        if let Some(unchecked) = tool.unchecked().first() {
            return Err(refused(format!(
                "`{}`: {}",
                unchecked.part, unchecked.reason
            )));
        }
        Ok(Self {
            tool: Arc::new(tool),
            permits,
            handler,
        })
    }

    pub(crate) fn tool(&self) -> &Arc<Tool> {
        &self.tool
    }

    /// Returns the permits for its expensive checks.
    pub(crate) fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Runs a call that was checked.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        request: &Request<'_>,
        arguments: Option<Raw<'_>>,
    ) -> Result<Reply, CallError> {
        let arguments = arguments.unwrap_or(Raw::EMPTY_OBJECT).deserialize();
        let arguments = arguments.map_err(|_| CallError::BadParams {
            method: request.method.to_owned(),
            why: "`arguments` contains a number or a text that cannot be read".to_owned(),
        })?;
        let context = request.context.clone();
        let longest = CallPolicy::default().timeout_max;
        let within = request
            .timeout
            .map_or(longest, |shorter| shorter.min(longest));
        self.run(
            NativeCall {
                arguments,
                caller: caller.clone(),
                context,
            },
            within,
        )
        .await
    }

    async fn run(&self, call: NativeCall, within: Duration) -> Result<Reply, CallError> {
        // The handler may panic before it returns a future.
        let answer = AssertUnwindSafe(async { (self.handler)(call).await }).catch_unwind();
        match tokio::time::timeout(within, answer).await {
            Ok(Ok(answer)) => render(answer),
            Ok(Err(_panic)) => Err(CallError::Panicked),
            Err(_elapsed) => Err(CallError::Timeout {
                server: ServerName::native(),
                after: within,
            }),
        }
    }
}

/// Renders a result as that of `tools/call`.
fn render(answer: Result<NativeOutput, String>) -> Result<Reply, CallError> {
    let is_error = answer.is_err();
    let output = answer.unwrap_or_else(NativeOutput::text);
    let text = match (output.text, &output.structured) {
        (Some(text), _) => text,
        (None, Some(value)) => value.to_string(),
        (None, None) => String::new(),
    };
    let mut result = json!({"content": [{"type": "text", "text": text}]});
    let mut is_odd = false;
    if let Some(value) = output.structured {
        is_odd = !value.is_object();
        result["structuredContent"] = value;
    }
    if is_error {
        result["isError"] = Value::Bool(true);
    }
    // A JSON value is always written.
    let result = RawBuf::serialize(&result).map_err(|_| CallError::Panicked)?;
    Ok(Reply {
        call: None,
        result: Bytes::from(result.into_text()),
        upstream: None,
        is_error,
        is_odd,
        warning: None,
        permit: Default::default(),
    })
}

#[cfg(test)]
mod tests;
