//! Places of servers on the real disk: persistent volumes, emptied scratch space, limits that are
//! enforced or reported as not enforced.

use super::*;

fn owner(server: &str) -> Owner {
    Owner {
        project: ProjectName::local(),
        server: server.parse().unwrap(),
    }
}

fn measured(folder: &Path) -> Disks {
    Disks {
        inner: Arc::new(Inner {
            folder: folder.to_owned(),
            loops: OnceLock::new(),
            why_measured: Mutex::default(),
            is_measured: true,
            used: Mutex::default(),
            mounted: Mutex::default(),
            reading: Mutex::default(),
            trying: Mutex::default(),
            turns: Turns::default(),
        }),
    }
}

fn prepare(disks: &Disks, server: &str, bytes: u64) -> Result<Arc<Place>, DiskError> {
    disks.prepare(&PlaceRequest {
        owner: owner(server),
        limit_bytes: bytes,
        volumes: &[PathBuf::from("/data"), PathBuf::from("/var/lib/x")],
        outside: &[],
    })
}

// row 1.8
#[test]
fn a_place_that_is_being_changed_keeps_only_its_own_server_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let disks = measured(folder.path());
    let turn = disks.inner.turns.take(&owner("a"));
    prepare(&disks, "b", 16 << 20).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(prepare(&disks, "a", 16 << 20).is_ok()).unwrap());
        let brief = std::time::Duration::from_millis(50);
        assert!(receiver.recv_timeout(brief).is_err(), "`a` waits");
        drop(turn);
        assert_eq!(receiver.recv(), Ok(true));
    });
    disks.close();
}

// fault P9: a client with capabilities has an instance of its own.
#[test]
fn another_instance_takes_nothing_from_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let disks = measured(folder.path());
    let place = prepare(&disks, "a", 16 << 20).unwrap();
    let held = place.hold();
    std::fs::write(place.scratch().join("kept"), "1").unwrap();
    let other = prepare(&disks, "a", 16 << 20).unwrap();
    std::fs::write(other.scratch().join("gone"), "1").unwrap();
    assert!(place.scratch().join("kept").is_file());
    assert!(!other.scratch().join("kept").exists());
    let gone = other.scratch();
    drop(other);
    // The first is still used, and watched.
    let in_use = disks.remove_volume(&owner("a"), Path::new("/data"));
    assert!(matches!(in_use, Err(VolumeError::InUse { .. })));
    assert!(
        disks
            .places()
            .iter()
            .any(|known| Arc::ptr_eq(known, &place))
    );
    let other = prepare(&disks, "a", 16 << 20).unwrap();
    assert_eq!(other.scratch(), gone);
    assert!(!gone.join("gone").exists());
    assert!(place.scratch().join("kept").is_file());
    drop((held, place, other));
    let next = prepare(&disks, "a", 16 << 20).unwrap();
    assert!(!next.scratch().join("kept").exists());
    disks.close();
}

// row 1.19: instances of one server start at once.
#[test]
fn a_volume_is_filled_by_one_instance_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let disks = measured(folder.path());
    let place = prepare(&disks, "a", 16 << 20).unwrap();
    let same = prepare(&disks, "a", 16 << 20).unwrap();
    let data = Path::new("/data");
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut other = None;
    let filled = place.fill(data, None, |folder| {
        other = Some(std::thread::spawn(move || {
            same.fill(data, None, |_| sender.send(()).map_err(io::Error::other))
        }));
        let brief = std::time::Duration::from_millis(100);
        assert!(receiver.recv_timeout(brief).is_err(), "it waits");
        std::fs::write(folder.join("first"), "1")
    });
    filled.unwrap();
    other.unwrap().join().unwrap().unwrap();
    assert!(receiver.recv().is_err(), "it is filled already");
    assert!(place.volume(data).join("first").is_file());
    disks.close();
}

