//! JSON lines over a server's standard streams: `LineWriter` for its stdin, `LineReader` for its
//! stdout, `drain` for its stderr. Every buffer here is bounded.

mod reader;
mod writer;

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;

pub(crate) use reader::{End, Inbox, LineReader, Overflow, Overlong};
pub(crate) use writer::{Batching, LineWriter, SendError};

/// Lets `LineWriter`, which writes to pipes only, write to any byte stream: returns a pipe, and the
/// work that copies from it to the stream until either side is closed.
///
/// A stream that takes no bytes fills the pipe, which the writer notices as it does with a process.
pub(crate) fn bridge(
    mut stream: impl AsyncWrite + Send + Unpin + 'static,
) -> io::Result<(pipe::Sender, impl Future<Output = ()> + Send + 'static)> {
    let (sender, mut receiver) = pipe::pipe()?;
    let copying = async move {
        // Once the stream fails the pipe has no reader, and the writer sees that.
        if tokio::io::copy(&mut receiver, &mut stream).await.is_ok() {
            stream.shutdown().await.ok();
        }
    };
    Ok((sender, copying))
}

/// Reads a server's stderr until it ends, so that the server never blocks on it; `keep` gets the
/// bytes as they come.
pub(crate) async fn drain(mut stream: impl AsyncRead + Unpin, keep: impl Fn(&[u8])) {
    let mut buffer = vec![0; 4 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        keep(&buffer[..count]);
    }
}
