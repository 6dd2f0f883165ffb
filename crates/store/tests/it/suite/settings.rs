//! Settings of projects.

use serde_json::json;

use crate::harness::{local, on_each};

#[tokio::test]
async fn settings_are_changed_together_and_move_their_revision() {
    on_each(|store| async move {
        let (project, other) = (local(), "other".parse().unwrap());
        let revision = async || store.changes(&project).await.unwrap().settings;
        assert!(store.settings(&project).await.unwrap().is_empty());
        let first = revision().await;
        let changes = [
            ("a".to_owned(), Some(json!(["x"]))),
            ("b".to_owned(), Some(json!(7))),
        ];
        store.change_settings(&project, &changes).await.unwrap();
        let known = store.settings(&project).await.unwrap();
        assert_eq!(
            known,
            [("a".to_owned(), json!(["x"])), ("b".to_owned(), json!(7))]
        );
        let second = revision().await;
        assert!(second > first);
        // The same again is no change.
        store.change_settings(&project, &changes).await.unwrap();
        assert_eq!(revision().await, second);
        let back = [("a".to_owned(), None), ("c".to_owned(), None)];
        store.change_settings(&project, &back).await.unwrap();
        let known = store.settings(&project).await.unwrap();
        assert_eq!(known, [("b".to_owned(), json!(7))]);
        assert!(revision().await > second);
        assert!(store.settings(&other).await.unwrap().is_empty());
    })
    .await;
}
