//! An entry with a URL: a remote server; and which kind of server an entry describes.
//!
//! Nothing is connected here; the address is checked when the connection is made. Entry points:
//! [`kind`] and [`settle`].

use gantry_model::spec::{Launch, ProcessLaunch, RemoteLaunch, TransportPreference, check_url};

use super::fields::Fields;
use super::{Entry, Fill, Owner, folder};
use crate::config::diagnostic::Kind;

/// The members that name a URL.
pub(in crate::config) const URLS: [&str; 3] = ["url", "httpUrl", "serverUrl"];

/// The placeholder for a URL with variables that may not be expanded yet.
const UNFILLED: &str = "https://needs-approval.invalid/";

/// Returns the kind of server that an entry describes, with defaults: remote, image, or command.
pub(super) fn kind(fields: &mut Fields<'_, '_>, entry: &Entry) -> Option<Launch> {
    let url = URLS.into_iter().find(|key| fields.has(key));
    let written = ["transport", "type"]
        .into_iter()
        .find(|key| fields.has(key));
    let text = written.and_then(|key| fields.node(key)?.as_text());
    let is_remote = text
        .and_then(TransportPreference::parse)
        .is_some_and(|wish| wish != TransportPreference::Auto);
    if fields.has("image") {
        return super::image::kind(fields, url);
    }
    let refused = match url {
        Some(key) if fields.has("command") => {
            let span = &fields.node(key)?.span;
            let diagnostic = fields.diagnostics.diagnostic(span, Kind::Value);
            diagnostic
                .say(format!("`command` and `{key}` exclude each other"))
                .label("a remote server has no command")
                .help("keep one of them")
        }
        Some(_) => return Some(Launch::Remote(RemoteLaunch::new(""))),
        None if is_remote && fields.diagnostics.owner != Owner::Api => {
            let diagnostic = fields.diagnostics.diagnostic(&entry.name_span, Kind::Value);
            diagnostic
                .say("`url` is missing")
                .label(format!("a server of type `{}`", text.unwrap_or_default()))
                .help("write `\"url\": \"https://…\"`, and `\"headers\": {…}` if it needs some")
        }
        None => return Some(Launch::Process(ProcessLaunch::default())),
    };
    fields.diagnostics.push(refused);
    None
}

/// Completes a remote server: its URL is checked, paths are relative to the folder.
pub(super) fn settle(fields: &mut Fields<'_, '_>, remote: &mut RemoteLaunch) {
    if let Some(file) = &remote.ca_file {
        folder::note(fields, "ca_file", &file.to_string_lossy());
        remote.ca_file = Some(fields.fill.folder().join(file));
    }
    remote.written = super::written(fields.diagnostics);
    let Some(key) = URLS.into_iter().find(|key| fields.has(key)) else {
        return;
    };
    if remote.url.is_empty() {
        return;
    }
    if key == "httpUrl" && remote.transport == TransportPreference::Auto {
        remote.transport = TransportPreference::StreamableHttp;
    }
    let (Err(error), Some(node)) = (check_url(&remote.url), fields.node(key)) else {
        return;
    };
    if matches!(fields.fill, Fill::AsWritten { .. }) && remote.url.contains("${") {
        remote.url = UNFILLED.to_owned();
        return;
    }
    let diagnostic = fields.diagnostics.diagnostic(&node.span, Kind::Refused);
    fields.diagnostics.push(
        diagnostic
            .say(format!("`{key}` cannot be used: {error}"))
            .label("this")
            .help(error.hint()),
    );
}
