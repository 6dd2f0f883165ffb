//! The messages of a link after cancellations and timeouts, and the reports about a silent server.

use bytes::Bytes;
use gantry_model::era::Era;
use gantry_model::jsonrpc::Raw;
use gantry_model::mcp::{ClientCapabilities, Method};
use gantry_model::secret::SecretText;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::known_secrets::KnownSecrets;
use crate::request::{CallEvent, Client};
use crate::server::server_requests::IncomingRequest;
use crate::transport::stdio::{Inbox, LineWriter};

fn link(lanes: u32, known: KnownSecrets) -> (Arc<Link>, pipe::Receiver) {
    let (sender, receiver) = pipe::pipe().unwrap();
    let limits = LinkLimits {
        lanes,
        queue: 4,
        line_bytes: 1 << 20,
        depth: 64,
        late_grace: Duration::ZERO,
        asks: true,
        cleans: true,
    };
    let link = Link::new(
        Outbox::Pipe(LineWriter::new(sender, 1 << 20)),
        Arc::new(Logs::new(Arc::new(known))),
        Arc::default(),
        limits,
        1,
        TaskTracker::new(),
    );
    (Arc::new(link), receiver)
}

/// Returns the channel of a caller with these capabilities, and the receiver of its events.
fn caller_channel(
    capabilities: &str,
    asks: Option<mpsc::Sender<IncomingRequest>>,
) -> (CallerChannel, mpsc::Receiver<CallEvent>) {
    let (events, heard) = mpsc::channel(4);
    let client = Arc::new(Client {
        era: Era::Handshake,
        capabilities: ClientCapabilities::read(Raw::trusted(capabilities)),
        session: None,
        progress_token: Some("7".into()),
        log_level: None,
        withholds_texts: false,
        events,
        channel: None,
    });
    (CallerChannel { client, asks }, heard)
}

/// Returns the methods of the next written lines.
async fn written(receiver: &mut BufReader<pipe::Receiver>, count: usize) -> Vec<String> {
    let mut methods = Vec::new();
    let mut lines = receiver.lines();
    while methods.len() < count {
        let line = lines.next_line().await.unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        methods.push(line["method"].as_str().unwrap().to_owned());
    }
    methods
}

fn call(link: &Arc<Link>) -> InFlight {
    let id = link.new_id();
    let line = OneLine::request(id, "tools/call", None);
    link.call(&"a".parse().unwrap(), id, line, None).unwrap()
}

#[tokio::test]
async fn a_handshake_is_never_cancelled() {
    let (link, receiver) = link(1, KnownSecrets::default());
    let mut receiver = BufReader::new(receiver);
    for method in ["initialize", "server/discover", "tools/list"] {
        drop(link.ask_begin(method, None).unwrap());
    }
    let expected = [
        "initialize",
        "server/discover",
        "tools/list",
        "notifications/cancelled",
    ];
    tokio::select! {
        methods = written(&mut receiver, expected.len()) => assert_eq!(methods, expected),
        () = link.run_writer(Duration::from_secs(5)) => panic!("the writer ended"),
    }
}

