//! How a server is started, health-checked, restarted and stopped: the policy, and its options.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::{ANY_TIME, Field, Kind, SOME_TIME, ServerOption, option, plain};
use super::{Launch, period};
use crate::restart::{PolicyError, RestartPolicy};

/// How a server is started, health-checked, restarted and stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifecyclePolicy {
    /// Time limit for `initialize` and the first listing: a first `npx` downloads.
    #[serde(with = "period")]
    pub handshake: Duration,
    /// How long to wait for a response to `server/discover` before `initialize` is sent.
    #[serde(with = "period")]
    pub probe: Duration,
    /// The interval of health checks of a quiet server.
    #[serde(with = "period")]
    pub health_every: Duration,
    /// The timeout of a health check.
    #[serde(with = "period")]
    pub health_timeout: Duration,
    /// The policy for an unresponsive server; by default hosted servers are kept, others
    /// reconnected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_unresponsive: Option<WhenUnresponsive>,
    /// Time between SIGTERM and SIGKILL when it is stopped or restarted.
    #[serde(with = "period")]
    pub stop_grace: Duration,
    /// How long a lazy server may go without a call before it is stopped.
    #[serde(with = "period::option", skip_serializing_if = "Option::is_none")]
    pub idle_stop: Option<Duration>,
    /// After which exits it is restarted.
    #[serde(skip_serializing_if = "RestartWhen::is_always")]
    pub restart_when: RestartWhen,
    /// When and how fast it is restarted.
    pub restart: RestartSpec,
}

/// After which exits a server is restarted. row 1.1
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartWhen {
    /// After every exit, whatever its code.
    #[default]
    Always,
    /// After every exit except those with code 0.
    OnFailure,
    /// Never; the next start is manual or with the gateway.
    Never,
}

impl RestartWhen {
    /// Returns whether a server that ended with this exit code, or without one, is restarted.
    pub const fn restarts(self, code: Option<i32>) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => !matches!(code, Some(0)),
            Self::Never => false,
        }
    }

    fn is_always(&self) -> bool {
        *self == Self::Always
    }
}

/// When and how fast a server is restarted, as stored; `policy` turns it into decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestartSpec {
    /// How many exits within the window are followed by an immediate restart.
    pub at_once: u32,
    /// The time within which exits are counted.
    #[serde(with = "period")]
    pub window: Duration,
    /// The waits before further restarts; the last repeats.
    #[serde(rename = "ladder", with = "period::list")]
    pub backoff: Vec<Duration>,
    /// How long a server must have been healthy for the count to reset.
    #[serde(with = "period")]
    pub reset_after: Duration,
}

impl Default for RestartSpec {
    fn default() -> Self {
        Self {
            at_once: 3,
            window: Duration::from_secs(60),
            backoff: [5, 15, 45, 120, 300].map(Duration::from_secs).to_vec(),
            reset_after: Duration::from_secs(600),
        }
    }
}

impl RestartSpec {
    /// Returns the policy that decides by these numbers.
    pub fn policy(&self) -> Result<RestartPolicy, PolicyError> {
        RestartPolicy::new(
            self.at_once,
            self.window,
            self.backoff.clone(),
            self.reset_after,
            0.1,
        )
    }
}

impl Default for LifecyclePolicy {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(60),
            probe: Duration::from_millis(1500),
            health_every: Duration::from_secs(30),
            health_timeout: Duration::from_secs(10),
            when_unresponsive: None,
            stop_grace: Duration::from_secs(10),
            idle_stop: None,
            restart_when: RestartWhen::Always,
            restart: RestartSpec::default(),
        }
    }
}

impl LifecyclePolicy {
    /// Returns the defaults for a kind of server: a remote server is already running, so nothing
    /// has to be downloaded before it responds.
    pub fn of(launch: &Launch) -> Self {
        let handshake = match launch {
            Launch::Process(_) | Launch::Image(_) => Duration::from_secs(60),
            Launch::Remote(_) => Duration::from_secs(10),
        };
        Self {
            handshake,
            ..Self::default()
        }
    }
}

