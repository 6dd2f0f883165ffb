//! TLS for the listener that other machines reach: a certificate with its key, and the authorities
//! whose client certificates are accepted, read from files and read again when they change.
//!
//! Never falls back to plain text: files that cannot be used fail the start, or keep the last good
//! ones. Entry points: [`Tls::load`] and [`Tls::reload`].

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use gantry_model::diagnose::{Diagnose, Fault};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, crypto::ring};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// The files of a TLS listener, in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by the certificates of its authorities.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of client certificates; if set, a client without one of theirs is refused.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// Returns the paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let files = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()];
        let files: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
        files.into_iter()
    }
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or lacks the expected content.
    #[error("cannot read the {what} in `{}`", path.display())]
    File {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: pem::Error,
    },
    /// Every user of the machine may read the private key.
    #[error("the private key `{}` can be read by every user of this machine (mode {mode:04o})", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Certificate and key do not match.
    #[error("the certificate `{}` cannot be used with its key", path.display())]
    Mismatch {
        /// The file of the certificate.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// No authority in the file can be used.
    #[error("`{}` has no authority for client certificates that can be used", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
    },
}

impl Diagnose for TlsError {
    fn code(&self) -> &'static str {
        "listen.tls"
    }

    fn fault(&self) -> Fault {
        Fault::Gateway
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::File { .. } => Some("the file must be in PEM form and readable".to_owned()),
            Self::Open { path, .. } => Some(format!("run `chmod 600 '{}'`", path.display())),
            Self::Mismatch { .. } => Some(
                "the first certificate in the file must be the one that the key belongs to"
                    .to_owned(),
            ),
            Self::ClientCa { .. } => None,
        }
    }
}

/// The TLS side of a listener; new connections use the files as they were read last.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let config = read(&files)?;
        let config = ArcSwap::from_pointee(config);
        Ok(Self { files, config })
    }

    /// Reads the files again; on an error the last good ones stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = read(&self.files)?;
        self.config.store(Arc::new(config));
        Ok(())
    }

    /// Returns the files.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// Performs the handshake with a client, within a time limit.
    pub(super) async fn accept(&self, stream: TcpStream, within: Duration) -> io::Result<Socket> {
        let acceptor = TlsAcceptor::from(self.config.load_full());
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let stream = timeout(within, acceptor.accept(stream))
            .await
            .map_err(late)??;
        Ok(Socket::Right(Box::new(stream)))
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let certificates = certificates(&files.cert, "certificate")?;
    let key = private_key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    let mismatch = |source| TlsError::Mismatch {
        path: files.cert.clone(),
        source,
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(mismatch)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let unusable = || TlsError::ClientCa { path: path.clone() };
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(self::certificates(path, "authorities")?);
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|_| unusable())?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificates, key)
        .map_err(mismatch)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File {
        what,
        path: path.to_owned(),
        source,
    };
    let found = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(failed)?;
    match found.is_empty() {
        true => Err(failed(pem::Error::NoItemsFound)),
        false => Ok(found),
    }
}

/// Reads a private key; refuses one that every user can read. fault F5
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let mode = fs::metadata(path).map_or(0, |file| file.mode() & 0o7777);
    if mode & 0o004 != 0 {
        let path = path.to_owned();
        return Err(TlsError::Open { path, mode });
    }
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::File {
        what: "private key",
        path: path.to_owned(),
        source,
    })
}

/// The byte stream of a client: without TLS, for this machine or an address that was allowed
/// explicitly, or with it.
pub(super) type Socket = Either<TcpStream, Box<TlsStream<TcpStream>>>;
