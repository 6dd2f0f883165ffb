//! The PostgreSQL database itself: opening, racing, refusing, and being away.

use std::thread;
use std::time::Duration;

use gantry_model::diagnose::Diagnose;
use gantry_store::{CallStatus, Store, StoreConfig, StoreError};
use gantry_testkit::cut::Cut;
use gantry_testkit::postgres::PgDatabase;
use gantry_testkit::wait::Stopwatch;

use crate::harness::{ANYWHERE, call, gateway, local, open, server};

fn config(database: &PgDatabase) -> StoreConfig {
    database.url().parse().unwrap()
}

async fn refused(config: &StoreConfig, number: u128) -> StoreError {
    Store::open(config, &gateway(number)).await.unwrap_err()
}

// fault D5: gateways that start at once make one schema.
#[tokio::test]
async fn several_open_the_same_new_database_at_once() {
    let database = PgDatabase::new();
    let config = config(&database);
    let (a, b, c) = tokio::join!(open(&config, 1), open(&config, 2), open(&config, 3));
    let (one, two) = (server(1, "one", "x"), server(2, "two", "x"));
    let (first, second) = tokio::join!(a.put_server(&one), b.put_server(&two));
    first.and(second).unwrap();
    for store in [a, b, c] {
        assert_eq!(store.servers(&local()).await.unwrap().len(), 2);
        store.close().await.unwrap();
        assert!(matches!(store.keys().await, Err(StoreError::Busy { .. })));
    }
}

// fault D5
#[tokio::test]
async fn a_newer_or_foreign_schema_is_refused() {
    let database = PgDatabase::new();
    let config = config(&database);
    open(&config, 1).await.close().await.unwrap();
    database.sql("INSERT INTO kb._sqlx_migrations VALUES (9999, 'x', now(), true, '', 0)");
    let error = refused(&config, 1).await;
    assert!(
        matches!(error, StoreError::Newer { found: 9999, .. }),
        "{error:?}"
    );

    let database = PgDatabase::new();
    database.sql("CREATE SCHEMA kb; CREATE TABLE kb.notes (x int)");
    let error = refused(&self::config(&database), 1).await;
    assert_eq!(error.code(), "store.foreign");
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'kb'";
    assert_eq!(database.sql(tables), "1");

    // A schema that was made for us is taken.
    let database = PgDatabase::new();
    database.sql("CREATE SCHEMA kb");
    open(&self::config(&database), 1)
        .await
        .close()
        .await
        .unwrap();
}

// fault D1
#[tokio::test]
async fn what_keeps_it_from_being_opened_is_explained_without_its_password() {
    let database = PgDatabase::new();
    let port = database.port();
    let absent: StoreConfig = format!("postgres://gantry:s3cret@127.0.0.1:{port}/absent")
        .parse()
        .unwrap();
    let nobody: StoreConfig = "postgres://gantry:s3cret@127.0.0.1:1/x".parse().unwrap();
    for (config, code) in [(absent, "store.refused"), (nobody, "store.unreachable")] {
        let error = refused(&config, 1).await;
        assert_eq!(error.code(), code, "{error:?}");
        assert!(error.hint().is_some());
        let said = format!("{error} {error:?}");
        assert!(
            said.contains("127.0.0.1") && !said.contains("s3cret"),
            "{said}"
        );
    }
    let config = config(&database);
    open(&config, 1).await.close().await.unwrap();
    let name = database.name();
    database.sql(&format!(
        "ALTER DATABASE {name} SET default_transaction_read_only = on"
    ));
    let error = refused(&config, 2).await;
    assert_eq!(error.code(), "store.read_only", "{error:?}");
    // Who was registered before starts, and is told when it writes.
    let store = open(&config, 1).await;
    let error = store.put_server(&server(1, "one", "x")).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    assert_eq!(store.keys().await.unwrap(), []);
}

// fault D1: connections that end, a network that stands still, locks; each is told in time and heals.
#[tokio::test]
async fn a_database_that_is_away_is_told_in_time_and_heals() {
    let database = PgDatabase::new();
    let proxy = Cut::to(database.port());
    let config: StoreConfig = database.url_at(proxy.port()).parse().unwrap();
    let store = open(&config, 1).await;
    let rows = [call(1, CallStatus::Running), call(1, CallStatus::Ok)];
    store.import_calls(&rows, ANYWHERE).await.unwrap();

    // A restart of the server: idle connections are dead, and nobody sees it.
    let name = database.name();
    database.sql(&format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}' \
         AND pid <> pg_backend_pid()"
    ));
    tokio::time::sleep(Duration::from_millis(600)).await;
    store.put_server(&server(1, "one", "x")).await.unwrap();

    proxy.cut();
    let error = store.import_calls(&rows, ANYWHERE).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    proxy.mend();
    store.import_calls(&rows, ANYWHERE).await.unwrap();

    proxy.stall();
    let watch = Stopwatch::start();
    let error = store.keys().await.unwrap_err();
    assert!(error.is_passing(), "{error:?}");
    assert!(
        watch.elapsed() < Duration::from_secs(8),
        "{:?}",
        watch.elapsed()
    );
    proxy.mend();
    assert_eq!(store.keys().await.unwrap(), []);

    let (held, holds) = std::sync::mpsc::channel();
    let holder = thread::spawn({
        let sql = "SELECT pg_advisory_lock(1195462228, 1), pg_sleep(1)".to_owned();
        move || {
            held.send(()).unwrap();
            database.sql(&sql);
            database
        }
    });
    holds.recv().unwrap();
    // Waits for its turn, and has it.
    store.put_server(&server(2, "two", "x")).await.unwrap();
    drop(holder.join().unwrap());
}
