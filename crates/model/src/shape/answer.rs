//! The result of `tools/call` in the format of a model's API.
//!
//! A failure is a result, too: worded so that a model can repair its call, and marked as an error
//! if the format allows that.

use super::block::{Block, structured, words};
use super::object::{Object, array};
use super::{ModelCall, Shape};
use crate::jsonrpc::{Raw, RawBuf};

/// Creates the MCP result of a failed call, with a text for the model.
pub fn failure(text: &str) -> RawBuf {
    let block = Object::of_type("text").text("text", text).done();
    Object::new()
        .buf("content", &array([block]))
        .raw("isError", Raw::TRUE)
        .done()
}

/// Renders an MCP result as the answer to a call.
pub fn answer(shape: Shape, call: &ModelCall, result: Raw<'_>) -> RawBuf {
    let is_error = result.get("isError").and_then(Raw::boolean) == Some(true);
    let id = call.id.as_deref();
    match shape {
        Shape::Mcp => result.to_buf(),
        Shape::Anthropic => {
            let blocks = Block::all(result);
            // An empty text would make the API refuse the whole message.
            let is_told = |block: &&Block<'_>| !block.words().is_empty();
            let blocks = array(blocks.iter().filter(is_told).map(anthropic));
            let answer = Object::of_type("tool_result")
                .some_text("tool_use_id", id)
                .buf("content", &blocks);
            if is_error {
                answer.raw("is_error", Raw::TRUE).done()
            } else {
                answer.done()
            }
        }
        Shape::OpenAi => {
            let text = marked(words(&Block::all(result)), is_error);
            Object::new()
                .text("role", "tool")
                .some_text("tool_call_id", id)
                .text("content", &text)
                .done()
        }
        Shape::OpenAiResponses => Object::of_type("function_call_output")
            .some_text("call_id", id)
            .buf("output", &output(&Block::all(result), is_error))
            .done(),
        Shape::Gemini => {
            let response = gemini(call, result, is_error);
            Object::new().buf("functionResponse", &response).done()
        }
    }
}

/// OpenAI has no error mark, so the text must say it.
fn marked(text: String, is_error: bool) -> String {
    if is_error {
        format!("Error: {text}")
    } else {
        text
    }
}

fn anthropic(block: &Block<'_>) -> RawBuf {
    match block {
        Block::Data { media_type, data } if block.is_image() || block.is_pdf() => {
            let kind = if block.is_pdf() { "document" } else { "image" };
            let source = Object::of_type("base64")
                .text("media_type", media_type)
                .text("data", data)
                .done();
            Object::of_type(kind).buf("source", &source).done()
        }
        Block::Data { .. } | Block::Text(_) => {
            Object::of_type("text").text("text", &block.words()).done()
        }
    }
}

/// Renders text only as a string, and a list of parts if there is an image or a file.
fn output(blocks: &[Block<'_>], is_error: bool) -> RawBuf {
    let has_data = blocks
        .iter()
        .any(|block| block.is_image() || block.is_pdf());
    if !has_data {
        return RawBuf::string(&marked(words(blocks), is_error));
    }
    array(blocks.iter().map(|block| match block {
        Block::Data { media_type, data } if block.is_image() => {
            let url = format!("data:{media_type};base64,{data}");
            Object::of_type("input_image")
                .text("image_url", &url)
                .done()
        }
        Block::Data { media_type, data } if block.is_pdf() => {
            let url = format!("data:{media_type};base64,{data}");
            Object::of_type("input_file")
                .text("filename", "result.pdf")
                .text("file_data", &url)
                .done()
        }
        Block::Data { .. } | Block::Text(_) => {
            let text = marked(block.words().into_owned(), is_error);
            Object::of_type("input_text").text("text", &text).done()
        }
    }))
}

fn gemini(call: &ModelCall, result: Raw<'_>, is_error: bool) -> RawBuf {
    let blocks = Block::all(result);
    let (data, text): (Vec<_>, Vec<_>) = blocks
        .into_iter()
        .partition(|block| block.is_image() || block.is_pdf());
    let response = match structured(result) {
        Some(value) if !is_error => value.to_buf(),
        _ => {
            let key = if is_error { "error" } else { "output" };
            Object::new().text(key, &words(&text)).done()
        }
    };
    let object = Object::new()
        .some_text("id", call.id.as_deref())
        .text("name", &call.name)
        .buf("response", &response);
    let parts: Vec<_> = data
        .iter()
        .filter_map(|block| match block {
            Block::Data { media_type, data } => {
                let inline = Object::new()
                    .text("mimeType", media_type)
                    .text("data", data)
                    .done();
                Some(Object::new().buf("inlineData", &inline).done())
            }
            Block::Text(_) => None,
        })
        .collect();
    if parts.is_empty() {
        object.done()
    } else {
        object.buf("parts", &array(parts)).done()
    }
}
