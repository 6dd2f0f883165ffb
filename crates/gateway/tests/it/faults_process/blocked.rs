//! Fault F2 and its neighbours: a stderr, stdout or terminal that nobody reads, or that takes nothing.
//! Lines are dropped and counted; calls, restarts and the end are not held up.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use gantry_testkit::wait::{Stopwatch, eventually};
use gantry_testkit::{Evilpeer, procs};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{SECOND, echoes, own_marker, signal};
use crate::harness::{Builder, Connection, Gantry, LONG, PROGRAM, entry, modern};

const CRASHING: [&str; 4] = ["one", "two", "three", "four"];
/// What an answer may take on a busy machine, and far less than a reader that never comes.
const SOON: std::time::Duration = std::time::Duration::from_secs(10);

/// A pipe with a name, filled to its last byte.
struct FullPipe {
    /// Both ends: as long as this is open there is a reader, who does not read.
    reader: File,
}

impl FullPipe {
    fn make(path: &Path) -> Self {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(nonblocking);
        let mut reader = options.open(path).unwrap();
        for size in [4096, 1] {
            while reader.write(&vec![b'\n'; size]).is_ok() {}
        }
        Self { reader }
    }

    /// Returns what can be read now.
    fn read(&mut self) -> String {
        let mut text = Vec::new();
        let mut piece = [0; 65_536];
        while let Ok(count) = self.reader.read(&mut piece) {
            text.extend_from_slice(&piece[..count]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Has a gateway write to another place, as a shell's redirection says it of `$0`.
fn redirected(builder: Builder, redirection: &str, place: &Path) -> Builder {
    let line = format!("exec \"$@\" {redirection}");
    builder.under(&["sh", "-c", &line, place.to_str().unwrap()])
}

fn with_crashing() -> Builder {
    let mut builder = Gantry::builder().server("good", &Evilpeer::new());
    for name in CRASHING {
        builder = builder.server(name, &Evilpeer::new().name(name));
    }
    builder
}

fn is_alive(gantry: &Gantry) {
    let watch = Stopwatch::start();
    let answer = gantry.connect().request("GET", "/healthz", &[], b"");
    assert_eq!(answer.unwrap().status, 200);
    echoes(gantry, "good");
    assert!(watch.elapsed() <= SOON, "{:?}", watch.elapsed());
}

/// Crashes every server that is there for it, and waits until all are back.
fn crash_all(gantry: &Gantry) {
    std::thread::scope(|scope| {
        for name in CRASHING {
            scope.spawn(move || gantry.call(&format!("{name}__crash"), json!({})));
        }
    });
    is_alive(gantry);
    for name in CRASHING {
        let back = |status: &Value| status["state"] == "ready" && status["restart_count"] == 1;
        gantry.wait_status(name, LONG, back);
    }
}

fn dropped(gantry: &Gantry) -> u64 {
    dropped_on(&mut gantry.connect(), gantry)
}

/// Returns how many lines were dropped, asked for on a connection that is there.
fn dropped_on(connection: &mut Connection, gantry: &Gantry) -> u64 {
    let bearer = format!("Bearer {}", gantry.admin);
    let headers = [("Authorization", bearer.as_str())];
    let metrics = connection.request("GET", "/metrics", &headers, b"");
    let metrics = metrics.unwrap().text();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("gantry_log_lines_dropped_total "));
    line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

// fault F2
#[test]
fn a_full_pipe_for_stderr_holds_up_no_call_no_restart_and_no_end() {
    for redirection in ["2>\"$0\"", ">\"$0\" 2>&1"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let _pipe = FullPipe::make(&path);
        let builder = redirected(with_crashing(), redirection, &path);
        let mut gantry = builder.flags(&["--log", "debug"]).start();
        for name in CRASHING {
            gantry.wait_state(name, "ready", LONG);
        }
        crash_all(&gantry);
        let watch = Stopwatch::start();
        gantry.signal(Signal::TERM);
        assert_eq!(gantry.wait(LONG), Some(0));
        assert!(watch.elapsed() <= SOON, "{:?}", watch.elapsed());
    }
}

// faults F2 and P4
#[test]
fn a_second_signal_ends_it_at_once_though_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let _pipe = FullPipe::make(&path);
    let marker = own_marker("unread");
    let deaf = Evilpeer::new().fault("ignore-term").fault("ignore-eof");
    let builder = Gantry::builder().server("deaf", &deaf.in_tree(&marker));
    let mut gantry = redirected(builder, ">\"$0\" 2>&1", &path)
        .flags(&["--log", "debug"])
        .start();
    gantry.wait_state("deaf", "ready", LONG);
    gantry.signal(Signal::TERM);
    let stopping = eventually(LONG, || Connection::open(&gantry.authority).is_err());
    assert!(stopping.is_some());
    let watch = Stopwatch::start();
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(LONG), Some(130));
    assert!(watch.elapsed() <= 3 * SECOND, "{:?}", watch.elapsed());
    procs::wait_gone(&marker, LONG).unwrap();
}

// fault F2
#[test]
fn what_is_not_read_is_dropped_counted_and_told_when_it_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bounds) = (
        folder.path().join("pipe"),
        folder.path().join("bounds.toml"),
    );
    let mut pipe = FullPipe::make(&path);
    // Each connection beyond the first is a line in the log.
    let text = "version = 1\n[gateway]\nconnections_per_address = 1\n";
    fs::write(&bounds, text).unwrap();
    let mut gantry = redirected(Gantry::builder(), "2>\"$0\"", &path)
        .flags(&["--log", "debug", "--config", bounds.to_str().unwrap()])
        .own_grants()
        .start();
    let mut only = gantry.connect();
    let lost = eventually(LONG, || {
        for _ in 0..1000 {
            drop(TcpStream::connect(&gantry.authority).unwrap());
        }
        dropped_on(&mut only, &gantry) > 0
    });
    assert!(lost.is_some(), "nothing was dropped");
    let mut read = String::new();
    let told = eventually(LONG, || {
        read.push_str(&pipe.read());
        read.contains(" dropped: ")
    });
    assert!(told.is_some(), "{} bytes were read", read.len());
    let line = read.lines().find(|line| line.contains(" dropped: "));
    let count: u64 = line
        .and_then(|line| line.split(" log line").next()?.rsplit(' ').next())
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{line:?}"));
    let all = dropped_on(&mut only, &gantry);
    assert!((1..=all).contains(&count), "{all}: {line:?}");
    // What was written before is whole and in order: one thread takes all connections.
    let stamps: Vec<&str> = read
        .lines()
        .filter(|line| line.contains("connection refused: too many"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(stamps.len() > 1000, "{}", stamps.len());
    assert!(stamps.is_sorted());
    drop(pipe);
    assert_eq!(gantry.stop(), Some(0));
}

// fault F2
#[test]
fn a_stderr_that_is_closed_or_full_changes_nothing_but_a_count() {
    // Its reader has gone.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let pipe = FullPipe::make(&path);
    let builder = redirected(with_crashing(), ">\"$0\" 2>&1", &path);
    let mut gantry = builder.flags(&["--log", "debug"]).start();
    for name in CRASHING {
        gantry.wait_state(name, "ready", LONG);
    }
    drop(pipe);
    crash_all(&gantry);
    let counted = eventually(LONG, || dropped(&gantry) > 0);
    assert!(counted.is_some());
    assert_eq!(gantry.stop(), Some(0));
    // The disk is full.
    let builder = redirected(with_crashing(), "2>\"$0\"", Path::new("/dev/full"));
    let mut gantry = builder.flags(&["--log", "debug"]).start();
    for name in CRASHING {
        gantry.wait_state(name, "ready", LONG);
    }
    crash_all(&gantry);
    assert!(dropped(&gantry) > 0);
    assert_eq!(gantry.stop(), Some(0));
}

/// A gateway at a terminal of its own.
struct AtTerminal {
    script: Child,
    keyboard: ChildStdin,
    pid: u32,
    authority: String,
    agent: String,
}

impl AtTerminal {
    fn open(home: &Path) -> Self {
        let names = CRASHING.iter().copied().chain(["good"]);
        let servers: serde_json::Map<String, Value> = names
            .map(|name| (name.to_owned(), entry(&Evilpeer::new().name(name))))
            .collect();
        let config = home.join("mcp.json");
        fs::write(&config, json!({"mcpServers": servers}).to_string()).unwrap();
        let data = home.join("data");
        let line = format!(
            "exec {PROGRAM} --data {} --log debug up --port 0 --config {}",
            data.display(),
            config.display()
        );
        let mut script = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command", &line])
            .arg("/dev/null")
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(File::create(home.join("screen")).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .expect("`script` of util-linux is there");
        let mut running = None;
        let up = eventually(LONG, || {
            let announced = fs::read(data.join("gateway.json")).ok();
            running =
                announced.and_then(|announced| serde_json::from_slice::<Value>(&announced).ok());
            running.is_some()
        });
        assert!(up.is_some(), "the gateway did not start");
        let running = running.unwrap();
        let url = running["url"].as_str().unwrap();
        let key = fs::read_to_string(data.join("keys/agent.key")).unwrap();
        Self {
            keyboard: script.stdin.take().unwrap(),
            script,
            pid: running["pid"].as_u64().unwrap().try_into().unwrap(),
            authority: url.strip_prefix("http://").unwrap().to_owned(),
            agent: key.trim().to_owned(),
        }
    }

    fn call(&self, tool: &str) -> Value {
        let mut connection = Connection::open(&self.authority).unwrap();
        let limit = Some(SOON);
        connection.socket().set_read_timeout(limit).unwrap();
        let params = json!({"name": tool, "arguments": {"text": "x"}});
        modern(&mut connection, &self.agent, "/mcp", "tools/call", params).message()
    }

    fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
        self.keyboard.flush().unwrap();
    }

    fn ends(&self) {
        let gone = eventually(SOON, || !procs::alive(self.pid));
        assert!(gone.is_some(), "the gateway still runs");
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        if procs::alive(self.pid) {
            signal(self.pid, Signal::KILL);
        }
        drop(self.script.kill());
        drop(self.script.wait());
    }
}

// faults F2 and P4: Ctrl-S
#[test]
fn a_terminal_that_was_stopped_stops_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = AtTerminal::open(home.path());
    let ready = eventually(LONG, || {
        terminal.call("good__echo")["result"]["content"][0]["text"] == "x"
    });
    assert!(ready.is_some());
    terminal.types(b"\x13");
    let length = || fs::metadata(home.path().join("screen")).unwrap().len();
    let stopped = eventually(LONG, || {
        let before = length();
        (0..5).for_each(|_| drop(terminal.call("good__echo")));
        length() == before
    });
    assert!(stopped.is_some(), "the terminal was not stopped");
    for _ in 0..2 {
        for name in CRASHING {
            terminal.call(&format!("{name}__crash"));
        }
    }
    let answer = terminal.call("good__echo");
    assert_eq!(answer["result"]["content"][0]["text"], "x", "{answer:#}");
    let mut connection = Connection::open(&terminal.authority).unwrap();
    assert_eq!(
        connection
            .request("GET", "/healthz", &[], b"")
            .unwrap()
            .status,
        200
    );
    signal(terminal.pid, Signal::TERM);
    terminal.ends();
}

// fault P4: the window is closed
#[test]
fn a_terminal_that_is_closed_ends_its_gateway_in_order() {
    let home = tempfile::tempdir().unwrap();
    let mut terminal = AtTerminal::open(home.path());
    let ready = eventually(LONG, || {
        terminal.call("good__echo")["result"]["content"][0]["text"] == "x"
    });
    assert!(ready.is_some());
    drop(terminal.script.kill());
    drop(terminal.script.wait());
    terminal.ends();
    let announced = home.path().join("data/gateway.json");
    assert!(!announced.exists(), "one that drained leaves no word");
}
