//! The compression of a layer, and a reader of its uncompressed bytes.
//!
//! Memory is bounded whatever the stream declares; the caller limits the length of the uncompressed
//! bytes. Entry point: [`Compression::reader`].

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use parking_lot::Mutex;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The largest window of a zstd frame. Build tools use 8 MiB, at higher levels 16 MiB; a larger one
/// would exceed the memory budget of a pull.
const LARGEST_WINDOW: u64 = 16 * 1024 * 1024;
/// The largest window with which [`STREAMS`] streams may run at once.
const COMMON_WINDOW: u64 = 8 * 1024 * 1024;
/// How many zstd streams the process reads at once. A stream with a larger window runs alone.
const STREAMS: u32 = 4;
static WINDOWS: Semaphore = Semaphore::const_new(STREAMS as usize);
/// Held by the stream that is next in line, so that small streams cannot starve a large one.
static NEXT: Mutex<()> = Mutex::new(());
/// How often a waiting stream checks whether it was cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a stream waits for the others.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 60);
/// The magic number of a frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The size of the read buffer.
const BUFFER_BYTES: usize = 64 * 1024;

/// The compression of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Returns the compression named by a layer's media type; `None` if it is not a supported
    /// layer.
    pub(crate) fn of_media_type(media_type: &str) -> Option<Self> {
        Some(match media_type {
            "application/vnd.oci.image.layer.v1.tar"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar"
            | "application/vnd.docker.image.rootfs.diff.tar" => Self::None,
            "application/vnd.oci.image.layer.v1.tar+gzip"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
            | "application/vnd.docker.image.rootfs.diff.tar.gzip"
            | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" => Self::Gzip,
            "application/vnd.oci.image.layer.v1.tar+zstd"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
            | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Self::Zstd,
            _ => return None,
        })
    }

    /// Returns the compression shown by the first bytes of a file.
    pub(crate) fn of_content(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a skippable frame before it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    /// Returns a reader of the uncompressed bytes. `stop` ends the wait for memory.
    pub(crate) fn reader<R: Read>(self, stream: R, stop: &CancellationToken) -> Plain<R> {
        let stream = BufReader::with_capacity(BUFFER_BYTES, stream);
        match self {
            Self::None => Plain::None(stream),
            Self::Gzip => Plain::Gzip(Box::new(MultiGzDecoder::new(stream))),
            Self::Zstd => Plain::Zstd(Box::new(Zstd::new(stream, stop.clone()))),
        }
    }
}

/// A reader of uncompressed bytes.
pub(crate) enum Plain<R: Read> {
    None(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(Box<Zstd<BufReader<R>>>),
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::None(reader) => reader.read(into),
            Self::Gzip(reader) => reader.read(into),
            Self::Zstd(reader) => reader.read(into),
        }
    }
}

/// All frames of a zstd stream, one after the other.
pub(crate) struct Zstd<R> {
    stream: R,
    decoder: FrameDecoder,
    /// The permit for the decoder's memory, which is reused for all frames.
    permit: Option<SemaphorePermit<'static>>,
    stop: CancellationToken,
}

impl<R: BufRead> Zstd<R> {
    fn new(stream: R, stop: CancellationToken) -> Self {
        Self {
            stream,
            decoder: decoder(),
            permit: None,
            stop,
        }
    }

    /// Starts the next frame; returns whether there is one.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.stream.fill_buf()?.is_empty() {
            let header = frame_header(&mut self.stream)?;
            let large = window(&header).is_some_and(|bytes| bytes > COMMON_WINDOW);
            self.reserve(if large { STREAMS } else { 1 })?;
            match self.decoder.reset((&header[..]).chain(&mut self.stream)) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.stream).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }

    /// Waits until the memory for a frame is available.
    fn reserve(&mut self, permits: u32) -> io::Result<()> {
        let held = self.permit.as_ref();
        if held.is_some_and(|held| held.num_permits() >= permits as usize) {
            return Ok(());
        }
        // A waiting stream holds no permit, so two streams cannot deadlock.
        self.decoder = decoder();
        self.permit = None;
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut next = None;
        loop {
            if self.stop.is_cancelled() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if next.is_none() {
                next = NEXT.try_lock_for(LOOK_EVERY);
                continue;
            }
            if let Ok(permit) = WINDOWS.try_acquire_many(permits) {
                self.permit = Some(permit);
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Verifies the checksum of a finished frame, if it has one.
    fn check(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(said) if self.decoder.get_calculated_checksum() != Some(said) => {
                Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a zstd frame has a wrong checksum",
                ))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(into);
            }
            if self.decoder.is_finished() {
                self.check()?;
                if !self.next_frame()? {
                    return Ok(0);
                }
            } else {
                self.decoder
                    .decode_blocks(&mut self.stream, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(damaged)?;
            }
        }
    }
}

