//! Which part of an argument or a result goes into the journal: never a credential, never more than
//! the limit.
//!
//! Runs before the write, so that nothing to be redacted reaches the disk. Entry point: `keep`.

use std::borrow::Cow;
use std::collections::HashMap;

use gantry_model::hex::hex;
use gantry_model::secret::{Redactor, mask_members};
use gantry_model::settings::AuditSettings;
use sha2::{Digest, Sha256};

use super::Audit;
use super::policy::{Bodies, BodyLimit};
use super::record::cut;

/// How many bytes after the cut are examined: a secret must be complete to be found.
const MARGIN: usize = 8 << 10;

/// Returns the part of a JSON body that the policy keeps.
pub(super) fn keep<'a>(
    limit: BodyLimit,
    redactor: &Redactor,
    body: Option<&'a [u8]>,
) -> Option<Cow<'a, str>> {
    let body = body?;
    match limit.bodies {
        Bodies::Off => None,
        Bodies::Hash => Some(Cow::Owned(hash(body))),
        Bodies::Redacted => Some(redacted(redactor, body, limit.body_bytes)),
    }
}

fn redacted<'a>(redactor: &Redactor, body: &'a [u8], longest: usize) -> Cow<'a, str> {
    let margin = MARGIN.max(redactor.longest());
    let window = beginning(body, longest + margin);
    let cleaned = redactor.redact_json(window);
    // The end of the window may be the start of a secret, and redaction may have moved it: the
    // length of the longest secret is dropped, however short the rest is.
    let whole = window.len() == body.len();
    let safe = if whole {
        cleaned.len()
    } else {
        cleaned.len().saturating_sub(margin)
    };
    match cleaned {
        Cow::Borrowed(text) => masked(cut(text, longest.min(safe)), longest),
        Cow::Owned(text) => Cow::Owned(masked(cut(&text, longest.min(safe)), longest).into_owned()),
    }
}

/// Returns the part of a body that is examined; the rest of a long one is not read.
fn beginning(body: &[u8], longest: usize) -> &str {
    let window = &body[..body.len().min(longest)];
    match std::str::from_utf8(window) {
        Ok(text) => text,
        // It was cut inside of a character.
        Err(error) => std::str::from_utf8(&window[..error.valid_up_to()]).unwrap_or_default(),
    }
}

fn masked(text: &str, longest: usize) -> Cow<'_, str> {
    match mask_members(text) {
        Cow::Borrowed(text) => Cow::Borrowed(text),
        Cow::Owned(mut text) => {
            text.truncate(text.floor_char_boundary(longest));
            Cow::Owned(text)
        }
    }
}

fn hash(body: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(body)))
}

impl Audit {
    /// Has the calls of a project recorded as its settings say.
    pub(crate) fn set_project(&self, project: &str, settings: &AuditSettings) {
        let gateway = self.shared.policy.body_limit();
        let limit = gateway.within(settings);
        self.shared.body_limits.rcu(|limits| {
            let mut limits = HashMap::clone(limits);
            match limit == gateway {
                true => limits.remove(project),
                false => limits.insert(project.to_owned(), limit),
            };
            limits
        });
    }

    pub(super) fn body_limit(&self, project: &str) -> BodyLimit {
        let limits = self.shared.body_limits.load();
        let chosen = if limits.is_empty() {
            None
        } else {
            limits.get(project).copied()
        };
        chosen.unwrap_or_else(|| self.shared.policy.body_limit())
    }
}

#[cfg(test)]
mod tests {
    use gantry_model::secret::SecretText;

    use super::super::policy::HASH_BYTES;
    use super::*;

    fn policy(bodies: Bodies, body_bytes: usize) -> BodyLimit {
        BodyLimit { bodies, body_bytes }
    }

    fn redactor() -> Redactor {
        Redactor::new([&SecretText::new("s3cr3t-value-of-the-server".to_owned())])
    }

    #[test]
    fn keeps_what_the_policy_says() {
        let kept = |bodies| {
            keep(
                policy(bodies, 4096),
                &Redactor::default(),
                Some(br#"{"a":1}"#),
            )
        };
        assert_eq!(kept(Bodies::Off), None);
        assert_eq!(kept(Bodies::Redacted).as_deref(), Some(r#"{"a":1}"#));
        let digest = "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(kept(Bodies::Hash).as_deref(), Some(digest));
        assert_eq!(digest.len(), HASH_BYTES);
        assert_eq!(
            keep(policy(Bodies::Hash, 4096), &Redactor::default(), None),
            None
        );
    }

    #[test]
    fn hides_secrets_and_members_before_it_cuts() {
        let body = r#"{"password":"hunter2hunter2","note":"s3cr3t-value-of-the-server","b":"ä"}"#;
        for longest in 0..body.len() + 40 {
            let kept = keep(
                policy(Bodies::Redacted, longest),
                &redactor(),
                Some(body.as_bytes()),
            );
            let kept = kept.unwrap();
            assert!(kept.len() <= longest.max(body.len()));
            assert!(
                !kept.contains("s3c") && !kept.contains("hunt"),
                "{longest}: {kept}"
            );
        }
    }

    #[test]
    fn no_part_of_a_secret_slips_in_behind_many_others() {
        // Each redaction shortens the text, and so moves what lies behind the cut in front of it.
        let secret = "s3cr3t-value-of-the-server";
        for filler in 0..secret.len() {
            let body = format!("\"{}{}\"", "x".repeat(filler), secret.repeat(800));
            let kept = keep(
                policy(Bodies::Redacted, 4096),
                &redactor(),
                Some(body.as_bytes()),
            );
            let kept = kept.unwrap();
            assert!(kept.len() <= 4096);
            assert!(!kept.contains("s3"), "{filler}");
        }
    }
}
