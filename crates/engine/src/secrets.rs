//! Named secrets of a project: set by administrators, passed to servers that refer to them as
//! `${NAME}` in their environment or headers, and never shown again (fault K8).
//!
//! A secret is bound to servers by name, and for a registered server to what it runs or where it is
//! ([`ServerSpec::destination`]): permission to edit a server does not allow reading a secret by
//! redirecting it. The bindings are encrypted with the value. Entry points: [`Secrets::set`],
//! [`Secrets::bind`] and, for runners, [`Secrets::resolve`].

mod error;
mod resolve;

use std::sync::Arc;

use gantry_model::id::{ProjectName, ServerName};
use gantry_model::secret::{SecretName, SecretText, is_redactable};
use gantry_model::spec::{ServerSpec, Source};
use gantry_store::{SecretRow, Store};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

pub use self::error::SecretError;
pub(crate) use self::resolve::ResolveError;
use crate::credentials::Vault;

/// The longest value: that of an environment variable, in bytes.
const LONGEST: usize = 64 << 10;
/// The maximum number of servers that one secret is bound to.
const MOST_BINDINGS: usize = 256;
/// How often a change is retried after a concurrent one.
const TRIES: usize = 4;

/// A server that may receive a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretBinding {
    /// The server's name.
    pub server: ServerName,
    /// The only origin that the secret is sent to, in headers only; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The server's destination when the secret was bound; for a server of a file, which is
    /// approved separately, only the origin. `None` if the server did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
    /// Whether the server was another one since, by the hand of somebody who may not bind: that one
    /// may have prepared the files that it works with, even if the server is now as it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    moved: bool,
}

/// A server to bind a secret to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindTo {
    /// The server's name.
    pub server: ServerName,
    /// The only URL whose origin the secret is sent to.
    pub origin: Option<String>,
}

/// Who changes or removes a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerEditor {
    /// They may bind secrets without knowing them.
    MayBind,
    /// They may edit servers and read no secret.
    MayNotBind,
}

/// The encrypted content of a secret.
#[derive(Serialize, Deserialize)]
struct Kept {
    value: String,
    #[serde(default)]
    bindings: Vec<SecretBinding>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

/// The public view of a secret, without its value.
#[derive(Debug, Clone)]
pub struct SecretView {
    /// Its name.
    pub name: String,
    /// How often it was set.
    pub version: u32,
    /// A keyed hash of the value, by which values can be compared.
    pub fingerprint: String,
    /// The bound servers, and whether each is unchanged since the secret was bound.
    pub bindings: Vec<(SecretBinding, bool)>,
    /// Whether it is redacted from the output of servers: short and regular values are not.
    pub is_redacted: bool,
    /// Why it cannot be decrypted, if it cannot.
    pub problem: Option<String>,
    /// When it was first set.
    pub created_ms: u64,
    /// When it was last set or bound.
    pub updated_ms: u64,
    /// When a server last received it, and which.
    pub used: Option<(u64, String)>,
}

/// Finds the spec of a server by its name.
type SpecOf<'a> = &'a (dyn Fn(&ServerName) -> Option<Arc<ServerSpec>> + Sync);

/// The named secrets of one project. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Secrets {
    project: ProjectName,
    vault: Vault,
    store: Store,
}

impl Secrets {
    pub(crate) fn new(project: ProjectName, vault: Vault, store: Store) -> Self {
        Self {
            project,
            vault,
            store,
        }
    }

    /// Returns all secrets, by name.
    pub(crate) async fn list(&self, spec_of: SpecOf<'_>) -> Result<Vec<SecretView>, SecretError> {
        let rows = self.store.secrets(&self.project).await?;
        Ok(rows.iter().map(|row| self.view(row, spec_of)).collect())
    }

    /// Returns one secret.
    pub(crate) async fn one(
        &self,
        name: &SecretName,
        spec_of: SpecOf<'_>,
    ) -> Result<SecretView, SecretError> {
        let row = self.row(name).await?;
        let row = row.ok_or_else(|| SecretError::Unknown { name: name.clone() })?;
        Ok(self.view(&row, spec_of))
    }

