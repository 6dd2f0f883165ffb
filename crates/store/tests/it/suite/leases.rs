//! Leases.

use std::time::Duration;

use gantry_model::id::GatewayId;
use gantry_model::spec::Source;
use gantry_store::{Lease, Store};

use crate::harness::{local, on_each_config, open, server};

const LONG: Duration = Duration::from_secs(3600);
const OVER: Duration = Duration::ZERO;

async fn take(store: &Store, lasts: Duration) -> Lease {
    let leases = store.take_leases(&local(), lasts).await.unwrap();
    assert_eq!(leases, store.leases(&local()).await.unwrap());
    assert_eq!(leases.len(), 1);
    leases[0]
}

#[tokio::test]
async fn a_gateway_takes_no_server_whose_name_its_file_has() {
    on_each_config(|config| async move {
        let (a, b) = (open(&config, 1).await, open(&config, 2).await);
        let mut of_file = server(2, "files", "x");
        of_file.spec.source = Source::File;
        a.put_server(&of_file).await.unwrap();
        b.put_server(&server(1, "files", "x")).await.unwrap();
        let mut off = server(3, "off", "x");
        off.enabled = false;
        b.put_server(&off).await.unwrap();
        assert_eq!(a.take_leases(&local(), LONG).await.unwrap(), []);
        assert_eq!(take(&b, LONG).await.server, server(1, "files", "x").id);
    })
    .await;
}

#[tokio::test]
async fn a_registered_server_has_one_holder_and_its_generation_only_grows() {
    on_each_config(|config| async move {
        let (a, b) = (open(&config, 1).await, open(&config, 2).await);
        assert_eq!(a.take_leases(&local(), LONG).await.unwrap(), []);
        a.put_server(&server(1, "files", "x")).await.unwrap();
        let mut of_file = server(2, "mail", "x");
        of_file.spec.source = Source::File;
        a.put_server(&of_file).await.unwrap();
        let held = |lease: Lease| (lease.holder, lease.generation);
        let (of_a, of_b) = (
            Some(GatewayId::from_random(1)),
            Some(GatewayId::from_random(2)),
        );
        assert_eq!(held(take(&a, LONG).await), (of_a, 1));
        assert_eq!(held(take(&b, LONG).await), (of_a, 1), "held by another");
        assert_eq!(held(take(&a, LONG).await), (of_a, 1), "it has it already");
        let leases = a.leases(&local()).await.unwrap();
        assert_eq!(a.ends_in(&leases, OVER), None, "its own");
        assert!(b.ends_in(&leases, OVER).unwrap() > LONG / 2);
        a.renew_leases(OVER).await.unwrap();
        let ended = a.leases(&local()).await.unwrap();
        let left = b.ends_in(&ended, OVER).unwrap();
        assert!(left <= Duration::from_secs(1), "{left:?}");
        let left = b.ends_in(&ended, LONG).unwrap();
        assert!(left > LONG / 2, "it came just now: {left:?}");
        // A gateway that came just now waits for as long as a lease lasts.
        assert_eq!(held(take(&b, LONG).await), (of_a, 1));
        assert_eq!(held(take(&b, OVER).await), (of_b, 2), "taken over");
        a.renew_leases(LONG).await.unwrap();
        assert_eq!(held(take(&a, LONG).await), (of_b, 2), "lost for good");
        assert_eq!(
            held(take(&a, OVER).await),
            (of_a, 3),
            "ended, and taken back"
        );
        a.release_leases(&local()).await.unwrap();
        let released = a.leases(&local()).await.unwrap();
        assert_eq!(held(released[0]), (None, 3));
        assert_eq!(held(take(&b, LONG).await), (of_b, 4), "free at once");
        let again = open(&config, 2).await;
        assert_eq!(held(take(&again, LONG).await), (of_b, 5), "its next start");
        b.renew_leases(OVER).await.unwrap();
        b.release_leases(&local()).await.unwrap();
        assert_eq!(held(take(&again, LONG).await), (of_b, 5), "not of its last");
        assert!(
            a.remove_server(&local(), server(1, "files", "x").id)
                .await
                .unwrap()
        );
        assert_eq!(a.leases(&local()).await.unwrap(), []);
    })
    .await;
}
