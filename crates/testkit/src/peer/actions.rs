//! The implementation of each tool: takes a call and the peer, and returns the outcome; responses,
//! delays and faults are handled elsewhere. Entry point: [`run`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, process, thread};

use serde_json::{Value, json};

use super::calls::{Call, Outcome};
use super::faults::Fault;
use super::message::{Answer, RpcError};
use super::output::write_all;
use super::state::{Peer, stop};
use super::{garbage, tools};

pub(crate) fn run(peer: &Arc<Peer>, call: &Call<'_>) -> Outcome {
    act(peer, call).unwrap_or_else(|missing| {
        let complaint = format!("invalid arguments for `{}`: {missing}", call.tool);
        Outcome::Now(Answer::Result(failure(&complaint)))
    })
}

fn act(peer: &Arc<Peer>, call: &Call<'_>) -> Result<Outcome, String> {
    let result = match call.tool {
        "echo" => {
            let result = text(call.word("text")?);
            match call.arguments["delay_ms"].as_u64() {
                Some(delay) => {
                    return Ok(Outcome::After(Duration::from_millis(delay), result));
                }
                None => result,
            }
        }
        "add" => add(&call.arguments["a"], &call.arguments["b"])?,
        "fail" => failure(call.word("message")?),
        "rpc_error" => {
            let code = call.arguments["code"]
                .as_i64()
                .ok_or("`code` must be an integer")?;
            let data = json!({"tool": "rpc_error", "detail": "as asked"});
            let error = RpcError::new(code, call.word("message")?).with_data(data);
            return Ok(Outcome::Now(error.into()));
        }
        "slow" => {
            let total = Duration::from_millis(call.count("ms")?);
            let steps = call.arguments["progress"].as_u64().unwrap_or(0);
            // An argument that is not in its schema: a file that ends the wait once it exists.
            if let Some(file) = call.arguments["until"].as_str() {
                let result = text("waited");
                return Ok(Outcome::Until(file.into(), steps, result));
            }
            let result = text(&format!("slept {} ms", total.as_millis()));
            return Ok(Outcome::Progress(total, steps, result));
        }
        "crash" => {
            let code = call.arguments["code"].as_i64().unwrap_or(1);
            stop("boom\n", i32::try_from(code).unwrap_or(1));
        }
        "bad_output" => structured(&json!({"sum": "not a number"})),
        "env" => text(&environment()),
        "fds" => text(&json!(open_files(peer.options.journal.as_deref())).to_string()),
        "pid" => text(&identity().to_string()),
        "big" => text(&"x".repeat(usize::try_from(call.count("bytes")?).unwrap_or(0))),
        "big_line" => return Ok(Outcome::Now(Answer::Padded(call.count("bytes")?))),
        "stderr" => {
            write_all(
                rustix::stdio::stderr(),
                format!("{}\n", call.word("text")?).as_bytes(),
            );
            text("written")
        }
        "whoami" => text(&call.meta.to_string()),
        "mirror" => text(call.raw),
        "shell" if peer.options.inside => shell(call.word("script")?),
        "eat" if peer.options.inside => {
            let bytes = usize::try_from(call.count("bytes")?).unwrap_or(usize::MAX);
            // Written, so that the memory is really used; never freed.
            Box::leak(vec![7_u8; bytes].into_boxed_slice());
            text("eaten")
        }
        tools::HEADERS => {
            let session = peer.session.lock().expect("nothing panics under this lock");
            text(&session.headers.to_string())
        }
        "noise" => {
            let lines = call.arguments["lines"].as_u64().unwrap_or(10);
            for line in garbage::NOISE
                .iter()
                .cycle()
                .take(usize::try_from(lines).unwrap_or(10))
            {
                peer.output.raw(format!("{line}\n").as_bytes());
            }
            text("made noise")
        }
        "grow" => {
            let name = tools::grow(peer);
            let method = "notifications/tools/list_changed";
            peer.announce(call.ticket, method, "toolsListChanged", &json!({}));
            text(&name)
        }
        "touch" => touch(peer, call)?,
        tools::SAY => say(peer, call)?,
        "trigger" if peer.faults().is(Fault::FloodNoline, "trigger") => {
            let flooding = Arc::clone(peer);
            thread::spawn(move || flooding.output.flood());
            return Ok(Outcome::Now(Answer::Later));
        }
        "trigger" => text("nothing to trigger"),
        other => text(&format!(
            "{other} {}",
            call.arguments["text"].as_str().unwrap_or_default()
        )),
    };
    Ok(Outcome::Now(Answer::Result(result)))
}

