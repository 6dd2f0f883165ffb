//! Stores tokens and secrets encrypted with XChaCha20-Poly1305 under the master key. Each value is
//! bound to its table, project, scope, name and version. Nothing here is ever shown or logged.
//!
//! `key` finds the master key and refuses a wrong one, `specs` encrypts the secret fields of
//! registered servers, `rekey` encrypts everything with another key. Entry points: [`Vault::open`],
//! [`Vault::scope`].

pub(crate) mod key;
pub(crate) mod rekey;
mod specs;

use std::path::Path;
use std::sync::Arc;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use gantry_model::hex::{hex, unhex};
use gantry_model::id::{ProjectName, ServerId, ServerName};
use gantry_store::{SealedRow, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use self::key::{Key, KeyRing, MasterKey, VaultError};
use super::error::SignInError;
use crate::random::random;

const NONCE_BYTES: usize = 24;
/// The scope of answers to inputs.
const INPUTS: &str = "inputs";
/// The prefix of a text that an earlier release sealed.
const SEALED_1: &str = "gantry-sealed-1:";
/// The prefix of every sealed text, and of no plain text in the store; the id of the key follows.
const SEALED: &str = "gantry-sealed-2:";

/// All sealed values of a project. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Vault {
    project: ProjectName,
    keys: Arc<KeyRing>,
    store: Store,
}

impl Vault {
    /// Creates the vault of a data folder; reads and writes nothing yet.
    pub(crate) fn open(
        folder: &Path,
        project: ProjectName,
        store: Store,
        given: Option<MasterKey>,
    ) -> Self {
        Self {
            project,
            keys: Arc::new(KeyRing::new(folder, given)),
            store,
        }
    }

    /// Returns the vault of another project, under the same key.
    pub(crate) fn of(&self, project: &ProjectName) -> Self {
        Self {
            project: project.clone(),
            ..self.clone()
        }
    }

    /// Returns the scope of one server.
    pub(crate) fn scope(&self, server: ServerName, id: ServerId) -> VaultScope {
        VaultScope {
            vault: self.clone(),
            server,
            scope: id.to_string(),
        }
    }

    /// Returns the scope of the image registries.
    pub(crate) fn image_registries(&self) -> VaultScope {
        VaultScope {
            vault: self.clone(),
            server: ServerName::native(),
            scope: "image_registries".to_owned(),
        }
    }

    /// Returns the place of answers to the inputs of configuration files.
    pub(crate) fn inputs(&self) -> VaultScope {
        VaultScope {
            vault: self.clone(),
            server: ServerName::native(),
            scope: INPUTS.to_owned(),
        }
    }

    /// Returns whether a row is the answer to an input of this project.
    pub(crate) fn is_input(&self, row: &SealedRow) -> bool {
        row.scope == INPUTS && row.project == self.project
    }

    /// Determines which key the store needs, before any value is sealed or opened.
    pub(crate) async fn prepare(&self) -> Result<(), VaultError> {
        self.keys.prepare(&self.store).await
    }

    /// Records the id of the current key in the store, before the first value is sealed with it.
    pub(crate) async fn take_up(&self) -> Result<(), VaultError> {
        self.keys.take_up(&self.store).await
    }

    fn key(&self) -> Result<&Key, VaultError> {
        self.keys.key()
    }

    /// Seals a text for a row of the store, bound to `place`.
    pub(crate) fn seal(&self, place: &[&str], text: &str) -> Result<String, VaultError> {
        let key = self.key()?;
        let (nonce, ciphertext) = encrypt(&key.cipher, text.as_bytes(), &self.bound_to(place))?;
        let (nonce, ciphertext) = (hex(&nonce), hex(&ciphertext));
        Ok(format!("{SEALED}{}:{nonce}{ciphertext}", key.id))
    }

    /// Opens a text that was sealed for this place. Returns a plain text as it is; an error if it
    /// was sealed with another key or for another place.
    pub(crate) fn unseal(&self, place: &[&str], text: &str) -> Result<String, VaultError> {
        let (needed, sealed) = match (text.strip_prefix(SEALED), text.strip_prefix(SEALED_1)) {
            (Some(sealed), _) => {
                let (id, sealed) = sealed.split_once(':').ok_or(VaultError::Sealed)?;
                (Some(id), sealed)
            }
            (None, Some(sealed)) => (None, sealed),
            (None, None) => return Ok(text.to_owned()),
        };
        let key = self.key()?;
        if let Some(needed) = needed.filter(|needed| *needed != key.id) {
            return Err(key.not(needed));
        }
        let bytes = unhex(sealed).ok_or(VaultError::Sealed)?;
        let plain = decrypt(&key.cipher, &bytes, &self.bound_to(place))?;
        let text = std::str::from_utf8(&plain).map_err(|_| VaultError::Sealed)?;
        Ok(text.to_owned())
    }

    fn bound_to(&self, place: &[&str]) -> Vec<u8> {
        let mut bound = vec!["sealed text", self.project.as_str()];
        bound.extend(place);
        bound.join("\0").into_bytes()
    }

