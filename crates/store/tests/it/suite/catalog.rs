//! Remembered catalogs.

use gantry_model::id::ServerId;
use gantry_store::{CatalogPins, CatalogRow, StoreError};

use crate::harness::{local, on_each, server};

fn item(kind: &str, name: &str, position: u32, hash: &str) -> CatalogRow {
    CatalogRow {
        kind: kind.into(),
        name: name.into(),
        position,
        definition: format!("{{ \"name\" : \"{name}\",\n \"x\": 1.0, \"hash\": \"{hash}\" }}"),
        hash: hash.into(),
        version: 0,
    }
}

fn versions(rows: &[CatalogRow]) -> Vec<(&str, u32)> {
    rows.iter()
        .map(|row| (row.name.as_str(), row.version))
        .collect()
}

// row 3.1
#[tokio::test]
async fn versions_count_changes_even_over_an_absence() {
    on_each(|store| async move {
        let id = ServerId::from_random(1);
        store.put_server(&server(1, "files", "x")).await.unwrap();
        assert_eq!(store.load_catalog(id).await.unwrap(), None);

        let read = item("tool", "read", 0, "r1");
        let first = [
            read.clone(),
            item("tool", "write", 1, "w1"),
            item("prompt", "read", 0, "p1"),
        ];
        let saved = store
            .save_catalog(
                id,
                "spec-1",
                r#"{"era":1}"#,
                &first,
                &CatalogPins::default(),
            )
            .await
            .unwrap();
        assert_eq!(versions(&saved), [("read", 1), ("write", 1), ("read", 1)]);
        assert_eq!(saved[0].definition, read.definition);
        let (fingerprint, hello, rows) = store.load_catalog(id).await.unwrap().unwrap();
        assert_eq!(
            (fingerprint.as_str(), hello.as_str()),
            ("spec-1", r#"{"era":1}"#)
        );
        assert_eq!(rows, [saved[2].clone(), saved[0].clone(), saved[1].clone()]);

        let second = [item("tool", "write", 0, "w2")];
        let saved = store
            .save_catalog(id, "spec-1", "{}", &second, &CatalogPins::default())
            .await
            .unwrap();
        assert_eq!(versions(&saved), [("write", 2)]);
        assert_eq!(store.load_catalog(id).await.unwrap().unwrap().2, saved);

        let third = [
            item("tool", "read", 0, "r2"),
            item("tool", "write", 1, "w2"),
        ];
        let saved = store
            .save_catalog(id, "spec-2", "{}", &third, &CatalogPins::default())
            .await
            .unwrap();
        assert_eq!(versions(&saved), [("read", 2), ("write", 2)]);
        let (fingerprint, _, rows) = store.load_catalog(id).await.unwrap().unwrap();
        assert_eq!((fingerprint.as_str(), rows), ("spec-2", saved));
    })
    .await;
}

#[tokio::test]
async fn of_two_items_with_one_name_the_first_counts() {
    on_each(|store| async move {
        let id = ServerId::from_random(1);
        store.put_server(&server(1, "files", "x")).await.unwrap();
        let rows = [item("tool", "read", 0, "a"), item("tool", "read", 1, "b")];
        for _ in 0..2 {
            let saved = store
                .save_catalog(id, "f", "{}", &rows, &CatalogPins::default())
                .await
                .unwrap();
            assert_eq!(
                (saved.len(), saved[0].hash.as_str(), saved[0].version),
                (1, "a", 1)
            );
        }
        assert_eq!(store.load_catalog(id).await.unwrap().unwrap().2.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn what_is_long_gone_is_forgotten() {
    on_each(|store| async move {
        let id = ServerId::from_random(1);
        store.put_server(&server(1, "files", "x")).await.unwrap();
        let all: Vec<_> = (0..1500)
            .map(|n| item("tool", &format!("t{n:04}"), n, "a"))
            .collect();
        store
            .save_catalog(id, "f", "{}", &all, &CatalogPins::default())
            .await
            .unwrap();
        store
            .save_catalog(id, "f", "{}", &[], &CatalogPins::default())
            .await
            .unwrap();
        let changed: Vec<_> = all
            .iter()
            .map(|row| CatalogRow {
                hash: "b".into(),
                ..row.clone()
            })
            .collect();
        let saved = store
            .save_catalog(id, "f", "{}", &changed, &CatalogPins::default())
            .await
            .unwrap();
        assert_eq!(saved.iter().filter(|row| row.version == 2).count(), 1000);
        assert_eq!(saved.iter().filter(|row| row.version == 1).count(), 500);
    })
    .await;
}

// fault D7
#[tokio::test]
async fn a_catalog_goes_with_its_server() {
    on_each(|store| async move {
        let id = ServerId::from_random(1);
        let rows = [item("tool", "read", 0, "a")];
        let error = store
            .save_catalog(id, "f", "{}", &rows, &CatalogPins::default())
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error:?}");
        store.put_server(&server(1, "files", "x")).await.unwrap();
        store
            .save_catalog(id, "f", "{}", &rows, &CatalogPins::default())
            .await
            .unwrap();
        store.remove_server(&local(), id).await.unwrap();
        assert_eq!(store.load_catalog(id).await.unwrap(), None);
        store.put_server(&server(1, "files", "x")).await.unwrap();
        assert_eq!(store.load_catalog(id).await.unwrap(), None);
    })
    .await;
}
