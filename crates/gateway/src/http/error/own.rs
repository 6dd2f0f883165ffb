//! Messages and hints for errors of the gateway itself, per code, without details of the machine.

use http::StatusCode;

/// Returns the message.
pub(super) fn detail(code: &str, status: StatusCode) -> &'static str {
    match code {
        "audit.unavailable" => "the call cannot be recorded, so it was not made",
        "audit.full" | "audit.behind" | "audit.gone" | "audit.write" | "audit.sync" => {
            "calls cannot be recorded, and are refused"
        }
        "audit.store" => {
            "the database does not answer; calls continue, and the journal keeps their rows"
        }
        "auth.token_unavailable" => {
            "the token cannot be checked now: the keys of its issuer are not available"
        }
        "gateway.stopping" => "the gateway is stopping",
        "hook.failed" => "a content hook did not decide on the call, and nothing passes without it",
        "store.locked" => {
            "another program has locked the database: nothing was changed, and calls continue"
        }
        "store.full" => {
            "no space is left for the database: nothing was changed, and calls continue while the journal \
             has room"
        }
        "store.gone" => "the database is no longer where it was: nothing was changed",
        "store.disk" => "the database cannot be read or written: nothing was changed",
        "store.busy" => "the database is overloaded: nothing was changed, and calls continue",
        _ if status == StatusCode::SERVICE_UNAVAILABLE => {
            "the gateway cannot do this at the moment; see its log for this code"
        }
        _ => "the gateway failed; see its log for this code",
    }
}

/// Returns the hint.
pub(super) fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "audit.unavailable" | "audit.store" => "`gantry status` and `gantry doctor` say why",
        "audit.full" | "store.full" => {
            "free space on the gateway's disk; it then continues automatically"
        }
        "hook.failed" => {
            "try again or continue without it; `gantry hook ls` lists the hooks, the log says what failed"
        }
        "store.locked" => "end the program that has `gantry.db` open for writing, then try again",
        "store.disk" => "check the gateway's disk, and who may write its data folder",
        "store.busy" => "try again in a moment",
        "store.gone" => "put the data folder back, or restart the gateway",
        _ => return None,
    })
}