    fn view(&self, row: &SecretRow, spec_of: SpecOf<'_>) -> SecretView {
        let opened = self.open(row);
        let kept = opened.as_ref().ok();
        let bindings = kept.map_or(&[][..], |kept| &kept.bindings);
        let bindings = bindings.iter().map(|binding| {
            let holds = spec_of(&binding.server).is_some_and(|spec| binding.holds(&spec));
            (binding.clone(), holds)
        });
        SecretView {
            name: row.sealed.name.clone(),
            version: row.sealed.version,
            fingerprint: row.fingerprint.clone(),
            bindings: bindings.collect(),
            is_redacted: kept.is_some_and(|kept| is_redactable(&kept.value)),
            problem: opened.as_ref().err().map(ToString::to_string),
            created_ms: row.created_ms,
            updated_ms: row.updated_ms,
            used: row.used_ms.zip(row.used_by.clone()),
        }
    }

    async fn row(&self, name: &SecretName) -> Result<Option<SecretRow>, SecretError> {
        let rows = self.store.secrets(&self.project).await?;
        // Names are compared byte for byte, whatever the database's collation. fault K5
        Ok(rows
            .into_iter()
            .find(|row| row.sealed.name == name.as_str()))
    }

    fn open(&self, row: &SecretRow) -> Result<Kept, SecretError> {
        let plain = self.vault.open_row(&row.sealed)?;
        let kept = serde_json::from_slice(&plain);
        kept.map_err(|_| SecretError::Vault(crate::credentials::VaultError::Sealed))
    }

    /// Sets a value, and binds the secret to the current state of these servers: knowing the value
    /// is enough. If none are given its bindings stay as they are: a server that was changed does
    /// not receive the new value either.
    pub(crate) async fn set(
        &self,
        name: &SecretName,
        value: &SecretText,
        to: Option<&[BindTo]>,
        spec_of: SpecOf<'_>,
    ) -> Result<(), SecretError> {
        check(value)?;
        self.vault.take_up().await?;
        self.change(name, |known| {
            let before = known.map_or(&[][..], |(kept, _)| &kept.bindings);
            let bindings = match to {
                Some(to) => bound(to, spec_of),
                None => Ok(before.to_vec()),
            }?;
            let version = known.map_or(1, |(_, version)| version.saturating_add(1));
            let value = value.expose().to_owned();
            Ok((Kept { value, bindings }, version))
        })
        .await
    }

    /// Binds a secret to the current state of a server, or removes the binding.
    pub(crate) async fn bind(
        &self,
        name: &SecretName,
        server: &ServerName,
        to: Option<&BindTo>,
        spec_of: SpecOf<'_>,
    ) -> Result<(), SecretError> {
        self.change(name, |known| {
            let unknown = || SecretError::Unknown { name: name.clone() };
            let (kept, version) = known.ok_or_else(unknown)?;
            let others = kept.bindings.iter();
            let mut bindings: Vec<SecretBinding> = others
                .filter(|binding| binding.server != *server)
                .cloned()
                .collect();
            bindings.extend(bound(to.map_or(&[], std::slice::from_ref), spec_of)?);
            let value = kept.value.clone();
            Ok((Kept { value, bindings }, version))
        })
        .await
    }

    /// Binds secrets that were bound to this name before the server existed.
    pub(crate) async fn bind_waiting(&self, spec: &ServerSpec) -> Result<(), SecretError> {
        for (_, template) in spec.templates() {
            for name in template.names() {
                let Some(row) = self.row(name).await? else {
                    continue;
                };
                let kept = self.open(&row)?;
                let waits = kept
                    .bindings
                    .iter()
                    .find(|binding| binding.server == spec.name && binding.destination.is_none());
                if let Some(binding) = waits {
                    let to = BindTo {
                        server: spec.name.clone(),
                        origin: binding.origin.clone(),
                    };
                    let spec = Arc::new(spec.clone());
                    let spec_of = move |_: &ServerName| Some(Arc::clone(&spec));
                    self.bind(name, &to.server, Some(&to), &spec_of).await?;
                }
            }
        }
        Ok(())
    }

    /// Follows a change of a server, or its removal (`None`): its secrets are withheld until they
    /// are bound again if it becomes another one by somebody who may not bind them, and released if
    /// it becomes again what they are bound to by somebody who may.
    pub(crate) async fn follow(
        &self,
        server: &ServerName,
        becomes: Option<&ServerSpec>,
        by: ServerEditor,
    ) -> Result<(), SecretError> {
        let becomes = becomes.and_then(destination);
        let follows = |binding: &SecretBinding| {
            let is_same = binding.destination.is_some() && binding.destination == becomes;
            let moved = match by {
                ServerEditor::MayBind => binding.moved && !is_same,
                ServerEditor::MayNotBind => binding.moved || !is_same,
            };
            let is_meant = binding.server == *server && binding.destination.is_some();
            (is_meant && moved != binding.moved).then(|| SecretBinding {
                moved,
                ..binding.clone()
            })
        };
        for row in self.store.secrets(&self.project).await? {
            // What cannot be opened is given to nobody.
            let Ok(kept) = self.open(&row) else { continue };
            if !kept
                .bindings
                .iter()
                .any(|binding| follows(binding).is_some())
            {
                continue;
            }
            let name: SecretName = row.sealed.name.parse()?;
            self.change(&name, |known| {
                let unknown = || SecretError::Unknown { name: name.clone() };
                let (kept, version) = known.ok_or_else(unknown)?;
                let bindings = kept.bindings.iter();
                let bindings =
                    bindings.map(|known| follows(known).unwrap_or_else(|| known.clone()));
                let (value, bindings) = (kept.value.clone(), bindings.collect());
                Ok((Kept { value, bindings }, version))
            })
            .await?;
        }
        Ok(())
    }

