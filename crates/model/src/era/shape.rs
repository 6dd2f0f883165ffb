//! Converts results and errors between the eras.
//!
//! Results of the stateless era declare their type (`resultType`), how long they may be cached
//! (`ttlMs`, `cacheScope`) and their server; the handshake era has none of that. Nothing else is
//! changed.

use super::error::{MISSING_CAPABILITY, RESOURCE_NOT_FOUND, URL_ELICITATION_REQUIRED};
use super::meta::SERVER_INFO;
use crate::jsonrpc::{Edit, INVALID_PARAMS, Member, Raw, RawBuf};
use crate::mcp::Method;

const RESULT_TYPE: &str = "resultType";
const TTL: &str = "ttlMs";
const SCOPE: &str = "cacheScope";
const ELICITATION_ID: &str = "elicitationId";
const STRUCTURED: &str = "structuredContent";

/// The longest time that a result may be cached (fault H14).
pub const LONGEST_TTL_MS: i64 = 300_000;

/// Whether a result may be cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    /// A result that is used once: of a call, a prompt, a completion.
    Plain,
    /// A list, a resource or a handshake, with a cache lifetime. Always private: what a client sees
    /// depends on its key.
    Cacheable,
}

impl ResultKind {
    /// Returns the kind of result a method has.
    pub fn of(method: Method) -> Self {
        if matches!(
            method,
            Method::ServerDiscover
                | Method::ToolsList
                | Method::PromptsList
                | Method::ResourcesList
                | Method::ResourceTemplatesList
                | Method::ResourcesRead
        ) {
            Self::Cacheable
        } else {
            Self::Plain
        }
    }
}

/// Converts a result for a client of the stateless era; `server_info` names the server.
pub fn to_modern<'a>(result: Raw<'a>, kind: ResultKind, server_info: Option<Raw<'a>>) -> Edit<'a> {
    let mut edit = Edit::new(result);
    let (mut result_type, mut ttl) = (None, None);
    for member in result.members() {
        if member.is(RESULT_TYPE) {
            result_type = Some(member.value);
        } else if member.is(TTL) {
            ttl = member.value.integer();
        }
    }
    if result_type.is_none() {
        edit.set(RESULT_TYPE, Raw::COMPLETE);
    }
    let complete = result_type.is_none_or(|own| own.is_string("complete"));
    if kind == ResultKind::Cacheable && complete {
        let ttl = ttl.unwrap_or(0).clamp(0, LONGEST_TTL_MS);
        edit.set_buf(TTL, RawBuf::integer(ttl))
            .set(SCOPE, Raw::PRIVATE);
    }
    if let Some(info) = server_info {
        edit.set_meta(SERVER_INFO, info);
    }
    edit
}

