//! Approvals of the folder's files, entry by entry, and the folders trusted as working folders.
//!
//! Each entry, and `[gateway]`, is approved by the hash of its content and of the files it names; a
//! change requires a new approval of that entry only (fault G5). Stored in the data folder. Entry
//! points: [`Approvals::load`] and [`Approvals::approve`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gantry_model::hex::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::data_folder::{DataError, DataFolder};

/// The hash of a file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(String);

impl Digest {
    /// Hashes a content.
    pub fn of(content: &[u8]) -> Self {
        Self(hex(&Sha256::digest(content)))
    }

    /// Returns the hash of a file together with the files it names; a missing one counts too.
    pub fn with_files(self, files: &BTreeMap<PathBuf, Option<Self>>) -> Self {
        if files.is_empty() {
            return self;
        }
        let mut all = self.0.into_bytes();
        for (path, digest) in files {
            all.push(0);
            all.extend_from_slice(path.as_os_str().as_encoded_bytes());
            all.push(0);
            all.extend(digest.iter().flat_map(|digest| digest.0.bytes()));
        }
        Self::of(&all)
    }

    /// Returns its text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An approved entry, or `[gateway]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovedPart {
    /// The hash of its content and of the files it names.
    pub sha256: Digest,
    /// What was shown of it, one line each, without secrets; used to show changes.
    #[serde(default)]
    pub lines: Vec<String>,
}

/// The approved parts of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovedParts {
    /// The servers, by name.
    #[serde(default)]
    pub servers: BTreeMap<String, ApprovedPart>,
    /// `[gateway]`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<ApprovedPart>,
}

/// A file to be approved.
#[derive(Debug, Clone)]
pub struct FileApproval {
    /// The file by its absolute path.
    pub path: PathBuf,
    /// The hash of the whole file with the files it names.
    pub digest: Digest,
    /// All its parts.
    pub parts: ApprovedParts,
}

/// The approved files, by absolute path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvals {
    /// The whole file as it was last approved.
    #[serde(default)]
    files: BTreeMap<PathBuf, Digest>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parts: BTreeMap<PathBuf, ApprovedParts>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    folders: BTreeSet<PathBuf>,
}

impl Approvals {
    /// Reads the approvals; an unreadable file approves nothing.
    pub fn load(data: &DataFolder) -> Self {
        data.read_approvals()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    /// Returns the approved files by path, each with its hash, and the trusted folders.
    pub fn on_file(&self) -> BTreeMap<String, String> {
        let shown = |path: &Path| path.display().to_string();
        let files = self.files.iter();
        let files = files.map(|(path, Digest(digest))| (shown(path), digest.clone()));
        let folders = self.folders.iter();
        let folders = folders.map(|path| (shown(path), "trusted folder".to_owned()));
        files.chain(folders).collect()
    }

    /// Returns whether this exact content of a file was approved.
    pub fn has(&self, path: &Path, digest: &Digest) -> bool {
        self.files.get(path) == Some(digest)
    }

    /// Returns the approved parts of a file; nothing if it was never approved by parts.
    pub fn parts(&self, path: &Path) -> Option<&ApprovedParts> {
        self.parts.get(path)
    }

    /// Returns whether the user's own servers may run in a folder: it was trusted, or a file of it
    /// was approved.
    pub fn trusts(&self, folder: &Path) -> bool {
        self.folders.contains(folder) || self.files.keys().any(|file| file.parent() == Some(folder))
    }

    /// Approves this exact content of files, trusts folders, and stores both.
    pub fn approve<'f>(
        data: &DataFolder,
        files: impl IntoIterator<Item = &'f FileApproval>,
        folders: impl IntoIterator<Item = &'f Path>,
    ) -> Result<Self, DataError> {
        let mut approvals = Self::load(data);
        approvals
            .folders
            .extend(folders.into_iter().map(Path::to_owned));
        for FileApproval {
            path,
            digest,
            parts,
        } in files
        {
            approvals.files.insert(path.clone(), digest.clone());
            approvals.parts.insert(path.clone(), parts.clone());
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
        let part = |text: &[u8]| ApprovedPart {
            sha256: Digest::of(text),
            lines: vec!["x: runs y".to_owned()],
        };
        let approval = FileApproval {
            path: path.to_owned(),
            digest: digest.clone(),
            parts: ApprovedParts {
                servers: [("x".to_owned(), part(b"x"))].into(),
                gateway: None,
            },
        };
        Approvals::approve(&data, [&approval], []).unwrap();
        let approvals = Approvals::load(&data);
        let parts = approvals.parts(path).unwrap();
        assert_eq!(parts.servers["x"], part(b"x"));
        assert!(approvals.parts(Path::new("/y/.mcp.json")).is_none());
        assert!(approvals.has(path, &digest));
        assert!(!approvals.has(path, &Digest::of(b"onE")));
        assert!(!approvals.has(Path::new("/y/.mcp.json"), &digest));
        assert!(approvals.trusts(Path::new("/x")) && !approvals.trusts(Path::new("/y")));
        let approvals = Approvals::approve(&data, [], [Path::new("/y")]).unwrap();
        assert!(approvals.trusts(Path::new("/y")) && approvals.has(path, &digest));
    }

    // fault G5
    #[test]
    fn a_file_that_is_named_belongs_to_what_is_approved() {
        let named = |content: Option<&[u8]>| {
            let files = [("/x/ca.pem".into(), content.map(Digest::of))].into();
            Digest::of(b"one").with_files(&files)
        };
        assert_eq!(named(Some(b"a")), named(Some(b"a")));
        assert_ne!(named(Some(b"a")), named(Some(b"b")));
        assert_ne!(named(Some(b"a")), named(None));
        assert_ne!(named(None), Digest::of(b"one"));
        assert_eq!(
            Digest::of(b"one").with_files(&BTreeMap::new()),
            Digest::of(b"one"),
            "what was approved before stays approved"
        );
    }
}
