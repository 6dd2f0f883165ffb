//! A driver for tests. Its servers are tasks that follow their arguments, over streams in memory.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use gantry_model::spec::{ProcessLaunch, ServerSpec};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, empty, sink,
};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::{
    Control, Driver, DriverError, ExitStatus, HostFact, HostReport, Instance, Io, IsolationReport,
    Labels, Promise, PromiseState, ReadUsage, Recovered, StartRequest, Stdin, Streams, Usage,
};

const TERM: i32 = 15;
const KILL: i32 = 9;

/// The host of fake servers; outlives its drivers, as a container engine outlives gateways.
#[derive(Clone, Default)]
pub(crate) struct FakeHost {
    servers: Arc<Mutex<Vec<FakeServer>>>,
    tasks: TaskTracker,
}

#[derive(Clone)]
struct FakeServer {
    labels: Labels,
    signal: watch::Sender<i32>,
    exit: watch::Receiver<Option<ExitStatus>>,
}

/// Starts fake servers on its host.
pub(crate) struct FakeDriver(pub(crate) FakeHost);

/// Returns the spec of a fake server that executes these words.
pub(crate) fn fake_spec(words: &[&str]) -> ServerSpec {
    let args = words.iter().map(|word| (*word).to_owned());
    let launch = ProcessLaunch {
        command: "fake".to_owned(),
        args: args.collect(),
        env: Default::default(),
        cwd: None,
        profile: Default::default(),
        limits: Default::default(),
        hosting: Default::default(),
        written: Default::default(),
    };
    ServerSpec::process("fake".parse().unwrap(), launch)
}

impl FakeServer {
    fn instance(&self, streams: Streams) -> Instance {
        let exit = self.exit.clone();
        let usage: ReadUsage = Arc::new(move || {
            let is_running = exit.borrow().is_none();
            is_running.then(|| Usage {
                pids: 1,
                ..Usage::default()
            })
        });
        Instance {
            io: Io::Streams(streams),
            control: Box::new(FakeControl(self.clone())),
            usage,
            isolation: Some(IsolationReport {
                provider: "fake",
                reason: "a test asked for it".to_owned(),
                promises: vec![Promise {
                    name: "memory",
                    state: PromiseState::NotEnforced,
                    detail: "a task has no limits".to_owned(),
                }],
            }),
            hosting: None,
            pid: None,
        }
    }
}

struct FakeControl(FakeServer);

impl Control for FakeControl {
    fn exited(&mut self) -> BoxFuture<'_, ExitStatus> {
        Box::pin(async {
            let exit = self.0.exit.wait_for(Option::is_some).await;
            exit.unwrap().clone().unwrap()
        })
    }

    fn terminate(&mut self) {
        self.0.signal.send_if_modified(|signal| {
            let is_first = *signal == 0;
            if is_first {
                *signal = TERM;
            }
            is_first
        });
    }

    fn kill(&mut self) {
        self.0.signal.send_replace(KILL);
    }
}

impl Drop for FakeControl {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Driver for FakeDriver {
    fn probe(&self) -> HostReport {
        HostReport {
            facts: vec![HostFact {
                name: "tasks",
                available: true,
                detail: "in memory".to_owned(),
            }],
        }
    }