/// Returns a decoder that has not allocated memory yet.
fn decoder() -> FrameDecoder {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(LARGEST_WINDOW);
    decoder
}

/// Reads the header of a frame as far as its window size: at most 14 bytes (RFC 8878, 3.1.1.1).
fn frame_header(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut header = vec![0; 4];
    stream.read_exact(&mut header)?;
    if header != MAGIC {
        return Ok(header);
    }
    header.push(0);
    stream.read_exact(&mut header[4..])?;
    let descriptor = header[4];
    let single_segment = descriptor & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_size = match (descriptor >> 6, single_segment) {
        (0, false) => 0,
        (flag, _) => 1 << flag,
    };
    let rest = usize::from(!single_segment) + dictionary + content_size;
    header.resize(5 + rest, 0);
    stream.read_exact(&mut header[5..])?;
    Ok(header)
}

/// Returns the window size that a frame declares; `None` if this is not a frame.
fn window(header: &[u8]) -> Option<u64> {
    let (&descriptor, rest) = header.get(4..)?.split_first()?;
    if descriptor & 0x20 == 0 {
        let &window = rest.first()?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + (base >> 3) * u64::from(window & 7));
    }
    // A single-segment frame uses its content size as the window.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size = rest.get(dictionary..)?;
    let bytes = size
        .iter()
        .rev()
        .fold(0, |value, &byte| (value << 8) | u64::from(byte));
    Some(if size.len() == 2 { bytes + 256 } else { bytes })
}

fn damaged(error: FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn plain(compression: Compression, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        let stop = CancellationToken::new();
        compression.reader(bytes, &stop).read_to_end(&mut read)?;
        Ok(read)
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        compress_to_vec(content, CompressionLevel::Fastest)
    }

    #[test]
    fn all_members_and_frames_are_read() {
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
        let twice = [content.clone(), content.clone()].concat();
        let members = [gzip(&content), gzip(&content)].concat();
        assert_eq!(Compression::of_content(&members), Compression::Gzip);
        assert!(plain(Compression::Gzip, &members).unwrap() == twice);

        let skipped = [&[0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        let frames = [skipped.clone(), zstd(&content), skipped, zstd(&content)].concat();
        assert_eq!(Compression::of_content(&frames), Compression::Zstd);
        assert!(plain(Compression::Zstd, &frames).unwrap() == twice);
        assert_eq!(plain(Compression::None, b"abc").unwrap(), b"abc");
    }

    #[test]
    fn damaged_and_truncated_streams_are_errors() {
        let content = vec![7; 100_000];
        for (compression, stream) in [
            (Compression::Gzip, gzip(&content)),
            (Compression::Zstd, zstd(&content)),
        ] {
            for end in 1..stream.len() {
                assert!(
                    plain(compression, &stream[..end]).is_err(),
                    "{compression:?} {end}"
                );
            }
            let garbage = [&stream[..], b"garbage"].concat();
            assert!(plain(compression, &garbage).is_err(), "{compression:?}");
        }
    }

    #[test]
    fn windows_are_bounded_before_memory_is_taken() {
        let frame = |window: u8| [&MAGIC[..], &[0x00, window, 1, 0, 0]].concat();
        assert_eq!(window(&frame(0x68)), Some(8 << 20));
        assert_eq!(window(&frame(0x78)), Some(32 << 20));
        assert_eq!(window(&frame(0x01)), Some(1024 + 128));
        // A single segment, whose size is its window.
        assert_eq!(window(&[&MAGIC[..], &[0x20, 200]].concat()), Some(200));
        assert_eq!(
            window(&[&MAGIC[..], &[0x60, 1, 1]].concat()),
            Some(256 + 257)
        );
        assert_eq!(
            window(&[&MAGIC[..], &[0xa0, 0, 0, 0, 4]].concat()),
            Some(64 << 20)
        );
        assert!(plain(Compression::Zstd, &frame(0x70)).is_ok(), "16 MiB");
        assert!(plain(Compression::Zstd, &frame(0x71)).is_err(), "18 MiB");
        assert!(
            plain(Compression::Zstd, &frame(0xf0)).is_err(),
            "one terabyte"
        );
    }

    #[test]
    fn who_waits_for_memory_can_be_cancelled() {
        let stream = zstd(b"abc");
        let stop = CancellationToken::new();
        let taken = loop {
            // Other tests of this process may hold some permits.
            match WINDOWS.try_acquire_many(STREAMS) {
                Ok(taken) => break taken,
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        };
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut reader = Compression::Zstd.reader(&stream[..], &stop);
                reader.read(&mut [0; 8]).map_err(|error| error.kind())
            });
            stop.cancel();
            let ended = waits.join().unwrap();
            assert_eq!(ended, Err(io::ErrorKind::ConnectionAborted));
        });
        drop(taken);
    }
}
