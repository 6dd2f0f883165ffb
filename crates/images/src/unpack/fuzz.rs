//! The fuzz target of the unpacker: layers of valid and invalid pieces, mutated, and unpacked
//! beside a canary. It must not panic, hang, or touch anything outside its folder.
//!
//! Runs a few seconds in `./test`, and five minutes by `./test --profile proof unpack::fuzz`, as
//! `.ci/run` does. Each layer is saved in `target/fuzz` before it is tried, and stays there if the
//! test fails, crashes or hangs; saved layers are tried first. A failure also prints the seed.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gantry_testkit::proof;
use rustix::fs::CWD;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::layers::remove_tree;

use crate::tarball::{archive, file, folder, hard_link, item, long, pax, pax_of, seal, symlink};

/// A small generator (SplitMix64): the same seed gives the same layer.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// How many of the names are valid.
const RIGHT_NAMES: usize = 9;
const NAMES: &[&str] = &[
    "a",
    "b",
    "a/b",
    "a/b/c",
    "./a",
    "/a",
    "c/",
    ".wh.a",
    "a/.wh..wh..opq",
    ".",
    "..",
    "../canary/x",
    "a/../b",
    "../../canary/secret",
    "a/.wh.b",
    ".wh..wh..opq",
    ".wh.",
    ".wh..",
    ".wh.a/b",
    "a\nb",
    "",
    "/proc/self/root/tmp/x",
];

/// Mostly valid names: a layer ends at its first invalid entry.
fn name(random: &mut Random) -> &'static str {
    let all = if random.below(5) == 0 {
        NAMES
    } else {
        &NAMES[..RIGHT_NAMES]
    };
    random.pick(all)
}

fn piece(random: &mut Random, canary: &str) -> Vec<u8> {
    let name = name(random);
    let other = self::name(random);
    let target = random.pick(&[other, canary, "..", "/", "a"]);
    let content = vec![b'x'; random.below(1_500)];
    match random.below(16) {
        0..=5 => file(name, content).bytes(),
        6 => folder(name).mode(random.below(0o10000) as u32).bytes(),
        7 => symlink(name, target).bytes(),
        8 => hard_link(name, target).bytes(),
        9 => item(random.next() as u8, name).bytes(),
        10 => item(b"67S34gxLK"[random.below(9)], name)
            .content(content)
            .bytes(),
        11 => long(b"LK"[random.below(2)], other),
        12 => pax(&[("path", other.as_bytes())]),
        13 => pax(&[
            ("linkpath", target.as_bytes()),
            ("mtime", b"1.5"),
            ("uid", b"7"),
        ]),
        14 => {
            let key = random.pick(&[
                "user.x",
                "user.overlay.opaque",
                "security.capability",
                "trusted.x",
            ]);
            pax(&[(
                &format!("SCHILY.xattr.{key}"),
                &content[..content.len().min(200)],
            )])
        }
        _ => pax_of(
            b"xg"[random.below(2)],
            &[(random.pick(&["comment", "size", "GNU.sparse.major"]), b"1")],
        ),
    }
}

fn make(random: &mut Random, canary: &str) -> Vec<u8> {
    let count = 1 + random.below(8);
    let mut parts: Vec<Vec<u8>> = (0..count).map(|_| piece(random, canary)).collect();
    for _ in 0..random.below(4) {
        let at = random.below(parts.len());
        let part = &mut parts[at];
        match random.below(4) {
            // Changes a header byte and fixes the checksum, since a random flip alone never passes
            // it.
            0 => {
                part[random.below(512)] = random.next() as u8;
                seal(&mut part[..512]);
            }
            // Changes a whole number field.
            1 => {
                let (field, length) = [(100, 8), (108, 8), (124, 12), (136, 12)][random.below(4)];
                for byte in &mut part[field..field + length] {
                    *byte = random
                        .pick(&[&0xff_u8, &0x80, &b'7', &b'0', &0, &b' '])
                        .to_owned();
                }
                seal(&mut part[..512]);
            }
            2 => {
                let length = part.len();
                part[random.below(length)] ^= 1 << random.below(8);
            }
            _ => parts.swap(at, 0),
        }
    }
    let mut bytes = archive(&parts);
    if random.below(4) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
    bytes
}

