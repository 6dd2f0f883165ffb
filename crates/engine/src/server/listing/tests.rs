//! Valid and invalid definitions, and stored listings.

use gantry_model::pin::content_hash;
use gantry_model::secret::SecretText;

use super::*;

fn limits() -> EngineLimits {
    EngineLimits {
        tools: 10,
        pages: 4,
        ..EngineLimits::default()
    }
}

fn tool(name: &str) -> String {
    format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#)
}

fn page(tools: &[String], cursor: Option<&str>) -> Bytes {
    let cursor = cursor.map_or(String::new(), |cursor| {
        format!(r#","nextCursor":"{cursor}""#)
    });
    Bytes::from(format!(r#"{{"tools":[{}]{cursor}}}"#, tools.join(",")))
}

fn list(pages: impl IntoIterator<Item = Bytes>) -> (Listing, usize) {
    list_without(pages, &Redactor::default())
}

fn list_without(pages: impl IntoIterator<Item = Bytes>, redactor: &Redactor) -> (Listing, usize) {
    let mut paging = Paging::new(ListKind::Tools);
    for page in pages {
        if !paging.take(page, &limits()).unwrap() {
            break;
        }
    }
    let mut listing = Listing::default();
    listing.take(&paging, &limits(), redactor);
    (listing, paging.pages.len())
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.tools.iter().map(|tool| &*tool.name).collect()
}

#[test]
fn all_pages_are_read() {
    // row 2.4
    let (listing, pages) = list([
        page(&[tool("a")], Some("1")),
        page(&[], Some("2")),
        page(&[tool("b")], None),
    ]);
    assert_eq!((names(&listing), pages), (vec!["a", "b"], 3));
    assert_eq!(listing.excluded, []);
}

#[test]
fn definitions_tell_no_secret() {
    // fault K3
    let secret = SecretText::new("tok-7f3a9c21".to_owned());
    let redactor = Redactor::new([&secret]);
    let telling = r#"{"name":"a","description":"tok-7f3a9c21","inputSchema":{"type":"object"}}"#;
    let pages = [page(&[telling.to_owned(), tool("x-tok-7f3a9c21")], None)];
    let (listing, _) = list_without(pages, &redactor);
    assert_eq!(names(&listing), ["a"]);
    assert!(
        listing.tools[0]
            .definition
            .text()
            .contains("\"description\":\"[redacted]\"")
    );
    let reason = "its name contains a secret of its server".to_owned();
    assert_eq!(listing.excluded, [("x-[redacted]".to_owned(), reason)]);
    // Stored before it was known to be a secret.
    let (before, _) = list([page(&[telling.to_owned(), tool("x-tok-7f3a9c21")], None)]);
    let again = Listing::from_rows(&before.to_rows(), &redactor);
    assert_eq!(names(&again), ["a"]);
    assert!(!again.tools[0].definition.text().contains("7f3a9c21"));
}

#[test]
fn a_list_without_end_is_cut() {
    // fault S19
    let (listing, pages) = list((0..).map(|_| page(&[tool("a")], Some("same"))));
    assert_eq!((names(&listing), pages), (vec!["a"], 2));
    assert!(
        listing.excluded[1].1.contains("same cursor"),
        "{:?}",
        listing.excluded
    );
    let (listing, pages) = list(
        (0..).map(|number: u32| page(&[tool(&number.to_string())], Some(&number.to_string()))),
    );
    assert_eq!((names(&listing).len(), pages), (4, 4));
    assert!(listing.excluded[0].1.contains("more than 4 pages"));
    let many: Vec<String> = (0..1000).map(|number| tool(&number.to_string())).collect();
    let (listing, pages) = list((0..).map(|number: u32| page(&many, Some(&number.to_string()))));
    assert_eq!((names(&listing).len(), pages), (10, 1));
    assert_eq!(listing.excluded.len(), 1);
    assert!(
        listing.excluded[0].1.contains("990 more"),
        "{:?}",
        listing.excluded
    );
}

#[test]
fn a_bad_tool_is_left_out_and_the_rest_stays() {
    // fault S19
    let (listing, _) = list([page(
        &[
            tool("a"),
            "7".to_owned(),
            r#"{"name":"b","inputSchema":{"type":"banana"}}"#.to_owned(),
            tool("a"),
            tool("c"),
        ],
        None,
    )]);
    assert_eq!(names(&listing), ["a", "c"]);
    let excluded: Vec<&str> = listing
        .excluded
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(excluded, ["(no name)", "b", "a"]);
    assert!(listing.excluded[2].1.contains("listed before"));
}

#[test]
fn what_is_no_list_is_an_error() {
    // row 2.6
    let mut paging = Paging::new(ListKind::Tools);
    for result in [
        r#"{}"#,
        r#"{"tools":{}}"#,
        r#"{"tools":[],"nextCursor":7}"#,
        "[]",
    ] {
        assert!(
            paging.take(Bytes::from(result), &limits()).is_err(),
            "{result}"
        );
    }
}

#[test]
fn a_listing_is_remembered() {
    // row 3.1
    let (mut listing, _) = list([page(&[tool("a"), tool("b")], None)]);
    let uri = Raw::trusted(r#"{"uri":"file:///x","name":"x"}"#);
    listing
        .resources
        .push(Item::admit(ListKind::Resources, uri, content_hash(uri), 1000).unwrap());
    let mut rows = listing.to_rows();
    assert_eq!(
        rows.iter().map(|row| row.position).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    rows[1].version = 7;
    let listing = listing.with_versions(&rows);
    assert_eq!(listing.tools[1].version, 7);
    rows.reverse();
    rows.push(CatalogRow {
        definition: "{broken".to_owned(),
        ..rows[0].clone()
    });
    let again = Listing::from_rows(&rows, &Redactor::default());
    assert_eq!(names(&again), ["a", "b"]);
    assert_eq!(
        again.tools[1].schema_version(),
        listing.tools[1].schema_version()
    );
    assert_eq!(&*again.resources[0].name, "file:///x");
    assert_eq!(again.to_rows().len(), 3);
}

#[test]
fn a_stateless_server_is_asked_with_its_metadata() {
    let handshake = |version: &str| {
        let text = format!(
            r#"{{"version":"{version}","server_info":null,"capabilities":{{}},"instructions":null}}"#
        );
        HandshakeInfo::from_json(&text).unwrap()
    };
    assert_eq!(params(&handshake("2025-06-18"), None), None);
    let next = params(&handshake("2025-06-18"), Some("c")).unwrap();
    assert_eq!(next.text(), r#"{"cursor":"c"}"#);
    let modern = params(&handshake("2026-07-28"), Some("c")).unwrap();
    assert!(modern.as_raw().get("cursor").is_some());
    let meta = modern.as_raw().get("_meta").unwrap();
    assert!(
        meta.get("io.modelcontextprotocol/protocolVersion")
            .is_some()
    );
}