impl Call<'_> {
    fn word(&self, name: &str) -> Result<&str, String> {
        self.arguments[name]
            .as_str()
            .ok_or_else(|| format!("`{name}` must be a string"))
    }

    fn count(&self, name: &str) -> Result<u64, String> {
        self.arguments[name]
            .as_u64()
            .ok_or_else(|| format!("`{name}` must be a whole number"))
    }
}

/// Runs a script and returns its output, including stderr.
fn shell(script: &str) -> Value {
    let ran = process::Command::new("/bin/sh")
        .args(["-c", script])
        .stdin(process::Stdio::null())
        .output();
    match ran {
        Ok(ran) => {
            let mut said = String::from_utf8_lossy(&ran.stdout).into_owned();
            said.push_str(&String::from_utf8_lossy(&ran.stderr));
            text(&said)
        }
        Err(error) => failure(&error.to_string()),
    }
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn failure(message: &str) -> Value {
    json!({"content": [{"type": "text", "text": message}], "isError": true})
}

fn structured(value: &Value) -> Value {
    let text = value.to_string();
    json!({"content": [{"type": "text", "text": text}], "structuredContent": value})
}

fn add(a: &Value, b: &Value) -> Result<Value, String> {
    // Integers stay integers.
    let sum = match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.checked_add(b).map(|sum| json!(sum)),
        _ => None,
    };
    let sum = sum.or_else(|| Some(json!(a.as_f64()? + b.as_f64()?)));
    Ok(structured(
        &json!({"sum": sum.ok_or("`a` and `b` must be numbers")?}),
    ))
}

fn environment() -> String {
    let variables: BTreeMap<String, String> = env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    json!(variables).to_string()
}

/// Returns the open file descriptors, without the journal and without the one used for looking.
fn open_files(journal: Option<&Path>) -> Vec<u32> {
    let journal = journal.and_then(|path| fs::canonicalize(path).ok());
    let own = format!("/proc/{}/fd", process::id());
    let mut numbers: Vec<u32> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let target = fs::read_link(entry.path()).ok()?;
            let ours = target == Path::new(&own) || Some(&target) == journal.as_ref();
            if ours {
                None
            } else {
                entry.file_name().to_str()?.parse().ok()
            }
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Returns who this process is: its own id, its ids in the namespaces `/proc` knows of, and the
/// inode of its namespace, which tells whether it shares one with another process.
fn identity() -> Value {
    let link = |path: &str| {
        fs::read_link(path)
            .ok()
            .map(|to| to.to_string_lossy().into_owned())
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .unwrap_or_default();
    let ids: Vec<u32> = ids
        .split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect();
    json!({
        "pid": process::id(),
        "parent": rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()),
        "proc_self": link("/proc/self"),
        "namespace_ids": ids,
        "namespace": link("/proc/self/ns/pid"),
        "uid": rustix::process::getuid().as_raw(),
    })
}

/// Writes the lines of a call, `times` over, and all of them once more after `again_ms`. In a line
/// `%id%` is the id of the call, `%token%` its progress token, `%n%` the round, and `%pad%` stands
/// for `pad` bytes.
fn say(peer: &Arc<Peer>, call: &Call<'_>) -> Result<Value, String> {
    let lines = call.arguments["lines"].as_array();
    let lines = lines.ok_or("`lines` must be an array")?;
    let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
    let times = call.arguments["times"].as_u64().unwrap_or(1);
    let pad = call.arguments["pad"].as_u64().unwrap_or(0);
    let pad = "x".repeat(usize::try_from(pad).unwrap_or(0));
    let token = call.meta["progressToken"].to_string();
    let written: Vec<Vec<u8>> = (0..times)
        .flat_map(|round| lines.iter().map(move |line| (round, line)))
        .map(|(round, line)| {
            line.replace("%id%", &call.ticket.id)
                .replace("%token%", &token)
                .replace("%n%", &round.to_string())
                .replace("%pad%", &pad)
                .into_bytes()
        })
        .collect();
    let count = written.len();
    for line in &written {
        peer.output.send(line.clone());
    }
    if let Some(delay) = call.arguments["again_ms"].as_u64() {
        let later = Arc::clone(peer);
        peer.timer.after(Duration::from_millis(delay), move || {
            for line in written {
                later.output.send(line);
            }
        });
    }
    Ok(text(&format!("said {count}")))
}

fn touch(peer: &Peer, call: &Call<'_>) -> Result<Value, String> {
    let uri = call.word("uri")?;
    let watched = {
        let session = peer.session.lock().expect("nothing panics under this lock");
        session.watched.iter().any(|each| each == uri)
    };
    if watched || call.ticket.modern {
        let method = "notifications/resources/updated";
        peer.announce(
            call.ticket,
            method,
            "resourceSubscriptions",
            &json!({"uri": uri}),
        );
    }
    Ok(text("touched"))
}
