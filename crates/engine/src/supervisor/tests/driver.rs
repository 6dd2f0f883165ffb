//! A server whose driver is no process: the runner and the stdio transport need nothing else of it.

use super::*;
use crate::driver::fake::{FakeDriver, FakeHost, fake_spec};

// row 1.14
#[tokio::test]
async fn a_server_of_any_driver_is_started_called_restarted_and_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let driver = Arc::new(FakeDriver(FakeHost::default()));
    let supervisor = supervisor_on(driver, folder.path(), &Arc::default()).await;
    let mut spec = fake_spec(&["mcp"]);
    spec.start = Start::Eager;
    let handle = supervisor.register(spec).await.unwrap();
    let mut status = handle.status.clone();
    let ready = |generation| {
        move |status: &crate::server::status::ServerStatus| {
            status.state == ServerState::Ready && status.generation > generation
        }
    };
    let first = tokio::time::timeout(LONG, status.wait_for(ready(0))).await;
    let first = first.unwrap().unwrap().clone();
    let isolation = first.isolation.unwrap();
    assert_eq!(
        (isolation.provider, first.transport),
        ("fake", Some("stdio"))
    );
    assert_eq!((first.tools, first.pid), (1, None));
    assert_eq!((handle.usage)().unwrap().pids, 1);

    let answer = slow(&handle, 1).await.answer().await;
    assert!(matches!(answer, Answer::Result(_)));

    supervisor.restart(handle.name.as_str()).await.unwrap();
    let again = tokio::time::timeout(LONG, status.wait_for(ready(first.generation))).await;
    assert!(again.unwrap().unwrap().generation > first.generation);
    let removed = tokio::time::timeout(LONG, supervisor.remove("fake")).await;
    assert!(removed.unwrap().unwrap());
    assert!((handle.usage)().is_none());
}
