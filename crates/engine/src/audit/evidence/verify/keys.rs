//! The keys that a verification trusts.

use gantry_store::{AuditKey, AuditSnapshot, StoreError};

use super::super::key::PublicKey;
use super::findings::{TrustedKeys, Verification};

/// The trusted keys.
pub(super) struct Keys {
    /// As they are stored.
    pub(super) stored: Vec<AuditKey>,
    known: Vec<PublicKey>,
    /// By gateway.
    from_store: Vec<(i64, PublicKey)>,
}

impl Keys {
    pub(super) async fn of(
        audit: &mut AuditSnapshot<'_>,
        trusted: &TrustedKeys,
        report: &mut Verification,
    ) -> Result<Self, StoreError> {
        let (known, takes_more) = match trusted {
            TrustedKeys::FromStore => (Vec::new(), true),
            TrustedKeys::AtLeast(keys) => (keys.clone(), true),
            TrustedKeys::Only(keys) => (keys.clone(), false),
        };
        let stored = audit.keys().await?;
        let usable = stored.iter().filter(|_| takes_more);
        let usable = usable.filter_map(|key| {
            let public = PublicKey::new(&key.public)?;
            // A key that is stored under the id of another is not used.
            (public.id() == key.id).then_some((key.gateway, public))
        });
        let from_store: Vec<_> = usable.filter(|(_, key)| !known.contains(key)).collect();
        report.keys_from_store = from_store
            .iter()
            .map(|(_, key)| key.id().to_owned())
            .collect();
        Ok(Self {
            stored,
            known,
            from_store,
        })
    }

    pub(super) fn has_signed(
        &self,
        gateway: i64,
        id: &str,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let mut keys = self.of_gateway(gateway).filter(|key| key.id() == id);
        keys.any(|key| key.has_signed(message, signature))
    }

    pub(super) fn any_signed(&self, gateway: i64, message: &[u8], signature: &[u8]) -> bool {
        self.of_gateway(gateway)
            .any(|key| key.has_signed(message, signature))
    }

    fn of_gateway(&self, gateway: i64) -> impl Iterator<Item = &PublicKey> {
        let stored = self.from_store.iter();
        let stored = stored.filter_map(move |(of, key)| (*of == gateway).then_some(key));
        self.known.iter().chain(stored)
    }
}