/// The policy for a running server that does not respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenUnresponsive {
    /// It is marked and left running: it may be doing long work.
    Keep,
    /// It is marked, stopped and restarted.
    Reconnect,
}

/// The options of the lifecycle.
pub(super) static OPTIONS: &[ServerOption] = &[
    option(
        "handshake_timeout",
        SOME_TIME,
        "How long it may take to start: `initialize` and the first listing.",
        |spec| Some(Field::Period(&mut spec.lifecycle.handshake)),
    )
    .old_names(&["life.handshake"]),
    option(
        "probe_timeout",
        ANY_TIME,
        "How long `server/discover` may stay unanswered before `initialize` is sent.",
        |spec| Some(Field::Period(&mut spec.lifecycle.probe)),
    )
    .old_names(&["life.probe"]),
    option(
        "health_every",
        SOME_TIME,
        "How often a quiet server is pinged.",
        |spec| Some(Field::Period(&mut spec.lifecycle.health_every)),
    )
    .old_names(&["life.health_every"]),
    option(
        "health_timeout",
        SOME_TIME,
        "How long it may take to answer the ping.",
        |spec| Some(Field::Period(&mut spec.lifecycle.health_timeout)),
    )
    .old_names(&["life.health_timeout"]),
    option(
        "when_unresponsive",
        Kind::Choice(&["keep", "reconnect"]),
        "What follows when it does not: it is marked and left alone, or ended and started again.",
        |spec| plain(&mut spec.lifecycle.when_unresponsive),
    )
    .old_names(&["life.when_unresponsive"]),
    option(
        "stop_grace",
        ANY_TIME,
        "Time between SIGTERM and SIGKILL when it is stopped or restarted.",
        |spec| Some(Field::Period(&mut spec.lifecycle.stop_grace)),
    )
    .old_names(&["life.stop_grace"]),
    option(
        "idle_stop",
        SOME_TIME,
        "With `start = \"lazy\"`: it is stopped after that long without a call, and the next call starts \
         it again. Subscriptions to its resources do not keep it; they are renewed then.",
        |spec| Some(Field::MaybePeriod(&mut spec.lifecycle.idle_stop)),
    )
    .absent("off"),
    option(
        "restart_policy",
        Kind::Choice(&["always", "on-failure", "never"]),
        "After which exits it is started again: all, all but those with code 0, none.",
        |spec| {
            spec.launch.hosting()?;
            plain(&mut spec.lifecycle.restart_when)
        },
    ),
    option(
        "restart.at_once",
        Kind::Whole(0, 1_000_000),
        "How many exits within `restart.window` are followed by an immediate restart.",
        |spec| {
            spec.launch.hosting()?;
            plain(&mut spec.lifecycle.restart.at_once)
        },
    )
    .old_names(&["life.restart.at_once"]),
    option(
        "restart.window",
        ANY_TIME,
        "The time within which exits are counted.",
        |spec| {
            spec.launch.hosting()?;
            Some(Field::Period(&mut spec.lifecycle.restart.window))
        },
    )
    .old_names(&["life.restart.window"]),
    option(
        "restart.backoff",
        Kind::Periods,
        "The waits before further restarts, one after the other; the last repeats.",
        |spec| {
            spec.launch.hosting()?;
            Some(Field::Periods(&mut spec.lifecycle.restart.backoff))
        },
    )
    .old_names(&["restart.ladder", "life.restart.ladder"]),
    option(
        "restart.reset_after",
        ANY_TIME,
        "How long it must have been healthy for the count to reset.",
        |spec| {
            spec.launch.hosting()?;
            Some(Field::Period(&mut spec.lifecycle.restart.reset_after))
        },
    )
    .old_names(&["life.restart.reset_after"]),
];
