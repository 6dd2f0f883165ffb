//! What administrators and files change: all of it or nothing, one process per name, secrets unstored.

use std::path::Path;
use std::time::Duration;

use gantry_engine::{Engine, EngineConfig, EngineError, Startup};
use gantry_model::caller::Caller;
use gantry_model::spec::{ProcessLaunch, Profile, ServerSpec, Source, Start};
use gantry_testkit::procs;
use tokio::time::{Instant, timeout};

const LONG: Duration = Duration::from_secs(20);

/// A lazy server of a file, which nobody ever starts.
fn of_file(name: &str, variable: &str) -> ServerSpec {
    let launch = ProcessLaunch {
        command: "true".into(),
        args: Vec::new(),
        env: [("SOME_VARIABLE".to_owned(), variable.to_owned())].into(),
        cwd: Some("/".into()),
        profile: Profile::Local,
        limits: Default::default(),
        hosting: Default::default(),
        written: Default::default(),
    };
    let mut spec = ServerSpec::process(name.parse().expect("a name"), launch);
    spec.source = Source::File;
    spec
}

/// A server by API that says nothing and ends only by force.
fn stubborn(name: &str) -> ServerSpec {
    let launch = ProcessLaunch {
        command: "sh".into(),
        args: vec![
            "-c".into(),
            "trap '' TERM; while :; do sleep 0.05; done".into(),
        ],
        env: Default::default(),
        cwd: Some("/".into()),
        profile: Profile::Local,
        limits: Default::default(),
        hosting: Default::default(),
        written: Default::default(),
    };
    let mut spec = ServerSpec::process(name.parse().expect("a name"), launch);
    spec.start = Start::Eager;
    spec.allow.shell = true;
    spec.lifecycle.stop_grace = Duration::from_secs(6);
    spec
}

async fn start(folder: &Path) -> Engine {
    let mut config = EngineConfig::new(folder.join("data"));
    config.startup = Startup::Sequential;
    config.stop.kill_after = Duration::from_millis(500);
    config.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    Engine::start(config).await.expect("it starts")
}

async fn admin(engine: &Engine) -> Caller {
    let keys = engine
        .default_project()
        .first_start(|_| Ok(()))
        .await
        .expect("a store");
    let key = keys.expect("first keys").admin;
    engine.authenticate(&key).expect("a valid key")
}

fn names(engine: &Engine) -> Vec<String> {
    let servers = engine.default_project().servers();
    servers
        .iter()
        .map(|server| server.spec.name.to_string())
        .collect()
}

/// Returns the process of a stubborn server, once it is stubborn: a shell that has only just begun
/// ends at the first word.
async fn pid(engine: &Engine, name: &str) -> u32 {
    let until = Instant::now() + LONG;
    loop {
        let pid = engine
            .default_project()
            .server(name)
            .and_then(|server| server.status.pid);
        if let Some(pid) = pid.filter(|pid| ignores_term(*pid)) {
            return pid;
        }
        assert!(Instant::now() < until, "`{name}` has no such process");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn ignores_term(pid: u32) -> bool {
    const TERM: u64 = 1 << 14;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & TERM != 0)
}

#[tokio::test]
async fn servers_of_files_keep_their_identity_and_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let engine = start(folder.path()).await;
    let specs = || ["a", "b", "c"].map(|name| of_file(name, "v1")).to_vec();
    let applied = engine.default_project().apply(specs()).await.unwrap();
    assert_eq!((applied.added.len(), applied.removed.len()), (3, 0));
    let ids = |engine: &Engine| {
        ["a", "b", "c"].map(|name| engine.default_project().server(name).unwrap().id)
    };
    let before = ids(&engine);
    engine.drain().await;
    drop(engine);

    let engine = start(folder.path()).await;
    let applied = engine.default_project().apply(specs()).await.unwrap();
    assert_eq!((applied.added.len(), applied.removed.len()), (3, 0));
    assert_eq!(ids(&engine), before);

    // Only what changed is touched, and what changed stays where it was.
    let mut next = specs();
    next[0] = of_file("a", "v2");
    let applied = engine.default_project().apply(next.clone()).await.unwrap();
    assert_eq!(
        (applied.changed.len(), applied.added.len()),
        (1, 0),
        "{applied:?}"
    );
    assert_eq!(names(&engine), ["a", "b", "c"]);
    next.remove(1);
    let applied = engine.default_project().apply(next).await.unwrap();
    assert_eq!(applied.removed, ["b".parse().unwrap()]);
    assert!(applied.changed.is_empty());
    assert_eq!(names(&engine), ["a", "c"]);
    engine.drain().await;
}

