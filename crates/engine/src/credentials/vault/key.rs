//! The master key: 32 bytes from a file, a variable or a command, or from `data.key` in the data
//! folder, which is created when first needed.
//!
//! The store remembers the id of the key that its values are sealed with. With another key, or
//! none, nothing is opened or sealed (fault K6); no second key is ever created beside sealed
//! values. Entry points: [`MasterKey`] and [`KeyRing::key`].

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::KeyInit;
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::hex::{hex, unhex};
use gantry_store::{Store, StoreError};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::random::random;

/// The key file in the data folder.
pub(crate) const FILE: &str = "data.key";
/// The new key during a change of keys; replaces `data.key` once everything is sealed with it.
pub(crate) const NEXT_FILE: &str = "data.key.next";
const KEY_BYTES: usize = 32;

/// Why the vault cannot seal or open values.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The key file cannot be used.
    #[error("the key file `{path}` cannot be used")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Values are sealed, but there is no key.
    #[error("the master key is missing: stored secrets need the key with the id {needed}")]
    Missing {
        /// The id of that key.
        needed: String,
    },
    /// Values are sealed with another key.
    #[error("the master key is the wrong one: its id is {found}, stored secrets need {needed}")]
    Wrong {
        /// The id of the key they need.
        needed: String,
        /// The id of the current key.
        found: String,
    },
    /// A value was changed or moved, so it cannot be opened.
    #[error("a stored secret cannot be decrypted: it was changed or moved")]
    Sealed,
    /// The store failed.
    #[error("stored secrets cannot be read or kept")]
    Store(#[from] StoreError),
}

impl Diagnose for VaultError {
    fn code(&self) -> &'static str {
        match self {
            Self::File { .. } => "sign_in.key_file",
            Self::Missing { .. } => "secret.key_missing",
            Self::Wrong { .. } => "secret.key_wrong",
            Self::Sealed => "secret.sealed",
            Self::Store(error) => error.code(),
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Store(error) => error.fault(),
            Self::File { .. } | Self::Missing { .. } | Self::Wrong { .. } | Self::Sealed => {
                Fault::Gateway
            }
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::File { path, .. } => Some(format!(
                "it must be readable by its owner only, and hold 32 bytes: `{}`",
                path.display()
            )),
            Self::Missing { .. } | Self::Wrong { .. } => Some(
                "put the old key back (`data.key` of the data folder, or what `[gateway] master_key` \
                 names); without it the secrets are lost and have to be set again: `gantry secret rekey --lost`"
                    .into(),
            ),
            Self::Sealed => Some("set the secret again".into()),
            Self::Store(error) => error.hint(),
        }
    }
}

/// A master key, wiped when dropped.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; KEY_BYTES]>);

impl MasterKey {
    /// Reads a key from 32 raw bytes, hexadecimal digits or base64.
    pub fn read(content: &[u8]) -> Option<Self> {
        if let Ok(bytes) = content.try_into() {
            return Some(Self(Zeroizing::new(bytes)));
        }
        let text = std::str::from_utf8(content).ok()?.trim();
        let letters = text.trim_end_matches('=');
        let bytes = unhex(text)
            .filter(|bytes| bytes.len() == KEY_BYTES)
            .or_else(|| STANDARD_NO_PAD.decode(letters).ok())
            .or_else(|| URL_SAFE_NO_PAD.decode(letters).ok());
        let bytes = Zeroizing::new(bytes?);
        Some(Self(Zeroizing::new(bytes.as_slice().try_into().ok()?)))
    }

    /// Generates a new key.
    pub fn random() -> Self {
        Self(Zeroizing::new(random()))
    }

    /// Returns the key in hexadecimal digits, for writing the key file.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(&*self.0))
    }

    /// Returns the id, which is not secret.
    pub fn id(&self) -> String {
        hex(&Sha256::digest(*self.0)[..8])
    }

    /// Reads the key of a data folder, if there is one.
    pub(crate) fn of_folder(folder: &Path) -> Result<Option<Self>, VaultError> {
        let path = folder.join(FILE);
        read_file(&path).map_err(|source| VaultError::File { path, source })
    }

    /// Writes a key to a file that only its owner can read. The write is atomic.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("key.new");
        let mut made = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        made.write_all(&*self.0)?;
        made.sync_all()?;
        std::fs::rename(&fresh, path)
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id())
    }
}

/// A key in use.
pub(super) struct Key {
    pub(super) cipher: XChaCha20Poly1305,
    pub(super) id: String,
    /// The key of fingerprints.
    prints: Zeroizing<[u8; 32]>,
}

impl Key {
    pub(super) fn new(key: &MasterKey) -> Self {
        let prints = hmac(&key.0, b"fingerprints of secrets in administrative acts");
        Self {
            cipher: XChaCha20Poly1305::new(&(*key.0).into()),
            id: key.id(),
            prints: Zeroizing::new(prints),
        }
    }

    /// Returns a keyed hash of a secret at a place; the same secret has another one elsewhere.
    pub(super) fn fingerprint(&self, place: &[u8], secret: &str) -> String {
        let prints = Zeroizing::new(hmac(&self.prints, place));
        hex(&hmac(&prints, secret.as_bytes())[..8])
    }

    /// Returns the error for a value that needs another key.
    pub(super) fn not(&self, needed: &str) -> VaultError {
        VaultError::Wrong {
            needed: needed.to_owned(),
            found: self.id.clone(),
        }
    }
}

