//! What an agent may use: grants of items on servers, by class of method; what no grant names is
//! refused.
//!
//! Judges names only: whether an item exists, or a task is the caller's own, is not known here.
//! Entry point: `GrantSet::check`, with the class from `class_of`.

mod class;
mod filter;
mod pattern;
mod uri;
pub mod why;

use std::cell::OnceCell;
use std::fmt;

use sha2::{Digest, Sha256};

use crate::diagnose::{Diagnose, Fault};
use crate::id::{NameError, ServerName};

pub use self::class::{MethodClass, class_of};
pub use self::filter::ToolFilter;
pub use self::pattern::Pattern;
pub use self::uri::NormalUri;
use self::uri::UriPattern;

/// The longest pattern of an item; URIs are the longest items there are.
const LONGEST_ITEM: usize = 2048;

/// The longest alias, so that every target accepts it as it is.
const LONGEST_ALIAS: usize = 64;

/// Why a grant was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The server is neither a name nor a pattern of names.
    #[error("`{text}` cannot be the server of a grant")]
    Server {
        /// What was given, escaped.
        text: String,
        /// What is wrong with it as a name, if it is one.
        #[source]
        source: Option<NameError>,
    },
    /// The item is empty, too long, or holds control characters.
    #[error("`{text}` cannot be the item of a grant: {why}")]
    Item {
        /// The first characters of what was given, escaped.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The alias would not be a good name for a tool.
    #[error("`{text}` cannot be an alias: {why}")]
    Alias {
        /// The first characters of what was given, escaped.
        text: String,
        /// The rule it breaks.
        why: &'static str,
    },
}

impl Diagnose for GrantError {
    fn code(&self) -> &'static str {
        match self {
            Self::Server { .. } => "grant.server",
            Self::Item { .. } => "grant.item",
            Self::Alias { .. } => "grant.alias",
        }
    }

    fn fault(&self) -> Fault {
        Fault::Client
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Server { .. } => {
                Some("a server's name, or a pattern such as `team-*`".to_owned())
            }
            Self::Item { .. } => {
                Some("a tool such as `read_*`, `resource:file:///*`, or `*` for all".to_owned())
            }
            Self::Alias { .. } => None,
        }
    }
}

/// Which classes an item's pattern speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Scope {
    Every,
    Only(MethodClass),
}

/// The prefixes by which an item says its class; without one it is a tool.
const PREFIXES: [(&str, MethodClass); 7] = [
    ("tool:", MethodClass::Tool),
    ("resource:", MethodClass::Resource),
    ("prompt:", MethodClass::Prompt),
    ("completion:", MethodClass::Completion),
    ("logging:", MethodClass::Logging),
    ("subscription:", MethodClass::Subscription),
    ("task:", MethodClass::Task),
];

/// Permission to use some items on some servers, one of them perhaps under another name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    server: Pattern,
    scope: Scope,
    item: Pattern,
    /// The same in the forms of URIs, if that is what it may speak of.
    uri: Option<Box<UriPattern>>,
    item_text: Box<str>,
    alias: Option<Box<str>>,
}

/// What is asked for, in the form of URIs once that is needed.
struct Asked<'a> {
    text: &'a str,
    uri: OnceCell<Option<NormalUri<'a>>>,
}

impl<'a> Asked<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            uri: OnceCell::new(),
        }
    }
}

impl Grant {
    /// Parses a grant as it is stored and typed.
    ///
    /// `server` is a name or a pattern with `*`. `item` is `*` (everything there), a tool's name or
    /// pattern, or one behind `tool:`, `resource:`, `prompt:`, `completion:`, `logging:`,
    /// `subscription:` or `task:`. An alias needs one server and one tool.
    pub fn new(server: &str, item: &str, alias: Option<&str>) -> Result<Self, GrantError> {
        let server = parse_server(server)?;
        let (scope, pattern) = parse_item(item)?;
        if let Some(alias) = alias {
            let one_tool = scope == Scope::Only(MethodClass::Tool)
                && matches!((&server, &pattern), (Pattern::Exact(_), Pattern::Exact(_)));
            check_alias(alias, one_tool)?;
        }
        let alias = alias.map(Box::from);
        let uri = match scope {
            Scope::Only(
                MethodClass::Resource | MethodClass::Subscription | MethodClass::Completion,
            ) => Some(Box::new(UriPattern::new(pattern.as_str()))),
            Scope::Every | Scope::Only(_) => None,
        };
        Ok(Self {
            server,
            scope,
            item: pattern,
            uri,
            item_text: item.into(),
            alias,
        })
    }

