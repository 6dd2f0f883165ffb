//! A project's credentials for image registries, encrypted in the store as one value, since there
//! are few. Read when an image is pulled; only the registry, the user name and the time are ever
//! shown. Entry point: [`RegistryLogins`].

use std::collections::BTreeMap;

use gantry_images::{Credentials, ImageReference};
use gantry_model::diagnose::{Diagnose, Fault};
use gantry_model::id::ProjectName;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::clock::unix_ms;
use crate::credentials::{SignInError, Vault, VaultScope};

/// The name of the stored value.
const NAME: &str = "logins";
/// How many registries a project may have credentials for.
const MOST: usize = 64;
/// The longest name, password or token.
const LONGEST: usize = 16 << 10;

/// A registry that a project has credentials for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryLogin {
    /// The registry, as references name it.
    pub registry: String,
    /// The user name; `None` for an identity token.
    pub username: Option<String>,
    /// When it was stored, in milliseconds since 1970.
    pub since_ms: u64,
}

/// Why credentials of a registry cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum RegistryLoginError {
    /// The registry name is invalid.
    #[error("`{registry}` is not the name of a registry")]
    Name {
        /// The name as given.
        registry: String,
    },
    /// The credentials cannot be sent to a registry.
    #[error("the credentials cannot be sent: {why}")]
    Unusable {
        /// What is wrong with them.
        why: &'static str,
    },
    /// The limit is reached.
    #[error("there are credentials for {MOST} registries already")]
    TooMany,
    /// There are no credentials for this registry.
    #[error("there are no credentials for `{registry}`")]
    Unknown {
        /// The registry.
        registry: String,
    },
    /// There is no vault.
    #[error("there is no store for credentials of image registries")]
    NoVault,
    /// They cannot be encrypted, decrypted or stored.
    #[error("the stored credentials of image registries cannot be used")]
    Vault(#[from] SignInError),
}

impl Diagnose for RegistryLoginError {
    fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } | Self::Unusable { .. } | Self::TooMany => "image.login",
            Self::Unknown { .. } => "image.login_unknown",
            Self::NoVault | Self::Vault(_) => "image.login_store",
        }
    }

    fn fault(&self) -> Fault {
        match self {
            Self::Name { .. } | Self::Unusable { .. } | Self::TooMany | Self::Unknown { .. } => {
                Fault::Client
            }
            Self::NoVault | Self::Vault(_) => Fault::Gateway,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Name { .. } => Some("write it as in an image, such as `ghcr.io`".to_owned()),
            Self::Unusable { .. } | Self::NoVault => None,
            Self::TooMany => Some("`gantry images logout REGISTRY` removes one".to_owned()),
            Self::Unknown { .. } => Some("`gantry images logins` lists them".to_owned()),
            Self::Vault(_) => {
                Some("log in again: `gantry images login REGISTRY --username NAME`".to_owned())
            }
        }
    }
}

/// A login as stored.
#[derive(Clone, Serialize, Deserialize)]
struct StoredLogin {
    username: Option<String>,
    secret: String,
    since_ms: u64,
}

/// All logins of a gateway, by project.
pub(super) struct RegistryLogins {
    vault: Vault,
    /// Held while the value is changed.
    changing: Mutex<()>,
}

impl RegistryLogins {
    pub(super) fn new(vault: Vault) -> Self {
        Self {
            vault,
            changing: Mutex::default(),
        }
    }

