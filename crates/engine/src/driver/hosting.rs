//! The report of a hosted instance besides its isolation: its image, its limits and its network.
//! Plain values; the drivers fill them in.

use super::PromiseState;

/// The report of a hosted instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostingReport {
    /// Its image; `None` for a command.
    pub image: Option<ImageReport>,
    /// Its limits, and whether they are enforced.
    pub limits: Vec<LimitReport>,
    /// Its network access: `none`, `egress` or `full`.
    pub network: &'static str,
    /// The hosts and ports that it may connect to with `egress`.
    pub egress: Vec<String>,
    /// The published loopback address, which bypasses the gateway: grants and audit do not apply
    /// there.
    pub published: Option<String>,
    /// The paths of its volumes.
    pub volumes: Vec<String>,
}

/// The image of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageReport {
    /// The reference as registered.
    pub reference: String,
    /// The digest that it was resolved to.
    pub digest: String,
    /// The platform, such as `linux/amd64`.
    pub platform: String,
    /// The layers, lowest first.
    pub layers: Vec<LayerReport>,
    /// When it was pulled or imported, in milliseconds since 1970.
    pub pulled_ms: u64,
    /// The user in the image's configuration.
    pub user: Option<String>,
}

/// One layer of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerReport {
    /// The digest of its unpacked content.
    pub digest: String,
    /// Its size on disk.
    pub bytes: u64,
}

/// One limit of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitReport {
    /// `cpu`, `memory`, `pids` or `disk`.
    pub name: &'static str,
    /// Its value.
    pub value: LimitValue,
    /// Whether it is enforced.
    pub state: PromiseState,
    /// How it is enforced, or why it is not.
    pub detail: String,
}

/// The value of a limit, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitValue {
    /// CPU cores.
    Cores(f64),
    /// Bytes.
    Bytes(u64),
    /// A count.
    Count(u64),
}
