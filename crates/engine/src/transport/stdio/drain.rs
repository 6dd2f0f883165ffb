//! Reads a child's stderr for ever, so that the child never blocks on it, and hands on what it said.

use std::io;

use tokio::net::unix::pipe;

/// Reads until the child closes its stderr; `keep` gets the bytes as they come.
pub(crate) async fn drain(pipe: pipe::Receiver, keep: impl Fn(&[u8])) {
    let mut buffer = vec![0; 4 * 1024];
    loop {
        if pipe.readable().await.is_err() {
            return;
        }
        match pipe.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => keep(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
