//! Credentials for a registry: configured ones, or those of a user's container client.
//!
//! The client's file is read only for the user's own project. Credential helpers that it names are
//! the user's own programs; their run time and output are limited. Entry point:
//! [`from_client_file`].

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::printable;

/// The largest client file that is read.
const FILE_BYTES: u64 = 1 << 20;
/// The output limit and time limit of a helper.
const HELPER_BYTES: u64 = 64 << 10;
const HELPER_DEADLINE: Duration = Duration::from_secs(10);
/// The name of Docker Hub in client files.
const HUB_KEY: &str = "https://index.docker.io/v1/";
/// The user name that a helper returns when the secret is an identity token.
const TOKEN_USER: &str = "<token>";

/// Credentials for a registry or its token server.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user name and a password, or a token in place of the password.
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: String,
    },
    /// An identity token, exchanged at the token server.
    Token(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Basic { user, .. } => write!(f, "Basic {{ user: {user:?}, .. }}"),
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

/// Why the credentials of a client file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{place}`: {why}")]
pub struct CredentialsError {
    /// The file or the helper.
    pub place: String,
    /// What is wrong with it.
    pub why: String,
}

impl CredentialsError {
    fn new(place: impl fmt::Display, why: impl Into<String>) -> Self {
        Self {
            place: place.to_string(),
            why: why.into(),
        }
    }

    pub(crate) fn hint(&self) -> String {
        format!(
            "repair `{}`, or give the credentials themselves",
            self.place
        )
    }
}

/// Where helpers are searched.
#[derive(Debug, Clone)]
pub enum Helpers {
    /// In the folders of `PATH`.
    Path,
    /// In one folder.
    Folder(PathBuf),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ClientFile {
    auths: Option<HashMap<String, Auth>>,
    creds_store: Option<String>,
    cred_helpers: Option<HashMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Returns the credentials for a registry from a user's `.docker/config.json`, if there are any.
pub async fn from_client_file(
    registry: &str,
    home: &Path,
) -> Result<Option<Credentials>, CredentialsError> {
    let file = home.join(".docker/config.json");
    from_file(registry, &file, &Helpers::Path).await
}

/// Returns the credentials for a registry from a client file, if there are any.
pub async fn from_file(
    registry: &str,
    file: &Path,
    helpers: &Helpers,
) -> Result<Option<Credentials>, CredentialsError> {
    let refused = |why: String| CredentialsError::new(file.display(), why);
    let text = match read(file).await {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // The home of somebody else, as after `su` or in a service: its credentials are not ours.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(refused(error.to_string())),
    };
    // The error could quote a secret, so only its line is shown.
    let parsed: ClientFile = serde_json::from_slice(&text)
        .map_err(|error| refused(format!("line {}: it is not a client's file", error.line())))?;
    let key = if registry == "docker.io" {
        HUB_KEY
    } else {
        registry
    };
    let helper = parsed
        .cred_helpers
        .as_ref()
        .and_then(|own| own.get(registry).or(own.get(key)));
    if let Some(helper) = helper
        .or(parsed.creds_store.as_ref())
        .filter(|name| !name.is_empty())
    {
        return ask_helper(helper, key, helpers).await;
    }
    let auths = parsed.auths.unwrap_or_default();
    let found = auths.get(key).or_else(|| {
        let found = auths.iter().find(|(name, _)| host(name) == host(key));
        found.map(|(_, auth)| auth)
    });
    match found {
        Some(auth) => auth.credentials().map_err(|why| refused(why.to_owned())),
        None => Ok(None),
    }
}

async fn read(file: &Path) -> io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(file).await?;
    if !file.metadata().await?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = Vec::new();
    let read = file.take(FILE_BYTES + 1).read_to_end(&mut text).await?;
    if read as u64 > FILE_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    Ok(text)
}

/// Returns the host of a key. Old clients wrote whole URLs.
fn host(key: &str) -> &str {
    let key = key.strip_prefix("https://").unwrap_or(key);
    let key = key.strip_prefix("http://").unwrap_or(key);
    key.split('/').next().unwrap_or(key)
}

impl Auth {
    fn credentials(&self) -> Result<Option<Credentials>, &'static str> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = given(&self.identitytoken) {
            return Ok(Some(Credentials::Token(token)));
        }
        if let Some(auth) = given(&self.auth) {
            let pair = BASE64_STANDARD.decode(auth.trim()).ok();
            let pair = pair.and_then(|pair| String::from_utf8(pair).ok());
            let pair = pair.ok_or("an `auth` in it is not base64")?;
            let (user, password) = pair
                .split_once(':')
                .ok_or("an `auth` in it has no password")?;
            return Ok(Some(Credentials::Basic {
                user: user.to_owned(),
                password: password.trim_end_matches('\0').to_owned(),
            }));
        }
        Ok(match (given(&self.username), given(&self.password)) {
            (Some(user), Some(password)) => Some(Credentials::Basic { user, password }),
            _ => None,
        })
    }
}

/// Runs `docker-credential-NAME`.
async fn ask_helper(
    name: &str,
    key: &str,
    helpers: &Helpers,
) -> Result<Option<Credentials>, CredentialsError> {
    let program = format!("docker-credential-{}", printable(name));
    let refused = |why: String| CredentialsError::new(&program, why);
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !name.chars().all(is_word) {
        return Err(refused("this is not the name of a helper".to_owned()));
    }
    let path = match helpers {
        Helpers::Path => PathBuf::from(&program),
        Helpers::Folder(folder) => folder.join(&program),
    };
    let answer = tokio::time::timeout(HELPER_DEADLINE, run_helper(&path, key)).await;
    let (is_ok, said) = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(refused(error.to_string())),
        Err(_) => return Err(refused(format!("no answer within {HELPER_DEADLINE:?}"))),
    };
    if !is_ok {
        let said = String::from_utf8_lossy(&said);
        // All helpers use this sentence if there are no credentials.
        if said.contains("credentials not found") {
            return Ok(None);
        }
        return Err(refused(format!("it failed: {}", printable(said.trim()))));
    }
    let answer: HelperAnswer = serde_json::from_slice(&said)
        .map_err(|_| refused("its answer is not the JSON of credentials".to_owned()))?;
    Ok(Some(match answer.username.as_str() {
        TOKEN_USER => Credentials::Token(answer.secret),
        _ => Credentials::Basic {
            user: answer.username,
            password: answer.secret,
        },
    }))
}

/// Kills a helper and all its child processes when dropped.
struct Group(Option<rustix::process::Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let kill = rustix::process::Signal::KILL;
            rustix::process::kill_process_group(group, kill).ok();
        }
    }
}

async fn run_helper(program: &Path, key: &str) -> io::Result<(bool, Vec<u8>)> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a helper is the person's own program: it lives for seconds and is ended with its group"
    )]
    let mut command = tokio::process::Command::new(program);
    let mut child = command
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let _group = Group(id.and_then(rustix::process::Pid::from_raw));
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that does not read its input may still respond.
        drop(stdin.write_all(format!("{key}\n").as_bytes()).await);
    }
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(HELPER_BYTES + 1).read_to_end(&mut said).await?;
        if read as u64 > HELPER_BYTES {
            return Err(io::Error::other("its output is too long"));
        }
    }
    Ok((child.wait().await?.success(), said))
}

#[cfg(test)]
mod tests;
