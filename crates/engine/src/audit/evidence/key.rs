//! The key that signs blocks: Ed25519, in `audit.key` of the data folder, created when first
//! needed. Its public half is available for verification.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use gantry_model::hex::{hex, unhex};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The key's file in the data folder.
pub(crate) const KEY_FILE: &str = "audit.key";
/// The maximum size of the file.
const LONGEST: u64 = 1024;

/// A signing key; never shown, and its file content is wiped from memory.
pub(in crate::audit) struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

/// A key that verifies signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    id: String,
    bytes: Vec<u8>,
}

impl PublicKey {
    /// Creates a key from its 32 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let bytes = (bytes.len() == 32).then(|| bytes.to_vec())?;
        let id = hex(&Sha256::digest(&bytes)[..8]);
        Some(Self { id, bytes })
    }

    /// Parses a key from 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        Self::new(&unhex(text.trim())?)
    }

    /// Returns its id: a prefix of its SHA-256.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns its 32 bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns it as hexadecimal digits.
    pub fn to_hex(&self) -> String {
        hex(&self.bytes)
    }

    /// Returns whether a signature is valid for this key.
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.bytes);
        key.verify(message, signature).is_ok()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public.id).finish()
    }
}

impl SigningKey {
    /// Reads the key, or creates one if there is none.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match read(path)? {
            Some(pkcs8) => Self::of(&pkcs8),
            None => {
                let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
                let made = made.map_err(|_| io::Error::other("there is no randomness"))?;
                let pkcs8 = Zeroizing::new(made.as_ref().to_vec());
                write(path, &pkcs8)?;
                Self::of(&pkcs8)
            }
        }
    }

    fn of(pkcs8: &[u8]) -> io::Result<Self> {
        let odd = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8)
            .map_err(|error| odd(format!("it is not an Ed25519 key: {error}")))?;
        let public = PublicKey::new(pair.public_key().as_ref())
            .ok_or_else(|| odd("its public half has not 32 bytes".to_owned()))?;
        Ok(Self { pair, public })
    }

    /// Returns the public half.
    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message.
    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// Returns the public half of the key in a data folder, if there is one.
pub fn public_in(data_folder: &Path) -> io::Result<Option<PublicKey>> {
    let found = read(&data_folder.join(KEY_FILE))?;
    found
        .map(|pkcs8| SigningKey::of(&pkcs8).map(|key| key.public))
        .transpose()
}

fn read(path: &Path) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path);
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if file.metadata()?.mode() & 0o077 != 0 {
        let why = "others than its owner may read it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut content = Zeroizing::new(Vec::with_capacity(LONGEST as usize));
    file.take(LONGEST).read_to_end(&mut content)?;
    Ok(Some(content))
}

fn write(path: &Path, pkcs8: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("key.new");
    let made = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished);
    let mut file = made?;
    file.write_all(pkcs8)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(KEY_FILE);
        let key = SigningKey::open(&path).unwrap();
        let again = SigningKey::open(&path).unwrap();
        assert_eq!(key.public(), again.public());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            public_in(folder.path()).unwrap().as_ref(),
            Some(key.public())
        );
        let signature = key.sign(b"message");
        assert!(key.public().has_signed(b"message", &signature));
        assert!(!key.public().has_signed(b"massage", &signature));
        let shown = PublicKey::from_hex(&key.public().to_hex());
        assert_eq!(shown.as_ref(), Some(key.public()));
        std::fs::write(&path, "no key").unwrap();
        assert!(SigningKey::open(&path).is_err());
    }
}
