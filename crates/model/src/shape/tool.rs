//! Tools in a request to a model.
//!
//! A schema is sent as its server wrote it, except for parts that would make an API refuse the
//! whole request; these are moved to the description, and the arguments are still checked against
//! the whole schema.

use std::borrow::Cow;

use super::object::{Object, array};
use super::{Shape, strict};
use crate::jsonrpc::{Edit, Raw, RawBuf};
use crate::mcp::{ShapeError, ToolDef};

/// The longest description that OpenAI accepts, in characters.
const LONGEST_OPENAI: usize = 1024;

/// Keywords that Anthropic and OpenAI refuse at the top level of an arguments schema.
const REFUSED_ON_TOP: [&str; 5] = ["oneOf", "anyOf", "allOf", "not", "enum"];

/// Renders the value of a request's `tools`: each tool's exposed name and MCP definition, in order.
///
/// For MCP it is the member `tools` of a list's result.
pub fn tools<'a>(
    shape: Shape,
    tools: impl IntoIterator<Item = (&'a str, Raw<'a>)>,
) -> Result<RawBuf, ShapeError> {
    let rendered = tools
        .into_iter()
        .map(|(name, definition)| tool(shape, name, definition));
    let list = array(rendered.collect::<Result<Vec<_>, _>>()?);
    Ok(match shape {
        Shape::Gemini if list.text() == "[]" => list,
        Shape::Gemini => array([Object::new().buf("functionDeclarations", &list).done()]),
        Shape::Mcp | Shape::Anthropic | Shape::OpenAi | Shape::OpenAiResponses => list,
    })
}

/// Renders one tool of an MCP definition, under the exposed name given.
pub fn tool(shape: Shape, name: &str, definition: Raw<'_>) -> Result<RawBuf, ShapeError> {
    let view = ToolDef::read(definition)?;
    let description = view.description.as_deref().or(view.title.as_deref());
    Ok(match shape {
        Shape::Mcp => {
            let mut renamed = Edit::new(definition);
            renamed.set_buf("name", RawBuf::string(name));
            renamed.to_buf()
        }
        Shape::Anthropic => {
            let (schema, description) = without_refused(view.input_schema, description);
            Object::new()
                .text("name", name)
                .some_text("description", description.as_deref())
                .buf("input_schema", &schema)
                .done()
        }
        Shape::OpenAi => {
            let (function, is_strict) = function(Object::new(), name, &view);
            let function = if is_strict {
                function.raw("strict", Raw::TRUE)
            } else {
                function
            };
            Object::of_type("function")
                .buf("function", &function.done())
                .done()
        }
        // Here an absent member would mean `true`.
        Shape::OpenAiResponses => {
            let (function, is_strict) = function(Object::of_type("function"), name, &view);
            let is_strict = if is_strict { "true" } else { "false" };
            function.raw("strict", Raw::trusted(is_strict)).done()
        }
        Shape::Gemini => {
            let declaration = Object::new()
                .text("name", name)
                .some_text("description", description)
                .raw("parametersJsonSchema", view.input_schema);
            match view.output_schema {
                Some(schema) => declaration.raw("responseJsonSchema", schema).done(),
                None => declaration.done(),
            }
        }
    })
}

/// Writes the common part of OpenAI's two formats, and returns whether it can be strict.
fn function(object: Object, name: &str, view: &ToolDef<'_>) -> (Object, bool) {
    let description = view.description.as_deref().or(view.title.as_deref());
    let (mut schema, description) = without_refused(view.input_schema, description);
    let is_strict = strict::qualifies(view.input_schema);
    if schema.as_raw().get("properties").is_none() {
        // An object without `properties` is refused.
        let mut whole = Edit::new(schema.as_raw());
        whole.set("properties", Raw::EMPTY_OBJECT);
        schema = whole.to_buf();
    }
    let description = description.map(|text| cut(&text, LONGEST_OPENAI).into_owned());
    let object = object
        .text("name", name)
        .some_text("description", description.as_deref())
        .buf("parameters", &schema);
    (object, is_strict)
}

/// Removes the refused keywords at the top level of a schema, and adds them to the description.
fn without_refused<'a>(
    schema: Raw<'_>,
    description: Option<&'a str>,
) -> (RawBuf, Option<Cow<'a, str>>) {
    let mut shorn = Edit::new(schema);
    let mut told = Object::new();
    for key in REFUSED_ON_TOP {
        if let Some(value) = schema.get(key) {
            shorn.remove(key);
            told = told.raw(key, value);
        }
    }
    if shorn.is_empty() {
        return (schema.to_buf(), description.map(Cow::Borrowed));
    }
    let told = told.done();
    let rule = format!(
        "The arguments must also fit this JSON Schema: {}",
        told.text()
    );
    let description = match description {
        Some(text) => format!("{text}\n\n{rule}"),
        None => rule,
    };
    (shorn.to_buf(), Some(Cow::Owned(description)))
}

fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    match text.char_indices().nth(longest) {
        None => Cow::Borrowed(text),
        Some(_) => {
            let kept: String = text.chars().take(longest - 1).collect();
            Cow::Owned(kept + "…")
        }
    }
}
