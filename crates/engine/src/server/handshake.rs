//! The handshake with a server: `server/discover` first; `initialize` if that is refused,
//! unanswered or known to be required. The first response counts. One deadline for all of it.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::era::handshake::{
    HandshakeError, HandshakeResult, Probe, classify_probe_answer, discover_params,
    initialize_params, read_initialize,
};
use gantry_model::era::meta::Identity;
use gantry_model::era::{Era, ProtocolVersion};
use gantry_model::jsonrpc::{ErrorBody, METHOD_NOT_FOUND, Outcome, Raw, RawBuf};
use gantry_model::mcp::ClientCapabilities;
use gantry_model::secret::Redactor;
use gantry_model::spec::period;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::link::{InFlight, Link};
use super::listing::describe;
use super::pending::{Answer, Failure};

/// The longest `serverInfo` that is kept.
const LONGEST_INFO: usize = 16 << 10;
/// The longest `instructions` that are kept.
const LONGEST_INSTRUCTIONS: usize = 64 << 10;

/// The result of a handshake.
#[derive(Debug, Clone)]
pub(crate) struct HandshakeInfo {
    pub(crate) era: Era,
    pub(crate) version: ProtocolVersion,
    pub(crate) server_info: Option<RawBuf>,
    pub(crate) capabilities: RawBuf,
    pub(crate) instructions: Option<String>,
}

/// A handshake result as stored.
#[derive(Serialize, Deserialize)]
struct StoredHandshake {
    version: String,
    server_info: Option<serde_json::Value>,
    capabilities: serde_json::Value,
    instructions: Option<String>,
}

impl HandshakeInfo {
    /// Keeps the result of a handshake with secrets redacted: it is shown and stored.
    fn keep(greeted: &HandshakeResult<'_>, redactor: &Redactor) -> Self {
        let info = greeted.server_info;
        let info = info.filter(|info| info.text().len() <= LONGEST_INFO);
        let clean = |info: Raw<'_>| Raw::trusted(&redactor.redact_json(info.text())).to_buf();
        let instructions = greeted.instructions.as_deref();
        let instructions = instructions.map(|text| redactor.redact(text));
        let cut = |text: &str| text[..text.floor_char_boundary(LONGEST_INSTRUCTIONS)].to_owned();
        Self {
            era: greeted.era,
            version: greeted.version,
            server_info: info.map(clean),
            capabilities: clean(greeted.capabilities),
            instructions: instructions.as_deref().map(cut),
        }
    }

    /// Returns what it wants clients to know, without what nobody sees in it. fault L2
    pub(crate) fn shown_instructions(&self) -> Option<String> {
        let text = self.instructions.as_deref()?;
        let clean = gantry_model::hidden::clean(text);
        Some(clean.map_or_else(|| text.to_owned(), |(clean, _)| clean))
    }

    /// Returns whether the server declared a capability.
    pub(crate) fn has(&self, capability: &str) -> bool {
        self.capabilities.as_raw().get(capability).is_some()
    }

    /// Returns whether the server supports resource subscriptions.
    pub(crate) fn subscribes(&self) -> bool {
        let resources = self.capabilities.as_raw().get("resources");
        let subscribe = resources.and_then(|resources| resources.get("subscribe"));
        subscribe.and_then(Raw::boolean) == Some(true)
    }

    pub(crate) fn to_json(&self) -> String {
        let value = |raw: &RawBuf| {
            raw.as_raw()
                .deserialize()
                .unwrap_or(serde_json::Value::Null)
        };
        let remembered = StoredHandshake {
            version: self.version.to_string(),
            server_info: self.server_info.as_ref().map(value),
            capabilities: value(&self.capabilities),
            instructions: self.instructions.clone(),
        };
        serde_json::to_string(&remembered).unwrap_or_default()
    }

    pub(crate) fn from_json(text: &str) -> Option<Self> {
        let remembered: StoredHandshake = serde_json::from_str(text).ok()?;
        let version: ProtocolVersion = remembered.version.parse().ok()?;
        let server_info = remembered.server_info.map(|info| RawBuf::serialize(&info));
        Some(Self {
            era: version.era(),
            version,
            server_info: server_info.transpose().ok()?,
            capabilities: RawBuf::serialize(&remembered.capabilities).ok()?,
            instructions: remembered.instructions,
        })
    }
}

