//! Administration of projects: the projects themselves, suspensions, and changes that need a second
//! person. Statements are in `sql::projects`.

use gantry_model::caller::Role;
use gantry_model::id::ProjectName;
use gantry_model::suspension::{Suspendable, Suspension};

use sqlx::types::Json;

use super::Store;
use super::servers::ensure_project;
use crate::clock::now_ms;
use crate::database::Durability;
use crate::database::query::{Query, query};
use crate::database::row::{
    Row, column, parsed, parsed_option, unexpected, unsigned, unsigned_option,
};
use crate::error::StoreError;
use crate::project::{ProjectRow, RegistrationRow, RegistrationState};
use crate::sql::projects as sql;

impl Store {
    /// Returns all projects, by name.
    pub async fn project_rows(&self) -> Result<Vec<ProjectRow>, StoreError> {
        let all = query(sql::ALL_PROJECTS);
        let projects = self.database().rows("list projects", all, |row| {
            Ok(ProjectRow {
                name: parsed(row, 0)?,
                description: column(row, 1)?,
                created_ms: unsigned(row, 2)?,
                loaded: column(row, 3)?,
            })
        });
        projects.await
    }

    /// Creates a project; false if there is one of that name.
    pub async fn create_project(
        &self,
        project: &ProjectName,
        description: &str,
    ) -> Result<bool, StoreError> {
        let create = query(sql::CREATE)
            .bind(project.as_str())
            .bind(description)
            .bind(now_ms());
        self.has_changed("make a project", create).await
    }

    /// Returns whether there are recorded calls or acts of a project, even a deleted one.
    pub async fn has_record(&self, project: &ProjectName) -> Result<bool, StoreError> {
        let record = query(sql::HAS_RECORD).bind(project.as_str());
        let what = "look for the record of a project";
        self.database()
            .one(what, record, |row| column(row, 0))
            .await
    }

    /// Changes the description of a project; returns whether it exists.
    pub async fn describe_project(
        &self,
        project: &ProjectName,
        description: &str,
    ) -> Result<bool, StoreError> {
        let describe = query(sql::DESCRIBE)
            .bind(project.as_str())
            .bind(description);
        self.has_changed("describe a project", describe).await
    }

    /// Stores whether the servers of a project run; returns whether that changed.
    pub async fn set_project_loaded(
        &self,
        project: &ProjectName,
        loaded: bool,
    ) -> Result<bool, StoreError> {
        let set = query(sql::SET_LOADED).bind(project.as_str()).bind(loaded);
        self.has_changed("load or unload a project", set).await
    }

    /// Removes a project with its servers, agents, keys, grants, secrets and settings; its record
    /// of calls, events and acts stays. Returns whether it existed.
    pub async fn remove_project(&self, project: &ProjectName) -> Result<bool, StoreError> {
        let database = self.database();
        let mut transaction = database
            .begin("remove a project", Durability::Power)
            .await?;
        let volumes = query(sql::REMOVE_VOLUMES)
            .bind(project.as_str())
            .bind(self.number());
        transaction.execute(volumes).await?;
        let remove = query(sql::REMOVE).bind(project.as_str());
        let removed = transaction.execute(remove).await?;
        transaction.commit().await?;
        // This included its secrets.
        database.removed().await;
        Ok(removed > 0)
    }

    /// Returns a counter of created, deleted, loaded and unloaded projects.
    pub async fn projects_revision(&self) -> Result<u64, StoreError> {
        let revision = query(sql::REVISION);
        let what = "look for changes of projects";
        let revision = self
            .database()
            .optional(what, revision, |row| unsigned(row, 0));
        Ok(revision.await?.unwrap_or(0))
    }

    /// Returns the suspensions of a project.
    pub async fn suspensions(
        &self,
        project: &ProjectName,
    ) -> Result<Vec<(Suspendable, Suspension)>, StoreError> {
        let all = query(sql::SUSPENSIONS).bind(project.as_str());
        let suspended = self
            .database()
            .rows("list what is suspended", all, suspension);
        suspended.await
    }

