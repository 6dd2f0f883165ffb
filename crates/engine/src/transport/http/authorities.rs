//! Reads a file of certificates that a server's spec names. It may be named over the API, so that
//! nothing is taken for granted: only a plain file is opened, no more than a bound is read, and who
//! waits waits for a moment. A file that hangs holds up nobody who names another. Entry point:
//! [`Readings::read`].

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Certificate;
use rustix::fs::OFlags;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// The longest file of certificates.
const LONGEST: u64 = 1 << 20;
/// How long reading may take.
const WITHIN: Duration = Duration::from_secs(5);
/// How many files are read at once, each by one: disks that never answer keep no more threads than
/// this.
const READERS: usize = 64;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no regular file")]
    Special,
    #[error("it is over 1 MiB")]
    TooLong,
    #[error("it was not read within {WITHIN:?}")]
    Silent,
    #[error("{READERS} other files are being read and do not end")]
    Crowded,
    #[error(transparent)]
    Wrong(#[from] reqwest::Error),
    #[error("it holds no certificate")]
    Empty,
}

/// The files that are being read.
#[derive(Debug, Clone, Default)]
pub(super) struct Readings {
    open: Arc<Mutex<HashMap<PathBuf, Reading>>>,
}

/// A file that is being read.
#[derive(Debug, Clone)]
struct Reading {
    /// When it hangs, if it has not ended.
    until: Instant,
    over: CancellationToken,
}

/// The one who reads a file; with it the reading ends.
struct Reader {
    readings: Readings,
    file: PathBuf,
}

/// What comes of asking for the turn to read a file.
enum Turn {
    Mine(Reader),
    Other(Reading),
    Crowded,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(reading) = self.readings.open().remove(&self.file) {
            reading.over.cancel();
        }
    }
}

impl Readings {
    /// Returns the certificates of a PEM file.
    pub(super) async fn read(&self, file: &Path) -> Result<Vec<Certificate>, Unread> {
        let text = timeout(WITHIN, self.text(file)).await;
        let text = text.map_err(|_elapsed| Unread::Silent)??;
        let found = Certificate::from_pem_bundle(&text)?;
        if found.is_empty() {
            return Err(Unread::Empty);
        }
        Ok(found)
    }

    /// Reads a file after everybody else who reads it, unless one of them hangs.
    async fn text(&self, file: &Path) -> Result<Vec<u8>, Unread> {
        loop {
            let other = match self.turn(file, Instant::now() + WITHIN) {
                Turn::Mine(reader) => {
                    let reading = tokio::task::spawn_blocking(move || whole(&reader.file));
                    return reading.await.map_err(|_| Unread::Silent)?;
                }
                Turn::Other(other) => other,
                Turn::Crowded => return Err(Unread::Crowded),
            };
            let ended = timeout_at(other.until, other.over.cancelled()).await;
            ended.map_err(|_elapsed| Unread::Silent)?;
        }
    }

    /// Takes the turn to read a file, which hangs if it has not ended by then.
    fn turn(&self, file: &Path, until: Instant) -> Turn {
        let mut open = self.open();
        if let Some(other) = open.get(file) {
            return Turn::Other(other.clone());
        }
        if open.len() >= READERS {
            return Turn::Crowded;
        }
        let over = CancellationToken::new();
        open.insert(file.to_owned(), Reading { until, over });
        drop(open);
        Turn::Mine(Reader {
            readings: self.clone(),
            file: file.to_owned(),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<PathBuf, Reading>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn whole(file: &Path) -> Result<Vec<u8>, Unread> {
    // Looked at before it is opened: opening alone moves some devices, and waits at a pipe.
    if !std::fs::metadata(file)?.is_file() {
        return Err(Unread::Special);
    }
    let file = open(file)?;
    if !file.metadata()?.is_file() {
        return Err(Unread::Special);
    }
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(Unread::TooLong);
    }
    Ok(text)
}

/// Opens without ever waiting, should another file have taken the place meanwhile.
fn open(file: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(flags).open(file)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[tokio::test]
    async fn only_a_plain_and_short_file_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let readings = Readings::default();
        let pipe = temp.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for special in [
            "/dev/zero".as_ref(),
            "/dev/null".as_ref(),
            temp.path(),
            &*pipe,
            &*link,
        ] {
            let refused = readings.read(special).await.unwrap_err();
            assert!(matches!(refused, Unread::Special), "{special:?}: {refused}");
        }
        let long = temp.path().join("long.pem");
        std::fs::write(&long, vec![b'a'; (1 << 20) + 1]).unwrap();
        assert!(matches!(readings.read(&long).await, Err(Unread::TooLong)));
        // Says that it is empty, and is not.
        let endless = readings
            .read("/proc/self/environ".as_ref())
            .await
            .unwrap_err();
        assert!(
            matches!(endless, Unread::Empty | Unread::Wrong(_)),
            "{endless}"
        );
        let gone = readings.read(&temp.path().join("gone.pem")).await;
        assert!(matches!(gone, Err(Unread::Io(_))));
    }

    #[tokio::test]
    async fn a_file_that_hangs_is_refused_at_once_and_holds_up_no_other() {
        let temp = tempfile::tempdir().unwrap();
        let readings = Readings::default();
        let file = |number: usize| temp.path().join(format!("{number}.pem"));
        for number in 0..=READERS {
            std::fs::write(file(number), "nothing").unwrap();
        }
        let begun = Instant::now();
        // All on a disk that stopped to answer long ago.
        let hang = |number: usize| readings.turn(&file(number), begun);
        let mut hanging: Vec<Turn> = (1..READERS).map(hang).collect();
        let refused = readings.read(&file(1)).await.unwrap_err();
        assert!(matches!(refused, Unread::Silent), "{refused}");
        let healthy = readings.read(&file(0)).await.unwrap_err();
        assert!(matches!(healthy, Unread::Empty), "{healthy}");
        hanging.push(hang(READERS));
        let crowded = readings.read(&file(0)).await.unwrap_err();
        assert!(matches!(crowded, Unread::Crowded), "{crowded}");
        hanging.clear();
        let healed = readings.read(&file(1)).await.unwrap_err();
        assert!(matches!(healed, Unread::Empty), "{healed}");
        // Who comes while another reads in good time has its turn after that.
        let other = readings.turn(&file(1), begun + WITHIN);
        let path = file(1);
        let mut waiting = Box::pin(readings.read(&path));
        let early = timeout(Duration::from_millis(20), &mut waiting).await;
        assert!(early.is_err(), "it waits");
        drop(other);
        let after = waiting.await.unwrap_err();
        assert!(matches!(after, Unread::Empty), "{after}");
    }
}