/// Why a handshake failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum HandshakeFailure {
    #[error("did not answer `{0}` within {waited}", waited = period::about(*.1))]
    Silent(&'static str, Duration),
    #[error("answered `initialize` with error {code}: {message}")]
    Refused { code: i64, message: String },
    #[error("{0}")]
    NotUnderstood(#[from] HandshakeError),
    #[error("the link was cut during the handshake: {}", describe(.0))]
    Cut(Failure),
}

/// Performs the handshake in the server's era, and declares these client capabilities.
pub(crate) async fn greet(
    link: &Arc<Link>,
    hint: Option<Era>,
    capabilities: ClientCapabilities,
    probe_wait: Duration,
    deadline: Instant,
) -> Result<HandshakeInfo, HandshakeFailure> {
    let begun = Instant::now();
    let identity = Identity::gantry();
    let probe = match hint {
        Some(Era::Handshake) => None,
        Some(Era::Stateless) | None => Some(
            link.ask_begin("server/discover", Some(&discover_params(&identity)))
                .map_err(HandshakeFailure::Cut)?,
        ),
    };
    let mut refused = None;
    let greeting = async {
        match probe {
            None => initialize(link, (&identity, capabilities)).await,
            Some(probe) => {
                let who = (&identity, capabilities);
                probed(link, who, probe, probe_wait, &mut refused).await
            }
        }
    };
    let waited = tokio::time::timeout_at(deadline, greeting).await;
    let silent = |method| HandshakeFailure::Silent(method, begun.elapsed());
    let handshake = waited.unwrap_or_else(|_| {
        Err(match refused {
            // A server without `initialize` is stateless, and did not answer the probe yet.
            Some(HandshakeFailure::Refused { code, .. }) if code == METHOD_NOT_FOUND => {
                silent("server/discover")
            }
            Some(refused) => refused,
            None => silent("initialize"),
        })
    })?;
    link.set_version(handshake.version);
    Ok(handshake)
}

/// Waits a moment for the probe alone, then also sends `initialize`; if that is `refused`, the
/// probe may still be answered.
async fn probed(
    link: &Arc<Link>,
    who: (&Identity, ClientCapabilities),
    probe: InFlight,
    probe_wait: Duration,
    refused: &mut Option<HandshakeFailure>,
) -> Result<HandshakeInfo, HandshakeFailure> {
    let mut probe = std::pin::pin!(probe.answer());
    match tokio::time::timeout(probe_wait, &mut probe).await {
        Ok(answer) => match judge_probe(link, answer)? {
            Some(handshake) => Ok(handshake),
            None => initialize(link, who).await,
        },
        Err(_elapsed) => {
            let mut initialize = std::pin::pin!(initialize(link, who));
            tokio::select! {
                biased;
                handshake = &mut initialize => match handshake {
                    // A slow stateless server does not know the method.
                    Err(error @ HandshakeFailure::Refused { .. }) => {
                        *refused = Some(error.clone());
                        judge_probe(link, probe.await)?.ok_or(error)
                    }
                    handshake => handshake,
                },
                answer = &mut probe => match judge_probe(link, answer)? {
                    Some(handshake) => Ok(handshake),
                    None => initialize.await,
                },
            }
        }
    }
}

/// Evaluates the response to the probe; `None` means that `initialize` is required.
fn judge_probe(link: &Link, answer: Answer) -> Result<Option<HandshakeInfo>, HandshakeFailure> {
    let outcome = match &answer {
        Answer::Result(raw) => Outcome::Result(trusted(raw)),
        Answer::Error(raw) => Outcome::Error(trusted(raw)),
        // An invalid response does not come from a stateless server.
        Answer::Failed(Failure::Protocol(_)) => return Ok(None),
        Answer::Failed(Failure::Remote(error)) if error.is_unknowing() => return Ok(None),
        Answer::Failed(failure) => return Err(HandshakeFailure::Cut(failure.clone())),
    };
    match classify_probe_answer(outcome) {
        Probe::Stateless(handshake) => {
            Ok(Some(HandshakeInfo::keep(&handshake, &link.logs.redactor())))
        }
        Probe::Initialize => Ok(None),
        Probe::Failed(error) => Err(error.into()),
    }
}

async fn initialize(
    link: &Arc<Link>,
    (identity, capabilities): (&Identity, ClientCapabilities),
) -> Result<HandshakeInfo, HandshakeFailure> {
    let asked = link.ask_begin(
        "initialize",
        Some(&initialize_params(identity, capabilities)),
    );
    match asked.map_err(HandshakeFailure::Cut)?.answer().await {
        Answer::Result(raw) => {
            let handshake =
                HandshakeInfo::keep(&read_initialize(trusted(&raw))?, &link.logs.redactor());
            link.set_version(handshake.version);
            link.notify("notifications/initialized", None);
            Ok(handshake)
        }
        Answer::Error(raw) => {
            let body = ErrorBody::read(trusted(&raw));
            let (code, message) = body.map_or((0, String::new()), |body| {
                (body.code, body.message.chars().take(200).collect())
            });
            Err(HandshakeFailure::Refused { code, message })
        }
        Answer::Failed(failure) => Err(HandshakeFailure::Cut(failure)),
    }
}

/// Returns the request that checks whether a quiet server still responds.
pub(crate) fn health_question(era: Era) -> (&'static str, Option<RawBuf>) {
    match era {
        Era::Handshake => ("ping", None),
        Era::Stateless => (
            "server/discover",
            Some(discover_params(&Identity::gantry())),
        ),
    }
}

/// Wraps bytes that were already parsed strictly.
pub(crate) fn trusted(raw: &[u8]) -> Raw<'_> {
    Raw::trusted(std::str::from_utf8(raw).unwrap_or("null"))
}

/// The same, for reading only: skips the search for line breaks.
pub(crate) fn readable(raw: &[u8]) -> Raw<'_> {
    Raw::known(std::str::from_utf8(raw).unwrap_or("null"))
}