#[tokio::test]
async fn why_a_caller_takes_its_call_back_is_told_on_the_pipe() {
    let (link, receiver) = link(2, KnownSecrets::default());
    let mut lines = BufReader::new(receiver).lines();
    let reason = CancelReason::default();
    let id = link.new_id();
    let line = CallMessage {
        reason: Some(reason.clone()),
        ..CallMessage::from(OneLine::request(id, "tools/call", None))
    };
    let reasoned = link.call(&"a".parse().unwrap(), id, line, None).unwrap();
    reason.say("changed my mind");
    reason.say("too late");
    drop(reasoned);
    drop(call(&link));
    let mut told = Vec::new();
    let reading = async {
        while told.len() < 2 {
            let line = lines.next_line().await.unwrap().unwrap();
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if line["method"] == "notifications/cancelled" {
                told.push(line["params"]["reason"].as_str().unwrap().to_owned());
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = link.run_writer(Duration::from_secs(5)) => panic!("the writer ended"),
    }
    assert_eq!(told, ["changed my mind", "the caller has left"]);
}

#[tokio::test]
async fn who_was_sent_to_a_url_hears_when_that_is_done_once() {
    let (link, _receiver) = link(4, KnownSecrets::default());
    let (caller_channel, mut heard) = caller_channel("{}", None);
    // The caller of the call holds it, too.
    let client = Arc::clone(&caller_channel.client);
    let id = link.new_id();
    let line = OneLine::request(id, "tools/call", None);
    let flight = link
        .call(&"a".parse().unwrap(), id, line, Some(caller_channel))
        .unwrap();
    let error = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32042,"message":"m","data":{{"elicitations":[{{"mode":"url","elicitationId":"e1","url":"https://x"}}]}}}}}}"#
    );
    link.line(Bytes::from(error));
    let done = |id: &str| {
        let method = "notifications/elicitation/complete";
        let params = format!(r#"{{"elicitationId":"{id}"}}"#);
        Bytes::from(format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#
        ))
    };
    for id in ["e2", "e1", "e1"] {
        link.line(done(id));
    }
    // The call has its response, and its caller still holds it.
    let Some(CallEvent::Elicited(told)) = heard.recv().await else {
        panic!("it is told")
    };
    assert_eq!(&*told, "e1");
    assert!(heard.try_recv().is_err());
    drop((flight, client));
}

#[tokio::test]
async fn what_cannot_be_sent_to_a_closed_input_says_so() {
    // fault P11
    let (link, receiver) = link(1, KnownSecrets::default());
    let first = call(&link);
    let second = call(&link);
    drop(receiver);
    link.close_input();
    drop(first);
    assert!(matches!(
        second.answer().await,
        Answer::Failed(Failure::Exited(_))
    ));
    assert!(matches!(
        link.ask("ping", None, Duration::from_secs(1)).await,
        Err(Some(Failure::Exited(_)))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_server_is_mute_until_it_says_something() {
    // fault P5
    let (link, _receiver) = link(1, KnownSecrets::default());
    let short = Deadline {
        quiet: Duration::from_secs(1),
        whole: Duration::from_secs(1),
        fair: Duration::from_secs(1),
    };
    let hurried = Deadline {
        fair: Duration::from_secs(30),
        ..short
    };
    assert!(call(&link).answer_within(hurried).await.is_err());
    assert!(!link.is_mute(), "a caller in a hurry proves nothing");
    let mut heard_meanwhile = call(&link);
    link.line(Bytes::from_static(b"noise"));
    assert!(heard_meanwhile.answer_within(short).await.is_err());
    assert!(!link.is_mute());
    assert!(call(&link).answer_within(short).await.is_err());
    assert!(link.is_mute());
    link.line(Bytes::from_static(b"noise"));
    assert!(!link.is_mute());
    // A call that waits for a lane was never sent to the server.
    let _long = call(&link);
    assert!(call(&link).answer_within(short).await.is_err());
    assert!(!link.is_mute());
}

#[tokio::test]
async fn progress_carries_no_secret_of_the_server() {
    // fault K2
    let secret = SecretText::new("hunter22-hunter22".to_owned());
    let (link, _receiver) = link(1, KnownSecrets::new(vec![secret.clone()]));
    let (caller_channel, mut reports) = caller_channel("{}", None);
    let id = link.new_id();
    let line = OneLine::request(id, "tools/call", None);
    let _call = link
        .call(&"a".parse().unwrap(), id, line, Some(caller_channel))
        .unwrap();
    // fault L2: nor behind what nobody sees.
    for said in [
        secret.expose().to_owned(),
        secret.expose().replace('-', "\u{200b}-"),
    ] {
        let told = serde_json::json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": id, "progress": 1, "message": said,
                "_meta": {"io.gantry/redacted": 9, "theirs": 1}}});
        link.line(Bytes::from(told.to_string()));
        let Some(CallEvent::Progress(report)) = reports.recv().await else {
            panic!("progress")
        };
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["message"], "[redacted]");
        assert_eq!(report["progressToken"], 7);
        // Nor what is ours to say.
        assert_eq!(report["_meta"], serde_json::json!({"theirs": 1}));
    }
}

