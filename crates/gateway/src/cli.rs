//! The command line: one file per verb. All verbs but `up` are clients of a running gateway.
//!
//! Flags, variables and defaults are merged here. Results go to stdout, errors and logs to stderr.
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no gateway. Entry point: [`main`].

mod add;
mod agent;
mod approvals;
mod approve;
mod as_json;
mod audit;
mod auth;
mod await_server;
mod bench;
mod call;
mod call_filters;
mod calls;
mod client;
mod config;
mod connect;
mod diff;
mod doctor;
mod events;
mod failure;
mod files;
mod find;
mod follow;
mod format;
mod grant;
mod group;
mod hardening;
mod hook;
mod images;
mod import;
mod key;
mod limits;
mod logging;
mod logs;
mod ls;
mod mcp_registry;
mod open;
mod output;
mod policy;
mod pool;
mod product;
mod progress;
mod project;
mod prompt;
mod reference;
mod registration;
mod restart;
mod rm;
mod screen;
mod search;
mod secret;
mod status;
mod stdio;
mod store;
mod suspend;
mod tools;
mod transfer;
mod unchecked_tools;
mod up;
mod volumes;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::config::env::{self, Environment};
use crate::example;

use failure::Failure;
use output::{Flushed, Output};
use screen::Screen;

/// Runs, connects and guards MCP servers for AI agents.
#[derive(Debug, Parser)]
#[command(
    name = "gantry",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

/// The flags of every verb.
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
    /// The project to work in, if it is not that of the key
    #[arg(long, global = true, value_name = "NAME")]
    project: Option<String>,
    /// What is logged to stderr, such as `info` or `gantry=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start the gateway with its servers, and serve until stopped
    Up(Box<up::Options>),
    /// Write Gantry into a client's file, or show which clients are connected
    Connect(connect::Options),
    /// Import the servers of other clients into `gantry.toml`
    Import(import::Options),
    /// Approve the files of this folder
    Approve(approve::Options),
    /// Check and explain the configuration
    Config(config::Options),
    /// Register a server with the running gateway and start it
    Add(Box<add::Options>),
    /// Look for servers in an MCP registry
    Search(search::Options),
    /// List, pull, import and remove images
    Images(images::Options),
    /// List, back up and remove what hosted servers keep
    Volumes(volumes::Options),
    /// Set, list, bind and remove the secrets that servers are given
    Secret(secret::Options),
    /// Sign in to a remote server, or out of it
    Auth(auth::Options),
    /// List the servers, what they run and where they came from
    Ls(ls::Options),
    /// Stop and remove a registered server, or remove a server from its file
    Rm(rm::Options),
    /// Show the gateway's servers, or everything about one
    Status(status::Options),
    /// Sign a browser in to the gateway
    Open(open::Options),
    /// Show what a server wrote to stderr
    Logs(logs::Options),
    /// Show what happened to servers
    Events(events::Options),
    /// Stop a server and start it again
    Restart(restart::Options),
    /// List the tools that an agent sees, and decide on tools that changed
    Tools(tools::Options),
    /// Call a tool
    Call(call::Options),
    /// Explain whether an agent may use a tool
    Why(why::Options),
    /// Show the recorded calls, newest last
    Calls(calls::Options),
    /// Show administrative acts; verify, export, hold and erase recorded calls
    Audit(audit::Options),
    /// List, create and revoke keys
    Key(key::Options),
    /// List, create, change and remove agents
    Agent(agent::Options),
    /// List, add and remove grants: what agents may use, may not use, or must ask for
    Grant(grant::Options),
    /// List, create, change and remove groups of servers that grants name
    Group(group::Options),
    /// Try a change of grants on the recorded calls
    Policy(policy::Options),
    /// List, make, load, unload and delete projects, and change their settings
    Project(project::Options),
    /// Move an installation between SQLite and PostgreSQL
    Store(store::Options),
    /// Show, install, upgrade and remove products
    Product(product::Options),
    /// Stop an agent, a server, a tool or the project at once, keeping its grants
    Suspend(suspend::Options),
    /// End a suspension
    Resume(suspend::Options),
    /// Decide on calls that wait for an approver
    Approvals(approvals::Options),
    /// List, set and remove the hooks that look at requests and results
    Hook(hook::Options),
    /// Decide what waits for a second person
    Registration(registration::Options),
    /// Check this machine, the data folder, what servers need, and the running gateway
    Doctor(doctor::Options),
    /// Serve one MCP client on stdin and stdout, through the folder's gateway
    Stdio(stdio::Options),
    /// Call a tool repeatedly and report throughput and latency
    Bench(bench::Options),
    /// Print completions for a shell
    Completions(reference::CompletionOptions),
    /// Print a man page
    Man(reference::ManOptions),
    /// Write `cli.md` and all man pages to a folder
    #[command(hide = true)]
    Reference(reference::WriteOptions),
    /// The MCP server that `up` starts when no other is configured
    #[command(hide = true)]
    ExampleServer,
}

