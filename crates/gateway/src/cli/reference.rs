//! Shell completions, man pages, and `docs/cli.md`, all generated from the flags.
//!
//! Entry points: [`completions`], [`man`] and [`write()`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use super::failure::{Exit, Failure};
use super::screen::Screen;

/// The width of the pages, independent of the terminal.
const WIDTH: usize = 100;

/// Arguments of `gantry completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionOptions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `gantry man`.
#[derive(Debug, Args)]
pub(super) struct ManOptions {
    /// The verb; by default the program itself
    verb: Option<String>,
}

/// Arguments of `gantry reference`.
#[derive(Debug, Args)]
pub(super) struct WriteOptions {
    /// The folder for `cli.md` and `man/`
    folder: PathBuf,
}

/// Prints the completions for a shell.
pub(super) fn completions(
    options: &CompletionOptions,
    mut command: Command,
    screen: &Screen,
) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "gantry", &mut script);
    screen.line(String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Prints a man page.
pub(super) fn man(
    options: &ManOptions,
    command: Command,
    screen: &Screen,
) -> Result<ExitCode, Failure> {
    let page = match &options.verb {
        None => page(&command, "gantry")?,
        Some(verb) => {
            let found = verbs(&command)
                .into_iter()
                .find(|known| known.get_name() == verb);
            let found = found.ok_or_else(|| {
                Failure::new(Exit::Usage, format!("there is no verb `{verb}`"))
                    .hint("`gantry --help` lists them")
            })?;
            page(&found, &format!("gantry-{verb}"))?
        }
    };
    screen.line(page.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Writes `cli.md` and the man pages.
pub(super) fn write(options: &WriteOptions, command: Command) -> Result<ExitCode, Failure> {
    let unwritable = |path: &Path| {
        let message = format!("cannot write `{}`", path.display());
        move |error: io::Error| Failure::plain(Exit::Failed, message, &error)
    };
    let pages = options.folder.join("man");
    fs::create_dir_all(&pages).map_err(unwritable(&pages))?;
    let mut text = String::from(
        "# The command line\n\nMade by `gantry reference docs` from the program itself; a test compares.\n\n\
         Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no gateway.\n",
    );
    let mut put = |title: &str, file: &str, command: &Command| {
        let mut shown = command.clone().term_width(WIDTH).bin_name(title);
        let help = shown.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        text.push_str(&format!(
            "\n## {title}\n```text\n{}\n```\n",
            lines.join("\n").trim_end()
        ));
        let path = pages.join(format!("{file}.1"));
        fs::write(&path, page(command, file)?).map_err(unwritable(&path))
    };
    put("gantry", "gantry", &command)?;
    for verb in verbs(&command) {
        let name = verb.get_name().to_owned();
        put(&format!("gantry {name}"), &format!("gantry-{name}"), &verb)?;
        for action in verbs(&verb) {
            let both = format!("{name} {}", action.get_name());
            put(
                &format!("gantry {both}"),
                &format!("gantry-{}", both.replace(' ', "-")),
                &action,
            )?;
        }
    }
    let path = options.folder.join("cli.md");
    fs::write(&path, text).map_err(unwritable(&path))?;
    Ok(ExitCode::SUCCESS)
}

fn verbs(command: &Command) -> Vec<Command> {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    shown
        .filter(|verb| verb.get_name() != "help")
        .cloned()
        .collect()
}

fn page(command: &Command, name: &str) -> Result<String, Failure> {
    let mut page = Vec::new();
    // The verb `help` has no page.
    let named = command
        .clone()
        .disable_help_subcommand(true)
        .display_name(name.to_owned())
        .bin_name(name.replace('-', " "));
    let page_of = clap_mangen::Man::new(named).title(name).date("");
    let rendered = page_of.render(&mut page);
    rendered.map_err(|error| Failure::plain(Exit::Failed, "cannot write the page", &error))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
