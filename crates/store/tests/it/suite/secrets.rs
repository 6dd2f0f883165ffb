//! Sealed values.

use gantry_store::SealedRow;

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
