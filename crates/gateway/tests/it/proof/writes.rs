//! kill -9 at every write that an administrative act or the record of calls makes: after the next start the
//! old or the new state is there, whole, and nothing that was acknowledged is lost. In the profile `proof`
//! every write of every act is visited, by 200 kills at least on each store, otherwise a few:
//! `./test --profile proof proof::writes`. A call has one row if its server executed it, whatever the gateway
//! lived to tell.
//!
//! Nothing in the gateway knows of it. On SQLite the writes are the system calls on the database and the
//! journal, and the tracer kills at one of them; on PostgreSQL they are the messages to the server, and the
//! proxy in between does.

mod acts;
mod points;

use gantry_testkit::cut::Cut;
use gantry_testkit::postgres::PgDatabase;
use gantry_testkit::proof;
use serde_json::json;

use self::acts::Acts;
use self::points::Points;
use crate::harness::{Builder, Gantry, LONG, needs_root};

/// At least as many kills as this on each store.
const KILLS: usize = 200;

/// Returns which acts are killed, each as often as it has points, all in turn: the number of the act, and
/// how often it was killed before.
fn plan(points: &[usize]) -> Vec<(usize, usize)> {
    let least = KILLS.div_ceil(points.len());
    let visits = |number: usize| points[number].max(least);
    let rounds = (0..points.len()).map(visits).max().unwrap_or_default();
    let in_turn = (0..rounds).flat_map(|visit| (0..points.len()).map(move |act| (act, visit)));
    let all = in_turn.filter(|(act, visit)| *visit < visits(*act));
    all.take(proof::count(usize::MAX, 12)).collect()
}

/// Counts the writes of each act, then kills at one after the other, all acts in turn.
fn kill_at_every_write(points: &Points, builder: Builder) {
    let folder = tempfile::tempdir().unwrap();
    let executed = folder.path().join("executed");
    let gantry = acts::servers(builder, &executed).start();
    gantry.wait_state("a", "ready", LONG);
    let mut acts = Acts::prepare(&gantry, executed);
    let writes: Vec<usize> = (0..acts.len())
        .map(|number| {
            let act = acts.get(number);
            let (writes, is_acknowledged) = points.count(&gantry, || act.run(&gantry));
            assert!(is_acknowledged, "{}: {}", act.name(), gantry.stderr());
            act.check(&gantry, true);
            assert!(writes > 0, "{} writes nothing", act.name());
            writes
        })
        .collect();
    let mut gantry = gantry;
    let (mut old, mut new, mut acknowledged) = (0, 0, 0);
    // Killed at a point behind the last write, the act is done.
    let counts: Vec<usize> = writes.iter().map(|writes| writes + 1).collect();
    let plan = plan(&counts);
    let kills = plan.len();
    for (number, visit) in plan {
        let act = acts.get(number);
        // A step that has no divisor in common with the count visits every point.
        let points_of_act = counts[number];
        let point = 1 + (visit * step(points_of_act)) % points_of_act;
        gantry.wait_state("a", "ready", LONG);
        let is_acknowledged = points.kill_at(&gantry, point, || act.run(&gantry));
        gantry.wait(LONG);
        gantry = gantry.again();
        let health = gantry.rest("GET", "/api/v1/health", None).json();
        assert_eq!(health["audit"]["damage"], json!([]), "{health:#}");
        let is_new = act.check(&gantry, is_acknowledged);
        *if is_new { &mut new } else { &mut old } += 1;
        acknowledged += usize::from(is_acknowledged);
    }
    let verified = gantry.cli(&["audit", "verify"]);
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(verified.status.success(), "{said}");
    let per_act: Vec<String> = (0..acts.len())
        .map(|number| format!("{} {}", acts.get(number).name(), writes[number]))
        .collect();
    eprintln!(
        "{kills} kills: {old} times the old state, {new} times the new, {acknowledged} acknowledged; \
         writes of each act: {}",
        per_act.join(", ")
    );
}

/// Returns about two thirds of a count, with no divisor in common with it.
fn step(count: usize) -> usize {
    let common = |mut one: usize, mut other: usize| {
        while other > 0 {
            (one, other) = (other, one % other);
        }
        one
    };
    let from = (count * 2 / 3).max(1);
    (from..).find(|step| common(*step, count) == 1).unwrap_or(1)
}

// fault D2
#[test]
fn killed_at_any_write_the_old_or_the_new_state_is_whole() {
    needs_root();
    kill_at_every_write(&Points::Files, Gantry::builder());
}

// fault D2
#[test]
fn killed_at_any_write_the_old_or_the_new_state_is_whole_on_postgresql() {
    needs_root();
    let database = PgDatabase::new();
    let proxy = Cut::to(database.port());
    let url = database.url_at(proxy.port());
    let builder = Gantry::builder().flags(&["--store", &url]);
    kill_at_every_write(&Points::Messages(proxy), builder);
}
