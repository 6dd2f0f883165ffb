//! User namespaces: around the whole tree if the gateway runs as an ordinary user, around the
//! server alone if it runs as root.

use core::ffi::CStr;

use crate::job::Job;
use crate::protocol::{FLAG_MANY_IDS, FLAG_RUNTIME};
use crate::root::Made;
use crate::sys;
use crate::text::Text;
use crate::FIRST_FD;

const PR_SET_DUMPABLE: usize = 4;
const PR_CAPBSET_DROP: usize = 24;
const PR_CAP_AMBIENT: usize = 47;
const PR_CAP_AMBIENT_CLEAR_ALL: usize = 4;

/// Maps the gateway's user and group in the new user namespace of this process.
pub(crate) fn map_own(uid_map: &CStr, gid_map: &CStr) -> sys::Result<()> {
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/uid_map", uid_map.to_bytes())?;
    write_file(c"/proc/self/gid_map", gid_map.to_bytes())
}

/// Creates a user namespace with this map for users and groups, without any process in it.
///
/// A child enters it and waits: a range can be mapped only from outside.
pub(crate) fn make_namespace(map: &CStr) -> sys::Result<i32> {
    let (entered, tell) = sys::pipe()?;
    let (wait, release) = sys::pipe()?;
    let child = sys::fork(0)?;
    if child == 0 {
        sys::close(release);
        let errno = sys::unshare(sys::CLONE_NEWUSER).err().unwrap_or(0);
        let _ = sys::write(tell, &errno.to_ne_bytes());
        let _ = sys::read(wait, &mut [0]);
        sys::exit(0);
    }
    sys::close(tell);
    sys::close(wait);
    let mut errno = [0; 4];
    let outcome = match sys::read(entered, &mut errno) {
        Ok(4) if errno == [0; 4] => map_child(child, map),
        Ok(4) => Err(i32::from_ne_bytes(errno)),
        Ok(_) => Err(sys::EINVAL),
        Err(errno) => Err(errno),
    };
    sys::close(entered);
    sys::close(release);
    let _ = sys::wait_any(true);
    outcome
}

fn map_child(child: i32, map: &CStr) -> sys::Result<i32> {
    let file = |name: &[u8]| {
        let mut path = Text::new(b"/proc/");
        path.push_number(child as u32);
        path.push(name);
        path
    };
    for name in [&b"/uid_map"[..], b"/gid_map"] {
        write_file(file(name).as_c_str(), map.to_bytes())?;
    }
    let namespace = file(b"/ns/user");
    let low = sys::open(namespace.as_c_str(), sys::O_RDONLY | sys::O_CLOEXEC, 0)?;
    // Keeps 0, 1 and 2 free for the server.
    let moved = sys::duplicate_above(low, FIRST_FD);
    sys::close(low);
    moved
}

/// Becomes the tree's user, in the tree's user namespace.
pub(crate) fn become_inside(job: &Job<'_>, made: &Made) -> sys::Result<()> {
    let runtime = job.flags & FLAG_RUNTIME != 0;
    if let Some(namespace) = made.user_namespace {
        sys::enter_namespace(namespace)?;
        if !runtime {
            // Before the change of user, which takes the right away.
            drop_bounding_set(0)?;
        }
        // A runtime runs as root in its namespace, and sets the guest's user itself.
        let (uid, gid) = if runtime || job.flags & FLAG_MANY_IDS == 0 {
            (0, 0)
        } else {
            (made.uid, made.gid)
        };
        sys::become_user(uid, gid)?;
        if runtime {
            sys::unshare(sys::CLONE_NEWNS)?;
        }
    } else {
        // Fails if an ordinary user made the namespace: then those groups are not mapped here.
        let _ = sys::drop_groups();
        if !runtime {
            drop_bounding_set(0)?;
        }
    }
    if runtime || job.flags & FLAG_MANY_IDS != 0 || (made.uid, made.gid) == (0, 0) {
        return Ok(());
    }
    // There is only one id, mapped to root: a nested namespace maps it to the requested number.
    let single = |inside: u32| {
        let mut text = Text::new(b"");
        text.push_number(inside);
        text.push(b" 0 1");
        text
    };
    sys::unshare(sys::CLONE_NEWUSER)?;
    // Otherwise the files of this process in `/proc` belong to the host's root.
    let _ = sys::prctl(PR_SET_DUMPABLE, 1, 0);
    map_own(
        single(made.uid).as_c_str(),
        single(made.gid).as_c_str(),
    )?;
    // A new user namespace starts with a full bounding set.
    drop_bounding_set(0)
}

/// Permanently removes capabilities from the bounding set, except those in `kept`.
pub(crate) fn drop_bounding_set(kept: u64) -> sys::Result<()> {
    let mut outcome = Ok(());
    for capability in 0..64 {
        if kept >> capability & 1 == 0 {
            match sys::prctl(PR_CAPBSET_DROP, capability, 0) {
                // A capability that this kernel does not know.
                Ok(_) | Err(sys::EINVAL) => {}
                Err(errno) => outcome = Err(errno),
            }
        }
    }
    let _ = sys::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0);
    outcome
}

fn write_file(path: &CStr, text: &[u8]) -> sys::Result<()> {
    let fd = sys::open(path, sys::O_WRONLY | sys::O_CLOEXEC, 0)?;
    let outcome = sys::write(fd, text);
    sys::close(fd);
    outcome.map(drop)
}
