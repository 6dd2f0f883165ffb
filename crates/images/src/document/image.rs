//! An image's configuration: its platform, its layers, and how it is to be run.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Invalid;
use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::printable;
use crate::platform::Platform;

/// The longest path, as the kernel has it, and the longest name of a user.
const LONGEST_PATH: usize = 4095;
const LONGEST_USER: usize = 255;
/// The most volumes that an image can ask for: each is a folder and a mount of every server.
const MOST_VOLUMES: usize = 64;

/// The parsed configuration of an image.
#[derive(Debug)]
pub(crate) struct ImageDocument {
    pub(crate) platform: Platform,
    /// The digests of the uncompressed layers, lowest first.
    pub(crate) diff_ids: Vec<Digest>,
    pub(crate) config: ImageConfig,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    os: Option<String>,
    #[serde(default)]
    architecture: Option<String>,
    #[serde(default)]
    variant: Option<String>,
    #[serde(default)]
    config: Option<RawConfig>,
    rootfs: RawLayers,
}

#[derive(Deserialize)]
struct RawLayers {
    #[serde(default)]
    diff_ids: Option<Vec<Digest>>,
}

/// Some tools write `null` for empty values.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawConfig {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    volumes: Option<BTreeMap<String, IgnoredAny>>,
    working_dir: Option<String>,
    exposed_ports: Option<BTreeMap<String, IgnoredAny>>,
    labels: Option<BTreeMap<String, String>>,
    stop_signal: Option<String>,
}

impl ImageDocument {
    /// Parses a configuration.
    pub(crate) fn parse(bytes: &[u8], what: &str) -> Result<Self, Invalid> {
        let raw: Raw = serde_json::from_slice(bytes).map_err(|error| {
            let why = format!("it is not the JSON of an image's configuration: {error}");
            Invalid::new(what, printable(&why))
        })?;
        let config = raw.config.unwrap_or_default();
        let env = config.env.unwrap_or_default();
        let pair = |entry: String| match entry.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (entry, String::new()),
        };
        let config = ImageConfig {
            entrypoint: config.entrypoint.unwrap_or_default(),
            command: config.cmd.unwrap_or_default(),
            user: config.user.unwrap_or_default(),
            working_dir: config.working_dir.unwrap_or_default(),
            env: env
                .into_iter()
                .map(pair)
                .filter(|(name, _)| !name.is_empty())
                .collect(),
            volumes: config.volumes.unwrap_or_default().into_keys().collect(),
            exposed_ports: config
                .exposed_ports
                .unwrap_or_default()
                .into_keys()
                .collect(),
            stop_signal: config.stop_signal.filter(|signal| !signal.is_empty()),
            labels: config.labels.unwrap_or_default(),
        };
        if has_nul(&config) {
            return Err(Invalid::new(
                what,
                "a value in it contains a NUL, which no program can be given",
            ));
        }
        check(&config).map_err(|why| Invalid::new(what, why))?;
        Ok(Self {
            platform: Platform {
                os: raw.os.unwrap_or_default(),
                architecture: raw.architecture.unwrap_or_default(),
                variant: raw.variant.filter(|variant| !variant.is_empty()),
            },
            diff_ids: raw.rootfs.diff_ids.unwrap_or_default(),
            config,
        })
    }
}

/// Refuses what cannot be run and would only make errors and terminals unreadable.
fn check(config: &ImageConfig) -> Result<(), String> {
    if config.volumes.len() > MOST_VOLUMES {
        let given = config.volumes.len();
        return Err(format!(
            "it has {given} volumes; at most {MOST_VOLUMES} are supported"
        ));
    }
    let program = config.entrypoint.iter().chain(&config.command).next();
    let program = program.map(|program| ("program", program, LONGEST_PATH));
    let volumes = config.volumes.iter();
    let volumes = volumes.map(|path| ("volume", path, LONGEST_PATH));
    let rest = [
        ("user", &config.user, LONGEST_USER),
        ("working folder", &config.working_dir, LONGEST_PATH),
    ];
    for (what, text, most) in program.into_iter().chain(volumes).chain(rest) {
        if text.len() > most {
            return Err(format!(
                "the name of a {what} has {} bytes; at most {most} are possible",
                text.len()
            ));
        }
        if text.chars().any(char::is_control) {
            let text = printable(text);
            return Err(format!(
                "the name of a {what} contains control characters: `{text}`"
            ));
        }
    }
    Ok(())
}

fn has_nul(config: &ImageConfig) -> bool {
    let env = config.env.iter().flat_map(|(name, value)| [name, value]);
    let words = config.entrypoint.iter().chain(&config.command);
    let paths = config
        .volumes
        .iter()
        .chain([&config.user, &config.working_dir]);
    env.chain(words)
        .chain(paths)
        .any(|text| text.contains('\0'))
}