    /// Suspends an item; false if it already was, unless by a less powerful role.
    pub async fn suspend(
        &self,
        project: &ProjectName,
        what: &Suspendable,
        suspension: &Suspension,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.database().begin("suspend", Durability::Power).await?;
        ensure_project(&mut transaction, project).await?;
        let known = query(sql::SUSPENSIONS).bind(project.as_str());
        let known = transaction.rows(known, self::suspension).await?;
        let known = known.iter().find(|(known, _)| known == what);
        let statement = match known {
            Some((_, known)) if suspension.is_firmer_than(known) => sql::SUSPEND_FIRMLY,
            Some(_) | None => sql::SUSPEND,
        };
        let put = query(statement)
            .bind(project.as_str())
            .bind(what.kind())
            .bind(what.name())
            .bind(&suspension.reason)
            .bind(&suspension.by)
            .bind(suspension.at_ms)
            .bind(suspension.role.map(Role::as_str));
        let put = transaction.execute(put).await?;
        transaction.commit().await?;
        Ok(put > 0)
    }

    /// Ends a suspension; returns whether there was one.
    pub async fn resume(
        &self,
        project: &ProjectName,
        what: &Suspendable,
    ) -> Result<bool, StoreError> {
        let remove = query(sql::RESUME)
            .bind(project.as_str())
            .bind(what.kind())
            .bind(what.name());
        self.has_changed("resume", remove).await
    }

    /// Stores a change that needs a second person.
    pub async fn put_registration(&self, row: &RegistrationRow) -> Result<(), StoreError> {
        let put = query(sql::PUT_REGISTRATION)
            .bind(&row.id)
            .bind(row.project.as_str())
            .bind(&row.act)
            .bind(&row.target)
            .bind(&row.request)
            .bind(Json(&row.shown))
            .bind(Json(&row.reasons))
            .bind(&row.asked_key)
            .bind(&row.asked_by)
            .bind(row.asked_ms);
        let put = self.has_changed("keep a registration that waits", put);
        put.await.map(drop)
    }

    /// Returns the changes that need or needed a second person, the newest first.
    pub async fn registrations(
        &self,
        project: &ProjectName,
        limit: u32,
    ) -> Result<Vec<RegistrationRow>, StoreError> {
        let all = query(sql::REGISTRATIONS).bind(project.as_str()).bind(limit);
        let database = self.database();
        let rows = database.rows("list registrations", all, |row| registration(project, row));
        rows.await
    }

    /// Decides a pending change, and deletes its request; false if it is not pending.
    pub async fn decide_registration(
        &self,
        project: &ProjectName,
        id: &str,
        state: RegistrationState,
        by: &str,
        at_ms: u64,
    ) -> Result<bool, StoreError> {
        let decide = query(sql::DECIDE)
            .bind(project.as_str())
            .bind(id)
            .bind(state.as_str())
            .bind(by)
            .bind(at_ms);
        let decided = self.has_changed("decide a registration", decide).await?;
        // The request may have contained secrets.
        self.database().removed().await;
        Ok(decided)
    }

    /// Makes a change pending again whose execution failed.
    pub async fn reopen_registration(&self, row: &RegistrationRow) -> Result<(), StoreError> {
        let reopen = query(sql::REOPEN)
            .bind(row.project.as_str())
            .bind(&row.id)
            .bind(&row.request);
        let reopened = self.has_changed("have a registration wait again", reopen);
        reopened.await.map(drop)
    }

    /// Runs one statement and returns whether it changed anything.
    async fn has_changed(&self, what: &'static str, query: Query<'_>) -> Result<bool, StoreError> {
        let changed = self.database().execute(what, Durability::Power, query);
        Ok(changed.await? > 0)
    }
}

fn suspension(row: &Row) -> Result<(Suspendable, Suspension), sqlx::Error> {
    let (kind, name): (&str, &str) = (column(row, 0)?, column(row, 1)?);
    let what = Suspendable::new(kind, name);
    let what = what.map_err(|_| unexpected("name of something suspended", name))?;
    let suspension = Suspension {
        reason: column(row, 2)?,
        by: column(row, 3)?,
        at_ms: unsigned(row, 4)?,
        role: parsed_option(row, 5)?,
    };
    Ok((what, suspension))
}

fn registration(project: &ProjectName, row: &Row) -> Result<RegistrationRow, sqlx::Error> {
    let (Json(shown), Json(reasons)) = (column(row, 4)?, column(row, 5)?);
    let state: &str = column(row, 9)?;
    Ok(RegistrationRow {
        id: column(row, 0)?,
        project: project.clone(),
        act: column(row, 1)?,
        target: column(row, 2)?,
        request: column(row, 3)?,
        shown,
        reasons,
        asked_key: column(row, 6)?,
        asked_by: column(row, 7)?,
        asked_ms: unsigned(row, 8)?,
        state: RegistrationState::parse(state)
            .ok_or_else(|| unexpected("state of a registration", state))?,
        decided_by: column(row, 10)?,
        decided_ms: unsigned_option(row, 11)?,
    })
}