/// Converts a result for a client of the handshake era.
pub fn to_legacy(result: Raw<'_>) -> Edit<'_> {
    let mut edit = Edit::new(result);
    for member in result.members() {
        if let Some(key) = [RESULT_TYPE, TTL, SCOPE]
            .into_iter()
            .find(|key| member.is(key))
        {
            edit.remove(key);
        } else if member.is("_meta") && member.value.get(SERVER_INFO).is_some() {
            edit.remove_meta(SERVER_INFO);
        }
    }
    edit
}

/// Returns whether a member of a result is structured content that is not an object: a client of
/// the handshake era rejects the whole result then.
pub fn is_odd_structure(member: &Member<'_>) -> bool {
    member.is(STRUCTURED) && !member.value.is_object()
}

/// Removes structured content that clients of the handshake era reject; keeps it as text if there
/// is no other content.
pub fn without_odd(result: Raw<'_>) -> RawBuf {
    let mut edit = Edit::new(result);
    let mut is_bare = true;
    for member in result.members() {
        if member.is("content") {
            is_bare = member.value.items().next().is_none();
        }
    }
    if let Some(odd) = result.members().find(is_odd_structure) {
        edit.remove(STRUCTURED);
        if is_bare && !odd.value.is_null() {
            let mut block = Edit::new(Raw::EMPTY_OBJECT);
            block
                .set_buf("type", RawBuf::string("text"))
                .set_buf("text", RawBuf::string(odd.value.text()));
            let content = format!("[{}]", block.to_buf().text());
            edit.set_buf("content", RawBuf::trusted(content));
        }
    }
    edit.to_buf()
}

/// Returns the code of an upstream error for a client of the stateless era. There a person who must
/// visit a URL is asked by a request; a client without that capability gets an error.
pub fn error_code_to_modern(code: i64) -> i64 {
    match code {
        RESOURCE_NOT_FOUND => INVALID_PARAMS,
        URL_ELICITATION_REQUIRED => MISSING_CAPABILITY,
        code => code,
    }
}

/// Returns the code of an upstream error for a client of the handshake era; only an unknown
/// resource has its own code.
pub fn error_code_to_legacy(method: Method, code: i64) -> i64 {
    if code == INVALID_PARAMS && method == Method::ResourcesRead {
        RESOURCE_NOT_FOUND
    } else {
        code
    }
}

/// Converts a server request for a client of the handshake era, where a URL elicitation needs an
/// id; `key` is used if the server gave none.
pub fn ask_to_legacy(params: Option<Raw<'_>>, key: &str) -> RawBuf {
    let params = params.unwrap_or(Raw::EMPTY_OBJECT);
    let mut edit = Edit::new(params);
    let is_url = params.get("mode").is_some_and(|mode| mode.is_string("url"));
    if is_url && params.get(ELICITATION_ID).is_none() {
        edit.set_buf(ELICITATION_ID, RawBuf::string(key));
    }
    edit.to_buf()
}

/// Converts a server request for a client of the stateless era.
pub fn ask_to_modern(params: Option<Raw<'_>>) -> RawBuf {
    let params = params.unwrap_or(Raw::EMPTY_OBJECT);
    let mut edit = Edit::new(params);
    if params.get(ELICITATION_ID).is_some() {
        edit.remove(ELICITATION_ID);
    }
    edit.to_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_handshake_era_rejects_is_taken_out() {
        let table = [
            (
                r#"{"content":[{"type":"text","text":"a"}],"structuredContent":[1]}"#,
                r#"{"content":[{"type":"text","text":"a"}]}"#,
            ),
            (
                r#"{"content":[],"structuredContent":[1,"x"]}"#,
                r#"{"content":[{"type":"text","text":"[1,\"x\"]"}]}"#,
            ),
            (
                r#"{"structuredContent":7}"#,
                r#"{"content":[{"type":"text","text":"7"}]}"#,
            ),
            (r#"{"structuredContent":null}"#, "{}"),
            (
                r#"{"structuredContent":{"a":1}}"#,
                r#"{"structuredContent":{"a":1}}"#,
            ),
        ];
        for (given, wanted) in table {
            let made: serde_json::Value =
                serde_json::from_str(without_odd(Raw::trusted(given)).text()).unwrap();
            let wanted: serde_json::Value = serde_json::from_str(wanted).unwrap();
            assert_eq!(made, wanted, "{given}");
        }
    }

    #[test]
    fn what_a_server_asks_changes_eras() {
        let legacy = |text| ask_to_legacy(Some(Raw::trusted(text)), "a-1").into_text();
        assert_eq!(
            legacy(r#"{"mode":"url","url":"https://x"}"#),
            r#"{"elicitationId":"a-1","mode":"url","url":"https://x"}"#
        );
        let own = r#"{"mode":"url","elicitationId":"b"}"#;
        assert_eq!(legacy(own), own);
        assert_eq!(legacy(r#"{"message":"m"}"#), r#"{"message":"m"}"#);
        let modern = ask_to_modern(Some(Raw::trusted(own)));
        assert_eq!(modern.text(), r#"{"mode":"url"}"#);
        assert_eq!(ask_to_modern(None).text(), "{}");
    }
}
