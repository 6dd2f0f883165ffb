//! Calls with nothing between: lines written to a child and read from it, blocking, on one thread.
//!
//! All that may be sent goes out in one write. Entry point: [`run`].

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Failure;
use crate::arguments::{Pipe, Plan};
use crate::outcome::Outcome;
use crate::workload::{Answer, INITIALIZE, INITIALIZED, Workload};

/// Calls before the clock runs.
const WARM_UP: u64 = 20;

struct Server {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

/// Calls until the time is over; or measures from the start of the child to its first right answer.
pub(crate) fn run(pipe: &Pipe, plan: &Plan) -> Result<Value, Failure> {
    let started = Instant::now();
    let servers = (0..pipe.children).map(|_| Server::start(&pipe.command));
    let mut servers = servers.collect::<Result<Vec<_>, _>>()?;
    let workload = &plan.workload;
    let answered = one(&mut servers, workload, 0)?;
    if plan.first {
        return Ok(json!({ "first_ms": (answered - started).as_secs_f64() * 1e3 }));
    }
    for id in 1..=WARM_UP {
        one(&mut servers, workload, id)?;
    }
    let mut outcome = Outcome::default();
    let begun = Instant::now();
    if plan.connections > 1 {
        many(&mut servers[0], plan, &mut outcome)?;
    } else {
        let mut id = WARM_UP;
        while begun.elapsed() < plan.duration() {
            id += 1;
            let sent = Instant::now();
            outcome.record(one(&mut servers, workload, id).map(|answered| answered - sent));
        }
    }
    Ok(outcome.report(begun.elapsed(), None))
}

/// Makes one call to every server and returns when the last answer was whole.
fn one(servers: &mut [Server], workload: &Workload, id: u64) -> Result<Instant, Failure> {
    let request = workload.request(0, id) + "\n";
    for server in servers.iter_mut() {
        server.write(&request)?;
    }
    for server in servers.iter_mut() {
        server.read()?;
    }
    let answered = Instant::now();
    let part = match workload {
        Workload::List { tools } => &Workload::List {
            tools: tools / servers.len(),
        },
        Workload::Echo { .. } => workload,
    };
    servers
        .iter()
        .try_for_each(|server| part.check(0, id, &server.line))?;
    Ok(answered)
}

/// Keeps as many calls in flight as there would be connections.
fn many(server: &mut Server, plan: &Plan, outcome: &mut Outcome) -> Result<(), Failure> {
    let deadline = Instant::now() + plan.duration();
    let (mut id, mut batch, mut sent) = (WARM_UP, String::new(), HashMap::new());
    loop {
        let now = Instant::now();
        while now < deadline && sent.len() < plan.connections {
            id += 1;
            batch += &plan.workload.request(0, id);
            batch.push('\n');
            sent.insert(id, now);
        }
        server.write(&batch)?;
        batch.clear();
        if sent.is_empty() {
            return Ok(());
        }
        // Wait for one answer, then take those that came with it.
        loop {
            server.read()?;
            let id = serde_json::from_slice(&server.line)
                .ok()
                .and_then(|answer: Answer<'_>| answer.id);
            let (id, at) = id
                .and_then(|id| sent.remove_entry(&id))
                .ok_or("an answer to no call")?;
            let latency = at.elapsed();
            outcome.record(plan.workload.check(0, id, &server.line).map(|()| latency));
            if !server.stdout.buffer().contains(&b'\n') {
                break;
            }
        }
    }
}

impl Server {
    fn start(command: &[String]) -> io::Result<Self> {
        let (program, rest) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        let mut child = command
            .args(rest)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let stdout = BufReader::with_capacity(256 << 10, stdout);
        let mut server = Self {
            child,
            stdin,
            stdout,
            line: Vec::new(),
        };
        server.write(&format!("{INITIALIZE}\n"))?;
        server.read()?;
        server.write(&format!("{INITIALIZED}\n"))?;
        Ok(server)
    }

    fn write(&mut self, lines: &str) -> io::Result<()> {
        self.stdin.write_all(lines.as_bytes())
    }

    fn read(&mut self) -> io::Result<()> {
        self.line.clear();
        match self.stdout.read_until(b'\n', &mut self.line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a child that is gone.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
