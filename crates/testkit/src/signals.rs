//! Programs that ignore signals, without a line of unsafe code: a shell sets the signals to be
//! ignored and then becomes the program, and what is ignored stays so across `exec`.

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
