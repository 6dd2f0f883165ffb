//! The capabilities of a client (sampling, elicitation, roots) and its log level. Only reads and
//! compares them. Entry point: [`ClientCapabilities::read`].

use std::str::FromStr;

use super::Method;
use crate::jsonrpc::{Edit, Raw, RawBuf};

/// The capabilities a client declared to servers, as far as Gantry interprets them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientCapabilities {
    /// Can sample from its model.
    pub sample: bool,
    /// Can sample with tools.
    pub sample_with_tools: bool,
    /// Can add context of other servers to what it samples.
    pub sample_with_context: bool,
    /// Can show a form to a person.
    pub elicit_form: bool,
    /// Can send a person to a URL.
    pub elicit_url: bool,
    /// Can list its roots.
    pub list_roots: bool,
    /// Notifies servers when its roots change.
    pub tell_roots: bool,
}

impl ClientCapabilities {
    /// No capabilities.
    pub const NOTHING: Self = Self {
        sample: false,
        sample_with_tools: false,
        sample_with_context: false,
        elicit_form: false,
        elicit_url: false,
        list_roots: false,
        tell_roots: false,
    };

    /// Reads the capabilities of a client; a value that is not an object declares none.
    pub fn read(capabilities: Raw<'_>) -> Self {
        let mut can = Self::NOTHING;
        let objects = capabilities.members();
        for member in objects.filter(|member| member.value.is_object()) {
            let has = |name| member.value.get(name).is_some_and(Raw::is_object);
            if member.is("sampling") {
                can.sample = true;
                can.sample_with_tools = has("tools");
                can.sample_with_context = has("context");
            } else if member.is("elicitation") {
                can.elicit_url = has("url");
                // Without a mode, the original one (forms) is meant.
                can.elicit_form = has("form") || !can.elicit_url;
            } else if member.is("roots") {
                can.list_roots = true;
                let tells = member.value.get("listChanged");
                can.tell_roots = tells.and_then(Raw::boolean) == Some(true);
            }
        }
        can
    }

    /// Returns whether a server could request anything from the client.
    pub fn anything(self) -> bool {
        self != Self::NOTHING
    }

    /// Returns whether a server may send this request to the client.
    pub fn may_be_asked(self, method: Method, params: Option<Raw<'_>>) -> bool {
        let member = |name| params.and_then(|params| params.get(name));
        if method == Method::SamplingCreateMessage {
            let needs_tools = member("tools").is_some() || member("toolChoice").is_some();
            self.sample && (self.sample_with_tools || !needs_tools)
        } else if method == Method::ElicitationCreate {
            match member("mode") {
                Some(mode) if mode.is_string("url") => {
                    self.elicit_url && member("url").is_some_and(is_web_url)
                }
                Some(_) | None => self.elicit_form,
            }
        } else {
            method == Method::RootsList && self.list_roots
        }
    }

    /// Returns the capabilities to declare to a server.
    pub fn to_json(self) -> RawBuf {
        let empty = Raw::EMPTY_OBJECT;
        let object = |parts: [(bool, &'static str); 2]| {
            let mut edit = Edit::new(empty);
            for (_, name) in parts.into_iter().filter(|(has, _)| *has) {
                edit.set(name, empty);
            }
            edit.to_buf()
        };
        let mut all = Edit::new(empty);
        if self.sample {
            let parts = [
                (self.sample_with_tools, "tools"),
                (self.sample_with_context, "context"),
            ];
            all.set_buf("sampling", object(parts));
        }
        if self.elicit_form || self.elicit_url {
            let parts = [(self.elicit_form, "form"), (self.elicit_url, "url")];
            all.set_buf("elicitation", object(parts));
        }
        if self.list_roots {
            let mut roots = Edit::new(empty);
            if self.tell_roots {
                roots.set("listChanged", Raw::TRUE);
            }
            all.set_buf("roots", roots.to_buf());
        }
        all.to_buf()
    }
}

/// Returns whether a value is the URL of a web page, and nothing that a client could execute or read
/// from a disk. fault L7
pub fn is_web_url(value: Raw<'_>) -> bool {
    let Some(url) = value.string() else {
        return false;
    };
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
    })
}

