//! A remote server: its URL, its transport, and how to reconnect to it.
//!
//! URLs are checked here as text; the transport checks what a name resolves to when it connects.
//! Entry point: [`RemoteLaunch`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::auth::{AuthFieldError, RemoteAuth};
use super::options::{Field, Kind, SOME_TIME, ServerOption, option, plain, remote};
use super::url::{UrlError, check_url, is_plain_proxy};
use super::{Launch, Written, hosting, period};

/// The maximum length of a header value.
const LONGEST_VALUE: usize = 16 << 10;

/// Headers that only the transport may set. faults H10, H12
const OWN_HEADERS: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "last-event-id",
    "mcp-session-id",
    "mcp-protocol-version",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The URL and connection settings of a remote server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteLaunch {
    /// Its URL.
    pub url: String,
    /// Its transport.
    #[serde(default)]
    pub transport: TransportPreference,
    /// Headers of every request to it, and of no other request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The HTTP proxy for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Whether its host name may resolve to a private address.
    #[serde(default)]
    pub allow_private: bool,
    /// A PEM file with certificates that are trusted in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// How to sign in to it.
    #[serde(default, skip_serializing_if = "RemoteAuth::is_default")]
    pub auth: RemoteAuth,
    /// When to reconnect after the connection was lost.
    #[serde(default)]
    pub reconnect: ReconnectSpec,
    /// The texts before variables were expanded; never stored together with their values.
    #[serde(skip)]
    pub written: Written,
}

/// The preferred transport of a remote server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportPreference {
    /// Whichever the server supports: streamable HTTP, else HTTP with SSE.
    #[default]
    Auto,
    /// Streamable HTTP, of either era.
    StreamableHttp,
    /// HTTP with SSE, as of 2024-11-05.
    Sse,
}

impl TransportPreference {
    /// Returns its name in all inputs and outputs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::StreamableHttp => "streamable-http",
            Self::Sse => "sse",
        }
    }

    /// Parses the name in any of the spellings that clients use.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "http" | "streamable-http" | "streamableHttp" | "streamable_http" => {
                Some(Self::StreamableHttp)
            }
            "sse" => Some(Self::Sse),
            _ => None,
        }
    }
}

/// When to reconnect to a remote server. rows 0.7 and 0.12
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReconnectSpec {
    /// The upper bound of the first wait; each wait is random between zero and its bound.
    #[serde(with = "period")]
    pub first: Duration,
    /// The maximum bound, up to which it doubles.
    #[serde(with = "period")]
    pub longest: Duration,
    /// After how many consecutive failed connects all attempts pause for a while.
    pub failures: u32,
    /// How long they pause; then a single attempt decides.
    #[serde(with = "period")]
    pub away: Duration,
    /// How long a connection must last for earlier failures to be forgotten.
    #[serde(with = "period")]
    pub steady: Duration,
}

impl Default for ReconnectSpec {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
            failures: 3,
            away: Duration::from_secs(60),
            steady: Duration::from_secs(60),
        }
    }
}

/// An invalid setting of a remote server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// The URL is not valid for a server.
    #[error("`url` cannot be used: {0}")]
    Url(UrlError),
    /// The URL of the proxy is invalid.
    #[error("`proxy` cannot be used: it must be `http://host:port` and nothing else")]
    Proxy,
    /// A header's name or value is invalid, or reserved for the transport.
    #[error("header `{name}` cannot be used: {why}")]
    Header {
        /// Its name, escaped and truncated.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The sign-in settings contradict each other.
    #[error(transparent)]
    Auth(#[from] AuthFieldError),
    /// An invalid wait of `reconnect`.
    #[error("`reconnect` cannot be used: {0}")]
    Reconnect(&'static str),
}

impl RemoteError {
    /// Returns the field that is wrong.
    pub fn field(&self) -> String {
        match self {
            Self::Url(_) => "url".to_owned(),
            Self::Proxy => "proxy".to_owned(),
            Self::Header { name, .. } => format!("headers.{name}"),
            Self::Auth(error) => format!("auth.{}", error.field),
            Self::Reconnect(_) => "reconnect".to_owned(),
        }
    }

    /// Returns what to write instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Url(error) => error.hint().to_owned(),
            Self::Proxy => "write for example `http://proxy.example.com:3128`".to_owned(),
            Self::Header { .. } => {
                "write a name of letters, digits and `-`, and a value of one line".to_owned()
            }
            Self::Auth(_) => {
                "`auth` takes `kind`, `client_id`, `client_secret`, `issuer`, `client_metadata_url`, \
                 `scopes`"
                    .to_owned()
            }
            Self::Reconnect(_) => {
                "write a `longest` that is no shorter than `first`".to_owned()
            }
        }
    }
}

