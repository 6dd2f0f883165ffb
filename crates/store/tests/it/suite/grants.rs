//! Grants, when they were last used, and groups of servers.

use gantry_model::caller::UserTrust;
use gantry_model::grant::{Effect, Principal};
use gantry_model::id::{GrantId, KeyId};
use gantry_store::{AgentRow, AgentTools, GrantRow, GroupRow, StoreError};

use crate::harness::{NOON, local, on_each};

fn grant(principal: Principal, item: &str, alias: Option<&str>) -> GrantRow {
    let number = item
        .bytes()
        .fold(1_u128, |number, byte| number * 31 + u128::from(byte));
    GrantRow {
        project: local(),
        principal,
        id: GrantId::from_random(number),
        effect: Effect::Allow,
        server: "files".into(),
        item: item.into(),
        alias: alias.map(Into::into),
        conditions: None,
        created_ms: NOON,
        last_used_ms: None,
    }
}

// row 3.2
#[tokio::test]
async fn grants_are_kept_per_principal() {
    on_each(|store| async move {
        let agent = Principal::Agent("default".parse().unwrap());
        let key = Principal::Key(KeyId::from_random(5));
        let rows = [
            grant(agent.clone(), "read", None),
            grant(agent.clone(), "write", Some("put")),
            grant(key.clone(), "*", None),
            grant(Principal::Project, "list", None),
        ];
        for row in &rows {
            store.put_grant(row).await.unwrap();
        }
        assert_eq!(store.grants(&local()).await.unwrap(), rows);
        assert_eq!(store.grants(&"other".parse().unwrap()).await.unwrap(), []);
        assert!(store.remove_grant(&local(), rows[1].id).await.unwrap());
        assert!(!store.remove_grant(&local(), rows[1].id).await.unwrap());
        let elsewhere = "other".parse().unwrap();
        assert!(!store.remove_grant(&elsewhere, rows[0].id).await.unwrap());
        assert_eq!(store.grants(&local()).await.unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_second_grant_of_the_same_item_sets_its_alias() {
    on_each(|store| async move {
        for alias in [Some("one"), Some("one"), None, Some("two")] {
            let row = grant(Principal::Project, "read", alias);
            store.put_first(&[row], &[]).await.unwrap();
        }
        let expected = grant(Principal::Project, "read", Some("two"));
        assert_eq!(store.grants(&local()).await.unwrap(), [expected]);
    })
    .await;
}

// row 3.2
#[tokio::test]
async fn one_item_may_be_allowed_denied_and_asked_for_under_conditions() {
    on_each(|store| async move {
        let before = store.changes(&local()).await.unwrap().policy;
        let mut rows = Vec::new();
        let conditions = [None, Some(r#"[{"at":"/x","equals":1}]"#)];
        for (number, effect) in [Effect::Allow, Effect::Ask, Effect::Deny]
            .into_iter()
            .enumerate()
        {
            for (other, conditions) in conditions.iter().enumerate() {
                let mut row = grant(Principal::Project, "read", None);
                row.id = GrantId::from_random((number * 2 + other) as u128);
                (row.effect, row.conditions) = (effect, conditions.map(Into::into));
                assert_eq!(store.put_grant(&row).await.unwrap(), row.id);
                rows.push(row);
            }
        }
        assert_eq!(store.grants(&local()).await.unwrap(), rows);
        assert!(store.changes(&local()).await.unwrap().policy > before);
        // The same once more has the id that it had.
        let mut again = rows[3].clone();
        again.id = GrantId::from_random(99);
        assert_eq!(store.put_grant(&again).await.unwrap(), rows[3].id);
        assert_eq!(store.grants(&local()).await.unwrap().len(), 6);
    })
    .await;
}

#[tokio::test]
async fn a_use_is_kept_and_is_no_change_of_policy() {
    on_each(|store| async move {
        let row = grant(Principal::Project, "read", None);
        store.put_grant(&row).await.unwrap();
        let before = store.changes(&local()).await.unwrap();
        let gone = GrantId::from_random(77);
        for at in [NOON + 5, NOON + 9, NOON + 7] {
            let uses = [(row.id, at), (gone, at)];
            store.note_grant_uses(&local(), &uses).await.unwrap();
        }
        let known = store.grants(&local()).await.unwrap();
        assert_eq!(known[0].last_used_ms, Some(NOON + 9));
        assert_eq!(store.changes(&local()).await.unwrap(), before);
        assert!(store.remove_grant(&local(), row.id).await.unwrap());
        store.put_grant(&row).await.unwrap();
        assert_eq!(store.grants(&local()).await.unwrap()[0].last_used_ms, None);
    })
    .await;
}

#[tokio::test]
async fn grants_that_stay_with_an_agent_keep_their_ids() {
    on_each(|store| async move {
        let agent = AgentRow {
            project: local(),
            name: "one".parse().unwrap(),
            label: String::new(),
            tools: AgentTools::default(),
            users: UserTrust::Asserted,
            limits: Default::default(),
            created_ms: NOON,
        };
        let own = Principal::Agent(agent.name.clone());
        let first = [grant(own.clone(), "a", None), grant(own.clone(), "b", None)];
        store.put_agent(&agent, &first).await.unwrap();
        let mut kept = grant(own.clone(), "b", None);
        kept.id = GrantId::from_random(1234);
        let new = grant(own, "c", None);
        store
            .replace_agent(&agent, &[kept, new.clone()])
            .await
            .unwrap();
        let known = store.grants(&local()).await.unwrap();
        assert_eq!(known, [first[1].clone(), new]);
    })
    .await;
}

#[tokio::test]
async fn groups_are_kept_and_stay_while_grants_name_them() {
    on_each(|store| async move {
        let group = GroupRow {
            project: local(),
            name: "team".into(),
            servers: vec!["files".into(), "db-*".into()],
            created_ms: NOON,
        };
        store.put_group(&group).await.unwrap();
        let again = store.put_group(&group).await.unwrap_err();
        assert!(matches!(again, StoreError::Conflict { .. }), "{again:?}");
        assert_eq!(store.groups(&local()).await.unwrap(), [group]);
        let other = "other".parse().unwrap();
        assert_eq!(store.groups(&other).await.unwrap(), []);
        let before = store.changes(&local()).await.unwrap();
        let servers = ["mail".to_owned()];
        assert!(
            store
                .change_group(&local(), "team", &servers)
                .await
                .unwrap()
        );
        assert!(!store.change_group(&other, "team", &servers).await.unwrap());
        let after = store.changes(&local()).await.unwrap();
        assert!(after.policy > before.policy && after.access > before.access);
        let mut named = grant(Principal::Project, "*", None);
        named.server = "@team".into();
        store.put_grant(&named).await.unwrap();
        let kept = store.remove_group(&local(), "team").await.unwrap_err();
        assert!(matches!(kept, StoreError::Conflict { .. }), "{kept:?}");
        assert!(store.remove_grant(&local(), named.id).await.unwrap());
        assert!(store.remove_group(&local(), "team").await.unwrap());
        assert!(!store.remove_group(&local(), "team").await.unwrap());
    })
    .await;
}
