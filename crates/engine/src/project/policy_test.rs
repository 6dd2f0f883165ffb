//! Tries a change of policy on recorded calls: the recorded decision of each, and the new one.
//! Nothing is changed or called. A call whose record lacks something that the decision needs is
//! undecided. Entry point: [`Project::test_policy`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gantry_model::caller::KeyKind;
use gantry_model::grant::{
    AccessRequest, Arguments, Effect, Grant, GrantSet, MethodClass, ReadOnlyHint, Refusal, Verdict,
    class_of,
};
use gantry_model::id::{AgentName, CallId, GrantId, KeyId, ServerName};
use gantry_model::jsonrpc::Raw;
use gantry_model::secret::REDACTED;
use gantry_store::{CallFilter, CallRow, CallStatus};

use super::Project;
use crate::access::{PolicyChange, PolicyRows};
use crate::error::EngineError;

/// How many calls are read at once.
const PAGE: u32 = 500;

/// The result of the test for one recorded call.
#[derive(Debug, Clone)]
pub struct TestedCall {
    /// The call.
    pub call: CallId,
    /// When it was received, in milliseconds since 1970.
    pub started_ms: u64,
    /// Its agent.
    pub agent: String,
    /// Its server.
    pub server: String,
    /// Its tool, prompt or resource.
    pub item: String,
    /// The recorded decision: `allow`, `ask` or `deny`.
    pub recorded: &'static str,
    /// The new decision: the same keywords, or `undecided`.
    pub decision: &'static str,
    /// Why.
    pub why: String,
}

/// The result of the test for all calls.
#[derive(Debug, Clone, Default)]
pub struct PolicyReport {
    /// How many calls were tested.
    pub calls: u64,
    /// How many have the same decision.
    pub same: u64,
    /// How many have another decision.
    pub differ: u64,
    /// How many cannot be decided from the record.
    pub undecided: u64,
    /// How many were not subject to grants, such as calls of unknown tools.
    pub not_judged: u64,
    /// Those that differ or are undecided, newest first.
    pub items: Vec<TestedCall>,
}

/// Maximum number of listed calls.
const MOST_ITEMS: usize = 1000;

impl Project {
    /// Tests a change on the newest recorded calls, at most `last` of them.
    pub async fn test_policy(
        &self,
        change: PolicyChange,
        since_ms: Option<u64>,
        last: u32,
    ) -> Result<PolicyReport, EngineError> {
        let mut sets = Sets {
            policy: self.access.changed_policy(change).await?,
            admins: self.access.admin_keys(),
            asking: self.asking_grants().await?,
            made: HashMap::new(),
        };
        let mut report = PolicyReport::default();
        let mut filter = CallFilter {
            since_ms,
            limit: PAGE.min(last),
            ..CallFilter::default()
        };
        while report.calls < u64::from(last) {
            let rows = self.calls(&filter).await?;
            for row in &rows {
                if report.calls == u64::from(last) {
                    break;
                }
                report.calls += 1;
                self.test_call(row, &mut sets, &mut report).await;
            }
            match rows.last() {
                Some(oldest) if rows.len() == filter.limit as usize => {
                    filter.before = Some(oldest.id);
                }
                _ => break,
            }
        }
        Ok(report)
    }

    /// Returns the grants that ask for an approval.
    async fn asking_grants(&self) -> Result<HashSet<GrantId>, EngineError> {
        let mut grants = self.access.grants().await?;
        grants.retain(|view| {
            let effect = view.grant.as_ref().map(Grant::effect);
            effect == Some(Effect::Ask)
        });
        Ok(grants.into_iter().map(|view| view.id).collect())
    }

    async fn test_call(&self, row: &CallRow, sets: &mut Sets, report: &mut PolicyReport) {
        let (Some(recorded), Some(set)) = (sets.recorded(row), sets.of(row)) else {
            report.not_judged += 1;
            return;
        };
        let class = class_of(&row.method);
        let server = match row.server.as_str() {
            ServerName::NATIVE => Ok(ServerName::native()),
            name => name.parse::<ServerName>(),
        };
        let (Ok(server), true) = (server, is_use(class, row)) else {
            report.not_judged += 1;
            return;
        };
        let facts = self.tool_facts(&server, &row.tool, None).await;
        let arguments = arguments(class, row);
        let (verdict, why) = decided(&set, class, &server, &row.tool, &arguments, facts.hint);
        let decision = verdict.as_str();
        if verdict == Verdict::Undecided {
            report.undecided += 1;
        } else if decision == recorded {
            report.same += 1;
            return;
        } else {
            report.differ += 1;
        }
        if report.items.len() < MOST_ITEMS {
            report.items.push(TestedCall {
                call: row.id,
                started_ms: row.started_ms,
                agent: row.agent.clone(),
                server: row.server.clone(),
                item: row.tool.clone(),
                recorded,
                decision,
                why,
            });
        }
    }
}

