//! The limits and timeouts of calls to a server: the policy, and its options.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::{ANY_TIME, Field, Kind, SOME_TIME, ServerOption, option, plain};
use super::period;

/// How calls to a server are admitted and limited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallPolicy {
    /// The maximum number of calls in flight; the default is 1 for hosted and 32 for other stdio
    /// servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How many calls of one agent may wait for a slot; the next is refused as busy.
    pub queue: u32,
    /// The timeout of a call without a response; progress resets it.
    #[serde(with = "period")]
    pub timeout: Duration,
    /// The maximum duration of a call, regardless of progress.
    #[serde(with = "period")]
    pub timeout_max: Duration,
    /// With a concurrency of 1: how long the slot stays taken after a timeout, for a late response.
    #[serde(with = "period")]
    pub late_grace: Duration,
    /// The timeout of a server's request to the client; meanwhile the call's own timeout is paused.
    #[serde(with = "period")]
    pub ask_timeout: Duration,
    /// Whether user, session, run, step and trace are forwarded in `_meta`.
    pub pass_context: bool,
    /// What happens to results that do not fit their output schemas.
    pub output_check: OutputCheck,
    /// Whether what nobody sees is taken out of results.
    #[serde(skip_serializing_if = "is_true")]
    pub clean_results: bool,
    /// The longest result that is passed on; a longer one is cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u32>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_true(value: &bool) -> bool {
    *value
}

/// What happens to a result that does not fit the output schema of its tool. row 3.3
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputCheck {
    /// Results are not checked.
    Off,
    /// It is passed on; the record and its `_meta` say what is wrong.
    Warn,
    /// It is refused.
    #[default]
    Strict,
}

impl OutputCheck {
    /// Their names, as written.
    pub const NAMES: &'static [&'static str] = &["off", "warn", "strict"];
}

impl Default for CallPolicy {
    fn default() -> Self {
        Self {
            concurrency: None,
            queue: 256,
            timeout: Duration::from_secs(30),
            timeout_max: Duration::from_secs(600),
            late_grace: Duration::from_secs(10),
            ask_timeout: Duration::from_secs(600),
            pass_context: true,
            output_check: OutputCheck::default(),
            clean_results: true,
            result_bytes: None,
        }
    }
}

/// The options of calls.
pub(super) static OPTIONS: &[ServerOption] = &[
    option(
        "concurrency",
        Kind::Whole(1, 1024),
        "How many calls may be in flight at once.",
        |spec| plain(&mut spec.calls.concurrency),
    )
    .old_names(&["calls.concurrency"]),
    option(
        "queue",
        Kind::Whole(1, 65_536),
        "How many calls of one agent may wait; the next is refused as busy.",
        |spec| plain(&mut spec.calls.queue),
    )
    .old_names(&["calls.queue"]),
    option(
        "timeout",
        SOME_TIME,
        "How long a call may go without an answer; progress resets it.",
        |spec| Some(Field::Period(&mut spec.calls.timeout)),
    )
    .old_names(&["calls.timeout"]),
    option(
        "timeout_max",
        SOME_TIME,
        "How long a call may take in all, whatever progress it reports. At least `timeout`, if only \
         that is written.",
        |spec| Some(Field::Period(&mut spec.calls.timeout_max)),
    )
    .old_names(&["calls.timeout_max"]),
    option(
        "late_grace",
        ANY_TIME,
        "With `concurrency = 1`: how long no other call is sent after a timeout, for the late answer.",
        |spec| Some(Field::Period(&mut spec.calls.late_grace)),
    )
    .old_names(&["calls.late_grace"]),
    option(
        "ask_timeout",
        SOME_TIME,
        "How long a client may take to answer a request of the server during a call; the call's own \
         time does not run meanwhile.",
        |spec| Some(Field::Period(&mut spec.calls.ask_timeout)),
    )
    .old_names(&["calls.ask_timeout"]),
    option(
        "pass_context",
        Kind::Flag,
        "Whether user, session, run, step and trace are passed on to it in `_meta`.",
        |spec| plain(&mut spec.calls.pass_context),
    )
    .old_names(&["calls.pass_context"]),
    option(
        "output_check",
        Kind::Choice(OutputCheck::NAMES),
        "What happens to a result that does not fit the output schema of its tool: `strict` refuses it, \
         `warn` passes it on and says so in the record and in its `_meta`, `off` checks nothing.",
        |spec| plain(&mut spec.calls.output_check),
    ),
    option(
        "clean_results",
        Kind::Flag,
        "Whether escape sequences, zero-width, bidirectional and tag characters are taken out of its \
         results; `_meta` says how many.",
        |spec| plain(&mut spec.calls.clean_results),
    ),
    option(
        "result_bytes",
        Kind::Whole(1024, 16 << 20),
        "The longest result that is passed on, in bytes; a longer one is cut, and `_meta` says where.",
        |spec| plain(&mut spec.calls.result_bytes),
    )
    .absent("not cut"),
];
