//! Checks of the data folder and its environment: permissions, disk space, port, clock.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::app::listen::DEFAULT_PORT;
use crate::data_folder::DataFolder;

use super::super::format::bytes;
use super::keys::{Tried, Verdict};
use super::{Finding, Grade};

/// Below this free space the journal is soon full.
const LITTLE: u64 = 256 << 20;
/// Below this free space calls are refused.
const TOO_LITTLE: u64 = 16 << 20;
/// 2026-01-01: no version of this program is older.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// How far the clock may be behind a file's time.
const BEHIND: Duration = Duration::from_secs(60);

/// The hint for a refused or missing admin key.
const ADMIN: &str = "name a valid one with `--key-file FILE`, or put it there";
/// The hint for a refused or missing agent key.
const AGENT: &str = "run `gantry agent restore`";

/// Checks the folder, whether or not it exists.
pub(super) fn findings(path: &Path, is_running: bool, tried: &Tried) -> Vec<Finding> {
    let folder = DataFolder::at(path.to_owned());
    let mut findings = vec![modes(path)];
    findings.extend(keys(&folder, tried));
    findings.push(room(path));
    findings.extend(damaged(path).filter(|_| !is_running));
    findings.push(port(&folder, is_running));
    findings.push(clock(path));
    findings
}

fn modes(path: &Path) -> Finding {
    let shown = path.display().to_string();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::new(
            Grade::Good,
            "folder",
            format!("{shown} is made by `gantry up`"),
        ),
        Err(error) => Finding::new(Grade::Bad, "folder", format!("{shown}: {error}")),
        Ok(found) if !found.is_dir() => {
            Finding::new(Grade::Bad, "folder", format!("{shown} is not a folder"))
                .advise("name another with `--data DIR`")
        }
        Ok(found) if found.mode() & 0o077 != 0 => {
            let mode = found.mode() & 0o777;
            Finding::new(
                Grade::Bad,
                "folder",
                format!("{shown} is open to others (mode {mode:04o})"),
            )
            .advise(format!("run `chmod 700 '{shown}'`"))
        }
        Ok(found) if found.uid() != rustix::process::geteuid().as_raw() => {
            let owner = found.uid();
            Finding::new(
                Grade::Bad,
                "folder",
                format!("{shown} belongs to user {owner}"),
            )
            .advise("name another with `--data DIR`")
        }
        Ok(_) => Finding::new(Grade::Good, "folder", format!("{shown} is private")),
    }
}

fn keys(folder: &DataFolder, tried: &Tried) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, path, verdict, advice) in [
        ("admin key", folder.admin_key(), &tried.admin, ADMIN),
        ("agent key", folder.agent_key(), &tried.agent, AGENT),
    ] {
        let Ok(found) = fs::symlink_metadata(&path) else {
            if *verdict == Some(Verdict::Missing) {
                let detail = format!("`{}` is missing", path.display());
                findings.push(Finding::new(Grade::Bad, name, detail).advise(advice));
            }
            continue;
        };
        let mode = found.mode() & 0o777;
        if mode & 0o077 != 0 {
            let detail = format!("others can read it (mode {mode:04o})");
            findings.push(Finding::new(Grade::Bad, name, detail).advise(format!(
                "run `chmod 600 '{}'` and replace the key",
                path.display()
            )));
        }
        match verdict {
            Some(Verdict::Refused(why)) => {
                let detail = format!("the gateway refuses it: {why}");
                findings.push(Finding::new(Grade::Bad, name, detail).advise(advice));
            }
            _ if mode & 0o077 != 0 => {}
            Some(Verdict::Accepted) => {
                let detail = "only you can read it, and the gateway accepts it";
                findings.push(Finding::new(Grade::Good, name, detail));
            }
            Some(Verdict::Missing) | None => {
                findings.push(Finding::new(Grade::Good, name, "only you can read it"));
            }
        }
    }
    findings
}

fn room(path: &Path) -> Finding {
    // If the folder does not exist, the nearest parent's disk is checked.
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    match rustix::fs::statvfs(there) {
        Err(error) => Finding::new(
            Grade::Doubtful,
            "disk",
            format!("cannot determine its free space: {error}"),
        ),
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let shown = format!("{} free", bytes(free));
            match free {
                0..TOO_LITTLE => Finding::new(Grade::Bad, "disk", shown)
                    .advise("make room: calls that cannot be recorded are refused"),
                TOO_LITTLE..LITTLE => {
                    Finding::new(Grade::Doubtful, "disk", shown).advise("make room soon")
                }
                _ => Finding::new(Grade::Good, "disk", shown),
            }
        }
    }
}

/// Reports kept damaged parts of the journal; a running gateway reports new ones.
fn damaged(path: &Path) -> Option<Finding> {
    let entries = fs::read_dir(path.join("journal")).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let kept = names.filter(|name| name.contains(".seg.damaged")).count();
    (kept > 0).then(|| {
        let detail = format!("{kept} damaged files of the audit are kept in `journal`");
        Finding::new(Grade::Doubtful, "journal", detail)
            .advise("remove them when they are no longer needed")
    })
}

fn port(folder: &DataFolder, is_running: bool) -> Finding {
    let port = folder.port().unwrap_or(DEFAULT_PORT);
    if is_running {
        return Finding::new(Grade::Good, "port", "the gateway has it");
    }
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_) => Finding::new(Grade::Good, "port", format!("{port} is free")),
        Err(error) => Finding::new(
            Grade::Doubtful,
            "port",
            format!("{port} is not available: {error}"),
        )
        .advise("the next free one is taken, or name one with `gantry up --port N`"),
    }
}

fn clock(path: &Path) -> Finding {
    let now = SystemTime::now();
    let earliest = SystemTime::UNIX_EPOCH + EARLIEST;
    let written = fs::metadata(path.join("gantry.db")).and_then(|file| file.modified());
    let wrong = match written {
        _ if now < earliest => Some("is earlier than this program's release"),
        Ok(written) if now + BEHIND < written => Some("is behind the last record"),
        Ok(_) | Err(_) => None,
    };
    match wrong {
        None => Finding::new(Grade::Good, "clock", "is plausible"),
        Some(why) => Finding::new(Grade::Doubtful, "clock", why)
            .advise("set it: the times in the audit are taken from it"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn graded(path: &Path, what: &str) -> (Grade, String) {
        let findings = findings(path, true, &Tried::default());
        let finding = findings
            .into_iter()
            .find(|finding| finding.what == what)
            .unwrap();
        (finding.grade, finding.advice.unwrap_or_default())
    }

    #[test]
    fn what_is_open_to_others_is_bad_and_says_what_to_do() {
        let home = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(&home.path().join("d")).unwrap();
        folder.write_key(&folder.agent_key(), "k").unwrap();
        assert_eq!(graded(folder.path(), "folder").0, Grade::Good);
        assert_eq!(graded(folder.path(), "agent key").0, Grade::Good);
        assert_eq!(graded(folder.path(), "clock").0, Grade::Good);
        fs::set_permissions(folder.agent_key(), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (grade, advice) = graded(folder.path(), "folder");
        assert_eq!(grade, Grade::Bad);
        assert!(advice.starts_with("run `chmod 700"), "{advice}");
        assert_eq!(graded(folder.path(), "agent key").0, Grade::Bad);
    }
}
