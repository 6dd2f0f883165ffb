//! Hosted servers: their workspaces, id ranges and volumes.

use std::collections::BTreeSet;

use gantry_model::event::{EventKind, ServerEvent};
use gantry_model::id::ServerName;
use gantry_model::spec::{ImageLaunch, Launch, ServerSpec};
use gantry_store::{HOSTED_IDS, IDS_PER_SERVER, Store, VolumeRow, WorkspaceInstance, WorkspaceRow};

use crate::harness::{NOON, local, on_each, on_each_config, open, server};

fn image(number: u128, name: &str, reference: &str) -> gantry_store::ServerRow {
    let mut row = server(number, name, "x");
    let mut launch = ImageLaunch::new(reference);
    launch.hosting.volumes = vec!["/data".into()];
    launch.env.insert("API_KEY".into(), "s3cr3t".into());
    row.spec = ServerSpec::image(name.parse().unwrap(), launch);
    row
}

async fn happens(store: &Store, server: &str, kind: EventKind) {
    let event = ServerEvent {
        at_ms: NOON,
        server: server.parse().unwrap(),
        kind,
        detail: String::new(),
    };
    store.put_events(&[(local(), event)]).await.unwrap();
}

async fn one(store: &Store) -> WorkspaceRow {
    let mut rows = store.workspaces(&local()).await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.remove(0)
}

