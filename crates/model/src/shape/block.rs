//! The content of an MCP result, parsed as far as models' APIs can take it.
//!
//! Content that a format cannot express is described in text, never dropped.

use std::borrow::Cow;

use crate::jsonrpc::{Raw, RawKind};

/// One piece of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block<'a> {
    Text(Cow<'a, str>),
    /// Bytes in base64, and their media type.
    Data {
        media_type: Cow<'a, str>,
        data: Cow<'a, str>,
    },
}

impl<'a> Block<'a> {
    /// Reads the content of a result; if it is empty, the structured result is used.
    pub(super) fn all(result: Raw<'a>) -> Vec<Self> {
        let content = result.get("content");
        let blocks: Vec<_> = content
            .into_iter()
            .flat_map(Raw::items)
            .map(Self::read)
            .collect();
        if !blocks.is_empty() {
            return blocks;
        }
        let structured = result
            .get("structuredContent")
            .filter(|value| !value.is_null());
        structured
            .map(|value| Self::Text(Cow::Borrowed(value.text())))
            .into_iter()
            .collect()
    }

    fn read(block: Raw<'a>) -> Self {
        let text = |key: &str| block.get(key).and_then(Raw::string);
        let kind = text("type").unwrap_or_default();
        let read = match &*kind {
            "text" => text("text").map(Self::Text),
            "image" | "audio" => text("mimeType")
                .zip(text("data"))
                .map(|(media_type, data)| Self::Data { media_type, data }),
            "resource" => block.get("resource").and_then(resource),
            "resource_link" => text("uri").map(|uri| {
                let parts = [
                    text("title").or(text("name")),
                    Some(uri),
                    text("description"),
                ];
                let parts: Vec<_> = parts.into_iter().flatten().collect();
                Self::Text(Cow::Owned(parts.join("\n")))
            }),
            _ => None,
        };
        read.unwrap_or(Self::Text(Cow::Borrowed(block.text())))
    }

    /// Returns whether it is an image that models' APIs take.
    pub(super) fn is_image(&self) -> bool {
        let taken = ["image/png", "image/jpeg", "image/gif", "image/webp"];
        matches!(self, Self::Data { media_type, .. } if taken.contains(&&**media_type))
    }

    /// Returns whether it is a PDF.
    pub(super) fn is_pdf(&self) -> bool {
        matches!(self, Self::Data { media_type, .. } if media_type == "application/pdf")
    }

    /// Returns the block as text.
    pub(super) fn words(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Data { media_type, data } => {
                let size = data.trim_end_matches('=').len() * 3 / 4;
                Cow::Owned(format!(
                    "[{media_type}, {size} bytes, cannot be shown here]"
                ))
            }
        }
    }
}

fn resource(resource: Raw<'_>) -> Option<Block<'_>> {
    let text = |key: &str| resource.get(key).and_then(Raw::string);
    if let Some(text) = text("text") {
        return Some(Block::Text(text));
    }
    let media_type = text("mimeType").unwrap_or(Cow::Borrowed("application/octet-stream"));
    text("blob").map(|data| Block::Data { media_type, data })
}

/// Joins all blocks as text.
pub(super) fn words(blocks: &[Block<'_>]) -> String {
    let words: Vec<_> = blocks.iter().map(Block::words).collect();
    words.join("\n")
}

/// Returns the structured result, if it is an object.
pub(super) fn structured(result: Raw<'_>) -> Option<Raw<'_>> {
    let value = result.get("structuredContent")?;
    (value.kind() == RawKind::Object).then_some(value)
}
