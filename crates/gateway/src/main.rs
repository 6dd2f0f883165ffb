//! The program `gantry`; everything is in the library, so that tests can reach it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    gantry::cli::main()
}
