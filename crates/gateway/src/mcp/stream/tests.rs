//! The events of a call as its client sees them, and the call when its client does not read.

use gantry_engine::{Reply, RequestLifetime, Scope, ServerRequest};
use gantry_model::era::ProtocolVersion;
use gantry_model::id::{KeyId, ProjectName};
use gantry_model::mcp::{ClientCapabilities, Method};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;
use crate::mcp::active_call::Work;

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_message_is_one_event_whatever_it_holds() {
    assert_eq!(text(&event(b"{}")), "event: message\ndata: {}\n\n");
    // fault S21
    assert_eq!(text(&event(b"{\n\r\n}")), "event: message\ndata: {}\n\n");
    assert_eq!(
        text(&notification("notifications/progress", r#"{"progress":1}"#)),
        "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n",
    );
}

/// Returns the services, and a call whose events come from the channel.
fn services(
    words: mpsc::Receiver<CallEvent>,
    work: Work,
) -> (Arc<CallServices>, ActiveCall, Waiter) {
    let services = CallServices {
        identity: Identity::gantry(),
        sessions: Arc::default(),
        open_requests: Arc::default(),
        suspended: SuspendedCalls::new(),
        quota: Arc::default(),
        tasks: TaskTracker::new(),
        answers: AnswerPool::new(96 << 20),
    };
    let id = RequestId::Number("1").to_owned();
    let under_way = ActiveCall {
        call: Arc::new(CallInfo::example(&id, None)),
        work,
        words,
        room: BodyPermit::default(),
        seat: None,
    };
    let token = Token::First;
    (Arc::new(services), under_way, Waiter { id, token })
}

async fn pumped(words: mpsc::Receiver<CallEvent>, work: Work, tx: mpsc::Sender<Bytes>) {
    let (services, under_way, turn) = services(words, work);
    pump(services, under_way, turn, None, tx).await;
}

fn done() -> Reply {
    Reply {
        call: None,
        result: Bytes::from_static(b"{}"),
        upstream: None,
        is_error: false,
        is_odd: false,
        warning: None,
        permit: Default::default(),
    }
}

// fault A1
#[tokio::test(start_paused = true)]
async fn a_slow_reader_loses_progress_and_gets_the_answer() {
    let (words, heard) = mpsc::channel(100);
    for n in 0..100 {
        let progress = CallEvent::Progress(format!("{{\"progress\":{n}}}").into());
        words.try_send(progress).unwrap();
    }
    let (tx, mut rx) = mpsc::channel(WAITING);
    let work: Work = Box::pin(async { Ok(done()) });
    drop(words);
    let reading = async {
        sleep(Duration::from_secs(1)).await;
        let mut last = None;
        let mut count = 0;
        while let Some(event) = rx.recv().await {
            (last, count) = (Some(event), count + 1);
        }
        (last, count)
    };
    let ((), (last, count)) = tokio::join!(pumped(heard, work, tx), reading);
    assert_eq!(count, WAITING + 1);
    assert!(text(&last.unwrap()).contains("\"result\":{}"));
}

#[tokio::test]
async fn what_is_said_just_before_the_answer_is_heard() {
    let told = |accepts: Accepts| async move {
        let (words, heard) = mpsc::channel(WAITING);
        // Both arrive between the check for events and the poll of the call.
        let work: Work = Box::pin(async move {
            words
                .try_send(CallEvent::Progress("{\"progress\":1}".into()))
                .unwrap();
            words
                .try_send(CallEvent::Progress("{\"progress\":2}".into()))
                .unwrap();
            Ok(done())
        });
        let (services, under_way, turn) = services(heard, work);
        let response = services.stream_call(under_way, turn, accepts).await;
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
        String::from_utf8(body.unwrap().to_vec()).unwrap()
    };
    let (json, events) = (true, true);
    let heard = told(Accepts { json, events }).await;
    let places = ["\"progress\":1", "\"progress\":2", "\"result\":{}"].map(|part| heard.find(part));
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{heard}"
    );
    let events = false;
    let document = told(Accepts { json, events }).await;
    assert!(
        document.starts_with('{') && !document.contains("progress"),
        "{document}"
    );
}

// fault A1: the copy of a list has no room yet, whichever way it goes.
#[tokio::test]
async fn a_list_on_a_stream_takes_its_room() {
    for accepts_json in [true, false] {
        let (words, heard) = mpsc::channel(WAITING);
        let work: Work = Box::pin(async move {
            let progress = CallEvent::Progress("{\"progress\":1}".into());
            words.try_send(progress).unwrap();
            let mut list = done();
            list.result = format!("{{\"tools\":[\"{}\"]}}", "x".repeat(1 << 20)).into();
            Ok(list)
        });
        let (services, under_way, turn) = services(heard, work);
        let agent = under_way.call.agent.clone();
        let take = || {
            services
                .room(&under_way.call)
                .take(Some(&agent), 1 << 20)
                .ok()
        };
        let mut held: Vec<_> = std::iter::from_fn(take).collect();
        let (json, events) = (accepts_json, true);
        let response = services
            .stream_call(under_way, turn, Accepts { json, events })
            .await;
        let body = axum::body::to_bytes(response.into_body(), 4 << 20).await;
        let text = String::from_utf8(body.unwrap().to_vec()).unwrap();
        assert!(text.contains("http.answers_full"), "{text:.300}");
        assert!(text.contains("\"progress\":1"), "short words have room");
        held.clear();
    }
}

// fault A4
#[tokio::test]
async fn a_client_that_is_gone_ends_the_work() {
    let (_words, heard) = mpsc::channel(1);
    let (tx, rx) = mpsc::channel(1);
    let (dropped, gone) = oneshot::channel::<()>();
    let work: Work = Box::pin(async move {
        let _held = dropped;
        std::future::pending().await
    });
    drop(rx);
    pumped(heard, work, tx).await;
    assert!(gone.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_leaves_no_question_open() {
    let (services, _, _) = services(mpsc::channel(1).1, Box::pin(async { Ok(done()) }));
    let open = || {
        let told = (ProtocolVersion::V2025_11_25, ClientCapabilities::NOTHING);
        let who = gantry_model::caller::Caller {
            project: ProjectName::local(),
            agent: "a".parse().unwrap(),
            key: KeyId::from_random(1),
            kind: gantry_model::caller::KeyKind::Agent,
            grants: Default::default(),
            users: Default::default(),
            validity: Default::default(),
            token: None,
            authenticated_in: std::time::Duration::ZERO,
        };
        services.sessions.open(&who, Scope::All, told).unwrap()
    };
    let session = open();
    // In the second round the session ends before its client gets a request.
    for questions in [1, 0] {
        let (words, heard) = mpsc::channel(1);
        let (answer, said) = oneshot::channel();
        let request = ServerRequest {
            key: "a".into(),
            method: Method::RootsList,
            params: None,
        };
        let ask = ServerRequests {
            requests: vec![request],
            until: Instant::now(),
            answer,
            lifetime: RequestLifetime::Call,
        };
        words.try_send(CallEvent::Requests(ask)).unwrap();
        let work: Work = Box::pin(async move {
            assert!(said.await.is_err(), "nobody can answer");
            Ok(done())
        });
        let (_, mut under_way, turn) = self::services(heard, work);
        let owner = Some(Owner::Session(session.id));
        under_way.call = Arc::new(CallInfo::example(&turn.id, owner));
        let (tx, mut rx) = mpsc::channel(WAITING);
        let reading = async {
            for _ in 0..questions {
                let asked = rx.recv().await.unwrap();
                assert!(text(&asked).contains("roots/list"));
                tokio::time::advance(Duration::from_millis(1)).await;
                // Other sessions of its key replace it.
                while !session.is_ended() {
                    open();
                }
            }
            let answer = rx.recv().await.unwrap();
            assert!(text(&answer).contains("\"result\":{}"));
        };
        let pumping = pump(Arc::clone(&services), under_way, turn, None, tx);
        let both = async { tokio::join!(pumping, reading) };
        timeout(KEEP_ALIVE, both).await.expect("the call ends");
    }
}

// fault A1
#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_is_cut_off() {
    let (_words, heard) = mpsc::channel(1);
    let (tx, _rx) = mpsc::channel(1);
    tx.try_send(Bytes::new()).unwrap();
    let before = Instant::now();
    pumped(heard, Box::pin(async { Ok(done()) }), tx).await;
    assert_eq!(before.elapsed(), UNREAD);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_shows_that_it_lives() {
    let (_words, heard) = mpsc::channel(1);
    let (tx, mut rx) = mpsc::channel(4);
    let work: Work = Box::pin(async {
        sleep(KEEP_ALIVE * 2 + Duration::from_secs(1)).await;
        Err(not_made(CallError::Cancelled))
    });
    pumped(heard, work, tx).await;
    let mut comments = 0;
    while let Some(event) = rx.recv().await {
        assert_eq!(text(&event), ":\n\n");
        comments += 1;
    }
    assert_eq!(comments, 2);
}
