//! Connections over real sockets, with short timeouts.

use std::sync::Arc;
use std::time::Instant as Clock;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::app::routes;

const QUICK: Timeouts = Timeouts {
    head: Duration::from_millis(300),
    unread: Duration::from_millis(400),
    // Far longer than the others, since a busy machine may stall for seconds.
    idle: Duration::from_secs(7),
};
/// A connection that lasted longer was not closed by the head timeout or by an abort.
const SOON: Duration = Duration::from_secs(6);

struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Notified when a slow response has begun.
    begun: Arc<Notify>,
    accepting: JoinHandle<()>,
}

async fn serve_with(bounds: Bounds) -> Served {
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/big", get(async || "x".repeat(32 << 20)))
        .route(
            "/slow",
            get(async move || {
                begins.notify_one();
                sleep(Duration::from_millis(500)).await;
                "slow"
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let acceptor = Acceptor {
        service: Arc::new(move |request| routes::ask(&router, request)),
        answers: AnswerPool::new(96 << 20),
        slots: Slots::new(bounds),
        timeouts: QUICK,
        stop: stop.clone(),
        abort: CancellationToken::new(),
        tasks: tasks.clone(),
    };
    let accepting = tasks.spawn(run(listener, acceptor, None));
    Served {
        address,
        stop,
        tasks,
        begun,
        accepting,
    }
}

async fn get_path(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut buffer = vec![0; 4096];
    let read = stream.read(&mut buffer).await.unwrap();
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "sockets do not obey a paused clock"
)]
fn now() -> Clock {
    Clock::now()
}

/// Waits until the gateway closes the connection and returns how long that took.
async fn closed(stream: &mut TcpStream) -> Duration {
    let began = now();
    let mut rest = Vec::new();
    drop(
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest))
            .await
            .unwrap(),
    );
    began.elapsed()
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    // fault A2
    let served = serve_with(Bounds::default()).await;
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    assert!(closed(&mut silent).await < SOON);
    let mut dripping = TcpStream::connect(served.address).await.unwrap();
    assert!(get_path(&mut dripping, "/").await.ends_with("hello"));
    dripping.write_all(b"GET / HT").await.unwrap();
    let waited = closed(&mut dripping).await;
    assert!(
        waited >= Duration::from_millis(250) && waited < SOON,
        "{waited:?}"
    );
}

#[tokio::test]
async fn an_idle_connection_ends_later_and_a_used_one_does_not() {
    let served = serve_with(Bounds::default()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let began = now();
    let mut asked = began;
    while began.elapsed() < QUICK.idle + Duration::from_secs(1) {
        sleep(Duration::from_millis(100)).await;
        asked = now();
        assert!(get_path(&mut stream, "/").await.ends_with("hello"));
    }
    closed(&mut stream).await;
    let waited = asked.elapsed();
    assert!(waited >= QUICK.idle, "{waited:?}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    // fault A1
    let served = serve_with(Bounds::default()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    // The buffer may be full before the first byte is read here.
    let began = now();
    assert!(
        get_path(&mut stream, "/big")
            .await
            .starts_with("HTTP/1.1 200")
    );
    served.tasks.close();
    served.accepting.abort();
    tokio::time::timeout(Duration::from_secs(20), served.tasks.wait())
        .await
        .unwrap();
    assert!(began.elapsed() >= QUICK.unread);
}

#[tokio::test]
async fn stopping_answers_what_is_in_flight_and_nothing_more() {
    // fault P4
    let served = serve_with(Bounds::default()).await;
    let mut busy = TcpStream::connect(served.address).await.unwrap();
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    assert!(get_path(&mut idle, "/").await.ends_with("hello"));
    busy.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    served.begun.notified().await;
    served.stop.cancel();
    assert!(closed(&mut idle).await < SOON);
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("slow"),
        "{answer}"
    );
    served.accepting.await.unwrap();
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn a_connection_too_many_is_told_so() {
    // fault A2
    let served = serve_with(Bounds {
        connections: 1,
        per_address: 1,
    })
    .await;
    let mut first = TcpStream::connect(served.address).await.unwrap();
    assert!(get_path(&mut first, "/").await.ends_with("hello"));
    let mut second = TcpStream::connect(served.address).await.unwrap();
    let mut answer = String::new();
    drop(second.read_to_string(&mut answer).await);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(get_path(&mut first, "/").await.ends_with("hello"));
}

// fault A2
#[tokio::test]
async fn an_idle_connection_makes_room_for_who_has_none() {
    let served = serve_with(Bounds {
        connections: 2,
        per_address: 2,
    })
    .await;
    let mut used = TcpStream::connect(served.address).await.unwrap();
    assert!(get_path(&mut used, "/").await.ends_with("hello"));
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(served.address).await.unwrap();
    assert!(get_path(&mut other, "/").await.ends_with("hello"));
    closed(&mut silent).await;
    assert!(get_path(&mut used, "/").await.ends_with("hello"));
}
