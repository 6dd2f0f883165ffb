//! A server that is an OCI image, run by Gantry itself: which image, what is overridden of its
//! configuration, and its options.
//!
//! What holds for hosted commands as well (volumes, network, provider) is in `hosting`. Entry point:
//! [`ImageLaunch`].

mod reference;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::hosting::Hosting;
use super::options::{Kind, ServerOption, image, option, plain};
use super::process::{Profile, ResourceLimits};
use super::{Bridge, Written};

pub(super) use self::reference::check_reference;

/// An image and what is overridden of its configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageLaunch {
    /// The reference: `registry/repository[:tag][@sha256:…]`.
    pub image: String,
    /// The entry point in the place of the image's; empty leaves the image's. With one, the image's own
    /// arguments are not used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// The arguments in the place of the image's; empty leaves the image's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables on top of the image's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The working folder inside the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Who it runs as inside: `name`, `uid`, `uid:gid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When the registry is asked for the image.
    #[serde(default)]
    pub pull: Pull,
    /// What it may use at most; the defaults of hosted servers where nothing is said.
    #[serde(default)]
    pub limits: ResourceLimits,
    /// Volumes, network, port and isolation.
    #[serde(default)]
    pub hosting: Hosting,
    /// What stands in the file where variables were filled; never stored beside what they hold.
    #[serde(skip)]
    pub written: Written,
}

/// When the registry is asked for an image. fault C6
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pull {
    /// If it is not in the store: the digest that a tag had when it was pulled first is kept.
    #[default]
    Missing,
    /// At every start: an image that changed under its tag is taken.
    Always,
    /// Never: the image must have been pulled or imported.
    Never,
}

impl ImageLaunch {
    /// Makes a launch of an image with every default.
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            ..Self::default()
        }
    }

    /// Returns the limits in force: as set, else those of hosted servers. row 1.16
    pub fn limits_in_force(&self) -> ResourceLimits {
        self.limits.or(Profile::Hosted.limits())
    }

    /// Returns how messages reach it.
    pub fn bridge(&self) -> Bridge {
        self.hosting.bridge()
    }
}

/// The options of an image.
pub(super) static OPTIONS: &[ServerOption] = &[
    option(
        "image",
        Kind::Text,
        "The image to run, without a container engine: `registry/repository[:tag][@sha256:…]`. Short \
         names are those of Docker Hub. See [Hosting](hosting.md).",
        |spec| plain(&mut image(spec)?.image),
    ),
    option(
        "entrypoint",
        Kind::Texts,
        "The entry point in the place of the image's; the image's own arguments are not used then.",
        |spec| plain(&mut image(spec)?.entrypoint),
    )
    .absent("the image's"),
    option(
        "user",
        Kind::Text,
        "Who it runs as inside: `name`, `uid` or `uid:gid`.",
        |spec| plain(&mut image(spec)?.user),
    )
    .absent("the image's"),
    option(
        "pull",
        Kind::Choice(&["missing", "always", "never"]),
        "When the registry is asked: if the image is not there; at every start, which takes an image \
         that changed under its tag; or never.",
        |spec| plain(&mut image(spec)?.pull),
    ),
];
