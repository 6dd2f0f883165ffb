//! Files that are replaced, kept or refused.

use std::os::unix::fs::symlink;

use super::*;

struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    fn new(text: &str, mode: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let room = Self { folder };
        fs::write(room.file(), text).unwrap();
        fs::set_permissions(room.file(), fs::Permissions::from_mode(mode)).unwrap();
        room
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("mcp.json")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort_unstable();
        names
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_mode_stays_and_the_old_text_is_beside() {
    let room = Room::new("old", 0o640);
    let copy = Opened::read(&room.file())
        .unwrap()
        .replace("new", Readers::AsBefore)
        .unwrap();
    assert_eq!(text(&room.file()), "new");
    assert_eq!(text(&copy.unwrap()), "old");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&room.file()), 0o640);
    assert_eq!(mode(&room.folder.path().join("mcp.json.bak")), 0o600);
    assert_eq!(room.names(), ["mcp.json", "mcp.json.bak"]);
}

#[test]
fn a_file_that_holds_a_key_is_its_owners_alone() {
    // fault U2
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let room = Room::new("old", 0o664);
    let opened = Opened::read(&room.file()).unwrap();
    assert!(opened.is_open_to_others());
    opened.replace("key", Readers::Owner).unwrap();
    assert_eq!(mode(&room.file()), 0o600);
    let room = Room::new("key", 0o644);
    Opened::read(&room.file())
        .unwrap()
        .close_to_others()
        .unwrap();
    assert_eq!((mode(&room.file()), &*text(&room.file())), (0o600, "key"));
    assert_eq!(room.names(), ["mcp.json"]);
}

#[test]
fn no_copy_holds_a_key_of_ours() {
    // fault U2
    let key = "gantry_agent_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE";
    let with = format!("{{\"a\": \"Bearer {key}\", \"b\": \"other\"}}");
    let room = Room::new(&with, 0o644);
    // As an earlier version left them.
    let old = room.folder.path().join("mcp.json.bak");
    fs::write(&old, &with).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o644)).unwrap();
    let other = room.folder.path().join("mcp.json.bak.7");
    fs::write(&other, "no key").unwrap();
    let opened = Opened::read(&room.file()).unwrap();
    let copy = opened.replace("new", Readers::AsBefore).unwrap().unwrap();
    assert!(copy.ends_with("mcp.json.bak.1"), "{}", copy.display());
    assert_eq!(text(&copy), with.replace(key, "[redacted]"));
    assert_eq!(opened.clean_copies().unwrap(), std::slice::from_ref(&old));
    assert_eq!(text(&old), text(&copy));
    assert_eq!(fs::metadata(&old).unwrap().mode() & 0o777, 0o600);
    assert_eq!(text(&other), "no key");
    assert!(opened.clean_copies().unwrap().is_empty());
}

#[test]
fn copies_never_replace_each_other() {
    let room = Room::new("1", 0o600);
    let write = |new: &str| {
        Opened::read(&room.file())
            .unwrap()
            .replace(new, Readers::AsBefore)
            .unwrap()
    };
    write("2");
    let second = write("1").unwrap();
    assert!(second.ends_with("mcp.json.bak.1"), "{}", second.display());
    let again = write("3").unwrap();
    assert!(
        again.ends_with("mcp.json.bak"),
        "the same copy is kept once"
    );
    assert_eq!(text(&room.file()), "3");
}

#[test]
fn a_link_stays_and_what_it_leads_to_changes() {
    let room = Room::new("old", 0o600);
    let link = room.folder.path().join("link.json");
    symlink(room.file(), &link).unwrap();
    Opened::read(&link)
        .unwrap()
        .replace("new", Readers::AsBefore)
        .unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(text(&room.file()), "new");
    fs::remove_file(room.file()).unwrap();
    assert!(matches!(Opened::read(&link), Err(ClientError::Kind { .. })));
}

#[test]
fn what_another_program_wrote_meanwhile_is_never_lost() {
    let room = Room::new("old", 0o600);
    let opened = Opened::read(&room.file()).unwrap();
    fs::write(room.file(), "theirs").unwrap();
    let error = opened.replace("ours", Readers::AsBefore).unwrap_err();
    assert!(matches!(error, ClientError::Changed { .. }), "{error}");
    assert_eq!(text(&room.file()), "theirs");
    assert_eq!(room.names(), ["mcp.json"], "nothing is left behind");

    let missing = room.folder.path().join("new.json");
    let opened = Opened::read(&missing).unwrap();
    assert!(!opened.existed());
    fs::write(&missing, "theirs").unwrap();
    assert!(opened.replace("ours", Readers::AsBefore).is_err());
    assert_eq!(text(&missing), "theirs");
}

#[test]
fn a_read_only_file_stays_even_for_root() {
    let room = Room::new("old", 0o444);
    let opened = Opened::read(&room.file()).unwrap();
    assert!(matches!(
        opened.replace("new", Readers::AsBefore),
        Err(ClientError::ReadOnly { .. })
    ));
    assert_eq!(
        (text(&room.file()).as_str(), room.names().len()),
        ("old", 1)
    );
}

#[test]
fn a_new_file_is_the_persons_alone_and_its_folder_is_made() {
    let room = Room::new("", 0o600);
    let new = room.folder.path().join("a/b/mcp.json");
    assert_eq!(
        Opened::read(&new)
            .unwrap()
            .replace("x", Readers::AsBefore)
            .unwrap(),
        None
    );
    assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o600);
    let folder = Opened::read(room.folder.path()).unwrap_err();
    assert!(matches!(
        folder,
        ClientError::Io { .. } | ClientError::Kind { .. }
    ));
}
