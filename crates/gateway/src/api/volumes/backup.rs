//! A volume as a tar archive, written while it is read: only a few pieces are in memory, and the
//! writing stops when the client disconnects.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gantry_engine::{Actor, EngineError, Project};
use gantry_model::id::ServerName;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use tokio::sync::mpsc;

use crate::http::error::Problem;

/// The size of a piece.
const PIECE: usize = 64 << 10;
/// The maximum number of queued pieces.
const WAITING: usize = 4;

type Working = std::pin::Pin<Box<dyn Future<Output = Result<(), EngineError>> + Send>>;

/// Responds with the archive; a failure before its first piece is an error response.
pub(super) async fn answer(
    project: Arc<Project>,
    by: Actor,
    server: ServerName,
    path: PathBuf,
) -> Result<Response, Problem> {
    let name = format!("{server}{}.tar", path.display()).replace('/', "-");
    let (tx, pieces) = mpsc::channel(WAITING);
    let to = Pieces {
        tx,
        piece: Vec::with_capacity(PIECE),
    };
    let working: Working =
        Box::pin(async move { project.back_up_volume(by, server, path, to).await });
    let mut writing = Writing {
        working: Some(working),
        pieces,
    };
    let first = writing.next().await;
    let first = match first {
        Some(Err(error)) => return Err(error.into()),
        Some(Ok(piece)) => piece,
        None => Bytes::new(),
    };
    let rest = stream::unfold(writing, |mut writing| async move {
        let piece = writing.next().await?;
        let piece = piece.map_err(|error| {
            let why = gantry_model::diagnose::chain(&error);
            tracing::warn!(why, "a backup was cut off");
            io::Error::other(why)
        });
        Some((piece, writing))
    });
    let first = stream::once(async { Ok::<_, io::Error>(first) });
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    let named = format!("attachment; filename=\"{}\"", safe(&name));
    if let Ok(named) = HeaderValue::try_from(named) {
        headers.insert(CONTENT_DISPOSITION, named);
    }
    Ok(response)
}

fn safe(name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let plain = |letter| if is_plain(letter) { letter } else { '_' };
    name.chars().map(plain).collect()
}

/// An archive being written.
struct Writing {
    /// Absent after its end.
    working: Option<Working>,
    pieces: mpsc::Receiver<Bytes>,
}

impl Writing {
    async fn next(&mut self) -> Option<Result<Bytes, EngineError>> {
        if let Some(working) = &mut self.working {
            let done = tokio::select! {
                biased;
                piece = self.pieces.recv() => match piece {
                    Some(piece) => return Some(Ok(piece)),
                    None => (&mut *working).await,
                },
                done = &mut *working => done,
            };
            self.working = None;
            if let Err(error) = done {
                return Some(Err(error));
            }
        }
        self.pieces.recv().await.map(Ok)
    }
}

/// Sends the written bytes to the client in pieces. Blocks while the queue is full.
struct Pieces {
    tx: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        let sent = self.tx.blocking_send(piece.into());
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader went away"))
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if self.send().is_err() {
            // The client disconnected.
        }
    }
}
