//! Watches the folders of the configuration files, and detects whether a file changed.
//!
//! Folders are watched, not files, since editors and deployments replace files. If the system
//! supports no watches, it reports a possible change every second. Entry points: [`Watch::over`],
//! [`FileState::of`].

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::approval::Digest;
use super::plan::digest_of;

/// The quiet period, so that a file is not read half-written.
const QUIET: Duration = Duration::from_millis(100);
/// The maximum delay in a busy folder.
const PATIENCE: Duration = Duration::from_millis(400);
/// The poll interval without a system watch.
const LOOK: Duration = Duration::from_secs(1);

/// A watch over some folders.
pub struct Watch {
    /// `None` if the system supports no watches.
    watcher: Option<RecommendedWatcher>,
    news: mpsc::Receiver<()>,
}

impl Watch {
    /// Watches the folders of these files, and of their link targets.
    pub fn over(files: impl IntoIterator<Item = PathBuf>) -> Self {
        // Capacity one: pending changes are merged.
        let (tell, news) = mpsc::channel(1);
        let heard = move |event: notify::Result<notify::Event>| {
            let matters = event.map_or(true, |event| !event.kind.is_access());
            if matters {
                // Full: already known. Closed: no listener.
                tell.try_send(()).ok();
            }
        };
        let mut folders = BTreeSet::new();
        for file in files {
            let real = std::fs::canonicalize(&file).ok();
            for path in [Some(file), real].into_iter().flatten() {
                folders.extend(path.parent().map(Path::to_owned));
            }
        }
        let watcher = notify::recommended_watcher(heard).and_then(|mut watcher| {
            for folder in folders.iter().filter(|folder| folder.is_dir()) {
                watcher.watch(folder, RecursiveMode::NonRecursive)?;
            }
            Ok(watcher)
        });
        let watcher = watcher.inspect_err(|error| {
            tracing::warn!(%error, "files cannot be watched; they are looked at every second");
        });
        Self {
            watcher: watcher.ok(),
            news,
        }
    }

    /// Waits for a possible change, and for the quiet period after it.
    pub async fn changed(&mut self) {
        if self.watcher.is_none() {
            sleep(LOOK).await;
            return;
        }
        if self.news.recv().await.is_none() {
            sleep(LOOK).await;
            return;
        }
        let latest = Instant::now() + PATIENCE;
        loop {
            let until = (Instant::now() + QUIET).min(latest);
            match timeout_at(until, self.news.recv()).await {
                Ok(Some(())) if Instant::now() < latest => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// The state of a file: its content, and when it was last written.
///
/// The content alone is not enough: a file that is changed while it is read, and then changed back,
/// would look unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    content: Option<Digest>,
    /// The inode and the time of the last change.
    written: Option<(u64, i64, i64)>,
}

impl FileState {
    /// Returns the state of a file; an unreadable file has a state, too.
    pub fn of(path: &Path) -> Self {
        // The time first: a later change makes the next state different.
        let file = std::fs::metadata(path).ok();
        let written = file.map(|file| (file.ino(), file.ctime(), file.ctime_nsec()));
        let content = digest_of(path);
        Self { content, written }
    }
}

#[cfg(test)]
mod tests {
    use super::FileState;

    #[test]
    fn a_file_that_is_changed_and_changed_back_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "one").unwrap();
        // Kept, so that its inode is not reused.
        std::fs::hard_link(&path, folder.path().join("kept")).unwrap();
        let first = FileState::of(&path);
        assert_eq!(first, FileState::of(&path));
        // Replaced by renaming, as editors do: the inode differs even within one clock tick.
        for text in ["two", "one"] {
            let new = folder.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &path).unwrap();
            assert_ne!(first, FileState::of(&path), "{text}");
        }
    }
}
