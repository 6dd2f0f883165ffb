//! Registries over HTTPS: certificates, a proxy, and encryption that is never given up. fault H3

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gantry_images::{Credentials, ImageError, ImageReference, Registry, RegistryOptions};
use gantry_model::diagnose::{Diagnose, chain};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::puller::Puller;
use crate::sample::{Sample, serve, serve_well};
use crate::scripted::{Server, reply};

/// A proxy that has everything answered by one server, behind encryption.
struct Proxy {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    fn start(server: SocketAddr) -> Self {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            ended: Arc::default(),
        };
        let ended = Arc::clone(&proxy.ended);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let config = Arc::clone(&config);
                // Clients that do not trust the certificate hang up.
                thread::spawn(move || tunnel(stream?, config, server));
            }
        });
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        TcpStream::connect(self.address).ok();
    }
}

/// Takes `CONNECT`, then one request inside of it.
fn tunnel(mut stream: TcpStream, config: Arc<ServerConfig>, server: SocketAddr) -> io::Result<()> {
    head(&mut stream)?;
    stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut inside = StreamOwned::new(connection, stream);
    let request = head(&mut inside)?;
    let mut behind = TcpStream::connect(server)?;
    behind.write_all(&request)?;
    io::copy(&mut behind, &mut inside)?;
    inside.conn.send_close_notify();
    inside.flush()
}

/// Reads to the end of a head; nothing that is sent here has a body.
fn head(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    Ok(text)
}

/// A puller whose requests all go through the proxy.
fn puller(server: &Server, is_trusted: bool) -> (Puller, Proxy) {
    let proxy = Proxy::start(server.address);
    // Names are resolved by the proxy, so nothing is dialled but what is refused.
    let mut options = RegistryOptions::new(Arc::new(|dial| Err(format!("no `{}`", dial.address))));
    options.proxy = Some(format!("http://{}", proxy.address).parse().unwrap());
    options.ca = is_trusted.then(|| include_bytes!("tls/ca.pem").to_vec());
    options.timeouts.retry_pause = Duration::from_millis(2);
    let mut puller = Puller::new();
    puller.registry = Registry::new(options);
    (puller, proxy)
}

fn image(registry: &str) -> ImageReference {
    format!("{registry}/team/tool:1").parse().unwrap()
}

fn assert_refused(error: &ImageError, code: &str, says: &str) {
    let told = chain(error);
    assert_eq!(error.code(), code, "{told}");
    assert!(told.contains(says), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_certificates_that_are_trusted_and_of_that_name_are_taken() {
    let server = serve_well(&Sample::small());
    let (trusting, _proxy) = puller(&server, true);
    let record = trusting.pull(&image("registry.test")).await.unwrap();
    assert_eq!(record.reference.to_string(), "registry.test/team/tool:1");
    let error = trusting.pull(&image("other.test")).await.unwrap_err();
    assert_refused(&error, "image.unreachable", "certificate");

    let (other, _proxy) = puller(&server, false);
    let error = other.pull(&image("registry.test")).await.unwrap_err();
    assert_refused(&error, "image.unreachable", "certificate");
    other.assert_whole(&[]);
}

/// What began encrypted stays so: not even this machine is spoken to in the clear.
#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_never_gives_up_the_encryption() {
    for to in [
        "http://registry.test/x",
        "http://127.0.0.1:1/x",
        "http://localhost:1/x",
    ] {
        let server = serve(
            &Sample::small(),
            Arc::new(move |_, stream| Some(reply(stream, 307, &[("Location", to)], b""))),
        );
        let (puller, _proxy) = puller(&server, true);
        let error = puller.pull(&image("registry.test")).await.unwrap_err();
        assert_refused(&error, "image.registry", "is not encrypted");
    }
    // With a proxy, too, an address that is written out is judged.
    let server = serve(
        &Sample::small(),
        Arc::new(|_, stream| {
            Some(reply(
                stream,
                307,
                &[("Location", "https://10.0.0.1/x")],
                b"",
            ))
        }),
    );
    let (puller, _proxy) = puller(&server, true);
    let error = puller.pull(&image("registry.test")).await.unwrap_err();
    assert_refused(&error, "image.address_refused", "`10.0.0.1`");
}

/// A token server below the registry's domain is shown the password, one elsewhere or in the clear is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_goes_to_token_servers_of_the_same_domain() {
    let realms = [
        ("https://auth.registry.test/token", None),
        (
            "https://auth.other.test/token",
            Some("credentials are not sent"),
        ),
        ("http://auth.registry.test/token", Some("is not encrypted")),
    ];
    for (realm, refusal) in realms {
        let challenge = format!("Bearer realm=\"{realm}\"");
        let server = serve(
            &Sample::small(),
            Arc::new(move |request, stream| {
                if request.path.starts_with("/token") {
                    return Some(reply(stream, 200, &[], br#"{"token":"t"}"#));
                }
                let is_valid = request.header("authorization") == Some("Bearer t");
                (!is_valid).then(|| reply(stream, 401, &[("WWW-Authenticate", &challenge)], b""))
            }),
        );
        let (mut puller, _proxy) = puller(&server, true);
        puller.credentials = Some(Credentials::Basic {
            user: "ann".to_owned(),
            password: "hunter2".to_owned(),
        });
        let pulled = puller.pull(&image("registry.test")).await;
        let shown = server
            .requests()
            .iter()
            .filter(|request| {
                request
                    .header("authorization")
                    .is_some_and(|shown| shown.starts_with("Basic"))
            })
            .count();
        match refusal {
            None => {
                pulled.unwrap();
                assert_eq!(shown, 1);
            }
            Some(says) => {
                assert_refused(&pulled.unwrap_err(), "image.registry", says);
                assert_eq!(shown, 0);
            }
        }
    }
}
