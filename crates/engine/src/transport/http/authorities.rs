//! Reads a file of certificates that a server's spec names. It may be named over the API, so that
//! nothing is taken for granted: only a plain file is opened, no more than a bound is read, and who
//! waits waits for a moment. Entry point: [`read`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use reqwest::Certificate;
use rustix::fs::OFlags;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest file of certificates.
const LONGEST: u64 = 1 << 20;
/// How long reading may take.
const WITHIN: Duration = Duration::from_secs(5);
/// How many files are read at once: a disk that never answers keeps no more threads than this.
const READERS: usize = 4;

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
    #[error(transparent)]
    Wrong(#[from] reqwest::Error),
    #[error("it holds no certificate")]
    Empty,
}

/// Returns the certificates of a PEM file.
pub(super) async fn read(file: &Path) -> Result<Vec<Certificate>, Unread> {
    static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(READERS)));
    let file = file.to_owned();
    let reading = async {
        let turn = Arc::clone(&TURNS).acquire_owned().await;
        let reading = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            whole(file)
        });
        reading.await.map_err(|_| Unread::Silent)?
    };
    let text = timeout(WITHIN, reading).await;
    let text = text.map_err(|_elapsed| Unread::Silent)??;
    let found = Certificate::from_pem_bundle(&text)?;
    if found.is_empty() {
        return Err(Unread::Empty);
    }
    Ok(found)
}

fn whole(file: PathBuf) -> Result<Vec<u8>, Unread> {
    // Looked at before it is opened: opening alone moves some devices, and waits at a pipe.
    if !std::fs::metadata(&file)?.is_file() {
        return Err(Unread::Special);
    }
    let file = open(&file)?;
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
            let refused = read(special).await.unwrap_err();
            assert!(matches!(refused, Unread::Special), "{special:?}: {refused}");
        }
        let long = temp.path().join("long.pem");
        std::fs::write(&long, vec![b'a'; (1 << 20) + 1]).unwrap();
        assert!(matches!(read(&long).await, Err(Unread::TooLong)));
        // Says that it is empty, and is not.
        let endless = read("/proc/self/environ".as_ref()).await.unwrap_err();
        assert!(
            matches!(endless, Unread::Empty | Unread::Wrong(_)),
            "{endless}"
        );
        let gone = read(&temp.path().join("gone.pem")).await;
        assert!(matches!(gone, Err(Unread::Io(_))));
    }
}
