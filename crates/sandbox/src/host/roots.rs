//! Probes which kinds of separate roots this host supports, by building one of each.

use std::fs;
use std::io;
use std::path::Path;

use super::{Mode, NEW_MOUNT, NEW_NETWORK, NEW_PID, NEW_UTS, maps_range, reasons};
use crate::cgroup::Group;
use crate::image::Image;
use crate::job::Job;
use crate::launch::{LaunchError, Notes, launch};
use crate::plan::{Identity, step};
use crate::protocol::{
    FLAG_MANY_IDS, FLAG_OWN_ROOT, FLAG_PROBE, Record, STAGE_ID_MAP, STAGE_LAYER_OWNERS,
    STAGE_RANGE, STAGE_STEP, STAGE_UNSHARE, STEP_DEVICE,
};
use crate::reaper::Reaper;
use crate::report::HostReport;
use crate::steps::Step;

/// The id range for the probe; any would do.
const FIRST: u32 = 1 << 19;
const RANGE: u32 = 65_536;
/// Two directories of the host stand in for layers; they are not written to.
const LAYERS: [&str; 6] = ["usr", "etc", "var", "lib", "bin", "opt"];

/// The results.
#[derive(Debug)]
pub(super) struct Roots {
    pub(super) own_root: Result<(), String>,
    pub(super) id_range: Result<(), String>,
    overlay: Result<(), String>,
    layer_owners: Result<(), String>,
}

impl Roots {
    pub(super) fn describe(&self, report: &mut HostReport) {
        for (name, outcome, how) in [
            ("own root", &self.own_root, "for hosted trees and images"),
            (
                "overlay",
                &self.overlay,
                "puts the layers of images together",
            ),
            ("id range", &self.id_range, "65,536 users for every server"),
            (
                "layer owners",
                &self.layer_owners,
                "layers show the owners of the image",
            ),
        ] {
            report.add(name, outcome.clone().map(|()| how));
        }
    }
}

/// Builds test roots until it is known what works.
pub(super) fn probe(
    image: &Image,
    reaper: &Reaper,
    identity: Identity,
    mode: Mode,
    own_user: &Result<(), String>,
    report: &HostReport,
) -> Roots {
    let none = |why: &str| Roots {
        own_root: Err(why.to_owned()),
        id_range: Err(why.to_owned()),
        overlay: Err(why.to_owned()),
        layer_owners: Err(why.to_owned()),
    };
    if !mode.has(NEW_PID) || !mode.has(NEW_MOUNT) {
        let facts = ["pid namespace", "mount namespace"].map(|name| report.fact(name));
        let denied = facts.into_iter().flatten().find(|fact| !fact.available);
        let why = denied.map_or("", |fact| fact.detail.as_str());
        return none(&format!("needs PID and mount namespaces ({why})"));
    }
    let id_range = range(identity, mode, own_user);
    let many = id_range.is_ok();
    let attempt = |layers| attempt(image, reaper, identity, mode, many, layers);
    let unmapped = || match &id_range {
        Ok(()) => Err("not needed".to_owned()),
        Err(why) => Err(why.clone()),
    };
    match attempt(true) {
        Ok(notes) => Roots {
            own_root: Ok(()),
            overlay: Ok(()),
            layer_owners: match notes.failed(STAGE_LAYER_OWNERS) {
                Some(error) => Err(format!("{error}: owners show as nobody")),
                None if many => Ok(()),
                None => unmapped(),
            },
            id_range,
        },
        Err(LaunchError::Step(record)) => match attempt(false) {
            Ok(_) => Roots {
                own_root: Ok(()),
                overlay: Err(reason(record)),
                layer_owners: unmapped(),
                id_range,
            },
            Err(LaunchError::Step(record)) => {
                let why = reason(record);
                let mut roots = none(&why);
                if record.stage != STAGE_RANGE {
                    roots.id_range = id_range;
                }
                roots
            }
            Err(LaunchError::Other(error)) => none(&error.to_string()),
        },
        Err(LaunchError::Other(error)) => none(&error.to_string()),
    }
}

/// Returns whether a range of ids can be mapped, as far as that is known without trying.
fn range(identity: Identity, mode: Mode, own_user: &Result<(), String>) -> Result<(), String> {
    if identity.uid != 0 || mode.user {
        return Err("the gateway is not root: every server has only one id".to_owned());
    }
    own_user.clone()?;
    let mapped =
        |file: &str| fs::read_to_string(file).is_ok_and(|map| maps_range(&map, FIRST, RANGE));
    if mapped("/proc/self/uid_map") && mapped("/proc/self/gid_map") {
        Ok(())
    } else {
        Err(format!("ids from {FIRST} on are not mapped here"))
    }
}

fn reason(record: Record) -> String {
    match record.stage {
        STAGE_UNSHARE | STAGE_ID_MAP | STAGE_RANGE => reasons::of_namespaces(record.value),
        STAGE_STEP => io::Error::from_raw_os_error(record.value).to_string(),
        stage => format!(
            "cannot {}: {}",
            step(stage),
            io::Error::from_raw_os_error(record.value)
        ),
    }
}

/// Builds one root, enters it and exits.
fn attempt(
    image: &Image,
    reaper: &Reaper,
    identity: Identity,
    mode: Mode,
    many: bool,
    layers: bool,
) -> Result<Notes, LaunchError> {
    let mut job = Job {
        flags: FLAG_PROBE | FLAG_OWN_ROOT,
        unshare: (mode.unshare() | NEW_UTS) & !NEW_NETWORK,
        cwd: "/".into(),
        ..Job::default()
    };
    if many {
        job.flags |= FLAG_MANY_IDS;
        job.range_map = format!("0 {FIRST} {RANGE}");
        job.first_id = FIRST;
    } else if mode.user {
        job.uid_map = format!("0 {} 1", identity.uid);
        job.gid_map = format!("0 {} 1", identity.gid);
    } else {
        // Maps a single, otherwise unused user of the host.
        job.range_map = format!("0 {} 1", crate::plan::FIRST_UID);
        job.first_id = crate::plan::FIRST_UID;
    }
    let plain = |name: &&str| {
        let path = Path::new("/").join(name);
        fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
    };
    let lower: Vec<String> = LAYERS
        .iter()
        .filter(|name| plain(name))
        .take(2)
        .map(|name| (*name).to_owned())
        .collect();
    job.steps = vec![
        match layers {
            true => Step::layers_root("/new", Path::new("/"), &lower),
            false => Step::memory_root("/new", "mode=755,size=1m"),
        },
        Step::memory("/dev", "mode=755,size=64k"),
        Step::bind("/dev/null", "/dev/null").with(STEP_DEVICE),
        Step::proc("/proc"),
        Step::mask("/proc/kcore"),
        Step::seal("/"),
    ];
    launch(image, reaper, &mut job, Group::default()).map(|running| running.notes)
}
