//! Why an agent may use a tool, or may not: the checks of a call in their order, each with its
//! result.
//!
//! Uses the same set as [`GrantSet::decide`](super::GrantSet::decide); the caller supplies what the
//! server offers and any other obstacle. Entry point: [`Question::judge`].

use super::set::GrantSet;
use super::{AccessRequest, Arguments, Effect, MethodClass, ReadOnlyHint, Refusal, Verdict};
use crate::id::{AgentName, GrantId, ServerName};
use crate::jsonrpc::Raw;
use crate::status::ServerState;

/// The question whether an agent may use a tool.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The agent.
    pub agent: &'a AgentName,
    /// What it may use.
    pub set: &'a GrantSet,
    /// The server.
    pub server: &'a ServerName,
    /// The server's own name for the tool.
    pub tool: &'a str,
    /// The tool's hint.
    pub hint: ReadOnlyHint,
    /// The arguments of the call, if given.
    pub arguments: Option<Raw<'a>>,
    /// What the server offers.
    pub offer: Offer<'a>,
}

/// The state of a tool at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer<'a> {
    /// It is in the catalog.
    Offered(ServerState),
    /// The server lists it, but it is left out for this reason.
    LeftOut(&'a str),
    /// The server is ready and has no such tool.
    Missing,
    /// Its list could not be read for this reason: it is not listed, but calls by name are sent.
    Unlisted(&'a str),
    /// Unknown yet: the server is starting, or starts when it is called.
    Coming(ServerState),
    /// Unknown: the server is down.
    Away {
        /// Its state.
        state: ServerState,
        /// Why it is in that state.
        reason: Option<&'a str>,
    },
}

/// The subject of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Whether the agent, the server or the tool is suspended.
    Suspension,
    /// The decision of the grants.
    Grant,
    /// The agent's filter.
    Filter,
    /// The state of the tool at its server.
    Server,
    /// Whether another tool has the same name.
    Collision,
    /// Whether this version of the tool is approved.
    Version,
    /// Whether the arguments fit the schema.
    Schema,
}

impl Check {
    /// Returns the name of the check.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Suspension => "suspension",
            Self::Grant => "grant",
            Self::Filter => "filter",
            Self::Server => "server",
            Self::Collision => "collision",
            Self::Version => "version",
            Self::Schema => "schema",
        }
    }
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepResult {
    /// The call continues.
    Passes,
    /// The call waits for an approver.
    Asks,
    /// The call is refused.
    Stops,
    /// A remark; the call continues.
    Notes,
}

impl StepResult {
    /// Returns the result as a keyword.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passes => "passes",
            Self::Asks => "asks",
            Self::Stops => "stops",
            Self::Notes => "notes",
        }
    }
}

/// One step of the explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The subject.
    pub check: Check,
    /// The result.
    pub result: StepResult,
    /// The reason, for people.
    pub text: String,
    /// The grant that decided, if any.
    pub grant: Option<GrantId>,
}

impl Step {
    /// Creates a step without a grant.
    pub fn new(check: Check, result: StepResult, text: impl Into<String>) -> Self {
        Self {
            check,
            result,
            text: text.into(),
            grant: None,
        }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The steps, in the order of a call.
    pub steps: Vec<Step>,
}

impl Judgement {
    /// Returns whether a call would be allowed, or held for an approver.
    pub fn is_allowed(&self) -> bool {
        self.steps
            .iter()
            .all(|step| step.result != StepResult::Stops)
    }

    /// Returns the result as a keyword: `allow`, `ask` or `deny`.
    pub fn as_str(&self) -> &'static str {
        let asks = self
            .steps
            .iter()
            .any(|step| step.result == StepResult::Asks);
        match (self.is_allowed(), asks) {
            (false, _) => "deny",
            (true, true) => "ask",
            (true, false) => "allow",
        }
    }
}

