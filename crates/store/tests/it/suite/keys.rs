//! Keys.

use gantry_model::caller::{KeyKind, Role};
use gantry_model::id::KeyId;
use gantry_store::{KeyRow, StoreError};

use crate::harness::{NOON, local, on_each};

fn key(number: u8, kind: KeyKind) -> KeyRow {
    KeyRow {
        id: KeyId::from_random(u128::from(number)),
        project: local(),
        agent: "default".parse().unwrap(),
        kind,
        digest: [number; 32],
        label: format!("key {number}"),
        created_ms: NOON + u64::from(number),
        revoked_ms: None,
        expires_ms: (kind == KeyKind::Agent).then_some(NOON + 60_000),
    }
}

#[tokio::test]
async fn keys_come_back_until_they_are_revoked() {
    on_each(|store| async move {
        let (admin, agent) = (
            key(1, KeyKind::Admin(Role::Auditor)),
            key(2, KeyKind::Agent),
        );
        store.put_key(&agent).await.unwrap();
        store.put_key(&admin).await.unwrap();
        assert_eq!(store.keys().await.unwrap(), [admin.clone(), agent.clone()]);
        assert!(store.revoke_key(admin.id, NOON + 9).await.unwrap());
        assert!(!store.revoke_key(admin.id, NOON + 10).await.unwrap());
        assert!(
            !store
                .revoke_key(KeyId::from_random(99), NOON)
                .await
                .unwrap()
        );
        assert_eq!(store.keys().await.unwrap(), [agent]);
    })
    .await;
}

#[tokio::test]
async fn a_key_is_stored_once() {
    on_each(|store| async move {
        store.put_key(&key(1, KeyKind::Agent)).await.unwrap();
        let mut twin = key(2, KeyKind::Agent);
        twin.digest = [1; 32];
        for row in [key(1, KeyKind::Admin(Role::Auditor)), twin] {
            let error = store.put_key(&row).await.unwrap_err();
            assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
        }
        assert_eq!(store.keys().await.unwrap(), [key(1, KeyKind::Agent)]);
    })
    .await;
}
