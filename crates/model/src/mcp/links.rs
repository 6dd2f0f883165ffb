//! The resources that a result names: links, embedded resources, and the results of reads.
//!
//! A client may read any of them afterwards, even if no list contains them. Entry point:
//! [`linked`].

use std::borrow::Cow;

use super::Method;
use crate::jsonrpc::Raw;

/// Calls `each` with the URI of every resource that the result of a method names.
pub fn linked(method: Method, result: Raw<'_>, mut each: impl FnMut(Cow<'_, str>)) {
    let member = |name: &str| result.get(name).into_iter().flat_map(Raw::items);
    if method == Method::ToolsCall {
        member("content").filter_map(of_block).for_each(&mut each);
    } else if method == Method::PromptsGet {
        for content in member("messages").filter_map(|message| message.get("content")) {
            // One block, or an array of blocks.
            of_block(content).into_iter().for_each(&mut each);
            content.items().filter_map(of_block).for_each(&mut each);
        }
    } else if method == Method::ResourcesRead {
        let uris = member("contents").filter_map(|content| content.get("uri")?.string());
        uris.for_each(each);
    }
}

fn of_block(block: Raw<'_>) -> Option<Cow<'_, str>> {
    let kind = block.get("type")?;
    if kind.is_string("resource_link") {
        block.get("uri")?.string()
    } else if kind.is_string("resource") {
        block.get("resource")?.get("uri")?.string()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: Method, text: &str) -> Vec<String> {
        let mut uris = Vec::new();
        linked(method, Raw::trusted(text), |uri| {
            uris.push(uri.into_owned());
        });
        uris
    }

    #[test]
    fn every_place_that_names_a_resource_is_found() {
        let link = r#"{"type":"resource_link","uri":"a:1","name":"x"}"#;
        let embedded = r#"{"type":"resource","resource":{"uri":"a:\u0032","text":"t"}}"#;
        let text = r#"{"type":"text","text":"a:3","uri":"a:4"}"#;
        let result = format!(r#"{{"content":[{link},{text},{embedded},7]}}"#);
        assert_eq!(found(Method::ToolsCall, &result), ["a:1", "a:2"]);
        assert_eq!(found(Method::ToolsList, &result), Vec::<String>::new());
        let result = format!(
            r#"{{"messages":[{{"role":"user","content":{embedded}}},{{"role":"user","content":[{link},{text}]}}]}}"#
        );
        assert_eq!(found(Method::PromptsGet, &result), ["a:2", "a:1"]);
        let result = r#"{"contents":[{"uri":"a:5","text":""},{"text":""}]}"#;
        assert_eq!(found(Method::ResourcesRead, result), ["a:5"]);
        for odd in [
            r#"{"content":{}}"#,
            r#"{"content":[{"type":"resource"}]}"#,
            "{}",
        ] {
            assert!(found(Method::ToolsCall, odd).is_empty(), "{odd}");
        }
    }
}