#[tokio::test]
async fn a_name_that_the_api_gave_away_is_refused_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let engine = start(folder.path()).await;
    let by = admin(&engine).await;
    let mut spec = of_file("a", "v");
    spec.source = Source::Api;
    engine.default_project().register(&by, spec).await.unwrap();
    let clash = engine
        .default_project()
        .apply(vec![of_file("b", "v"), of_file("a", "v")])
        .await;
    let Err(EngineError::Conflict { name }) = clash else {
        panic!("{clash:?}");
    };
    assert_eq!(name.as_str(), "a");
    assert_eq!(names(&engine), ["a"], "nothing was changed");
    assert_eq!(
        engine.default_project().server("a").unwrap().spec.source,
        Source::Api
    );
    engine.drain().await;
}

#[tokio::test]
async fn what_a_file_puts_into_an_environment_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let engine = start(folder.path()).await;
    let secret = "an expanded secret";
    engine
        .default_project()
        .apply(vec![of_file("a", secret)])
        .await
        .unwrap();
    let again = engine
        .default_project()
        .apply(vec![of_file("a", secret)])
        .await
        .unwrap();
    assert_eq!(again, gantry_engine::Applied::default(), "it is as it was");
    engine.drain().await;
    let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    for entry in std::fs::read_dir(folder.path().join("data")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!holds(&bytes, secret), "{}", path.display());
            if path.ends_with("gantry.db") {
                assert!(holds(&bytes, "SOME_VARIABLE"));
            }
        }
    }
}

#[tokio::test]
async fn a_change_whose_asker_leaves_is_brought_to_its_end() {
    // fault P10
    let folder = tempfile::tempdir().unwrap();
    let engine = start(folder.path()).await;
    let by = admin(&engine).await;
    engine
        .default_project()
        .register(&by, stubborn("a"))
        .await
        .unwrap();
    let old = pid(&engine, "a").await;
    let left = timeout(
        Duration::from_millis(300),
        engine.default_project().remove(&by, "a"),
    )
    .await;
    assert!(left.is_err(), "it takes its grace to end");
    assert!(procs::alive(old));
    // Its name waits for its process, another's does not.
    let begun = Instant::now();
    let mut other = of_file("b", "v");
    other.source = Source::Api;
    engine.default_project().register(&by, other).await.unwrap();
    // Half of the grace: a machine that stands still for a moment does not look like waiting.
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert!(procs::alive(old));
    engine
        .default_project()
        .register(&by, stubborn("a"))
        .await
        .unwrap();
    assert!(!procs::alive(old), "two processes of one name");
    assert_ne!(pid(&engine, "a").await, old);
    // What nobody waited for was recorded.
    let until = Instant::now() + LONG;
    loop {
        let events = engine
            .default_project()
            .events(Some("a"), None, 100)
            .await
            .unwrap();
        if events
            .iter()
            .any(|(_, event)| event.kind.as_str() == "removed")
        {
            break;
        }
        assert!(Instant::now() < until, "{events:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.drain().await;
}

#[tokio::test]
async fn a_stop_overtakes_a_removal_in_its_grace() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = EngineConfig::new(folder.path().join("data"));
    config.environment = vec![("PATH".into(), "/usr/bin:/bin".into())];
    config.stop.kill_after = Duration::from_millis(500);
    let engine = Engine::start(config).await.unwrap();
    let by = admin(&engine).await;
    let mut spec = stubborn("a");
    spec.lifecycle.stop_grace = Duration::from_secs(3600);
    engine.default_project().register(&by, spec).await.unwrap();
    let old = pid(&engine, "a").await;
    let left = timeout(
        Duration::from_millis(100),
        engine.default_project().remove(&by, "a"),
    )
    .await;
    assert!(left.is_err());
    // Of the hour that it has, two or three seconds, and what a machine may stand still for.
    timeout(Duration::from_secs(8), engine.drain())
        .await
        .unwrap();
    assert!(!procs::alive(old));
    let late = engine.default_project().register(&by, stubborn("b")).await;
    assert!(matches!(late, Err(EngineError::Stopping)));
}

// fault P10
#[tokio::test]
async fn a_server_that_is_replaced_is_started_once_and_keeps_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let engine = start(folder.path()).await;
    let by = admin(&engine).await;
    let project = engine.default_project();
    let mut old = stubborn("a");
    // Long enough for the store to be looked at in between.
    old.lifecycle.stop_grace = Duration::from_millis(2500);
    project.register(&by, old.clone()).await.unwrap();
    let mut second = of_file("b", "v1");
    second.source = Source::Api;
    project.register(&by, second).await.unwrap();
    let first_pid = pid(&engine, "a").await;

    let mut new = old;
    new.lifecycle.stop_grace = Duration::from_millis(100);
    Box::pin(project.replace(&by, new)).await.unwrap();
    assert!(!procs::alive(first_pid));
    pid(&engine, "a").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(names(&engine), ["a", "b"]);
    engine.drain().await;
}
