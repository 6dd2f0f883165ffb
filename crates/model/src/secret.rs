//! Text that must not be seen, and how it is kept out of what we show.
//!
//! `SecretText` carries a value, `Redactor` removes known values from a text, `mask_members` hides
//! what looks like a credential in JSON, `told` knows secrets that nobody declared. None of them prints, logs or stores anything.

mod mask;
mod redact;
mod told;

use std::fmt;
use std::hint::black_box;

pub use self::mask::{is_credential, mask_members};
pub use self::redact::Redactor;
pub use self::told::{hide_arguments, is_secret_name, looks_secret, secret_arguments, userinfo};

/// What stands in the place of something hidden.
pub const REDACTED: &str = "[redacted]";

/// A secret's value: it has no `Display`, its `Debug` hides it, and it is wiped when dropped.
///
/// The wiping is best effort: what was copied out, by us or by an allocator, is not found again.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Takes a value into care.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// Returns the value, for the one place that has to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Drop for SecretText {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        black_box(&bytes);
    }
}

#[cfg(test)]
mod tests;
