//! Products: groups of servers, defined by a manifest. Planned before anything is done, installed
//! or upgraded in one transaction, pinned by the hash of the manifest, removed as a whole. Every
//! server of a product is subject to the registration policy like a single one (fault G8). row 0.2

use std::sync::Arc;

use gantry_model::id::{ServerId, ServerName};
use gantry_model::settings::Sensitive;
use gantry_model::spec::ServerSpec;
use gantry_store::{ProductRow, StoreError};
use serde_json::{Value, json};

use super::Project;
use crate::acts::{Actor, Draft, Values};
use crate::clock::unix_ms;
use crate::error::{AdminError, EngineError};
use crate::random::random;

/// A product to install, or to upgrade an installed one to.
#[derive(Debug, Clone)]
pub struct NewProduct {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The manifest as JSON, without the values of variables and headers.
    pub manifest: String,
    /// The SHA-256 of the manifest as it was given.
    pub hash: String,
    /// Its servers.
    pub servers: Vec<ServerSpec>,
}

/// The effect of installing or upgrading a product.
#[derive(Debug, Clone)]
pub struct ProductPlan {
    /// The installed product, if there is one.
    pub installed: Option<ProductRow>,
    /// The new servers.
    pub added: Vec<ServerSpec>,
    /// The changed servers: before and after.
    pub changed: Vec<(ServerSpec, ServerSpec)>,
    /// The removed servers.
    pub removed: Vec<ServerSpec>,
    /// The unchanged servers.
    pub unchanged: Vec<ServerName>,
    /// Why a second person must approve it.
    pub reasons: Vec<Sensitive>,
}

impl Project {
    /// Returns the installed products, by name, each with its servers.
    pub async fn products(&self) -> Result<Vec<(ProductRow, Vec<ServerName>)>, EngineError> {
        let store = &self.machine.store;
        let owned = store.product_servers(&self.name).await?;
        let products = store.products(&self.name).await?;
        let servers = self.supervisor.all();
        let of = |product: &ProductRow| -> Vec<ServerName> {
            let is_its =
                |id: &ServerId| owned.iter().any(|(own, by)| own == id && *by == product.id);
            let its = servers.iter().filter(|handle| is_its(&handle.id));
            its.map(|handle| handle.name.clone()).collect()
        };
        let with_servers = products.into_iter().map(|product| {
            let servers = of(&product);
            (product, servers)
        });
        Ok(with_servers.collect())
    }

    /// Returns an installed product.
    pub async fn product(&self, name: &str) -> Result<(ProductRow, Vec<ServerName>), EngineError> {
        let mut products = self.products().await?.into_iter();
        let found = products.find(|(product, _)| product.name == name);
        found.ok_or_else(|| unknown(name))
    }

    /// Returns the effect of installing or upgrading a product, without doing it, and records that
    /// it was asked for. fault G8
    pub async fn preview_product(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        new: NewProduct,
    ) -> Result<ProductPlan, EngineError> {
        let by = by.into();
        self.admit()?;
        let project = Arc::clone(self);
        self.complete(async move {
            let servers: Vec<Value> = new.servers.iter().map(Values::asked).collect();
            let draft = Draft::new("product.preview", new.name.as_str());
            let draft = draft.after(json!({
                "version": new.version, "sha256": new.hash, "asked": servers,
            }));
            let plan = project.plan_product(&new);
            project.acts.run(&by, draft, plan).await
        })
        .await
    }

    /// Returns the effect of installing or upgrading a product, without doing it.
    pub async fn plan_product(&self, new: &NewProduct) -> Result<ProductPlan, EngineError> {
        let products = self.products().await?;
        let installed = products
            .into_iter()
            .find(|(known, _)| known.name == new.name);
        let own = installed
            .as_ref()
            .map_or(&[][..], |(_, servers)| servers.as_slice());
        let mut plan = ProductPlan {
            installed: installed.as_ref().map(|(product, _)| product.clone()),
            added: Vec::new(),
            changed: Vec::new(),
            removed: Vec::new(),
            unchanged: Vec::new(),
            reasons: Vec::new(),
        };
        let settings = self.settings();
        for spec in &new.servers {
            spec.check()?;
            settings
                .registration
                .check(spec)
                .map_err(AdminError::from)?;
            let mut spec = spec.clone();
            settings.registration.raise(&mut spec);
            let known = self.supervisor.find(spec.name.as_str());
            let before = known.as_ref().map(|handle| as_registered(&handle.spec));
            for reason in settings.registration.reasons(&spec, before.as_ref()) {
                if !plan.reasons.contains(&reason) {
                    plan.reasons.push(reason);
                }
            }
            match before {
                None => plan.added.push(spec),
                Some(before) if !own.contains(&before.name) => {
                    return Err(EngineError::Conflict { name: before.name });
                }
                Some(before) if before == spec => plan.unchanged.push(spec.name),
                Some(before) => plan.changed.push((before, spec)),
            }
        }
        let is_kept = |name: &ServerName| new.servers.iter().any(|spec| spec.name == *name);
        let gone = own.iter().filter(|name| !is_kept(name));
        let gone = gone.filter_map(|name| self.supervisor.find(name.as_str()));
        plan.removed = gone.map(|handle| as_registered(&handle.spec)).collect();
        Ok(plan)
    }

