//! Products and their servers: installed, upgraded and removed in one transaction each. Statements
//! are in `sql::products`.

use gantry_model::id::{ProjectName, ServerId};

use super::Store;
use super::servers::ensure_project;
use crate::database::Durability;
use crate::database::query::query;
use crate::database::row::{column, parsed, unsigned};
use crate::error::StoreError;
use crate::project::ProductRow;
use crate::row::ServerRow;
use crate::sql::{products as sql, secrets, servers};

impl Store {
    /// Returns the products that are installed on a project, by name.
    pub async fn products(&self, project: &ProjectName) -> Result<Vec<ProductRow>, StoreError> {
        let all = query(sql::OF_PROJECT).bind(project.as_str());
        let products = self.database().rows("list products", all, |row| {
            Ok(ProductRow {
                id: column(row, 0)?,
                project: project.clone(),
                name: column(row, 1)?,
                version: column(row, 2)?,
                manifest: column(row, 3)?,
                hash: column(row, 4)?,
                created_ms: unsigned(row, 5)?,
                updated_ms: unsigned(row, 6)?,
            })
        });
        products.await
    }

    /// Returns the servers of products, each with the id of its product.
    pub async fn product_servers(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<(ServerId, String)>, StoreError> {
        let all = query(sql::SERVERS).bind(project.as_str());
        let what = "list the servers of products";
        let servers = self
            .database()
            .rows(what, all, |row| Ok((parsed(row, 0)?, column(row, 1)?)));
        servers.await
    }

    /// Installs or upgrades a product in one transaction: its row, new and changed servers, and
    /// removed ones. `Conflict` if a name belongs to a server outside the product.
    pub async fn put_product(
        &self,
        product: &ProductRow,
        put: &[ServerRow],
        removed: &[ServerId],
    ) -> Result<(), StoreError> {
        let database = self.database();
        let mut transaction = database
            .begin("install a product", Durability::Power)
            .await?;
        ensure_project(&mut transaction, &product.project).await?;
        let row = query(sql::PUT)
            .bind(&product.id)
            .bind(product.project.as_str())
            .bind(&product.name)
            .bind(&product.version)
            .bind(&product.manifest)
            .bind(&product.hash)
            .bind(product.created_ms)
            .bind(product.updated_ms);
        transaction.execute(row).await?;
        for id in removed {
            for statement in [secrets::REMOVE_SCOPE, servers::REMOVE] {
                let remove = query(statement)
                    .bind(product.project.as_str())
                    .bind(id.to_string());
                transaction.execute(remove).await?;
            }
        }
        for row in put {
            let owner = query(sql::OWNER)
                .bind(row.project.as_str())
                .bind(row.spec.name.as_str());
            let owner = transaction.optional(owner, |row| column::<String>(row, 0));
            if owner.await?.is_some_and(|owner| owner != product.id) {
                return Err(StoreError::Conflict {
                    what: format!("server `{}` in project `{}`", row.spec.name, row.project),
                });
            }
            self.replace_server_in(&mut transaction, row).await?;
            let set = query(sql::SET_PRODUCT)
                .bind(row.project.as_str())
                .bind(row.id.to_string())
                .bind(&product.id);
            transaction.execute(set).await?;
        }
        transaction.commit().await?;
        database.removed().await;
        Ok(())
    }

    /// Removes a product with its servers; returns whether it existed.
    pub async fn remove_product(
        &self,
        project: &ProjectName,
        id: &str,
    ) -> Result<bool, StoreError> {
        let owned = self.product_servers(project).await?;
        let database = self.database();
        let mut transaction = database
            .begin("remove a product", Durability::Power)
            .await?;
        for (server, _) in owned.iter().filter(|(_, product)| product == id) {
            let remove = query(secrets::REMOVE_SCOPE)
                .bind(project.as_str())
                .bind(server.to_string());
            transaction.execute(remove).await?;
        }
        let remove = query(sql::REMOVE).bind(project.as_str()).bind(id);
        let removed = transaction.execute(remove).await?;
        transaction.commit().await?;
        database.removed().await;
        Ok(removed > 0)
    }
}