    /// Seals one version of a named value of the project.
    pub(crate) fn seal_named(
        &self,
        name: &str,
        version: u32,
        plain: &[u8],
    ) -> Result<SealedRow, VaultError> {
        let key = self.key()?;
        let mut row = SealedRow {
            project: self.project.clone(),
            scope: String::new(),
            name: name.to_owned(),
            key_id: key.id.clone(),
            nonce: Vec::new(),
            ciphertext: Vec::new(),
            version,
        };
        let (nonce, ciphertext) = encrypt(&key.cipher, plain, &bound_row(&row))?;
        (row.nonce, row.ciphertext) = (nonce.to_vec(), ciphertext);
        Ok(row)
    }

    /// Opens a row of this project; an error if it was sealed with another key, for another place
    /// or version, or changed.
    pub(crate) fn open_row(&self, row: &SealedRow) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let key = self.key()?;
        if row.key_id != key.id {
            return Err(key.not(&row.key_id));
        }
        if row.project != self.project {
            return Err(VaultError::Sealed);
        }
        let bytes = [&*row.nonce, &*row.ciphertext].concat();
        decrypt(&key.cipher, &bytes, &bound_row(row))
    }

    /// Returns a keyed hash of a secret that a server of this name was given, by which its values
    /// can be compared without showing them. The server's name is part of the hash: equal secrets of
    /// two servers differ, so that nobody can guess one by giving guesses to another server.
    pub(crate) fn fingerprint(&self, server: &str, secret: &str) -> Result<String, VaultError> {
        let place = self.bound_to(&["fingerprint", server]);
        Ok(self.key()?.fingerprint(&place, secret))
    }

    /// Returns a keyed hash of one version of a named value.
    pub(crate) fn fingerprint_of(
        &self,
        row: &SealedRow,
        value: &str,
    ) -> Result<String, VaultError> {
        Ok(self.key()?.fingerprint(&bound_row(row), value))
    }
}

fn encrypt(
    cipher: &XChaCha20Poly1305,
    plain: &[u8],
    bound: &[u8],
) -> Result<([u8; NONCE_BYTES], Vec<u8>), VaultError> {
    let nonce: [u8; NONCE_BYTES] = random();
    let payload = Payload {
        msg: plain,
        aad: bound,
    };
    let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
    Ok((nonce, sealed.map_err(|_| VaultError::Sealed)?))
}

/// Decrypts the bytes after the nonce.
fn decrypt(
    cipher: &XChaCha20Poly1305,
    sealed: &[u8],
    bound: &[u8],
) -> Result<Zeroizing<Vec<u8>>, VaultError> {
    let (nonce, ciphertext) = sealed
        .split_at_checked(NONCE_BYTES)
        .ok_or(VaultError::Sealed)?;
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| VaultError::Sealed)?;
    let payload = Payload {
        msg: ciphertext,
        aad: bound,
    };
    let opened = cipher.decrypt(&XNonce::from(nonce), payload);
    opened.map(Zeroizing::new).map_err(|_| VaultError::Sealed)
}

/// Returns the identity that a row is bound to: under another place or version it does not open.
/// Values of a server have no versions.
fn bound_row(row: &SealedRow) -> Vec<u8> {
    let version = row.version.to_string();
    let mut bound = vec![
        "kb.mcp_secrets",
        row.project.as_str(),
        &row.scope,
        &row.name,
    ];
    if row.scope.is_empty() {
        bound.push(&version);
    }
    bound.join("\0").into_bytes()
}

/// The sealed values of one server.
#[derive(Clone)]
pub(crate) struct VaultScope {
    vault: Vault,
    server: ServerName,
    scope: String,
}

impl VaultScope {
    /// Seals a value and stores it, replacing the previous one.
    pub(crate) async fn put(&self, name: &str, value: &impl Serialize) -> Result<(), SignInError> {
        let vault = &self.vault;
        vault.take_up().await?;
        let key = vault.key()?;
        let plain = serde_json::to_vec(value).expect("what is kept is always JSON");
        let plain = Zeroizing::new(plain);
        let mut row = SealedRow {
            project: vault.project.clone(),
            scope: self.scope.clone(),
            name: name.to_owned(),
            key_id: key.id.clone(),
            nonce: Vec::new(),
            ciphertext: Vec::new(),
            version: 1,
        };
        let (nonce, ciphertext) = encrypt(&key.cipher, &plain, &bound_row(&row))?;
        (row.nonce, row.ciphertext) = (nonce.to_vec(), ciphertext);
        Ok(vault.store.put_sealed(&row).await?)
    }