/// The grants of callers, computed when first needed.
struct Sets {
    policy: PolicyRows,
    /// Whose calls need no grants.
    admins: HashSet<KeyId>,
    /// Which grants ask for an approval.
    asking: HashSet<GrantId>,
    made: HashMap<(String, String), Option<Arc<GrantSet>>>,
}

impl Sets {
    fn of(&mut self, row: &CallRow) -> Option<Arc<GrantSet>> {
        let key = (row.agent.clone(), row.key.clone());
        let set = self.made.entry(key).or_insert_with(|| {
            let agent: AgentName = row.agent.parse().ok()?;
            let key: Option<KeyId> = row.key.parse().ok();
            if key.is_some_and(|key| self.admins.contains(&key)) {
                return None;
            }
            Some(Arc::new(self.policy.set_of(KeyKind::Agent, key, &agent)))
        });
        set.clone()
    }

    /// Returns the decision of the grants about a call; `None` if they were not consulted or did
    /// not decide.
    fn recorded(&self, row: &CallRow) -> Option<&'static str> {
        // An approved call has the outcome of any other: that it was asked for says its grant.
        let grant = row
            .details
            .grant
            .as_deref()
            .and_then(|grant| grant.parse().ok());
        let was_asked = grant.is_some_and(|grant| self.asking.contains(&grant));
        match (row.status, row.code.as_deref()) {
            (_, Some("grant.unbound" | "grant.denied" | "grant.arguments")) => Some("deny"),
            (_, Some("grant.approval")) => Some("ask"),
            (_, Some(code)) if code.starts_with("approval.") => Some("ask"),
            // A call that was refused for another reason was allowed by the grants, unless its
            // server is unknown.
            (CallStatus::Refused, _) if row.server.is_empty() => None,
            _ if was_asked => Some("ask"),
            _ => Some("allow"),
        }
    }
}

/// Returns whether grants decide about it by name.
fn is_use(class: MethodClass, row: &CallRow) -> bool {
    let is_named = matches!(
        class,
        MethodClass::Tool | MethodClass::Resource | MethodClass::Prompt | MethodClass::Subscription
    );
    is_named && !row.tool.is_empty()
}

/// Returns the recorded arguments, unless they were truncated, hashed or not stored.
fn arguments(class: MethodClass, row: &CallRow) -> Kept {
    let Some(text) = row.input.as_deref() else {
        return match row.input_bytes {
            0 => Kept::None,
            _ => Kept::Lost("its arguments are not on record"),
        };
    };
    if text.contains(REDACTED) {
        return Kept::Lost("its arguments are redacted");
    }
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else {
        return Kept::Lost("its arguments are cut, or only their hash is on record");
    };
    match (class, value) {
        (MethodClass::Prompt, params) => match params.get("arguments") {
            Some(arguments) => Kept::Whole(arguments.to_string()),
            None => Kept::None,
        },
        (_, value) if value.is_object() => Kept::Whole(value.to_string()),
        _ => Kept::Lost("only the hash of its arguments is on record"),
    }
}

/// The recorded arguments.
enum Kept {
    /// There were none.
    None,
    Whole(String),
    /// Why they are unavailable.
    Lost(&'static str),
}

/// Decides like for a call, and describes why.
fn decided(
    set: &GrantSet,
    class: MethodClass,
    server: &ServerName,
    item: &str,
    kept: &Kept,
    hint: ReadOnlyHint,
) -> (Verdict, String) {
    let decide = |hint| {
        let request = AccessRequest {
            class,
            server,
            item: Some(item),
            arguments: match kept {
                Kept::None => Arguments::Given(None),
                Kept::Whole(text) => Arguments::Given(Some(Raw::known(text))),
                Kept::Lost(_) => Arguments::Lost,
            },
            hint,
        };
        set.decide(&request)
    };
    let decision = match hint {
        ReadOnlyHint::NotKnown => {
            let (one, two) = (decide(ReadOnlyHint::ReadOnly), decide(ReadOnlyHint::Writes));
            if one.verdict.as_str() != two.verdict.as_str() {
                let why = "the tool's annotations are not known";
                return (Verdict::Undecided, why.to_owned());
            }
            two
        }
        ReadOnlyHint::ReadOnly | ReadOnlyHint::Writes => decide(hint),
    };
    let why = match (decision.verdict, decision.grant, kept) {
        (Verdict::Undecided, _, Kept::Lost(why)) => (*why).to_owned(),
        (Verdict::Deny(Refusal::Hidden), _, _) => "hidden by the agent's filter".to_owned(),
        (_, Some(bound), _) => format!("`{}` of {}", bound.grant.pattern(), bound.principal),
        (_, None, _) => "no grant names it".to_owned(),
    };
    (decision.verdict, why)
}
