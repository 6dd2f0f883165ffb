//! `evilpeer`: a scripted MCP server over stdio and HTTP; see `evilpeer --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gantry_testkit::peer::run(std::env::args().skip(1).collect())
}
