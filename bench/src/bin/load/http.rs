//! Calls over streamable HTTP: each connection is kept alive and has a session of its own, with one
//! call at a time on it. Entry point: [`run`].

mod session;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::arguments::{Endpoint, Plan};
use crate::outcome::Outcome;
use session::Session;

/// Reading the audit completes it.
const AUDIT: &str = "/api/v1/calls?limit=1";

/// Calls of each connection before the clock runs.
const WARM_UP: u64 = 5;

/// Sessions that are opened at the same time.
const OPENING: usize = 16;

/// Calls until the time is over, or tries so long to have one answer.
pub(crate) fn run(endpoint: &Endpoint, plan: Plan) -> Result<Value, Failure> {
    // One thread: the generator leaves the other cores to what it measures.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    if plan.first {
        runtime.block_on(first(endpoint, &plan))
    } else {
        runtime.block_on(load(endpoint, Arc::new(plan)))
    }
}

async fn load(endpoint: &Endpoint, plan: Arc<Plan>) -> Result<Value, Failure> {
    let key = read(endpoint.key.as_ref())?;
    let mut sessions = warm(endpoint, key, &plan).await?;
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for session in sessions.drain(..) {
        tasks.spawn(calls(session, Arc::clone(&plan)));
    }
    let mut outcome = Outcome::default();
    while let Some(task) = tasks.join_next().await {
        let (session, part) = task?;
        outcome.absorb(part);
        sessions.push(session);
    }
    let elapsed = begun.elapsed();
    let fold = match read(endpoint.admin_key.as_ref())? {
        Some(key) => Some(session::get(endpoint.port, AUDIT, key).await?),
        None => None,
    };
    for session in sessions {
        session.close().await;
    }
    Ok(outcome.report(elapsed, fold))
}

/// Opens the sessions and makes the first calls of each.
async fn warm(
    endpoint: &Endpoint,
    key: Option<String>,
    plan: &Arc<Plan>,
) -> Result<Vec<Session>, Failure> {
    let turns = Arc::new(Semaphore::new(OPENING));
    let mut tasks = JoinSet::new();
    for number in 0..plan.connections {
        let (key, turns, plan) = (key.clone(), Arc::clone(&turns), Arc::clone(plan));
        let port = endpoint.port(number);
        tasks.spawn(async move {
            let _turn = turns.acquire().await?;
            let mut session = Session::open(port, number, key).await?;
            for _ in 0..WARM_UP {
                session.call(&plan.workload).await?;
            }
            Ok::<_, Failure>(session)
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// Calls until the time is over; a call that fails ends its connection.
async fn calls(mut session: Session, plan: Arc<Plan>) -> (Session, Outcome) {
    let deadline = Instant::now() + plan.duration();
    let mut outcome = Outcome::default();
    while Instant::now() < deadline && outcome.errors.is_empty() {
        outcome.record(session.call(&plan.workload).await);
        if plan.rest_ms > 0 {
            sleep(plan.rest()).await;
        }
    }
    (session, outcome)
}

/// Tries until one whole exchange on a new connection has worked, and tells when that was.
async fn first(endpoint: &Endpoint, plan: &Plan) -> Result<Value, Failure> {
    let deadline = Instant::now() + plan.duration();
    loop {
        match attempt(endpoint, plan).await {
            Ok(at) => return Ok(json!({ "answered_unix_ns": at.as_nanos() as u64 })),
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}

async fn attempt(endpoint: &Endpoint, plan: &Plan) -> Result<Duration, Failure> {
    let key = read(endpoint.key.as_ref())?;
    let mut session = Session::open(endpoint.port(0), 0, key).await?;
    let answered = session.call(&plan.workload).await;
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    session.close().await;
    answered.map(|_| at)
}

fn read(key: Option<&PathBuf>) -> io::Result<Option<String>> {
    key.map(|path| Ok(fs::read_to_string(path)?.trim().to_owned()))
        .transpose()
}
