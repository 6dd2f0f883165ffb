//! The read half of the OCI distribution API.

mod error;

pub use self::error::RegistryError;
