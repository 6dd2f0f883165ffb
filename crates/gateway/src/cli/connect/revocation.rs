//! Revokes the key of a removed entry: at once, or at the next start of its gateway; otherwise
//! reports that it is still valid.
//!
//! Entry point: [`revoke`].

use crate::data_folder::DataFolder;

use super::super::format::now_ms;
use super::super::screen::Screen;
use super::Task;
use super::key::Keys;
use super::owner::Elsewhere;

/// The result for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revocation {
    /// There was none, or it stays in use.
    Unneeded,
    /// This many keys were revoked.
    Done(usize),
    /// The next start of the gateway revokes it.
    Later,
    /// It is still valid.
    Left,
}

impl Revocation {
    /// Returns how many keys were revoked, if the gateway could be asked.
    pub(super) fn number(self) -> Option<usize> {
        match self {
            Self::Done(number) => Some(number),
            Self::Unneeded | Self::Later | Self::Left => None,
        }
    }

    /// Returns its name in JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Unneeded | Self::Done(0) => "none",
            Self::Done(_) => "revoked",
            Self::Later => "revoked_at_start",
            Self::Left => "valid",
        }
    }

    /// Reports what happened to the key of an entry.
    pub(super) fn tell(self, elsewhere: Option<&Elsewhere>, screen: &Screen) {
        let (good, doubtful) = (screen.good("✓"), screen.doubtful("!"));
        let (gateway, at) = match elsewhere {
            Some(_) => ("that gateway", " at that gateway"),
            None => ("the gateway", ""),
        };
        screen.line(&match self {
            Self::Unneeded | Self::Done(0) => return,
            Self::Done(_) => format!("{good} its key{at} is revoked"),
            Self::Later => format!(
                "{doubtful} {gateway} is not reachable; its key is revoked at its next start"
            ),
            Self::Left => format!(
                "{doubtful} its key is still valid at {gateway}; revoke it there with `gantry key ls` and `gantry key revoke`"
            ),
        });
    }

    /// Reports what happened to a key whose entry was gone already.
    pub(super) fn tell_without_entry(self, screen: &Screen) {
        match self {
            Self::Later => screen.line(&format!(
                "{} the gateway is not reachable; a key that the file may have had is revoked at its next start",
                screen.doubtful("!")
            )),
            Self::Unneeded | Self::Done(_) | Self::Left => self.tell(None, screen),
        }
    }
}

/// Revokes the keys of a client's file at the gateway its entry pointed to.
pub(super) async fn revoke(
    task: &Task<'_>,
    keys: &Keys<'_>,
    elsewhere: Option<&Elsewhere>,
) -> Revocation {
    let (revoked, data) = match elsewhere {
        Some(other) => match &other.data {
            Some(data) => (keys.revoke_at(data).await, Some(data.clone())),
            None => (None, None),
        },
        None => {
            let data = task.context.data_path().ok();
            let data = data.filter(|_| task.context.url.is_none());
            (keys.revoke().await, data.map(DataFolder::at))
        }
    };
    match (revoked, data.filter(|data| data.path().is_dir())) {
        (Some(number), _) => Revocation::Done(number),
        (None, None) => Revocation::Left,
        (None, Some(data)) => match data.revoke_later(keys.label(), now_ms()) {
            Ok(()) => Revocation::Later,
            Err(error) => {
                tracing::warn!(%error, "a key could not be scheduled for revocation");
                Revocation::Left
            }
        },
    }
}
