//! Everything that one caller may use: the grants of its agent, its key and its project, and its
//! filter. Decides in memory, independent of the order of the grants.
//!
//! Doubt is resolved for safety: an unknown condition does not allow, but does deny. Entry points:
//! [`GrantSet::decide`] and [`GrantSet::shows`].

use std::cell::OnceCell;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::condition::{Condition, Truth};
use super::decision::{
    AccessRequest, Arguments, Decision, Effect, LastUse, Principal, ReadOnlyHint, Refusal, Verdict,
};
use super::rule::{Asked, Grant, Scope, Servers};
use super::{GroupName, MethodClass, Pattern, ServerGroup, ToolFilter};
use crate::id::{GrantId, ServerName};

/// A grant, and who it applies to.
#[derive(Debug, Clone)]
pub struct BoundGrant {
    /// The grant.
    pub grant: Grant,
    /// Its id in the store, if it is stored.
    pub id: Option<GrantId>,
    /// Who it applies to.
    pub principal: Principal,
    /// When it last decided a call.
    pub last_use: Arc<LastUse>,
}

impl BoundGrant {
    /// Creates a grant that is not stored.
    pub fn unstored(grant: Grant) -> Self {
        Self {
            grant,
            id: None,
            principal: Principal::Project,
            last_use: Arc::default(),
        }
    }
}

/// What a decision depends on besides the grants.
#[derive(Debug, Clone, Default)]
pub struct Policy<'a> {
    /// The filter over the agent's granted tools.
    pub filter: ToolFilter,
    /// The project's groups of servers.
    pub groups: &'a [ServerGroup],
    /// The servers whose annotations are trusted.
    pub trusted: &'a [Pattern],
    /// The revision of the policy.
    pub revision: u64,
}

/// A grant, and the servers of its group.
#[derive(Debug, Clone)]
struct Rule {
    bound: BoundGrant,
    members: Option<Vec<Pattern>>,
}

/// Whether a rule applies to a call.
enum Applies {
    Yes,
    No,
    /// Its condition is not met.
    Unmet,
    /// It depends on something unknown.
    Maybe,
}

impl Rule {
    fn new(bound: BoundGrant, groups: &[ServerGroup]) -> Self {
        let members = |name: &GroupName| {
            let group = groups.iter().find(|group| group.name == *name)?;
            Some(group.patterns().to_vec())
        };
        Self {
            members: bound.grant.group().and_then(members),
            bound,
        }
    }

    fn grant(&self) -> &Grant {
        &self.bound.grant
    }

    fn is_on(&self, server: &ServerName) -> bool {
        let named = |pattern: &Pattern| pattern.matches(server.as_str());
        match (&self.grant().servers, &self.members) {
            (Servers::Named(pattern), _) => named(pattern),
            (Servers::Group(_), Some(members)) => members.iter().any(named),
            // A grant on a removed group allows nothing, but still denies.
            (Servers::Group(_), None) => self.grant().effect() != Effect::Allow,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.grant() == other.grant() && self.members == other.members
    }
}

/// All grants of one caller.
#[derive(Debug, Clone)]
pub struct GrantSet {
    /// Sorted and without duplicates, so that equal sets behave equally: first those that deny,
    /// then those that ask.
    rules: Vec<Rule>,
    filter: ToolFilter,
    trusted: Vec<Pattern>,
    /// The index of the grant of everything, if no rule restricts it.
    everything: Option<usize>,
    fingerprint: u64,
    revision: u64,
}

impl PartialEq for GrantSet {
    /// Compares the rules, not their revision or ids.
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(one, two): (&Rule, &Rule)| one.is_same(two);
        self.fingerprint == other.fingerprint
            && self.rules.len() == other.rules.len()
            && self.rules.iter().zip(&other.rules).all(is_same)
            && self.filter == other.filter
            && self.trusted == other.trusted
    }
}

impl Eq for GrantSet {}