impl Question<'_> {
    /// Evaluates all steps.
    pub fn judge(&self) -> Judgement {
        let mut steps = self.granted();
        steps.extend(self.seen());
        steps.push(self.offered());
        Judgement { steps }
    }

    fn granted(&self) -> Vec<Step> {
        let request = AccessRequest {
            class: MethodClass::Tool,
            server: self.server,
            item: Some(self.tool),
            arguments: match self.arguments {
                Some(arguments) => Arguments::Given(Some(arguments)),
                None => Arguments::NotYet,
            },
            hint: self.hint,
        };
        let (verdict, grant) = self.set.decide_unfiltered(&request);
        let named = grant.map(|bound| {
            let (text, to) = (bound.grant.pattern(), &bound.principal);
            match to.is_agent() || bound.id.is_none() {
                true => format!("`{text}`"),
                false => format!("`{text}` of {to}"),
            }
        });
        let named = named.unwrap_or_default();
        let (result, text) = match verdict {
            Verdict::Allow | Verdict::Undecided => {
                (StepResult::Passes, format!("granted by {named}"))
            }
            Verdict::Ask => {
                let text = format!("each call waits for an approver: {named}");
                (StepResult::Asks, text)
            }
            Verdict::Deny(Refusal::Denied) => (StepResult::Stops, format!("denied by {named}")),
            Verdict::Deny(Refusal::Condition) => {
                let text = format!("{named} does not allow these arguments");
                (StepResult::Stops, text)
            }
            Verdict::Deny(Refusal::Unbound | Refusal::Hidden) => {
                let text = format!("no grant of `{}` names it", self.agent);
                (StepResult::Stops, text)
            }
        };
        let mut steps = vec![Step {
            check: Check::Grant,
            result,
            text,
            grant: grant.and_then(|grant| grant.id),
        }];
        if self.arguments.is_none() && verdict.is_open() {
            steps.extend(self.depending(&request));
        }
        if !self.set.trusts(self.server) && !verdict.is_open() && self.reads_only(&request) {
            let text = format!(
                "its annotations are not trusted: `grants.trust_annotations` does not name `{}`",
                self.server
            );
            steps.push(Step::new(Check::Grant, StepResult::Notes, text));
        }
        steps
    }

    /// Returns the grants that depend on arguments, which were not given.
    fn depending(&self, request: &AccessRequest<'_>) -> Vec<Step> {
        let about = self.set.about(request);
        let about = about.filter(|bound| !bound.grant.conditions().is_empty());
        let step = |bound: &super::BoundGrant| {
            let word = match bound.grant.effect() {
                Effect::Allow => "allows",
                Effect::Ask => "asks for",
                Effect::Deny => "denies",
            };
            Step {
                check: Check::Grant,
                result: StepResult::Notes,
                text: format!("`{}` {word} some arguments", bound.grant.pattern()),
                grant: bound.id,
            }
        };
        about.map(step).collect()
    }

    fn reads_only(&self, request: &AccessRequest<'_>) -> bool {
        let mut about = self.set.about(request);
        about.any(|bound| bound.grant.is_of_read_only_tools())
    }

    fn seen(&self) -> Option<Step> {
        let filter = self.set.filter();
        let (include, exclude) = filter.naming(self.server, self.tool);
        let step = |result, text: String| Some(Step::new(Check::Filter, result, text));
        if let Some(pattern) = exclude {
            let text = format!("hidden by the agent's filter: `{pattern}` is excluded");
            return step(StepResult::Stops, text);
        }
        match include {
            Some(pattern) => {
                let text = format!("`{pattern}` of the agent's filter includes it");
                step(StepResult::Passes, text)
            }
            None if filter.include().next().is_none() => None,
            None => {
                let text = "hidden by the agent's filter: it is not among what is included";
                step(StepResult::Stops, text.to_owned())
            }
        }
    }

    fn offered(&self) -> Step {
        let (server, tool) = (self.server, self.tool);
        let (is_offered, text) = match self.offer {
            Offer::Offered(state) => {
                let state = shown(state);
                (true, format!("server `{server}` is {state} and offers it"))
            }
            Offer::LeftOut(reason) => (false, format!("not offered: {reason}")),
            Offer::Missing => (false, format!("server `{server}` has no tool `{tool}`")),
            Offer::Unlisted(reason) => {
                let why = format!("server `{server}` cannot be listed, calls go through: {reason}");
                (true, why)
            }
            Offer::Coming(state) => {
                let state = shown(state);
                let why =
                    format!("server `{server}` is {state}; a call waits for it and finds out");
                (true, why)
            }
            Offer::Away { state, reason } => {
                let why = reason.map_or_else(String::new, |why| format!(": {why}"));
                (false, format!("server `{server}` is {}{why}", shown(state)))
            }
        };
        let result = match is_offered {
            true => StepResult::Passes,
            false => StepResult::Stops,
        };
        let is_withheld =
            matches!(self.offer, Offer::LeftOut(reason) if reason.starts_with("quarantined"));
        let check = match is_withheld {
            true => Check::Version,
            false => Check::Server,
        };
        Step::new(check, result, text)
    }
}

