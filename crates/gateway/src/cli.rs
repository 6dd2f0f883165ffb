//! The command line: one file per verb, all of them clients of a running gateway but `up`.
//!
//! Flags, variables and defaults are joined here; a verb sees only what it needs. Prints results to
//! stdout, errors and logs to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no gateway.
//! Entry point: [`main`].

mod call;
mod calls;
mod client;
mod doctor;
mod failure;
mod find;
mod format;
mod logging;
mod logs;
mod restart;
mod screen;
mod status;
mod stdio;
mod tools;
mod up;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::config::env::{self, Environment};
use crate::example;

use failure::Failure;
use screen::Screen;

/// Runs, connects and guards MCP servers for AI agents.
#[derive(Debug, Parser)]
#[command(name = "gantry", version, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

/// What every verb takes.
#[derive(Debug, Args)]
struct Common {
    /// The data folder of the gateway [default: one per working folder, under ~/.local/state/gantry]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The URL of the gateway to talk to, if it is not the one of the data folder
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// The file with the key to use, if it is not in the data folder
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// What is logged to stderr, such as `info` or `gantry=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start the gateway with its servers, and serve until stopped
    Up(up::Options),
    /// Show the gateway's servers, or everything about one
    Status(status::Options),
    /// List the tools that an agent sees
    Tools(tools::Options),
    /// Call a tool
    Call(call::Options),
    /// Show the recorded calls, newest last
    Calls(calls::Options),
    /// Show what a server wrote to stderr
    Logs(logs::Options),
    /// Stop a server and start it again
    Restart(restart::Options),
    /// Serve one MCP client on stdin and stdout, through the folder's gateway
    Stdio(stdio::Options),
    /// Check what this machine can enforce, and the running gateway's health
    Doctor(doctor::Options),
    /// The MCP server that `up` starts when no other is configured
    #[command(hide = true)]
    ExampleServer,
}

/// Where a verb finds its gateway and how it talks to the person.
struct Surroundings {
    environment: Environment,
    data: Option<PathBuf>,
    url: Option<String>,
    key_file: Option<PathBuf>,
    screen: Screen,
}

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors, and clap knows where each belongs.
            let code = if error.use_stderr() { 2 } else { 0 };
            return error
                .print()
                .map_or(ExitCode::FAILURE, |()| ExitCode::from(code));
        }
    };
    if let Verb::ExampleServer = arguments.verb {
        return example::run().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let environment = Environment::of_process();
    let screen = Screen::new(environment.wants_colour());
    let Common {
        data,
        url,
        key_file,
        log,
    } = arguments.common;
    let named = |name| environment.filled(name).map(str::to_owned);
    let surroundings = Surroundings {
        data: data.or_else(|| named(env::GANTRY_DATA).map(PathBuf::from)),
        url: url.or_else(|| named(env::GANTRY_URL)),
        key_file: key_file.or_else(|| named(env::GANTRY_KEY_FILE).map(PathBuf::from)),
        screen,
        environment,
    };
    let filter = log.or_else(|| {
        surroundings
            .environment
            .filled(env::GANTRY_LOG)
            .map(str::to_owned)
    });
    let done = logging::start(filter.as_deref(), &surroundings.screen)
        .and_then(|()| run(arguments.verb, surroundings));
    done.unwrap_or_else(|failure| failure.show(&screen))
}

fn run(verb: Verb, surroundings: Surroundings) -> Result<ExitCode, Failure> {
    if let Verb::Stdio(options) = verb {
        return client::block_on(stdio::run(options, surroundings));
    }
    let surroundings = &surroundings;
    match verb {
        Verb::Up(options) => up::run(options, surroundings),
        Verb::Status(options) => client::block_on(status::run(&options, surroundings)),
        Verb::Tools(options) => client::block_on(tools::run(&options, surroundings)),
        Verb::Call(options) => client::block_on(call::run(&options, surroundings)),
        Verb::Calls(options) => client::block_on(calls::run(&options, surroundings)),
        Verb::Logs(options) => client::block_on(logs::run(&options, surroundings)),
        Verb::Restart(options) => client::block_on(restart::run(&options, surroundings)),
        Verb::Doctor(options) => client::block_on(doctor::run(&options, surroundings)),
        Verb::Stdio(_) | Verb::ExampleServer => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests;
