//! Servers made with the SDKs of other makers, over their pipes or streamable HTTP. All have the tools
//! that ask their client; those of the SDKs also what the clients' story needs.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::held_port;
use crate::parts::{NPM, beside, node_path, part};
use crate::remote::Remote;

/// What a server is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kit {
    /// Python `mcp` 2.x, which speaks both eras.
    Python,
    /// `fastmcp` 4.x, which speaks both eras.
    Fastmcp,
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

/// A server that can be reached in two ways: by its entry through a gateway, and directly.
pub(crate) struct Made {
    pub(crate) entry: Value,
    /// How a client reaches it directly, as `Client::tells` takes it.
    pub(crate) link: Vec<String>,
    /// If it is no program that its client starts.
    _remote: Option<Remote>,
}

impl Made {
    /// Describes a server over its pipes, or starts one over HTTP.
    pub(crate) fn with(kit: Kit, over: Over) -> Self {
        match over {
            Over::Stdio => {
                let argv = kit.argv(&["stdio"]);
                let link = [vec!["stdio".to_owned()], argv.clone()].concat();
                Self {
                    entry: json!({"command": argv[0], "args": argv[1..]}),
                    link,
                    _remote: None,
                }
            }
            Over::Http => {
                let address = held_port();
                let how = match kit {
                    Kit::Python => "streamable-http",
                    Kit::Fastmcp | Kit::TypeScriptFirst | Kit::TypeScriptSecond => "http",
                };
                let argv = kit.argv(&[how, &address.port().to_string()]);
                let mut command = Command::new(&argv[0]);
                command.args(&argv[1..]);
                let remote = Remote::start(&mut command, address, "/mcp", Some("http"));
                let url = format!("http://{address}/mcp");
                Self {
                    entry: remote.entry.clone(),
                    link: ["http", &url, "none"].map(str::to_owned).to_vec(),
                    _remote: Some(remote),
                }
            }
        }
    }
}

impl Kit {
    fn argv(self, how: &[&str]) -> Vec<String> {
        let python = |environment: &str| part(&format!("{environment}/bin")).join("python");
        let mut argv = match self {
            Self::Python => vec![python("mcp-2"), beside("servers/remote.py")],
            Self::Fastmcp => vec![python("fastmcp"), beside("servers/fast.py")],
            Self::TypeScriptFirst | Self::TypeScriptSecond => {
                vec![node_path(), beside("servers/typescript.mjs"), part(NPM)]
            }
        };
        match self {
            Self::TypeScriptFirst => argv.push("first".into()),
            Self::TypeScriptSecond => argv.push("second".into()),
            Self::Python | Self::Fastmcp => {}
        }
        let argv = argv.iter().map(|word| word.to_str().unwrap().to_owned());
        argv.chain(how.iter().map(|word| (*word).to_owned()))
            .collect()
    }
}
