//! `gantry audit export | hold | holds`: the record of calls as a whole.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use http::Method;
use serde_json::json;

use crate::cli::as_json::AsJson;
use crate::cli::call_filters::CallFilters;
use crate::cli::client::Client;
use crate::cli::failure::{Exit, Failure};
use crate::cli::format::{moment, number, text, time};
use crate::cli::screen::Screen;
use crate::cli::transfer::Transfer;
use crate::data_folder::create_private;

const HEADING: [&str; 6] = ["hold", "since", "by", "what", "reason", "released"];

/// Arguments of `gantry audit export`.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// One JSON object per line, or a table for spreadsheets
    #[arg(long, value_parser = ["jsonl", "csv"], default_value = "jsonl")]
    format: String,
    /// Write to a new file instead of the terminal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    filters: CallFilters,
}

/// Writes the calls as they come, piece by piece.
pub(super) async fn export(
    asked: &Export,
    client: &Client,
    screen: &Screen,
) -> Result<(), Failure> {
    let (filters, format) = (&asked.filters, &asked.format);
    let filter = filters.query(filters.since);
    let path = format!("/api/v1/calls/export?format={format}{filter}");
    let mut transfer = Transfer::open(client, Method::GET, &path, "*/*", None).await?;
    let Some(file) = &asked.output else {
        let mut rest = Vec::new();
        while let Some(piece) = transfer.piece().await? {
            rest.extend_from_slice(&piece);
            // A line at a time: what is printed is guarded against control characters.
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                if !screen.is_seen(line.trim_end_matches(['\r', '\n'])) {
                    return Ok(());
                }
            }
        }
        return Ok(());
    };
    let failed = |error: std::io::Error| {
        let message = format!("cannot write `{}`", file.display());
        Failure::plain(Exit::Failed, message, &error)
    };
    let mut made = create_private(file).map_err(failed)?;
    let mut bytes = 0;
    while let Some(piece) = transfer.piece().await? {
        made.write_all(&piece).map_err(failed)?;
        bytes += piece.len();
    }
    made.sync_all().map_err(failed)?;
    screen.line(&format!("wrote {bytes} bytes to `{}`", file.display()));
    Ok(())
}

/// Arguments of `gantry audit hold`.
#[derive(Debug, Args)]
pub(super) struct Hold {
    /// Only calls of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Only calls on behalf of this user
    #[arg(long)]
    user: Option<String>,
    /// Only calls to this server
    #[arg(long)]
    server: Option<String>,
    /// Only calls since a time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<u64>,
    /// Only calls until a time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<u64>,
    /// Why
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    shown: AsJson,
}

/// Places a hold.
pub(super) async fn hold(asked: &Hold, client: &Client, screen: &Screen) -> Result<(), Failure> {
    let time = |ms: Option<u64>| ms.map(|ms| ms.to_string());
    let body = json!({
        "agent": asked.agent,
        "user": asked.user,
        "server": asked.server,
        "since": time(asked.since),
        "until": time(asked.until),
        "reason": asked.reason,
    });
    let hold = client.post("/api/v1/audit/holds", Some(&body)).await?;
    let said = format!(
        "hold {} is in force; `{}` ends it",
        text(&hold, "/id"),
        screen.command(&format!("audit release {}", text(&hold, "/id")))
    );
    asked.shown.done(screen, &hold, &said);
    Ok(())
}

/// Lists the holds.
pub(super) async fn holds(shown: AsJson, client: &Client, screen: &Screen) -> Result<(), Failure> {
    let answer = client.get("/api/v1/audit/holds").await?;
    shown.list(screen, &answer, &HEADING, |hold| {
        let moment = |pointer: &str| number(hold, pointer).map_or_else(String::new, time);
        let parts = ["agent", "user", "server"];
        let mut what: Vec<String> = parts
            .into_iter()
            .map(|part| (part, text(hold, &format!("/{part}"))))
            .filter(|(_, value)| !value.is_empty())
            .map(|(part, value)| format!("{part} {value}"))
            .collect();
        for (word, pointer) in [("since", "/since_ms"), ("until", "/until_ms")] {
            if number(hold, pointer).is_some() {
                what.push(format!("{word} {}", moment(pointer)));
            }
        }
        if what.is_empty() {
            what.push("all calls".to_owned());
        }
        vec![
            text(hold, "/id"),
            moment("/created_ms"),
            text(hold, "/created_by"),
            what.join(", "),
            text(hold, "/reason"),
            moment("/released_ms"),
        ]
    });
    Ok(())
}
