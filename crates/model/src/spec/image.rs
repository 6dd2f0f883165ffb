//! A server that is an OCI image, run by Gantry itself: the image, overrides of its configuration,
//! and its options.
//!
//! Settings shared with hosted commands (volumes, network, provider) are in `hosting`. Entry point:
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

/// An image and the overrides of its configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageLaunch {
    /// The reference: `registry/repository[:tag][@sha256:…]`.
    pub image: String,
    /// Replaces the image's entry point, unless empty. The image's own arguments are then not used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Replaces the image's arguments, unless empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Variables in addition to the image's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The working folder inside the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// The user inside: `name`, `uid`, `uid:gid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// When the image is pulled.
    #[serde(default)]
    pub pull: Pull,
    /// Resource limits; the defaults of hosted servers apply to missing ones.
    #[serde(default)]
    pub limits: ResourceLimits,
    /// Volumes, network, port and isolation.
    #[serde(default)]
    pub hosting: Hosting,
    /// The texts before variables were expanded; never stored together with their values.
    #[serde(skip)]
    pub written: Written,
}

/// When an image is pulled. fault C6
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pull {
    /// If it is not in the store: a tag keeps the digest of its first pull.
    #[default]
    Missing,
    /// At every start: an image that changed under its tag is used.
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

    /// Returns the effective limits: as set, else those of hosted servers. row 1.16
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
