//! `gantry stdio`: an MCP server on stdin and stdout, for clients that can only start a program.
//!
//! Connects to the folder's running gateway, or starts one, and forwards every message unchanged,
//! in both protocol eras. stdout carries messages and nothing else. The end of stdin cancels what
//! is in flight. Entry point: [`run`].

mod attach;
mod batch;
mod bridge;
mod error;
mod exchange;
mod inflight;
mod lines;
mod session;
mod tries;
mod unapproved;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use gantry_model::id::ServerName;
use tokio::time::timeout;

use crate::app::signals::{Hangup, Signals};
use crate::data_folder::DataFolder;

use super::CliContext;
use super::failure::{Exit, Failure};
use super::find::working_folder;
use super::format::time_span;

use attach::Attached;
use bridge::{Bridge, Grace};

/// How long the last messages may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The overall deadline after a signal.
const AT_ONCE: Duration = Duration::from_millis(700);
/// The deadline for ending on its own; longer than the last responses, closing the session and the
/// last messages together.
const AT_LAST: Duration = Duration::from_secs(5);

/// Arguments of `gantry stdio`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Offer one server only, under its tools' own names
    #[arg(long, value_name = "NAME")]
    server: Option<ServerName>,
    /// Run as if started in this folder
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Use a running gateway only, never start one
    #[arg(long)]
    no_start: bool,
    /// How long to wait for the servers of a gateway started on demand
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time_span)]
    settle: Duration,
}

/// Serves one client until stdin ends.
pub(super) async fn run(options: Options, context: CliContext) -> Result<ExitCode, Failure> {
    // Many clients never read stderr.
    let output = context.screen.output();
    output.serve();
    let mut signals = Signals::listen(Hangup::Stop, AT_LAST)
        .map_err(|error| Failure::plain(Exit::Failed, "cannot listen for signals", &error))?;
    let working = match &options.folder {
        None => working_folder()?,
        Some(folder) => std::fs::canonicalize(folder).map_err(|error| {
            let message = format!("cannot use the folder `{}`", folder.display());
            Failure::plain(Exit::Usage, message, &error)
        })?,
    };
    let data = match &context.data {
        Some(data) => data.clone(),
        None => DataFolder::default_path(context.environment.state_home(), &working)
            .map_err(|error| Failure::of(Exit::Usage, &error))?,
    };
    let path = match &options.server {
        Some(server) => format!("/mcp/servers/{server}"),
        None => "/mcp".to_owned(),
    };
    let working = (!options.no_start).then_some(working);
    let finding = Attached::find(context, data, working, options.settle);
    let gateway = tokio::select! {
        biased;
        _ = signals.stop() => return Ok(ExitCode::SUCCESS),
        found = finding => found?,
    };

    let mut input = lines::read();
    let (out, written) = lines::write(output);
    let keeping = Arc::clone(&gateway).keep();
    let bridge = Bridge::new(gateway, path, out.clone());
    // Raced as a whole: a client that does not read blocks its own lines, not the end.
    let serving = async {
        while let Some(line) = input.recv().await {
            bridge.take(line).await;
        }
    };
    let grace = tokio::select! {
        biased;
        _ = signals.stop() => Grace::None,
        () = out.closed() => Grace::None,
        () = serving => Grace::Short,
        () = keeping => Grace::None,
    };
    let ending = async {
        bridge.end(grace).await;
        drop((bridge, out));
        // A client that stopped reading gets nothing more.
        drop(timeout(LAST_WORDS, written).await);
    };
    match grace {
        Grace::None => drop(timeout(AT_ONCE, ending).await),
        Grace::Short => tokio::select! {
            biased;
            _ = signals.stop() => {}
            () = ending => {}
        },
    }
    Ok(ExitCode::SUCCESS)
}
