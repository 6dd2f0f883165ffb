//! What is shown of a hosted instance besides its isolation: the image it runs, the limits it is held
//! to, and how it reaches the network. Plain values; the drivers fill them in.

use super::PromiseState;

/// What is known of a hosted instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostingReport {
    /// The image it runs; nothing for a command.
    pub image: Option<ImageReport>,
    /// What it may use, and whether that is enforced.
    pub limits: Vec<LimitReport>,
    /// The network it was given: `none`, `egress` or `full`.
    pub network: &'static str,
    /// The hosts and ports that it may connect to, if it has `egress`.
    pub egress: Vec<String>,
    /// The loopback address at which it can be reached without the gateway: grants and audit do not
    /// apply there.
    pub published: Option<String>,
    /// The paths of its volumes.
    pub volumes: Vec<String>,
}

/// An image as an instance runs it.
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
    /// The user that the image asks for.
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
    /// What it is.
    pub value: LimitValue,
    /// Whether it is enforced.
    pub state: PromiseState,
    /// How it is enforced, or why it is not.
    pub detail: String,
}

/// The value of a limit, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LimitValue {
    /// Processor cores.
    Cores(f64),
    /// Bytes.
    Bytes(u64),
    /// A number of things.
    Count(u64),
}