    pub(super) async fn list(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<RegistryLogin>, RegistryLoginError> {
        let shown = |(registry, login): (String, StoredLogin)| RegistryLogin {
            registry,
            username: login.username,
            since_ms: login.since_ms,
        };
        Ok(self.read(project).await?.into_iter().map(shown).collect())
    }

    /// Stores credentials, replacing those of the same registry.
    pub(super) async fn put(
        &self,
        project: &ProjectName,
        registry: &str,
        credentials: Credentials,
    ) -> Result<RegistryLogin, RegistryLoginError> {
        let registry = normal_form(registry)?;
        let (username, secret) = match credentials {
            Credentials::Basic { user, password } => (Some(user), password),
            Credentials::Token(token) => (None, token),
        };
        check(username.as_deref(), &secret)?;
        let _one = self.changing.lock().await;
        let mut logins = self.read(project).await?;
        if logins.len() >= MOST && !logins.contains_key(&registry) {
            return Err(RegistryLoginError::TooMany);
        }
        let since_ms = unix_ms();
        let login = StoredLogin {
            username: username.clone(),
            secret,
            since_ms,
        };
        logins.insert(registry.clone(), login);
        self.scope(project).put(NAME, &logins).await?;
        Ok(RegistryLogin {
            registry,
            username,
            since_ms,
        })
    }

    /// Removes the credentials of a registry.
    pub(super) async fn remove(
        &self,
        project: &ProjectName,
        registry: &str,
    ) -> Result<(), RegistryLoginError> {
        let registry = normal_form(registry)?;
        let _one = self.changing.lock().await;
        let scope = self.scope(project);
        let mut logins = match self.read(project).await {
            Ok(logins) => logins,
            // A value that cannot be decrypted can still be removed.
            Err(RegistryLoginError::Vault(SignInError::Sealed { .. })) => {
                scope.remove(NAME).await?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if logins.remove(&registry).is_none() {
            return Err(RegistryLoginError::Unknown { registry });
        }
        match logins.is_empty() {
            true => scope.remove(NAME).await?,
            false => scope.put(NAME, &logins).await?,
        }
        Ok(())
    }

    /// Returns the project's credentials for the registry of an image.
    pub(super) async fn of(
        &self,
        project: &ProjectName,
        image: &ImageReference,
    ) -> Result<Option<Credentials>, RegistryLoginError> {
        let login = self.read(project).await?.remove(image.registry());
        Ok(login.map(|login| match login.username {
            Some(user) => Credentials::Basic {
                user,
                password: login.secret,
            },
            None => Credentials::Token(login.secret),
        }))
    }

    async fn read(
        &self,
        project: &ProjectName,
    ) -> Result<BTreeMap<String, StoredLogin>, RegistryLoginError> {
        Ok(self.scope(project).get(NAME).await?.unwrap_or_default())
    }

    fn scope(&self, project: &ProjectName) -> VaultScope {
        self.vault.of(project).image_registries()
    }
}

/// Returns a registry's name in the form of image references.
fn normal_form(registry: &str) -> Result<String, RegistryLoginError> {
    let wrong = || RegistryLoginError::Name {
        registry: registry.chars().take(200).collect(),
    };
    if registry.contains(['/', '@', ' ']) {
        return Err(wrong());
    }
    let image: ImageReference = format!("{registry}/x/y").parse().map_err(|_| wrong())?;
    let is_one = image.registry() == registry || image.repository() == "x/y";
    is_one
        .then(|| image.registry().to_owned())
        .ok_or_else(wrong)
}

fn check(username: Option<&str>, secret: &str) -> Result<(), RegistryLoginError> {
    let unusable = |why| Err(RegistryLoginError::Unusable { why });
    let has_control = |text: &str| text.chars().any(char::is_control);
    match username {
        Some("") => return unusable("the name is empty"),
        Some(name) if name.contains(':') => return unusable("the name has a colon"),
        Some(name) if has_control(name) || name.len() > LONGEST => {
            return unusable("the name has control characters, or is too long");
        }
        Some(_) | None => {}
    }
    match secret {
        "" => unusable("the password is empty"),
        secret if has_control(secret) || secret.len() > LONGEST => {
            unusable("the password has control characters, or is too long")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Vault;

    fn basic(user: &str, password: &str) -> Credentials {
        Credentials::Basic {
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }

    // fault K6
    #[tokio::test]
    async fn a_login_is_sealed_and_belongs_to_its_project_and_registry() {
        let temp = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(temp.path()).await;
        let (own, other) = (ProjectName::local(), "other".parse().unwrap());
        let vault = Vault::open(temp.path(), own.clone(), store.clone(), None);
        let logins = RegistryLogins::new(vault);
        let login = logins.put(&own, "ghcr.io", basic("ann", "hunter22")).await;
        assert_eq!(login.unwrap().username.as_deref(), Some("ann"));
        let token = Credentials::Token("t0ken".to_owned());
        logins
            .put(&own, "localhost:5000", token.clone())
            .await
            .unwrap();

        let sealed = store.sealed(&own, "image_registries", NAME).await.unwrap();
        let sealed = sealed.unwrap().ciphertext;
        assert!(!sealed.windows(8).any(|part| part == b"hunter22"));

        let image = |name: &str| name.parse::<ImageReference>().unwrap();
        let of = async |project: &ProjectName, name: &str| {
            logins.of(project, &image(name)).await.unwrap()
        };
        assert_eq!(
            of(&own, "ghcr.io/a/b:1").await,
            Some(basic("ann", "hunter22"))
        );
        assert_eq!(of(&own, "localhost:5000/a").await, Some(token));
        assert_eq!(of(&own, "localhost:5001/a").await, None);
        assert_eq!(of(&own, "evil.ghcr.io/a").await, None);
        assert_eq!(of(&other, "ghcr.io/a/b").await, None);
        let shown = format!("{:?}", logins.list(&own).await.unwrap());
        assert!(
            shown.contains("ann") && !shown.contains("hunter"),
            "{shown}"
        );

        logins.remove(&own, "ghcr.io").await.unwrap();
        assert_eq!(of(&own, "ghcr.io/a/b").await, None);
        let unknown = logins.remove(&own, "ghcr.io").await.unwrap_err();
        assert_eq!(unknown.code(), "image.login_unknown");
        logins.remove(&own, "localhost:5000").await.unwrap();
        assert!(logins.list(&own).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_is_no_registry_and_what_cannot_be_sent_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let store = crate::folder::store_in(temp.path()).await;
        let own = ProjectName::local();
        let logins = RegistryLogins::new(Vault::open(temp.path(), own.clone(), store, None));
        for registry in [
            "",
            "a/b",
            "https://ghcr.io",
            "gh cr.io",
            "plainword",
            "x@y",
            "-",
        ] {
            let refused = logins.put(&own, registry, basic("a", "b")).await;
            assert_eq!(refused.unwrap_err().code(), "image.login", "{registry}");
        }
        for (user, password) in [
            ("", "b"),
            ("a:b", "c"),
            ("a", ""),
            ("a\n", "b"),
            ("a", "b\r"),
        ] {
            let refused = logins.put(&own, "ghcr.io", basic(user, password)).await;
            assert_eq!(refused.unwrap_err().code(), "image.login", "{user}");
        }
        assert!(logins.list(&own).await.unwrap().is_empty());
    }
}
