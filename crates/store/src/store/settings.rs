//! The settings of projects, of whatever database.

use gantry_model::id::ProjectName;
use serde_json::Value;

use super::{Backend, Store};
use crate::error::StoreError;

impl Store {
    /// Returns the settings of a project that are not at their default, by name.
    pub async fn settings(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<(String, Value)>, StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.settings(project).await
    }

    /// Changes settings of a project, all of them or none; without a value one is at its default again.
    pub async fn change_settings(
        &self,
        project: &ProjectName,
        changes: &[(String, Option<Value>)],
    ) -> Result<(), StoreError> {
        let Backend::Sqlite(store) = &self.backend;
        store.change_settings(project, changes).await
    }
}
