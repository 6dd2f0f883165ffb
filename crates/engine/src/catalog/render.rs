//! Renders lists: every definition as its server wrote it, except for the exposed name.

use bytes::Bytes;
use gantry_model::jsonrpc::{Edit, Raw, RawBuf, quote_into};

use crate::schema;

/// The key of `_meta` under which a list names servers that are missing.
const NOT_LISTED: &str = "io.gantry/not-listed";

/// One entry of a list.
pub(super) struct Row<'a> {
    pub(super) definition: &'a RawBuf,
    /// The exposed name, if it differs from the server's own.
    pub(super) name: Option<&'a str>,
}

/// Renders a page of a list's result; `missing` are servers that could not be listed, `next` is the
/// cursor of the next page.
pub(super) fn page<'a>(
    member: &str,
    rows: impl Iterator<Item = Row<'a>>,
    missing: &[&str],
    next: Option<&str>,
) -> Bytes {
    let mut out = Vec::with_capacity(1 << 10);
    out.push(b'{');
    quote_into(&mut out, member);
    out.extend_from_slice(b":[");
    for (index, row) in rows.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_row(&mut out, &row);
    }
    out.push(b']');
    if let Some(next) = next {
        out.extend_from_slice(b",\"nextCursor\":");
        quote_into(&mut out, next);
    }
    if !missing.is_empty() {
        out.extend_from_slice(b",\"_meta\":{");
        quote_into(&mut out, NOT_LISTED);
        out.extend_from_slice(b":[");
        for (index, server) in missing.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            quote_into(&mut out, server);
        }
        out.extend_from_slice(b"]}");
    }
    out.push(b'}');
    Bytes::from(out)
}

fn write_row(out: &mut Vec<u8>, row: &Row<'_>) {
    let definition = row.definition.as_raw();
    let unmirrored = schema::without_headers(definition.get("inputSchema"));
    if !has_odd_output(definition) && unmirrored.is_none() {
        return write_named(out, definition, row.name);
    }
    let mut shorn = Edit::new(definition);
    if has_odd_output(definition) {
        shorn.remove("outputSchema");
    }
    if let Some(schema) = unmirrored {
        shorn.set_buf("inputSchema", schema);
    }
    write_named(out, shorn.to_buf().as_raw(), row.name);
}

/// Returns whether an output schema is not of type object, for which a client of the handshake era
/// refuses the whole list.
fn has_odd_output(definition: Raw<'_>) -> bool {
    definition.get("outputSchema").is_some_and(|schema| {
        !schema
            .get("type")
            .is_some_and(|kind| kind.is_string("object"))
    })
}

/// Writes a definition with its name replaced in place.
fn write_named(out: &mut Vec<u8>, definition: Raw<'_>, name: Option<&str>) {
    let text = definition.text();
    let own = definition.get("name").map(Raw::text);
    match name.zip(own) {
        Some((name, own)) => {
            // A member's value is a slice of the definition.
            let start = own.as_ptr() as usize - text.as_ptr() as usize;
            out.extend_from_slice(&text.as_bytes()[..start]);
            quote_into(out, name);
            out.extend_from_slice(&text.as_bytes()[start + own.len()..]);
        }
        None => out.extend_from_slice(text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(definition: &str, name: Option<&str>) -> String {
        let definition = Raw::trusted(definition).to_buf();
        let rows = [Row {
            definition: &definition,
            name,
        }]
        .into_iter();
        String::from_utf8(page("tools", rows, &[], None).to_vec()).unwrap()
    }

    #[test]
    fn only_the_name_changes() {
        let definition =
            r#"{"_meta":{"name":"x"}, "name" : "echo" ,"inputSchema":{"type":"object"},"z":1.0e3}"#;
        assert_eq!(
            render(definition, Some("a__\"echo")),
            r#"{"tools":[{"_meta":{"name":"x"}, "name" : "a__\"echo" ,"inputSchema":{"type":"object"},"z":1.0e3}]}"#
        );
        assert_eq!(
            render(definition, None),
            format!("{{\"tools\":[{definition}]}}")
        );
    }

    #[test]
    fn an_output_schema_that_old_clients_refuse_is_not_shown() {
        let definition = r#"{"name":"a","outputSchema":{"type":"array"}}"#;
        assert_eq!(render(definition, Some("b")), r#"{"tools":[{"name":"b"}]}"#);
    }

    // fault H12
    #[test]
    fn no_client_is_asked_to_mirror_arguments_into_headers() {
        let definition = r#"{"name":"a","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"},"x-mcp-header":{"enum":[{"x-mcp-header":1}]}}}}"#;
        let shown = r#"{"inputSchema":{"type":"object","properties":{"r":{"type":"string"},"x-mcp-header":{"enum":[{"x-mcp-header":1}]}}},"name":"b"}"#;
        assert_eq!(
            render(definition, Some("b")),
            format!("{{\"tools\":[{shown}]}}")
        );
    }

    #[test]
    fn a_partial_list_says_so() {
        let text = page("tools", std::iter::empty(), &["slow", "down"], None);
        assert_eq!(
            text,
            r#"{"tools":[],"_meta":{"io.gantry/not-listed":["slow","down"]}}"#
        );
        let text = page("tools", std::iter::empty(), &["slow"], Some("t1.x"));
        assert_eq!(
            text,
            r#"{"tools":[],"nextCursor":"t1.x","_meta":{"io.gantry/not-listed":["slow"]}}"#
        );
    }
}
