//! Administrative acts.

use gantry_store::{ActEnd, ActFilter, ActOutcome, ActRow, Store};

use crate::harness::{NOON, on_each};

fn act(number: u64, name: &str) -> ActRow {
    ActRow {
        at_ms: NOON + number,
        key: format!("key_{number}"),
        actor: "operator".into(),
        address: Some("127.0.0.1".into()),
        via: "rest".into(),
        act: name.into(),
        target: format!("target-{number}"),
        before: Some(r#"{"grants":[]}"#.into()),
        after: Some(r#"{"grants":["*"]}"#.into()),
        repeats: 1,
        ..ActRow::default()
    }
}

async fn numbers(store: &Store, filter: ActFilter) -> Vec<u64> {
    let rows = store.acts(&filter).await.unwrap();
    rows.iter().map(|row| row.at_ms - NOON).collect()
}

// What was begun and never ended is told apart from what was done.
#[tokio::test]
async fn an_act_is_written_before_its_effect_and_ended_after_it() {
    on_each(|store| async move {
        let id = store.put_act(&act(1, "agent.change")).await.unwrap();
        let [begun] = store
            .acts(&ActFilter::default())
            .await
            .unwrap()
            .try_into()
            .unwrap();
        assert_eq!(
            begun,
            ActRow {
                id,
                ..act(1, "agent.change")
            }
        );
        assert_eq!(begun.outcome, ActOutcome::Unfinished);
        let mut end = ActEnd {
            at_ms: NOON + 9,
            outcome: ActOutcome::Failed,
            code: Some("store.full".into()),
            target: None,
            after: None,
        };
        store.end_act(id, &end).await.unwrap();
        let [ended] = store
            .acts(&ActFilter::default())
            .await
            .unwrap()
            .try_into()
            .unwrap();
        assert_eq!(
            (ended.outcome, ended.ended_ms),
            (end.outcome, Some(end.at_ms))
        );
        assert_eq!((ended.code, ended.target), (end.code.clone(), begun.target));
        assert_eq!(ended.after, begun.after, "what an end does not know stays");
        (end.target, end.after) = (Some("key_7".into()), Some("{}".into()));
        store.end_act(id, &end).await.unwrap();
        store.repeat_act(id, 4, NOON + 10).await.unwrap();
        let [ended] = store
            .acts(&ActFilter::default())
            .await
            .unwrap()
            .try_into()
            .unwrap();
        assert_eq!(
            (ended.target.as_str(), ended.after.as_deref()),
            ("key_7", Some("{}"))
        );
        assert_eq!((ended.repeats, ended.ended_ms), (5, Some(NOON + 10)));
    })
    .await;
}

#[tokio::test]
async fn acts_are_found_by_what_they_are() {
    on_each(|store| async move {
        for (number, name) in [
            (1, "agent.change"),
            (2, "agent.remove"),
            (3, "server.remove"),
            (4, "server.remove"),
        ] {
            let mut row = act(number, name);
            if number == 4 {
                (row.outcome, row.actor, row.address) =
                    (ActOutcome::Refused, "reader".into(), None);
            }
            store.put_act(&row).await.unwrap();
        }
        let any = ActFilter::default;
        let some = |text: &str| Some(text.to_owned());
        for (filter, found) in [
            (any(), vec![4, 3, 2, 1]),
            (
                ActFilter {
                    act: some("agent.*"),
                    ..any()
                },
                vec![2, 1],
            ),
            (
                ActFilter {
                    act: some("server.remove"),
                    ..any()
                },
                vec![4, 3],
            ),
            (
                ActFilter {
                    act: some("server"),
                    ..any()
                },
                vec![],
            ),
            (
                ActFilter {
                    target: some("target-2"),
                    ..any()
                },
                vec![2],
            ),
            (
                ActFilter {
                    key: some("key_3"),
                    ..any()
                },
                vec![3],
            ),
            (
                ActFilter {
                    actor: some("reader"),
                    ..any()
                },
                vec![4],
            ),
            (
                ActFilter {
                    address: some("127.0.0.1"),
                    ..any()
                },
                vec![3, 2, 1],
            ),
            (
                ActFilter {
                    via: some("file"),
                    ..any()
                },
                vec![],
            ),
            (
                ActFilter {
                    outcome: Some(ActOutcome::Refused),
                    ..any()
                },
                vec![4],
            ),
            (
                ActFilter {
                    since_ms: Some(NOON + 2),
                    until_ms: Some(NOON + 4),
                    ..any()
                },
                vec![3, 2],
            ),
            (ActFilter { limit: 2, ..any() }, vec![4, 3]),
        ] {
            assert_eq!(numbers(&store, filter.clone()).await, found, "{filter:?}");
        }
        let last = store.acts(&ActFilter { limit: 2, ..any() }).await.unwrap()[1].id;
        assert_eq!(
            numbers(
                &store,
                ActFilter {
                    before: Some(last),
                    ..any()
                }
            )
            .await,
            [2, 1]
        );
    })
    .await;
}
