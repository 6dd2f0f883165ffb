//! Calls as models make them: one, a list, or a whole assistant message.
//!
//! Arguments that are invalid JSON do not affect the rest: the call carries the error, for the
//! model to read. Entry point: `Calls::read`.

use std::borrow::Cow;

use super::Shape;
use crate::diagnose::{Diagnose, Fault};
use crate::jsonrpc::{self, Limits, Raw, RawBuf, RawKind};

/// The maximum number of calls in one message.
pub const MOST_CALLS: usize = 128;

/// Why a value is not a tool call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// It matches no known format.
    #[error("this is not a tool call in a known format")]
    Unknown,
    /// It does not match the declared format.
    #[error("this is not a tool call in the format `{shape}`")]
    Other {
        /// The declared format.
        shape: Shape,
    },
    /// It is a message or a list without any call.
    #[error("it contains no tool call")]
    NoCall,
    /// It has too many calls.
    #[error("it contains {count} tool calls, at most {MOST_CALLS} are allowed")]
    TooMany {
        /// How many there are.
        count: usize,
    },
}

impl Diagnose for FormError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown | Self::Other { .. } => "shape.form",
            Self::NoCall => "shape.no_call",
            Self::TooMany { .. } => "shape.too_many",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown | Self::Other { .. } => Some(
                "send a `tool_use` block, an OpenAI tool call, a `functionCall`, or `name` and \
                 `arguments`; a list of them; or the assistant's whole message"
                    .to_owned(),
            ),
            Self::NoCall => Some("the model has answered without calling a tool".to_owned()),
            Self::TooMany { .. } => None,
        }
    }
}

/// One call of a tool, as a model made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCall {
    /// The model's id of the call, repeated in the response.
    pub id: Option<String>,
    /// The tool, by exposed name or identity.
    pub name: String,
    /// The arguments: an object, or why they are unreadable.
    pub arguments: Result<RawBuf, Unreadable>,
}

/// Arguments that are not an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The error, for the model.
    pub why: String,
    /// What the model wrote.
    pub given: RawBuf,
}

/// All calls of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// Their format.
    pub shape: Shape,
    /// Whether the input was a list or a message, so that the response is a list, too.
    pub is_list: bool,
    /// The calls, in their order.
    pub calls: Vec<ModelCall>,
}

impl Calls {
    /// Reads one call, a list of them, or a whole assistant message; without a declared format it
    /// is detected. Other items in a list, such as text or reasoning, are skipped.
    pub fn read(shape: Option<Shape>, value: Raw<'_>) -> Result<Self, FormError> {
        if let Some((shape, call)) = one(shape, value) {
            return Ok(Self {
                shape,
                is_list: false,
                calls: vec![call],
            });
        }
        let list = if value.kind() == RawKind::Array {
            value
        } else {
            message(shape, value).ok_or_else(|| unknown(shape))?
        };
        let mut told = shape;
        let mut calls = Vec::new();
        for item in list.items() {
            if let Some((shape, call)) = one(told, item) {
                // The first call determines the format of all.
                told = Some(shape);
                calls.push(call);
            }
        }
        match (told, calls.len()) {
            (Some(shape), 1..=MOST_CALLS) => Ok(Self {
                shape,
                is_list: true,
                calls,
            }),
            (_, 0) => Err(FormError::NoCall),
            (_, count) => Err(FormError::TooMany { count }),
        }
    }
}

fn unknown(shape: Option<Shape>) -> FormError {
    shape.map_or(FormError::Unknown, |shape| FormError::Other { shape })
}

/// Reads a value as a call of the given format, or of the first that matches.
fn one(shape: Option<Shape>, value: Raw<'_>) -> Option<(Shape, ModelCall)> {
    // A name alone is read as MCP before Gemini, which omits empty arguments.
    const ORDER: [Shape; 5] = [
        Shape::Anthropic,
        Shape::OpenAiResponses,
        Shape::OpenAi,
        Shape::Mcp,
        Shape::Gemini,
    ];
    match shape {
        Some(shape) => read(shape, value).map(|call| (shape, call)),
        None => ORDER
            .into_iter()
            .find_map(|shape| read(shape, value).map(|call| (shape, call))),
    }
}