    /// Returns the pattern of servers as `new` took it.
    pub fn server(&self) -> &str {
        self.server.as_str()
    }

    /// Returns the pattern of items as `new` took it.
    pub fn item(&self) -> &str {
        &self.item_text
    }

    /// Returns the name under which the agent sees the one tool of this grant.
    pub fn alias(&self) -> Option<&str> {
        self.alias.as_deref()
    }

    /// Returns the grant in one text, as people write it: `server:item`, `*` for everything.
    pub fn pattern(&self) -> String {
        match (self.server(), self.item(), self.alias()) {
            ("*", "*", None) => "*".to_owned(),
            (server, item, None) => format!("{server}:{item}"),
            (server, item, Some(alias)) => format!("{server}:{item} as {alias}"),
        }
    }

    fn is_everything(&self) -> bool {
        self.server == Pattern::All && self.scope == Scope::Every
    }

    /// Tells whether the grant, on a server it names, speaks of an item, or of any if none is given.
    fn covers(&self, class: MethodClass, item: Option<&Asked<'_>>) -> bool {
        let of =
            |owner| self.scope == Scope::Only(owner) && item.is_none_or(|item| self.names(item));
        match class {
            // Who may use anything on a server may talk to it.
            MethodClass::Lifecycle => true,
            MethodClass::Unknown => false,
            _ if self.scope == Scope::Every => true,
            // Completions and subscriptions follow the prompt or resource that they are about.
            MethodClass::Completion => {
                of(class) || of(MethodClass::Prompt) || of(MethodClass::Resource)
            }
            MethodClass::Subscription if item.is_some() => of(class) || of(MethodClass::Resource),
            // Without an item it is about lists, which everybody sees through their own grants.
            MethodClass::Subscription => true,
            MethodClass::Tool
            | MethodClass::Resource
            | MethodClass::Prompt
            | MethodClass::Logging
            | MethodClass::Task => of(class),
        }
    }
}

impl Grant {
    /// Tells whether the pattern names an item. A URI that cannot be judged is named by `*` alone.
    fn names(&self, item: &Asked<'_>) -> bool {
        match &self.uri {
            Some(_) if self.item == Pattern::All => true,
            Some(pattern) => {
                let uri = item.uri.get_or_init(|| NormalUri::of(item.text));
                uri.as_ref().is_some_and(|uri| pattern.matches(uri))
            }
            None => self.item.matches(item.text),
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.item(), self.server())?;
        self.alias()
            .map_or(Ok(()), |alias| write!(f, " as {alias}"))
    }
}

/// Whether a grant names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Some grant does.
    Allowed,
    /// None does: refuse, and say so.
    Unbound,
}

/// All grants of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantSet {
    /// Sorted and without repetition, so that equal sets behave alike however they were stored.
    grants: Vec<Grant>,
    filter: ToolFilter,
    everything: bool,
    fingerprint: u64,
}

