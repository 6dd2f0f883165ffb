//! Questions of configuration files, `${input:id}`, and which answers are for whom: an answer belongs to
//! one file and to one entry of it as it stands there, so that neither another file nor a changed entry
//! gets what a person typed. Entry points: [`scope`] and [`Answers`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::entry::Entry;

/// The answers by scope, and by id in each.
pub type Answers = BTreeMap<String, BTreeMap<String, String>>;

/// A question of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskedInput {
    /// The file that the entry stands in.
    pub file: PathBuf,
    /// Its id.
    pub id: String,
    /// The scope of its answer.
    pub scope: String,
}

/// Returns what stands for an entry of a file as it is now.
pub fn scope(file: &Path, entry: &Entry) -> String {
    let mut hash = Sha256::new();
    hash.update(file.as_os_str().as_encoded_bytes());
    hash.update([0]);
    hash.update(entry.name.as_bytes());
    hash.update([0]);
    hash.update(entry.node.to_json().to_string());
    gantry_model::hex::hex(&hash.finalize())
}

/// Returns the answers of one scope.
pub fn answers_in<'a>(answers: &'a Answers, scope: &str) -> &'a BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    answers.get(scope).unwrap_or(&NONE)
}
