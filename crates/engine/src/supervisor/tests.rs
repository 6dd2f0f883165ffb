//! A runner that panics: its calls are answered, its process is gone, and it is restarted. Orders that
//! cross each other are in `orders`.

mod driver;
mod orders;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gantry_model::id::{AgentName, ServerName};
use gantry_model::jsonrpc::{OneLine, Payload, RawBuf};
use gantry_model::naming::{Expose, LONGEST_EXPOSED, OnCollision};
use gantry_model::spec::ProcessLaunch;
use gantry_model::status::ServerState;
use gantry_testkit::{Era, Evilpeer, procs};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::*;
use crate::config::EngineLimits;
use crate::driver::hosted::{Hosted, HostedOptions};
use crate::driver::process::ProcessDriver;
use crate::driver::{Driver, Drivers};
use crate::events::Events;
use crate::secrets::Secrets;
use crate::server::link::InFlight;
use crate::server::pending::{Answer, Failure};

const LONG: Duration = Duration::from_secs(20);

/// Makes a supervisor whose runners panic when they next show a change, if `armed` says so.
async fn supervisor(folder: &Path, armed: &Arc<AtomicBool>) -> Supervisor {
    let options = HostedOptions {
        project: ProjectName::local(),
        gateway: format!("test-{}", std::process::id()),
        environment: Vec::new(),
        data_folder: folder.to_owned(),
        hidden: Vec::new(),
    };
    let driver = ProcessDriver::new(Arc::new(Hosted::open(options).unwrap()));
    supervisor_on(Arc::new(driver), folder, armed).await
}

async fn supervisor_on(
    driver: Arc<dyn Driver>,
    folder: &Path,
    armed: &Arc<AtomicBool>,
) -> Supervisor {
    let project = ProjectName::local();
    let store = crate::folder::store_in(folder).await;
    store.ensure_project(&project).await.unwrap();
    // Nobody writes the events down here; what does not fit the queue is dropped.
    let (events, _queue) = Events::new(project.clone());
    let (_kill_at, kill_at) = watch::channel(None);
    let armed = Arc::clone(armed);
    let vault = crate::credentials::Vault::open(folder, project.clone(), store.clone(), None);
    let pins = crate::pins::Pins::load(store.clone(), project.clone(), Default::default());
    let pins = pins.await.unwrap();
    let context = RunnerContext {
        secrets: Secrets::new(project.clone(), vault.clone(), store.clone()),
        project: project.clone(),
        drivers: Drivers::new(Arc::clone(&driver), driver),
        generations: Arc::default(),
        clients: Arc::default(),
        vault,
        callback: watch::Sender::new(None),
        store: store.clone(),
        events,
        tracker: TaskTracker::new(),
        limits: EngineLimits::default(),
        first_id: 1,
        changed: Arc::new(move || {
            if armed.swap(false, Ordering::Relaxed) {
                panic!("a runner that panics");
            }
        }),
        checks: Default::default(),
        topics: Arc::default(),
        answers: crate::answers::AnswerPool::new(1 << 20).of(&ProjectName::local()),
        kill_at,
        pins: Arc::new(pins),
    };
    let catalog = Arc::new(Catalog::new(
        Expose::default(),
        OnCollision::default(),
        LONGEST_EXPOSED,
        &Default::default(),
    ));
    Supervisor::new(project, store, Arc::new(context), catalog, Arc::default())
}

fn spec() -> ServerSpec {
    let argv = Evilpeer::new().era(Era::Legacy).argv();
    let launch = ProcessLaunch {
        command: argv[0].clone(),
        args: argv[1..].to_vec(),
        env: Default::default(),
        cwd: Some("/".into()),
        profile: gantry_model::spec::Profile::Local,
        limits: Default::default(),
        hosting: Default::default(),
        written: Default::default(),
    };
    let name: ServerName = "a".parse().unwrap();
    let mut spec = ServerSpec::process(name, launch);
    spec.start = Start::Eager;
    spec
}

