//! The source of the master key: a file, an environment variable, or the output of a command, such
//! as one of a key manager. Entry points: [`KeySource`] and [`KeySource::read`].

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

use gantry_engine::MasterKey;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::env::Environment;

/// Time limit of a command.
const PATIENCE: Duration = Duration::from_secs(30);
/// The maximum number of bytes that are read; more than any key needs.
const LONGEST: u64 = 1024;

/// The source of the master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file that only its owner can read.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A command without a shell, and its arguments.
    Command(Vec<String>),
}

/// The error of an invalid source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write `file:PATH`, `env:NAME` or `command:PROGRAM ARGUMENTS`")]
pub struct NoKeySource;

impl FromStr for KeySource {
    type Err = NoKeySource;

    fn from_str(text: &str) -> Result<Self, NoKeySource> {
        let (kind, rest) = text.split_once(':').ok_or(NoKeySource)?;
        let rest = rest.trim();
        match kind {
            _ if rest.is_empty() => Err(NoKeySource),
            "file" => Ok(Self::File(rest.into())),
            "env" => Ok(Self::Variable(rest.to_owned())),
            "command" => {
                let words = rest.split_whitespace().map(str::to_owned);
                Ok(Self::Command(words.collect()))
            }
            _ => Err(NoKeySource),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Variable(name) => write!(f, "env:{name}"),
            Self::Command(words) => write!(f, "command:{}", words.join(" ")),
        }
    }
}

impl KeySource {
    /// Returns the same source with a relative file resolved from this folder.
    pub fn beside(self, folder: &Path) -> Self {
        match self {
            Self::File(path) => Self::File(folder.join(path)),
            Self::Variable(_) | Self::Command(_) => self,
        }
    }

    /// Returns the folder of the key's file if it has nothing else in it, so that it can be hidden
    /// from servers without hiding anything that they need.
    pub fn own_folder(&self) -> Option<PathBuf> {
        let Self::File(path) = self else {
            return None;
        };
        let folder = path.canonicalize().ok()?.parent()?.to_owned();
        let entries = std::fs::read_dir(&folder).ok()?.take(2).count();
        (entries == 1).then_some(folder)
    }

    /// Reads the key; an error never shows any part of it.
    pub fn read(&self, environment: &Environment) -> Result<MasterKey, String> {
        let content = match self {
            Self::File(path) => read_file(path)?,
            Self::Variable(name) => {
                let value = environment.filled(name);
                let value = value.ok_or_else(|| format!("the variable `{name}` is not set"))?;
                Zeroizing::new(value.as_bytes().to_vec())
            }
            Self::Command(words) => output(words, PATIENCE)?,
        };
        MasterKey::read(&content).ok_or_else(|| {
            "it does not hold 32 bytes, as they are, in hexadecimal digits or in base64".to_owned()
        })
    }
}

/// Opens a file that only its owner may read.
pub(super) fn open_private(path: &Path) -> Result<File, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mode = file.metadata().map_err(|error| error.to_string())?.mode();
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(format!(
            "others than its owner can read it; run `chmod 600 {path}`"
        ));
    }
    Ok(file)
}

fn read_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = open_private(path)?;
    let mut content = Zeroizing::new(Vec::new());
    let read = file.take(LONGEST).read_to_end(&mut content);
    read.map_err(|error| error.to_string())?;
    Ok(content)
}

fn output(words: &[String], patience: Duration) -> Result<Zeroizing<Vec<u8>>, String> {
    let (program, arguments) = words.split_first().ok_or("no program is named")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| format!("`{program}` cannot be started: {error}"))?;
    let stdout = child.stdout.take().ok_or("its output cannot be read")?;
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut content = Zeroizing::new(Vec::new());
        let read = stdout.take(LONGEST).read_to_end(&mut content);
        // After a timeout there is no receiver.
        drop(send.send(read.map(|_| content)));
    });
    let until = Instant::now() + patience;
    let read = receive.recv_timeout(patience);
    // It may have closed its output and go on.
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if read.is_err() || Instant::now() >= until => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let Some(status) = status else {
        drop(child.kill());
        child.wait().map_err(|error| error.to_string())?;
        return Err(format!("`{program}` took longer than {patience:?}"));
    };
    match read {
        Ok(Ok(content)) if status.success() => Ok(content),
        Ok(Ok(_)) => Err(format!("`{program}` failed: {status}")),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("`{program}` gave nothing to read")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    // fault K6
    #[test]
    fn a_key_comes_from_a_file_a_variable_or_a_command() {
        let temp = tempfile::tempdir().unwrap();
        let key = MasterKey::random();
        let text = key.to_hex().to_string();
        let path = temp.path().join("master.key");
        std::fs::write(&path, &text).unwrap();
        let environment: Environment = [("KEY".to_owned(), text.clone())].into_iter().collect();
        let read = |source: &str| {
            let source: KeySource = source.parse().unwrap();
            source.read(&environment).map(|key| key.id())
        };
        let of_file = format!("file:{}", path.display());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&of_file).unwrap_err().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let by_command = format!("command:cat {}", path.display());
        for source in [&of_file, "env:KEY", &by_command] {
            assert_eq!(read(source), Ok(key.id()), "{source}");
        }
        for (source, why) in [
            ("env:NONE", "not set"),
            ("command:false", "failed"),
            ("command:/no/such", "cannot be started"),
            ("command:echo short", "32 bytes"),
        ] {
            let error = read(source).unwrap_err();
            assert!(
                error.contains(why) && !error.contains(&text),
                "{source}: {error}"
            );
        }
        // One that goes on without its output is not waited for either.
        let script = temp.path().join("script");
        std::fs::write(&script, "exec >&-\nsleep 600\n").unwrap();
        let words = ["sh".to_owned(), script.display().to_string()];
        let began = Instant::now();
        let error = output(&words, Duration::from_millis(200)).unwrap_err();
        assert!(error.contains("took longer"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60));
        for wrong in ["", "file:", "data.key", "vault:x"] {
            assert!(wrong.parse::<KeySource>().is_err(), "{wrong}");
        }
    }
}
