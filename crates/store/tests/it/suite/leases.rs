//! Leases.

use gantry_model::id::ServerId;
use gantry_store::StoreError;

use crate::harness::{local, on_each, server};

const FAR: u64 = 32_503_680_000_000;
const PAST: u64 = 1_000;

#[tokio::test]
async fn a_server_has_one_owner_at_a_time() {
    on_each(|store| async move {
        let id = ServerId::from_random(1);
        let error = store
            .take_lease(&local(), id, "a", 1, FAR)
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error:?}");
        store.put_server(&server(1, "files", "x")).await.unwrap();
        let project = local();
        let take =
            |holder, generation, until| store.take_lease(&project, id, holder, generation, until);
        assert!(take("a", 1, FAR).await.unwrap());
        assert!(!take("b", 9, FAR).await.unwrap(), "held by another");
        assert!(take("a", 1, FAR).await.unwrap(), "renewed");
        assert!(take("a", 2, FAR).await.unwrap(), "a later generation");
        assert!(!take("a", 1, FAR).await.unwrap(), "an earlier generation");
        assert!(take("a", 2, PAST).await.unwrap(), "let go");
        assert!(take("b", 1, FAR).await.unwrap(), "taken over");
        assert!(!take("a", 3, FAR).await.unwrap(), "lost");
        store.remove_server(&local(), id).await.unwrap();
        store.put_server(&server(1, "files", "x")).await.unwrap();
        assert!(take("c", 1, FAR).await.unwrap(), "gone with its server");
    })
    .await;
}
