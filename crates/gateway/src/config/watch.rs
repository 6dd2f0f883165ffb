//! Watches the folders of the configuration files for changes.
//!
//! Folders are watched, not files, since editors and deployments replace files. Where the system
//! offers no watch, it reports a possible change every second. Entry point: [`Watch::over`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

/// The quiet period, so that a file is not read half-written.
const QUIET: Duration = Duration::from_millis(100);
/// The maximum delay in a busy folder.
const PATIENCE: Duration = Duration::from_millis(400);
/// The poll interval without a system watch.
const LOOK: Duration = Duration::from_secs(1);

/// A watch over some folders.
pub struct Watch {
    /// Absent if the system offers no watch.
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
