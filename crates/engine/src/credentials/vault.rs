//! Where tokens are kept: sealed with XChaCha20-Poly1305 under a key of the data folder, in the
//! store, each bound to its table, project, server and field. Nothing here is ever shown or logged.
//! Entry points: [`Vault::open`] and [`Vault::scope`].

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use gantry_model::hex::hex;
use gantry_model::id::{ProjectName, ServerId, ServerName};
use gantry_store::{SealedRow, Store};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::error::SignInError;
use crate::random::random;

/// The key's file in the data folder.
const FILE: &str = "data.key";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// What a sealed text begins with, and no other is stored with.
const SEALED: &str = "gantry-sealed-1:";

/// All sealed values of a project. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Vault {
    project: ProjectName,
    inner: Arc<Inner>,
}

/// What the vaults of all projects share.
struct Inner {
    store: Store,
    file: PathBuf,
    /// Read or made when it is first needed, so that a gateway without tokens has none.
    key: OnceLock<Key>,
    /// One at a time reads or makes it.
    making: Mutex<()>,
}

struct Key {
    cipher: XChaCha20Poly1305,
    id: String,
    /// What fingerprints are keyed with.
    prints: [u8; 32],
}

impl Vault {
    /// Makes the vault of a data folder; touches nothing yet.
    pub(crate) fn open(folder: &Path, project: ProjectName, store: Store) -> Self {
        Self {
            project,
            inner: Arc::new(Inner {
                store,
                file: folder.join(FILE),
                key: OnceLock::new(),
                making: Mutex::new(()),
            }),
        }
    }

    /// Returns the vault of another project, under the same key.
    pub(crate) fn of(&self, project: &ProjectName) -> Self {
        Self {
            project: project.clone(),
            inner: Arc::clone(&self.inner),
        }
    }

    /// Returns the part of one server.
    pub(crate) fn scope(&self, server: ServerName, id: ServerId) -> VaultScope {
        VaultScope {
            vault: self.clone(),
            server,
            scope: id.to_string(),
        }
    }

    /// Returns the part of the image registries.
    pub(crate) fn image_registries(&self) -> VaultScope {
        VaultScope {
            vault: self.clone(),
            server: ServerName::native(),
            scope: "image_registries".to_owned(),
        }
    }

    fn key(&self) -> Result<&Key, SignInError> {
        if let Some(key) = self.inner.key.get() {
            return Ok(key);
        }
        let making = self.inner.making.lock();
        let _turn = making;
        if let Some(key) = self.inner.key.get() {
            return Ok(key);
        }
        let bytes = key_bytes(&self.inner.file).map_err(|source| SignInError::KeyFile {
            path: self.inner.file.clone(),
            source,
        })?;
        let id = hex(&Sha256::digest(bytes)[..8]);
        let cipher = XChaCha20Poly1305::new(&bytes.into());
        let prints = hmac(&bytes, b"fingerprints of secrets in administrative acts");
        let key = || Key { cipher, id, prints };
        Ok(self.inner.key.get_or_init(key))
    }

    /// Seals a text for a row of the store, bound to what `place` names.
    pub(crate) fn seal(&self, place: &[&str], text: &str) -> Result<String, SignInError> {
        let key = self.key()?;
        let nonce: [u8; NONCE_BYTES] = random();
        let bound = self.bound_to(place);
        let payload = Payload {
            msg: text.as_bytes(),
            aad: &bound,
        };
        // Encryption of what fits memory does not fail.
        let ciphertext = key.cipher.encrypt(&XNonce::from(nonce), payload);
        let ciphertext = ciphertext.unwrap_or_default();
        Ok(format!("{SEALED}{}{}", hex(&nonce), hex(&ciphertext)))
    }

    /// Opens a text that was sealed for this place; returns one that never was as it is, nothing if it
    /// was sealed with another key or for another place.
    pub(crate) fn unseal(&self, place: &[&str], text: &str) -> Option<String> {
        let Some(sealed) = text.strip_prefix(SEALED) else {
            return Some(text.to_owned());
        };
        let bytes = unhex(sealed)?;
        let (nonce, ciphertext) = bytes.split_at_checked(NONCE_BYTES)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
        let bound = self.bound_to(place);
        let payload = Payload {
            msg: ciphertext,
            aad: &bound,
        };
        let key = self.key().ok()?;
        let plain = key.cipher.decrypt(&XNonce::from(nonce), payload).ok()?;
        String::from_utf8(plain).ok()
    }

    fn bound_to(&self, place: &[&str]) -> Vec<u8> {
        let mut bound = vec!["sealed text", self.project.as_str()];
        bound.extend(place);
        bound.join("\0").into_bytes()
    }

