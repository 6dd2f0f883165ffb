//! Servers made with the SDKs of other makers, over their pipes or streamable HTTP.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::held_port;
use crate::parts::{NPM, beside, node_path, part};
use crate::remote::Remote;

/// What a server is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kit {
    /// The TypeScript SDK 1.x, of the handshake era.
    TypeScriptFirst,
    /// The TypeScript SDK 2.x, which speaks both eras.
    TypeScriptSecond,
}

/// How it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Stdio,
    Http,
}

/// A server, and the entry that a person would write for it.
pub(crate) struct Made {
    pub(crate) entry: Value,
    /// If it is no program that its client starts.
    _remote: Option<Remote>,
}

impl Made {
    /// Describes a server over its pipes, or starts one over HTTP.
    pub(crate) fn with(kit: Kit, over: Over) -> Self {
        match over {
            Over::Stdio => {
                let argv = kit.argv(&["stdio"]);
                Self {
                    entry: json!({"command": argv[0], "args": argv[1..]}),
                    _remote: None,
                }
            }
            Over::Http => {
                let address = held_port();
                let argv = kit.argv(&["http", &address.port().to_string()]);
                let mut command = Command::new(&argv[0]);
                command.args(&argv[1..]);
                let remote = Remote::start(&mut command, address, "/mcp", Some("http"));
                Self {
                    entry: remote.entry.clone(),
                    _remote: Some(remote),
                }
            }
        }
    }
}

impl Kit {
    fn argv(self, how: &[&str]) -> Vec<String> {
        let generation = match self {
            Self::TypeScriptFirst => "first",
            Self::TypeScriptSecond => "second",
        };
        let script = [node_path(), beside("servers/typescript.mjs"), part(NPM)];
        let script = script.iter().map(|word| word.to_str().unwrap());
        let argv = script.chain([generation]).chain(how.iter().copied());
        argv.map(str::to_owned).collect()
    }
}