impl RemoteLaunch {
    /// Makes a launch of a URL with every default.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            transport: TransportPreference::Auto,
            headers: BTreeMap::new(),
            proxy: None,
            allow_private: false,
            ca_file: None,
            auth: RemoteAuth::default(),
            reconnect: ReconnectSpec::default(),
            written: Written::default(),
        }
    }

    /// Returns the proxy without its credentials.
    pub fn shown_proxy(&self) -> Option<String> {
        let proxy = self.proxy.as_deref()?;
        let (scheme, rest) = proxy.split_once("://")?;
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        Some(format!("{scheme}://{host}"))
    }

    /// Checks the rules that types cannot express.
    pub fn check(&self) -> Result<(), RemoteError> {
        check_url(&self.url).map_err(RemoteError::Url)?;
        if let Some(proxy) = &self.proxy
            && !is_plain_proxy(proxy)
        {
            return Err(RemoteError::Proxy);
        }
        for (name, value) in &self.headers {
            check_header(name, value)?;
        }
        self.auth.check()?;
        self.reconnect.check()
    }
}

impl ReconnectSpec {
    fn check(&self) -> Result<(), RemoteError> {
        if self.longest < self.first {
            return Err(RemoteError::Reconnect("`longest` is shorter than `first`"));
        }
        Ok(())
    }
}

fn check_header(name: &str, value: &str) -> Result<(), RemoteError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_own = |own: &str| name.eq_ignore_ascii_case(own);
    let why = if name.is_empty() || name.len() > 128 || !name.bytes().all(is_token) {
        "it is not a header name"
    } else if OWN_HEADERS.iter().any(|own| is_own(own)) || is_mirrored(name) {
        "Gantry writes it itself"
    } else if value.len() > LONGEST_VALUE {
        "its value is over 16 KiB"
    } else if value
        .bytes()
        .any(|byte| !matches!(byte, b'\t' | b' '..=b'~'))
    {
        "its value has a line break or a character that is not ASCII"
    } else {
        return Ok(());
    };
    let name = name.chars().take(60).flat_map(char::escape_debug).collect();
    Err(RemoteError::Header { name, why })
}

/// Returns whether a header repeats parts of a request's body.
fn is_mirrored(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "mcp-method" | "mcp-name") || name.starts_with("mcp-param-")
}