    /// Returns what tells a secret from another without telling it.
    pub(crate) fn fingerprint(&self, secret: &str) -> Result<String, SignInError> {
        let print = hmac(&self.key()?.prints, secret.as_bytes());
        Ok(hex(&print[..8]))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    bytes.collect()
}

/// HMAC-SHA256 (RFC 2104) under a key of 32 bytes.
fn hmac(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; 32] {
    let padded = |with: u8| -> [u8; 64] {
        std::array::from_fn(|at| key.get(at).copied().unwrap_or_default() ^ with)
    };
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(message);
    let outer = Sha256::new().chain_update(padded(0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

/// The sealed values of one server.
#[derive(Clone)]
pub(crate) struct VaultScope {
    vault: Vault,
    server: ServerName,
    scope: String,
}

impl VaultScope {
    /// Seals a value and keeps it, in place of the one that was there.
    pub(crate) async fn put(&self, name: &str, value: &impl Serialize) -> Result<(), SignInError> {
        let inner = &self.vault.inner;
        let key = self.vault.key()?;
        let nonce: [u8; NONCE_BYTES] = random();
        let mut plain = serde_json::to_vec(value).expect("what is kept is always JSON");
        let bound = self.bound(name);
        let payload = Payload {
            msg: &plain,
            aad: &bound,
        };
        let ciphertext = key.cipher.encrypt(&XNonce::from(nonce), payload);
        plain.fill(0);
        let row = SealedRow {
            project: self.vault.project.clone(),
            scope: self.scope.clone(),
            name: name.to_owned(),
            key_id: key.id.clone(),
            nonce: nonce.to_vec(),
            ciphertext: ciphertext.map_err(|_| self.sealed())?,
        };
        Ok(inner.store.put_sealed(&row).await?)
    }

    /// Opens a value; an error if it was sealed with another key, for another place, or changed.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, SignInError> {
        let inner = &self.vault.inner;
        let row = inner
            .store
            .sealed(&self.vault.project, &self.scope, name)
            .await?;
        let Some(row) = row else {
            return Ok(None);
        };
        let key = self.vault.key()?;
        let nonce: [u8; NONCE_BYTES] = row.nonce.try_into().map_err(|_| self.sealed())?;
        let bound = self.bound(name);
        let payload = Payload {
            msg: &row.ciphertext,
            aad: &bound,
        };
        let opened = key.cipher.decrypt(&XNonce::from(nonce), payload);
        let mut plain = opened.map_err(|_| self.sealed())?;
        let value = serde_json::from_slice(&plain);
        plain.fill(0);
        value.map(Some).map_err(|_| self.sealed())
    }

    /// Removes a value.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), SignInError> {
        let inner = &self.vault.inner;
        let removing = inner
            .store
            .remove_sealed(&self.vault.project, &self.scope, name);
        removing.await?;
        Ok(())
    }

    /// Returns what a sealed value is bound to: moved to another place, it does not open.
    fn bound(&self, name: &str) -> Vec<u8> {
        let project = self.vault.project.as_str();
        ["kb.mcp_secrets", project, &self.scope, name]
            .join("\0")
            .into_bytes()
    }

    fn sealed(&self) -> SignInError {
        SignInError::Sealed {
            server: self.server.clone(),
        }
    }
}

/// Reads the key, or makes one that only its owner can read. The folder is ours alone, so that
/// nobody else makes one meanwhile; a half-written one never gets the name.
fn key_bytes(file: &Path) -> io::Result<[u8; KEY_BYTES]> {
    match std::fs::File::open(file) {
        Ok(known) => read_key(&known),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key: [u8; KEY_BYTES] = random();
            let fresh = file.with_extension("key.new");
            let mut made = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)?;
            made.write_all(&key)?;
            made.sync_all()?;
            std::fs::rename(&fresh, file)?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

fn read_key(file: &std::fs::File) -> io::Result<[u8; KEY_BYTES]> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(wrong("others than its owner can read it"));
    }
    let mut bytes = Vec::new();
    let longest = KEY_BYTES as u64 + 1;
    file.take(longest).read_to_end(&mut bytes)?;
    let key = bytes.try_into();
    key.map_err(|_| wrong("it does not hold 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4231, test case 1, whose key is padded with zeros.
    #[test]
    fn fingerprints_are_made_as_the_standard_says() {
        let mut key = [0; KEY_BYTES];
        key[..20].fill(0x0b);
        let made = hex(&hmac(&key, b"Hi There")[..8]);
        assert_eq!(made, "b0344c61d8db3853");
    }

    async fn vault(folder: &Path) -> (Vault, Store) {
        let store = crate::folder::store_in(folder).await;
        let vault = Vault::open(folder, ProjectName::local(), store.clone());
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
        // Copied to another server's place, it does not open.
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
        let second = Vault::open(temp.path(), ProjectName::local(), store);
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
        assert_eq!(first.unseal(&place, &sealed).as_deref(), Some("hunter22"));
        assert_eq!(first.unseal(&["a", "OTHER"], &sealed), None);
        assert_eq!(
            first.of(&"p".parse().unwrap()).unseal(&place, &sealed),
            None
        );
        assert_eq!(first.unseal(&place, &sealed[..sealed.len() - 2]), None);
        // What an earlier release stored.
        assert_eq!(first.unseal(&place, "plain").as_deref(), Some("plain"));
        // A text that looks sealed is sealed as any other.
        let twice = first.seal(&place, &sealed).unwrap();
        assert_eq!(first.unseal(&place, &twice), Some(sealed.clone()));
        std::fs::write(temp.path().join(FILE), [7; 32]).unwrap();
        let second = Vault::open(temp.path(), ProjectName::local(), store);
        assert_eq!(second.unseal(&place, &sealed), None);
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
        assert!(matches!(put, Err(SignInError::KeyFile { .. })));
        std::fs::write(&file, [7; 32]).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let put = scope(&vault, 1).put("tokens", &1).await;
        assert!(matches!(put, Err(SignInError::KeyFile { .. })));
    }
}
