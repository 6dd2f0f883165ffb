//! A connection to a syslog receiver: datagrams (RFC 5426), or messages after their length over TCP
//! (RFC 6587) and TLS (RFC 5425).
//!
//! Syslog has no confirmations. What the far end's kernel did not take makes a TCP connection fail
//! within [`UNCONFIRMED`], so what was written longer ago on a connection that still stands has
//! arrived. Entry point: [`Syslog::send`].

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::message::Header;
use super::record::Record;

/// Time limit of a connection, including name resolution and TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit of writing what is sent at once.
const WRITE: Duration = Duration::from_secs(10);
/// After which time a connection fails whose far end does not take what was written.
#[cfg(target_os = "linux")]
const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait for the far end to answer the end of a connection.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long after it was written an event counts as not confirmed.
pub(super) const UNCONFIRMED: Duration = Duration::from_secs(10);
/// The longest datagram: what every receiver should take.
const LONGEST_DATAGRAM: usize = 2048;
/// The longest message over TCP.
const LONGEST_MESSAGE: usize = 64 << 10;

/// How messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyslogTransport {
    /// Datagrams, which may be lost.
    Udp,
    /// A connection in clear.
    Tcp,
    /// An encrypted connection.
    Tls,
}

/// A syslog receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyslogTarget {
    /// How messages are sent.
    pub transport: SyslogTransport,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The certificate authorities it is trusted by, instead of those of the machine.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Display for SyslogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            SyslogTransport::Udp => "udp",
            SyslogTransport::Tcp => "tcp",
            SyslogTransport::Tls => "tls",
        };
        let (host, port) = (&self.host, self.port);
        match host.contains(':') {
            true => write!(f, "syslog+{transport}://[{host}]:{port}"),
            false => write!(f, "syslog+{transport}://{host}:{port}"),
        }
    }
}

/// A stream in clear or encrypted.
trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// What is open towards the receiver.
enum Open {
    Datagrams(UdpSocket),
    Stream(Box<dyn Stream>),
}

/// A receiver, and the connection to it while there is one.
pub(super) struct Syslog {
    target: SyslogTarget,
    header: Header,
    open: Option<Open>,
}

impl Syslog {
    pub(super) fn new(target: SyslogTarget) -> Self {
        Self {
            target,
            header: Header::new(),
            open: None,
        }
    }

    /// Sends events; after an error or a cancellation the connection is closed, and it is unknown
    /// which of them arrived.
    pub(super) async fn send(&mut self, records: &[Record]) -> io::Result<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => timeout(CONNECT, self.connect()).await.map_err(late)??,
        };
        match &mut open {
            Open::Datagrams(socket) => {
                for record in records {
                    let message = self.header.message(record, LONGEST_DATAGRAM);
                    socket.send(&message).await?;
                }
            }
            Open::Stream(stream) => {
                let mut bytes = Vec::new();
                for record in records {
                    let message = self.header.message(record, LONGEST_MESSAGE);
                    bytes.extend_from_slice(format!("{} ", message.len()).as_bytes());
                    bytes.extend_from_slice(&message);
                }
                let writing = async {
                    stream.write_all(&bytes).await?;
                    stream.flush().await
                };
                timeout(WRITE, writing).await.map_err(late)??;
            }
        }
        self.open = Some(open);
        Ok(())
    }

    /// Fails if the connection has failed or was closed; then there is none any more.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let checked = match &mut self.open {
            None => Ok(()),
            Some(Open::Datagrams(socket)) => socket.take_error().and_then(|error| match error {
                Some(error) => Err(error),
                None => Ok(()),
            }),
            Some(Open::Stream(stream)) => still_open(stream),
        };
        if checked.is_err() {
            self.open = None;
        }
        checked
    }

    /// Ends the connection; returns whether everything arrived, as far as that can be known.
    pub(super) async fn close(&mut self) -> bool {
        match self.open.take() {
            None => false,
            Some(Open::Datagrams(_)) => true,
            Some(Open::Stream(mut stream)) => {
                if stream.shutdown().await.is_err() {
                    return false;
                }
                // A receiver that closes its side in response has read everything before.
                let answer = async {
                    let mut rest = [0; 512];
                    while stream.read(&mut rest).await? > 0 {}
                    Ok::<_, io::Error>(())
                };
                matches!(timeout(FAREWELL, answer).await, Ok(Ok(())))
            }
        }
    }

    async fn connect(&self) -> io::Result<Open> {
        let SyslogTarget { host, port, .. } = &self.target;
        let addresses: Vec<SocketAddr> = lookup_host((host.as_str(), *port)).await?.collect();
        if self.target.transport == SyslogTransport::Udp {
            let address = addresses.first().ok_or(io::ErrorKind::NotFound)?;
            let any: SocketAddr = match address.is_ipv4() {
                true => ([0, 0, 0, 0], 0).into(),
                false => ([0_u16; 8], 0).into(),
            };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(address).await?;
            return Ok(Open::Datagrams(socket));
        }
        let stream = TcpStream::connect(addresses.as_slice()).await?;
        fail_soon(&stream)?;
        if self.target.transport == SyslogTransport::Tcp {
            return Ok(Open::Stream(Box::new(stream)));
        }
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(self.trust().await?));
        let stream = connector.connect(name, stream).await?;
        Ok(Open::Stream(Box::new(stream)))
    }

    /// Returns whom to trust; read for each connection, since the file may have changed.
    async fn trust(&self) -> io::Result<ClientConfig> {
        let file = self.target.ca_file.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut roots = RootCertStore::empty();
            match file {
                Some(file) => {
                    let certificates = CertificateDer::pem_file_iter(&file);
                    for certificate in certificates.map_err(io::Error::other)? {
                        let certificate = certificate.map_err(io::Error::other)?;
                        roots.add(certificate).map_err(io::Error::other)?;
                    }
                }
                None => {
                    let native = rustls_native_certs::load_native_certs();
                    roots.add_parsable_certificates(native.certs);
                }
            }
            Ok::<_, io::Error>(roots)
        });
        let roots = reading.await.map_err(io::Error::other)??;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Has a connection fail whose far end is gone without a word.
fn fail_soon(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, TAKEN_WITHIN.as_millis() as u32)?;
    Ok(())
}

/// Reads what a receiver says, which means nothing, and notices its end.
fn still_open(stream: &mut Box<dyn Stream>) -> io::Result<()> {
    let mut said = [0; 512];
    loop {
        match stream.read(&mut said).now_or_never() {
            None => return Ok(()),
            Some(Ok(0)) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error),
        }
    }
}

fn late(_elapsed: tokio::time::error::Elapsed) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
}
