//! A loopback proxy that adds the agent's key to every request: the suites send none, and the
//! gateway has no switch that turns keys off.
//!
//! One request per connection; heads are completed, bodies and streams pass as they are, and a side
//! that closes closes the other. Entry point: [`Proxy::before`].

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// A head is never longer.
const HEAD: usize = 64 << 10;

/// The proxy; it serves until the test's process ends.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Proxy {
    /// Starts a proxy before a gateway.
    pub(crate) fn before(authority: &str, key: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (authority, key) = (authority.to_owned(), key.to_owned());
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let (authority, key) = (authority.clone(), key.clone());
                // A connection that fails is its client's to see.
                thread::spawn(move || drop(carry(client, &authority, &key)));
            }
        });
        Self { address }
    }
}

fn carry(mut client: TcpStream, authority: &str, key: &str) -> io::Result<()> {
    let (head, body) = head_of(&mut client)?;
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let mut text = format!("{}\r\n", lines.next().unwrap_or_default());
    for line in lines {
        let name = line.split(':').next().unwrap_or_default();
        let ours = ["connection", "authorization"];
        if !ours.iter().any(|each| name.eq_ignore_ascii_case(each)) {
            text.push_str(&format!("{line}\r\n"));
        }
    }
    text.push_str(&format!(
        "Authorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    ));
    let mut gateway = TcpStream::connect(authority)?;
    gateway.set_nodelay(true)?;
    client.set_nodelay(true)?;
    gateway.write_all(text.as_bytes())?;
    gateway.write_all(&body)?;
    let (mut from_client, mut to_gateway) = (client.try_clone()?, gateway.try_clone()?);
    thread::spawn(move || {
        drop(io::copy(&mut from_client, &mut to_gateway));
        drop(to_gateway.shutdown(Shutdown::Both));
    });
    drop(io::copy(&mut gateway, &mut client));
    client.shutdown(Shutdown::Both)
}

/// Reads a head, and what came of the body with it.
fn head_of(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), body));
        }
        let read = client.read(&mut piece)?;
        if read == 0 || bytes.len() > HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.extend_from_slice(&piece[..read]);
    }
}
