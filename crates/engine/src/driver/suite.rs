//! The conformance suite: what the runner relies on, checked for every driver.
//!
//! A new driver gets a [`World`] and a test that calls [`conforms`].

mod images;

use std::sync::Arc;
use std::time::Duration;

use gantry_model::id::ProjectName;
use gantry_model::spec::{ProcessLaunch, Profile, ServerSpec};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::fake::{FakeDriver, FakeHost, fake_spec};
use super::hosted::{Hosted, HostedOptions};
use super::process::ProcessDriver;
use super::{
    ByteSource, Control, Driver, DriverError, ExitStatus, Instance, Io, Labels, StartRequest,
    Stdin, Streams,
};

/// How long an instance may take for each act.
const LONG: Duration = Duration::from_secs(20);

/// The behaviour of a test server.
#[derive(Clone, Copy)]
enum Act {
    /// Copies its input to its output, and exits with 0 at the end of the input.
    Echo,
    /// Exits with 7.
    Exit,
    /// Writes `oops` to stderr and exits with 0.
    Stderr,
    /// Writes `ready` and then, on SIGTERM, `term`; ends by SIGKILL only.
    Stubborn,
    /// Cannot be started.
    Missing,
}

/// A driver under test, and a host that it runs on.
trait World {
    /// Returns the driver of a new gateway process on this host.
    fn driver(&self) -> Box<dyn Driver>;

    fn spec(&self, act: Act) -> ServerSpec;

    /// Returns whether a missing program is reported before the start returns.
    fn looks_first(&self) -> bool {
        true
    }

    /// Abandons an instance like a killed gateway.
    fn lose(&self, control: Box<dyn Control>);
}

/// Asserts everything that the runner relies on.
async fn conforms(world: impl World) {
    let driver = world.driver();
    let suite = Suite { world, driver };
    suite.probes();
    suite.echoes_until_the_end_of_its_input().await;
    suite.tells_the_exit_code_and_stderr().await;
    suite.terminates_then_kills().await;
    suite.ends_when_dropped().await;
    suite.reports_usage_and_isolation().await;
    suite.says_why_it_cannot_start().await;
    suite.leaves_nothing_that_recover_does_not_find().await;
}

struct Suite<W> {
    world: W,
    driver: Box<dyn Driver>,
}

impl<W: World> Suite<W> {
    async fn try_start(&self, act: Act) -> Result<Instance, DriverError> {
        let (spec, stop) = (self.world.spec(act), CancellationToken::new());
        let request = StartRequest {
            spec: &spec,
            labels: labels(),
            progress: &|_| {},
            stop: &stop,
        };
        self.driver.start(request).await
    }

    async fn start(&self, act: Act) -> (Streams, Box<dyn Control>) {
        let instance = self.try_start(act).await.unwrap();
        match instance.io {
            Io::Streams(streams) => (streams, instance.control),
            Io::Address(_) | Io::Inside(_) => panic!("the suite is for drivers with streams"),
        }
    }

    fn probes(&self) {
        for fact in self.driver.probe().facts {
            assert!(!fact.detail.is_empty(), "{}", fact.name);
        }
    }

    async fn echoes_until_the_end_of_its_input(&self) {
        let (mut streams, mut control) = self.start(Act::Echo).await;
        write(&mut streams.stdin, "one\n").await;
        expect(&mut streams.stdout, "one\n").await;
        assert_runs(&mut control).await;
        write(&mut streams.stdin, "two\n").await;
        drop(streams.stdin);
        assert_eq!(rest_of(streams.stdout).await, "two\n");
        assert_eq!(exit_of(&mut control).await.code, Some(0));
    }

    async fn tells_the_exit_code_and_stderr(&self) {
        let (streams, mut control) = self.start(Act::Exit).await;
        for _ in 0..2 {
            let exit = exit_of(&mut control).await;
            assert_eq!((exit.code, exit.signal), (Some(7), None));
        }
        assert_eq!(rest_of(streams.stdout).await, "");
        let (streams, mut control) = self.start(Act::Stderr).await;
        if let Some(stderr) = streams.stderr {
            assert_eq!(rest_of(stderr).await.trim_end(), "oops");
        }
        assert_eq!(exit_of(&mut control).await.code, Some(0));
    }