impl Default for GrantSet {
    /// Returns the set that allows nothing.
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl GrantSet {
    /// Joins an agent's grants, in any order.
    pub fn new(grants: Vec<Grant>) -> Self {
        Self::filtered(grants, ToolFilter::default())
    }

    /// Joins an agent's grants and hides tools behind its filter, in listing and in calling.
    pub fn filtered(mut grants: Vec<Grant>, filter: ToolFilter) -> Self {
        let key = |grant: &Grant| {
            (
                grant.server().to_owned(),
                grant.item().to_owned(),
                grant.alias.clone(),
            )
        };
        grants.sort_by_cached_key(key);
        grants.dedup();
        let everything = filter.is_empty() && grants.iter().any(Grant::is_everything);
        let fingerprint = fingerprint(&grants, &filter);
        Self {
            grants,
            filter,
            everything,
            fingerprint,
        }
    }

    /// Returns the set of the local project's default agent, which may use all there is.
    pub fn everything() -> Self {
        let grant = Grant::new("*", "*", None).expect("`*` on `*` is a grant");
        Self::new(vec![grant])
    }

    /// Tells whether nothing is refused.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// Returns the grants in their own order.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns what the agent sees of the tools it was granted.
    pub fn filter(&self) -> &ToolFilter {
        &self.filter
    }

    /// Decides whether the agent may use an item of this class on this server.
    ///
    /// Without an item the question is whether it may use any of the class there, as listings ask;
    /// a call, a read or a get must name its item.
    pub fn check(&self, class: MethodClass, server: &ServerName, item: Option<&str>) -> Verdict {
        let asked = item.map(Asked::new);
        let allows = |grant: &Grant| {
            grant.server.matches(server.as_str()) && grant.covers(class, asked.as_ref())
        };
        let is_hidden = || match (class, item) {
            (MethodClass::Tool, Some(tool)) => !self.filter.allows(server, tool),
            _ => false,
        };
        if self.everything || (self.grants.iter().any(allows) && !is_hidden()) {
            Verdict::Allowed
        } else {
            Verdict::Unbound
        }
    }

    /// Tells whether the agent may use some resource of this server whose URI begins like this, as
    /// those of a template do.
    pub fn may_read_below(&self, server: &ServerName, beginning: &str) -> bool {
        let reaches = |grant: &Grant| {
            let below = |pattern: &UriPattern| pattern.may_begin_with(beginning);
            match grant.scope {
                Scope::Every => true,
                Scope::Only(MethodClass::Resource) => grant.uri.as_deref().is_some_and(below),
                Scope::Only(_) => false,
            }
        };
        let of_server = |grant: &Grant| grant.server.matches(server.as_str()) && reaches(grant);
        self.everything || self.grants.iter().any(of_server)
    }

    /// Tells whether the agent may use all of this class on this server, whatever it is called.
    pub fn has_all(&self, class: MethodClass, server: &ServerName) -> bool {
        let is_all = |grant: &Grant| {
            let is_class = grant.scope == Scope::Every
                || (grant.scope == Scope::Only(class) && grant.item == Pattern::All);
            grant.server.matches(server.as_str()) && is_class
        };
        self.everything || self.grants.iter().any(is_all)
    }

    /// Returns the name under which the agent sees a tool, if a grant gives it another.
    pub fn alias_of(&self, server: &ServerName, tool: &str) -> Option<&str> {
        let named = |grant: &&Grant| {
            grant.alias.is_some()
                && grant.server.matches(server.as_str())
                && grant.item.matches(tool)
        };
        self.grants.iter().find(named).and_then(Grant::alias)
    }

    /// Returns a number that is equal for equal sets, in this process and in every other.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn fingerprint(grants: &[Grant], filter: &ToolFilter) -> u64 {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    for grant in grants {
        for part in [
            grant.server(),
            grant.item(),
            grant.alias().unwrap_or_default(),
        ] {
            add(part);
        }
    }
    // No grant is of an empty server, so that the two parts of a filter cannot be taken for one.
    for (kind, patterns) in [
        ("+", filter.include().collect::<Vec<_>>()),
        ("-", filter.exclude().collect()),
    ] {
        for pattern in patterns {
            for part in ["", kind, pattern] {
                add(part);
            }
        }
    }
    let digest = hash.finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

fn parse_server(text: &str) -> Result<Pattern, GrantError> {
    let refused = |source| GrantError::Server {
        text: shown(text),
        source,
    };
    let pattern = Pattern::new(text);
    match &pattern {
        Pattern::All => {}
        Pattern::Exact(name) if &**name == ServerName::NATIVE => {}
        Pattern::Exact(name) => {
            name.parse::<ServerName>()
                .map_err(|error| refused(Some(error)))?;
        }
        Pattern::Glob(glob) => {
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*');
            if glob.len() > 128 || !glob.chars().all(legal) {
                return Err(refused(None));
            }
        }
    }
    Ok(pattern)
}

fn parse_item(text: &str) -> Result<(Scope, Pattern), GrantError> {
    let refused = |why| GrantError::Item {
        text: shown(text),
        why,
    };
    if text == "*" {
        return Ok((Scope::Every, Pattern::All));
    }
    let prefixed = PREFIXES
        .iter()
        .find_map(|(prefix, class)| text.strip_prefix(prefix).map(|rest| (*class, rest)));
    let (class, rest) = prefixed.unwrap_or((MethodClass::Tool, text));
    if rest.is_empty() {
        return Err(refused("it must not be empty"));
    }
    if text.len() > LONGEST_ITEM {
        return Err(refused("it is longer than 2048 bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err(refused("it contains control characters"));
    }
    Ok((Scope::Only(class), Pattern::new(rest)))
}

fn check_alias(alias: &str, one_tool: bool) -> Result<(), GrantError> {
    let refused = |why| {
        Err(GrantError::Alias {
            text: shown(alias),
            why,
        })
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !one_tool {
        return refused("only a grant of one tool on one server can have one");
    }
    if alias.is_empty() || alias.len() > LONGEST_ALIAS {
        return refused("1 to 64 characters are allowed");
    }
    if !alias.chars().all(legal) || !alias.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return refused("a letter, then letters, digits, `_` and `-` are allowed");
    }
    if alias.contains("__") {
        return refused("`__` separates server and tool in exposed names");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
