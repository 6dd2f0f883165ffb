//! The details of a row besides the call and its outcome: the durations of its phases, the
//! decisions on the way, and the origin of an error.

use std::fmt;
use std::str::FromStr;

/// The details of a call; all absent in rows of earlier releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallDetails<T = String> {
    /// How long each phase took.
    pub phases: Phases,
    /// How often the call was sent to its server; absent if it never was.
    pub attempts: Option<u32>,
    /// Whether the arguments passed the tool's schema.
    pub input_check: Option<Check>,
    /// Whether the result passed the tool's output schema.
    pub output_check: Option<Check>,
    /// The origin of the error, if the call did not succeed.
    pub error_kind: Option<ErrorKind>,
    /// The revision of the project's policy that decided.
    pub policy_revision: Option<u64>,
    /// The grant that decided.
    pub grant: Option<T>,
    /// The call that this one was made for, as asserted by the caller.
    pub parent: Option<T>,
    /// Who named the user.
    pub user_source: Option<UserSource>,
}

impl<T> CallDetails<T> {
    /// Returns the details with texts of another type.
    pub(super) fn with_texts<'a, U>(&'a self, text: impl Fn(&'a T) -> U) -> CallDetails<U> {
        CallDetails {
            phases: self.phases,
            attempts: self.attempts,
            input_check: self.input_check,
            output_check: self.output_check,
            error_kind: self.error_kind,
            policy_revision: self.policy_revision,
            grant: self.grant.as_ref().map(&text),
            parent: self.parent.as_ref().map(&text),
            user_source: self.user_source,
        }
    }
}

/// The durations of the phases of a call, in microseconds; absent for a phase that was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phases {
    /// Authentication.
    pub auth_us: Option<u32>,
    /// Finding the item, and checking the grants.
    pub grant_us: Option<u32>,
    /// Checking the arguments against the tool's schema.
    pub schema_us: Option<u32>,
    /// Waiting for the server to be up and to have a free slot.
    pub queue_us: Option<u32>,
    /// Waiting for the server's response, all attempts together.
    pub server_us: Option<u32>,
    /// Checking the result against the output schema, and redacting it.
    pub output_us: Option<u32>,
}

impl Phases {
    /// Returns the phases in the order of a call.
    pub const fn in_order(&self) -> [(&'static str, Option<u32>); 6] {
        [
            ("auth", self.auth_us),
            ("grant", self.grant_us),
            ("schema", self.schema_us),
            ("queue", self.queue_us),
            ("server", self.server_us),
            ("output", self.output_us),
        ]
    }
}

/// The result of a check against a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Check {
    /// The value matches.
    Passed,
    /// The value does not match.
    Failed,
    /// There was nothing to check, or no schema to check against.
    Skipped,
}

/// The origin of the error that ended a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The connection to the server: it is down, disconnected, timed out, or sent invalid messages.
    Transport,
    /// The server answered with a JSON-RPC error.
    JsonRpc,
    /// The tool's own result reports a failure.
    Tool,
    /// The arguments or the result do not match their schema, or the params not their method.
    Schema,
    /// The caller may not do that: no grant, suspended, key ended, over a limit.
    Policy,
    /// The caller cancelled the call.
    Caller,
    /// The gateway itself.
    Gateway,
}

/// Who named the user on whose behalf an agent acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UserSource {
    /// The agent, in a header or in `_meta`.
    Agent,
    /// The issuer of the token that the call was made with.
    Token,
}

impl Check {
    const ALL: [Self; 3] = [Self::Passed, Self::Failed, Self::Skipped];

    /// Returns the verdict as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    /// Returns its number in the journal; 0 means none.
    pub const fn number(self) -> u8 {
        match self {
            Self::Passed => 1,
            Self::Failed => 2,
            Self::Skipped => 3,
        }
    }

    /// Returns the value for a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }
}

impl ErrorKind {
    const ALL: [Self; 7] = [
        Self::Transport,
        Self::JsonRpc,
        Self::Tool,
        Self::Schema,
        Self::Policy,
        Self::Caller,
        Self::Gateway,
    ];

    /// Returns the kind as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transport => "transport",
            Self::JsonRpc => "json_rpc",
            Self::Tool => "tool",
            Self::Schema => "schema",
            Self::Policy => "policy",
            Self::Caller => "caller",
            Self::Gateway => "gateway",
        }
    }

    /// Returns the number that stands for it in the journal; 0 stands for none.
    pub const fn number(self) -> u8 {
        match self {
            Self::Transport => 1,
            Self::JsonRpc => 2,
            Self::Tool => 3,
            Self::Schema => 4,
            Self::Policy => 5,
            Self::Caller => 6,
            Self::Gateway => 7,
        }
    }

    /// Returns what a number stands for.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }
}

impl UserSource {
    const ALL: [Self; 2] = [Self::Agent, Self::Token];

    /// Returns the source as stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Token => "token",
        }
    }

    /// Returns the number that stands for it in the journal; 0 stands for none.
    pub const fn number(self) -> u8 {
        match self {
            Self::Agent => 1,
            Self::Token => 2,
        }
    }

    /// Returns what a number stands for.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text in a row is not one of the keywords.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is unknown in the row of a call")]
pub struct DetailError(String);

fn find<T: Copy>(all: &[T], as_str: fn(T) -> &'static str, text: &str) -> Result<T, DetailError> {
    let found = all.iter().copied().find(|one| as_str(*one) == text);
    found.ok_or_else(|| DetailError(text.chars().take(32).collect()))
}

impl FromStr for Check {
    type Err = DetailError;

    fn from_str(text: &str) -> Result<Self, DetailError> {
        find(&Self::ALL, Self::as_str, text)
    }
}

impl FromStr for ErrorKind {
    type Err = DetailError;

    fn from_str(text: &str) -> Result<Self, DetailError> {
        find(&Self::ALL, Self::as_str, text)
    }
}

impl FromStr for UserSource {
    type Err = DetailError;

    fn from_str(text: &str) -> Result<Self, DetailError> {
        find(&Self::ALL, Self::as_str, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_come_back_as_they_went() {
        for check in Check::ALL {
            assert_eq!(check.as_str().parse(), Ok(check));
            assert_eq!(Check::from_number(check.number()), Some(check));
        }
        for kind in ErrorKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(ErrorKind::from_number(kind.number()), Some(kind));
        }
        for source in UserSource::ALL {
            assert_eq!(source.as_str().parse(), Ok(source));
            assert_eq!(UserSource::from_number(source.number()), Some(source));
        }
        assert_eq!(ErrorKind::from_number(0), None);
        assert!("Tool".parse::<ErrorKind>().is_err());
    }
}
