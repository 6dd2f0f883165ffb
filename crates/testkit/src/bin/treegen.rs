//! `treegen`: makes a process tree that is hard to kill; see `treegen --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gantry_testkit::tree::run(std::env::args().skip(1).collect())
}