/// Names, modes, times and contents of a tree.
fn look(path: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    let metadata = fs::symlink_metadata(path).unwrap();
    let (mode, links) = (metadata.mode(), metadata.nlink());
    let time = (metadata.mtime(), metadata.mtime_nsec());
    let content = if metadata.is_file() {
        fs::read(path).unwrap()
    } else {
        Vec::new()
    };
    seen.push(format!(
        "{} {mode:o} {links} {time:?} {content:?}",
        path.display()
    ));
    if metadata.is_dir() {
        let entries = fs::read_dir(path).unwrap();
        seen.extend(entries.flat_map(|entry| look(&entry.unwrap().path())));
    }
    seen.sort();
    seen
}

/// Returns the folder for saved layers, beside the test programs.
fn kept_in() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let target = program.ancestors().nth(3).unwrap();
    let folder = target.join("fuzz");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Unpacks a layer with options derived from its seed; returns whether it succeeded.
fn run(seed: u64, bytes: &[u8], folder: &Path) -> bool {
    let owners = if seed.is_multiple_of(2) {
        Owners::Keep
    } else {
        Owners::Single
    };
    let whiteouts = if seed.is_multiple_of(3) {
        WhiteoutForm::Attribute
    } else {
        WhiteoutForm::Device
    };
    let work = folder.join("work");
    fs::create_dir(&work).unwrap();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let create = |name: &str| {
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        options.open(work.join(name)).unwrap()
    };
    fs::create_dir(work.join("fs")).unwrap();
    let target = Target {
        root: rustix::fs::open(work.join("fs"), flags, rustix::fs::Mode::empty()).unwrap(),
        implied: create("implied"),
        times: create("times"),
        owners,
        whiteouts,
    };
    let stop = CancellationToken::new();
    let bounds = Bounds {
        bytes: 1 << 20,
        entries: 1_000,
        time: Duration::from_secs(20),
        stop: &stop,
        cost: None,
    };
    let unpacked = unpack(bytes, target, bounds);
    if let Ok(unpacked) = &unpacked {
        assert_eq!(unpacked.diff_id, Digest::of(bytes), "seed {seed}");
    }
    if let Err(LayerError::Store {
        action,
        path,
        source,
    }) = &unpacked
    {
        panic!("seed {seed}: {action} {path}: {source}");
    }
    remove_tree(CWD, work.as_os_str().as_encoded_bytes()).unwrap_or_else(|_| {
        fs::remove_dir_all(&work).unwrap();
    });
    unpacked.is_ok()
}

#[test]
fn mutated_layers_touch_nothing_outside_and_end() {
    let folder = TempDir::new().unwrap();
    let canary = folder.path().join("canary");
    fs::create_dir_all(canary.join("inner")).unwrap();
    fs::write(canary.join("secret"), "do not touch").unwrap();
    let before = look(&canary);
    let time = proof::count(Duration::from_secs(300), Duration::from_secs(4));
    let mut start = [0; 8];
    fs::File::open("/dev/urandom")
        .unwrap()
        .read_exact(&mut start)
        .unwrap();
    let first = u64::from_le_bytes(start);
    println!("the first seed is {first}");
    let began = SystemTime::now();
    let (mut seed, mut fine) = (first, 0);
    let kept = kept_in();
    let one = kept.join(format!("unpack-{}.tar", std::process::id()));
    let try_one = |seed: u64, bytes: &[u8]| {
        fs::write(&one, bytes).unwrap();
        let is_fine = run(seed, bytes, folder.path());
        let said = format!("seed {seed}, the layer is `{}`", one.display());
        assert_eq!(look(&canary), before, "{said}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{said}");
        is_fine
    };
    let earlier = fs::read_dir(&kept).unwrap().flatten();
    for bytes in earlier.filter_map(|entry| fs::read(entry.path()).ok()) {
        for form in 0..6 {
            try_one(form, &bytes);
        }
    }
    while began.elapsed().unwrap_or_default() < time {
        let bytes = make(&mut Random(seed), canary.to_str().unwrap());
        fine += u64::from(try_one(seed, &bytes));
        seed = seed.wrapping_add(1);
    }
    fs::remove_file(&one).unwrap();
    let tried = seed.wrapping_sub(first);
    println!("{tried} layers, of which {fine} were unpacked");
    // If all succeeded or all failed, the test would prove little.
    assert!(fine > tried / 40 && fine < tried, "{fine} of {tried}");
}
