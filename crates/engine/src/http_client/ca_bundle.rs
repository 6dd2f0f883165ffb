//! Reads a certificate file named in a server's spec. The name may come over the API, so only a
//! regular file is opened, with limits on size and time. A file that hangs does not block readers
//! of other files. Entry point: [`CaFiles::read`].

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Certificate;
use rustix::fs::OFlags;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

/// The largest certificate file, in bytes.
const LONGEST: u64 = 1 << 20;
/// Time limit of reading.
const WITHIN: Duration = Duration::from_secs(5);

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaFileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is not a regular file")]
    Special,
    #[error("it is over 1 MiB")]
    TooLong,
    #[error("it was not read within {WITHIN:?}")]
    Silent,
    #[error(transparent)]
    Wrong(#[from] reqwest::Error),
    #[error("it contains no certificate")]
    Empty,
}

/// The files that are being read, each by one task at a time: a disk that hangs blocks one thread
/// per file, and no readers of other files.
#[derive(Debug, Default)]
pub(super) struct CaFiles(Mutex<HashMap<PathBuf, Arc<AsyncMutex<()>>>>);

impl CaFiles {
    /// Returns the certificates of a PEM file.
    pub(super) async fn read(&self, file: &Path) -> Result<Vec<Certificate>, CaFileError> {
        let text = timeout(WITHIN, self.text(file)).await;
        let text = text.map_err(|_elapsed| CaFileError::Silent)??;
        let found = Certificate::from_pem_bundle(&text)?;
        if found.is_empty() {
            return Err(CaFileError::Empty);
        }
        Ok(found)
    }

    async fn text(&self, file: &Path) -> Result<Vec<u8>, CaFileError> {
        let turn = self.turn(file).lock_owned().await;
        let file = file.to_owned();
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            whole(&file)
        });
        reading.await.map_err(|_panicked| CaFileError::Silent)?
    }

    fn turn(&self, file: &Path) -> Arc<AsyncMutex<()>> {
        let mut reading = self.0.lock();
        reading.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(reading.entry(file.to_owned()).or_default())
    }
}

fn whole(file: &Path) -> Result<Vec<u8>, CaFileError> {
    // Checked before opening: opening alone affects some devices, and blocks at a pipe.
    if !std::fs::metadata(file)?.is_file() {
        return Err(CaFileError::Special);
    }
    let file = open(file)?;
    if !file.metadata()?.is_file() {
        return Err(CaFileError::Special);
    }
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(CaFileError::TooLong);
    }
    Ok(text)
}

/// Opens without blocking, in case another kind of file has replaced it meanwhile.
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
        let files = CaFiles::default();
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
            let refused = files.read(special).await.unwrap_err();
            assert!(
                matches!(refused, CaFileError::Special),
                "{special:?}: {refused}"
            );
        }
        let long = temp.path().join("long.pem");
        std::fs::write(&long, vec![b'a'; (1 << 20) + 1]).unwrap();
        assert!(matches!(files.read(&long).await, Err(CaFileError::TooLong)));
        // Says that it is empty, and is not.
        let endless = files.read("/proc/self/environ".as_ref()).await.unwrap_err();
        assert!(
            matches!(endless, CaFileError::Empty | CaFileError::Wrong(_)),
            "{endless}"
        );
        let gone = files.read(&temp.path().join("gone.pem")).await;
        assert!(matches!(gone, Err(CaFileError::Io(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_hangs_is_refused_and_holds_up_no_other() {
        let temp = tempfile::tempdir().unwrap();
        let files = CaFiles::default();
        let [hanging, healthy] = ["hanging", "healthy"].map(|name| temp.path().join(name));
        std::fs::write(&hanging, "nothing").unwrap();
        std::fs::write(&healthy, "nothing").unwrap();
        // Who reads it never ends.
        let reader = files.turn(&hanging).lock_owned().await;
        let refused = files.read(&hanging).await.unwrap_err();
        assert!(matches!(refused, CaFileError::Silent), "{refused}");
        let other = files.read(&healthy).await.unwrap_err();
        assert!(matches!(other, CaFileError::Empty), "{other}");
        drop(reader);
        let healed = files.read(&hanging).await.unwrap_err();
        assert!(matches!(healed, CaFileError::Empty), "{healed}");
        files.turn(&healthy);
        assert_eq!(files.0.lock().len(), 1, "nothing is kept");
    }
}
