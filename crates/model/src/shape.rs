//! Tools, calls and results in the formats of models' APIs: MCP, Anthropic, OpenAI (Chat and
//! Responses) and Gemini.
//!
//! Pure translation: `tools` renders the `tools` of a request, `Calls::read` parses what a model
//! answered, `answer` renders the result for the model. Schemas and arguments stay raw. The catalog
//! maps names to tools; `naming` encodes names.

mod answer;
mod block;
mod call;
mod object;
mod strict;
mod tool;

use std::fmt;
use std::str::FromStr;

use crate::diagnose::{Diagnose, Fault};
use crate::naming::Target;

pub use self::answer::{answer, failure};
pub use self::call::{Calls, FormError, MOST_CALLS, ModelCall, Unreadable};
pub use self::tool::{tool, tools};

/// The format of tools, calls and results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The Model Context Protocol.
    Mcp,
    /// Anthropic's Messages API: `tool_use` and `tool_result`.
    Anthropic,
    /// OpenAI's Chat Completions API: `tool_calls` and messages of the role `tool`.
    OpenAi,
    /// OpenAI's Responses API: `function_call` and `function_call_output`.
    OpenAiResponses,
    /// Google's Gemini API: `functionCall` and `functionResponse`.
    Gemini,
}

impl Shape {
    /// All shapes there are.
    pub const ALL: [Self; 5] = [
        Self::Mcp,
        Self::Anthropic,
        Self::OpenAi,
        Self::OpenAiResponses,
        Self::Gemini,
    ];

    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Gemini => "gemini",
        }
    }

    /// Returns the rules for its tool names.
    pub const fn target(self) -> Target {
        match self {
            Self::Mcp => Target::Mcp,
            Self::Anthropic => Target::Claude,
            Self::OpenAi | Self::OpenAiResponses => Target::OpenAi,
            Self::Gemini => Target::Gemini,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of an unknown format name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a tool format")]
pub struct ShapeNameError {
    text: String,
}

impl Diagnose for ShapeNameError {
    fn code(&self) -> &'static str {
        "shape.name"
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        Some(format!(
            "one of `{}`",
            Shape::ALL.map(Shape::as_str).join("`, `")
        ))
    }
}

impl FromStr for Shape {
    type Err = ShapeNameError;

    fn from_str(text: &str) -> Result<Self, ShapeNameError> {
        let known = Self::ALL.into_iter().find(|shape| shape.as_str() == text);
        known.ok_or_else(|| ShapeNameError {
            text: text.chars().take(64).flat_map(char::escape_debug).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
