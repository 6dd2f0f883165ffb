//! Which files of the folder a person has approved, each by the hash of its content.
//!
//! Kept in the data folder, which is the person's alone; any change of a file asks again. fault G5
//! Entry points: [`Approvals::load`] and [`Approvals::approve`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::app::data::{DataError, DataFolder};

/// The hash of a file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(String);

impl Digest {
    /// Hashes a content.
    pub fn of(content: &[u8]) -> Self {
        let digest = Sha256::digest(content);
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The approved files, by absolute path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvals {
    #[serde(default)]
    files: BTreeMap<PathBuf, Digest>,
}

impl Approvals {
    /// Reads what was approved; what cannot be read approves nothing.
    pub fn load(data: &DataFolder) -> Self {
        data.read_approvals()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    /// Tells whether this very content of a file was approved.
    pub fn has(&self, path: &Path, digest: &Digest) -> bool {
        self.files.get(path) == Some(digest)
    }

    /// Approves this very content of files, and remembers it.
    pub fn approve<'f>(
        data: &DataFolder,
        files: impl IntoIterator<Item = (&'f Path, &'f Digest)>,
    ) -> Result<Self, DataError> {
        let mut approvals = Self::load(data);
        for (path, digest) in files {
            approvals.files.insert(path.to_owned(), digest.clone());
        }
        let text = serde_json::to_vec_pretty(&approvals)
            .expect("plain fields are always expressible as JSON");
        data.write_approvals(&text)?;
        Ok(approvals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // fault G5
    #[test]
    fn a_change_of_one_byte_is_another_file() {
        let home = tempfile::tempdir().unwrap();
        let data = DataFolder::open(&home.path().join("d")).unwrap();
        let path = Path::new("/x/.mcp.json");
        let digest = Digest::of(b"one");
        assert!(!Approvals::load(&data).has(path, &digest));
        Approvals::approve(&data, [(path, &digest)]).unwrap();
        let approvals = Approvals::load(&data);
        assert!(approvals.has(path, &digest));
        assert!(!approvals.has(path, &Digest::of(b"onE")));
        assert!(!approvals.has(Path::new("/y/.mcp.json"), &digest));
    }
}