/// Returns the method if it is a request from a server to its client.
pub fn asking_method(method: &str) -> Option<Method> {
    Method::parse(method).filter(|method| {
        matches!(
            method,
            Method::SamplingCreateMessage | Method::ElicitationCreate | Method::RootsList
        )
    })
}

/// Returns whether a server may send requests to the client while it handles this method.
pub fn may_ask_back(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// The severity of a log message, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Detailed information for debugging.
    Debug,
    /// Normal operation.
    Info,
    /// Normal but significant events.
    Notice,
    /// Warnings.
    Warning,
    /// Errors.
    Error,
    /// Failure of a component.
    Critical,
    /// Immediate action is required.
    Alert,
    /// The system is unusable.
    Emergency,
}

impl LogLevel {
    /// All levels, least severe first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// Returns the level's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

/// The error of an unknown level name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown log level")]
pub struct UnknownLevel;

impl FromStr for LogLevel {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let found = Self::ALL.into_iter().find(|level| level.as_str() == text);
        found.ok_or(UnknownLevel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ClientCapabilities {
        ClientCapabilities::read(Raw::trusted(text))
    }

    #[test]
    fn capabilities_are_read_and_written_again() {
        for text in [
            "{}",
            r#"{"sampling":{}}"#,
            r#"{"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},"roots":{}}"#,
            r#"{"elicitation":{"url":{}}}"#,
        ] {
            assert_eq!(read(text).to_json().text(), text);
        }
        assert!(!read(r#"{"sampling":true,"experimental":{"x":{}}}"#).anything());
        let old = read(r#"{"elicitation":{},"roots":{"listChanged":true}}"#);
        assert!(old.elicit_form && !old.elicit_url && old.list_roots);
    }

    // fault S15
    #[test]
    fn a_client_is_asked_only_what_it_declared() {
        let can = read(r#"{"sampling":{},"elicitation":{}}"#);
        let asked =
            |method, params: &'static str| can.may_be_asked(method, Some(Raw::trusted(params)));
        assert!(asked(Method::SamplingCreateMessage, r#"{"messages":[]}"#));
        assert!(!asked(Method::SamplingCreateMessage, r#"{"tools":[]}"#));
        assert!(asked(Method::ElicitationCreate, r#"{"mode":"form"}"#));
        assert!(!asked(Method::ElicitationCreate, r#"{"mode":"url"}"#));
        assert!(!asked(Method::RootsList, "{}"));
        assert!(!asked(Method::ToolsCall, "{}"));
    }

    // fault L7
    #[test]
    fn a_client_is_sent_to_web_pages_only() {
        let can = read(r#"{"elicitation":{"url":{}}}"#);
        let asked = |url: &'static str| {
            can.may_be_asked(Method::ElicitationCreate, Some(Raw::trusted(url)))
        };
        assert!(asked(r#"{"mode":"url","url":"https://x.example/go"}"#));
        assert!(asked(r#"{"mode":"url","url":"HTTP://127.0.0.1:8/go"}"#));
        for odd in [
            r#"{"mode":"url"}"#,
            r#"{"mode":"url","url":1}"#,
            r#"{"mode":"url","url":""}"#,
            r#"{"mode":"url","url":"javascript:alert(1)//https://x"}"#,
            r#"{"mode":"url","url":" https://x.example"}"#,
            r#"{"mode":"url","url":"file:///etc/passwd"}"#,
            r#"{"mode":"url","url":"data:text/html,x"}"#,
        ] {
            assert!(!asked(odd), "{odd}");
        }
    }

    #[test]
    fn levels_have_an_order() {
        let level = |name: &str| name.parse::<LogLevel>().unwrap();
        assert!(level("debug") < level("warning"));
        assert_eq!("loud".parse::<LogLevel>(), Err(UnknownLevel));
    }
}