/// The options of a remote server.
pub(super) static OPTIONS: &[ServerOption] = &[
    option(
        "url",
        Kind::Template,
        "Where a remote server is: `http` or `https`, no password, no `#`.",
        |spec| plain(&mut remote(spec)?.url),
    )
    .spellings(&["httpUrl", "serverUrl"]),
    option(
        "transport",
        Kind::Choice(&["stdio", "auto", "streamable-http", "sse"]),
        "How its messages travel: `stdio` for a command; for a URL `auto` finds out what the server \
         speaks. `http` and `streamableHttp` mean `streamable-http`.",
        |spec| match &mut spec.launch {
            Launch::Process(process) => hosting::transport(&mut process.hosting),
            Launch::Image(image) => hosting::transport(&mut image.hosting),
            Launch::Remote(remote) => plain(&mut remote.transport),
        },
    )
    .spellings(&["type"]),
    option(
        "headers",
        Kind::Pairs,
        "Headers sent with every request to it, and to no other server. Values are never shown.",
        |spec| plain(&mut remote(spec)?.headers),
    ),
    option(
        "proxy",
        Kind::Template,
        "The HTTP proxy on the way to it, as a URL.",
        |spec| plain(&mut remote(spec)?.proxy),
    )
    .absent("none"),
    option(
        "allow_private",
        Kind::Flag,
        "Whether the name in `url` may resolve to a private address.",
        |spec| plain(&mut remote(spec)?.allow_private),
    ),
    option(
        "ca_file",
        Kind::Template,
        "A PEM file with certificates that are trusted beside the system's: a plain file of at most \
         1 MiB.",
        |spec| plain(&mut remote(spec)?.ca_file),
    )
    .absent("none"),
    option(
        "auth.kind",
        Kind::Choice(&["auto", "none", "client_credentials"]),
        "Who signs in to it: a person, if the server asks for it; nobody; or the gateway itself. See \
         [sign-in](howto/sign-in.md).",
        |spec| plain(&mut remote(spec)?.auth.kind),
    ),
    option(
        "auth.client_id",
        Kind::Template,
        "The client that was registered by hand with the authorization server.",
        |spec| plain(&mut remote(spec)?.auth.client_id),
    )
    .spellings(&["auth.CLIENT_ID"]),
    option(
        "auth.client_secret",
        Kind::Secret,
        "Its secret, which is never shown.",
        |spec| plain(&mut remote(spec)?.auth.client_secret),
    )
    .spellings(&["auth.CLIENT_SECRET"]),
    option(
        "auth.issuer",
        Kind::Template,
        "The authorization server that the client is known to; the client is shown to no other.",
        |spec| plain(&mut remote(spec)?.auth.issuer),
    ),
    option(
        "auth.client_metadata_url",
        Kind::Template,
        "The URL of the metadata document that describes this gateway as an OAuth client.",
        |spec| plain(&mut remote(spec)?.auth.client_metadata_url),
    ),
    option(
        "auth.scopes",
        Kind::Templates,
        "The scopes to ask for; those that the server names if this is left out.",
        |spec| plain(&mut remote(spec)?.auth.scopes),
    ),
    option(
        "reconnect.first",
        SOME_TIME,
        "The longest first wait before a lost connection is tried again; each wait is drawn at random \
         below its bound, which doubles. See [Remote servers](#remote-servers).",
        |spec| Some(Field::Period(&mut remote(spec)?.reconnect.first)),
    ),
    option(
        "reconnect.longest",
        SOME_TIME,
        "The longest wait of all.",
        |spec| Some(Field::Period(&mut remote(spec)?.reconnect.longest)),
    ),
    option(
        "reconnect.failures",
        Kind::Whole(1, 100),
        "How many failed connects in a row open the circuit.",
        |spec| plain(&mut remote(spec)?.reconnect.failures),
    ),
    option(
        "reconnect.away",
        SOME_TIME,
        "How long the circuit stays open; then one try decides.",
        |spec| Some(Field::Period(&mut remote(spec)?.reconnect.away)),
    ),
    option(
        "reconnect.steady",
        SOME_TIME,
        "How long a connection must hold to count as good.",
        |spec| Some(Field::Period(&mut remote(spec)?.reconnect.steady)),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn with_header(name: &str, value: &str) -> Result<(), RemoteError> {
        let mut launch = RemoteLaunch::new("https://example.com/mcp");
        launch.headers.insert(name.to_owned(), value.to_owned());
        launch.check()
    }

    #[test]
    fn headers_cannot_break_out_of_their_line_nor_pose_as_ours() {
        // faults H10, H12
        assert_eq!(with_header("Authorization", "Bearer x"), Ok(()));
        for (name, value) in [
            ("X-A", "a\r\nX-B: b"),
            ("X A", "a"),
            ("", "a"),
            ("X-A", "ü"),
            ("Host", "evil"),
            ("mcp-session-id", "1"),
            ("Mcp-Param-Region", "eu"),
            ("Transfer-Encoding", "chunked"),
        ] {
            assert!(with_header(name, value).is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn what_is_shown_holds_no_secret() {
        let mut launch = RemoteLaunch::new("https://example.com/mcp?key=s3cret");
        launch.proxy = Some("http://me:s3cret@proxy:3128".to_owned());
        assert_eq!(launch.check(), Ok(()));
        assert_eq!(launch.shown_url(), "https://example.com/mcp");
        assert_eq!(launch.shown_proxy().as_deref(), Some("http://proxy:3128"));
        launch.proxy = Some("socks5://proxy".to_owned());
        assert_eq!(launch.check(), Err(RemoteError::Proxy));
    }

    #[test]
    fn a_remote_spec_survives_its_stored_form() {
        let launch = RemoteLaunch::new("https://example.com/mcp");
        let text = serde_json::to_string(&launch).unwrap();
        assert_eq!(serde_json::from_str::<RemoteLaunch>(&text).unwrap(), launch);
        let short: RemoteLaunch = serde_json::from_str(r#"{"url":"https://a/b"}"#).unwrap();
        assert_eq!(short, RemoteLaunch::new("https://a/b"));
    }

    #[test]
    fn every_spelling_of_a_transport_is_known() {
        for text in ["http", "streamable-http", "streamableHttp"] {
            assert_eq!(
                TransportPreference::parse(text),
                Some(TransportPreference::StreamableHttp)
            );
        }
        assert_eq!(TransportPreference::parse("stdio"), None);
    }
}