fn read(shape: Shape, value: Raw<'_>) -> Option<ModelCall> {
    let is_type = |kind: &str| value.get("type").is_some_and(|own| own.is_string(kind));
    match shape {
        Shape::Anthropic if is_type("tool_use") => {
            call(value, value.get("id"), object("input", value.get("input")))
        }
        Shape::OpenAi => {
            let function = value.get("function").filter(|own| own.is_object())?;
            let arguments = written(function.get("arguments"));
            call(function, value.get("id"), arguments)
        }
        Shape::OpenAiResponses if is_type("function_call") => {
            let arguments = written(value.get("arguments"));
            call(value, value.get("call_id"), arguments)
        }
        Shape::Gemini => {
            let wrapped = value.get("functionCall").or(value.get("function_call"));
            let own = wrapped.unwrap_or(value);
            let is_bare = value.get("type").is_none() && value.get("arguments").is_none();
            (wrapped.is_some() || is_bare)
                .then(|| call(own, own.get("id"), object("args", own.get("args"))))?
        }
        Shape::Mcp => {
            let is_other = ["type", "args", "input"]
                .into_iter()
                .any(|key| value.get(key).is_some());
            let arguments = object("arguments", value.get("arguments"));
            (!is_other).then(|| call(value, None, arguments))?
        }
        Shape::Anthropic | Shape::OpenAiResponses => None,
    }
}

fn call(
    named: Raw<'_>,
    id: Option<Raw<'_>>,
    arguments: Result<RawBuf, Unreadable>,
) -> Option<ModelCall> {
    Some(ModelCall {
        id: id.and_then(Raw::string).map(Cow::into_owned),
        name: named.get("name").and_then(Raw::string)?.into_owned(),
        arguments,
    })
}

/// Reads arguments given as an object; absent ones are an empty object.
fn object(member: &str, value: Option<Raw<'_>>) -> Result<RawBuf, Unreadable> {
    match value.filter(|value| !value.is_null()) {
        None => Ok(Raw::EMPTY_OBJECT.to_buf()),
        Some(value) if value.is_object() => Ok(value.to_buf()),
        Some(value) => Err(Unreadable {
            why: format!("`{member}` must be an object"),
            given: value.to_buf(),
        }),
    }
}

/// Reads arguments given as JSON in a string, checked as strictly as any message.
fn written(value: Option<Raw<'_>>) -> Result<RawBuf, Unreadable> {
    let Some(text) = value.and_then(Raw::string) else {
        return object("arguments", value);
    };
    if text.trim_ascii().is_empty() {
        return Ok(Raw::EMPTY_OBJECT.to_buf());
    }
    match jsonrpc::validate(&text, &Limits::default()) {
        Ok(_) => object("arguments", Some(Raw::trusted(&text))),
        Err(error) => Err(Unreadable {
            why: format!("`arguments` is not valid JSON: {error}"),
            given: RawBuf::string(&text),
        }),
    }
}

fn first(list: Option<Raw<'_>>) -> Option<Raw<'_>> {
    list.and_then(|list| list.items().next())
}

/// Returns the list inside a whole message or response of a model.
fn message(shape: Option<Shape>, value: Raw<'_>) -> Option<Raw<'_>> {
    let is = |wanted| shape.is_none_or(|shape| shape == wanted);
    let array = |value: Raw<'_>| value.kind() == RawKind::Array;
    let chat = || {
        let choice = first(value.get("choices")).and_then(|choice| choice.get("message"));
        let message = choice.unwrap_or(value);
        message.get("tool_calls").filter(|list| array(*list))
    };
    let gemini = || {
        let candidate = first(value.get("candidates")).and_then(|one| one.get("content"));
        let content = candidate.unwrap_or(value);
        content.get("parts").filter(|list| array(*list))
    };
    let member = |key| value.get(key).filter(|list| array(*list));
    None.or_else(|| is(Shape::OpenAi).then(chat)?)
        .or_else(|| is(Shape::Gemini).then(gemini)?)
        .or_else(|| is(Shape::OpenAiResponses).then(|| member("output"))?)
        .or_else(|| is(Shape::Anthropic).then(|| member("content"))?)
}
