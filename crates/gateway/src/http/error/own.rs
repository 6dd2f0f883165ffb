//! Messages and hints for errors of the gateway itself, per code, without details of the machine.

use http::StatusCode;

/// Returns what is wrong, for whoever asked.
pub(super) fn detail(code: &str, status: StatusCode) -> &'static str {
    match code {
        "audit.unavailable" => "the call cannot be recorded, so it was not made",
        "audit.full" | "audit.behind" | "audit.gone" | "audit.write" | "audit.sync" => {
            "calls cannot be recorded, and are refused"
        }
        "audit.store" => {
            "the database does not answer; calls go on, and the journal keeps their rows"
        }
        "gateway.stopping" => "the gateway is stopping",
        "store.locked" => {
            "another program holds the database: nothing was changed, and calls go on"
        }
        "store.full" => {
            "no space is left for the database: nothing was changed, and calls go on while the journal \
             has room"
        }
        "store.gone" => "the database is no longer where it was: nothing was changed",
        "store.disk" => "the database cannot be read or written: nothing was changed",
        "store.busy" => "the database has too much to do: nothing was changed, and calls go on",
        _ if status == StatusCode::SERVICE_UNAVAILABLE => {
            "the gateway cannot do this at the moment; its log knows more under this code"
        }
        _ => "the gateway failed; its log knows more under this code",
    }
}

/// Returns what to do about it.
pub(super) fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "audit.unavailable" | "audit.store" => "`gantry status` and `gantry doctor` say why",
        "audit.full" | "store.full" => "free space on the gateway's disk; it goes on by itself",
        "store.locked" => "end the program that has `gantry.db` open for writing, then try again",
        "store.disk" => "check the gateway's disk, and who may write its data folder",
        "store.busy" => "try again in a moment",
        "store.gone" => "put the data folder back, or restart the gateway",
        _ => return None,
    })
}
