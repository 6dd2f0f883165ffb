//! Finds the gateway of a verb: the one given by flags, else the one of the data folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::data_folder::DataFolder;

use super::CliContext;
use super::client::Client;
use super::failure::{Exit, Failure};

/// The hint if the gateway refuses the agent key of its own folder.
const LOST_KEY: &str = "`gantry agent restore` recreates the folder's agent and its key";

/// Which key a verb needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Administers servers and reads the audit log.
    Admin,
    /// Lists and calls tools.
    Agent,
}

impl CliContext {
    /// Returns the path of the data folder, whether or not it exists.
    pub(super) fn data_path(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = &self.data {
            return Ok(path.clone());
        }
        let working = working_folder()?;
        DataFolder::default_path(self.environment.state_home(), &working)
            .map_err(|error| Failure::of(Exit::Usage, &error))
    }

    /// Returns a client of the selected gateway.
    pub(super) fn client(&self, role: Role) -> Result<Client, Failure> {
        self.client_in(&DataFolder::at(self.data_path()?), role)
    }

    /// Returns a client of the gateway in a data folder, unless flags select another.
    pub(super) fn client_in(&self, folder: &DataFolder, role: Role) -> Result<Client, Failure> {
        let key_file = match (&self.key_file, role) {
            (Some(file), _) => file.clone(),
            (None, Role::Admin) => folder.admin_key(),
            (None, Role::Agent) => folder.agent_key(),
        };
        let url = match &self.url {
            Some(url) => url.clone(),
            None => {
                folder
                    .running()
                    .ok_or_else(|| no_gateway(folder.path()))?
                    .url
            }
        };
        let another = "name another with `--key-file FILE`";
        let key = fs::read_to_string(&key_file).map_err(|error| {
            let message = format!("cannot read the key in `{}`", key_file.display());
            Failure::plain(Exit::Failed, message, &error).hint(another)
        })?;
        if key.trim().is_empty() {
            let message = format!("no key is in `{}`", key_file.display());
            return Err(Failure::new(Exit::Failed, message).hint(another));
        }
        let client = Client::new(&url, key.trim())?.within(self.project.as_deref());
        Ok(match (&self.key_file, role) {
            (None, Role::Agent) => client.if_refused(LOST_KEY),
            (Some(_), _) | (None, Role::Admin) => client,
        })
    }

    /// Returns a client with the admin key of a data folder, regardless of `--key-file`.
    pub(super) fn admin_of(&self, folder: &DataFolder) -> Result<Client, Failure> {
        let url = folder
            .running()
            .ok_or_else(|| no_gateway(folder.path()))?
            .url;
        let key = fs::read_to_string(folder.admin_key())
            .map_err(|error| Failure::plain(Exit::Failed, "cannot read the admin key", &error))?;
        Client::new(&url, key.trim())
    }
}

/// Returns the working folder as a canonical path.
pub(super) fn working_folder() -> Result<PathBuf, Failure> {
    std::env::current_dir()
        .and_then(fs::canonicalize)
        .map_err(|error| {
            Failure::plain(Exit::Failed, "cannot determine the working folder", &error)
        })
}

/// The failure that no gateway is running, or that the folder cannot tell.
pub(super) fn no_gateway(folder: &Path) -> Failure {
    if let Err(error) = fs::read_dir(folder)
        && error.kind() == std::io::ErrorKind::PermissionDenied
    {
        let message = format!("cannot read the data folder `{}`", folder.display());
        return Failure::plain(Exit::Failed, message, &error).hint(
            "run this as the user whose gateway it is, or name it with `--url` and `--key-file`",
        );
    }
    Failure::new(
        Exit::NoGateway,
        format!("no gateway is running in `{}`", folder.display()),
    )
    .hint("start it with `gantry up`, or name another with `--data DIR` or `--url URL`")
}
