//! Truncates a result that exceeds its limit (fault L6). The truncation is reported in a separate
//! field, never inside a text: a model must be able to distinguish the server's text from ours.
//! Entry point: [`cut_result`].

use serde::Serialize;

use crate::era::meta::TRUNCATED;
use crate::jsonrpc::{Edit, Raw, RawBuf};

/// The space reserved for the report of the truncation, and for the structure of the result.
const RESERVED: usize = 512;

/// The truncation, as reported in `_meta`.
#[derive(Debug, Default, Serialize)]
struct Truncated {
    /// How long the whole result was.
    bytes: usize,
    /// Which texts were cut, as JSON pointers.
    cut: Vec<String>,
    /// How many blocks were left out.
    dropped: usize,
    /// `structuredContent` was left out.
    #[serde(skip_serializing_if = "is_false")]
    structured_dropped: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Returns a result of at most `limit` bytes, or `None` if that is impossible: structured content
/// is omitted as a whole, unless the schema requires it.
pub fn cut_result(result: Raw<'_>, limit: usize, is_promised: bool) -> Option<RawBuf> {
    let mut truncated = Truncated {
        bytes: result.text().len(),
        ..Truncated::default()
    };
    let mut room = limit.checked_sub(RESERVED)?;
    let mut edit = Edit::new(result);
    for member in result.members() {
        let is_list = member.is("content") || member.is("contents");
        if !is_list && !member.is("structuredContent") {
            room = room.checked_sub(member.key.text().len() + member.value.text().len() + 2)?;
        }
    }
    let structured = result.get("structuredContent");
    if let Some(structured) = structured {
        match room.checked_sub(structured.text().len() + "\"structuredContent\":,".len()) {
            Some(left) if left > 0 => room = left,
            _ if is_promised => return None,
            _ => {
                edit.remove("structuredContent");
                truncated.structured_dropped = true;
            }
        }
    }
    for list in ["content", "contents"] {
        if let Some(blocks) = result.get(list) {
            let kept = cut_blocks(list, blocks, &mut room, &mut truncated);
            edit.set_buf(list, kept);
        }
    }
    let said = RawBuf::serialize(&truncated).ok()?;
    edit.set_meta_buf(TRUNCATED, said);
    let cut = edit.to_buf();
    (cut.text().len() <= limit).then_some(cut)
}

/// Keeps the first blocks that fit, and the beginning of the first text that does not.
fn cut_blocks(list: &str, blocks: Raw<'_>, room: &mut usize, truncated: &mut Truncated) -> RawBuf {
    let mut kept = String::from("[");
    let mut is_full = false;
    for (at, block) in blocks.items().enumerate() {
        let block_bytes = block.text().len() + 1;
        if !is_full && block_bytes <= *room {
            *room -= block_bytes;
            add(&mut kept, block.text());
            continue;
        }
        let beginning = match is_full {
            true => None,
            false => cut_text(block, *room),
        };
        is_full = true;
        match beginning {
            Some(beginning) => {
                *room = room.saturating_sub(beginning.text().len() + 1);
                add(&mut kept, beginning.text());
                truncated.cut.push(format!("/{list}/{at}/text"));
            }
            None => truncated.dropped += 1,
        }
    }
    kept.push(']');
    RawBuf::trusted(kept)
}

fn add(list: &mut String, block: &str) {
    if list.len() > 1 {
        list.push(',');
    }
    list.push_str(block);
}

/// Returns a text block with as much of its text as there is room for.
fn cut_text(block: Raw<'_>, room: usize) -> Option<RawBuf> {
    let text = block.get("text")?.string()?;
    let frame = block.text().len() - block.get("text")?.text().len();
    let mut end = text.floor_char_boundary(room.checked_sub(frame + 3)?);
    loop {
        let beginning = RawBuf::string(&text[..end]);
        if end == 0 {
            return None;
        }
        let over = (frame + beginning.text().len() + 1).saturating_sub(room);
        if over == 0 {
            let mut edit = Edit::new(block);
            edit.set_buf("text", beginning);
            return Some(edit.to_buf());
        }
        // Escapes are longer than the characters they represent.
        end = text.floor_char_boundary(end.saturating_sub(over.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_block(text: &str) -> String {
        format!(
            r#"{{"type":"text","text":{}}}"#,
            RawBuf::string(text).text()
        )
    }

    fn cut(result: &str, limit: usize, is_promised: bool) -> Option<serde_json::Value> {
        let cut = cut_result(Raw::trusted(result), limit, is_promised)?;
        assert!(cut.text().len() <= limit, "{}", cut.text().len());
        Some(serde_json::from_str(cut.text()).unwrap())
    }

    // fault L6
    #[test]
    fn the_beginning_is_kept_and_the_cut_is_stated_beside_it() {
        let long = "ü\n".repeat(4000);
        let blocks = [text_block("first"), text_block(&long), text_block("last")];
        let result = format!(r#"{{"content":[{}],"isError":false}}"#, blocks.join(","));
        let cut = cut(&result, 2048, false).unwrap();
        let content = cut["content"].as_array().unwrap();
        assert_eq!((content.len(), &content[0]["text"]), (2, &"first".into()));
        let kept = content[1]["text"].as_str().unwrap();
        assert!(long.starts_with(kept) && kept.len() > 500, "{}", kept.len());
        let said = &cut["_meta"]["io.gantry/truncated"];
        assert_eq!(said["bytes"], result.len());
        assert_eq!(
            (&said["cut"][0], &said["dropped"]),
            (&"/content/1/text".into(), &1.into())
        );
        assert_eq!(cut["isError"], false);
    }

    // fault L6
    #[test]
    fn many_blocks_and_structured_results_are_bounded() {
        let blocks: Vec<String> = (0..100_000).map(|n| text_block(&n.to_string())).collect();
        let result = format!(r#"{{"content":[{}]}}"#, blocks.join(","));
        let many = cut(&result, 8192, false).unwrap();
        let kept = many["content"].as_array().unwrap().len();
        let said = &many["_meta"]["io.gantry/truncated"];
        let left_out =
            said["dropped"].as_u64().unwrap() + said["cut"].as_array().unwrap().len() as u64;
        assert!(
            kept > 100 && kept as u64 + left_out >= 100_000,
            "{kept} {left_out}"
        );
        let structured = format!(
            r#"{{"content":[],"structuredContent":{{"x":"{}"}}}}"#,
            "y".repeat(9000)
        );
        let dropped = cut(&structured, 2048, false).unwrap();
        assert!(dropped["structuredContent"].is_null());
        assert_eq!(
            dropped["_meta"]["io.gantry/truncated"]["structured_dropped"],
            true
        );
        assert!(cut(&structured, 2048, true).is_none());
    }
}
