//! The files of an approved `[gateway]` that say whom the gateway trusts, as they were approved.
//!
//! The files themselves can change at any time, and some are read while the gateway runs; so it uses
//! private copies. Entry point: [`copied`].

use std::error::Error as _;

use crate::config::approval::Digest;
use crate::config::document::{LONGEST_BYTES, read_text};
use crate::config::plan::ApprovedFiles;
use crate::config::settings::Settings;
use crate::data_folder::DataFolder;

use super::{Exit, Failure};

/// Returns the settings with copies of the approved files; fails if one is not as it was approved.
pub(super) fn copied(
    mut settings: Settings,
    approved: &ApprovedFiles,
    data: &DataFolder,
) -> Result<Settings, Failure> {
    for (setting, file) in settings.trusting() {
        let (Some(named), Some((path, digest))) = (file.as_mut(), approved.get(setting)) else {
            continue;
        };
        let text = read_text(path).map_err(|mistake| {
            let what = format!(
                "`{}` cannot be used: `{setting}` of this folder's `gantry.toml` names it",
                path.display()
            );
            let cause = mistake.source().map_or_else(
                || "it is not a regular file, or too long".to_owned(),
                ToString::to_string,
            );
            Failure::new(Exit::Failed, what).cause(cause).hint(format!(
                "put a file of at most {} MiB there, or take `{setting}` out; then run \
                 `gantry approve gantry.toml`",
                LONGEST_BYTES >> 20
            ))
        })?;
        let found = Digest::of(&text);
        if digest.as_ref() != Some(&found) {
            let what = format!(
                "`{}` has changed since it was approved: `{setting}` of this folder's `gantry.toml` names it",
                path.display()
            );
            let failure = Failure::new(Exit::Failed, what);
            return Err(failure.hint("look at the change and run `gantry approve gantry.toml`"));
        }
        let name = format!("{setting}-{}", found.as_str());
        let kept = data.keep_approved(&name, &text);
        *named = kept.map_err(|error| Failure::of(Exit::Failed, &error))?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    // fault G5
    #[test]
    fn only_what_was_approved_is_used_and_it_does_not_change() {
        let home = tempfile::tempdir().unwrap();
        let data = DataFolder::open(&home.path().join("data")).unwrap();
        let path = home.path().join("ca.pem");
        let long = vec![b'#'; usize::try_from(LONGEST_BYTES).unwrap() + 1];
        let settings = Settings {
            tls_client_ca: Some("ca.pem".into()),
            issuers: Some("own.json".into()),
            ..Settings::default()
        };
        let copied = |digest: Option<Digest>| {
            let approved = [("tls_client_ca", (path.clone(), digest))].into();
            super::copied(settings.clone(), &approved, &data)
        };
        // Approved while it was missing.
        let refused = |digest| copied(digest).unwrap_err().in_one_line();
        assert!(refused(None).contains("ca.pem` cannot be used"));
        fs::write(&path, &long).unwrap();
        assert!(refused(None).contains("too long"), "{}", refused(None));
        fs::write(&path, "one").unwrap();
        assert!(refused(None).contains("has changed since"));
        assert!(refused(Some(Digest::of(b"two"))).contains("has changed since"));

        let used = copied(Some(Digest::of(b"one"))).unwrap();
        assert_eq!(used.issuers, Some(PathBuf::from("own.json")));
        fs::write(&path, "two").unwrap();
        let kept = used.tls_client_ca.unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"one");
        let newer = copied(Some(Digest::of(b"two"))).unwrap();
        assert_eq!(fs::read(newer.tls_client_ca.unwrap()).unwrap(), b"two");
        assert_eq!(fs::read(&kept).unwrap(), b"one");
    }
}