    /// Removes a secret; false if there was none.
    pub(crate) async fn remove(&self, name: &SecretName) -> Result<bool, SecretError> {
        let removed = self
            .store
            .remove_sealed(&self.project, "", name.as_str())
            .await?;
        Ok(removed)
    }

    /// Writes a changed secret; retries after a concurrent change.
    async fn change(
        &self,
        name: &SecretName,
        change: impl Fn(Option<(&Kept, u32)>) -> Result<(Kept, u32), SecretError>,
    ) -> Result<(), SecretError> {
        for _ in 0..TRIES {
            let known = self.row(name).await?;
            let version = known.as_ref().map_or(0, |row| row.sealed.version);
            // A value that cannot be decrypted is replaced completely.
            let kept = known.as_ref().and_then(|row| self.open(row).ok());
            let (kept, next) = change(kept.as_ref().map(|kept| (kept, version)))?;
            let next = next.max(version.max(1));
            let plain = serde_json::to_vec(&kept).expect("what is kept is always JSON");
            let plain = Zeroizing::new(plain);
            let sealed = self.vault.seal_named(name.as_str(), next, &plain)?;
            let row = SecretRow {
                fingerprint: self.vault.fingerprint_of(&sealed, &kept.value)?,
                sealed,
                created_ms: 0,
                updated_ms: 0,
                used_ms: None,
                used_by: None,
            };
            if self.store.put_secret(&row, version).await? {
                return Ok(());
            }
        }
        Err(SecretError::Changed { name: name.clone() })
    }
}

impl SecretBinding {
    /// Returns whether a server is unchanged since the secret was bound to it.
    fn holds(&self, spec: &ServerSpec) -> bool {
        let now = destination(spec);
        let is_here = match spec.source {
            Source::Api => self.destination.is_some() && self.destination == now,
            Source::File | Source::Builtin => now.is_none() || self.destination == now,
        };
        let is_there = self.origin.is_none() || self.origin == spec.origin();
        !self.moved && self.server == spec.name && is_here && is_there
    }
}

/// Returns the destination that a secret is bound to: everything that determines where it goes; for
/// a server of a file, whose changes are approved separately, only the origin.
fn destination(spec: &ServerSpec) -> Option<String> {
    match spec.source {
        Source::Api => Some(spec.destination()),
        Source::File | Source::Builtin => spec.origin(),
    }
}

/// Returns bindings to the current state of servers.
fn bound(to: &[BindTo], spec_of: SpecOf<'_>) -> Result<Vec<SecretBinding>, SecretError> {
    if to.len() > MOST_BINDINGS {
        return Err(SecretError::Bindings {
            most: MOST_BINDINGS,
        });
    }
    let bound = to.iter().map(|to| {
        let spec = spec_of(&to.server);
        let origin = match to.origin.as_deref() {
            Some(url) => Some(gantry_model::spec::origin(url).ok_or_else(|| {
                SecretError::Origin {
                    url: gantry_model::secret::userinfo(url)
                        .map_or(url, |_| "(with credentials)")
                        .to_owned(),
                }
            })?),
            None => None,
        };
        Ok(SecretBinding {
            server: to.server.clone(),
            origin,
            destination: spec.as_deref().and_then(destination),
            moved: false,
        })
    });
    bound.collect()
}

/// Refuses a value that cannot be passed to a server.
fn check(value: &SecretText) -> Result<(), SecretError> {
    let text = value.expose();
    let why = if text.is_empty() {
        "it is empty"
    } else if text.contains('\0') {
        "it has a NUL in it"
    } else if text.len() > LONGEST {
        "it is longer than 64 KiB"
    } else {
        return Ok(());
    };
    Err(SecretError::Value { why })
}