// rows 1.19 and 1.20
#[test]
fn volumes_stay_and_scratch_goes_on_whatever_disk() {
    for is_loop in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let disks = match is_loop {
            true => Disks::open(folder.path().join("hosted")),
            false => measured(folder.path()),
        };
        if is_loop && !has_loops(&disks) {
            continue;
        }
        let place = prepare(&disks, "a", 16 << 20).unwrap();
        let (volume, scratch) = (place.volume(Path::new("/data")), place.scratch());
        std::fs::write(volume.join("kept"), "1").unwrap();
        std::fs::write(scratch.join("gone"), "1").unwrap();
        assert_eq!(place.enforced().0, is_loop);
        let held = place.hold();
        let in_use = disks.remove_volume(&owner("a"), Path::new("/data"));
        assert!(matches!(in_use, Err(VolumeError::InUse { .. })));
        assert!(disks.forget(&owner("a"), true).is_err(), "it is used");
        drop(held);
        disks.forget(&owner("a"), false).unwrap();
        drop(place);
        let disks = match is_loop {
            // As after kill -9: leftover mounts are found and unmounted.
            true => {
                std::mem::forget(disks);
                Disks::open(folder.path().join("hosted"))
            }
            false => disks,
        };
        let place = prepare(&disks, "a", 16 << 20).unwrap();
        assert!(place.volume(Path::new("/data")).join("kept").is_file());
        assert!(!place.scratch().join("gone").exists());
        drop(place);
        let listed = disks.volumes(&ProjectName::local()).unwrap();
        let paths: Vec<_> = listed.iter().map(|view| view.path.as_path()).collect();
        assert_eq!(paths, [Path::new("/data"), Path::new("/var/lib/x")]);
        let mut archive = Vec::new();
        let data = Path::new("/data");
        disks.back_up(&owner("a"), data, &mut archive).unwrap();
        let text = String::from_utf8_lossy(&archive);
        assert!(text.contains("kept"), "the archive names its files");
        let unknown = disks.remove_volume(&owner("a"), Path::new("/other"));
        assert!(matches!(unknown, Err(VolumeError::Unknown { .. })));
        let pruned = disks.prune(&ProjectName::local(), &[owner("a").server]);
        assert_eq!(pruned.unwrap(), PrunedVolumes::default());
        let pruned = disks.prune(&ProjectName::local(), &[]).unwrap();
        assert_eq!(pruned.volumes, 2);
        assert!(!disks.home(&owner("a")).exists());
    }
}

/// Returns whether this process can mount file systems; root must be able to.
fn has_loops(disks: &Disks) -> bool {
    assert_eq!(disks.how(), None, "nothing is tried before it is used");
    drop(disks.bound());
    let how = disks.how();
    let is_root = rustix::process::geteuid().is_root();
    assert!(matches!(how, Some(Ok(_))) || !is_root, "{how:?}");
    is_root
}

// row 1.20
#[test]
fn no_server_finds_its_volumes_empty_because_the_host_changed() {
    let folder = tempfile::tempdir().unwrap();
    let hosted = folder.path().join("hosted");
    let bounded = Disks::open(hosted.clone());
    if !has_loops(&bounded) {
        return;
    }
    prepare(&bounded, "a", 8 << 20).unwrap();
    bounded.close();
    let refused = prepare(&measured(&hosted), "a", 8 << 20).err().unwrap();
    assert!(matches!(refused, DiskError::NotMounted { .. }), "{refused}");
    let place = prepare(&measured(&hosted), "b", 8 << 20).unwrap();
    std::fs::write(place.volume(Path::new("/data")).join("kept"), "1").unwrap();
    let place = prepare(&bounded, "b", 8 << 20).unwrap();
    assert!(place.volume(Path::new("/data")).join("kept").is_file());
    assert!(!place.enforced().0);
}

// fault P9
#[test]
fn a_folder_outside_of_its_place_is_measured_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("cwd");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("big"), vec![7; 5 << 20]).unwrap();
    let disks = Disks::open(folder.path().join("hosted"));
    let request = |limit_bytes| PlaceRequest {
        owner: owner("a"),
        limit_bytes,
        volumes: &[],
        outside: std::slice::from_ref(&outside),
    };
    let over = disks.prepare(&request(4 << 20)).err().unwrap();
    assert!(matches!(over, DiskError::Over { .. }), "{over}");
    let place = disks.prepare(&request(64 << 20)).unwrap();
    assert!(!place.enforced().0);
    assert!(place.used_bytes().unwrap() >= 5 << 20);
}