    async fn terminates_then_kills(&self) {
        let (mut streams, mut control) = self.start(Act::Echo).await;
        write(&mut streams.stdin, "one\n").await;
        expect(&mut streams.stdout, "one\n").await;
        control.terminate();
        assert!(is_ended_by(&exit_of(&mut control).await, 15));
        let (mut streams, mut control) = self.start(Act::Stubborn).await;
        expect(&mut streams.stdout, "ready\n").await;
        control.terminate();
        expect(&mut streams.stdout, "term\n").await;
        assert_runs(&mut control).await;
        control.kill();
        assert!(is_ended_by(&exit_of(&mut control).await, 9));
        rest_of(streams.stdout).await;
        // Both may be called twice.
        control.terminate();
        control.kill();
    }

    async fn ends_when_dropped(&self) {
        let (mut streams, control) = self.start(Act::Stubborn).await;
        expect(&mut streams.stdout, "ready\n").await;
        drop(control);
        rest_of(streams.stdout).await;
    }

    async fn reports_usage_and_isolation(&self) {
        let instance = self.try_start(Act::Echo).await.unwrap();
        let usage = (instance.usage)().unwrap();
        assert!(usage.pids > 0, "{usage:?}");
        let report = instance.isolation.unwrap();
        assert!(!report.provider.is_empty() && !report.reason.is_empty());
        for promise in report.promises {
            assert!(!promise.detail.is_empty(), "{}", promise.name);
        }
        drop(instance.control);
        // The usage may be read after the end.
        (instance.usage)();
    }

    async fn says_why_it_cannot_start(&self) {
        let error = match self.try_start(Act::Missing).await {
            Err(error) => error,
            // gVisor searches the program only once it runs.
            Ok(instance) => {
                assert!(!self.world.looks_first());
                let Io::Streams(streams) = instance.io else {
                    panic!("the suite is for drivers with streams");
                };
                let mut control = instance.control;
                let said = rest_of(streams.stderr.unwrap()).await;
                assert!(said.contains("missing"), "{said}");
                assert_ne!(exit_of(&mut control).await.code, Some(0));
                return;
            }
        };
        let text = gantry_model::diagnose::chain(&error);
        assert!(text.contains("`missing` not found"), "{text}");
    }

    async fn leaves_nothing_that_recover_does_not_find(&self) {
        let (mut streams, control) = self.start(Act::Stubborn).await;
        expect(&mut streams.stdout, "ready\n").await;
        self.world.lose(control);
        let next = self.world.driver();
        for recovered in next.recover().await.unwrap() {
            assert_eq!(recovered.labels, labels());
            drop(recovered.instance);
        }
        rest_of(streams.stdout).await;
        assert!(next.recover().await.unwrap().is_empty());
    }
}

fn labels() -> Labels {
    Labels {
        project: ProjectName::local(),
        server: "fake".parse().unwrap(),
        generation: 3,
    }
}

async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LONG, wait).await;
    done.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

async fn expect(source: &mut ByteSource, text: &str) {
    let mut read = vec![0; text.len()];
    soon(text, source.read_exact(&mut read)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&read), text);
}

async fn rest_of(mut source: ByteSource) -> String {
    let mut read = String::new();
    // An aborted connection counts as ended.
    drop(soon("the end of a stream", source.read_to_string(&mut read)).await);
    read
}

async fn write(stdin: &mut Stdin, text: &str) {
    match stdin {
        Stdin::Pipe(pipe) => pipe.write_all(text.as_bytes()).await,
        Stdin::Stream(stream) => stream.write_all(text.as_bytes()).await,
    }
    .unwrap();
}

