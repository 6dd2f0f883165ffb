//! Administrative acts.

use gantry_model::id::CallId;
use gantry_store::{
    ActFilter, ActOutcome, ActRow, ChainHead, Entry, Place, SignedBlock, Store, StoreError,
};

use crate::harness::{NOON, block, on_each};

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

/// A block over one act, which replaces what the block `old` covers.
fn block_of(store: &Store, number: u64, act: u64, old: Option<u64>) -> (SignedBlock, ChainHead) {
    let (mut signed, head) = block(store, number);
    signed.entries.push(&Entry {
        id: CallId::from_bits(u128::from(act)),
        digest: [7; 32],
        salt: [1; 16],
    });
    (signed.block.count, signed.live) = (1, 1);
    let places = old.map(|block| Place {
        gateway: head.gateway,
        block,
        entry: 0,
    });
    signed.block.removed = places.into_iter().collect();
    (signed, head)
}

async fn only(store: &Store) -> ActRow {
    let rows = store.acts(&ActFilter::default()).await.unwrap();
    let [row] = rows.try_into().unwrap();
    row
}

// What was begun and never ended is told apart from what was done. fault D2: an act and the block that
// covers it are written together or not at all.
#[tokio::test]
async fn an_act_is_written_before_its_effect_and_changed_after_it() {
    on_each(|store| async move {
        // Begun and given up: nothing is there.
        let open = store.begin_act(&act(1, "agent.change"), 1).await.unwrap();
        drop(open);
        assert_eq!(store.acts(&ActFilter::default()).await.unwrap(), []);
        let open = store.begin_act(&act(1, "agent.change"), 1).await.unwrap();
        let id = open.id();
        let (block, head) = block_of(&store, 1, id, None);
        open.cover(&block, &head).await.unwrap();
        let begun = only(&store).await;
        let written = ActRow {
            id,
            ..act(1, "agent.change")
        };
        assert_eq!(begun, written);
        assert_eq!(begun.outcome, ActOutcome::Unfinished);
        let ended = ActRow {
            ended_ms: Some(NOON + 9),
            outcome: ActOutcome::Failed,
            code: Some("store.full".into()),
            target: "key_7".into(),
            after: Some("{}".into()),
            repeats: 5,
            ..begun
        };
        let (block, head) = block_of(&store, 2, id, Some(1));
        let change = store.change_act(&ended, 1, (&block, &head), false);
        change.await.unwrap();
        assert_eq!(only(&store).await, ended);
        assert_eq!(store.chain_head().await.unwrap().unwrap().number, 2);
        // Its former state has no salt any more, and no entry.
        let gateway = store.chain_origin().gateway;
        let former = store.block_entries(gateway, 1).await.unwrap();
        assert!(former.unwrap().is_empty());
        // What another block covers is not changed, and no block says so.
        let (block, head) = block_of(&store, 3, id, Some(1));
        let late = store.change_act(&ended, 1, (&block, &head), true).await;
        assert!(matches!(late, Err(StoreError::NotFound { .. })), "{late:?}");
        assert_eq!(store.chain_head().await.unwrap().unwrap().number, 2);
        let (block, head) = block_of(&store, 3, id, Some(2));
        let surplus = [(id, gateway, Some(2))];
        store.drop_acts(&surplus, &block, &head).await.unwrap();
        assert_eq!(store.count_acts("").await.unwrap(), 0);
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
