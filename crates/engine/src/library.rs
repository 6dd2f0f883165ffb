//! The engine in the formats of models' APIs: tools for a request, calls as a model makes them,
//! results as it reads them. For programs that embed the engine, and for REST.
//!
//! Every call passes the same pipeline, grants, schemas and audit as any other. The error of one
//! call is its result, in a form that a model can act on; the others continue. Entry points:
//! [`Engine::tools_in`], [`Engine::call_from`].

use std::time::Duration;

use futures_util::future::join_all;
use gantry_model::caller::{Caller, Context};
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::CallId;
use gantry_model::jsonrpc::{self, Edit, Limits, Raw, RawBuf, WireError};
use gantry_model::shape::{self, Calls, FormError, ModelCall, Shape};

use crate::answers::AnswerPermit;
use crate::engine::Engine;
use crate::error::{CallError, CallFailure};
use crate::request::{Announced, ClientIdentity, Lists, Reply, Request, Scope, Surface};
use crate::server::handshake::trusted;

/// Options for the calls of a message.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// The surface at which the message arrived.
    pub surface: Surface,
    /// The servers that its calls may reach.
    pub scope: Scope,
    /// The caller's context: user, session, run.
    pub context: Context,
    /// A shorter timeout than each server's own.
    pub timeout: Option<Duration>,
}

impl Default for CallOptions {
    /// Returns the options for embedding: all servers, each server's own timeout.
    fn default() -> Self {
        Self {
            surface: Surface::Library,
            scope: Scope::All,
            context: Context::default(),
            timeout: None,
        }
    }
}

/// Why a model's message cannot be processed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is not JSON.
    #[error("the message cannot be read")]
    Wire(#[from] WireError),
    /// It contains no call.
    #[error(transparent)]
    Form(#[from] FormError),
}

impl Diagnose for MessageError {
    fn code(&self) -> &'static str {
        match self {
            Self::Wire(error) => error.code(),
            Self::Form(error) => error.code(),
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Wire(error) => error.hint(),
            Self::Form(error) => error.hint(),
        }
    }
}

/// The result of one call of a model.
#[derive(Debug, Clone)]
pub struct ModelAnswer {
    /// The id of its audit row, if there is one.
    pub call: Option<CallId>,
    /// Whether the tool failed or the call could not be made; the answer says so to the model.
    pub is_error: bool,
    /// The answer, in the shape of the call.
    pub answer: RawBuf,
    /// Its share of the response budget; hold it as long as the answer.
    pub permit: AnswerPermit,
}

/// The results of all calls of a message, in order.
#[derive(Debug, Clone)]
pub struct ModelAnswers {
    /// Their format.
    pub shape: Shape,
    /// Whether the message was a list or a whole message.
    pub is_list: bool,
    /// The answers.
    pub answers: Vec<ModelAnswer>,
}

impl ModelAnswers {
    /// Returns the answers as JSON: a list if the input was a list or a message, otherwise the single answer.
    pub fn to_json(&self) -> String {
        let texts: Vec<_> = self.answers.iter().map(|one| one.answer.text()).collect();
        if self.is_list {
            format!("[{}]", texts.join(","))
        } else {
            texts.concat()
        }
    }
}

impl Engine {
    /// Returns a caller's tools for a request's `tools`, always in the same order.
    ///
    /// Wakes a lazy server that was never listed, and waits a moment for it.
    pub async fn tools_in(&self, caller: &Caller, scope: &Scope, shape: Shape) -> RawBuf {
        self.wake(caller, scope).await;
        self.shaped(caller, scope, shape, None)
    }

    /// Wakes a caller's lazy servers that were never listed, and waits a moment for them.
    pub async fn wake(&self, caller: &Caller, scope: &Scope) {
        if let Some(project) = self.project(&caller.project) {
            project.router.warm_up(caller, scope).await;
        }
    }

    /// Returns the caller's tools of one server, under the names they have among all tools.
    ///
    /// Wakes a lazy server that was never listed, and waits a moment for it.
    pub async fn tools_of(&self, caller: &Caller, server: &str, shape: Shape) -> RawBuf {
        if let Ok(name) = server.parse() {
            self.wake(caller, &Scope::Server(name)).await;
        }
        self.shaped(caller, &Scope::All, shape, Some(server))
    }

    fn shaped(&self, caller: &Caller, scope: &Scope, shape: Shape, server: Option<&str>) -> RawBuf {
        let project = self.project(&caller.project);
        let view = project.map(|project| project.catalog.view(caller, scope));
        let nothing = || Raw::trusted("[]").to_buf();
        view.map_or_else(nothing, |view| view.tools_in(shape, server))
    }

