//! A web server with one page, for a server that fetches.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

const PAGE: &str = "<html><head><title>Ours</title></head><body><article><h1>A page of our own</h1>\
    <p>It says enough to be worth reading, and nothing that is not known already.</p></article></body></html>";

/// The server; it serves until the test's process ends.
pub(crate) struct Page {
    /// Where the page is.
    pub(crate) url: String,
}

impl Page {
    /// Starts to serve.
    pub(crate) fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/page", listener.local_addr().unwrap());
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(mut client) = client else { return };
                let mut head = [0; 4096];
                let read = client.read(&mut head).unwrap_or(0);
                let (status, body) = match head[..read].starts_with(b"GET /page") {
                    true => ("200 OK", PAGE),
                    false => ("404 Not Found", ""),
                };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                drop(client.write_all(head.as_bytes()));
                drop(client.write_all(body.as_bytes()));
            }
        });
        Self { url }
    }
}
