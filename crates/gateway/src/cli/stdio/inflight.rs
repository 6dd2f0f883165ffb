//! Messages in flight of one client: bounded in number and bytes, requests found by id.
//!
//! Requests and batches share one limit; notifications have a smaller one of their own, so a flood
//! of them does not block requests. Never waits. Entry point: [`Inflight::enter`].

use std::collections::HashMap;
use std::sync::Arc;

use gantry_model::jsonrpc::RequestId;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Maximum number of requests in flight.
pub(super) const REQUESTS: usize = 512;
/// Maximum number of notifications in flight.
const NOTICES: usize = 64;
/// Maximum total size: sixteen of the longest.
const BYTES: usize = 64 << 20;

/// What is entered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'a> {
    /// A request, which its client may cancel.
    Request(RequestId<'a>),
    /// Several messages at once.
    Batch,
    /// A message without a response.
    Notice,
}

/// All messages in flight of one client.
#[derive(Debug, Default)]
pub(super) struct Inflight(Mutex<InflightState>);

#[derive(Debug, Default)]
struct InflightState {
    requests: usize,
    notices: usize,
    bytes: usize,
    tokens: HashMap<Box<str>, Vec<CancellationToken>>,
}

/// A message's slot, released when dropped.
#[derive(Debug)]
pub(super) struct InflightSlot {
    inflight: Arc<Inflight>,
    id: Option<Box<str>>,
    is_notice: bool,
    bytes: usize,
    /// Cancelled with the message, or at the end.
    pub(super) token: CancellationToken,
}

impl Inflight {
    /// Takes a slot for a message of this size; nothing if there is no room.
    pub(super) fn enter(
        self: &Arc<Self>,
        kind: Kind<'_>,
        bytes: usize,
        stop: &CancellationToken,
    ) -> Option<InflightSlot> {
        let is_notice = matches!(kind, Kind::Notice);
        let token = stop.child_token();
        let mut state = self.0.lock();
        let has_room = match is_notice {
            true => state.notices < NOTICES,
            false => state.requests < REQUESTS,
        };
        if !has_room || state.bytes.saturating_add(bytes) > BYTES {
            return None;
        }
        match is_notice {
            true => state.notices += 1,
            false => state.requests += 1,
        }
        state.bytes += bytes;
        let id: Option<Box<str>> = match kind {
            Kind::Request(id) => Some(id.raw().into()),
            Kind::Batch | Kind::Notice => None,
        };
        if let Some(id) = &id {
            let tokens = state.tokens.entry(id.clone()).or_default();
            tokens.push(token.clone());
        }
        drop(state);
        Some(InflightSlot {
            inflight: Arc::clone(self),
            id,
            is_notice,
            bytes,
            token,
        })
    }

    /// Cancels the request with this id.
    pub(super) fn take_back(&self, id: RequestId<'_>) {
        if let Some([only]) = self.0.lock().tokens.get(id.raw()).map(Vec::as_slice) {
            only.cancel();
        }
    }
}

impl Drop for InflightSlot {
    fn drop(&mut self) {
        self.token.cancel();
        let mut state = self.inflight.0.lock();
        match self.is_notice {
            true => state.notices -= 1,
            false => state.requests -= 1,
        }
        state.bytes -= self.bytes;
        let Some(id) = &self.id else {
            return;
        };
        if let Some(tokens) = state.tokens.get_mut(id) {
            tokens.retain(|token| !token.is_cancelled());
            if tokens.is_empty() {
                state.tokens.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::jsonrpc::Raw;

    use super::*;

    #[test]
    fn number_and_bytes_are_bounded_and_come_back() {
        let (inflight, stop) = (Arc::new(Inflight::default()), CancellationToken::new());
        let enter = |kind, bytes| inflight.enter(kind, bytes, &stop);
        let whole = enter(Kind::Batch, BYTES).unwrap();
        assert!(enter(Kind::Notice, 1).is_none());
        drop(whole);
        let notices: Vec<_> = (0..NOTICES).map(|_| enter(Kind::Notice, 1)).collect();
        assert!(notices.iter().all(Option::is_some));
        assert!(enter(Kind::Notice, 1).is_none());
        let requests: Vec<_> = (0..REQUESTS).map(|_| enter(Kind::Batch, 1)).collect();
        assert!(requests.iter().all(Option::is_some));
        assert!(enter(Kind::Batch, 1).is_none());
        drop(requests);
        assert!(enter(Kind::Batch, 1).is_some());
    }

    #[test]
    fn an_id_in_use_twice_is_not_taken_back_and_none_is_kept() {
        let (inflight, stop) = (Arc::new(Inflight::default()), CancellationToken::new());
        let id = RequestId::read(Raw::trusted("1")).unwrap();
        let first = inflight.enter(Kind::Request(id), 1, &stop).unwrap();
        let second = inflight.enter(Kind::Request(id), 1, &stop).unwrap();
        inflight.take_back(id);
        assert!(!first.token.is_cancelled() && !second.token.is_cancelled());
        drop(first);
        inflight.take_back(id);
        assert!(second.token.is_cancelled());
        drop(second);
        assert!(inflight.0.lock().tokens.is_empty());
    }
}