    /// Installs or upgrades a product. `from` is the hash of the installed one when the plan was
    /// shown, or `None`: an outdated plan is refused.
    pub async fn install_product(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        new: NewProduct,
        from: Option<String>,
    ) -> Result<ProductPlan, EngineError> {
        let by = by.into();
        self.admit()?;
        let project = Arc::clone(self);
        self.complete(async move {
            let _one = project.changing_products.lock().await;
            let plan = project.plan_product(&new).await;
            let name = new.name.as_str();
            let mut draft = Draft::new("product.install", name);
            if let Ok(plan) = &plan {
                draft.before = plan.installed.as_ref().map(shown);
                draft = draft.after(project.planned(&new, plan));
            }
            let install = async { project.carry_out(&by, &new, plan?, from).await };
            project.acts.run(&by, draft, install).await
        })
        .await
    }

    async fn carry_out(
        &self,
        by: &Actor,
        new: &NewProduct,
        plan: ProductPlan,
        from: Option<String>,
    ) -> Result<ProductPlan, EngineError> {
        let installed = plan.installed.as_ref();
        if installed.map(|known| known.hash.as_str()) != from.as_deref() {
            return Err(AdminError::ProductChanged {
                name: new.name.clone(),
            }
            .into());
        }
        by.second_person(plan.reasons.clone())?;
        let now = unix_ms();
        let product = ProductRow {
            id: installed.map_or_else(
                || format!("product_{:032x}", u128::from_le_bytes(random())),
                |known| known.id.clone(),
            ),
            project: self.name.clone(),
            name: new.name.clone(),
            version: new.version.clone(),
            manifest: new.manifest.clone(),
            hash: new.hash.clone(),
            created_ms: installed.map_or(now, |known| known.created_ms),
            updated_ms: now,
        };
        let changed = plan.changed.iter().map(|(_, after)| after);
        let mut put = Vec::new();
        for spec in plan.added.iter().chain(changed) {
            put.push(self.supervisor.product_row(spec).await?);
        }
        let gone = plan.removed.iter();
        let gone = gone.filter_map(|spec| Some(self.supervisor.find(spec.name.as_str())?.id));
        let gone: Vec<ServerId> = gone.collect();
        for spec in plan
            .added
            .iter()
            .chain(plan.changed.iter().map(|(_, after)| after))
        {
            self.secrets_follow(by, &spec.name, Some(spec)).await?;
        }
        for spec in &plan.removed {
            self.secrets_follow(by, &spec.name, None).await?;
        }
        let stored = self.machine.store.put_product(&product, &put, &gone).await;
        stored.map_err(|error| match matches!(error, StoreError::Conflict { .. }) {
            true => {
                let name = new.name.clone();
                AdminError::ProductChanged { name }.into()
            }
            false => EngineError::Store(error),
        })?;
        self.supervisor.follow_registered().await?;
        for spec in &plan.added {
            self.offer(&spec.name).await;
        }
        Ok(plan)
    }

    /// Removes a product with its servers; their volumes stay.
    pub async fn uninstall_product(
        self: &Arc<Self>,
        by: impl Into<Actor>,
        name: &str,
    ) -> Result<(), EngineError> {
        let (by, project, name) = (by.into(), Arc::clone(self), name.to_owned());
        self.complete(async move {
            let _one = project.changing_products.lock().await;
            let (product, servers) = project.product(&name).await?;
            let mut before = shown(&product);
            before["servers"] = servers.iter().map(ServerName::as_str).collect();
            let draft = Draft::new("product.uninstall", name.as_str()).before(before);
            let remove = project.remove_servers(&by, &product, &servers);
            project.acts.run(&by, draft, remove).await
        })
        .await
    }

    async fn remove_servers(
        &self,
        by: &Actor,
        product: &ProductRow,
        servers: &[ServerName],
    ) -> Result<(), EngineError> {
        for server in servers {
            self.secrets_follow(by, server, None).await?;
        }
        let store = &self.machine.store;
        store.remove_product(&self.name, &product.id).await?;
        self.supervisor.follow_registered().await.map(drop)
    }

    /// Refuses to change a server that belongs to a product.
    pub(super) async fn not_of_product(&self, server: &str) -> Result<(), EngineError> {
        let Some(handle) = self.supervisor.find(server) else {
            return Ok(());
        };
        let products = self.products().await?;
        let owner = products
            .into_iter()
            .find(|(_, servers)| servers.contains(&handle.name));
        match owner {
            Some((product, _)) => Err(AdminError::OfProduct {
                server: handle.name.clone(),
                product: product.name,
            }
            .into()),
            None => Ok(()),
        }
    }

    /// Returns the logged value of an installation.
    fn planned(&self, new: &NewProduct, plan: &ProductPlan) -> Value {
        let spec = |spec: &ServerSpec| self.acts.values.spec(spec);
        json!({
            "version": new.version, "sha256": new.hash,
            "added": plan.added.iter().map(spec).collect::<Vec<_>>(),
            "changed": plan.changed.iter().map(|(_, after)| spec(after)).collect::<Vec<_>>(),
            "removed": plan.removed.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(),
        })
    }
}

fn shown(product: &ProductRow) -> Value {
    json!({"version": product.version, "sha256": product.hash})
}

/// Returns a spec as it was registered, without a held state.
fn as_registered(spec: &ServerSpec) -> ServerSpec {
    ServerSpec {
        inactive: None,
        ..spec.clone()
    }
}

fn unknown(name: &str) -> EngineError {
    AdminError::UnknownProduct {
        name: name.chars().take(64).collect(),
    }
    .into()
}
