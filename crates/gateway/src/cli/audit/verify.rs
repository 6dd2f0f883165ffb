//! `gantry audit verify`: verifies recorded calls and administrative acts against their hash chain,
//! of a running gateway, or of an unused database and data folder. Exits with 1 if there is a mismatch.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gantry_engine::{
    AuditFile, HeadMark, JournalCheck, PublicKey, StoreConfig, TrustedKeys, VerifyOptions,
    public_audit_key, verify_audit, verify_journal,
};
use http::Method;
use serde_json::{Value, json};

use crate::api::audit::VerificationView;
use crate::cli::CliContext;
use crate::cli::failure::{Exit, Failure};
use crate::cli::find::Role;
use crate::cli::format::{list, number, pretty, text};
use crate::cli::screen::Screen;
use crate::cli::transfer::Transfer;

/// The maximum number of shown findings.
const MOST: usize = 1000;

/// Arguments of `gantry audit verify`.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Check this store instead of a running gateway's: a SQLite file or a `postgres://` URL
    #[arg(long)]
    store: Option<StoreConfig>,
    /// Check this folder of a journal that no gateway uses
    #[arg(long, value_name = "FOLDER")]
    journal: Option<PathBuf>,
    /// Believe only this public key: 64 hexadecimal digits, as `gantry audit key` shows it
    #[arg(long, value_name = "KEY", value_parser = key)]
    public_key: Vec<PublicKey>,
    /// A block that must be there, as an earlier check showed it: GATEWAY:NUMBER:HASH
    #[arg(long, value_name = "HEAD", value_parser = head)]
    head: Vec<HeadMark>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn key(text: &str) -> Result<PublicKey, String> {
    PublicKey::from_hex(text).ok_or_else(|| "a key has 64 hexadecimal digits".to_owned())
}

fn head(text: &str) -> Result<HeadMark, String> {
    HeadMark::from_text(text).ok_or_else(|| "write GATEWAY:NUMBER:HASH".to_owned())
}

/// Verifies, and prints all mismatches.
pub(super) async fn run(asked: &Verify, context: &CliContext) -> Result<ExitCode, Failure> {
    let screen = &context.screen;
    if let Some(folder) = &asked.journal {
        let check = verify_journal(folder);
        let check = check.map_err(|error| {
            let message = format!("cannot read the journal in `{}`", folder.display());
            Failure::plain(Exit::Failed, message, &error)
        })?;
        return Ok(show_journal(asked, &check, screen));
    }
    let report = match &asked.store {
        Some(store) => of_store(asked, store, context).await?,
        None => of_gateway(context).await?,
    };
    Ok(show(asked, &report, screen))
}

/// Asks the running gateway to verify its audit.
async fn of_gateway(context: &CliContext) -> Result<Value, Failure> {
    let client = context.client(Role::Admin)?;
    let path = "/api/v1/audit/verify";
    let mut transfer = Transfer::open(&client, Method::GET, path, "application/json", None).await?;
    let mut answer = Vec::new();
    while let Some(piece) = transfer.piece().await? {
        answer.extend_from_slice(&piece);
    }
    serde_json::from_slice(&answer).map_err(|error| {
        Failure::plain(
            Exit::Failed,
            "the response of the gateway is not JSON",
            &error,
        )
    })
}

/// Verifies a given store, with the key and the mark of the data folder if there are any.
async fn of_store(
    asked: &Verify,
    store: &StoreConfig,
    context: &CliContext,
) -> Result<Value, Failure> {
    let data = context.data.clone();
    let unreadable =
        |error: std::io::Error| Failure::plain(Exit::Failed, "cannot read the data folder", &error);
    let (mut known, mut marks) = (Vec::new(), asked.head.clone());
    if let Some(folder) = &data {
        known.extend(public_audit_key(folder).map_err(unreadable)?);
        marks.extend(HeadMark::read(folder).map_err(unreadable)?);
    }
    let trusted = match (asked.public_key.is_empty(), known.is_empty()) {
        (false, _) => TrustedKeys::Only(asked.public_key.clone()),
        (true, false) => TrustedKeys::AtLeast(known),
        (true, true) => TrustedKeys::FromStore,
    };
    let options = VerifyOptions {
        trusted,
        marks,
        most: MOST,
        tables: true,
    };
    let failed = |error: gantry_engine::StoreError| Failure::of(Exit::Failed, &error);
    let file = AuditFile::open(store).await.map_err(failed)?;
    let mut snapshot = file.snapshot().await.map_err(failed)?;
    let report = verify_audit(&mut snapshot, &options).await;
    drop(snapshot);
    file.close().await.map_err(failed)?;
    let report = VerificationView::from(&report.map_err(failed)?);
    Ok(serde_json::to_value(&report).expect("views are always JSON"))
}

fn show(asked: &Verify, report: &Value, screen: &Screen) -> ExitCode {
    let is_sound = report["sound"] == json!(true);
    if asked.json {
        screen.line(&pretty(report));
    } else {
        let count = |pointer: &str| number(report, pointer).unwrap_or_default();
        for finding in list(report, "/findings") {
            screen.line(&Screen::safe(&text(finding, "/text")));
        }
        let checked = format!(
            "{} and {} in {}",
            several(count("/rows"), "call"),
            several(count("/acts"), "act"),
            several(count("/blocks"), "block")
        );
        let found = count("/findings_total");
        screen.line(&match (is_sound, found) {
            (true, _) => format!("{checked}: nothing was changed, inserted or removed"),
            (false, 1) => format!("{checked}: 1 thing does not fit"),
            (false, _) => format!("{checked}: {found} things do not fit"),
        });
        for (pointer, what) in [("/not_covered", "call"), ("/acts_not_covered", "act")] {
            let before = count(pointer);
            if before > 0 {
                let verb = if before == 1 { "is" } else { "are" };
                screen.line(&format!(
                    "{} {verb} from releases before the audit chain: not covered",
                    several(before, what)
                ));
            }
        }
        for head in list(report, "/heads") {
            let (gateway, number_of) = (text(head, "/gateway"), text(head, "/number"));
            let hash = text(head, "/hash");
            screen.line(&format!("head {gateway}:{number_of}:{hash}"));
        }
        if !list(report, "/keys_from_store").is_empty() {
            screen.advise(
                "keys were taken from the database itself; name them with `--public-key` to be sure",
            );
        }
    }
    match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn show_journal(asked: &Verify, check: &JournalCheck, screen: &Screen) -> ExitCode {
    let is_sound = check.findings.is_empty();
    if asked.json {
        let findings: Vec<_> = check
            .findings
            .iter()
            .map(|text| json!({"text": text}))
            .collect();
        screen.line(&pretty(&json!({
            "sound": is_sound, "segments": check.segments, "records": check.records,
            "findings_total": findings.len(), "findings": findings,
        })));
    } else {
        for finding in &check.findings {
            screen.line(&Screen::safe(finding));
        }
        let records = several(check.records, "record");
        let segments = several(check.segments, "segment");
        screen.line(&match is_sound {
            true => format!("{records} in {segments}: nothing is damaged"),
            false => format!("{records} in {segments} are whole, others are not"),
        });
    }
    match is_sound {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns a number with its noun: `1 call`, `2 calls`.
fn several(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::several;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(several(0, "call"), "0 calls");
        assert_eq!(several(1, "call"), "1 call");
        assert_eq!(several(2, "call"), "2 calls");
    }
}
