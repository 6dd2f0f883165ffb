//! The download of a layer's blob, which another thread reads and unpacks.
//!
//! The download stops at the size that the descriptor names, resumes after an interruption, and is
//! paced by the reader. The reader sees the end only after the digest was verified. Entry point:
//! [`Session::blob`].

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE};
use reqwest::{Response, StatusCode};
use tokio::sync::mpsc;

use super::manifest::{LayerBlob, blob_ask, check_digest, encoding_note};
use super::pace::{Pace, Stalled};
use super::{RegistryError, Session};
use crate::digest::{Digest, Hasher};
use crate::layers::Waited;

/// How many pieces are queued for the reader.
const QUEUE: usize = 4;
/// How many interruptions in a row are tolerated that brought less than [`WORTH_IT`].
const MOST_CUTS: u32 = 4;
const WORTH_IT: u64 = 1 << 20;

/// The error of either side, for the caller that started both.
type Failure = Arc<Mutex<Option<RegistryError>>>;

/// The downloading side.
#[derive(Debug)]
pub(crate) struct Download {
    blob: LayerBlob,
    what: String,
    to: mpsc::Sender<Piece>,
    failure: Failure,
}

/// The reading side: the blob's bytes as stored in the registry. Blocks.
#[derive(Debug)]
pub(crate) struct BlobReader {
    from: mpsc::Receiver<Piece>,
    piece: Bytes,
    hasher: Hasher,
    waited: Waited,
    /// Whether the digest was right, known at the end.
    verdict: Option<bool>,
    expected: Digest,
    what: String,
    failure: Failure,
}

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    /// All bytes have arrived, with a possible explanation of a wrong digest.
    End {
        note: String,
    },
}

/// Creates both sides of a blob.
pub(crate) fn blob(blob: LayerBlob) -> (Download, BlobReader) {
    let (to, from) = mpsc::channel(QUEUE);
    let failure = Failure::default();
    let what = format!("layer `{}`", blob.digest);
    let reader = BlobReader {
        from,
        piece: Bytes::new(),
        hasher: Hasher::default(),
        verdict: None,
        waited: Waited::default(),
        expected: blob.digest,
        what: what.clone(),
        failure: Arc::clone(&failure),
    };
    let download = Download {
        blob,
        what,
        to,
        failure,
    };
    (download, reader)
}

impl Session {
    /// Downloads a blob to its reader. Returns early, without an error, if the reader is dropped.
    /// Calls `received` with the total number of bytes.
    pub(crate) async fn blob(&self, download: Download, received: &(dyn Fn(u64) + Send + Sync)) {
        if let Err(error) = self.download(&download, received).await {
            download.failure.lock().get_or_insert(error);
        }
    }

