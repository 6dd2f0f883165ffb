//! What happened to servers.

use gantry_model::event::{EventKind, ServerEvent};
use gantry_model::id::ServerName;

use gantry_store::Store;

use crate::harness::{NOON, local, on_each};

async fn newest(store: &Store, server: Option<&ServerName>, limit: u32) -> Vec<ServerEvent> {
    let events = store.events_before(&local(), server, None, limit).await;
    events
        .unwrap()
        .into_iter()
        .map(|(_, event)| event)
        .collect()
}

fn event(number: u64, server: &str, kind: EventKind) -> ServerEvent {
    let server = if server == "native" {
        ServerName::native()
    } else {
        server.parse().unwrap()
    };
    ServerEvent {
        at_ms: NOON + number,
        server,
        kind,
        detail: format!("event {number}"),
    }
}

#[tokio::test]
async fn events_come_back_newest_last() {
    on_each(|store| async move {
        let kinds = [
            EventKind::Registered,
            EventKind::Starting,
            EventKind::Ready,
            EventKind::StartFailed,
            EventKind::Exited,
            EventKind::BackingOff,
            EventKind::HealthWarning,
            EventKind::Unresponsive,
            EventKind::Recovered,
            EventKind::CallTimeout,
            EventKind::CatalogChanged,
            EventKind::ImageChanged,
            EventKind::ProtocolError,
            EventKind::RestartRequested,
            EventKind::Stopped,
            EventKind::Removed,
            EventKind::WrongKeys,
            EventKind::JournalDamaged,
        ];
        let all: Vec<_> = kinds
            .iter()
            .zip(0..)
            .map(|(kind, n)| event(n, "files", *kind))
            .collect();
        let other = event(99, "native", EventKind::Ready);
        let mut batch: Vec<_> = all.iter().map(|event| (local(), event.clone())).collect();
        batch.push((local(), other.clone()));
        batch.push((
            "elsewhere".parse().unwrap(),
            event(100, "files", EventKind::Ready),
        ));
        store.put_events(&[]).await.unwrap();
        store.put_events(&batch).await.unwrap();
        let files: ServerName = "files".parse().unwrap();
        assert_eq!(newest(&store, Some(&files), 100).await, all);
        assert_eq!(newest(&store, Some(&files), 2).await, all[all.len() - 2..]);
        let last = newest(&store, None, 2).await;
        assert_eq!(last, [all[all.len() - 1].clone(), other]);
    })
    .await;
}

#[tokio::test]
async fn the_newest_thousand_events_of_a_server_are_kept() {
    on_each(|store| async move {
        let one = |number| (local(), event(number, "loops", EventKind::Exited));
        let quiet = event(0, "quiet", EventKind::Ready);
        store.put_events(&[(local(), quiet.clone())]).await.unwrap();
        store
            .put_events(&(0..600).map(one).collect::<Vec<_>>())
            .await
            .unwrap();
        store
            .put_events(&(600..1200).map(one).collect::<Vec<_>>())
            .await
            .unwrap();
        let loops: ServerName = "loops".parse().unwrap();
        let kept = newest(&store, Some(&loops), 5000).await;
        assert_eq!((kept.len(), kept[0].at_ms), (1000, NOON + 200));
        assert_eq!(newest(&store, Some(&quiet.server), 10).await, [quiet]);
    })
    .await;
}
