//! Programs that ignore signals, without unsafe code: a shell ignores the signals and then executes
//! the program, which inherits that across `exec`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Returns a command that runs `program` with TERM, HUP and INT ignored.
pub(crate) fn deaf(program: &Path, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg("trap '' TERM HUP INT; exec \"$0\" \"$@\"")
        .arg(program);
    command.args(arguments);
    command
}