/// What every verb gets: how to find its gateway, and its terminal.
struct CliContext {
    environment: Environment,
    data: Option<PathBuf>,
    url: Option<String>,
    key_file: Option<PathBuf>,
    project: Option<String>,
    screen: Screen,
}

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    hardening::apply();
    let output = Output::install();
    // Runs in any case, also after a panic.
    let _flushed = Flushed(output);
    let environment = Environment::of_process();
    let screen = Screen::new(&environment, output);
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return screen.finish(refused(&error, &screen)),
    };
    if let Verb::ExampleServer = arguments.verb {
        return example::run().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let Common {
        data,
        url,
        key_file,
        project,
        log,
    } = arguments.common;
    // One flag of a verb has the name of a flag of all verbs; clap takes it for both.
    let is_own = matches!(&arguments.verb, Verb::Hook(hook) if hook.takes_url());
    let url = url.filter(|_| !is_own);
    let named = |name| environment.filled(name).map(str::to_owned);
    let data = data.or_else(|| named(env::GANTRY_DATA).map(PathBuf::from));
    let screen = data
        .as_deref()
        .map_or(screen, |data| screen.with_data(data));
    let context = CliContext {
        data,
        url: url.or_else(|| named(env::GANTRY_URL)),
        key_file: key_file.or_else(|| named(env::GANTRY_KEY_FILE).map(PathBuf::from)),
        project: project.or_else(|| named(env::GANTRY_PROJECT)),
        screen,
        environment,
    };
    let filter = log.or_else(|| {
        context
            .environment
            .filled(env::GANTRY_LOG)
            .map(str::to_owned)
    });
    let serves = matches!(arguments.verb, Verb::Up(_) | Verb::Stdio(_));
    let default = if serves {
        logging::LIFECYCLE
    } else {
        logging::WARNINGS
    };
    let done = logging::start(filter.as_deref(), default, &context.screen)
        .and_then(|()| run(arguments.verb, context));
    let code = done.unwrap_or_else(|failure| failure.show(&screen));
    screen.finish(code)
}

/// Prints clap's message: help and version are not errors, and go to stdout.
fn refused(error: &clap::Error, screen: &Screen) -> ExitCode {
    let text = error.render();
    let show = |colour: bool| match colour {
        true => text.ansi().to_string(),
        false => text.to_string(),
    };
    match error.use_stderr() {
        true => {
            let screen = screen.for_errors();
            screen.error_line(show(screen.has_colour()).trim_end_matches('\n'));
            ExitCode::from(failure::Exit::Usage as u8)
        }
        false => {
            screen.text(&show(screen.has_colour()));
            ExitCode::SUCCESS
        }
    }
}

fn run(verb: Verb, context: CliContext) -> Result<ExitCode, Failure> {
    if let Verb::Stdio(options) = verb {
        return client::block_on(stdio::run(options, context));
    }
    let context = &context;
    let screen = &context.screen;
    match verb {
        Verb::Up(options) => up::run(*options, context),
        Verb::Add(options) => client::block_on(add::run(&options, context)),
        Verb::Search(options) => client::block_on(search::run(&options, context)),
        Verb::Images(options) => client::block_on(images::run(&options, context)),
        Verb::Store(options) => client::block_on(store::run(&options, context)),
        Verb::Volumes(options) => client::block_on(volumes::run(&options, context)),
        Verb::Secret(options) => client::block_on(secret::run(&options, context)),
        Verb::Auth(options) => client::block_on(auth::run(&options, context)),
        Verb::Ls(options) => client::block_on(ls::run(&options, context)),
        Verb::Rm(options) => client::block_on(rm::run(&options, context)),
        Verb::Connect(options) => client::block_on(connect::run(&options, context)),
        Verb::Import(options) => import::run(&options, context),
        Verb::Approve(options) => approve::run(&options, context),
        Verb::Config(options) => config::run(&options, context),
        Verb::Status(options) => client::block_on(status::run(&options, context)),
        Verb::Open(options) => client::block_on(open::run(&options, context)),
        Verb::Logs(options) => client::block_on(logs::run(&options, context)),
        Verb::Events(options) => client::block_on(events::run(&options, context)),
        Verb::Restart(options) => client::block_on(restart::run(&options, context)),
        Verb::Tools(options) => client::block_on(tools::run(&options, context)),
        Verb::Call(options) => client::block_on(call::run(&options, context)),
        Verb::Why(options) => client::block_on(why::run(&options, context)),
        Verb::Calls(options) => client::block_on(calls::run(&options, context)),
        Verb::Audit(options) => client::block_on(audit::run(&options, context)),
        Verb::Key(options) => client::block_on(key::run(&options, context)),
        Verb::Agent(options) => client::block_on(agent::run(&options, context)),
        Verb::Grant(options) => client::block_on(grant::run(&options, context)),
        Verb::Group(options) => client::block_on(group::run(&options, context)),
        Verb::Policy(options) => client::block_on(policy::run(&options, context)),
        Verb::Product(options) => client::block_on(product::run(&options, context)),
        Verb::Suspend(options) => client::block_on(suspend::suspend(&options, context)),
        Verb::Resume(options) => client::block_on(suspend::resume(&options, context)),
        Verb::Approvals(options) => client::block_on(approvals::run(&options, context)),
        Verb::Hook(options) => client::block_on(hook::run(&options, context)),
        Verb::Registration(options) => client::block_on(registration::run(&options, context)),
        Verb::Project(options) => client::block_on(project::run(&options, context)),
        Verb::Doctor(options) => client::block_on(doctor::run(&options, context)),
        Verb::Bench(options) => client::block_on(bench::run(&options, context)),
        Verb::Completions(options) => {
            reference::completions(&options, Arguments::command(), screen)
        }
        Verb::Man(options) => reference::man(&options, Arguments::command(), screen),
        Verb::Reference(options) => reference::write(&options, Arguments::command()),
        Verb::Stdio(_) | Verb::ExampleServer => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests;
