//! The REST API as programs and browsers meet it: agents, servers, calls, its own description, and
//! pages of other origins (fault U9).

mod acts;
mod agents;
mod browser;
mod call_details;
mod calls;
mod defaults;
mod documents;
mod followed;
mod grants;
mod identity;
mod later;
mod origins;
mod queries;
mod registering;
mod roles;
mod secure;
mod servers;
mod session;
mod stream;
mod times;
pub(crate) mod tokens;
mod welcome;
mod why;

use serde_json::Value;

use crate::harness::{Answer, Gantry};

/// Returns an answer's code, and checks that it is a problem document with a page.
fn problem(gantry: &Gantry, answer: &Answer, status: u16) -> String {
    let text = answer.text();
    assert_eq!(answer.status, status, "{text}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json"),
        "{text}"
    );
    let document = answer.json();
    let code = document["code"].as_str().unwrap().to_owned();
    assert_eq!(document["status"], status);
    assert_eq!(document["type"], format!("/errors/{code}"));
    let page = gantry
        .connect()
        .request("GET", &format!("/errors/{code}"), &[], b"")
        .unwrap();
    assert_eq!(page.status, 200, "{code} has no page");
    code
}

fn items(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["items"].as_array().unwrap().clone()
}

/// Walks all pages of a list and returns its items.
fn walk(gantry: &Gantry, path: &str, limit: usize) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let page = gantry.rest(
            "GET",
            &format!("{path}{separator}limit={limit}{cursor}"),
            None,
        );
        let these = items(&page);
        assert!(these.len() <= limit);
        found.extend(these);
        match page.json()["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
        assert!(found.len() < 10_000, "paging {path} has no end");
    }
}
