//! Calls that wait for an approver: held with the version of their tool and the hash of their arguments,
//! allowed or refused once, and refused when their time is over.
//!
//! A held call is in memory only. It is on record already, as one row; after a crash the row becomes `unknown`
//! like that of any call that was cut off, and nothing was sent. Dropping the future that waits
//! withdraws the call. Whether a call was decided in time is settled under one lock, so that an approver is
//! never told of a decision that did not count. How many calls and bytes are held is bounded by agent and by project. Entry
//! points: [`Approvals::hold`] and [`Approvals::decide`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::hex::hex;
use gantry_model::id::{AgentName, CallId, KeyId, ServerName};
use gantry_model::settings::ApprovalPolicy;
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
    /// The arguments, without secrets, cut, and with invisible characters escaped.
    pub arguments: String,
    /// The length of all arguments.
    pub arguments_bytes: usize,
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
    policy: ArcSwap<ApprovalPolicy>,
}

struct Waiting {
    call: HeldCall,
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
    pub(crate) fn new(policy: ApprovalPolicy) -> Self {
        Self {
            held: Mutex::default(),
            policy: ArcSwap::from_pointee(policy),
        }
    }

    /// Returns how long calls are held, and who may decide.
    pub(crate) fn policy(&self) -> Arc<ApprovalPolicy> {
        self.policy.load_full()
    }

    /// Takes over another policy, for calls from now on.
    pub(crate) fn follow(&self, policy: ApprovalPolicy) {
        self.policy.store(Arc::new(policy));
    }

    /// Holds a call until somebody decides, for at most that long; returns who allowed it. `on_hold` is called
    /// once it can be decided on.
    pub(crate) async fn hold(
        &self,
        call: HeldCall,
        within: Duration,
        on_hold: impl FnOnce(),
    ) -> Result<ApproverDecision, CallError> {
        let (server, item) = (call.server.clone(), call.item.clone());
        let (decide, mut decided) = oneshot::channel();
        let id = call.call;
        self.add(Waiting { call, decide })?;
        let _held = Held {
            approvals: self,
            call: id,
        };
        on_hold();
        let decision = match timeout(within, &mut decided).await {
            Ok(decision) => decision.ok(),
            Err(_) => self.expire(id, &mut decided),
        };
        match decision {
            Some(decision) if decision.allowed => Ok(decision),
            Some(decision) => Err(CallError::ApprovalRefused {
                server,
                item,
                by: decision.by,
                reason: decision.reason,
            }),
            None => Err(CallError::ApprovalExpired {
                server,
                item,
                after: within,
            }),
        }
    }

    /// Takes a call away whose time is over, unless somebody has decided in that very moment.
    fn expire(
        &self,
        call: CallId,
        decided: &mut oneshot::Receiver<ApproverDecision>,
    ) -> Option<ApproverDecision> {
        self.held.lock().remove(&call);
        decided.try_recv().ok()
    }

