//! Projects, what is suspended in them, what waits for a second person, and products.

use gantry_model::caller::Role;
use gantry_model::suspension::{Suspendable, Suspension};
use gantry_store::{ProductRow, RegistrationRow, RegistrationState, StoreError};
use serde_json::json;

use crate::harness::{NOON, local, on_each, server};

// fault T9
#[tokio::test]
async fn a_project_is_made_unloaded_and_removed_with_what_it_owns() {
    on_each(|store| async move {
        let acme = "acme".parse().unwrap();
        let first = store.projects_revision().await.unwrap();
        assert!(store.create_project(&acme, "tenant").await.unwrap());
        assert!(!store.create_project(&acme, "again").await.unwrap());
        assert!(store.projects_revision().await.unwrap() > first);
        let mut row = server(1, "files", "x");
        row.project = acme.clone();
        store.put_server(&row).await.unwrap();
        store.put_server(&server(2, "files", "x")).await.unwrap();
        assert!(store.set_project_loaded(&acme, false).await.unwrap());
        assert!(!store.set_project_loaded(&acme, false).await.unwrap());
        assert!(store.describe_project(&acme, "other words").await.unwrap());
        let rows = store.project_rows().await.unwrap();
        let known = rows.iter().find(|row| row.name == acme).unwrap();
        assert_eq!(
            (known.loaded, known.description.as_str()),
            (false, "other words")
        );
        assert!(!store.has_record(&acme).await.unwrap());
        let second = store.projects_revision().await.unwrap();
        assert!(store.remove_project(&acme).await.unwrap());
        assert!(!store.remove_project(&acme).await.unwrap());
        assert!(store.projects_revision().await.unwrap() > second);
        assert!(store.servers(&acme).await.unwrap().is_empty());
        assert_eq!(store.servers(&local()).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_suspension_is_kept_once_and_moves_its_revision() {
    on_each(|store| async move {
        let project = local();
        let what = Suspendable::new("tool", "files:delete").unwrap();
        let suspension = Suspension {
            reason: "incident".to_owned(),
            by: "admin".to_owned(),
            at_ms: NOON,
            role: Some(Role::Admin),
        };
        let revision = async || store.changes(&project).await.unwrap();
        let first = revision().await;
        assert!(store.suspend(&project, &what, &suspension).await.unwrap());
        let mut later = suspension.clone();
        later.by = "other".to_owned();
        assert!(!store.suspend(&project, &what, &later).await.unwrap());
        assert_eq!(
            store.suspensions(&project).await.unwrap(),
            [(what.clone(), suspension)]
        );
        let second = revision().await;
        assert!(second.suspensions > first.suspensions && second.access > first.access);
        assert!(
            store
                .suspensions(&"other".parse().unwrap())
                .await
                .unwrap()
                .is_empty()
        );
        assert!(store.resume(&project, &what).await.unwrap());
        assert!(!store.resume(&project, &what).await.unwrap());
        assert!(store.suspensions(&project).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_registration_is_decided_once_and_forgets_what_it_asked_for() {
    on_each(|store| async move {
        let project = local();
        store.ensure_project(&project).await.unwrap();
        let row = RegistrationRow {
            id: "reg_1".to_owned(),
            project: project.clone(),
            act: "server.register".to_owned(),
            target: "files".to_owned(),
            request: "sealed".to_owned(),
            shown: json!({"command": "npx"}),
            reasons: vec!["local".to_owned()],
            asked_key: "key_1".to_owned(),
            asked_by: "admin".to_owned(),
            asked_ms: NOON,
            state: RegistrationState::Pending,
            decided_by: None,
            decided_ms: None,
        };
        store.put_registration(&row).await.unwrap();
        assert_eq!(
            store.registrations(&project, 10).await.unwrap(),
            std::slice::from_ref(&row)
        );
        let other = "other".parse().unwrap();
        let decide = async |project| {
            let state = RegistrationState::Approved;
            let decided = store.decide_registration(project, "reg_1", state, "second", NOON + 1);
            decided.await.unwrap()
        };
        assert!(!decide(&other).await);
        assert!(decide(&project).await);
        assert!(!decide(&project).await);
        let known = store.registrations(&project, 10).await.unwrap().remove(0);
        assert_eq!(
            (known.state, known.request.as_str()),
            (RegistrationState::Approved, "")
        );
        assert_eq!(known.decided_by.as_deref(), Some("second"));
        store.reopen_registration(&row).await.unwrap();
        assert_eq!(store.registrations(&project, 10).await.unwrap(), [row]);
    })
    .await;
}

// row 0.2
#[tokio::test]
async fn a_product_and_its_servers_are_put_together_or_not_at_all() {
    on_each(|store| async move {
        let project = local();
        let mut product = ProductRow {
            id: "product_1".to_owned(),
            project: project.clone(),
            name: "suite".to_owned(),
            version: "1".to_owned(),
            manifest: "name: suite".to_owned(),
            hash: "aa".to_owned(),
            created_ms: NOON,
            updated_ms: NOON,
        };
        let alone = server(9, "taken", "x");
        store.put_server(&alone).await.unwrap();
        // One of its names is another's: nothing of it stays.
        let put = [server(1, "one", "x"), server(2, "taken", "y")];
        let refused = store.put_product(&product, &put, &[]).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::Conflict { .. }),
            "{refused:?}"
        );
        assert!(store.products(&project).await.unwrap().is_empty());
        assert_eq!(
            store.servers(&project).await.unwrap(),
            std::slice::from_ref(&alone)
        );
        let put = [server(1, "one", "x"), server(2, "two", "x")];
        store.put_product(&product, &put, &[]).await.unwrap();
        assert_eq!(store.products(&project).await.unwrap(), [product.clone()]);
        let owned = |id: u128| (put[id as usize - 1].id, "product_1".to_owned());
        let mut servers = store.product_servers(&project).await.unwrap();
        servers.sort();
        assert_eq!(servers, [owned(1), owned(2)]);
        // An upgrade changes one, adds one and removes one.
        (product.version, product.hash) = ("2".to_owned(), "bb".to_owned());
        let changed = [server(2, "two", "z"), server(3, "three", "x")];
        let gone = [put[0].id];
        store.put_product(&product, &changed, &gone).await.unwrap();
        let names = store.servers(&project).await.unwrap();
        let mut names: Vec<_> = names.iter().map(|row| row.spec.name.to_string()).collect();
        names.sort();
        assert_eq!(names, ["taken", "three", "two"]);
        assert_eq!(store.products(&project).await.unwrap(), [product]);
        assert!(store.remove_product(&project, "product_1").await.unwrap());
        assert!(!store.remove_product(&project, "product_1").await.unwrap());
        assert_eq!(store.servers(&project).await.unwrap(), [alone]);
    })
    .await;
}
