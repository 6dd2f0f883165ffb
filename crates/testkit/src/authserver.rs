//! An authorization server and an MCP server that trusts it, on one loopback port: metadata (RFC
//! 8414, 9728), registration, PKCE, `iss`, rotating refresh tokens, revocation, client credentials,
//! scopes. Every sign-in succeeds at once. Entry point: [`AuthServer::start`].

mod grants;
mod pages;
mod resource;
mod wire;

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use self::grants::Book;
use self::wire::{Answer, Asked};

/// How the authorization server behaves.
#[derive(Debug, Clone)]
pub struct AuthOptions {
    /// Whether clients may register themselves.
    pub registration: bool,
    /// Whether registered clients get a secret, which they must send.
    pub secrets: bool,
    /// URLs that are accepted as client ids (client id metadata documents); empty if unsupported.
    pub documents: Vec<String>,
    /// Clients that were registered by hand: id and secret.
    pub clients: Vec<(String, String)>,
    /// How long a token lasts, in seconds.
    pub token_seconds: u64,
    /// The `iss` parameter in the response to a sign-in.
    pub issuer_said: IssuerSaid,
    /// Whether the user denies the sign-in.
    pub denies: bool,
    /// Whether the metadata advertise PKCE.
    pub pkce: bool,
    /// The token endpoint in the metadata, if it is elsewhere.
    pub token_endpoint: Option<String>,
    /// Whether the MCP server does not respond to requests without a token.
    pub silent: bool,
    /// The loopback address of both servers.
    pub host: &'static str,
}

impl Default for AuthOptions {
    fn default() -> Self {
        Self {
            registration: true,
            secrets: false,
            documents: Vec::new(),
            clients: Vec::new(),
            token_seconds: 3600,
            issuer_said: IssuerSaid::Right,
            denies: false,
            pkce: true,
            token_endpoint: None,
            silent: false,
            host: "127.0.0.1",
        }
    }
}

/// The `iss` parameter in the response to a sign-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuerSaid {
    /// The right issuer.
    Right,
    /// Another issuer.
    Wrong,
    /// Missing, although the metadata promise it.
    Nothing,
}

/// A running authorization server.
pub struct AuthServer {
    authority: String,
    inner: Arc<Inner>,
}

struct Inner {
    authority: String,
    options: AuthOptions,
    book: Mutex<Book>,
    over: AtomicBool,
}

impl AuthServer {
    /// Starts on a free port of loopback.
    pub fn start(options: AuthOptions) -> Self {
        let listener = TcpListener::bind((options.host, 0)).expect("loopback has free ports");
        let authority = listener
            .local_addr()
            .expect("a bound socket has an address")
            .to_string();
        let inner = Arc::new(Inner {
            authority: authority.clone(),
            options,
            book: Mutex::new(Book::default()),
            over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&inner);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), inner) = (stream, Arc::clone(&serving)) else {
                    continue;
                };
                thread::spawn(move || wire::serve(stream, |asked| inner.answer(asked)));
            }
        });
        Self { authority, inner }
    }

    /// Returns the URL of the MCP server.
    pub fn mcp_url(&self) -> String {
        format!("http://{}/mcp", self.authority)
    }

    /// Returns the address of both servers.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Invalidates every refresh token.
    pub fn revoke_refresh_tokens(&self) {
        self.inner.book().refresh.clear();
    }

    /// Invalidates every access token, as if it had expired.
    pub fn expire_access_tokens(&self) {
        self.inner.book().access.clear();
    }

    /// Forgets every client that registered itself.
    pub fn forget_clients(&self) {
        self.inner.book().registered.clear();
    }

    /// Makes the MCP server trust another authorization server, and no tokens of the old one.
    pub fn move_issuer(&self) {
        let mut book = self.inner.book();
        book.tenant += 1;
        book.access.clear();
    }

    /// Makes the MCP server name this authorization server, even if it is invalid.
    pub fn name_issuer(&self, issuer: &str) {
        self.inner.book().named = Some(issuer.to_owned());
    }

    /// Serves a document under `/.well-known/forged` that claims to be the metadata of another
    /// authorization server, with endpoints here; without an issuer, if the name is empty.
    pub fn pose_as(&self, issuer: &str) {
        self.inner.book().posed = Some(issuer.to_owned());
    }

    /// Returns the name of the authorization server that the MCP server trusts.
    pub fn issuer(&self) -> String {
        let tenant = self.inner.book().tenant;
        self.inner.issuer(tenant)
    }

    /// Returns every request so far as `METHOD path`, those for tokens with their grant.
    pub fn requests(&self) -> Vec<String> {
        self.inner.book().requests.clone()
    }

    /// Counts the requests so far that have this prefix.
    pub fn count(&self, beginning: &str) -> usize {
        let requests = self.requests();
        requests
            .iter()
            .filter(|request| request.starts_with(beginning))
            .count()
    }

    /// Returns every secret that was ever issued: codes, tokens, client secrets.
    pub fn secrets(&self) -> Vec<String> {
        self.inner.book().given.clone()
    }

    /// Returns the clients that registered themselves.
    pub fn registered(&self) -> usize {
        self.inner.book().registered.len()
    }
}

impl Drop for AuthServer {
    fn drop(&mut self) {
        self.inner.over.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        drop(std::net::TcpStream::connect(&self.authority));
    }
}

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.authority)
    }

    /// Returns the name of one of the authorization servers.
    fn issuer(&self, tenant: u32) -> String {
        self.url(&format!("/tenant-{tenant}"))
    }

    fn answer(&self, asked: &Asked) -> Answer {
        self.note(asked);
        let (path, _) = asked.target();
        match (asked.method.as_str(), path) {
            ("GET", "/.well-known/oauth-protected-resource/mcp") => self.resource_metadata(),
            ("GET", "/.well-known/forged") => self.forged(),
            ("POST", "/mcp") => self.resource(asked),
            ("GET" | "DELETE", "/mcp") => self.no_stream(asked),
            (method, path) => {
                let well_known = "/.well-known/oauth-authorization-server/tenant-";
                if let Some(tenant) = path.strip_prefix(well_known) {
                    return self.metadata(tenant);
                }
                let Some((tenant, page)) = path
                    .strip_prefix("/tenant-")
                    .and_then(|rest| rest.split_once('/'))
                else {
                    return Answer::new(404);
                };
                let Ok(tenant) = tenant.parse() else {
                    return Answer::new(404);
                };
                match (method, page) {
                    ("POST", "register") if self.options.registration => self.register(asked),
                    ("GET", "authorize") => self.authorize(tenant, asked),
                    ("POST", "token") => self.token(tenant, asked),
                    ("POST", "revoke") => self.revoke(asked),
                    _ => Answer::new(404),
                }
            }
        }
    }

    fn note(&self, asked: &Asked) {
        let (path, _) = asked.target();
        let mut line = format!("{} {path}", asked.method);
        if let Some(grant) = asked.form().get("grant_type") {
            line.push_str(&format!(" {grant}"));
        }
        self.book().requests.push(line);
    }
}
