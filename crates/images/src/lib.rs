//! Pulls, verifies, unpacks and keeps OCI images, without a container engine.
//!
//! Knows nothing of MCP or of running: it ends where a root file system can be mounted. Everything a
//! registry or an archive says is hostile until its digest was checked, and bounded before. Entry
//! points: [`ImageStore::open`], [`ImageStore::pull`], [`ImageStore::import`], [`ImageStore::root`].

mod config;
pub mod credentials;
mod digest;
mod error;
mod layers;
mod platform;
mod record;
mod reference;
mod registry;
mod store;

pub use self::config::ImageConfig;
pub use self::credentials::{Credentials, CredentialsError};
pub use self::digest::Digest;
pub use self::error::{ImageError, Responsible};
pub use self::layers::LayerError;
pub use self::platform::Platform;
pub use self::record::{ImageRecord, Layer};
pub use self::reference::ImageReference;
pub use self::registry::RegistryError;
pub use self::store::{ImageStore, Limits, Owners, StoreOptions};
