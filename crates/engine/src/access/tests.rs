//! Keys and grants in memory: lookup, validity, roles, and what a change ends.

use super::*;

async fn access(folder: &tempfile::TempDir) -> Access {
    let store = crate::folder::store_in(folder.path()).await;
    Access::load(store, ProjectName::local(), watch::Sender::new(0))
        .await
        .unwrap()
}

fn pair(made: MadeKey) -> (KeyId, String) {
    (made.id, made.key)
}

fn new(agent: &AgentName) -> NewKey {
    NewKey {
        kind: KeyKind::Agent,
        agent: agent.clone(),
        label: String::new(),
        expires_ms: None,
        sources: Vec::new(),
        limits: RateLimits::default(),
    }
}

#[tokio::test]
async fn a_key_ends_by_itself_and_the_last_admin_key_stays() {
    let folder = tempfile::tempdir().unwrap();
    let access = access(&folder).await;
    let keys = access
        .first_start(Role::Installation, &[], |_| Ok(()))
        .await
        .unwrap()
        .unwrap();
    let admin = access.authenticate(&digest(&keys.admin)).unwrap();
    let mut over = new(&admin.agent);
    (over.kind, over.expires_ms) = (KeyKind::Admin(Role::Installation), Some(unix_ms() - 1));
    let (_, text) = pair(access.create(&over).await.unwrap());
    assert!(access.authenticate(&digest(&text)).is_none());
    assert_eq!(access.list().await.unwrap().len(), 2);
    over.expires_ms = Some(unix_ms() + 3_600_000);
    let (soon, text) = pair(access.create(&over).await.unwrap());
    assert!(access.authenticate(&digest(&text)).is_some());
    let refused = access.revoke(admin.key).await.unwrap_err();
    assert!(matches!(refused, EngineError::LastAdmin), "{refused:?}");
    let refused = access.remove_agent(&admin.agent).await.unwrap_err();
    assert!(matches!(refused, EngineError::LastAdmin), "{refused:?}");
    assert!(access.revoke(soon).await.unwrap());
    over.expires_ms = None;
    access.create(&over).await.unwrap();
    assert!(access.revoke(admin.key).await.unwrap());
}

// fault P13
#[tokio::test]
async fn a_key_that_expired_by_a_wrong_clock_begins_anew_when_the_clock_is_right() {
    const HOUR_MS: u64 = 3_600_000;
    let folder = tempfile::tempdir().unwrap();
    let access = access(&folder).await;
    let agent: AgentName = "default".parse().unwrap();
    let mut timed = new(&agent);
    timed.expires_ms = Some(unix_ms() + HOUR_MS);
    let (id, text) = pair(access.create(&timed).await.unwrap());
    let first = access.authenticate(&digest(&text)).unwrap();
    assert!(access.current(&first).is_some());
    let mut changes = access.changes();
    access.end_expired(unix_ms() + 2 * HOUR_MS);
    assert_eq!(first.validity.end_reason(), Some(KeyEnd::Expired));
    assert!(access.current(&first).is_none());
    let again = access.authenticate(&digest(&text)).unwrap();
    assert_eq!(again.validity.end_reason(), None);
    assert!(access.current(&again).is_some() && access.current(&first).is_none());
    assert_eq!(first.validity.end_reason(), Some(KeyEnd::Expired));
    // Who ends expired keys is told of it, and other changes leave it as it is.
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    access.create(&new(&agent)).await.unwrap();
    let same = access.authenticate(&digest(&text)).unwrap();
    assert!(same.validity.is_same(&again.validity));
    access.end_expired(unix_ms() + 2 * HOUR_MS);
    assert_eq!(again.validity.end_reason(), Some(KeyEnd::Expired));
    assert!(access.revoke(id).await.unwrap());
    assert!(access.authenticate(&digest(&text)).is_none() && access.current(&same).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_revoked_key_stays_revoked_whatever_else_happens() {
    // fault U6
    let folder = tempfile::tempdir().unwrap();
    let access = Arc::new(access(&folder).await);
    let agent: AgentName = "default".parse().unwrap();
    let (mut old, mut changes) = (Vec::new(), tokio::task::JoinSet::new());
    for _ in 0..8 {
        old.push(pair(access.create(&new(&agent)).await.unwrap()));
    }
    for (id, _) in &old {
        let (id, revoking) = (*id, Arc::clone(&access));
        changes.spawn(async move { assert!(revoking.revoke(id).await.unwrap()) });
        let (agent, making) = (agent.clone(), Arc::clone(&access));
        changes.spawn(async move {
            let (_, key) = pair(making.create(&new(&agent)).await.unwrap());
            assert!(making.authenticate(&digest(&key)).is_some());
        });
    }
    changes.join_all().await;
    assert!(
        old.iter()
            .all(|(_, key)| access.authenticate(&digest(key)).is_none())
    );
    assert_eq!(access.keys.load().all().count(), 8);
    assert!(
        !access.revoke(old[0].0).await.unwrap(),
        "it was revoked before"
    );
}

#[tokio::test]
async fn first_keys_that_cannot_be_kept_lock_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let access = access(&folder).await;
    let full = |_: &FirstKeys| Err(EngineError::Stopping);
    assert!(
        access
            .first_start(Role::Installation, &[], full)
            .await
            .is_err()
    );
    let mut kept = None;
    let keep = |keys: &FirstKeys| {
        kept = Some(keys.clone());
        Ok(())
    };
    let made = access
        .first_start(Role::Installation, &[], keep)
        .await
        .unwrap()
        .unwrap();
    let kept = kept.unwrap();
    assert_eq!((&made.admin, &made.agent), (&kept.admin, &kept.agent));
    assert!(access.authenticate(&digest(&kept.admin)).is_some());
    assert!(
        access
            .first_start(Role::Installation, &[], |_| Ok(()))
            .await
            .unwrap()
            .is_none()
    );
}