#[tokio::test]
async fn an_error_without_an_id_is_for_the_only_call_there_is() {
    // fault S7
    let null = |error: i64| {
        let message = serde_json::json!({"jsonrpc": "2.0", "id": null,
            "error": {"code": error, "message": "x"}});
        Bytes::from(message.to_string())
    };
    let (link, _receiver) = link(4, KnownSecrets::default());
    let only = call(&link);
    link.line(null(-32601));
    assert_eq!(link.queue().in_flight, 1, "anything may be meant");
    link.line(null(-32700));
    assert!(matches!(
        only.answer().await,
        Answer::Failed(Failure::Protocol(_))
    ));
    // A call was cancelled, and the server may have ignored that.
    let (second, third) = (call(&link), call(&link));
    drop(second);
    link.line(null(-32700));
    assert_eq!(link.queue().in_flight, 1);
    // The error may belong to the cancelled call, until that call's response arrives.
    link.line(answered(2));
    link.line(null(-32600));
    assert!(is_lost(third.answer().await));
}

#[tokio::test]
async fn an_answer_without_an_id_on_a_calls_own_stream_is_that_calls() {
    // fault S7
    let null = Bytes::from_static(br#"{"jsonrpc":"2.0","id":null,"result":{}}"#);
    let (link, _receiver) = link(4, KnownSecrets::default());
    let (first, second) = (call(&link), call(&link));
    link.read(&null, Some(1));
    assert!(is_lost(first.answer().await));
    // The other call is unaffected, however the stream ends, and whatever still arrives on it.
    link.read(&null, Some(1));
    assert_eq!(link.queue().in_flight, 1);
    link.line(answered(2));
    assert!(matches!(second.answer().await, Answer::Result(_)));
}

fn answered(id: u64) -> Bytes {
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
}

fn is_lost(answer: Answer) -> bool {
    let why = "member `id` must not be null";
    matches!(answer, Answer::Failed(Failure::Protocol(said)) if said == why)
}

#[tokio::test]
async fn a_result_without_an_id_is_nobodys() {
    // fault S7
    let null = || Bytes::from_static(br#"{"jsonrpc":"2.0","id":null,"result":{}}"#);
    let (link, _receiver) = link(8, KnownSecrets::default());
    let calls = [(); 2].map(|()| call(&link));
    link.line(null());
    link.line(null());
    link.line(answered(2));
    // Even if only one is left.
    link.line(null());
    assert_eq!(link.queue().in_flight, 1);
    assert_eq!(link.counters.noise.load(Ordering::Relaxed), 3);
    link.line(answered(1));
    for call in calls {
        assert!(matches!(call.answer().await, Answer::Result(_)));
    }
}

#[tokio::test]
async fn only_what_has_the_id_and_the_method_of_a_call_is_its_echo() {
    // fault S20
    let (link, _receiver) = link(4, KnownSecrets::default());
    let id = link.new_id();
    let addressed = CallMessage {
        method: Some(Method::ToolsCall),
        ..OneLine::request(id, "tools/call", None).into()
    };
    let call = link.call(&"a".parse().unwrap(), id, addressed, None);
    let asks = |method: &str| {
        let request = serde_json::json!({"jsonrpc": "2.0", "id": id, "method": method});
        link.line(Bytes::from(request.to_string()));
    };
    for method in [
        "ping",
        "roots/list",
        "sampling/createMessage",
        "elicitation/create",
        "tools/list",
        "vendor/what",
    ] {
        asks(method);
        assert_eq!(link.queue().in_flight, 1, "{method}");
    }
    assert!(link.take_trouble().is_none());
    asks("tools/call");
    let Answer::Failed(Failure::Protocol(why)) = call.unwrap().answer().await else {
        panic!("an echo is no answer")
    };
    assert!(why.starts_with("echoes what it is sent"), "{why}");
    assert_eq!(link.take_trouble(), Some(why));
}

/// Returns a link with two lanes and a call whose caller supports sampling, with its line already
/// read.
async fn asking() -> (
    Arc<Link>,
    BufReader<pipe::Receiver>,
    InFlight,
    mpsc::Receiver<IncomingRequest>,
) {
    let (link, receiver) = link(2, KnownSecrets::default());
    let mut receiver = BufReader::new(receiver);
    let writer = Arc::clone(&link);
    link.tracker
        .spawn(async move { writer.run_writer(Duration::from_secs(5)).await });
    let (asks, asked) = mpsc::channel(1);
    let (caller_channel, _heard) = caller_channel(r#"{"sampling":{}}"#, Some(asks));
    let id = link.new_id();
    let line = OneLine::request(id, "tools/call", None);
    let call = link.call(&"a".parse().unwrap(), id, line, Some(caller_channel));
    assert_eq!(written(&mut receiver, 1).await, ["tools/call"]);
    (link, receiver, call.unwrap(), asked)
}

/// Sends a request of the server, and returns the message of the refusal.
async fn refused(
    link: &Arc<Link>,
    receiver: &mut BufReader<pipe::Receiver>,
    method: &str,
) -> String {
    let request = serde_json::json!({"jsonrpc": "2.0", "id": "s", "method": method});
    link.line(Bytes::from(request.to_string()));
    let line = receiver.lines().next_line().await.unwrap().unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&line["id"], &line["error"]["code"]),
        (&"s".into(), &(-32601).into())
    );
    line["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_request_goes_to_the_one_call_it_can_be_tied_to() {
    // fault S15
    let (link, mut receiver, call, mut asked) = asking().await;
    let ask = serde_json::json!({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage"});
    link.line(Bytes::from(ask.to_string()));
    let first = asked.recv().await.unwrap();
    assert_eq!(first.method, Method::SamplingCreateMessage);
    let said = Ok(RawBuf::trusted(r#"{"role":"assistant"}"#.to_owned()));
    link.respond(&first.id, &said);
    let line = (&mut receiver).lines().next_line().await.unwrap().unwrap();
    assert_eq!(
        line,
        r#"{"jsonrpc":"2.0","id":5,"result":{"role":"assistant"}}"#
    );
    let cannot = refused(&link, &mut receiver, "roots/list").await;
    assert_eq!(cannot, "the client cannot do that");
    let unknown = refused(&link, &mut receiver, "tasks/get").await;
    assert_eq!(unknown, "the client has no such method");
    link.line(Bytes::from(ask.to_string()));
    let full = refused(&link, &mut receiver, "sampling/createMessage").await;
    assert_eq!(full, "the client is asked too much at once");
    // With a second call the request is ambiguous.
    let id = link.new_id();
    let line = OneLine::request(id, "tools/call", None);
    let _second = link.call(&"b".parse().unwrap(), id, line, None).unwrap();
    assert_eq!(written(&mut receiver, 1).await, ["tools/call"]);
    let untied = refused(&link, &mut receiver, "sampling/createMessage").await;
    let why = "it cannot be attributed to one call or session";
    assert_eq!(untied, why);
    drop(call);
    assert_eq!(link.counters.refused_requests.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_call_stands_still_while_its_caller_is_asked() {
    let (link, _receiver, mut call, _asked) = asking().await;
    let id = call.id();
    let second = Duration::from_secs(1);
    let deadline = Deadline {
        quiet: 2 * second,
        whole: 3 * second,
        fair: second,
    };
    let begun = Instant::now();
    let asking = async {
        tokio::time::sleep(second).await;
        link.pause(id, true);
        tokio::time::sleep(100 * second).await;
        link.pause(id, false);
    };
    let (answered, ()) = tokio::join!(call.answer_within(deadline), asking);
    assert!(answered.is_err());
    let took = begun.elapsed().as_secs();
    assert!((102..=104).contains(&took), "{took}");
}
