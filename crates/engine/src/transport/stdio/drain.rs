//! Reads a server's stderr until it ends, so that the server never blocks on it.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads until the server closes its stderr; `keep` gets the bytes as they come.
pub(crate) async fn drain(mut stream: impl AsyncRead + Unpin, keep: impl Fn(&[u8])) {
    let mut buffer = vec![0; 4 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        keep(&buffer[..count]);
    }
}
