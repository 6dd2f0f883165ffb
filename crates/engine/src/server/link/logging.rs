//! Log messages of a server: forwarded to the caller of the one call they can belong to, or to the
//! client that owns the link, if their level is high enough. A link of the handshake era has one
//! level for all callers, the lowest that any of them requested; a message that belongs to no
//! single call is only written to the server's log. Entry points: `Link::logged` and
//! `Link::log_from`.

use std::sync::Arc;
use std::time::Duration;

use gantry_model::jsonrpc::{Raw, RawBuf};
use gantry_model::mcp::LogLevel;

use super::Link;
use super::inbox::LONGEST_MESSAGE;
use crate::request::CallEvent;
use crate::server::pending::Recipient;

/// How long a server may take to set its level; the call continues without it.
const PATIENCE: Duration = Duration::from_secs(5);

impl Link {
    /// Forwards a log message; `on` is the call on whose stream it came, if the transport has such
    /// streams.
    pub(super) fn logged(&self, params: Raw<'_>, on: Option<u64>) {
        let caller_channel = match on.map(Recipient::Call).or_else(|| self.pending.recipient()) {
            Some(Recipient::Call(call)) => self.pending.caller_channel(call),
            // On its own link a client gets all messages.
            Some(Recipient::Session(session)) if self.limits.asks => {
                let call = self.pending.reachable_call(Some(&session), &[]);
                call.map(|call| call.caller_channel)
            }
            Some(Recipient::Session(_)) | None => None,
        };
        let Some(caller_channel) = caller_channel else {
            return;
        };
        let level = params.get("level").and_then(Raw::string);
        let level = level.and_then(|level| level.parse::<LogLevel>().ok());
        let is_wanted = match (caller_channel.client.log_level, level) {
            (Some(least), Some(level)) => level >= least,
            (None, _) | (_, None) => false,
        };
        if is_wanted && params.text().len() > LONGEST_MESSAGE {
            self.count_dropped();
        } else if is_wanted {
            let text = self.for_client(params.text());
            let event = CallEvent::Log(text.into_boxed_str());
            // A slow caller may miss messages, but never the response.
            drop(caller_channel.client.events.try_send(event));
        }
    }

    /// Asks a server of the handshake era to log from this level on, unless it already does.
    pub(crate) async fn log_from(self: &Arc<Self>, level: LogLevel) {
        {
            let mut lowest = self.log_level.lock();
            if lowest.is_some_and(|lowest| level >= lowest) {
                return;
            }
            *lowest = Some(level);
        }
        let params = serde_json::json!({ "level": level.as_str() });
        if let Ok(params) = RawBuf::serialize(&params) {
            let asked = self.ask("logging/setLevel", Some(&params), PATIENCE).await;
            drop(asked);
        }
    }
}
