//! The issued clients, codes and tokens. Values are random and looked up, never computed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::wait::now;

/// The state of the authorization server.
#[derive(Default)]
pub(super) struct Book {
    /// Which authorization server the MCP server trusts.
    pub(super) tenant: u32,
    /// The authorization server it names instead.
    pub(super) named: Option<String>,
    /// The issuer this one pretends to be.
    pub(super) posed: Option<String>,
    /// Client ids, with secret and redirect URIs.
    pub(super) registered: BTreeMap<String, Registered>,
    pub(super) codes: BTreeMap<String, Code>,
    pub(super) access: BTreeMap<String, Access>,
    pub(super) refresh: BTreeMap<String, Refresh>,
    pub(super) requests: Vec<String>,
    /// Every secret that was ever issued.
    pub(super) given: Vec<String>,
}

/// A client that registered itself.
pub(super) struct Registered {
    pub(super) secret: Option<String>,
    pub(super) redirects: Vec<String>,
}

/// A code that waits to be exchanged.
pub(super) struct Code {
    pub(super) tenant: u32,
    pub(super) client: String,
    pub(super) redirect: String,
    pub(super) challenge: String,
    pub(super) scopes: BTreeSet<String>,
}

/// The scopes of an access token.
pub(super) struct Access {
    pub(super) until: Instant,
    pub(super) scopes: BTreeSet<String>,
}

/// The grant of a refresh token.
pub(super) struct Refresh {
    pub(super) tenant: u32,
    pub(super) client: String,
    pub(super) scopes: BTreeSet<String>,
}

impl Book {
    /// Creates a secret and remembers it as issued.
    pub(super) fn secret(&mut self, kind: &str) -> String {
        let secret = format!("{kind}-{}", random());
        self.given.push(secret.clone());
        secret
    }

    /// Issues an access token.
    pub(super) fn open(&mut self, scopes: BTreeSet<String>, seconds: u64) -> String {
        let token = self.secret("access");
        let until = now() + Duration::from_secs(seconds);
        self.access.insert(token.clone(), Access { until, scopes });
        token
    }

    /// Returns the current scopes of a token.
    pub(super) fn scopes(&self, token: &str) -> Option<&BTreeSet<String>> {
        let access = self.access.get(token)?;
        (now() < access.until).then_some(&access.scopes)
    }
}

/// Returns the words of a scope.
pub(super) fn words(scope: Option<&String>) -> BTreeSet<String> {
    let words = scope.map(|scope| scope.split_whitespace().map(str::to_owned));
    words.into_iter().flatten().collect()
}

/// Returns 128 random bits in hex.
fn random() -> String {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .expect("the machine has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
