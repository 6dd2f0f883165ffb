//! An entry with an image, which Gantry pulls and runs itself; and entries that run a container
//! engine, which could be converted.
//!
//! Nothing is pulled here. Entry points: [`kind`], [`settle`], [`offer`].

use gantry_model::spec::{ImageLaunch, Launch, ProcessLaunch};

use super::fields::Fields;
use super::{Entry, Fill};
use crate::config::diagnostic::Kind;
use crate::config::docker_run;

/// The start of a variable; variables in an image reference are never expanded. fault K2
const VARIABLE: &str = "${";

/// Returns an image launch with defaults; an entry that also has a command or a URL is refused.
pub(super) fn kind(fields: &mut Fields<'_, '_>, url: Option<&'static str>) -> Option<Launch> {
    let other = url.or_else(|| fields.has("command").then_some("command"));
    let Some(other) = other else {
        return Some(Launch::Image(ImageLaunch::new("")));
    };
    let span = &fields.node(other)?.span;
    let help = match other {
        "command" => {
            "keep one of them; what runs inside the image is set with `entrypoint` and `args`"
        }
        _ => "keep one of them",
    };
    let diagnostic = fields.diagnostics.diagnostic(span, Kind::Value);
    fields.diagnostics.push(
        diagnostic
            .say(format!("`image` and `{other}` exclude each other"))
            .label("an image is run by Gantry")
            .help(help),
    );
    None
}

/// Sets the defaults of an image.
pub(super) fn settle(fields: &mut Fields<'_, '_>, image: &mut ImageLaunch) {
    image.written = super::written(fields.diagnostics);
    let Some(node) = fields
        .node("image")
        .filter(|_| image.image.contains(VARIABLE))
    else {
        return;
    };
    let diagnostic = fields.diagnostics.diagnostic(&node.span, Kind::Refused);
    fields.diagnostics.push(
        diagnostic
            .say("variables are not filled in `image`")
            .label("this")
            .help("write the reference out, such as `ghcr.io/org/server:1.2`"),
    );
}

/// Warns that an entry which runs a container engine could be an image that Gantry runs.
pub(super) fn offer(fields: &mut Fields<'_, '_>, entry: &Entry, process: &ProcessLaunch) {
    if !matches!(fields.fill, Fill::From(_)) {
        return;
    }
    let Some(run) = docker_run::read(&process.command, &process.args) else {
        return;
    };
    let span = entry.node.find("command").map(|node| node.span.clone());
    let what = match run {
        Ok(run) => format!(
            "the image `{}` can be run by Gantry itself, isolated and without `{}`: `gantry import \
             --images` rewrites the entry",
            run.image.escape_debug(),
            run.engine
        ),
        Err(error) => format!("{error}; Gantry cannot run this image itself"),
    };
    fields
        .diagnostics
        .warn(&span.unwrap_or_else(|| entry.name_span.clone()), &what);
}