    async fn download(
        &self,
        download: &Download,
        received: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<(), RegistryError> {
        let size = download.blob.size;
        let mut offset = 0;
        let mut cuts = 0;
        loop {
            let began = offset;
            let why = match self.piecewise(download, &mut offset, received).await? {
                Ended::Whole { note } => {
                    // If the reader is gone, it has reported its own error.
                    drop(download.to.send(Piece::End { note }).await);
                    return Ok(());
                }
                Ended::ReaderGone => return Ok(()),
                Ended::Cut(why) => why,
            };
            cuts = if offset - began >= WORTH_IT {
                0
            } else {
                cuts + 1
            };
            if cuts > MOST_CUTS {
                return Err(why.unwrap_or_else(|| RegistryError::Length {
                    what: download.what.clone(),
                    expected: size,
                    got: offset,
                }));
            }
            self.wait(self.pause(cuts.saturating_sub(1))).await?;
        }
    }

    /// Downloads from `offset` until the end or an interruption.
    async fn piecewise(
        &self,
        download: &Download,
        offset: &mut u64,
        received: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Ended, RegistryError> {
        let (size, what) = (download.blob.size, download.what.as_str());
        let from = (*offset > 0).then_some(*offset);
        let response = self
            .ask(&blob_ask(&self.image, &download.blob.digest, what, from))
            .await;
        let mut response = match response {
            Ok(response) => response,
            Err(error @ RegistryError::Unreachable { .. }) => return Ok(Ended::Cut(Some(error))),
            Err(error) => return Err(error),
        };
        let mut skip = skipped(&response, *offset, size, what)?;
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let expected = size - *offset + skip;
        if let Some(got) = length.filter(|length| *length != expected) {
            return Err(RegistryError::Length {
                what: what.to_owned(),
                expected,
                got,
            });
        }
        let note = encoding_note(response.headers());
        let url = response.url().clone();
        let mut pace = Pace::new(&self.options.timeouts, &self.stop);
        loop {
            let mut piece = match pace.next(&mut response).await {
                Ok(Some(piece)) => piece,
                Ok(None) if *offset == size => return Ok(Ended::Whole { note }),
                Ok(None) => return Ok(Ended::Cut(None)),
                Err(cut @ Stalled::Cut(_)) => {
                    return Ok(Ended::Cut(Some(cut.into_error(what, &url))));
                }
                Err(stalled) => return Err(stalled.into_error(what, &url)),
            };
            let known = skip.min(piece.len() as u64);
            skip -= known;
            // `known` is at most the length of the piece.
            piece.advance(known as usize);
            if piece.is_empty() {
                continue;
            }
            *offset += piece.len() as u64;
            if *offset > size {
                return Err(RegistryError::Length {
                    what: what.to_owned(),
                    expected: size,
                    got: *offset,
                });
            }
            received(*offset);
            let sent = self
                .stop
                .run_until_cancelled(download.to.send(Piece::Data(piece)));
            match sent.await {
                None => return Err(RegistryError::Cancelled),
                Some(Err(_)) => return Ok(Ended::ReaderGone),
                Some(Ok(())) => {}
            }
        }
    }
}

/// How a part of a download ended.
enum Ended {
    Whole {
        note: String,
    },
    ReaderGone,
    /// Interrupted, with the error if there was one.
    Cut(Option<RegistryError>),
}

/// Returns how many bytes of a response are already known, and checks that it starts at the right
/// offset.
fn skipped(response: &Response, offset: u64, size: u64, what: &str) -> Result<u64, RegistryError> {
    if response.status() != StatusCode::PARTIAL_CONTENT {
        // The registry does not support ranges and sends the whole blob.
        return Ok(offset);
    }
    let range = response.headers().get(CONTENT_RANGE);
    let range = range
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let is_right = range.strip_prefix("bytes ").and_then(|range| {
        let (range, total) = range.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let last = last.parse::<u64>().ok()?;
        let total = if total == "*" {
            size
        } else {
            total.parse().ok()?
        };
        Some(first.parse() == Ok(offset) && last.checked_add(1) == Some(size) && total == size)
    });
    if is_right == Some(true) {
        return Ok(0);
    }
    Err(RegistryError::Invalid {
        what: what.to_owned(),
        why: format!(
            "requested were the bytes from {offset} of {size}, received `{}`",
            crate::error::printable(range)
        ),
    })
}

impl BlobReader {
    /// Returns where the error of either side is stored.
    pub(crate) fn failure(&self) -> Failure {
        Arc::clone(&self.failure)
    }

    /// Verifies the digest at the end.
    fn check(&mut self, note: String) {
        let got = std::mem::take(&mut self.hasher).finish();
        let checked = check_digest(&self.what, self.expected, got, note);
        self.verdict = Some(checked.is_ok());
        if let Err(error) = checked {
            self.failure.lock().get_or_insert(error);
        }
    }
}

impl BlobReader {
    /// Returns the counter of the time spent waiting for the network.
    pub(crate) fn waited(&self) -> Waited {
        self.waited.clone()
    }
}

impl Read for BlobReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while self.piece.is_empty() {
            match self.verdict {
                None => {}
                Some(true) => return Ok(0),
                Some(false) => {
                    let why = "the blob has another digest";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                }
            }
            let from = &mut self.from;
            match self.waited.during(|| from.blocking_recv()) {
                Some(Piece::Data(piece)) => {
                    self.hasher.update(&piece);
                    self.piece = piece;
                }
                Some(Piece::End { note }) => self.check(note),
                // The download ended early; its own error says why.
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
        let length = into.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut into[..length]);
        Ok(length)
    }
}