    fn add(&self, waiting: Waiting) -> Result<(), CallError> {
        let mut held = self.held.lock();
        let agent = &waiting.call.agent;
        let of_agent = held.values().filter(|one| one.call.agent == *agent).count();
        let bytes: usize = held.values().map(|one| one.call.arguments_bytes).sum();
        if of_agent >= MOST_OF_AGENT || held.len() >= MOST_OF_PROJECT {
            return Err(CallError::TooManyApprovals {
                limit: match of_agent >= MOST_OF_AGENT {
                    true => format!("{MOST_OF_AGENT} calls of this agent"),
                    false => format!("{MOST_OF_PROJECT} calls of the project"),
                },
            });
        }
        if bytes + waiting.call.arguments_bytes > MOST_BYTES {
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

    /// Tells the call that waits, once. What is told here counts: its time is not over until it is taken away.
    pub(crate) fn decide(
        &self,
        call: CallId,
        decision: ApproverDecision,
    ) -> Result<HeldCall, AdminError> {
        let unknown = || AdminError::UnknownApproval {
            id: call.to_string(),
        };
        // Told under the lock, so that it cannot expire in between.
        let mut held = self.held.lock();
        let waiting = held.remove(&call).ok_or_else(unknown)?;
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
            arguments_bytes: 2,
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
        let approvals = Approvals::new(ApprovalPolicy::default());
        let one = held(1, "bot");
        let id = one.call;
        let allow = async {
            tokio::task::yield_now().await;
            assert_eq!(approvals.all().len(), 1);
            approvals.decide(id, decision(true)).unwrap();
            assert!(approvals.decide(id, decision(false)).is_err());
        };
        let (held_call, ()) = tokio::join!(approvals.hold(one, MINUTE, || {}), allow);
        assert_eq!(held_call.unwrap().by, "ann");
        let refuse = async {
            tokio::task::yield_now().await;
            approvals
                .decide(CallId::new(1, 2), decision(false))
                .unwrap();
        };
        let (refused, ()) = tokio::join!(approvals.hold(held(2, "bot"), MINUTE, || {}), refuse);
        assert!(matches!(refused, Err(CallError::ApprovalRefused { .. })));
        let late = approvals.hold(held(3, "bot"), MINUTE, || {}).await;
        assert!(matches!(late, Err(CallError::ApprovalExpired { .. })));
        assert!(approvals.all().is_empty());
        // Who goes away holds nothing any more.
        let gone = timeout(
            Duration::from_secs(1),
            approvals.hold(held(4, "bot"), MINUTE, || {}),
        );
        assert!(gone.await.is_err());
        assert!(approvals.all().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_at_the_deadline_counts_for_both_sides_or_for_none() {
        let approvals = Approvals::new(ApprovalPolicy::default());
        for number in 0..200 {
            let id = CallId::new(1, number);
            // The timer fires before or after the decision, in the same moment.
            let late = tokio::time::sleep(MINUTE);
            let decide = async {
                if number % 2 == 0 {
                    late.await;
                } else {
                    tokio::time::sleep(MINUTE - Duration::from_millis(1)).await;
                    tokio::task::yield_now().await;
                    tokio::time::advance(Duration::from_millis(1)).await;
                }
                approvals.decide(id, decision(true)).is_ok()
            };
            let (ended, decided) =
                tokio::join!(approvals.hold(held(number, "bot"), MINUTE, || {}), decide);
            assert_eq!(ended.is_ok(), decided, "{number}: {ended:?}");
        }
        // The decision that was told between the end of the time and its notice counts.
        let (decide, mut decided) = oneshot::channel();
        let call = held(1000, "bot");
        let id = call.call;
        assert!(approvals.add(Waiting { call, decide }).is_ok());
        approvals.decide(id, decision(true)).unwrap();
        assert_eq!(approvals.expire(id, &mut decided), Some(decision(true)));
        // And nobody decides on what has expired.
        let (decide, mut decided) = oneshot::channel();
        let call = held(1001, "bot");
        let id = call.call;
        assert!(approvals.add(Waiting { call, decide }).is_ok());
        assert_eq!(approvals.expire(id, &mut decided), None);
        assert!(approvals.decide(id, decision(true)).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_bounded() {
        let approvals = Approvals::new(ApprovalPolicy::default());
        let waits = (0..32).map(|number| approvals.hold(held(number, "bot"), MINUTE, || {}));
        let one_more = async {
            tokio::task::yield_now().await;
            let refused = approvals.hold(held(99, "bot"), MINUTE, || {}).await;
            assert!(matches!(refused, Err(CallError::TooManyApprovals { .. })));
            let huge = HeldCall {
                arguments_bytes: MOST_BYTES,
                ..held(98, "other")
            };
            let huge = approvals.hold(huge, MINUTE, || {}).await;
            assert!(matches!(huge, Err(CallError::TooManyApprovals { .. })));
        };
        tokio::join!(futures_util::future::join_all(waits), one_more);
    }
}
