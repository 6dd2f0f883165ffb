//! The options of a server, each defined once, next to its field (`calls`, `lifecycle`, `process`,
//! `image`, `hosting`, `remote`, `filter`): its name, its allowed values, its meaning.
//!
//! Everything else is derived from [`options`]: the parser of files and REST bodies, the view,
//! `gantry config explain`, the JSON Schema, the OpenAPI document and the reference page. `field`
//! determines which drivers an option applies to: it finds the option only in their specs. To add
//! one, see docs/howto/add-a-config-key.md.

mod definition;
mod field;
mod kind;

use std::time::Duration;

use super::{
    Hosting, ImageLaunch, Launch, ProcessLaunch, RemoteLaunch, ResourceLimits, ServerSpec, calls,
    filter, hosting, image, lifecycle, process, remote,
};

pub(in crate::spec) use self::definition::option;
pub use self::definition::{Drivers, ServerOption, document, named, put};
pub use self::field::{Field, Plain};
pub use self::kind::Kind;

/// A duration that may be zero.
pub(super) const ANY_TIME: Kind = Kind::Period(Duration::ZERO);
/// A duration that must not be zero.
pub(super) const SOME_TIME: Kind = Kind::Period(Duration::from_millis(1));

/// Returns every option, in the order in which they are explained.
pub fn options() -> impl Iterator<Item = &'static ServerOption> {
    let groups = [
        process::OPTIONS,
        image::OPTIONS,
        hosting::OPTIONS,
        remote::OPTIONS,
        GENERAL,
        calls::OPTIONS,
        lifecycle::OPTIONS,
        filter::OPTIONS,
    ];
    groups.into_iter().flatten()
}

/// The options of the server as a whole.
static GENERAL: &[ServerOption] = &[
    option(
        "description",
        Kind::Text,
        "What the server is for, in your words.",
        |spec| plain(&mut spec.description),
    ),
    option(
        "start",
        Kind::Choice(&["eager", "lazy"]),
        "When it starts: with the gateway, or with its first use. Over REST the default is \
         `eager` for a hosted one, `lazy` for a local or remote one.",
        |spec| plain(&mut spec.start),
    ),
];

/// Returns the launch of a command, if the server is one.
pub(super) fn process(spec: &mut ServerSpec) -> Option<&mut ProcessLaunch> {
    match &mut spec.launch {
        Launch::Process(process) => Some(process),
        Launch::Image(_) | Launch::Remote(_) => None,
    }
}

/// Returns the image and its overrides, if the server is one.
pub(super) fn image(spec: &mut ServerSpec) -> Option<&mut ImageLaunch> {
    match &mut spec.launch {
        Launch::Image(image) => Some(image),
        Launch::Process(_) | Launch::Remote(_) => None,
    }
}

/// Returns the hosting settings of a server that runs here.
pub(super) fn hosting(spec: &mut ServerSpec) -> Option<&mut Hosting> {
    match &mut spec.launch {
        Launch::Process(process) => Some(&mut process.hosting),
        Launch::Image(image) => Some(&mut image.hosting),
        Launch::Remote(_) => None,
    }
}

/// Returns the limits of a server that runs here.
pub(super) fn limits(spec: &mut ServerSpec) -> Option<&mut ResourceLimits> {
    match &mut spec.launch {
        Launch::Process(process) => Some(&mut process.limits),
        Launch::Image(image) => Some(&mut image.limits),
        Launch::Remote(_) => None,
    }
}

/// Returns the launch of a remote server, if the server is one.
pub(super) fn remote(spec: &mut ServerSpec) -> Option<&mut RemoteLaunch> {
    match &mut spec.launch {
        Launch::Remote(remote) => Some(remote),
        Launch::Process(_) | Launch::Image(_) => None,
    }
}

/// Returns a field with its own stored form.
pub(super) fn plain(field: &mut dyn Plain) -> Option<Field<'_>> {
    Some(Field::Plain(field))
}

#[cfg(test)]
mod tests;