// row 1.17
#[test]
fn a_file_system_of_its_own_bounds_bytes_and_inodes_and_can_grow() {
    let folder = tempfile::tempdir().unwrap();
    let disks = Disks::open(folder.path().join("hosted"));
    if !has_loops(&disks) {
        return;
    }
    let place = prepare(&disks, "a", 8 << 20).unwrap();
    let file = place.work().join("big");
    let full = std::fs::write(&file, vec![7; 16 << 20]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    std::fs::remove_file(&file).unwrap();
    let many = (0..10_000).map(|n| std::fs::write(place.work().join(n.to_string()), ""));
    let made = many.take_while(io::Result::is_ok).count();
    assert!(made < 2000, "{made} files");
    drop(place);
    let place = prepare(&disks, "a", 24 << 20).unwrap();
    assert!(place.work().join("0").is_file());
    for n in 0..made {
        std::fs::remove_file(place.work().join(n.to_string())).unwrap();
    }
    std::fs::write(&file, vec![7; 16 << 20]).unwrap();
    assert!(place.used_bytes().unwrap() >= 16 << 20);
}

// fault P9
#[tokio::test]
async fn a_measured_server_over_its_limit_is_stopped_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let disks = measured(folder.path());
    let place = prepare(&disks, "a", 4 << 20).unwrap();
    let mut over = place.over();
    let stop = tokio_util::sync::CancellationToken::new();
    let watching = disks.clone().watch(stop.clone());
    std::fs::write(place.work().join("big"), vec![7; 5 << 20]).unwrap();
    let told = async {
        let why = over.wait_for(Option::is_some).await.unwrap().clone();
        stop.cancel();
        why.unwrap()
    };
    let ((), why) = tokio::join!(watching, told);
    assert!(
        why.starts_with("stopped: it uses 5") && why.contains("of 4194304 bytes"),
        "{why}"
    );
    drop(place);
    let refused = prepare(&disks, "a", 4 << 20).err().unwrap();
    assert!(matches!(refused, DiskError::Over { .. }), "{refused}");
}

// fault P9: a file without a name takes as much as one that has one
#[tokio::test]
async fn files_that_are_open_without_a_name_count_where_disks_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let disks = measured(folder.path());
    let place = prepare(&disks, "a", 16 << 20).unwrap();
    let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(place.work()).unwrap());
    place.count_unnamed(Box::new(move |devices| {
        assert_eq!(devices, [device]);
        (20 << 20, 1)
    }));
    let mut over = place.over();
    let stop = tokio_util::sync::CancellationToken::new();
    let watching = disks.clone().watch(stop.clone());
    let told = async {
        let why = over.wait_for(Option::is_some).await.unwrap().clone();
        stop.cancel();
        why.unwrap()
    };
    let ((), why) = tokio::join!(watching, told);
    assert!(why.contains("bytes on disk"), "{why}");
    assert!(place.used_bytes().unwrap() >= 20 << 20);
}

// row 1.20: a growth that was interrupted is finished, and what was mounted for a trial is nowhere
#[test]
fn what_was_interrupted_is_finished_at_the_next_use() {
    let folder = tempfile::tempdir().unwrap();
    let hosted = folder.path().join("hosted");
    let disks = Disks::open(hosted.clone());
    if !has_loops(&disks) {
        return;
    }
    assert!(!hosted.join(".probe").exists());
    let place = prepare(&disks, "a", 8 << 20).unwrap();
    std::fs::write(place.work().join("kept"), "1").unwrap();
    drop(place);
    disks.close();
    drop(disks);
    // As if killed right after the file was enlarged, and in the middle of a probe.
    let image = std::fs::File::options()
        .write(true)
        .open(hosted.join("local/a/disk.img"));
    image.unwrap().set_len(48 << 20).unwrap();
    std::fs::create_dir_all(hosted.join(".probe/mnt")).unwrap();
    let disks = Disks::open(hosted.clone());
    assert!(!hosted.join(".probe").exists());
    let place = prepare(&disks, "a", 48 << 20).unwrap();
    assert!(place.work().join("kept").is_file());
    std::fs::write(place.work().join("big"), vec![7; 24 << 20]).unwrap();
}
