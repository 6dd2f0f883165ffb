//! The project's named secrets, for administrators: set, bind, list and remove. Each change is
//! recorded before its effect, values as fingerprints; a new value restarts only the servers that
//! use it (fault K7). No method returns a value (fault K8).

use std::sync::Arc;

use gantry_model::id::ServerName;
use gantry_model::secret::{SecretName, SecretText};
use gantry_model::spec::ServerSpec;
use serde_json::{Value, json};

use super::Project;
use crate::acts::{Actor, Draft};
use crate::error::EngineError;
use crate::secrets::{BindTo, SecretError, SecretView, ServerEditor};

/// The result of a change of a secret.
#[derive(Debug, Clone)]
pub struct SecretChange {
    /// The secret after the change.
    pub secret: SecretView,
    /// Whether it is new.
    pub is_new: bool,
    /// The servers that were restarted because they use it.
    pub restarted: Vec<ServerName>,
}

impl Project {
    /// Returns the secrets by name, without their values.
    pub async fn secrets(&self) -> Result<Vec<SecretView>, EngineError> {
        let spec_of = self.spec_of();
        Ok(self.secrets.list(&spec_of).await?)
    }

    /// Returns one secret, without its value.
    pub async fn secret(&self, name: &str) -> Result<SecretView, EngineError> {
        let name: SecretName = parsed(name)?;
        let spec_of = self.spec_of();
        Ok(self.secrets.one(&name, &spec_of).await?)
    }

    fn spec_of(&self) -> impl Fn(&ServerName) -> Option<Arc<ServerSpec>> + Sync + use<> {
        let supervisor = Arc::clone(&self.supervisor);
        move |server| supervisor.spec_of(server)
    }

    /// Sets a secret, bound to the current state of these servers; to those it was bound to if none
    /// are given. Restarts the servers that use it.
    pub async fn set_secret(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &str,
        value: SecretText,
        to: Option<Vec<BindTo>>,
    ) -> Result<SecretChange, EngineError> {
        let by = by.into();
        self.admit()?;
        let name: SecretName = parsed(name)?;
        let project = Arc::clone(self);
        self.complete(async move {
            let _turn = project.supervisor.turn_of_secrets().await;
            let spec_of = project.spec_of();
            let before = project.secrets.one(&name, &spec_of).await.ok();
            let mut draft = Draft::new("secret.set", name.as_str());
            draft.before = before.as_ref().map(shown);
            let act = project
                .acts
                .begin(&by, draft.after(servers(to.as_deref())))
                .await?;
            let set = project.secrets.set(&name, &value, to.as_deref(), &spec_of);
            let set = set.await.map_err(EngineError::from);
            let now = match &set {
                Ok(()) => project.secrets.one(&name, &spec_of).await.ok(),
                Err(_) => None,
            };
            act.end_with(&set, None, now.as_ref().map(shown)).await;
            set?;
            project.changed(&name, before.is_none(), None).await
        })
        .await
    }

    /// Binds a secret to the current state of a server, without its value; for approvers.
    pub async fn bind_secret(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &str,
        to: BindTo,
    ) -> Result<SecretChange, EngineError> {
        let (by, server) = (by.into(), to.server.clone());
        if !by.may_bind_secrets() {
            let name: SecretName = parsed(name)?;
            return Err(SecretError::Forbidden { name }.into());
        }
        self.rebind(by, "secret.bind", name, server, Some(to)).await
    }

    /// Removes the binding of a secret to a server, which is restarted and waits for another.
    pub async fn unbind_secret(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &str,
        server: ServerName,
    ) -> Result<SecretChange, EngineError> {
        self.rebind(by.into(), "secret.unbind", name, server, None)
            .await
    }

    async fn rebind(
        self: &Arc<Self>,
        by: Actor,
        act: &'static str,
        name: &str,
        server: ServerName,
        to: Option<BindTo>,
    ) -> Result<SecretChange, EngineError> {
        self.admit()?;
        let name: SecretName = parsed(name)?;
        let project = Arc::clone(self);
        self.complete(async move {
            let _turn = project.supervisor.turn_of_secrets().await;
            let spec_of = project.spec_of();
            let before = project.secrets.one(&name, &spec_of).await?;
            let draft = Draft::new(act, name.as_str()).detail(format!("server {server}"));
            let act = project
                .acts
                .begin(&by, draft.before(shown(&before)))
                .await?;
            let bound = project.secrets.bind(&name, &server, to.as_ref(), &spec_of);
            let bound = bound.await.map_err(EngineError::from);
            let now = match &bound {
                Ok(()) => project.secrets.one(&name, &spec_of).await.ok(),
                Err(_) => None,
            };
            act.end_with(&bound, None, now.as_ref().map(shown)).await;
            bound?;
            project.changed(&name, false, Some(&server)).await
        })
        .await
    }

    /// Removes a secret; the servers that use it are restarted and wait for another. False if there
    /// was none.
    pub async fn remove_secret(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &str,
    ) -> Result<bool, EngineError> {
        let by = by.into();
        self.admit()?;
        let name: SecretName = parsed(name)?;
        let project = Arc::clone(self);
        self.complete(async move {
            let _turn = project.supervisor.turn_of_secrets().await;
            let spec_of = project.spec_of();
            let Ok(before) = project.secrets.one(&name, &spec_of).await else {
                return Ok(false);
            };
            let draft = Draft::new("secret.remove", name.as_str()).before(shown(&before));
            let remove = async { Ok(project.secrets.remove(&name).await?) };
            let removed = project.acts.run(&by, draft, remove).await?;
            if removed {
                project.supervisor.restart_users(&name, None).await;
            }
            Ok(removed)
        })
        .await
    }

    /// Adapts the bindings of secrets to a change of their server or its removal (`None`), before it happens. fault K4
    pub(super) async fn secrets_follow(
        &self,
        by: &Actor,
        server: &ServerName,
        becomes: Option<&ServerSpec>,
    ) -> Result<(), EngineError> {
        let editor = match by.may_bind_secrets() {
            true => ServerEditor::MayBind,
            false => ServerEditor::MayNotBind,
        };
        Ok(self.secrets.follow(server, becomes, editor).await?)
    }

    /// Restarts the servers that a change of a secret is about: its users, or `only` one of them.
    async fn changed(
        &self,
        name: &SecretName,
        is_new: bool,
        only: Option<&ServerName>,
    ) -> Result<SecretChange, EngineError> {
        let restarted = self.supervisor.restart_users(name, only).await;
        let spec_of = self.spec_of();
        Ok(SecretChange {
            secret: self.secrets.one(name, &spec_of).await?,
            is_new,
            restarted,
        })
    }
}

fn parsed(name: &str) -> Result<SecretName, EngineError> {
    let name: Result<SecretName, _> = name.parse();
    Ok(name.map_err(SecretError::from)?)
}

/// Returns the logged value of a secret.
fn shown(secret: &SecretView) -> Value {
    let bindings = secret
        .bindings
        .iter()
        .map(|(binding, _)| json!({"server": binding.server.as_str(), "origin": binding.origin}));
    json!({
        "version": secret.version,
        "fingerprint": format!("hmac-sha256:{}", secret.fingerprint),
        "bindings": bindings.collect::<Value>(),
    })
}

fn servers(to: Option<&[BindTo]>) -> Value {
    let names = to.map(|to| to.iter().map(|to| to.server.as_str()).collect::<Vec<_>>());
    json!({"bound_to": names})
}