// row 1.1
#[tokio::test]
async fn a_hosted_server_has_a_workspace_that_follows_its_life() {
    on_each(|store| async move {
        let row = image(1, "langfuse-mcp", "emergent/mcp-langfuse:latest");
        store.put_server(&row).await.unwrap();
        let first = one(&store).await;
        assert_eq!(first.server, row.id);
        assert_eq!(first.status, "registered");
        assert_eq!(first.image.as_deref(), Some("emergent/mcp-langfuse:latest"));
        assert_eq!((first.stdio_bridge, first.port), (true, None));
        assert_eq!(first.restart_policy, "always");
        assert_eq!(first.volumes, serde_json::json!(["/data"]));
        // row 1.16
        let limits = serde_json::json!(
            {"cpu": 0.5, "memory": 512 << 20, "pids": 128, "disk": 1 << 30}
        );
        assert_eq!(first.resource_limits, limits);
        let steps = [
            (EventKind::Starting, "starting"),
            (EventKind::Ready, "ready"),
            (EventKind::CallTimeout, "ready"),
            (EventKind::Unresponsive, "unresponsive"),
            (EventKind::Recovered, "ready"),
            (EventKind::Exited, "restarting"),
            (EventKind::BackingOff, "backing_off"),
            (EventKind::Stopped, "stopped"),
        ];
        for (kind, status) in steps {
            happens(&store, "langfuse-mcp", kind).await;
            assert_eq!(one(&store).await.status, status);
        }
        let instance = WorkspaceInstance {
            provider: "gvisor".into(),
            instance: "7".into(),
            image_digest: Some("sha256:00".into()),
        };
        let name = &row.spec.name;
        store
            .set_workspace_instance(&local(), name, &instance)
            .await
            .unwrap();
        let placed = one(&store).await;
        assert_eq!(placed.provider.as_deref(), Some("gvisor"));
        assert_eq!(placed.image_digest.as_deref(), Some("sha256:00"));
        // Another image has another digest; the row stays.
        let changed = image(1, "langfuse-mcp", "emergent/mcp-langfuse:2");
        store.replace_server(&changed).await.unwrap();
        let changed = one(&store).await;
        assert_eq!(changed.image_digest, None);
        assert!(store.remove_server(&local(), row.id).await.unwrap());
        assert_eq!(store.workspaces(&local()).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn only_hosted_servers_have_workspaces() {
    on_each(|store| async move {
        store.put_server(&server(1, "a", "x")).await.unwrap();
        assert_eq!(one(&store).await.image, None);
        let mut local_one = server(1, "a", "x");
        if let Launch::Process(process) = &mut local_one.spec.launch {
            process.profile = gantry_model::spec::Profile::Local;
        }
        store.replace_server(&local_one).await.unwrap();
        assert_eq!(store.workspaces(&local()).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn every_server_of_every_project_owns_ids_of_its_own_for_good() {
    on_each_config(|config| async move {
        let (a, b) = (open(&config, 1).await, open(&config, 2).await);
        let mut seen = BTreeSet::new();
        // The same seed every time: the worst that can happen.
        for project in ["local", "other"] {
            let project = project.parse().unwrap();
            for name in ["postgres-prod", "memory-prod", "x"] {
                let name = name.parse().unwrap();
                let first = a.id_range(&project, &name, 5).await.unwrap();
                assert_eq!(b.id_range(&project, &name, 99).await.unwrap(), first);
                assert!(HOSTED_IDS.contains(&first) && seen.insert(first));
            }
        }
        let seen: Vec<u32> = seen.into_iter().collect();
        assert!(seen.windows(2).all(|two| two[1] - two[0] >= IDS_PER_SERVER));
        // A server that is removed and comes back finds the files in its volumes its own.
        let row = server(1, "x", "x");
        a.put_server(&row).await.unwrap();
        let before = a.id_range(&local(), &row.spec.name, 1).await.unwrap();
        a.remove_server(&local(), row.id).await.unwrap();
        assert_eq!(
            a.id_range(&local(), &row.spec.name, 2).await.unwrap(),
            before
        );
    })
    .await;
}

// fault C13
#[tokio::test]
async fn ids_are_given_back_once_nothing_belongs_to_them_and_taken_again_last() {
    on_each_config(|config| async move {
        let (a, b) = (open(&config, 1).await, open(&config, 2).await);
        let name = |name: &str| -> ServerName { name.parse().unwrap() };
        let row = server(1, "one", "x");
        a.put_server(&row).await.unwrap();
        let one = a.id_range(&local(), &name("one"), 5).await.unwrap();
        let release = |store: &Store, server: &str| {
            let (store, server) = (store.clone(), name(server));
            async move { store.release_id_range(&local(), &server).await.unwrap() }
        };
        assert!(!release(&a, "one").await, "it is registered");
        a.remove_server(&local(), row.id).await.unwrap();
        let volume = VolumeRow {
            project: local(),
            server: name("one"),
            path: "/data".into(),
            folder: "one".into(),
            created_ms: NOON,
        };
        b.put_volume(&volume).await.unwrap();
        assert!(!release(&a, "one").await, "another gateway has its volume");
        b.remove_volume(&local(), &name("one"), "/data")
            .await
            .unwrap();
        assert!(release(&a, "one").await);
        assert!(!release(&a, "one").await, "once");
        // One that comes back has the same, and is not given away meanwhile.
        assert_eq!(b.id_range(&local(), &name("one"), 9).await.unwrap(), one);
        assert!(release(&a, "one").await);
        let other = a.id_range(&local(), &name("two"), 5).await.unwrap();
        assert_ne!(other, one, "there are ranges that nobody ever had");
        // Whose files may lie elsewhere keeps its ids.
        a.keep_id_range(&local(), &name("two")).await.unwrap();
        assert!(!release(&a, "two").await);
        assert_eq!(a.id_range(&local(), &name("two"), 7).await.unwrap(), other);
    })
    .await;
}

// rows 1.19, 1.20; fault C13
#[tokio::test]
async fn a_volume_is_of_one_project_server_path_and_gateway_and_outlives_its_server() {
    on_each_config(|config| async move {
        let (a, b) = (open(&config, 1).await, open(&config, 2).await);
        let volume = |project: &str, folder: &str| VolumeRow {
            project: project.parse().unwrap(),
            server: "memory".parse().unwrap(),
            path: "/data".into(),
            folder: folder.into(),
            created_ms: NOON,
        };
        let first = a.put_volume(&volume("local", "one")).await.unwrap();
        let again = a.put_volume(&volume("local", "two")).await.unwrap();
        assert_eq!(again, first, "it is there already");
        let other = a.put_volume(&volume("other", "three")).await.unwrap();
        assert_eq!(other.folder, "three");
        assert_eq!(b.volumes(&local()).await.unwrap(), [], "on another disk");
        let row = server(1, "memory", "x");
        a.put_server(&row).await.unwrap();
        a.remove_server(&local(), row.id).await.unwrap();
        assert_eq!(a.volumes(&local()).await.unwrap(), [first]);
        let gone = |store: Store| async move {
            let server = "memory".parse().unwrap();
            store
                .remove_volume(&local(), &server, "/data")
                .await
                .unwrap()
        };
        assert!(!gone(b).await);
        assert!(gone(a.clone()).await);
        assert!(!gone(a.clone()).await);
        assert_eq!(a.volumes(&"other".parse().unwrap()).await.unwrap(), [other]);
    })
    .await;
}
