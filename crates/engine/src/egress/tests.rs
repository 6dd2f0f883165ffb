//! The proxy and the forwarded ports over loopback: only granted destinations are reached.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Responds `pong` to every connection, after four bytes.
async fn echo_host() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::task::spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut four = [0; 4];
            if stream.read_exact(&mut four).await.is_ok() {
                drop(stream.write_all(b"pong").await);
            }
        }
    });
    (port, serving)
}

async fn ask(port: u16, text: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    drop(timeout(Duration::from_secs(5), reading).await.unwrap());
    String::from_utf8_lossy(&answer).into_owned()
}

// row 1.18: network by grant
#[tokio::test]
async fn only_named_hosts_and_ports_are_reached() {
    tokio::task::LocalSet::new()
        .run_until(async {
            let (port, _serving) = echo_host().await;
            let (other, _serving) = echo_host().await;
            let to = Destination::parse(&format!("localhost:{port}")).unwrap();
            let egress = Egress::new("a".into(), vec![to.to_string().parse().unwrap()]);
            let bind = async || {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = listener.local_addr().unwrap().port();
                (listener, port)
            };
            let (proxy, proxy_port) = bind().await;
            let (carry, carry_port) = bind().await;
            tokio::task::spawn_local(Arc::clone(&egress).proxy(proxy));
            tokio::task::spawn_local(Arc::clone(&egress).carry(carry, to));
            let tunnel = format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nping");
            let answer = ask(proxy_port, &tunnel).await;
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with("pong"),
                "{answer}"
            );
            assert_eq!(ask(carry_port, "ping").await, "pong");
            let plain = format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n");
            assert_eq!(ask(proxy_port, &plain).await, "pong");
            for refused in [
                format!("CONNECT localhost:{other} HTTP/1.1\r\n\r\nping"),
                format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nping"),
                format!("GET http://[::1]:{port}/ HTTP/1.1\r\n\r\n"),
                "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n".to_owned(),
            ] {
                let answer = ask(proxy_port, &refused).await;
                assert!(answer.starts_with("HTTP/1.1 403"), "{refused}: {answer}");
            }
            let answer = ask(proxy_port, "hello\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        })
        .await;
}

// fault H4
#[tokio::test]
async fn a_named_host_that_resolves_inward_is_not_reached() {
    tokio::task::LocalSet::new()
        .run_until(async {
            let rule = "169.254.169.254:80".parse().unwrap();
            let egress = Egress::new("a".into(), vec![rule]);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::task::spawn_local(egress.proxy(listener));
            let answer = ask(port, "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        })
        .await;
}

#[test]
fn the_environment_names_the_proxy_and_each_destination() {
    let allowed = ["api.example.com:443", "*.example.org:443", "[::1]:5432"];
    let allowed = allowed.map(|text| text.parse().unwrap());
    let egress = Egress::new("a".into(), allowed.to_vec());
    let variables = egress.environment();
    let value = |name: &str| {
        let found = variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(value("HTTPS_PROXY"), Some("http://127.0.0.1:3128"));
    assert_eq!(
        value("GANTRY_EGRESS_API_EXAMPLE_COM_443"),
        Some("127.0.0.1:3129")
    );
    assert_eq!(value("GANTRY_EGRESS___1_5432"), Some("127.0.0.1:3130"));
}

// row 1.18: as many destinations as a registration may name do not take each other's connections
#[tokio::test]
async fn listeners_that_nobody_uses_take_no_connection_from_the_others() {
    tokio::task::LocalSet::new()
        .run_until(async {
            let (port, _serving) = echo_host().await;
            let to = Destination::parse(&format!("localhost:{port}")).unwrap();
            let egress = Egress::new("a".into(), vec![to.to_string().parse().unwrap()]);
            let mut last = 0;
            for _ in 0..CONNECTIONS + 2 {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                last = listener.local_addr().unwrap().port();
                tokio::task::spawn_local(Arc::clone(&egress).carry(listener, to.clone()));
            }
            tokio::task::yield_now().await;
            assert_eq!(ask(last, "ping").await, "pong");
        })
        .await;
}
