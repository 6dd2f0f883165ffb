//! User namespaces: around the whole tree for a gateway of an ordinary user, around the server alone for one
//! that is root.

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

/// Maps our own user and group in the new user namespace this process is in.
pub(crate) fn map_own(uid_map: &CStr, gid_map: &CStr) -> sys::Result<()> {
    write_file(c"/proc/self/setgroups", b"deny")?;
    write_file(c"/proc/self/uid_map", uid_map.to_bytes())?;
    write_file(c"/proc/self/gid_map", gid_map.to_bytes())
}

/// Makes a user namespace with that map for users and groups, which nobody is in yet.
///
/// A child enters it and waits: only from outside a range can be mapped.
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
    // Out of the way of the server's own three.
    let moved = sys::duplicate_above(low, FIRST_FD);
    sys::close(low);
    moved
}

/// Becomes the user that the tree runs as, in the user namespace that is for it.
pub(crate) fn become_inside(job: &Job<'_>, made: &Made) -> sys::Result<()> {
    let runtime = job.flags & FLAG_RUNTIME != 0;
    if let Some(namespace) = made.user_namespace {
        sys::enter_namespace(namespace)?;
        if !runtime {
            // While there is the right to it: another user has none any more.
            drop_bounding_set(0)?;
        }
        // A runtime is root in its namespace, and gives the guest its user itself.
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
        // Refused where a plain user made the namespace: then those groups have no number here.
        let _ = sys::drop_groups();
        if !runtime {
            drop_bounding_set(0)?;
        }
    }
    if runtime || job.flags & FLAG_MANY_IDS != 0 || (made.uid, made.gid) == (0, 0) {
        return Ok(());
    }
    // There is one id, and it is root's: a further namespace gives it the number that is asked for.
    let single = |inside: u32| {
        let mut text = Text::new(b"");
        text.push_number(inside);
        text.push(b" 0 1");
        text
    };
    sys::unshare(sys::CLONE_NEWUSER)?;
    // Else the files of this process in `/proc` belong to the host's root.
    let _ = sys::prctl(PR_SET_DUMPABLE, 1, 0);
    map_own(
        single(made.uid).as_c_str(),
        single(made.gid).as_c_str(),
    )?;
    // A new user namespace begins with all of them.
    drop_bounding_set(0)
}

/// Takes away for good what no program of this tree may ever gain.
pub(crate) fn drop_bounding_set(kept: u64) -> sys::Result<()> {
    let mut outcome = Ok(());
    for capability in 0..64 {
        if kept >> capability & 1 == 0 {
            match sys::prctl(PR_CAPBSET_DROP, capability, 0) {
                // One that this kernel does not know.
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