async fn exit_of(control: &mut Box<dyn Control>) -> ExitStatus {
    soon("the exit", control.exited()).await
}

/// Returns whether a signal ended it; gVisor reports that as an exit code.
fn is_ended_by(exit: &ExitStatus, signal: i32) -> bool {
    exit.signal == Some(signal) || exit.code == Some(128 + signal)
}

/// Asserts that it has not ended, and that waiting is cancel safe.
async fn assert_runs(control: &mut Box<dyn Control>) {
    let exit = tokio::time::timeout(Duration::ZERO, control.exited()).await;
    assert!(exit.is_err(), "{exit:?}");
}

/// Returns the shell script of an act.
fn script(act: Act) -> &'static str {
    match act {
        Act::Echo => "exec cat",
        Act::Exit => "exit 7",
        Act::Stderr => "echo oops >&2",
        Act::Stubborn => "trap 'echo term' TERM; echo ready; while :; do sleep 0.02; done",
        Act::Missing => "",
    }
}

struct Processes(tempfile::TempDir, Profile);

impl World for Processes {
    fn driver(&self) -> Box<dyn Driver> {
        let hosted = Hosted::open(HostedOptions {
            project: gantry_model::id::ProjectName::local(),
            gateway: format!("suite-{}", std::process::id()),
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            data_folder: self.0.path().to_owned(),
            hidden: Vec::new(),
        });
        Box::new(ProcessDriver::new(Arc::new(hosted.unwrap())))
    }

    fn spec(&self, act: Act) -> ServerSpec {
        let script = script(act);
        let command = match act {
            Act::Missing => "missing",
            Act::Echo | Act::Exit | Act::Stderr | Act::Stubborn => "/bin/sh",
        };
        let launch = ProcessLaunch {
            command: command.to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: Default::default(),
            cwd: (self.1 == Profile::Local).then(|| "/".into()),
            profile: self.1,
            limits: Default::default(),
            hosting: Default::default(),
            written: Default::default(),
        };
        ServerSpec::process("fake".parse().unwrap(), launch)
    }

    /// The kernel closes the descriptors of a killed gateway, which is what dropping does.
    fn lose(&self, control: Box<dyn Control>) {
        drop(control);
    }
}

impl World for FakeHost {
    fn driver(&self) -> Box<dyn Driver> {
        Box::new(FakeDriver(self.clone()))
    }

    fn spec(&self, act: Act) -> ServerSpec {
        fake_spec(match act {
            Act::Echo => &["echo"],
            Act::Exit => &["exit", "7"],
            Act::Stderr => &["stderr", "oops"],
            Act::Stubborn => &["stubborn"],
            Act::Missing => &["missing"],
        })
    }

    /// No process is left to end the server.
    fn lose(&self, control: Box<dyn Control>) {
        std::mem::forget(control);
    }
}

#[tokio::test]
async fn the_process_driver_conforms() {
    conforms(Processes(tempfile::tempdir().unwrap(), Profile::Local)).await;
}

#[tokio::test]
async fn the_process_driver_conforms_on_a_root_of_its_own() {
    conforms(Processes(tempfile::tempdir().unwrap(), Profile::Hosted)).await;
}

#[tokio::test]
async fn the_fake_driver_conforms() {
    conforms(FakeHost::default()).await;
}

#[tokio::test]
async fn a_slow_start_shows_its_progress_and_gives_up_when_it_is_stopped() {
    let (host, stop) = (FakeHost::default(), CancellationToken::new());
    let (spec, driver) = (fake_spec(&["slow"]), FakeDriver(host));
    let shown = Mutex::new(String::new());
    let request = StartRequest {
        spec: &spec,
        labels: labels(),
        progress: &|doing| {
            *shown.lock() = doing;
            stop.cancel();
        },
        stop: &stop,
    };
    let error = soon("the start to give up", driver.start(request)).await;
    assert!(error.is_err());
    assert_eq!(*shown.lock(), "downloading 1 of 2 layers");
}