impl Default for GrantSet {
    /// Returns the set that allows nothing.
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl GrantSet {
    /// Creates a set of an agent's grants, in any order.
    pub fn new(grants: Vec<Grant>) -> Self {
        Self::filtered(grants, ToolFilter::default())
    }

    /// Creates a set with a filter, which hides tools in lists and calls.
    pub fn filtered(grants: Vec<Grant>, filter: ToolFilter) -> Self {
        let policy = Policy {
            filter,
            ..Policy::default()
        };
        let grants = grants.into_iter().map(BoundGrant::unstored);
        Self::under(policy, grants.collect())
    }

    /// Creates the set of a caller under the policy of its project.
    pub fn under(policy: Policy<'_>, grants: Vec<BoundGrant>) -> Self {
        let rules = grants
            .into_iter()
            .map(|bound| Rule::new(bound, policy.groups));
        let mut rules: Vec<Rule> = rules.collect();
        rules.sort_by_cached_key(|rule| {
            let grant = rule.grant();
            let conditions: Vec<String> = grant
                .conditions()
                .iter()
                .map(Condition::to_string)
                .collect();
            (
                grant.effect(),
                grant.server().to_owned(),
                grant.item().to_owned(),
                grant.alias().map(str::to_owned),
                conditions,
                rule.bound.principal.clone(),
                rule.bound.id,
            )
        });
        // Among equal rules the narrowest is kept.
        rules.dedup_by(|later, first| later.is_same(first));
        let only_allows = rules
            .iter()
            .all(|rule| rule.grant().effect() == Effect::Allow);
        let is_free = policy.filter.is_empty() && only_allows;
        let everything = rules.iter().position(|rule| rule.grant().is_everything());
        let fingerprint = fingerprint(&rules, &policy.filter, policy.trusted);
        Self {
            everything: everything.filter(|_| is_free),
            rules,
            filter: policy.filter,
            trusted: policy.trusted.to_vec(),
            fingerprint,
            revision: policy.revision,
        }
    }

    /// Returns the set of administrators and embedding programs: everything.
    pub fn everything() -> Self {
        let grant = Grant::new("*", "*", None).expect("`*` on `*` is a grant");
        Self::new(vec![grant])
    }

    /// Returns whether nothing is refused.
    pub fn is_everything(&self) -> bool {
        self.everything.is_some()
    }

    /// Returns the grants in their order, first those that deny.
    pub fn grants(&self) -> impl Iterator<Item = &BoundGrant> {
        self.rules.iter().map(|rule| &rule.bound)
    }

    /// Returns the filter over the agent's granted tools.
    pub fn filter(&self) -> &ToolFilter {
        &self.filter
    }

    /// Returns the revision of the policy.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether the annotations of a server's tools are trusted.
    pub fn trusts(&self, server: &ServerName) -> bool {
        let mut trusted = self.trusted.iter();
        trusted.any(|pattern| pattern.matches(server.as_str()))
    }

    /// Returns whether an item is listed, and found by name; without an item, whether any of its
    /// class may be.
    pub fn shows(&self, class: MethodClass, server: &ServerName, item: Option<&str>) -> bool {
        let request = AccessRequest::listing(class, server, item);
        self.decide(&request).verdict.is_open()
    }

    /// Decides whether the agent may use an item of this class on this server.
    pub fn decide(&self, request: &AccessRequest<'_>) -> Decision<'_> {
        let (verdict, rule) = match self.everything {
            Some(place) => (Verdict::Allow, Some(&self.rules[place])),
            None => self.weigh(request),
        };
        let item = request.item.filter(|_| request.class == MethodClass::Tool);
        let is_hidden = item.is_some_and(|tool| !self.filter.allows(request.server, tool));
        let (verdict, rule) = match verdict {
            Verdict::Allow | Verdict::Ask | Verdict::Undecided if is_hidden => {
                (Verdict::Deny(Refusal::Hidden), None)
            }
            // Only uses of an item need an approval, not what belongs to such a use.
            Verdict::Ask if !is_asked_for(request) => (Verdict::Allow, rule),
            Verdict::Allow | Verdict::Ask | Verdict::Deny(_) | Verdict::Undecided => {
                (verdict, rule)
            }
        };
        Decision {
            verdict,
            grant: rule.map(|rule| &rule.bound),
            revision: self.revision,
        }
    }

    /// Decides without the agent's filter.
    pub(super) fn decide_unfiltered(
        &self,
        request: &AccessRequest<'_>,
    ) -> (Verdict, Option<&BoundGrant>) {
        let (verdict, rule) = self.weigh(request);
        (verdict, rule.map(|rule| &rule.bound))
    }

    /// Returns the grants that name an item, with any arguments.
    pub(super) fn about(&self, request: &AccessRequest<'_>) -> impl Iterator<Item = &BoundGrant> {
        let (class, server) = (request.class, request.server.clone());
        let item = request.item.map(str::to_owned);
        let named = move |rule: &&Rule| {
            let asked = item.as_deref().map(Asked::new);
            let is_about = match rule.grant().effect() {
                Effect::Deny => rule.grant().restricts(class, asked.as_ref()),
                Effect::Ask | Effect::Allow => rule.grant().opens(class, asked.as_ref()),
            };
            rule.is_on(&server) && is_about
        };
        self.rules.iter().filter(named).map(|rule| &rule.bound)
    }

    /// Combines all rules.
    fn weigh(&self, request: &AccessRequest<'_>) -> (Verdict, Option<&Rule>) {
        let asked = request.item.map(Asked::new);
        let arguments = OnceCell::new();
        let (mut maybe_deny, mut maybe_ask, mut maybe_allow) = (None, None, None);
        let (mut doubtful, mut unmet, mut certain) = (None, None, None);
        for rule in self.rules.iter().filter(|rule| rule.is_on(request.server)) {
            let grant = rule.grant();
            let opens = || grant.opens(request.class, asked.as_ref());
            let restricts = || grant.restricts(request.class, asked.as_ref());
            let applies = || self.applies(rule, request, &arguments);
            match grant.effect() {
                Effect::Deny if restricts() => match applies() {
                    Applies::Yes => return (Verdict::Deny(Refusal::Denied), Some(rule)),
                    Applies::Maybe => maybe_deny = maybe_deny.or(Some(rule)),
                    Applies::No | Applies::Unmet => {}
                },
                Effect::Ask if opens() => match applies() {
                    Applies::Yes => {
                        certain = Some((Verdict::Ask, rule));
                        break;
                    }
                    Applies::Maybe => maybe_ask = maybe_ask.or(Some(rule)),
                    Applies::No | Applies::Unmet => {}
                },
                // In doubt whether it applies: it allows nothing, and turns an allow into an ask.
                Effect::Ask if restricts() => doubtful = doubtful.or(Some(rule)),
                Effect::Allow if opens() => match applies() {
                    Applies::Yes => {
                        certain = Some((Verdict::Allow, rule));
                        break;
                    }
                    Applies::Maybe => maybe_allow = maybe_allow.or(Some(rule)),
                    Applies::Unmet => unmet = unmet.or(Some(rule)),
                    Applies::No => {}
                },
                Effect::Deny | Effect::Ask | Effect::Allow => {}
            }
        }
        if let (Some((Verdict::Allow, _)), Some(asking)) = (certain, doubtful) {
            certain = Some((Verdict::Ask, asking));
        }
        let refused = match unmet {
            Some(rule) => (Verdict::Deny(Refusal::Condition), Some(rule)),
            None => (Verdict::Deny(Refusal::Unbound), None),
        };
        if matches!(request.arguments, Arguments::Lost) {
            let mut outcomes = Vec::new();
            outcomes.extend(maybe_deny.map(|rule| (Verdict::Deny(Refusal::Denied), Some(rule))));
            outcomes.extend(maybe_ask.map(|rule| (Verdict::Ask, Some(rule))));
            match certain {
                Some((verdict, rule)) => outcomes.push((verdict, Some(rule))),
                None => {
                    outcomes.extend(maybe_allow.map(|rule| (Verdict::Allow, Some(rule))));
                    outcomes.push(refused);
                }
            }
            let (first, _) = outcomes[0];
            let is_one = outcomes
                .iter()
                .all(|(verdict, _)| verdict.as_str() == first.as_str());
            return match is_one {
                true => outcomes[0],
                false => (Verdict::Undecided, outcomes[0].1),
            };
        }
        let open = certain
            .or(maybe_ask.map(|rule| (Verdict::Ask, rule)))
            .or(maybe_allow.map(|rule| (Verdict::Allow, rule)));
        open.map_or(refused, |(verdict, rule)| (verdict, Some(rule)))
    }

    /// Returns whether a rule that names the item applies to this use of it.
    fn applies(
        &self,
        rule: &Rule,
        request: &AccessRequest<'_>,
        parsed: &OnceCell<Option<Value>>,
    ) -> Applies {
        let grant = rule.grant();
        let is_allow = grant.effect() == Effect::Allow;
        let is_read_only = grant.scope == Scope::ReadOnlyTools;
        if !is_read_only && grant.conditions().is_empty() {
            return Applies::Yes;
        }
        let has_arguments = matches!(request.class, MethodClass::Tool | MethodClass::Prompt);
        if !has_arguments || request.item.is_none() {
            return match grant.effect() {
                Effect::Deny => Applies::No,
                Effect::Allow | Effect::Ask => Applies::Yes,
            };
        }
        let mut is_open = false;
        let mut truth = Truth::Yes;
        if is_read_only {
            truth = match request.hint {
                _ if !self.trusts(request.server) => Truth::Unknown,
                ReadOnlyHint::ReadOnly => Truth::Yes,
                ReadOnlyHint::Writes => Truth::No,
                ReadOnlyHint::NotKnown => {
                    is_open = true;
                    Truth::Yes
                }
            };
            // A tool that the grant does not apply to has no unmet condition.
            if truth == Truth::No || (truth == Truth::Unknown && is_allow) {
                return Applies::No;
            }
        }
        if !grant.conditions().is_empty() {
            match request.arguments {
                Arguments::NotYet | Arguments::Lost => is_open = true,
                Arguments::Given(given) => {
                    let arguments = parsed.get_or_init(|| match given {
                        None => Some(Value::Object(Default::default())),
                        Some(raw) => serde_json::from_str(raw.text()).ok(),
                    });
                    truth = truth.and(grant.holds(arguments.as_ref()));
                }
            }
        }
        match (truth, is_allow) {
            (Truth::No, _) | (Truth::Unknown, true) => Applies::Unmet,
            (Truth::Yes, _) | (Truth::Unknown, false) if is_open => Applies::Maybe,
            (Truth::Yes, _) | (Truth::Unknown, false) => Applies::Yes,
        }
    }

    /// Returns whether the agent may use some resource of this server whose URI has this prefix, as
    /// for a template.
    pub fn may_read_below(&self, server: &ServerName, beginning: &str) -> bool {
        let here = || self.rules.iter().filter(|rule| rule.is_on(server));
        let opens = |rule: &Rule| match rule.grant().effect() {
            Effect::Deny => false,
            Effect::Allow | Effect::Ask => rule.grant().reaches_below(beginning),
        };
        let forbids = |rule: &Rule| {
            rule.grant().effect() == Effect::Deny && rule.grant().covers_below(beginning)
        };
        self.is_everything() || (here().any(opens) && !here().any(forbids))
    }

    /// Returns whether the agent may use every item of this class on this server.
    pub fn has_all(&self, class: MethodClass, server: &ServerName) -> bool {
        let here = || self.rules.iter().filter(|rule| rule.is_on(server));
        let is_all =
            |rule: &Rule| rule.grant().effect() == Effect::Allow && rule.grant().is_all_of(class);
        let narrows =
            |rule: &Rule| rule.grant().effect() != Effect::Allow && rule.grant().touches(class);
        self.is_everything() || (here().any(is_all) && !here().any(narrows))
    }

    /// Returns the alias of a tool for this agent, if a grant has one.
    pub fn alias_of(&self, server: &ServerName, tool: &str) -> Option<&str> {
        let named = |rule: &&Rule| {
            rule.grant().alias().is_some() && rule.is_on(server) && rule.grant().names_tool(tool)
        };
        let found = self.rules.iter().find(named);
        found.and_then(|rule| rule.grant().alias())
    }

    /// Returns a hash that is equal for equal sets, in all processes.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Returns whether such a use can need an approval.
fn is_asked_for(request: &AccessRequest<'_>) -> bool {
    let is_use = match request.class {
        MethodClass::Tool
        | MethodClass::Resource
        | MethodClass::Prompt
        | MethodClass::Subscription
        | MethodClass::Task => true,
        MethodClass::Completion
        | MethodClass::Lifecycle
        | MethodClass::Logging
        | MethodClass::Unknown => false,
    };
    is_use && request.item.is_some()
}

fn fingerprint(rules: &[Rule], filter: &ToolFilter, trusted: &[Pattern]) -> u64 {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    for rule in rules {
        let grant = rule.grant();
        for part in [
            grant.server(),
            grant.item(),
            grant.alias().unwrap_or_default(),
        ] {
            add(part);
        }
    }
    // No grant has an empty server, so the parts that follow cannot be mistaken for a grant.
    let mut mark = |kind: &str, part: &str| {
        for part in ["", kind, part] {
            add(part);
        }
    };
    for (place, rule) in rules.iter().enumerate() {
        let (grant, place) = (rule.grant(), place.to_string());
        if grant.effect() != Effect::Allow {
            mark(grant.effect().as_str(), &place);
        }
        for condition in grant.conditions() {
            mark("when", &place);
            mark("is", &condition.to_string());
        }
        for member in rule.members.iter().flatten() {
            mark("member", &place);
            mark("is", member.as_str());
        }
    }
    for pattern in filter.include() {
        mark("+", pattern);
    }
    for pattern in filter.exclude() {
        mark("-", pattern);
    }
    for pattern in trusted {
        mark("trusted", pattern.as_str());
    }
    let digest = hash.finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests;
