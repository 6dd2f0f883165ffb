//! Requests of a server to its client: tied to the one call they can belong to, handed to whoever
//! waits for that call, answered on the link. Nothing here waits, and a request that cannot be tied
//! is never passed on (fault S15). Entry points: `Link::hand_on` and `Link::reply`.

use std::sync::Arc;

use gantry_model::jsonrpc::{
    ErrorBody, INTERNAL_ERROR, OneLine, OwnedRequestId, Payload, Raw, RawBuf, Request,
};
use gantry_model::mcp::{Method, asking_method};
use tokio::sync::mpsc;

use super::Link;
use crate::request::Client;

/// How the caller of a call hears of it while it runs, and can be asked.
#[derive(Debug, Clone)]
pub(crate) struct Voice {
    pub(crate) client: Arc<Client>,
    /// Takes what the server asks of the client; none on a link that declared nothing.
    pub(crate) asks: Option<mpsc::Sender<Asked>>,
}

/// A request of a server's that belongs to one call.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The server's id, echoed as it is.
    pub(crate) id: OwnedRequestId,
    pub(crate) method: Method,
    pub(crate) params: Option<RawBuf>,
}

impl Link {
    /// Hands a request of the server's to the call it belongs to: the one on whose stream it came,
    /// or else the only one that the server has. The error says why that cannot be.
    pub(super) fn hand_on(
        &self,
        request: &Request<'_>,
        on: Option<u64>,
    ) -> Result<(), &'static str> {
        if !self.limits.asks {
            return Err("this gateway declared no client capabilities");
        }
        let Some(method) = asking_method(&request.method) else {
            return Err("the client has no such method");
        };
        let call = on.or_else(|| self.pending.sole_call());
        let voice = call.and_then(|call| self.pending.voice(call));
        let Some(Voice {
            client,
            asks: Some(asks),
        }) = voice
        else {
            return Err("there is no one call that this could be for");
        };
        if !client.can.may_be_asked(method, request.params) {
            return Err("the client cannot do that");
        }
        let asked = Asked {
            id: request.id.to_owned(),
            method,
            params: request.params.map(Raw::to_buf),
        };
        asks.try_send(asked)
            .map_err(|_| "the client is asked too much at once")
    }

    /// Answers a request of the server's with what the client said.
    pub(crate) fn reply(&self, id: &OwnedRequestId, outcome: &Result<RawBuf, RawBuf>) {
        let id = id.as_id();
        let line = match outcome {
            Ok(result) => OneLine::result(id, Payload::from(result)),
            Err(error) => match ErrorBody::read(error.as_raw()) {
                Some(error) => {
                    let data = error.data.map(Payload::Raw);
                    OneLine::error(Some(id), error.code, &error.message, data)
                }
                None => OneLine::error(Some(id), INTERNAL_ERROR, "the client failed", None),
            },
        };
        self.send_loosely(line);
    }

    /// Stops the clock of a call while its caller is asked, or starts it again.
    pub(crate) fn pause(&self, call: u64, asked: bool) {
        self.pending.pause(call, asked);
    }
}