    /// Opens a value; an error if it was sealed with another key, for another place, or changed.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, SignInError> {
        let vault = &self.vault;
        let row = vault
            .store
            .sealed(&vault.project, &self.scope, name)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let plain = match vault.open_row(&row) {
            Err(unusable @ VaultError::File { .. }) => return Err(unusable.into()),
            opened => opened.map_err(|_| self.sealed())?,
        };
        let value = serde_json::from_slice(&plain);
        value.map(Some).map_err(|_| self.sealed())
    }

    /// Removes a value.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), SignInError> {
        let vault = &self.vault;
        let removing = vault.store.remove_sealed(&vault.project, &self.scope, name);
        removing.await?;
        Ok(())
    }

    fn sealed(&self) -> SignInError {
        SignInError::Sealed {
            server: self.server.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::key::FILE;
    use super::*;

    async fn vault(folder: &Path) -> (Vault, Store) {
        let store = crate::folder::store_in(folder).await;
        let vault = Vault::open(folder, ProjectName::local(), store.clone(), None);
        (vault, store)
    }

    fn scope(vault: &Vault, number: u128) -> VaultScope {
        vault.scope("a".parse().unwrap(), ServerId::from_random(number))
    }

    #[tokio::test]
    async fn a_value_opens_only_where_it_was_put_and_with_its_key() {
        let temp = tempfile::tempdir().unwrap();
        let (first, store) = vault(temp.path()).await;
        assert!(!temp.path().join(FILE).exists(), "made when it is needed");
        let one = scope(&first, 1);
        one.put("tokens", &"hunter22").await.unwrap();
        let mode = std::fs::metadata(temp.path().join(FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read: Option<String> = one.get("tokens").await.unwrap();
        assert_eq!(read.as_deref(), Some("hunter22"));
        // Copied to another server's scope, it does not open.
        let project = ProjectName::local();
        let mut row = store.sealed(&project, &one.scope, "tokens").await.unwrap();
        let row = row.as_mut().unwrap();
        assert!(!row.ciphertext.windows(8).any(|part| part == b"hunter22"));
        let other = scope(&first, 2);
        row.scope.clone_from(&other.scope);
        store.put_sealed(row).await.unwrap();
        let moved = other.get::<String>("tokens").await;
        assert!(matches!(moved, Err(SignInError::Sealed { .. })));
        // Nor under another name, nor with another key.
        row.scope.clone_from(&one.scope);
        row.name = "client".to_owned();
        store.put_sealed(row).await.unwrap();
        assert!(one.get::<String>("client").await.is_err());
        std::fs::write(temp.path().join(FILE), [7; 32]).unwrap();
        let second = Vault::open(temp.path(), ProjectName::local(), store, None);
        let stranger = scope(&second, 1).get::<String>("tokens").await;
        assert!(matches!(stranger, Err(SignInError::Sealed { .. })));
        one.remove("tokens").await.unwrap();
        assert_eq!(one.get::<String>("tokens").await.unwrap(), None);
    }

    // row 1.3, fault K6
    #[tokio::test]
    async fn a_sealed_text_opens_only_at_its_place_and_with_its_key() {
        let temp = tempfile::tempdir().unwrap();
        let (first, store) = vault(temp.path()).await;
        let place = ["a", "TOKEN"];
        let sealed = first.seal(&place, "hunter22").unwrap();
        assert!(!sealed.contains("hunter22"));
        assert_ne!(sealed, first.seal(&place, "hunter22").unwrap());
        assert_eq!(first.unseal(&place, &sealed).unwrap(), "hunter22");
        let refused = |vault: &Vault, place: &[&str], sealed: &str| {
            let refused = vault.unseal(place, sealed).unwrap_err();
            assert!(matches!(refused, VaultError::Sealed), "{refused}");
        };
        refused(&first, &["a", "OTHER"], &sealed);
        refused(&first.of(&"p".parse().unwrap()), &place, &sealed);
        refused(&first, &place, &sealed[..sealed.len() - 2]);
        // A plain text from an earlier release.
        assert_eq!(first.unseal(&place, "plain").unwrap(), "plain");
        // A text that looks sealed is sealed like any other.
        let twice = first.seal(&place, &sealed).unwrap();
        assert_eq!(first.unseal(&place, &twice).unwrap(), sealed);
        std::fs::write(temp.path().join(FILE), [7; 32]).unwrap();
        let second = Vault::open(temp.path(), ProjectName::local(), store, None);
        let wrong = second.unseal(&place, &sealed).unwrap_err();
        assert!(matches!(wrong, VaultError::Wrong { .. }), "{wrong}");
        // The sealed text names the key it needs.
        let id = sealed[SEALED.len()..].split(':').next().unwrap();
        assert!(wrong.to_string().contains(id), "{wrong}");
    }

    #[tokio::test]
    async fn a_key_that_others_can_read_or_that_is_cut_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join(FILE);
        let (vault, _store) = vault(temp.path()).await;
        std::fs::write(&file, [7; 31]).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let put = scope(&vault, 1).put("tokens", &1).await;
        assert!(matches!(
            put,
            Err(SignInError::Vault(VaultError::File { .. }))
        ));
        std::fs::write(&file, [7; 32]).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let put = scope(&vault, 1).put("tokens", &1).await;
        assert!(matches!(
            put,
            Err(SignInError::Vault(VaultError::File { .. }))
        ));
    }
}