    fn start<'a>(
        &'a self,
        request: StartRequest<'a>,
    ) -> BoxFuture<'a, Result<Instance, DriverError>> {
        Box::pin(async move {
            let args = request.spec.launch.process().unwrap().args.clone();
            if args == ["missing"] {
                return Err(DriverError::new("program `missing` not found"));
            }
            if args == ["slow"] {
                (request.progress)("downloading 1 of 2 layers".to_owned());
                request.stop.cancelled().await;
                return Err(DriverError::new("stopped while downloading"));
            }
            let (stdin, theirs_in) = duplex(64 * 1024);
            let (stdout, theirs_out) = duplex(64 * 1024);
            let (stderr, theirs_err) = duplex(64 * 1024);
            let (signal, signals) = watch::channel(0);
            let (ending, exit) = watch::channel(None);
            let server = FakeServer {
                labels: request.labels,
                signal,
                exit,
            };
            self.0.servers.lock().push(server.clone());
            self.0.tasks.spawn(async move {
                let streams = (theirs_in, theirs_out, theirs_err);
                ending.send_replace(Some(run(args, streams, signals).await));
            });
            let streams = Streams {
                stdin: Stdin::Stream(Box::new(stdin)),
                stdout: Box::new(stdout),
                stderr: Some(Box::new(stderr)),
            };
            Ok(server.instance(streams))
        })
    }

    fn recover(&self) -> BoxFuture<'_, Result<Vec<Recovered>, DriverError>> {
        let servers = self.0.servers.lock().clone();
        let running = servers
            .into_iter()
            .filter(|server| server.exit.borrow().is_none());
        let recovered = running.map(|server| Recovered {
            labels: server.labels.clone(),
            instance: server.instance(Streams {
                stdin: Stdin::Stream(Box::new(sink())),
                stdout: Box::new(empty()),
                stderr: None,
            }),
        });
        Box::pin(std::future::ready(Ok(recovered.collect())))
    }
}

/// Executes the words until they are done or a signal ends it.
async fn run(
    words: Vec<String>,
    (stdin, mut stdout, mut stderr): (DuplexStream, DuplexStream, DuplexStream),
    mut signals: watch::Receiver<i32>,
) -> ExitStatus {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut terminated = signals.clone();
    let act = async {
        match words[..] {
            ["exit", code] => code.parse().unwrap(),
            ["stderr", text] => {
                stderr.write_all(text.as_bytes()).await.unwrap();
                0
            }
            ["stubborn"] => {
                stdout.write_all(b"ready\n").await.unwrap();
                terminated.wait_for(|signal| *signal == TERM).await.unwrap();
                stdout.write_all(b"term\n").await.unwrap();
                std::future::pending().await
            }
            ["echo"] => echo(stdin, &mut stdout).await,
            ["mcp"] => mcp(stdin, &mut stdout).await,
            _ => panic!("a fake server knows no {words:?}"),
        }
    };
    let deadly = |signal: &i32| *signal == KILL || *signal == TERM && words != ["stubborn"];
    tokio::select! {
        biased; // A signal ends whatever is being done.
        signal = signals.wait_for(deadly) => ExitStatus {
            signal: Some(signal.map_or(KILL, |signal| *signal)),
            ..ExitStatus::default()
        },
        code = act => ExitStatus {
            code: Some(code),
            ..ExitStatus::default()
        },
    }
}

async fn echo(mut stdin: DuplexStream, stdout: &mut DuplexStream) -> i32 {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stdin.read(&mut buffer).await {
        stdout.write_all(&buffer[..count]).await.unwrap();
    }
    0
}

/// Implements the minimum of the protocol: one tool, named `hello`.
async fn mcp(stdin: DuplexStream, stdout: &mut DuplexStream) -> i32 {
    let mut lines = BufReader::new(stdin).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request: Value = serde_json::from_str(&line).unwrap();
        let Some(id) = request.get("id") else {
            continue;
        };
        let result = match request["method"].as_str().unwrap() {
            "initialize" => Ok(json!({
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            })),
            "tools/list" => Ok(json!({
                "tools": [{"name": "hello", "inputSchema": {"type": "object"}}],
            })),
            "tools/call" => Ok(json!({"content": [{"type": "text", "text": "hello"}]})),
            _ => Err(json!({"code": -32601, "message": "method not found"})),
        };
        let mut response = json!({"jsonrpc": "2.0", "id": id});
        match result {
            Ok(result) => response["result"] = result,
            Err(error) => response["error"] = error,
        }
        let line = format!("{response}\n");
        stdout.write_all(line.as_bytes()).await.unwrap();
    }
    0
}
