//! Pulls, verifies, unpacks and stores OCI images, without a container engine.
//!
//! Knows nothing of MCP or of running containers: it ends where a root file system can be mounted.
//! All data from a registry or an archive is untrusted until its digest is verified, and its size
//! is limited before that. Entry points: [`ImageStore::open`], [`ImageStore::pull`],
//! [`ImageStore::import`], [`ImageStore::root`].

mod compression;
mod config;
pub mod credentials;
mod digest;
mod document;
mod error;
mod flat;
mod import;
mod layers;
mod platform;
mod prune;
mod pull;
mod record;
mod reference;
mod registry;
mod root;
mod store;
mod tar;
#[cfg(test)]
#[path = "../tests/it/tarball.rs"]
#[expect(dead_code, reason = "the tests of `tests/it` use the rest")]
mod tarball;
mod unpack;

pub use self::config::ImageConfig;
pub use self::credentials::{Credentials, CredentialsError};
pub use self::digest::Digest;
pub use self::error::{ImageError, Responsible};
pub use self::flat::AtPath;
pub use self::import::ImportProgress;
pub use self::layers::{LayerError, Pruned, remove_tree_by};
pub use self::platform::Platform;
pub use self::pull::{LayerProgress, Progress, PullRequest};
pub use self::record::{ImageRecord, Layer};
pub use self::reference::ImageReference;
pub use self::registry::{AddressCheck, Dial, Registry, RegistryError, RegistryOptions, Timeouts};
pub use self::root::RootLayers;
pub use self::store::{ImageStore, Limits, Owners, StoreOptions};
pub use self::tar::Refusal;
