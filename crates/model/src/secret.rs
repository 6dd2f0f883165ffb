//! Text that must not be seen, and how it is kept out of what we show.
//!
//! `SecretText` carries a value, `Redactor` removes known values and keys of our own from a text,
//! `Template` is a text in which secrets are named, `mask_members` hides what looks like a credential in
//! JSON, `names` and `detect` know secrets that nobody declared. None of them prints, logs or stores
//! anything.

mod detect;
mod mask;
mod names;
mod own;
mod redact;
mod template;

use std::fmt;

use zeroize::Zeroize as _;

pub(crate) use self::detect::is_plausible;
pub use self::detect::{
    hide_arguments, is_given_secret, is_redactable, looks_secret, secret_arguments, userinfo,
};
pub use self::mask::mask_members;
pub(crate) use self::names::{Hint, hint_of};
pub use self::names::{is_credential, is_secret_name};
pub use self::own::{ADMIN_KEY, AGENT_KEY};
pub use self::redact::Redactor;
pub use self::template::{SecretName, SecretNameError, Template};

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
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests;
