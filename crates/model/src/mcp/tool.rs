//! A tool as its server defines it, and the rules for tool names.
//!
//! The definition is kept byte for byte; its hash covers every byte, so that any later change can
//! be detected (fault L3).

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use super::ShapeError;
use crate::jsonrpc::Raw;

/// A view of a tool's definition.
#[derive(Debug, Clone)]
pub struct ToolDef<'a> {
    /// The whole definition.
    pub raw: Raw<'a>,
    /// The name as the server defines it.
    pub name: Cow<'a, str>,
    /// The display name.
    pub title: Option<Cow<'a, str>>,
    /// The description for models.
    pub description: Option<Cow<'a, str>>,
    /// The schema of the arguments, always an object.
    pub input_schema: Raw<'a>,
    /// The schema of the structured result.
    pub output_schema: Option<Raw<'a>>,
    /// Hints about its behaviour; not trustworthy.
    pub annotations: Option<Raw<'a>>,
    /// Whether it runs as a task of protocol version 2025-11-25.
    pub task_support: TaskSupport,
}

/// Whether a tool runs as a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskSupport {
    /// Never.
    #[default]
    Forbidden,
    /// If the caller requests it.
    Optional,
    /// Always.
    Required,
}

impl<'a> ToolDef<'a> {
    /// Reads a definition.
    pub fn read(raw: Raw<'a>) -> Result<Self, ShapeError> {
        if !raw.is_object() {
            return Err(ShapeError::NotAnObject);
        }
        let (mut name, mut title, mut description) = (None, None, None);
        let (mut input_schema, mut output_schema, mut annotations) = (None, None, None);
        let mut task_support = TaskSupport::Forbidden;
        for member in raw.members() {
            let value = member.value;
            if member.is("name") {
                name = Some(super::text("name", value)?);
            } else if member.is("title") {
                title = value.string();
            } else if member.is("description") {
                description = value.string();
            } else if member.is("inputSchema") {
                input_schema = Some(value);
            } else if member.is("outputSchema") {
                output_schema = Some(value).filter(|schema| !schema.is_null());
            } else if member.is("annotations") {
                annotations = Some(value).filter(|annotations| annotations.is_object());
            } else if member.is("execution") {
                task_support = read_task_support(value);
            }
        }
        let input_schema = input_schema.ok_or(ShapeError::Missing {
            member: "inputSchema",
        })?;
        if !input_schema.is_object() {
            return Err(ShapeError::Wrong {
                member: "inputSchema",
                expected: "an object",
            });
        }
        Ok(Self {
            raw,
            name: name.ok_or(ShapeError::Missing { member: "name" })?,
            title,
            description,
            input_schema,
            output_schema,
            annotations,
            task_support,
        })
    }

    /// Returns the SHA-256 of the definition's bytes.
    pub fn content_hash(&self) -> [u8; 32] {
        Sha256::digest(self.raw.text().as_bytes()).into()
    }
}

fn read_task_support(execution: Raw<'_>) -> TaskSupport {
    match execution
        .get("taskSupport")
        .and_then(Raw::string)
        .as_deref()
    {
        Some("required") => TaskSupport::Required,
        Some("optional") => TaskSupport::Optional,
        _ => TaskSupport::Forbidden,
    }
}

/// The recommended maximum length of a tool's name.
pub const LONGEST_TOOL_NAME: usize = 128;

/// How a tool's name violates the specification's recommendation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolNameFault {
    /// It has no characters.
    #[error("the tool's name is empty")]
    Empty,
    /// It is too long.
    #[error("the tool's name has {length} characters, at most {LONGEST_TOOL_NAME} are allowed")]
    TooLong {
        /// Its length in characters.
        length: usize,
    },
    /// It contains a character that is not allowed.
    #[error("the tool's name contains `{}`; allowed are letters, digits, `_`, `-` and `.`", character.escape_debug())]
    Character {
        /// The first such character.
        character: char,
    },
}

/// Checks a tool's name against the specification's rule: 1–128 characters of `A-Za-z0-9_-.`.
pub fn check_tool_name(name: &str) -> Result<(), ToolNameFault> {
    if name.is_empty() {
        return Err(ToolNameFault::Empty);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if let Some(character) = name.chars().find(|&character| !allowed(character)) {
        return Err(ToolNameFault::Character { character });
    }
    if name.len() > LONGEST_TOOL_NAME {
        return Err(ToolNameFault::TooLong { length: name.len() });
    }
    Ok(())
}
