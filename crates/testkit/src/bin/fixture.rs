//! `fixture`: the MCP server that the conformance suites expect.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    gantry_testkit::fixture::run(&arguments)
}
