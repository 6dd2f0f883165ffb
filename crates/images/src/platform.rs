//! The operating system and processor architecture of an image.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A platform, in the terms of the OCI specification.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`, …
    pub architecture: String,
    /// Such as `v8` of arm64, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// Returns the platform that this machine runs.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        }
    }

    /// Returns whether an image for `offered` runs on this platform. Every arm64 is `v8`, stated or
    /// not; without a required variant any variant is accepted.
    pub(crate) fn accepts(&self, offered: &Self) -> bool {
        let variant = |platform: &Self| match (&platform.variant, platform.architecture.as_str()) {
            (None, "arm64") => Some("v8".to_owned()),
            (variant, _) => variant.clone(),
        };
        self.os == offered.os
            && self.architecture == offered.architecture
            && (self.variant.is_none() || variant(self) == variant(offered))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        Platform {
            os: parts.next().unwrap(),
            architecture: parts.next().unwrap(),
            variant: parts.next(),
        }
    }

    #[test]
    fn a_variant_counts_only_where_it_is_asked_for() {
        let accepts = |wanted: &str, offered: &str| platform(wanted).accepts(&platform(offered));
        assert!(accepts("linux/amd64", "linux/amd64"));
        assert!(accepts("linux/arm64", "linux/arm64/v8"));
        assert!(accepts("linux/arm64/v8", "linux/arm64"));
        assert!(!accepts("linux/arm/v6", "linux/arm/v7"));
        assert!(!accepts("linux/amd64", "linux/arm64"));
        assert!(!accepts("linux/amd64", "windows/amd64"));
    }
}
