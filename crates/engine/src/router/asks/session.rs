//! What a server asks of a session: of the client whose calls are all that its link has, when nobody
//! can say for which of them. The client is told with any of its calls that it still hears of; that
//! one may end before the answer comes, as long as another goes on. Between its calls it is asked on
//! the stream that its session listens on, if there is one. Entry point: [`Asking::serve`].

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gantry_model::jsonrpc::{Edit, INTERNAL_ERROR, METHOD_NOT_FOUND, Raw, RawBuf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

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
                return self
                    .ask_between_calls((asked, session.as_ref()), until)
                    .await;
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

    /// Asks the client on the stream of its session, as long as that is open.
    async fn ask_between_calls(
        &self,
        (asked, whose): (&Asked, Option<&Party>),
        until: Instant,
    ) -> Result<RawBuf, RawBuf> {
        let unheard = || failure("the client cannot be asked any more");
        let client = self.link.session();
        // Nobody else's is asked. fault T4
        let client = client.filter(|client| whose.is_none_or(|whose| client.party == *whose));
        let client = client.ok_or_else(unheard)?;
        let params = asked.params.as_ref().map(RawBuf::as_raw);
        if !client.can.may_be_asked(asked.method, params) {
            return Err(error(METHOD_NOT_FOUND, "the client cannot do that"));
        }
        let (ask, answered, _over) = self.question(asked, until);
        if !client.channel.send(Word::Ask(ask)) {
            return Err(unheard());
        }
        match timeout_at(until, answered).await {
            Ok(Ok(said)) => outcome(said),
            Ok(Err(_gone)) => Err(unheard()),
            Err(_elapsed) => Err(failure("the client did not answer in time")),
        }
    }

    /// Returns the question as the client gets it, where its answer comes, and what ends it.
    fn question(
        &self,
        asked: &Asked,
        until: Instant,
    ) -> (Ask, oneshot::Receiver<AskAnswer>, DropGuard) {
        let kind = asked.method.as_str().split('/').next().unwrap_or_default();
        let redactor = self.server.known.redactor();
        let params = asked.params.as_ref();
        let request = AskedFor {
            key: format!("{kind}-1").into(),
            method: asked.method,
            params: params.map(|params| clean(params.as_raw(), &redactor)),
        };
        let over = CancellationToken::new();
        let (answer, answered) = oneshot::channel();
        let ask = Ask {
            requests: vec![request],
            until,
            answer,
            lasts: Lasts::Session(over.clone()),
        };
        (ask, answered, over.drop_guard())
    }

    /// Asks the client with one of its calls, and waits for its answer while any of them goes on.
    async fn tell(
        &self,
        (asked, whose): (&Asked, &Party),
        client: Arc<Client>,
        until: Instant,
    ) -> Told {
        let (ask, mut answered, _over) = self.question(asked, until);
        let told = timeout_at(until, client.words.send(Word::Ask(ask))).await;
        if !matches!(told, Ok(Ok(()))) {
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
