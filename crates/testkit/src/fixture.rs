//! `fixture`, the MCP server that the official conformance suites expect to find: their tools,
//! prompts and resources under their names, in both eras, over stdio and HTTP, always well-behaved.
//! Faults are `evilpeer`'s. [`argv`] is its command line for a test, [`serve`] starts one over HTTP;
//! [`run`] is the program.

mod asking;
mod content;
mod http;
mod link;
mod steps;
mod tools;

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use serde_json::{Value, json};

use self::http::Fixture;
use self::link::{Link, Out, Shared};
use crate::bin;
use crate::peer::Era;
use crate::peer::era::{self, LATEST_LEGACY, LEGACY_VERSIONS, MODERN_VERSION};
use crate::peer::message::{Incoming, RpcError};
use crate::web::{self, Kind, Place, Served};

const USAGE: &str = "\
usage: fixture [--era legacy|modern|dual] [--asks everywhere|handshake|at-start]
               [--http PORT [--kind streamable|sse] [--until-eof]]

  --era         protocol generations it speaks (default dual)
  --asks        whether tools ask their clients in both generations (default), or only in that of the
                handshake, as servers do whose SDK has no other way; `at-start` is that, and asks for
                roots as soon as it is greeted
  --http PORT   serves HTTP there instead of stdio, 0 for any port; the URL is the first line on stdout
  --kind        streamable HTTP at /mcp (default), or HTTP+SSE at /sse
  --until-eof   ends when stdin does
";

/// When tools send requests to their clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// In both eras.
    Everywhere,
    /// In the handshake era, as requests.
    Handshake,
    /// Like `Handshake`, and for roots directly after the handshake.
    AtStart,
}

impl Asks {
    const ALL: [Self; 3] = [Self::Everywhere, Self::Handshake, Self::AtStart];

    fn name(self) -> &'static str {
        match self {
            Self::Everywhere => "everywhere",
            Self::Handshake => "handshake",
            Self::AtStart => "at-start",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|asks| asks.name() == text);
        found.ok_or_else(|| USAGE.to_owned())
    }
}

/// The response to a request; `None` if there is none.
type Answer = Option<Result<Value, RpcError>>;

/// Returns the argument vector of a fixture of these eras.
pub fn argv(era: Era) -> Vec<String> {
    let program = bin::fixture();
    let program = program.to_str().expect("paths of a build are UTF-8");
    [program, "--era", era.name()].map(str::to_owned).to_vec()
}

/// Returns the argument vector of a fixture whose tools send such requests.
pub fn asking(era: Era, asks: Asks) -> Vec<String> {
    let mut argv = argv(era);
    argv.extend(["--asks", asks.name()].map(str::to_owned));
    argv
}

/// Starts a fixture that is reached over HTTP.
pub fn serve(era: Era, kind: Kind) -> Served {
    serve_asking(era, kind, Asks::Everywhere)
}

/// Starts a fixture over HTTP whose tools send such requests.
pub fn serve_asking(era: Era, kind: Kind, asks: Asks) -> Served {
    let mut argv = asking(era, asks);
    let http = ["--http", "0", "--kind", kind.name(), "--until-eof"];
    argv.extend(http.map(str::to_owned));
    Served::start(&argv)
}

/// Runs `fixture` with these arguments (without the program's name).
pub fn run(arguments: &[String]) -> ExitCode {
    let served = parse(arguments)
        .map_err(io::Error::other)
        .and_then(|(era, asks, place)| {
            let shared = Shared::new(era, asks);
            match place {
                Some(place) => web::serve(place, Arc::new(Fixture(shared))),
                None => listen(&shared.meet(Out::Stdout)),
            }
        });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "fixture: {error}"));
            ExitCode::from(2)
        }
    }
}

fn parse(arguments: &[String]) -> Result<(Era, Asks, Option<Place>), String> {
    let (mut era, mut http, mut place) = (Era::Dual, false, Place::default());
    let mut asks = Asks::Everywhere;
    let mut arguments = arguments.iter();
    while let Some(flag) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match flag.as_str() {
            "--era" => era = Era::parse(value()?)?,
            "--asks" => asks = Asks::parse(value()?)?,
            "--http" => {
                http = true;
                place.port = value()?.parse().map_err(|_| USAGE)?;
            }
            "--kind" => place.kind = Kind::parse(value()?)?,
            "--until-eof" => place.until_eof = true,
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok((era, asks, http.then_some(place)))
}

fn listen(link: &Link) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        receive(link.clone(), line?.as_bytes());
    }
    Ok(())
}

/// Handles one message of a client; replies go to the link.
fn receive(link: Link, line: &[u8]) {
    let Ok(Incoming { id, method, params }) = serde_json::from_slice::<Incoming<'_>>(line) else {
        return;
    };
    let params = params.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let params: Value = params.unwrap_or_else(|| json!({}));
    let id: Option<Value> = id.and_then(|raw| serde_json::from_str(raw.get()).ok());
    match (method, id) {
        (Some(method), Some(id)) => {
            // A call may take long and ask the client, so it must not block reading.
            thread::spawn(move || link.reply(&id, answer(&link, &id, &method, &params)));
        }
        (Some(method), None) if method == "notifications/initialized" => asking::greeted(link),
        (Some(method), None) => link.notified(&method, &params),
        (None, Some(id)) => link.answered(&id, line),
        (None, None) => {}
    }
}

fn answer(link: &Link, id: &Value, method: &str, params: &Value) -> Answer {
    let modern = match era::is_modern(link.shared.era, link.is_initialized(), method, params) {
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
        "ping" if !modern => Ok(json!({})),
        "logging/setLevel" if !modern => {
            link.set_level(params);
            Ok(json!({}))
        }
        "resources/subscribe" | "resources/unsubscribe" if !modern => {
            link.watch(params, method == "resources/subscribe");
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

/// Adds the required members of a result of the stateless era.
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
        "resources": {"listChanged": true, "subscribe": true},
        "completions": {},
    })
}

#[cfg(test)]
mod tests;
