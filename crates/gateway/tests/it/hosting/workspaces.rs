//! Row 1.1: what a registered image leaves in `kb.agent_workspaces`, read as another program would.

use std::path::Path;

use gantry_testkit::wait::eventually;
use serde_json::json;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Row as _};

use super::{RUNGS, Rig, SECOND, USERS};

/// Returns type, status, provider, image and policy of a server's row.
fn row(file: &Path, name: &str) -> Option<[String; 5]> {
    let read = async {
        let options = SqliteConnectOptions::new().filename(":memory:");
        let mut connection = options.connect().await?;
        sqlx::query("ATTACH $1 AS kb")
            .bind(file.to_str().unwrap())
            .execute(&mut connection)
            .await?;
        let wanted = "SELECT container_type, status, provider, image, restart_policy \
             FROM kb.agent_workspaces WHERE name = $1";
        sqlx::query(wanted)
            .bind(name)
            .fetch_optional(&mut connection)
            .await
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let found = runtime.unwrap().block_on(read).unwrap()?;
    Some([0, 1, 2, 3, 4].map(|column: usize| {
        let text: Option<String> = found.get(column);
        text.unwrap_or_default()
    }))
}

// row 1.1
#[test]
fn a_registered_image_has_a_row_until_it_is_removed() {
    for user in USERS {
        let rig = Rig::new(user);
        let file = rig.gantry.data().join("gantry.db");
        for rung in RUNGS {
            rig.server(rung, rung, &json!({}));
            let wanted = ["mcp_server", "ready", rung, &rig.image, "always"].map(str::to_owned);
            let mut found = None;
            let is_there = eventually(10 * SECOND, || {
                found = row(&file, rung);
                found.as_ref() == Some(&wanted)
            });
            assert!(is_there.is_some(), "{found:?}");
            let path = format!("/api/v1/mcp/servers/{rung}");
            assert!(rig.gantry.rest("DELETE", &path, None).status < 300);
            let is_gone = eventually(10 * SECOND, || row(&file, rung).is_none());
            assert!(is_gone.is_some(), "{:?}", row(&file, rung));
        }
    }
}
