//! Secret text, and how it is kept out of output.
//!
//! `SecretText` holds a value, `Redactor` removes known values and Gantry's own keys from a text,
//! `Template` is a text with references to secrets, `mask_members` hides apparent credentials in
//! JSON, `names` and `detect` recognise undeclared secrets. None of them prints, logs or stores
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

/// The replacement of hidden text.
pub const REDACTED: &str = "[redacted]";

/// A secret's value: it has no `Display`, its `Debug` hides it, and it is wiped when dropped.
///
/// Wiping is best effort: copies made elsewhere, for example by an allocator, are not found.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a value.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// Returns the value, for the code that must send it.
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
