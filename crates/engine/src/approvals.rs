//! Calls that wait for an approver: held with the version of their tool and the hash of their arguments,
//! allowed or refused once, and refused when their time is over.
//!
//! A held call is in memory only. It is on record already, as one row; if the gateway ends, the row becomes
//! `unknown` like that of any call that was cut off, and nothing was sent. Its caller's key, its own
//! cancellation and the end of the gateway take it away. How many calls and bytes are held is bounded by
//! agent and by project. Entry points: [`Approvals::hold`] and [`Approvals::decide`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gantry_model::hex::hex;
use gantry_model::id::{AgentName, CallId, KeyId, ServerName};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::clock::unix_ms;
use crate::error::{AdminError, CallError};

/// How many calls of one agent may be held.
const MOST_OF_AGENT: usize = 32;
/// How many calls of a project may be held.
const MOST_OF_PROJECT: usize = 256;
/// How many bytes of arguments a project's held calls may have.
const MOST_BYTES: usize = 16 << 20;

/// A call that waits for an approver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCall {
    /// Its id, in the audit as well.
    pub call: CallId,
    /// Who calls.
    pub agent: AgentName,
    /// With which key.
    pub key: KeyId,
    /// For whom, as far as it is known.
    pub user: Option<String>,
    /// The server.
    pub server: ServerName,
    /// The tool, prompt or resource.
    pub item: String,
    /// The method.
    pub method: String,
    /// The version of the tool that is called.
    pub tool_version: Option<String>,
    /// The arguments, without secrets and cut.
    pub arguments: String,
    /// The SHA-256 of the arguments as they will be sent.
    pub arguments_hash: String,
    /// Which grant asks for an approval.
    pub grant: Option<String>,
    /// Since when it waits, in milliseconds since 1970.
    pub since_ms: u64,
    /// Until when, in milliseconds since 1970.
    pub until_ms: u64,
}

/// What an approver says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApproverDecision {
    /// Whether the call is made.
    pub allowed: bool,
    /// Who decided.
    pub by: String,
    /// Why, in the approver's words.
    pub reason: String,
}

/// The calls of a project that wait for an approver.
pub(crate) struct Approvals {
    held: Mutex<BTreeMap<CallId, Waiting>>,
    timeout_ms: AtomicU64,
}

struct Waiting {
    call: HeldCall,
    bytes: usize,
    decide: oneshot::Sender<ApproverDecision>,
}

/// Takes a call away when nobody waits for it any more.
struct Held<'a> {
    approvals: &'a Approvals,
    call: CallId,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.approvals.held.lock().remove(&self.call);
    }
}

impl Approvals {
    pub(crate) fn new(timeout: Duration) -> Self {
        let approvals = Self {
            held: Mutex::default(),
            timeout_ms: AtomicU64::new(0),
        };
        approvals.follow(timeout);
        approvals
    }

    /// Returns how long a call is held.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    /// Takes over how long calls are held.
    pub(crate) fn follow(&self, timeout: Duration) {
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.timeout_ms.store(timeout, Ordering::Relaxed);
    }

    /// Holds a call until somebody decides, for at most that long; returns who allowed it. `on_hold` is called
    /// once it can be decided on.
    pub(crate) async fn hold(
        &self,
        call: HeldCall,
        within: Duration,
        arguments_bytes: usize,
        on_hold: impl FnOnce(),
    ) -> Result<ApproverDecision, CallError> {
        let (server, item) = (call.server.clone(), call.item.clone());
        let (decide, decided) = oneshot::channel();
        let id = call.call;
        self.add(Waiting {
            call,
            bytes: arguments_bytes,
            decide,
        })?;
        let _held = Held {
            approvals: self,
            call: id,
        };
        on_hold();
        match timeout(within, decided).await {
            Ok(Ok(decision)) if decision.allowed => Ok(decision),
            Ok(Ok(decision)) => Err(CallError::ApprovalRefused {
                server,
                item,
                by: decision.by,
                reason: decision.reason,
            }),
            Ok(Err(_)) | Err(_) => Err(CallError::ApprovalExpired {
                server,
                item,
                after: within,
            }),
        }
    }

