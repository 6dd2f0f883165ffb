//! A remote server's entry: it is checked, and then refused, since this version runs commands only.

use gantry_model::spec::check_url;

use super::{Entry, Fields, Fill, Kind};

/// Tells what is wrong with a remote server, at the least that it cannot be run.
pub(super) fn refuse(
    fields: &mut Fields<'_, '_>,
    entry: &Entry,
    kind: Option<&str>,
    urls: &[&str],
) {
    let Some(&key) = urls.first() else {
        let kind = kind.unwrap_or_default();
        let mistake = fields.told.mistake(&entry.name_span, Kind::Value);
        fields.told.push(
            mistake
                .say("`url` is missing")
                .label(format!("a server of type `{kind}`"))
                .help("write `\"url\": \"https://…\"`, and `\"headers\": {…}` if it needs some"),
        );
        return;
    };
    let url = fields.text(key);
    fields.pairs("headers");
    let Some(node) = fields.node(key) else { return };
    if fields.has("command") {
        let mistake = fields.told.mistake(&node.span, Kind::Value);
        fields.told.push(
            mistake
                .say(format!("`command` and `{key}` exclude each other"))
                .label("a remote server has no command")
                .help("keep one of them"),
        );
        return;
    }
    let Some(url) = url else { return };
    let filled = matches!(fields.fill, Fill::From(_)) || !url.contains("${");
    if filled && let Err(error) = check_url(&url) {
        let mistake = fields.told.mistake(&node.span, Kind::Refused);
        fields.told.push(
            mistake
                .say(format!("`{key}` cannot be used: {error}"))
                .label("this")
                .help(error.hint()),
        );
        return;
    }
    if fields.told.mistakes.is_empty() {
        let mistake = fields.told.mistake(&node.span, Kind::Remote);
        fields.told.push(
            mistake
                .say("this is a remote server, and this version runs commands only")
                .label("a URL")
                .help(
                    "the other servers are not touched; set `\"disabled\": true` to silence this",
                ),
        );
    }
}
