//! Who may change the place of a server: one at a time for each server, so that a file system that is
//! checked or enlarged for minutes keeps no other server waiting.

use std::collections::HashSet;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Owner;

/// The servers whose places are being changed.
#[derive(Default)]
pub(super) struct Turns {
    taken: Mutex<HashSet<Owner>>,
    given_back: Condvar,
}

/// The right to change the place of one server, until dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    owner: Owner,
}

impl Turns {
    /// Waits until nobody else changes the place of this server.
    pub(super) fn take(&self, owner: &Owner) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while !taken.insert(owner.clone()) {
            self.given_back.wait(&mut taken);
        }
        Turn {
            turns: self,
            owner: owner.clone(),
        }
    }

    /// Waits until no place is being changed; none is while the result is held.
    pub(super) fn stop(&self) -> MutexGuard<'_, impl Sized> {
        let mut taken = self.taken.lock();
        while !taken.is_empty() {
            self.given_back.wait(&mut taken);
        }
        taken
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.taken.lock().remove(&self.owner);
        self.turns.given_back.notify_all();
    }
}
