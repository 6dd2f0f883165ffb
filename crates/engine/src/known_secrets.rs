//! The known secrets of one server: those of its spec, those of the project that it received, and
//! those of a sign-in, which change. Readers take the current redactor and never wait; the last few
//! sets stay redacted, since a server may repeat a replaced one. Entry points:
//! [`KnownSecrets::redactor`], [`KnownSecrets::learn`], [`KnownSecrets::given`].

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use gantry_model::secret::{Redactor, SecretText};
use parking_lot::Mutex;

/// How many sets of each kind are redacted: the current one and those before it.
const MOST_SETS: usize = 3;

/// The secrets to redact from everything a server sends.
#[derive(Default)]
pub(crate) struct KnownSecrets {
    own: Vec<SecretText>,
    brought: Mutex<Brought>,
    current: ArcSwap<Redactor>,
}

/// Secrets that came after the spec, the newest sets last.
#[derive(Default)]
struct Brought {
    /// Tokens of a sign-in.
    tokens: VecDeque<Vec<SecretText>>,
    /// Secrets of the project.
    given: VecDeque<Vec<SecretText>>,
}

impl KnownSecrets {
    /// Starts with the secrets of a server's spec.
    pub(crate) fn new(own: Vec<SecretText>) -> Self {
        let current = ArcSwap::from_pointee(Redactor::new(&own));
        Self {
            own,
            brought: Mutex::default(),
            current,
        }
    }

    /// Returns the current redactor; to be held for a moment only.
    pub(crate) fn redactor(&self) -> Guard<Arc<Redactor>> {
        self.current.load()
    }

    /// Returns the current redactor, to be held for any time.
    pub(crate) fn shared(&self) -> Arc<Redactor> {
        self.current.load_full()
    }

    /// Adds the tokens of a sign-in before any of them is sent; drops the oldest set.
    pub(crate) fn learn(&self, set: Vec<SecretText>) {
        self.take_up(set, |brought| &mut brought.tokens);
    }

    /// Adds the project's secrets that the server is about to receive; drops the oldest set.
    pub(crate) fn given(&self, set: Vec<SecretText>) {
        self.take_up(set, |brought| &mut brought.given);
    }

    fn take_up(
        &self,
        set: Vec<SecretText>,
        kind: impl Fn(&mut Brought) -> &mut VecDeque<Vec<SecretText>>,
    ) {
        let mut brought = self.brought.lock();
        let sets = kind(&mut brought);
        if set.is_empty() || sets.back() == Some(&set) {
            return;
        }
        sets.push_back(set);
        if sets.len() > MOST_SETS {
            sets.pop_front();
        }
        let sets = brought.tokens.iter().chain(&brought.given);
        let all = self.own.iter().chain(sets.flatten());
        self.current.store(Arc::new(Redactor::new(all)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> SecretText {
        SecretText::new(text.to_owned())
    }

    #[test]
    fn the_last_few_sets_are_hidden_beside_what_stays() {
        let known = KnownSecrets::new(vec![secret("of-the-spec")]);
        let hides = |text: &str| known.redactor().redact(text) == "[redacted]";
        assert!(hides("of-the-spec") && !hides("access-1"));
        for number in 1..=5 {
            let set = || ["access", "refresh"].map(|kind| secret(&format!("{kind}-{number}")));
            known.learn(set().into());
            // The same once more takes nobody's place.
            known.learn(set().into());
        }
        assert!(hides("of-the-spec"));
        for number in 3..=5 {
            assert!(hides(&format!("access-{number}")) && hides(&format!("refresh-{number}")));
        }
        assert!(!hides("access-2"), "bounded");
        let held = known.shared();
        known.learn(vec![secret("access-6")]);
        assert_eq!(held.redact("access-6"), "access-6", "as it was then");
        assert!(hides("access-6"));
    }
}
