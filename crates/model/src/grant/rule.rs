//! One grant: its effect, servers, items, alias, and conditions on the arguments.
//!
//! It has a text form: `deny files:write_* when /path prefix "/etc/"`. Entry points: [`Grant::new`]
//! and [`Grant::parse`].

use std::cell::OnceCell;
use std::fmt;

use super::condition::{Condition, Truth};
use super::decision::Effect;
use super::group::GroupName;
use super::uri::UriPattern;
use super::{GrantError, MethodClass, NormalUri, Pattern, parse_server, shown};

/// Maximum length of an item pattern; URIs are the longest items.
pub(super) const LONGEST_ITEM: usize = 2048;
/// Maximum length of an alias, so that every model API accepts it unchanged.
const LONGEST_ALIAS: usize = 64;
/// Maximum number of conditions of a grant.
const MOST_CONDITIONS: usize = 16;

/// Which items a pattern applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// Everything on the server.
    Every,
    /// Those of one class.
    Only(MethodClass),
    /// Tools whose hint says that they only read.
    ReadOnlyTools,
}

/// The prefixes of an item that select its class; without one it is a tool.
const PREFIXES: [(&str, Scope); 8] = [
    ("tool:", Scope::Only(MethodClass::Tool)),
    ("read_only:", Scope::ReadOnlyTools),
    ("resource:", Scope::Only(MethodClass::Resource)),
    ("prompt:", Scope::Only(MethodClass::Prompt)),
    ("completion:", Scope::Only(MethodClass::Completion)),
    ("logging:", Scope::Only(MethodClass::Logging)),
    ("subscription:", Scope::Only(MethodClass::Subscription)),
    ("task:", Scope::Only(MethodClass::Task)),
];

/// Returns whether an item of a grant with this text is selected by a class, such as `prompt:x`.
pub fn has_class_prefix(item: &str) -> bool {
    PREFIXES.iter().any(|(prefix, _)| item.starts_with(prefix))
}

/// The servers of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Servers {
    Named(Pattern),
    Group(GroupName),
}

/// A rule over items on servers, with an optional alias for a single tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    effect: Effect,
    pub(super) servers: Servers,
    server_text: Box<str>,
    pub(super) scope: Scope,
    item: Pattern,
    /// The pattern in the forms of URIs, if it may apply to URIs.
    uri: Option<Box<UriPattern>>,
    item_text: Box<str>,
    alias: Option<Box<str>>,
    conditions: Vec<Condition>,
}

/// The requested item; its URI forms are computed when needed.
pub(super) struct Asked<'a> {
    text: &'a str,
    uri: OnceCell<Option<NormalUri<'a>>>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            uri: OnceCell::new(),
        }
    }

    /// Returns what every URI of this template begins with, if it is one.
    fn template_beginning(&self) -> Option<&'a str> {
        self.text.split_once('{').map(|(beginning, _)| beginning)
    }

    fn uri(&self) -> Option<&NormalUri<'a>> {
        self.uri.get_or_init(|| NormalUri::of(self.text)).as_ref()
    }
}

impl Grant {
    /// Creates a grant that allows.
    ///
    /// `server` is a name, a pattern with `*`, or `@` and a group. `item` is `*` (everything
    /// there), a tool's name or pattern, or one with the prefix `tool:`, `read_only:` (tools that
    /// only read), `resource:`, `prompt:`, `completion:`, `logging:`, `subscription:` or `task:`.
    /// An alias needs exactly one server and one tool.
    pub fn new(server: &str, item: &str, alias: Option<&str>) -> Result<Self, GrantError> {
        let servers = match server.strip_prefix('@') {
            Some(group) => Servers::Group(group.parse()?),
            None => Servers::Named(parse_server(server)?),
        };
        let (scope, pattern) = parse_item(item)?;
        if let Some(alias) = alias {
            let one_tool = scope == Scope::Only(MethodClass::Tool)
                && matches!(
                    (&servers, &pattern),
                    (Servers::Named(Pattern::Exact(_)), Pattern::Exact(_))
                );
            check_alias(alias, one_tool)?;
        }
        let uri = match scope {
            Scope::Only(
                MethodClass::Resource | MethodClass::Subscription | MethodClass::Completion,
            ) => Some(Box::new(UriPattern::new(pattern.as_str()))),
            Scope::Every | Scope::Only(_) | Scope::ReadOnlyTools => None,
        };
        Ok(Self {
            effect: Effect::Allow,
            servers,
            server_text: server.into(),
            scope,
            item: pattern,
            uri,
            item_text: item.into(),
            alias: alias.map(Box::from),
            conditions: Vec::new(),
        })
    }

    /// Sets the effect; only a grant that allows can have an alias.
    pub fn with_effect(mut self, effect: Effect) -> Result<Self, GrantError> {
        match &self.alias {
            Some(alias) if effect != Effect::Allow => Err(GrantError::Alias {
                text: shown(alias),
                why: "only a grant that allows can have one",
            }),
            _ => {
                self.effect = effect;
                Ok(self)
            }
        }
    }

