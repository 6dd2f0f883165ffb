//! `fixture`, the MCP server over stdio that the official conformance suites expect to find: their
//! tools, prompts and resources under their names, in both eras, always well-behaved. Faults are
//! `evilpeer`'s. [`argv`] is its command line for a test; [`run`] is the program.

mod asking;
mod content;
mod link;
mod steps;
mod tools;

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

use self::link::Link;
use crate::bin;
use crate::peer::Era;
use crate::peer::era::{self, LATEST_LEGACY, LEGACY_VERSIONS, MODERN_VERSION};
use crate::peer::message::{Incoming, RpcError};

/// What a request is answered with; `None` if the answer never comes.
type Answer = Option<Result<Value, RpcError>>;

/// Returns the argument vector of a fixture that speaks these generations.
pub fn argv(era: Era) -> Vec<String> {
    let program = bin::fixture();
    let program = program.to_str().expect("paths of a build are UTF-8");
    [program, "--era", era.name()].map(str::to_owned).to_vec()
}

/// Runs `fixture` with these arguments (without the program's name).
pub fn run(arguments: &[String]) -> ExitCode {
    let era = match arguments {
        [] => Ok(Era::Dual),
        [flag, era] if flag == "--era" => Era::parse(era),
        _ => Err("usage: fixture [--era legacy|modern|dual]".to_owned()),
    };
    let served = era
        .map_err(io::Error::other)
        .and_then(|era| serve(&Arc::new(Link::new(era))));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "fixture: {error}"));
            ExitCode::from(2)
        }
    }
}

fn serve(link: &Arc<Link>) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let line = line?;
        let Ok(Incoming { id, method, params }) = serde_json::from_str::<Incoming<'_>>(&line)
        else {
            continue;
        };
        let params = params.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let params: Value = params.unwrap_or_else(|| json!({}));
        let id: Option<Value> = id.and_then(|raw| serde_json::from_str(raw.get()).ok());
        match (method, id) {
            (Some(method), Some(id)) => {
                let link = Arc::clone(link);
                // A call may take its time and ask the client; the next line must be read meanwhile.
                thread::spawn(move || link.reply(&id, answer(&link, &id, &method, &params)));
            }
            (Some(method), None) => link.notified(&method, &params),
            (None, Some(id)) => link.answered(&id, &line),
            (None, None) => {}
        }
    }
    Ok(())
}

fn answer(link: &Link, id: &Value, method: &str, params: &Value) -> Answer {
    let modern = match era::is_modern(link.era, link.is_initialized(), method, params) {
        Ok(modern) => modern,
        Err(error) => return Some(Err(error)),
    };
    if method == "subscriptions/listen" && modern {
        link.listen(id, params);
        return None;
    }
    let answered = match method {
        "initialize" if !modern => Ok(initialize(link, params)),
        "server/discover" if modern => Ok(json!({
            "supportedVersions": [MODERN_VERSION],
            "capabilities": capabilities(),
        })),
        "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
            if !modern =>
        {
            Ok(json!({}))
        }
        "tools/list" => Ok(json!({"tools": tools::all(link)})),
        "tools/call" => tools::call(link, modern, params),
        "prompts/list" => Ok(json!({"prompts": content::prompts(link)})),
        "prompts/get" => content::prompt(link, modern, params),
        "resources/list" => Ok(json!({"resources": content::resources()})),
        "resources/templates/list" => Ok(json!({"resourceTemplates": content::templates()})),
        "resources/read" => content::read(params, modern),
        "completion/complete" => Ok(content::complete(params)),
        _ => Err(RpcError::no_method(method)),
    };
    Some(answered.map(|mut result| {
        if modern {
            dress(&mut result, method);
        }
        result
    }))
}

/// Adds what a result of the stateless era must carry.
fn dress(result: &mut Value, method: &str) {
    if result["resultType"].is_null() {
        result["resultType"] = json!("complete");
    }
    result["_meta"][era::SERVER_INFO] = identity();
    if era::CACHED.contains(&method) {
        result["ttlMs"] = json!(300_000);
        result["cacheScope"] = json!("public");
    }
}

fn initialize(link: &Link, params: &Value) -> Value {
    let asked = params["protocolVersion"].as_str().unwrap_or(LATEST_LEGACY);
    let known = LEGACY_VERSIONS.contains(&asked);
    link.initialized(&params["capabilities"]);
    let mut capabilities = capabilities();
    capabilities["logging"] = json!({});
    capabilities["resources"]["subscribe"] = json!(true);
    json!({
        "protocolVersion": if known { asked } else { LATEST_LEGACY },
        "capabilities": capabilities,
        "serverInfo": identity(),
    })
}

fn identity() -> Value {
    json!({"name": "fixture", "version": env!("CARGO_PKG_VERSION")})
}

fn capabilities() -> Value {
    json!({
        "tools": {"listChanged": true},
        "prompts": {"listChanged": true},
        "resources": {"listChanged": true},
        "completions": {},
    })
}

#[cfg(test)]
mod tests;
