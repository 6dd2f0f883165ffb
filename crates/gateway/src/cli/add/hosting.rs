//! The flags of `gantry add` for servers that Gantry hosts: images, and what they may use.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

/// What an image is given.
#[derive(Debug, Args)]
#[command(next_help_heading = "Hosted servers")]
pub(in crate::cli) struct Hosting {
    /// The image to run; its arguments follow after `--`
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["address", "profile"])]
    pub(super) image: Option<String>,
    /// The entry point in the place of the image's; may be given several times, one word each
    #[arg(
        long,
        value_name = "WORD",
        requires = "image",
        allow_hyphen_values = true
    )]
    entrypoint: Vec<String>,
    /// The user inside the image: `name`, `uid` or `uid:gid`
    #[arg(long, value_name = "USER", requires = "image")]
    user: Option<String>,
    /// When to pull the image
    #[arg(long, value_enum, requires = "image")]
    pull: Option<PullFlag>,
    /// A path inside whose content is kept; may be given several times
    #[arg(long, value_name = "PATH", conflicts_with = "address")]
    volume: Vec<String>,
    /// Limit of CPU cores, such as `0.5`
    #[arg(long, value_name = "CORES", conflicts_with = "address")]
    cpu: Option<String>,
    /// Memory limit, such as `512M`
    #[arg(long, value_name = "SIZE", conflicts_with = "address")]
    memory: Option<String>,
    /// Disk limit, such as `1G`
    #[arg(long, value_name = "SIZE", conflicts_with = "address")]
    disk: Option<String>,
    /// Limit of processes and threads
    #[arg(long, value_name = "N", conflicts_with = "address")]
    pids: Option<u64>,
    /// A host and port that it may connect to; may be given several times
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["address", "network"])]
    egress: Vec<String>,
    /// Network access: none, or full
    #[arg(long, value_enum, conflicts_with = "address")]
    network: Option<NetworkFlag>,
    /// The port inside at which it answers over HTTP, instead of stdin and stdout
    #[arg(long, value_name = "PORT", conflicts_with = "address")]
    port: Option<u16>,
    /// A port of 127.0.0.1 that leads there past grants and audit
    #[arg(long, value_name = "PORT", requires = "port")]
    publish: Option<u16>,
    /// The isolation it runs in
    #[arg(long, value_name = "NAME", conflicts_with = "address")]
    provider: Option<String>,
    /// The weakest isolation in which it may run
    #[arg(long, value_name = "NAME", conflicts_with = "address")]
    isolation_floor: Option<String>,
    /// After which exits it is started again
    #[arg(long, value_enum, conflicts_with = "address")]
    restart: Option<RestartFlag>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PullFlag {
    Missing,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NetworkFlag {
    None,
    Full,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RestartFlag {
    Always,
    OnFailure,
    Never,
}

impl Hosting {
    /// Returns the members of the registration that the flags set.
    pub(super) fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        let list = |list: &[String]| (!list.is_empty()).then(|| json!(list));
        let word = |word: &Option<String>| word.as_deref().map(Value::from);
        put("image", word(&self.image));
        put("entrypoint", list(&self.entrypoint));
        put("user", word(&self.user));
        put(
            "pull",
            self.pull.map(|pull| {
                Value::from(match pull {
                    PullFlag::Missing => "missing",
                    PullFlag::Always => "always",
                    PullFlag::Never => "never",
                })
            }),
        );
        put("volumes", list(&self.volume));
        put("network", list(&self.egress));
        put(
            "network",
            self.network.map(|network| {
                Value::from(match network {
                    NetworkFlag::None => "none",
                    NetworkFlag::Full => "full",
                })
            }),
        );
        put("port", self.port.map(Value::from));
        put("published_port", self.publish.map(Value::from));
        put("provider", word(&self.provider));
        put("isolation_floor", word(&self.isolation_floor));
        put(
            "restart_policy",
            self.restart.map(|restart| {
                Value::from(match restart {
                    RestartFlag::Always => "always",
                    RestartFlag::OnFailure => "on-failure",
                    RestartFlag::Never => "never",
                })
            }),
        );
        let limits = [
            ("cpu", word(&self.cpu)),
            ("memory", word(&self.memory)),
            ("disk", word(&self.disk)),
            ("pids", self.pids.map(Value::from)),
        ];
        let limits: Map<String, Value> = limits
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect();
        if !limits.is_empty() {
            members.insert("limits".to_owned(), limits.into());
        }
        members
    }
}
