//! Where the program of a command is searched.

use std::path::{Path, PathBuf};

use crate::command::Command;
use crate::root::Root;

/// The search path if the environment has none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The same in a separate root.
const DEFAULT_OWN_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the paths to try, in order.
pub(crate) fn candidates(command: &Command) -> Vec<PathBuf> {
    if command.program.is_empty() {
        return Vec::new();
    }
    if command.program.contains('/') {
        return vec![PathBuf::from(&command.program)];
    }
    let directories = search_path(command)
        .split(':')
        .filter(|directory| !directory.is_empty());
    directories
        .map(|directory| Path::new(directory).join(&command.program))
        .collect()
}

pub(crate) fn search_path(command: &Command) -> &str {
    let path = command.env.iter().find(|(name, _)| name == "PATH");
    let default = match command.root {
        Root::Host => DEFAULT_PATH,
        Root::Own(_) => DEFAULT_OWN_PATH,
    };
    path.map_or(default, |(_, value)| value)
}
