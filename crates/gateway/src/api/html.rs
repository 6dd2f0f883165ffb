//! HTML pages: no scripts, no external resources, light and dark.

use std::fmt::Write as _;

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};

const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

const STYLE: &str = include_str!("html/style.css");

/// Answers with a page.
pub(super) fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n\
         <link rel=\"stylesheet\" href=\"/api/v1/docs/style.css\">\n</head>\n<body>\n{body}\n</body>\n</html>\n",
        escaped(title)
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ];
    (status, headers, text).into_response()
}

/// Returns the style sheet.
pub(super) async fn style() -> Response {
    let kind = HeaderValue::from_static("text/css; charset=utf-8");
    ([(CONTENT_TYPE, kind)], STYLE).into_response()
}

/// Escapes a text for HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Renders a line of prose with `code` spans.
pub(super) fn prose(text: &str) -> String {
    let mut out = String::new();
    for (place, part) in text.split('`').enumerate() {
        let part = escaped(part);
        match place % 2 {
            0 => out.push_str(&part),
            _ => write!(out, "<code>{part}</code>").expect("a String takes all"),
        }
    }
    out
}

/// Renders the little Markdown that our own pages use: headings, lists, paragraphs, `code`.
pub(super) fn markdown(text: &str) -> String {
    let mut out = String::new();
    for block in text
        .split("\n\n")
        .map(str::trim)
        .filter(|block| !block.is_empty())
    {
        if let Some(heading) = block.strip_prefix("## ") {
            out.push_str(&format!("<h2>{}</h2>\n", prose(heading)));
        } else if let Some(heading) = block.strip_prefix("# ") {
            out.push_str(&format!("<h1>{}</h1>\n", prose(heading)));
        } else if block.starts_with("- ") {
            let items = block.lines().map(|line| line.trim_start_matches("- "));
            let items: String = items
                .map(|item| format!("<li>{}</li>", prose(item)))
                .collect();
            out.push_str(&format!("<ul>{items}</ul>\n"));
        } else {
            out.push_str(&format!("<p>{}</p>\n", prose(&block.replace('\n', " "))));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_becomes_markup() {
        assert_eq!(
            prose("a <b> `x<y` & \"c\""),
            "a &lt;b&gt; <code>x&lt;y</code> &amp; &quot;c&quot;"
        );
    }

    #[test]
    fn our_own_pages_are_rendered() {
        let html = markdown("# `a.b`\n\nOne\nline.\n\n- x\n- `y`\n\n## What\n");
        let expected = "<h1><code>a.b</code></h1>\n<p>One line.</p>\n\
                        <ul><li>x</li><li><code>y</code></li></ul>\n<h2>What</h2>\n";
        assert_eq!(html, expected);
    }
}
