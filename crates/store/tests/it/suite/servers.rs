//! Projects, agents and servers.

use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::ServerId;
use gantry_store::StoreError;

use crate::harness::{NOON, local, on_each, server};

// row 0.1
#[tokio::test]
async fn a_server_comes_back_as_it_was_registered() {
    on_each(|store| async move {
        let mut row = server(7, "files", "npx");
        row.spec.description = Some("reads «files» 🗂".into());
        row.enabled = false;
        store.put_server(&row).await.unwrap();
        assert_eq!(store.servers(&local()).await.unwrap(), [row]);
        assert_eq!(store.servers(&"other".parse().unwrap()).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn servers_are_listed_in_the_order_of_their_configuration() {
    on_each(|store| async move {
        let mut early = server(1, "early", "x");
        early.created_ms = NOON - 1;
        let rows = [
            server(9, "z", "x"),
            server(8, "a", "x"),
            server(7, "m", "x"),
            early,
        ];
        for row in &rows {
            store.put_server(row).await.unwrap();
        }
        let mut again = server(8, "a", "other");
        again.created_ms = NOON + 50;
        store.replace_server(&again).await.unwrap();
        let names = store.servers(&local()).await.unwrap();
        let names: Vec<_> = names.iter().map(|row| row.spec.name.as_str()).collect();
        assert_eq!(names, ["early", "z", "a", "m"]);
    })
    .await;
}

// fault D7
#[tokio::test]
async fn of_two_registrations_at_once_one_wins() {
    on_each(|store| async move {
        let (first, second) = (server(1, "files", "x"), server(2, "files", "y"));
        let (a, b) = tokio::join!(store.put_server(&first), store.put_server(&second));
        let error = match (a, b) {
            (Ok(()), Err(error)) | (Err(error), Ok(())) => error,
            other => panic!("{other:?}"),
        };
        assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "server `files` in project `local` exists already"
        );
        assert_eq!(
            (error.code(), error.fault()),
            ("store.conflict", Fault::Client)
        );
        assert_eq!(store.servers(&local()).await.unwrap().len(), 1);
        let mut elsewhere = server(3, "files", "x");
        elsewhere.project = "other".parse().unwrap();
        store.put_server(&elsewhere).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn replacing_changes_the_spec_and_keeps_the_place() {
    on_each(|store| async move {
        let row = server(1, "files", "x");
        store.replace_server(&row).await.unwrap();
        let mut same = row.clone();
        same.updated_ms = NOON + 1;
        store.replace_server(&same).await.unwrap();
        assert_eq!(
            store.servers(&local()).await.unwrap(),
            std::slice::from_ref(&row)
        );

        let mut changed = server(1, "files", "y");
        changed.updated_ms = NOON + 2;
        store.replace_server(&changed).await.unwrap();
        assert_eq!(
            store.servers(&local()).await.unwrap(),
            std::slice::from_ref(&changed)
        );

        let mut renewed = changed.clone();
        renewed.id = ServerId::from_random(2);
        renewed.created_ms = NOON + 3;
        store
            .save_catalog(
                changed.id,
                "f",
                "{}",
                &[],
                &gantry_store::CatalogPins::default(),
            )
            .await
            .unwrap();
        store.replace_server(&renewed).await.unwrap();
        let stored = store.servers(&local()).await.unwrap();
        assert_eq!((stored[0].id, stored[0].created_ms), (renewed.id, NOON));
        assert_eq!(store.load_catalog(changed.id).await.unwrap(), None);

        let stolen = server(2, "elsewhere", "x");
        let error = store.replace_server(&stolen).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
    })
    .await;
}

#[tokio::test]
async fn a_server_is_removed_by_its_own_project_only() {
    on_each(|store| async move {
        let row = server(1, "files", "x");
        store.put_server(&row).await.unwrap();
        assert!(
            !store
                .remove_server(&"other".parse().unwrap(), row.id)
                .await
                .unwrap()
        );
        assert!(store.remove_server(&local(), row.id).await.unwrap());
        assert!(!store.remove_server(&local(), row.id).await.unwrap());
        assert_eq!(store.servers(&local()).await.unwrap(), []);
        store.put_server(&row).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_project_is_made_known_once() {
    on_each(|store| async move {
        for name in ["other", "local", "other"] {
            store.ensure_project(&name.parse().unwrap()).await.unwrap();
        }
        let known = store.projects().await.unwrap();
        assert_eq!(known, [local(), "other".parse().unwrap()]);
        store.sync().await.unwrap();
    })
    .await;
}
