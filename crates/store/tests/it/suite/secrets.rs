//! Sealed values.

use gantry_store::{SealedRow, SecretRow};

use crate::harness::{local, on_each, server};

fn sealed(scope: &str, name: &str, byte: u8) -> SealedRow {
    SealedRow {
        project: local(),
        scope: scope.to_owned(),
        name: name.to_owned(),
        key_id: "k".to_owned(),
        nonce: vec![byte; 24],
        ciphertext: vec![byte; 40],
        version: 1,
    }
}

fn named(name: &str, version: u32) -> SecretRow {
    let byte = u8::try_from(version).unwrap();
    SecretRow {
        sealed: SealedRow {
            version,
            ..sealed("", name, byte)
        },
        fingerprint: format!("print {version}"),
        created_ms: 0,
        updated_ms: 0,
        used_ms: None,
        used_by: None,
    }
}

#[tokio::test]
async fn a_named_secret_is_replaced_only_in_the_version_that_was_read() {
    on_each(|store| async move {
        assert!(!store.has_sealed().await.unwrap());
        let before = store.changes(&local()).await.unwrap().servers;
        assert!(store.put_secret(&named("T", 1), 0).await.unwrap());
        assert!(!store.put_secret(&named("T", 1), 0).await.unwrap());
        assert!(store.put_secret(&named("T", 2), 1).await.unwrap());
        assert!(!store.put_secret(&named("T", 2), 1).await.unwrap());
        assert!(store.has_sealed().await.unwrap());
        // Other gateways hear of it.
        let after = store.changes(&local()).await.unwrap().servers;
        assert_ne!(before, after);
        let server = "files".parse().unwrap();
        let names = ["T".to_owned(), "absent".to_owned()];
        let project = local();
        let noted = store.note_secrets_used(&project, &names, &server, 7);
        noted.await.unwrap();
        let rows = store.secrets(&local()).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].sealed, named("T", 2).sealed);
        assert_eq!(rows[0].fingerprint, "print 2");
        assert_eq!(
            (rows[0].used_ms, rows[0].used_by.as_deref()),
            (Some(7), Some("files"))
        );
        let now = store.changes(&local()).await.unwrap().servers;
        assert_eq!(now, after, "a use changes nothing");
        let others = store.secrets(&"other".parse().unwrap()).await.unwrap();
        assert_eq!(others, []);
    })
    .await;
}

// fault K6
#[tokio::test]
async fn one_master_key_is_in_use_and_another_takes_everything_over() {
    on_each(|store| async move {
        assert_eq!(store.master_key().await.unwrap(), None);
        store.put_master_key("one").await.unwrap();
        store.put_master_key("two").await.unwrap();
        assert_eq!(store.master_key().await.unwrap().as_deref(), Some("one"));
        store.put_secret(&named("T", 1), 0).await.unwrap();
        let mut row = store.all_sealed().await.unwrap().remove(0);
        row.key_id = "two".to_owned();
        row.ciphertext = vec![9; 40];
        let rows = [(row.clone(), Some("print".to_owned()))];
        store.reseal(&rows, &[], "two").await.unwrap();
        assert_eq!(store.master_key().await.unwrap().as_deref(), Some("two"));
        assert_eq!(store.all_sealed().await.unwrap(), [row]);
        store.reseal(&[], &[], "one").await.unwrap();
        assert_eq!(store.master_key().await.unwrap().as_deref(), Some("one"));
    })
    .await;
}

#[tokio::test]
async fn sealed_values_are_kept_replaced_and_removed_with_their_server() {
    on_each(|store| async move {
        let row = server(1, "files", "x");
        store.put_server(&row).await.unwrap();
        let scope = row.id.to_string();
        store.put_sealed(&sealed(&scope, "a", 1)).await.unwrap();
        store.put_sealed(&sealed(&scope, "a", 2)).await.unwrap();
        store.put_sealed(&sealed(&scope, "b", 3)).await.unwrap();
        store.put_sealed(&sealed("other", "a", 4)).await.unwrap();
        let read = store.sealed(&local(), &scope, "a").await.unwrap();
        assert_eq!(read, Some(sealed(&scope, "a", 2)), "the later one");
        assert!(store.remove_sealed(&local(), &scope, "a").await.unwrap());
        assert!(!store.remove_sealed(&local(), &scope, "a").await.unwrap());
        assert_eq!(store.sealed(&local(), &scope, "a").await.unwrap(), None);
        assert!(store.remove_server(&local(), row.id).await.unwrap());
        assert_eq!(store.sealed(&local(), &scope, "b").await.unwrap(), None);
        let kept = store.sealed(&local(), "other", "a").await.unwrap();
        assert_eq!(kept, Some(sealed("other", "a", 4)), "not its own");
    })
    .await;
}
