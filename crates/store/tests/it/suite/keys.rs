//! Keys.

use gantry_model::caller::{KeyKind, Role};
use gantry_model::grant::{Effect, Principal};
use gantry_model::id::{GrantId, KeyId};
use gantry_store::{GrantRow, KeyRow, KeyUse, StoreError};

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
        sources: vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
        limits: serde_json::from_str(r#"{"calls_per_minute":60,"bytes_per_hour":5}"#).unwrap(),
        replaces: None,
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

#[tokio::test]
async fn a_rotated_key_has_another_end_and_a_successor_with_grants() {
    on_each(|store| async move {
        let mut old = key(1, KeyKind::Agent);
        store.put_key(&old).await.unwrap();
        old.expires_ms = Some(NOON + 5);
        let new = KeyRow {
            replaces: Some(old.id),
            ..key(2, KeyKind::Agent)
        };
        let grant = GrantRow {
            project: local(),
            principal: Principal::Key(new.id),
            id: GrantId::from_random(7),
            effect: Effect::Allow,
            server: "files".into(),
            item: "*".into(),
            alias: None,
            conditions: None,
            created_ms: NOON,
            last_used_ms: None,
        };
        let grants = std::slice::from_ref(&grant);
        assert!(store.rotate_key(&new, grants, &old).await.unwrap());
        assert_eq!(store.keys().await.unwrap(), [old.clone(), new.clone()]);
        assert_eq!(store.grants(&local()).await.unwrap(), grants);
        // What was revoked is not replaced.
        assert!(store.revoke_key(new.id, NOON).await.unwrap());
        let third = key(3, KeyKind::Agent);
        assert!(!store.rotate_key(&third, &[], &new).await.unwrap());
        assert!(!store.replace_key(&new).await.unwrap());
        old.label = "another".into();
        assert!(store.replace_key(&old).await.unwrap());
        assert_eq!(store.keys().await.unwrap(), [old]);
    })
    .await;
}

#[tokio::test]
async fn the_last_use_of_a_key_is_kept_and_moves_no_revision() {
    on_each(|store| async move {
        let (one, other) = (key(1, KeyKind::Agent), key(2, KeyKind::Agent));
        store.put_key(&one).await.unwrap();
        store.put_key(&other).await.unwrap();
        let before = store.changes(&local()).await.unwrap().access;
        let used = |key: &KeyRow, at_ms, from: Option<&str>| KeyUse {
            key: key.id,
            at_ms,
            from: from.map(|from| from.parse().unwrap()),
        };
        let unknown = key(9, KeyKind::Agent);
        let first = [
            used(&one, NOON + 5, Some("192.0.2.1")),
            used(&unknown, NOON, None),
        ];
        store.note_key_uses(&first).await.unwrap();
        assert_eq!(store.key_uses(&local()).await.unwrap(), first[..1]);
        // An older one of another gateway changes nothing.
        let older = used(&one, NOON + 4, None);
        let newer = used(&other, NOON + 6, Some("2001:db8::1"));
        store.note_key_uses(&[older, newer]).await.unwrap();
        let mut uses = store.key_uses(&local()).await.unwrap();
        uses.sort_by_key(|used| used.at_ms);
        assert_eq!(uses, [first[0], newer]);
        assert_eq!(store.changes(&local()).await.unwrap().access, before);
        assert!(
            store
                .key_uses(&"other".parse().unwrap())
                .await
                .unwrap()
                .is_empty()
        );
    })
    .await;
}
