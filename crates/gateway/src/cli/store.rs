//! `gantry store copy`: moves an installation from SQLite to PostgreSQL, or back. Entry point: [`run`].

use std::process::ExitCode;

use clap::{Args, Subcommand};
use gantry_engine::{Store, StoreConfig};
use serde_json::json;

use super::CliContext;
use super::as_json::AsJson;
use super::failure::{Exit, Failure};

/// What `gantry store` takes.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Copy everything from one store into another, empty one
    Copy {
        /// The store to read: a SQLite file or a `postgres://` URL
        from: StoreConfig,
        /// The store to fill: a new file, or an empty database
        to: StoreConfig,
        /// Copy although a gateway uses the source; what it writes meanwhile is not copied
        #[arg(long)]
        in_use: bool,
        #[command(flatten)]
        shown: AsJson,
    },
}

/// Runs the verb.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let Action::Copy {
        from,
        to,
        in_use,
        shown,
    } = &options.action;
    let copied = Store::copy(from, to, *in_use).await;
    let copied = copied.map_err(|error| Failure::of(Exit::Failed, &error))?;
    let tables: Vec<_> = copied
        .iter()
        .map(|table| json!({ "table": table.name, "rows": table.rows }))
        .collect();
    let rows: u64 = copied.iter().map(|table| table.rows).sum();
    let said = format!(
        "copied {rows} rows of {} tables from {from} to {to}\n\
         Start gateways with `--store` and the new place; the old one is left as it is.",
        copied.len()
    );
    shown.done(&context.screen, &json!({ "items": tables }), &said);
    Ok(ExitCode::SUCCESS)
}
