//! Grants.

use gantry_model::id::KeyId;
use gantry_store::{GrantRow, Principal};

use crate::harness::{local, on_each};

fn grant(principal: Principal, item: &str, alias: Option<&str>) -> GrantRow {
    GrantRow {
        project: local(),
        principal,
        server: "files".into(),
        item: item.into(),
        alias: alias.map(Into::into),
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
            store.put_first(row, &[]).await.unwrap();
        }
        assert_eq!(store.grants(&local()).await.unwrap(), rows);
        assert_eq!(store.grants(&"other".parse().unwrap()).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_second_grant_of_the_same_item_sets_its_alias() {
    on_each(|store| async move {
        for alias in [Some("one"), Some("one"), None, Some("two")] {
            store
                .put_first(&grant(Principal::Project, "read", alias), &[])
                .await
                .unwrap();
        }
        let expected = grant(Principal::Project, "read", Some("two"));
        assert_eq!(store.grants(&local()).await.unwrap(), [expected]);
    })
    .await;
}