async fn ready(handle: &ServerHandle) -> u32 {
    let mut status = handle.status.clone();
    let is_ready =
        |status: &crate::server::status::ServerStatus| status.state == ServerState::Ready;
    let status = tokio::time::timeout(LONG, status.wait_for(is_ready)).await;
    status.unwrap().unwrap().pid.unwrap()
}

/// Calls a tool that takes so long.
async fn slow(handle: &ServerHandle, ms: u64) -> InFlight {
    let agent: AgentName = "default".parse().unwrap();
    let link = handle.link(&agent, LONG).await.unwrap();
    let id = link.new_id();
    let params = serde_json::json!({"name": "slow", "arguments": {"ms": ms}});
    let params = RawBuf::serialize(&params).unwrap();
    let line = OneLine::request(id, "tools/call", Some(Payload::from(&params)));
    link.call(&agent, id, line, None).ok().unwrap()
}

/// Asserts that this process comes to hold no more descriptors than so many, and no zombie.
async fn holds_at_most(fds: usize) {
    let own = std::process::id();
    let tidy = || procs::open_fds(own) <= fds && procs::zombies_of(own).is_empty();
    let settled = tokio::time::timeout(LONG, async {
        while !tidy() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(
        settled.await.is_ok(),
        "{fds} descriptors at first, {} now; zombies {:?}",
        procs::open_fds(own),
        procs::zombies_of(own)
    );
}

// fault P12
#[tokio::test]
async fn a_runner_that_panics_answers_its_calls_and_starts_anew() {
    let folder = tempfile::tempdir().unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let supervisor = supervisor(folder.path(), &armed).await;
    let handle = supervisor.register(spec()).await.unwrap();
    let first = ready(&handle).await;
    let mut other = spec();
    other.name = "b".parse().unwrap();
    let neighbour = supervisor.register(other).await.unwrap();
    let neighbours = ready(&neighbour).await;
    let fds = procs::resting_fds(std::process::id(), LONG);
    let call = slow(&handle, 60_000).await;
    let beside = slow(&neighbour, 500).await;
    armed.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    handle.commands.send(RunnerCommand::Restart).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(1), call.answer()).await;
    let Ok(Answer::Failed(Failure::Exited(how))) = answer else {
        panic!("{answer:?} after {:?}", begun.elapsed());
    };
    assert_eq!(how, "the gateway failed while it ran the server");
    let answer = tokio::time::timeout(LONG, beside.answer()).await.unwrap();
    assert!(matches!(answer, Answer::Result(_)), "{answer:?}");
    let mut status = handle.status.clone();
    let anew = tokio::time::timeout(
        LONG,
        status.wait_for(|now| now.state == ServerState::Ready && now.pid != Some(first)),
    );
    anew.await.unwrap().unwrap();
    assert!(
        !procs::alive(first),
        "its process ended with the runner that panicked"
    );
    // As many servers run as did: no more is held, and nobody waits to be reaped.
    holds_at_most(fds).await;
    // And it can still be stopped.
    tokio::time::timeout(LONG, supervisor.remove("a"))
        .await
        .unwrap()
        .unwrap();
    // All of that was nothing to the one beside it.
    let (state, pid, restarts) = {
        let now = neighbour.status.borrow();
        (now.state, now.pid, now.restarts)
    };
    assert_eq!(
        (state, pid, restarts),
        (ServerState::Ready, Some(neighbours), 0)
    );
    assert!(procs::alive(neighbours));
    holds_at_most(fds).await;
}

// fault P12
#[tokio::test]
async fn a_runner_that_panics_while_it_is_stopped_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let supervisor = supervisor(folder.path(), &armed).await;
    let handle = supervisor.register(spec()).await.unwrap();
    let pid = ready(&handle).await;
    let fds = procs::resting_fds(std::process::id(), LONG);
    armed.store(true, Ordering::Relaxed);
    tokio::time::timeout(LONG, supervisor.remove("a"))
        .await
        .unwrap()
        .unwrap();
    let gone = gantry_testkit::wait::eventually(LONG, || !procs::alive(pid));
    assert!(gone.is_some());
    holds_at_most(fds).await;
}
