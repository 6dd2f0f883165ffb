//! Far servers that speak the second version of HTTP to flood us with its frames. fault H11
//!
//! The far side is a raw one: it agrees on `h2` and then says what no library would let it say.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gantry_testkit::wait::eventually;
use serde_json::json;

use super::peer::tls;
use super::scene::Scene;
use super::{AUTHORITY, entry, with};
use crate::faults_client::ROOM;
use crate::harness::LONG;

/// How many frames are a flood: many times what a gateway may keep.
const FRAMES: usize = 20_000;

/// Our settings, which are none.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Makes a frame of a stream.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [
        length[1], length[2], length[3], kind, flags, 0, 0, 0, stream,
    ];
    [&head[..], payload].concat()
}

/// Makes a flood: what comes first, and what comes again and again.
type Flood = fn() -> (Vec<u8>, Vec<u8>);

const FLOODS: [(&str, Flood); 4] = [
    // A head that goes on for ever: one field after the other, 8 KiB each.
    ("continued", || {
        let field = [&[0, 1, b'a', 0x7f, 0x81, 0x3f][..], &[b'x'; 8192]].concat();
        (frame(1, 0, 1, &[0x88]), frame(9, 0, 1, &field))
    }),
    ("reset", || (Vec::new(), frame(3, 0, 1, &[0, 0, 0, 8]))),
    ("settings", || (Vec::new(), SETTINGS.to_vec())),
    ("pings", || (Vec::new(), frame(6, 0, 0, &[7; 8]))),
];

/// Starts a server that floods whoever asks it something, and counts how often it was asked.
fn flooding(flood: Flood) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = tls(include_str!("tls/good.pem"));
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (config, asked) = (Arc::new(config), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, count) = (Arc::clone(&config), Arc::clone(&count));
            thread::spawn(move || drop(pour(stream, config, flood, &count)));
        }
    });
    (address, asked)
}

/// Waits for a request and answers it with the flood.
fn pour(
    stream: TcpStream,
    config: Arc<rustls::ServerConfig>,
    flood: Flood,
    asked: &AtomicUsize,
) -> io::Result<()> {
    let session = rustls::ServerConnection::new(config).map_err(io::Error::other)?;
    let mut tls = rustls::StreamOwned::new(session, stream);
    let mut said = Vec::new();
    // A request is a frame of headers, and those whole, on the first stream.
    while !said.windows(6).any(|bytes| bytes == [1, 4, 0, 0, 0, 1]) {
        let mut piece = [0; 4096];
        match tls.read(&mut piece)? {
            0 => return Ok(()),
            count => said.extend_from_slice(&piece[..count]),
        }
    }
    asked.fetch_add(1, Ordering::SeqCst);
    let (first, again) = flood();
    tls.write_all(&SETTINGS)?;
    tls.write_all(&first)?;
    let many = again.repeat(100);
    (0..FRAMES / 100).try_for_each(|_| tls.write_all(&many))?;
    tls.flush()
}

#[test]
fn floods_of_frames_fail_the_server_that_sends_them_and_cost_nobody_else() {
    let far = FLOODS.map(|(name, flood)| (name, flooding(flood)));
    let short = json!({"type": "http", "ca_file": AUTHORITY});
    let entries: Vec<_> = far
        .iter()
        .map(|(name, (address, _))| {
            (
                *name,
                with(entry(&format!("https://{address}/mcp")), &short),
            )
        })
        .collect();
    let scene = Scene::beside(&entries);
    for (name, (address, asked)) in &far {
        let status = scene.gantry.wait_state(name, "failed", LONG);
        let told = status["reason"].as_str().unwrap();
        let cut = format!("the connection to https://{address} was cut: ");
        assert!(told.starts_with(&cut), "{name}: {told}");
        // The flood was on, more than once.
        let again = eventually(LONG, || asked.load(Ordering::SeqCst) >= 2);
        assert!(again.is_some(), "{name}: {asked:?}");
    }
    scene.is_over(ROOM);
}
