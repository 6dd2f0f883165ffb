//! The control of a hosted instance: its process tree, and everything with the same lifetime.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_sandbox::Tree;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::disk::Place;
use crate::driver::{Control, ExitStatus};

/// A hosted instance. Dropping it kills it and stops its forwarders.
pub(super) struct HostedControl {
    tree: Tree,
    /// Receives the reason why the server has to stop.
    over: watch::Receiver<Option<String>>,
    stopped: Option<String>,
    tasks: JoinSet<()>,
    /// Dropped after the tree: marks the place as in use.
    _used: Arc<()>,
    _place: Arc<Place>,
    _held: Box<dyn Send>,
}

impl HostedControl {
    pub(super) fn new(
        tree: Tree,
        place: Arc<Place>,
        tasks: JoinSet<()>,
        held: Box<dyn Send>,
    ) -> Self {
        Self {
            tree,
            over: place.over(),
            stopped: None,
            tasks,
            _used: place.hold(),
            _place: place,
            _held: held,
        }
    }
}

impl Control for HostedControl {
    fn exited(&mut self) -> BoxFuture<'_, ExitStatus> {
        Box::pin(async {
            let exit = loop {
                if self.stopped.is_some() {
                    break self.tree.exited().await;
                }
                tokio::select! {
                    biased; // An end of its own first.
                    exit = self.tree.exited() => break exit,
                    Ok(why) = self.over.wait_for(Option::is_some) => {
                        self.stopped.clone_from(&why);
                    }
                }
                self.tree.kill();
            };
            self.tasks.abort_all();
            ExitStatus {
                stopped: self.stopped.clone(),
                ..exit
            }
        })
    }

    fn terminate(&mut self) {
        Control::terminate(&mut self.tree);
    }

    fn kill(&mut self) {
        Control::kill(&mut self.tree);
    }
}
