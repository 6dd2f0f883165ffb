//! Agents with their grants and tool filters.

use gantry_model::caller::{KeyKind, UserTrust};
use gantry_model::grant::{Effect, Principal};
use gantry_model::id::{GrantId, KeyId};
use gantry_store::{AgentRow, AgentTools, GrantRow, KeyRow, StoreError};

use crate::harness::{NOON, local, on_each};

fn agent(name: &str, include: &[&str]) -> AgentRow {
    AgentRow {
        project: local(),
        name: name.parse().unwrap(),
        label: format!("the {name}"),
        tools: AgentTools {
            include: include.iter().map(|text| (*text).to_owned()).collect(),
            exclude: vec!["*:delete_*".into()],
        },
        users: (name == "one").into(),
        limits: serde_json::from_str(r#"{"calls_per_hour":9}"#).unwrap(),
        created_ms: NOON,
    }
}

fn grant(principal: Principal, server: &str) -> GrantRow {
    let text = format!("{principal} {server}");
    let number = text.bytes().fold(1_u128, |number, byte| {
        number.wrapping_mul(31).wrapping_add(u128::from(byte))
    });
    GrantRow {
        project: local(),
        principal,
        server: server.into(),
        item: "*".into(),
        alias: None,
        id: GrantId::from_random(number),
        effect: Effect::Allow,
        conditions: None,
        created_ms: NOON,
        last_used_ms: None,
    }
}

// row 2.16
#[tokio::test]
async fn an_agent_is_kept_changed_and_removed_with_all_that_is_its_own() {
    on_each(|store| async move {
        let (one, other) = (agent("one", &["files:*"]), agent("other", &[]));
        let of_one = Principal::Agent(one.name.clone());
        let of_other = grant(Principal::Agent(other.name.clone()), "files");
        let first = grant(of_one.clone(), "files");
        store.put_agent(&one, &[first]).await.unwrap();
        store
            .put_agent(&other, std::slice::from_ref(&of_other))
            .await
            .unwrap();
        let error = store.put_agent(&one, &[]).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
        assert_eq!(
            store.agents(&local()).await.unwrap(),
            [one.clone(), other.clone()]
        );

        let changed = AgentRow {
            label: "anew".into(),
            tools: AgentTools::default(),
            users: UserTrust::Asserted,
            ..one.clone()
        };
        let second = grant(of_one, "mail");
        assert!(
            store
                .replace_agent(&changed, std::slice::from_ref(&second))
                .await
                .unwrap()
        );
        assert_eq!(
            store.agents(&local()).await.unwrap(),
            [changed, other.clone()]
        );
        assert_eq!(
            store.grants(&local()).await.unwrap(),
            [second, of_other.clone()]
        );
        assert!(
            !store
                .replace_agent(&agent("nobody", &[]), &[])
                .await
                .unwrap()
        );

        let key = KeyRow {
            id: KeyId::from_random(7),
            project: local(),
            agent: one.name.clone(),
            kind: KeyKind::Agent,
            digest: [7; 32],
            label: String::new(),
            created_ms: NOON,
            revoked_ms: None,
            expires_ms: None,
            sources: Vec::new(),
            limits: Default::default(),
            replaces: None,
        };
        store.put_key(&key).await.unwrap();
        store
            .put_first(&[grant(Principal::Key(key.id), "key's")], &[])
            .await
            .unwrap();
        assert!(store.remove_agent(&local(), &one.name).await.unwrap());
        assert!(!store.remove_agent(&local(), &one.name).await.unwrap());
        assert_eq!(store.agents(&local()).await.unwrap(), [other]);
        assert_eq!(store.grants(&local()).await.unwrap(), [of_other]);
        assert_eq!(store.keys().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn an_agent_that_a_key_made_known_has_no_filter() {
    on_each(|store| async move {
        let key = KeyRow {
            id: KeyId::from_random(7),
            project: local(),
            agent: "late".parse().unwrap(),
            kind: KeyKind::Agent,
            digest: [7; 32],
            label: String::new(),
            created_ms: NOON,
            revoked_ms: None,
            expires_ms: None,
            sources: Vec::new(),
            limits: Default::default(),
            replaces: None,
        };
        store.put_key(&key).await.unwrap();
        let agents = store.agents(&local()).await.unwrap();
        assert_eq!(agents.len(), 1);
        assert_eq!(agents[0].tools, AgentTools::default());
        assert_eq!(agents[0].label, "");
    })
    .await;
}