    /// Makes the calls of a model's message concurrently, and returns the results for the model.
    ///
    /// The message is one call, a list of calls, or a whole assistant message; without a declared
    /// format it is detected. Dropping the future cancels the calls.
    pub async fn call_from(
        &self,
        caller: &Caller,
        shape: Option<Shape>,
        message: &str,
        options: &CallOptions,
    ) -> Result<ModelAnswers, MessageError> {
        let message = jsonrpc::validate(message, &Limits::default())?;
        let calls = Calls::read(shape, message)?;
        Ok(self.call_all(caller, &calls, options).await)
    }

    /// Makes calls that were already parsed.
    pub async fn call_all(
        &self,
        caller: &Caller,
        calls: &Calls,
        options: &CallOptions,
    ) -> ModelAnswers {
        self.call_announced(caller, calls, options, Vec::new())
            .await
    }

    /// Makes calls that were already parsed, with preassigned ids, in order.
    pub async fn call_announced(
        &self,
        caller: &Caller,
        calls: &Calls,
        options: &CallOptions,
        announced: Vec<Announced>,
    ) -> ModelAnswers {
        let mut announced = announced.into_iter();
        let answers: Vec<_> = calls
            .calls
            .iter()
            .map(|call| {
                let call = (call, announced.next());
                Box::pin(self.call_one(caller, calls.shape, call, options))
            })
            .collect();
        ModelAnswers {
            shape: calls.shape,
            is_list: calls.is_list,
            answers: join_all(answers).await,
        }
    }

    async fn call_one(
        &self,
        caller: &Caller,
        shape: Shape,
        (call, announced): (&ModelCall, Option<Announced>),
        options: &CallOptions,
    ) -> ModelAnswer {
        let project = self.project(&caller.project);
        let view = project.map(|project| project.catalog.view(caller, &options.scope));
        let name = view.and_then(|view| view.meant(shape, &call.name));
        let name = RawBuf::string(name.as_deref().unwrap_or(&call.name));
        // Arguments that are not an object match no schema: they are checked and recorded like any
        // other call.
        let arguments = match &call.arguments {
            Ok(arguments) => arguments,
            Err(unreadable) => &unreadable.given,
        };
        let mut params = Edit::new(Raw::EMPTY_OBJECT);
        params
            .set("name", name.as_raw())
            .set("arguments", arguments.as_raw());
        let params = params.to_buf();
        let request = Request {
            surface: options.surface,
            scope: options.scope.clone(),
            method: "tools/call",
            params: Some(params.as_raw()).into(),
            context: options.context.clone(),
            client: None,
            timeout: options.timeout,
            lists: Lists::FromCatalog,
            identity: ClientIdentity::Anyone,
            reason: None,
        };
        match self.request_announced(caller, request, announced).await {
            Ok(reply) => told(shape, call, &reply),
            Err(failure) => failed(shape, call, &failure),
        }
    }
}

fn told(shape: Shape, call: &ModelCall, reply: &Reply) -> ModelAnswer {
    ModelAnswer {
        call: reply.call,
        is_error: reply.is_error,
        permit: reply.permit.clone(),
        answer: shape::answer(shape, call, trusted(&reply.result)),
    }
}

fn failed(shape: Shape, call: &ModelCall, failure: &CallFailure) -> ModelAnswer {
    let text = words(call, &failure.error);
    ModelAnswer {
        call: failure.call,
        is_error: true,
        permit: AnswerPermit::default(),
        answer: shape::answer(shape, call, shape::failure(&text).as_raw()),
    }
}

/// Describes the error, and what a model can do about it. rows 4.8, 3.3, 3.4
fn words(call: &ModelCall, error: &CallError) -> String {
    // Uses the model's names; it does not know servers and agents.
    let asked = &call.name;
    let text = match (error, &call.arguments) {
        (CallError::UnknownTool { .. }, _) => return format!("Unknown tool: {asked}"),
        (CallError::Arguments { .. }, Err(unreadable)) => {
            format!("arguments of `{asked}` cannot be read: {}", unreadable.why)
        }
        (CallError::Arguments { issues, .. }, Ok(_)) => {
            let mut text = format!("arguments of `{asked}` do not fit its schema");
            for issue in issues {
                let path = match issue.path.as_str() {
                    "" => "(arguments)",
                    path => path,
                };
                text.push_str(&format!("\n- {path}: {}", issue.message));
            }
            text
        }
        (error, _) => error.to_string(),
    };
    match advice(error) {
        Some(advice) => format!("{text}\n{advice}"),
        None => text,
    }
}

fn advice(error: &CallError) -> Option<String> {
    if matches!(
        error,
        CallError::Arguments { .. }
            | CallError::Busy { .. }
            | CallError::Limited(_)
            | CallError::Timeout { .. }
            | CallError::Exited { .. }
    ) {
        return error.hint();
    }
    if matches!(
        error,
        CallError::NotGranted { .. } | CallError::Forbidden { .. }
    ) {
        return Some("use one of the tools that are offered".to_owned());
    }
    let passes = matches!(
        error,
        CallError::Remote { .. } | CallError::Down { .. } | CallError::NotReading { .. }
    );
    passes.then(|| "try again later, or continue without it".to_owned())
}
