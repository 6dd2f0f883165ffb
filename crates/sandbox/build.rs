//! Compiles the init (`init/`), a small static program without a standard library, with the same
//! compiler. The library embeds it and runs it from memory.
//!
//! Sets the cfg `gantry_init` where there is one: Linux on x86-64 and arm64. Elsewhere the crate
//! falls back to plain supervised processes.

use std::path::PathBuf;
use std::process::Command;

#[expect(
    clippy::disallowed_methods,
    reason = "cargo configures a build script through the environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn tell_cargo(instruction: &str) {
    println!("cargo::{instruction}");
}

fn main() {
    tell_cargo("rustc-check-cfg=cfg(gantry_init)");
    tell_cargo("rerun-if-changed=build.rs");
    tell_cargo("rerun-if-changed=init");
    let system = variable("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let architecture = variable("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if system != "linux" || !matches!(architecture.as_str(), "x86_64" | "aarch64") {
        return;
    }
    let output =
        PathBuf::from(variable("OUT_DIR").expect("cargo sets OUT_DIR")).join("gantry-init");
    let mut rustc = Command::new(variable("RUSTC").expect("cargo sets RUSTC"));
    rustc
        .args([
            "--crate-name",
            "gantry_init",
            "--crate-type",
            "bin",
            "--edition",
            "2024",
        ])
        .args(["--target", &variable("TARGET").expect("cargo sets TARGET")])
        .args([
            "-C",
            "opt-level=s",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
        ])
        .args([
            "-C",
            "relocation-model=static",
            "-C",
            "target-feature=+crt-static",
        ])
        .args(["-C", "link-arg=-nostartfiles", "-C", "link-arg=-nostdlib"])
        .args([
            "-C",
            "link-arg=-static",
            "-C",
            "link-arg=-Wl,--build-id=none",
        ]);
    if let Some(linker) = variable("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    let status = rustc.arg("-o").arg(&output).arg("init/main.rs").status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "compiling `init/main.rs` with `{rustc:?}`: {status:?}"
    );
    tell_cargo("rustc-cfg=gantry_init");
}