    fn add(&self, waiting: Waiting) -> Result<(), CallError> {
        let mut held = self.held.lock();
        let agent = &waiting.call.agent;
        let of_agent = held.values().filter(|one| one.call.agent == *agent).count();
        let bytes: usize = held.values().map(|one| one.bytes).sum();
        if of_agent >= MOST_OF_AGENT || held.len() >= MOST_OF_PROJECT {
            return Err(CallError::TooManyApprovals {
                limit: match of_agent >= MOST_OF_AGENT {
                    true => format!("{MOST_OF_AGENT} calls of this agent"),
                    false => format!("{MOST_OF_PROJECT} calls of the project"),
                },
            });
        }
        if bytes + waiting.bytes > MOST_BYTES {
            return Err(CallError::TooManyApprovals {
                limit: format!("calls with {} MiB of arguments", MOST_BYTES >> 20),
            });
        }
        held.insert(waiting.call.call, waiting);
        Ok(())
    }

    /// Returns the calls that wait, the oldest first.
    pub(crate) fn all(&self) -> Vec<HeldCall> {
        let held = self.held.lock();
        held.values().map(|waiting| waiting.call.clone()).collect()
    }

    /// Returns one call that waits.
    pub(crate) fn one(&self, call: CallId) -> Option<HeldCall> {
        self.held
            .lock()
            .get(&call)
            .map(|waiting| waiting.call.clone())
    }

    /// Tells the call that waits; once.
    pub(crate) fn decide(
        &self,
        call: CallId,
        decision: ApproverDecision,
    ) -> Result<HeldCall, AdminError> {
        let unknown = || AdminError::UnknownApproval {
            id: call.to_string(),
        };
        let waiting = self.held.lock().remove(&call).ok_or_else(unknown)?;
        // Whoever waited may have gone in this very moment.
        let told = waiting.decide.send(decision);
        told.map_err(|_| unknown())?;
        Ok(waiting.call)
    }
}

/// Returns the hash that an approval is bound to.
pub(crate) fn arguments_hash(arguments: &str) -> String {
    hex(&Sha256::digest(arguments.as_bytes()))
}

/// Returns when a call's time is over, for people.
pub(crate) fn until_ms(within: Duration) -> u64 {
    let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    unix_ms().saturating_add(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(number: u128, agent: &str) -> HeldCall {
        HeldCall {
            call: CallId::new(1, number),
            agent: agent.parse().unwrap(),
            key: KeyId::from_random(1),
            user: None,
            server: "files".parse().unwrap(),
            item: "delete".to_owned(),
            method: "tools/call".to_owned(),
            tool_version: Some("1-abc".to_owned()),
            arguments: "{}".to_owned(),
            arguments_hash: arguments_hash("{}"),
            grant: None,
            since_ms: 0,
            until_ms: 0,
        }
    }

    fn decision(allowed: bool) -> ApproverDecision {
        ApproverDecision {
            allowed,
            by: "ann".to_owned(),
            reason: "because".to_owned(),
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_call_is_decided_once_or_its_time_is_over() {
        let approvals = Approvals::new(MINUTE);
        let one = held(1, "bot");
        let id = one.call;
        let allow = async {
            tokio::task::yield_now().await;
            assert_eq!(approvals.all().len(), 1);
            approvals.decide(id, decision(true)).unwrap();
            assert!(approvals.decide(id, decision(false)).is_err());
        };
        let (held_call, ()) = tokio::join!(approvals.hold(one, MINUTE, 2, || {}), allow);
        assert_eq!(held_call.unwrap().by, "ann");
        let refuse = async {
            tokio::task::yield_now().await;
            approvals
                .decide(CallId::new(1, 2), decision(false))
                .unwrap();
        };
        let (refused, ()) = tokio::join!(approvals.hold(held(2, "bot"), MINUTE, 2, || {}), refuse);
        assert!(matches!(refused, Err(CallError::ApprovalRefused { .. })));
        let late = approvals.hold(held(3, "bot"), MINUTE, 2, || {}).await;
        assert!(matches!(late, Err(CallError::ApprovalExpired { .. })));
        assert!(approvals.all().is_empty());
        // Who goes away holds nothing any more.
        let gone = timeout(
            Duration::from_secs(1),
            approvals.hold(held(4, "bot"), MINUTE, 2, || {}),
        );
        assert!(gone.await.is_err());
        assert!(approvals.all().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_bounded() {
        let approvals = Approvals::new(MINUTE);
        let waits = (0..32).map(|number| approvals.hold(held(number, "bot"), MINUTE, 1, || {}));
        let one_more = async {
            tokio::task::yield_now().await;
            let refused = approvals.hold(held(99, "bot"), MINUTE, 1, || {}).await;
            assert!(matches!(refused, Err(CallError::TooManyApprovals { .. })));
            let huge = approvals
                .hold(held(98, "other"), MINUTE, MOST_BYTES, || {})
                .await;
            assert!(matches!(huge, Err(CallError::TooManyApprovals { .. })));
        };
        tokio::join!(futures_util::future::join_all(waits), one_more);
    }
}
