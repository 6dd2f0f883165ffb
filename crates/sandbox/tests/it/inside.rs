//! Sockets that the init makes inside a tree's network namespace.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use gantry_sandbox::{Command, GVisor, Inside, Network, Runtime};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::harness::{hosted, line, sandbox};
use crate::own_root::{Layers, script_in};

const SECOND: Duration = Duration::from_secs(1);

/// A hosted Python program with a loopback of its own.
fn python(text: &str) -> Command {
    let mut command = hosted("");
    command.program = "/usr/bin/python3".to_owned();
    command.args = vec!["-c".to_owned(), text.to_owned()];
    command.network = Network::Inside;
    command
}

/// Echoes one line per connection on an address and says so.
fn echo(family: &str, address: &str) -> Command {
    python(&format!(
        "import socket, sys
s = socket.socket(socket.{family}); s.bind(('{address}', 8080)); s.listen(); print('up', flush=True)
while True:
    c, _ = s.accept(); c.sendall(b'inside ' + c.recv(100)); c.close()"
    ))
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test waits for its tasks itself"
)]
async fn a_server_with_a_port_is_reached_inside() {
    let sandbox = sandbox();
    // The same port outside is somebody else's.
    for (family, address) in [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")] {
        let mut spawned = sandbox.spawn(&echo(family, address)).await.unwrap();
        assert_eq!(line(&mut spawned).await, "up");
        let inside = spawned.tree.inside();
        // While another task waits for the tree's end.
        let waiting = tokio::spawn(async move {
            let exit = spawned.tree.wait().await;
            (spawned, exit)
        });
        for round in 0..20 {
            let mut socket = inside.dial(8080).await.unwrap();
            socket.set_nonblocking(false).unwrap();
            socket.write_all(format!("{round}").as_bytes()).unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, format!("inside {round}"));
        }
        // Many at once, and some that nobody waits for.
        let dials = (0..30).map(|_| {
            let inside = inside.clone();
            tokio::spawn(async move { inside.dial(8080).await.map(drop) })
        });
        let dials: Vec<_> = dials.collect();
        for (index, dial) in dials.into_iter().enumerate() {
            if index % 3 == 0 {
                dial.abort();
            } else {
                dial.await.unwrap().unwrap();
            }
        }
        let refused = inside.dial(8081).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(
            refused
                .to_string()
                .starts_with("port 8081 inside the instance"),
            "{refused}"
        );
        assert!(!waiting.is_finished());
        waiting.abort();
        assert!(waiting.await.is_err());
        let ended = inside.dial(8080).await.unwrap_err();
        assert!(ended.to_string().contains("has ended"), "{ended}");
    }
}

#[tokio::test]
async fn a_listener_inside_is_served_outside() {
    let sandbox = sandbox();
    let program = python(
        "import socket, sys
port = int(sys.stdin.readline())
s = socket.create_connection(('127.0.0.1', port)); s.sendall(b'hello'); s.shutdown(socket.SHUT_WR)
print(s.recv(100).decode(), flush=True); sys.stdin.read()",
    );
    let mut spawned = sandbox.spawn(&program).await.unwrap();
    let listener = spawned.tree.inside().listen(0).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = spawned.tree.inside().listen(port).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse, "{taken}");
    // Nobody outside reaches it.
    let outside = TcpStream::connect(("127.0.0.1", port)).await;
    assert_eq!(outside.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    tokio::io::AsyncWriteExt::write_all(&mut spawned.stdin, format!("{port}\n").as_bytes())
        .await
        .unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let (mut socket, peer) = timeout(5 * SECOND, listener.accept())
        .await
        .unwrap()
        .unwrap();
    assert!(peer.ip().is_loopback());
    let mut said = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut socket, &mut said)
        .await
        .unwrap();
    assert_eq!(said, "hello");
    tokio::io::AsyncWriteExt::write_all(&mut socket, b"good day")
        .await
        .unwrap();
    drop(socket);
    assert_eq!(line(&mut spawned).await, "good day");
    // A privileged port too: proxies have theirs where programs expect them.
    spawned.tree.inside().listen(80).await.unwrap();
}

#[tokio::test]
async fn a_busy_or_stopped_server_holds_up_nothing_but_its_own_connections() {
    // fault P5
    let sandbox = sandbox();
    let program = python(
        "import os, signal, socket
s = socket.socket(); s.bind(('127.0.0.1', 8080)); s.listen(0); print('up', flush=True)
os.kill(os.getpid(), signal.SIGSTOP)",
    );
    let mut spawned = sandbox.spawn(&program).await.unwrap();
    assert_eq!(line(&mut spawned).await, "up");
    let inside = spawned.tree.inside();
    // The kernel takes connections into the queue until it is full; then one is not answered.
    let begun = Instant::now();
    let mut kept = Vec::new();
    let late = loop {
        match inside.dial(8080).await {
            Ok(socket) => kept.push(socket),
            Err(error) => break error,
        }
        assert!(kept.len() < 10);
    };
    assert_eq!(late.kind(), ErrorKind::TimedOut, "{late}");
    assert!(begun.elapsed() < 8 * SECOND, "{:?}", begun.elapsed());
    // The init itself answers as before.
    let begun = Instant::now();
    inside.listen(0).await.unwrap();
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    spawned.tree.kill();
    spawned.tree.wait().await;
    let ended = inside.dial(8080).await.unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::NotConnected, "{ended}");
}

#[tokio::test]
async fn nothing_is_dialled_where_the_network_is_the_hosts_by_accident() {
    // Without a network namespace a port inside would be a port of the host: refused.
    let owner = crate::owner::Owner::start(crate::owner::Rights::NoNamespaces, "hosted");
    assert!(
        owner
            .promise("dial")
            .contains("no network namespace of its own"),
        "{:?}",
        owner.report
    );
}

/// Expects an echo from a port inside, as soon as there is one.
async fn echoed(inside: &Inside, word: &str) {
    let begun = Instant::now();
    let mut socket = loop {
        match inside.dial(8080).await {
            Ok(socket) => break socket,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}"),
        }
        assert!(begun.elapsed() < 10 * SECOND);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    socket.set_nonblocking(false).unwrap();
    socket.write_all(word.as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, word);
}

#[tokio::test]
async fn an_image_with_a_port_is_reached_in_every_runtime() {
    let sandbox = sandbox();
    let layers = Layers::new();
    let text = "exec /bin/busybox nc -ll -p 8080 -e /bin/cat";
    let mut command = script_in(layers.root(), text);
    command.network = Network::Inside;
    let spawned = sandbox.spawn(&command).await.unwrap();
    echoed(&spawned.tree.inside(), "own namespaces").await;
    command.runtime = Runtime::GVisor(GVisor {
        program: "/usr/bin/runsc".into(),
    });
    command.limits.cpu = None;
    let spawned = sandbox.spawn(&command).await.unwrap();
    echoed(&spawned.tree.inside(), "gVisor").await;
    echoed(&spawned.tree.inside(), "gVisor again").await;
}
