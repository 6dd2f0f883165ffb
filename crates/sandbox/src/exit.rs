//! How a tree ended and what it used.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// How a server ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exit {
    /// Its exit code, if it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the tree ran into its memory limit and was killed for it.
    pub oom_killed: bool,
    /// Whether the tree ran into its limit of processes at some time.
    pub pids_limit_hit: bool,
}

impl Exit {
    /// Reads a wait status as the kernel gives it.
    pub(crate) fn from_wait_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self {
                code: Some((status >> 8) & 0xff),
                ..Self::default()
            },
            signal => Self {
                signal: Some(signal),
                ..Self::default()
            },
        }
    }

    /// Whether the server ended by itself with code zero.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oom_killed {
            return f.write_str("killed: out of memory");
        }
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}")?,
            (None, Some(signal)) => match signal_name(signal) {
                Some(name) => write!(f, "signal {signal} ({name})")?,
                None => write!(f, "signal {signal}")?,
            },
            (None, None) => f.write_str("ended")?,
        }
        if self.pids_limit_hit {
            f.write_str(", process limit reached")?;
        }
        Ok(())
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// What a tree uses at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Processor time since the start, of all its processes.
    pub cpu: Duration,
    /// Memory in bytes, without file cache that can be dropped.
    pub memory_bytes: u64,
    /// Processes, and threads where a cgroup counts them.
    pub pids: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_it_ended() {
        let shown = |status| Exit::from_wait_status(status).to_string();
        assert_eq!(shown(0), "exit code 0");
        assert_eq!(shown(1 << 8), "exit code 1");
        assert_eq!(shown(9), "signal 9 (SIGKILL)");
        assert_eq!(shown(0x80 | 11), "signal 11 (SIGSEGV)");
        assert_eq!(shown(40), "signal 40");
        let exit = Exit {
            signal: Some(9),
            oom_killed: true,
            ..Exit::default()
        };
        assert_eq!(exit.to_string(), "killed: out of memory");
        let exit = Exit {
            code: Some(2),
            pids_limit_hit: true,
            ..Exit::default()
        };
        assert_eq!(exit.to_string(), "exit code 2, process limit reached");
    }
}
