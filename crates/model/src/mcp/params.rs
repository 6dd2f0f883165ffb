//! The params of a request, parsed once: long ones are not searched again for each member.

use crate::jsonrpc::Raw;

/// Params and their interpreted members. Other members are only in `whole`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Params<'a> {
    /// The whole JSON object.
    pub whole: Option<Raw<'a>>,
    /// `name`: a tool or a prompt.
    pub name: Option<Raw<'a>>,
    /// `uri`: a resource.
    pub uri: Option<Raw<'a>>,
    /// `arguments`.
    pub arguments: Option<Raw<'a>>,
    /// `ref`: the subject of a completion.
    pub reference: Option<Raw<'a>>,
    /// `cursor`: the position in a list.
    pub cursor: Option<Raw<'a>>,
    /// `_meta`.
    pub meta: Option<Raw<'a>>,
    /// `requestState`: the state of a call that waits for client input.
    pub request_state: Option<Raw<'a>>,
    /// `inputResponses`: the client's responses to the server's requests.
    pub input_responses: Option<Raw<'a>>,
}

impl<'a> From<Option<Raw<'a>>> for Params<'a> {
    fn from(whole: Option<Raw<'a>>) -> Self {
        let mut params = Self {
            whole,
            ..Self::default()
        };
        for member in whole.into_iter().flat_map(Raw::members) {
            let slot = match &member {
                one if one.is("name") => &mut params.name,
                one if one.is("arguments") => &mut params.arguments,
                one if one.is("_meta") => &mut params.meta,
                one if one.is("uri") => &mut params.uri,
                one if one.is("ref") => &mut params.reference,
                one if one.is("cursor") => &mut params.cursor,
                one if one.is("requestState") => &mut params.request_state,
                one if one.is("inputResponses") => &mut params.input_responses,
                _ => continue,
            };
            *slot = Some(member.value);
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_found() {
        let text = r#"{"uri":1,"x":0,"arguments":{"name":9},"_meta":2,"n\u0061me":3,"ref":4,
            "cursor":5,"requestState":6,"inputResponses":7}"#;
        let params = Params::from(Some(Raw::trusted(text)));
        let found = [
            params.uri,
            params.meta,
            params.name,
            params.reference,
            params.cursor,
            params.request_state,
            params.input_responses,
        ];
        let found = found.map(|value| value.and_then(Raw::integer));
        assert_eq!(found, [1, 2, 3, 4, 5, 6, 7].map(Some));
        assert_eq!(params.arguments.map(Raw::text), Some(r#"{"name":9}"#));
        assert_eq!(params.whole.map(Raw::text), Some(text));
        assert!(Params::from(None).whole.is_none());
    }
}
