//! The known secrets of one server: those of its spec, those of the project that it was given, and those
//! of a sign-in, which come and go. Readers take the current redactor and never wait; the last few sets
//! stay redacted, since a server may repeat one that was replaced. Entry points:
//! [`KnownSecrets::redactor`], [`KnownSecrets::learn`], [`KnownSecrets::given`].

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use gantry_model::secret::{Redactor, SecretText};
use parking_lot::Mutex;

/// How many sets of each kind are hidden: the ones in use and those before them.
const MOST_SETS: usize = 3;

/// What is taken out of everything that a server says.
#[derive(Default)]
pub(crate) struct KnownSecrets {
    own: Vec<SecretText>,
    brought: Mutex<Brought>,
    current: ArcSwap<Redactor>,
}

/// Secrets that came after the spec, the newest sets last.
#[derive(Default)]
struct Brought {
    /// Of a sign-in.
    tokens: VecDeque<Vec<SecretText>>,
    /// Of the project.
    given: VecDeque<Vec<SecretText>>,
}

impl KnownSecrets {
    /// Begins with the secrets of a server's spec.
    pub(crate) fn new(own: Vec<SecretText>) -> Self {
        let current = ArcSwap::from_pointee(Redactor::new(&own));
        Self {
            own,
            brought: Mutex::default(),
            current,
        }
    }

    /// Returns what hides all that is known now; to be held for a moment only.
    pub(crate) fn redactor(&self) -> Guard<Arc<Redactor>> {
        self.current.load()
    }

    /// Returns the same, to be held for as long as is needed.
    pub(crate) fn shared(&self) -> Arc<Redactor> {
        self.current.load_full()
    }

    /// Takes up the tokens of a sign-in before any of them is sent; the oldest set goes.
    pub(crate) fn learn(&self, set: Vec<SecretText>) {
        self.take_up(set, |brought| &mut brought.tokens);
    }

    /// Takes up the project's secrets that the server is about to be given; the oldest set goes.
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
