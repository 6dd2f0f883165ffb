//! The load generator: makes calls over HTTP or straight on a child's pipe, checks every answer, and
//! prints one line of JSON. What it is told is in `arguments.rs`.
//!
//! Loopback only. It starts no gateway; `bench/run` does.

mod arguments;
mod http;
mod outcome;
mod pipe;
mod workload;

use std::error::Error;
use std::process::ExitCode;

use arguments::{Arguments, Target};
use serde_json::{Value, json};

/// Why a call or a run did not succeed; only ever shown.
type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let (report, code) = match run() {
        Ok(report) => (report, ExitCode::SUCCESS),
        Err(why) => (json!({ "failed": why.to_string() }), ExitCode::FAILURE),
    };
    println!("{report}");
    code
}

fn run() -> Result<Value, Failure> {
    let text = std::env::args().nth(1).ok_or("the argument is missing")?;
    let arguments: Arguments = serde_json::from_str(&text)?;
    match arguments.target {
        Target::Http(endpoint) => http::run(&endpoint, arguments.plan),
        Target::Pipe(pipe) => pipe::run(&pipe, &arguments.plan),
    }
}