/// The key of a data folder, loaded when first needed; a gateway without secrets has none.
pub(super) struct KeyRing {
    folder: PathBuf,
    given: Option<MasterKey>,
    /// The id of the key that the store needs, if it has sealed values.
    needed: Mutex<Option<String>>,
    key: OnceLock<Key>,
    /// Whether the store has recorded the key's id.
    /// One at a time reads or makes it.
    making: Mutex<()>,
}

impl KeyRing {
    pub(super) fn new(folder: &Path, given: Option<MasterKey>) -> Self {
        Self {
            folder: folder.to_owned(),
            given,
            needed: Mutex::default(),
            key: OnceLock::new(),
            making: Mutex::new(()),
        }
    }

    /// Reads which key the store needs, and completes an interrupted change of keys.
    pub(super) async fn prepare(&self, store: &Store) -> Result<(), VaultError> {
        let needed = match store.master_key().await? {
            Some(id) => Some(id),
            // An earlier release recorded the key with each value only.
            None => {
                let rows = store.all_sealed().await?;
                rows.into_iter().next().map(|row| row.key_id)
            }
        };
        let next = self.folder.join(NEXT_FILE);
        let file_error = |source| VaultError::File {
            path: next.clone(),
            source,
        };
        if let Some(key) = read_file(&next).map_err(file_error)? {
            // The store changes in one transaction, so it needs either the old or the new key.
            if needed.as_deref() == Some(key.id().as_str()) {
                std::fs::rename(&next, self.folder.join(FILE)).map_err(file_error)?;
            } else {
                std::fs::remove_file(&next).map_err(file_error)?;
            }
        }
        if needed.is_none() && store.has_sealed().await? {
            // Only environments were sealed, without a key id; opening them shows which key it was.
            *self.needed.lock() = Some(UNKNOWN.to_owned());
            return Ok(());
        }
        *self.needed.lock() = needed;
        Ok(())
    }

    /// Records the key in the store before any value is sealed with it.
    pub(super) async fn take_up(&self, store: &Store) -> Result<(), VaultError> {
        let key = self.key()?;
        // Asked each time: the key may have been changed beside a gateway that shares the store.
        let mut known = store.master_key().await?;
        if known.is_none() {
            store.put_master_key(&key.id).await?;
            // Another gateway may have been faster.
            known = store.master_key().await?;
        }
        match known {
            Some(id) if id != key.id => Err(key.not(&id)),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn key(&self) -> Result<&Key, VaultError> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let _turn = self.making.lock();
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let needed = self.needed.lock().clone();
        let key = match &self.given {
            Some(given) => given.clone(),
            None => self.of_folder(needed.as_deref())?,
        };
        let key = Key::new(&key);
        match needed {
            Some(needed) if needed != key.id && needed != UNKNOWN => Err(key.not(&needed)),
            _ => Ok(self.key.get_or_init(|| key)),
        }
    }

    /// Reads the key of the folder, or creates one if no value was sealed yet. The folder is
    /// locked, so no other process creates one at the same time.
    fn of_folder(&self, needed: Option<&str>) -> Result<MasterKey, VaultError> {
        if let Some(key) = MasterKey::of_folder(&self.folder)? {
            return Ok(key);
        }
        if let Some(needed) = needed {
            return Err(VaultError::Missing {
                needed: needed.to_owned(),
            });
        }
        let (key, path) = (MasterKey::random(), self.folder.join(FILE));
        match key.write(&path) {
            Ok(()) => Ok(key),
            Err(source) => Err(VaultError::File { path, source }),
        }
    }
}

/// Stands for a key id that was not recorded.
const UNKNOWN: &str = "(not noted)";

/// Reads a key file, if it exists.
fn read_file(path: &Path) -> io::Result<Option<MasterKey>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(wrong("others than its owner can read it"));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_BYTES + 1));
    file.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let key = bytes.as_slice().try_into();
    let key: [u8; KEY_BYTES] = key.map_err(|_| wrong("it does not hold 32 bytes"))?;
    Ok(Some(MasterKey(Zeroizing::new(key))))
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

    #[test]
    fn a_key_is_read_from_bytes_and_from_both_texts() {
        let key = MasterKey::random();
        let texts = [
            key.to_hex().to_string(),
            format!("{}\n", STANDARD_NO_PAD.encode(*key.0)),
            base64::engine::general_purpose::URL_SAFE.encode(*key.0),
        ];
        for text in texts {
            assert_eq!(MasterKey::read(text.as_bytes()).unwrap().id(), key.id());
        }
        assert_eq!(MasterKey::read(&*key.0).unwrap().id(), key.id());
        for wrong in ["", "short", "00112233", &"z".repeat(64)] {
            assert!(MasterKey::read(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(!format!("{key:?}").contains(&key.to_hex()[..8]));
    }

    // fault K6
    #[tokio::test]
    async fn a_lost_key_is_named_and_no_other_is_made_in_its_place() {
        let temp = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(temp.path()).await;
        let first = KeyRing::new(temp.path(), None);
        first.prepare(&store).await.unwrap();
        first.take_up(&store).await.unwrap();
        let id = first.key().unwrap().id.clone();
        std::fs::remove_file(temp.path().join(FILE)).unwrap();
        let lost = KeyRing::new(temp.path(), None);
        lost.prepare(&store).await.unwrap();
        let refused = lost.take_up(&store).await.unwrap_err();
        assert!(
            matches!(&refused, VaultError::Missing { needed } if *needed == id),
            "{refused}"
        );
        assert!(!temp.path().join(FILE).exists(), "no key is made");
        let wrong = KeyRing::new(temp.path(), Some(MasterKey::random()));
        wrong.prepare(&store).await.unwrap();
        let refused = wrong.key().err().unwrap().to_string();
        assert!(refused.contains(&id), "{refused}");
        store.close().await.unwrap();
    }
}
