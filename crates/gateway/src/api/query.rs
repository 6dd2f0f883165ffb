//! Query parameters, and paging: `limit` and `cursor` in, `next_cursor` out.
//!
//! All errors of a query are reported at once, each with the allowed values (`errors`). A cursor
//! holds the last item of its page and its position, so paging continues even if that item is gone.
//! It is opaque to clients. Entry points: [`Asked`] and [`Page::of`].

mod errors;

use axum::extract::{FromRequestParts, MatchedPath};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body::json;
use crate::http::error::{FieldIssue, Problem};
use crate::http::shown;

/// Items on one page at most.
pub(super) const LONGEST_PAGE: u32 = 1000;

/// Parsed query parameters.
pub(super) struct Asked<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        errors::read(query).map(Self).map_err(|mistakes| {
            let path = parts.extensions.get::<MatchedPath>();
            mistakes.into_problem(path.map_or("", MatchedPath::as_str))
        })
    }
}

/// Reports an invalid query parameter.
pub(super) fn bad(field: &str, text: &str) -> Problem {
    let message = format!("`{}` cannot be used as `{field}`", shown(text));
    Problem::new("request.query")
        .with_detail(message.clone())
        .with_issues(vec![FieldIssue {
            path: format!("/{field}"),
            message,
        }])
}

/// Reports an invalid cursor.
pub(super) fn bad_cursor(text: &str) -> Problem {
    bad("cursor", text).with_hint("use `next_cursor` of the previous page unchanged")
}

/// Returns the page size.
pub(super) fn limit(asked: Option<u32>, default: u32) -> Result<u32, Problem> {
    match asked {
        None => Ok(default),
        Some(limit) if (1..=LONGEST_PAGE).contains(&limit) => Ok(limit),
        Some(limit) => Err(bad("limit", &limit.to_string())
            .with_hint(format!("write a whole number from 1 to {LONGEST_PAGE}"))),
    }
}

/// The requested part of a list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// How many items at most.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    pub(super) limit: Option<u32>,
    /// `next_cursor` of the page before.
    pub(super) cursor: Option<String>,
}

/// A page of a list.
#[derive(Serialize, ToSchema)]
pub(super) struct Page<T> {
    /// The items.
    pub(super) items: Vec<T>,
    /// The value of `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// Selects the requested page of a list with a stable order.
    pub(super) fn of(
        items: Vec<T>,
        asked: &Paging,
        key: impl Fn(&T) -> String,
    ) -> Result<Self, Problem> {
        let limit = limit(asked.limit, LONGEST_PAGE)? as usize;
        let start = match &asked.cursor {
            Some(text) => {
                let (place, last) = read_cursor(text).ok_or_else(|| bad_cursor(text))?;
                let last = items.iter().position(|item| key(item) == last);
                // If the item is gone, continue at its position.
                last.map_or(place, |last| last + 1).min(items.len())
            }
            None => 0,
        };
        let end = items.len().min(start + limit);
        let is_last = end == items.len();
        let items: Vec<T> = items.into_iter().take(end).skip(start).collect();
        let last = items.last().filter(|_| !is_last);
        let next_cursor = last.map(|item| cursor(end - 1, &key(item)));
        Ok(Self { items, next_cursor })
    }

    /// Answers with the page, each item as its view.
    pub(super) fn respond<V: Serialize>(self, view: impl FnMut(T) -> V) -> Response {
        let items: Vec<V> = self.items.into_iter().map(view).collect();
        let next_cursor = self.next_cursor;
        json(StatusCode::OK, &Page { items, next_cursor })
    }
}

fn cursor(place: usize, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{place} {key}"))
}

fn read_cursor(text: &str) -> Option<(usize, String)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (place, key) = text.split_once(' ')?;
    Some((place.parse().ok()?, key.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(list: &[&str], limit: u32, gone: Option<&str>) -> Vec<Vec<String>> {
        let mut list: Vec<String> = list.iter().map(|item| (*item).to_owned()).collect();
        let (mut pages, mut cursor) = (Vec::new(), None);
        loop {
            let asked = Paging {
                limit: Some(limit),
                cursor,
            };
            let page = Page::of(list.clone(), &asked, Clone::clone).ok().unwrap();
            pages.push(page.items);
            cursor = page.next_cursor;
            list.retain(|item| Some(item.as_str()) != gone);
            if cursor.is_none() {
                return pages;
            }
        }
    }

    #[test]
    fn every_item_comes_once() {
        assert_eq!(
            pages(&["a", "b", "c"], 2, None),
            [vec!["a", "b"], vec!["c"]]
        );
        assert_eq!(pages(&["a", "b"], 2, None), [["a", "b"]]);
        assert_eq!(pages(&[], 2, None), [Vec::<String>::new()]);
    }

    #[test]
    fn an_item_that_goes_away_does_not_hide_its_neighbours() {
        assert_eq!(pages(&["a", "b", "c"], 1, Some("a")), [["a"], ["b"], ["c"]]);
    }

    #[test]
    fn what_is_no_page_is_refused() {
        for (limit, cursor) in [
            (Some(0), None),
            (Some(1001), None),
            (None, Some("x")),
            (None, Some("")),
        ] {
            let asked = Paging {
                limit,
                cursor: cursor.map(str::to_owned),
            };
            let problem = Page::of(vec!["a"], &asked, |item| (*item).to_owned()).err();
            assert_eq!(problem.unwrap().code(), "request.query");
        }
    }
}
