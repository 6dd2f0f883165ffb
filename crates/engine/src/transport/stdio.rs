//! JSON lines over a server's standard streams: `LineWriter` for its stdin, `LineReader` for its
//! stdout, `drain` for its stderr. Every buffer here is bounded.

mod drain;
mod reader;
mod writer;

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;

pub(crate) use drain::drain;
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
        // When the stream fails, the pipe loses its reader, which the writer notices.
        if tokio::io::copy(&mut receiver, &mut stream).await.is_ok() {
            stream.shutdown().await.ok();
        }
    };
    Ok((sender, copying))
}