fn shown(state: ServerState) -> String {
    state.as_str().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::{Grant, GrantSet, ToolFilter};

    fn judged(
        grants: &[&str],
        (include, exclude): (&[&str], &[&str]),
        tool: &str,
        offer: Offer<'_>,
    ) -> (bool, String) {
        let grants = grants.iter().map(|text| Grant::parse(text).unwrap());
        let grants: Vec<Grant> = grants.collect();
        let filter = ToolFilter::new(include, exclude).unwrap();
        let (agent, server) = ("x".parse().unwrap(), "files".parse().unwrap());
        let set = GrantSet::filtered(grants, filter);
        let question = Question {
            agent: &agent,
            set: &set,
            server: &server,
            tool,
            hint: ReadOnlyHint::NotKnown,
            arguments: None,
            offer,
        };
        let judged = question.judge();
        // The explanation agrees with the decision.
        let is_shown = set.shows(MethodClass::Tool, &server, Some(tool));
        let is_offered = !matches!(
            offer,
            Offer::LeftOut(_) | Offer::Missing | Offer::Away { .. }
        );
        assert_eq!(judged.is_allowed(), is_shown && is_offered, "{judged:?}");
        let reasons: Vec<_> = judged.steps.iter().map(|step| step.text.as_str()).collect();
        (judged.is_allowed(), reasons.join("; "))
    }

    #[test]
    fn every_reason_is_told() {
        let (ready, all) = (Offer::Offered(ServerState::Ready), (&[][..], &[][..]));
        assert_eq!(
            judged(&["*"], all, "read", ready),
            (
                true,
                "granted by `*`; server `files` is ready and offers it".to_owned()
            )
        );
        let (allowed, why) = judged(&["mail:*"], all, "read", ready);
        assert!(
            !allowed && why.starts_with("no grant of `x` names it; "),
            "{why}"
        );
        let narrow = (&[][..], &["files:*"][..]);
        let (allowed, why) = judged(&["mail:*", "files:re*"], narrow, "read", ready);
        let expected =
            "granted by `files:re*`; hidden by the agent's filter: `files:*` is excluded";
        assert!(!allowed && why.starts_with(expected), "{why}");
        let other = (&["mail:*"][..], &[][..]);
        assert!(
            judged(&["*"], other, "read", ready)
                .1
                .contains("not among what is included")
        );
        let same = (&["files:*"][..], &[][..]);
        assert!(
            judged(&["*"], same, "read", ready)
                .1
                .contains("`files:*` of the agent's filter")
        );
        let offers = [
            (
                Offer::LeftOut("its schema is bad"),
                "granted by `*`; not offered: its schema is bad",
            ),
            (
                Offer::Away {
                    state: ServerState::BackingOff,
                    reason: Some("exit code 3"),
                },
                "granted by `*`; server `files` is backing off: exit code 3",
            ),
            (
                Offer::Missing,
                "granted by `*`; server `files` has no tool `read`",
            ),
        ];
        for (offer, expected) in offers {
            assert_eq!(
                judged(&["*"], all, "read", offer),
                (false, expected.to_owned())
            );
        }
        let waits = "granted by `*`; server `files` is idle; a call waits for it and finds out";
        assert_eq!(
            judged(&["*"], all, "read", Offer::Coming(ServerState::Idle)),
            (true, waits.to_owned())
        );
    }

    #[test]
    fn denies_asks_and_conditions_are_told() {
        let (ready, all) = (Offer::Offered(ServerState::Ready), (&[][..], &[][..]));
        let (allowed, why) = judged(&["*", "deny files:re*"], all, "read", ready);
        assert!(
            !allowed && why.starts_with("denied by `deny files:re*`; "),
            "{why}"
        );
        let (allowed, why) = judged(&["*", "ask files:read"], all, "read", ready);
        assert!(allowed && why.starts_with("each call waits for an approver: `ask files:read`; "));
        let conditional = ["files:read when /path prefix \"/srv/\""];
        let (allowed, why) = judged(&conditional, all, "read", ready);
        assert!(allowed && why.contains("allows some arguments"), "{why}");
        let (allowed, why) = judged(&["files:read_only:*"], all, "read", ready);
        assert!(
            !allowed && why.contains("annotations are not trusted"),
            "{why}"
        );
        let set = GrantSet::new(conditional.map(|text| Grant::parse(text).unwrap()).to_vec());
        let (agent, server) = ("x".parse().unwrap(), "files".parse().unwrap());
        let asked = |arguments: &'static str| {
            let question = Question {
                agent: &agent,
                set: &set,
                server: &server,
                tool: "read",
                hint: ReadOnlyHint::NotKnown,
                arguments: Some(Raw::trusted(arguments)),
                offer: ready,
            };
            question.judge().as_str()
        };
        assert_eq!(asked(r#"{"path":"/srv/a"}"#), "allow");
        assert_eq!(asked(r#"{"path":"/etc/a"}"#), "deny");
    }
}
