//! What a server asks of a session: of the client whose calls are all that its link has, when nobody
//! can say for which of them. The client is told with any of its calls that it still hears of; that
//! one may end before the answer comes, as long as another goes on. Entry point: [`Asking::serve`].

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gantry_model::jsonrpc::{Edit, INTERNAL_ERROR, METHOD_NOT_FOUND, Raw, RawBuf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::clean;
use crate::request::{Ask, AskAnswer, AskedFor, Client, Lasts, Word};
use crate::server::handle::ServerHandle;
use crate::server::link::{Asked, Link};
use crate::server::pending::Party;

/// Questions that a session is asked at once; others wait.
const AT_ONCE: usize = 16;

/// Asks the client of a link.
pub(in crate::router) struct Asking {
    pub(in crate::router) server: Arc<ServerHandle>,
    pub(in crate::router) link: Arc<Link>,
    /// Nobody can answer any more.
    pub(in crate::router) draining: CancellationToken,
}

/// What became of a question with one of the session's calls.
enum Told {
    /// The client answered, or never will.
    Settled(Result<RawBuf, RawBuf>),
    /// It did not reach the client, or the client has left that call.
    Lost,
}

impl Asking {
    /// Asks what the server asks, until the link ends.
    pub(in crate::router) async fn serve(self, mut asked: mpsc::Receiver<Asked>) {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = self.link.over() => return,
                Some(asked) = asked.recv(), if open.len() < AT_ONCE => {
                    open.push(self.settle(asked));
                }
                Some(()) = open.next() => {}
            }
        }
    }

    /// Asks, and tells the server what the client said.
    async fn settle(&self, asked: Asked) {
        let _paused = self.link.pause_all();
        let outcome = tokio::select! {
            outcome = self.ask(&asked) => outcome,
            () = self.draining.cancelled() => Err(failure("the gateway stops")),
        };
        self.link.reply(&asked.id, &outcome);
    }

    async fn ask(&self, asked: &Asked) -> Result<RawBuf, RawBuf> {
        let until = Instant::now() + self.server.spec.calls.ask_timeout;
        let mut tried = Vec::new();
        let mut session = asked.session.clone();
        loop {
            let spokesman = self.link.spokesman(session.as_ref(), &tried);
            let Ok(Some(spokesman)) = timeout_at(until, spokesman).await else {
                return Err(failure("the client cannot be asked any more"));
            };
            tried.push(spokesman.call);
            // Once it is known whose it is, nobody else is asked. fault T4
            let whose = session.insert(spokesman.party);
            let client = spokesman.voice.client;
            let params = asked.params.as_ref().map(RawBuf::as_raw);
            if !client.can.may_be_asked(asked.method, params) {
                return Err(error(METHOD_NOT_FOUND, "the client cannot do that"));
            }
            if let Told::Settled(outcome) = self.tell((asked, whose), client, until).await {
                return outcome;
            }
        }
    }

    /// Asks the client with one of its calls, and waits for its answer while any of them goes on.
    async fn tell(
        &self,
        (asked, whose): (&Asked, &Party),
        client: Arc<Client>,
        until: Instant,
    ) -> Told {
        let kind = asked.method.as_str().split('/').next().unwrap_or_default();
        let redactor = self.server.known.redactor();
        let params = asked.params.as_ref();
        let request = AskedFor {
            key: format!("{kind}-1").into(),
            method: asked.method,
            params: params.map(|params| clean(params.as_raw(), &redactor)),
        };
        let over = CancellationToken::new();
        let _over = over.clone().drop_guard();
        let (answer, mut answered) = oneshot::channel();
        let word = Word::Ask(Ask {
            requests: vec![request],
            until,
            answer,
            lasts: Lasts::Session(over),
        });
        if !matches!(timeout_at(until, client.words.send(word)).await, Ok(Ok(()))) {
            return Told::Lost;
        }
        let mut teller = client;
        loop {
            tokio::select! {
                biased; // An answer that is there counts.
                said = &mut answered => return said.map_or(Told::Lost, |said| Told::Settled(outcome(said))),
                () = teller.words.closed() => match self.link.spokesman(Some(whose), &[]).await {
                    Some(next) => teller = next.voice.client,
                    // It is for none of its calls any more.
                    None => return Told::Settled(Err(failure("the client's calls have ended"))),
                },
                () = sleep_until(until) => {
                    return Told::Settled(Err(failure("the client did not answer in time")));
                }
            }
        }
    }
}

fn outcome(said: AskAnswer) -> Result<RawBuf, RawBuf> {
    match said {
        AskAnswer::Said(said) => {
            let said = said.into_iter().next();
            said.map_or_else(
                || Err(failure("the client said nothing")),
                |said| said.outcome,
            )
        }
        AskAnswer::TooMany { .. } | AskAnswer::TooMuch(_) => {
            Err(failure("too much waits for the client already"))
        }
    }
}

fn failure(why: &str) -> RawBuf {
    error(INTERNAL_ERROR, why)
}

fn error(code: i64, why: &str) -> RawBuf {
    let mut error = Edit::new(Raw::EMPTY_OBJECT);
    error
        .set_buf("code", RawBuf::integer(code))
        .set_buf("message", RawBuf::string(why));
    error.to_buf()
}
