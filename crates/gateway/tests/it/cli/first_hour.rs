//! Must show 3: the first hour of README.md and `docs/first-hour.md` in a real terminal, with peers that
//! start at once; `world` plays it with servers of other makers.

use gantry_testkit::Evilpeer;

use crate::harness::{FirstHour, entry};

// First hour 1 to 4
#[test]
fn the_first_hour_goes_as_it_is_told() {
    let peer = |name: &str| entry(&Evilpeer::new().name(name));
    let hour = FirstHour {
        files: (peer("files"), "echo"),
        extra: (peer("extra"), "add"),
        notes: (peer("notes"), "echo"),
        path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
    };
    hour.play();
}