    /// Adds conditions, all of which must hold. Only tools and prompts have arguments.
    pub fn when(mut self, conditions: Vec<Condition>) -> Result<Self, GrantError> {
        let wrong = |why| {
            let text = conditions.first().map(Condition::to_string);
            GrantError::Condition {
                text: shown(&text.unwrap_or_default()),
                why,
            }
        };
        let has_arguments = matches!(
            self.scope,
            Scope::Only(MethodClass::Tool | MethodClass::Prompt) | Scope::ReadOnlyTools
        );
        if !conditions.is_empty() && !has_arguments {
            return Err(wrong(
                "only tools and prompts have arguments; name them, such as `tool:*`",
            ));
        }
        if conditions.len() > MOST_CONDITIONS {
            return Err(wrong("a grant has at most 16"));
        }
        self.conditions = conditions;
        self.conditions.sort_by_cached_key(Condition::to_string);
        self.conditions.dedup();
        Ok(self)
    }

    /// Parses `[allow|deny|ask] SERVER:ITEM [as ALIAS] [when CONDITION [and CONDITION]…]`; `*` alone is
    /// everything.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let wrong = |why| GrantError::Text {
            text: shown(text),
            why,
        };
        let (effect, rest) = match text.split_once(' ') {
            Some((word @ ("allow" | "deny" | "ask"), rest)) => (word.parse()?, rest.trim_start()),
            _ => (Effect::Allow, text),
        };
        let (rest, conditions) = match rest.split_once(" when /") {
            Some((rest, conditions)) => (rest, parse_conditions(&format!("/{conditions}"))?),
            None => (rest, Vec::new()),
        };
        let (rest, alias) = match rest.rsplit_once(" as ") {
            Some((rest, alias)) => (rest, Some(alias)),
            None => (rest, None),
        };
        let (server, item) = match rest {
            "*" => ("*", "*"),
            rest => rest
                .split_once(':')
                .ok_or_else(|| wrong("`server:item` is expected"))?,
        };
        Self::new(server, item, alias)?
            .with_effect(effect)?
            .when(conditions)
    }

    /// Returns the effect.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Returns the servers as given to `new`: a name, a pattern, or `@` and a group.
    pub fn server(&self) -> &str {
        &self.server_text
    }

    /// Returns its group of servers, if any.
    pub fn group(&self) -> Option<&GroupName> {
        match &self.servers {
            Servers::Group(name) => Some(name),
            Servers::Named(_) => None,
        }
    }

    /// Returns the pattern of items as given to `new`.
    pub fn item(&self) -> &str {
        &self.item_text
    }

    /// Returns the alias of the single tool of this grant.
    pub fn alias(&self) -> Option<&str> {
        self.alias.as_deref()
    }

    /// Returns the conditions, all of which must hold.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Returns the text form, for [`Grant::parse`]: `server:item`, `*` for everything.
    pub fn pattern(&self) -> String {
        let mut text = match self.effect {
            Effect::Allow => String::new(),
            Effect::Deny | Effect::Ask => format!("{} ", self.effect),
        };
        match (self.server(), self.item()) {
            ("*", "*") => text.push('*'),
            (server, item) => text.push_str(&format!("{server}:{item}")),
        }
        if let Some(alias) = self.alias() {
            text.push_str(&format!(" as {alias}"));
        }
        let mut mark = " when ";
        for condition in &self.conditions {
            text.push_str(&format!("{mark}{condition}"));
            mark = " and ";
        }
        text
    }

    /// Returns whether it applies to everything, on every server, with any arguments.
    pub fn is_everything(&self) -> bool {
        self.servers == Servers::Named(Pattern::All) && self.scope == Scope::Every
    }

    /// Returns whether it applies to tools by their `readOnlyHint`.
    pub fn is_of_read_only_tools(&self) -> bool {
        self.scope == Scope::ReadOnlyTools
    }

    /// Returns whether it names exactly this tool, which its alias stands for.
    pub(super) fn names_tool(&self, tool: &str) -> bool {
        self.item.matches(tool)
    }

    /// Returns whether it applies to all items of a class.
    pub(super) fn is_all_of(&self, class: MethodClass) -> bool {
        let is_class = self.scope == Scope::Only(class) && self.item == Pattern::All;
        (self.scope == Scope::Every || is_class) && self.conditions.is_empty()
    }

    /// Returns whether it may apply to some item of a class.
    pub(super) fn touches(&self, class: MethodClass) -> bool {
        self.scope == Scope::Every || self.scope == Scope::Only(class)
    }

    /// Returns whether it may apply to a resource whose URI has this prefix.
    pub(super) fn reaches_below(&self, beginning: &str) -> bool {
        match (self.scope, self.uri.as_deref()) {
            (Scope::Every, _) => true,
            (Scope::Only(MethodClass::Resource), Some(uri)) => uri.may_begin_with(beginning),
            _ => false,
        }
    }

    /// Returns whether it applies to every resource whose URI has this prefix.
    pub(super) fn covers_below(&self, beginning: &str) -> bool {
        let is_resource = self.scope == Scope::Only(MethodClass::Resource);
        let covers = |uri: &UriPattern| is_resource && uri.covers_below(beginning);
        self.conditions.is_empty()
            && (self.scope == Scope::Every || self.uri.as_deref().is_some_and(covers))
    }

    /// Returns whether the grant, on one of its servers, allows an item, or any of the class if
    /// none is given.
    pub(super) fn opens(&self, class: MethodClass, item: Option<&Asked<'_>>) -> bool {
        let of = |owner| {
            let is_owner = self.scope == Scope::Only(owner)
                || (owner == MethodClass::Tool && self.scope == Scope::ReadOnlyTools);
            is_owner && item.is_none_or(|item| self.names(item))
        };
        match class {
            // Any grant on a server includes connecting to it.
            MethodClass::Lifecycle => true,
            MethodClass::Unknown => false,
            _ if self.scope == Scope::Every => true,
            // Completions and subscriptions follow the grants of their prompt or resource.
            MethodClass::Completion => {
                of(class) || of(MethodClass::Prompt) || of(MethodClass::Resource)
            }
            MethodClass::Subscription if item.is_some() => of(class) || of(MethodClass::Resource),
            // Without an item it is about lists, which each caller sees according to its grants.
            MethodClass::Subscription => true,
            MethodClass::Tool
            | MethodClass::Resource
            | MethodClass::Prompt
            | MethodClass::Logging
            | MethodClass::Task => of(class),
        }
    }

    /// Returns whether the grant, on one of its servers, may apply to an item; in doubt it does.
    /// Without an item only a grant of the whole class applies.
    pub(super) fn restricts(&self, class: MethodClass, item: Option<&Asked<'_>>) -> bool {
        if self.scope == Scope::Every {
            return true;
        }
        let Some(item) = item else {
            return self.is_all_of(class);
        };
        let of = |owner| {
            let is_owner = self.scope == Scope::Only(owner)
                || (owner == MethodClass::Tool && self.scope == Scope::ReadOnlyTools);
            is_owner && self.may_name(item)
        };
        match class {
            MethodClass::Lifecycle | MethodClass::Unknown => false,
            MethodClass::Completion => {
                let is_below = |beginning| {
                    self.touches(MethodClass::Resource) && self.reaches_below(beginning)
                };
                of(class)
                    || of(MethodClass::Prompt)
                    || of(MethodClass::Resource)
                    || item.template_beginning().is_some_and(is_below)
            }
            MethodClass::Subscription => of(class) || of(MethodClass::Resource),
            MethodClass::Tool
            | MethodClass::Resource
            | MethodClass::Prompt
            | MethodClass::Logging
            | MethodClass::Task => of(class),
        }
    }

    /// Returns whether the pattern matches an item. Only `*` matches an ambiguous URI.
    fn names(&self, item: &Asked<'_>) -> bool {
        match &self.uri {
            Some(_) if self.item == Pattern::All => true,
            Some(pattern) => item.uri().is_some_and(|uri| pattern.matches(uri)),
            None => self.item.matches(item.text),
        }
    }

    /// Returns whether the pattern matches an item in any reading.
    fn may_name(&self, item: &Asked<'_>) -> bool {
        match &self.uri {
            Some(pattern) => item.uri().is_none_or(|uri| pattern.may_match(uri)),
            None => self.item.matches(item.text),
        }
    }

    /// Returns whether its conditions hold.
    pub(super) fn holds(&self, arguments: Option<&serde_json::Value>) -> Truth {
        let judged = self.conditions.iter().map(|condition| {
            let judged = arguments.map(|arguments| condition.judge(arguments));
            judged.unwrap_or(Truth::Unknown)
        });
        judged.fold(Truth::Yes, Truth::and)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.item(), self.server())?;
        self.alias()
            .map_or(Ok(()), |alias| write!(f, " as {alias}"))
    }
}

/// Splits at ` and ` before the next pointer, but not inside quotes.
fn parse_conditions(text: &str) -> Result<Vec<Condition>, GrantError> {
    let (mut conditions, mut begin) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (place, character) in text.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted && text[place..].starts_with(" and /") => {
                conditions.push(Condition::parse(&text[begin..place])?);
                begin = place + " and ".len();
            }
            _ => {}
        }
    }
    conditions.push(Condition::parse(&text[begin..])?);
    Ok(conditions)
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
        .find_map(|(prefix, scope)| text.strip_prefix(prefix).map(|rest| (*scope, rest)));
    let (scope, rest) = prefixed.unwrap_or((Scope::Only(MethodClass::Tool), text));
    if rest.is_empty() {
        return Err(refused("it must not be empty"));
    }
    if text.len() > LONGEST_ITEM {
        return Err(refused("it is longer than 2048 bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err(refused("it contains control characters"));
    }
    Ok((scope, Pattern::new(rest)))
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
