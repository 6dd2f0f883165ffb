//! Why an agent may use a tool, or may not: the rules of a call with their reasons, in the order in
//! which a call meets them.
//!
//! Decides by the very patterns that [`GrantSet::check`](super::GrantSet::check) decides by; what the
//! server offers is told by whoever asks. Entry point: [`Question::judge`].

use super::{Asked, Grant, MethodClass, ToolFilter};
use crate::id::{AgentName, ServerName};
use crate::status::ServerState;

/// Who wants to use what.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The agent.
    pub agent: &'a AgentName,
    /// What was granted to it.
    pub grants: &'a [Grant],
    /// What it sees of that.
    pub filter: &'a ToolFilter,
    /// The server.
    pub server: &'a ServerName,
    /// The server's own name for the tool.
    pub tool: &'a str,
    /// What the server makes of it.
    pub offer: Offer<'a>,
}

/// What a server makes of one of its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer<'a> {
    /// It is in the catalog.
    Offered(ServerState),
    /// The server has it, and it is left out for this reason.
    LeftOut(&'a str),
    /// The server is ready and has no such tool.
    Missing,
    /// Its list could not be read for this reason: it is not listed, and calls by name are sent.
    Unlisted(&'a str),
    /// Nobody knows yet: the server is on its way up, or comes up when it is called.
    Coming(ServerState),
    /// Nobody knows: the server is not there.
    Away {
        /// Its state.
        state: ServerState,
        /// Why it is there.
        reason: Option<&'a str>,
    },
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// Whether a call would be let through.
    pub allowed: bool,
    /// What speaks for it and against it.
    pub reasons: Vec<String>,
}

impl Question<'_> {
    /// Answers with every reason.
    pub fn judge(&self) -> Judgement {
        let names_it = |grant: &&Grant| {
            let is_server = grant.server.matches(self.server.as_str());
            is_server && grant.covers(MethodClass::Tool, Some(&Asked::new(self.tool)))
        };
        let granting = self.grants.iter().find(names_it);
        let mut reasons = vec![match granting {
            Some(grant) => format!("granted by `{}`", grant.pattern()),
            None => format!("no grant of `{}` names it", self.agent),
        }];
        let (is_seen, why) = self.seen();
        reasons.extend(why);
        let (is_offered, why) = self.offered();
        reasons.push(why);
        Judgement {
            allowed: granting.is_some() && is_seen && is_offered,
            reasons,
        }
    }

    fn seen(&self) -> (bool, Option<String>) {
        let (include, exclude) = self.filter.naming(self.server, self.tool);
        if let Some(pattern) = exclude {
            let why = format!("hidden by the agent's filter: `{pattern}` is excluded");
            return (false, Some(why));
        }
        match include {
            Some(pattern) => {
                let why = format!("`{pattern}` of the agent's filter includes it");
                (true, Some(why))
            }
            None if self.filter.include().next().is_none() => (true, None),
            None => {
                let why = "hidden by the agent's filter: it is not among what is included";
                (false, Some(why.to_owned()))
            }
        }
    }

    fn offered(&self) -> (bool, String) {
        let (server, tool) = (self.server, self.tool);
        match self.offer {
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
        }
    }
}

fn shown(state: ServerState) -> String {
    state.as_str().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::{GrantSet, Verdict};

    fn judged(
        grants: &[&str],
        (include, exclude): (&[&str], &[&str]),
        tool: &str,
        offer: Offer<'_>,
    ) -> (bool, String) {
        let grants = grants.iter().map(|text| {
            let (server, item) = text.split_once(':').unwrap_or(("*", "*"));
            Grant::new(server, item, None).unwrap()
        });
        let grants: Vec<Grant> = grants.collect();
        let filter = ToolFilter::new(include, exclude).unwrap();
        let (agent, server) = ("x".parse().unwrap(), "files".parse().unwrap());
        let question = Question {
            agent: &agent,
            grants: &grants,
            filter: &filter,
            server: &server,
            tool,
            offer,
        };
        let judged = question.judge();
        // What is told is what happens.
        let set = GrantSet::filtered(grants, filter);
        let verdict = set.check(MethodClass::Tool, &server, Some(tool)) == Verdict::Allowed;
        let is_offered = !matches!(
            offer,
            Offer::LeftOut(_) | Offer::Missing | Offer::Away { .. }
        );
        assert_eq!(judged.allowed, verdict && is_offered, "{judged:?}");
        (judged.allowed, judged.reasons.join("; "))
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
}
