//! `gantry open`: signs a browser in to the gateway.
//!
//! The link carries a single-use code in its fragment, which browsers never send. No shell ever sees a
//! link (CVE-2025-6514). Entry points: [`run`] and [`browser`].

use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use serde_json::json;

use super::CliContext;
use super::failure::Failure;
use super::find::Role;
use super::format::{compact, number, text};

/// Arguments of `gantry open`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print the link without opening a browser
    #[arg(long)]
    print: bool,
    /// Print JSON without opening a browser
    #[arg(long)]
    json: bool,
}

/// Creates a sign-in link and opens it.
pub(super) async fn run(options: &Options, context: &CliContext) -> Result<ExitCode, Failure> {
    let (client, screen) = (context.client(Role::Admin)?, &context.screen);
    let made = client.post("/api/v1/session/codes", None).await?;
    let link = format!("http://{}{}", client.authority(), text(&made, "/path"));
    if options.json {
        let expires_ms = number(&made, "/expires_ms");
        screen.line(&compact(&json!({"link": link, "expires_ms": expires_ms})));
        return Ok(ExitCode::SUCCESS);
    }
    screen.line(&link);
    if screen.is_terminal() && !options.print {
        browser(&link);
        screen.error_line("the link works once, within five minutes");
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a link in a browser, if it is an http link and a program is available.
pub(super) fn browser(link: &str) {
    if !is_page(link) {
        return;
    }
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let mut command = Command::new(program);
    command.arg(link).stdin(Stdio::null());
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    // Without a browser here, the link can be opened elsewhere.
    drop(started);
}

/// Returns whether a link is a plain http or https URL.
fn is_page(link: &str) -> bool {
    let scheme = link.starts_with("https://") || link.starts_with("http://");
    scheme && link.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_are_opened() {
        // fault U9
        assert!(is_page("https://auth.example/authorize?state=a%20b"));
        for link in [
            "file:///etc/passwd",
            "javascript:x",
            "https://a/$(x) y",
            "-x",
            "",
        ] {
            assert!(!is_page(link), "{link}");
        }
    }
}
