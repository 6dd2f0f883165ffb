//! Mounts the layers of an image as an overlay, each id-mapped to the tree's own ids.

use core::ffi::CStr;

use super::{Building, PLAIN};
use crate::job::Step;
use crate::protocol::{STAGE_LAYER_OWNERS, STEP_WRITABLE};
use crate::report::{CONTROL, note};
use crate::sys::{self, Attributes, Beneath};
use crate::text::Text;

impl Building<'_> {
    /// Mounts the layers at the target of a step.
    ///
    /// There is always a writable upper layer, in which missing mount points are created: the
    /// scratch space if the tree may change its root, else a little memory that is made read-only
    /// later.
    pub(super) fn layers(&self, step: &Step<'_>) -> sys::Result<()> {
        let base = sys::open_beneath(
            self.host,
            step.source,
            sys::O_PATH | sys::O_DIRECTORY,
            0,
            Beneath::NoLinks,
        )?;
        let change: &[u8] = match step.flags & STEP_WRITABLE {
            0 => b"/change",
            _ => b"/scratch",
        };
        for (name, mode) in [(&b"/upper"[..], 0o755), (b"/work", 0o700)] {
            let mut path = Text::new(change);
            path.push(name);
            match sys::make_directory(path.as_c_str(), mode) {
                Ok(_) => {
                    let root = self.outside(0);
                    let here = sys::open(path.as_c_str(), sys::O_PATH | sys::O_CLOEXEC, 0)?;
                    sys::change_owner(here, c"", root, root)?;
                    sys::close(here);
                }
                Err(sys::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        let mapped = match self.made.user_namespace {
            None => Err(0),
            namespace => mounted(step, base, namespace, change),
        };
        let outcome = match mapped {
            Ok(()) => Ok(()),
            Err(errno) => {
                if errno != 0 {
                    note(CONTROL, STAGE_LAYER_OWNERS, errno, 0);
                }
                mounted(step, base, None, change)
            }
        };
        sys::change_directory(c"/")?;
        sys::close(base);
        outcome
    }
}

/// Mounts the layers, with owners mapped by a user namespace or as on the disk.
///
/// Layers are named by numbers: the kernel accepts only one page of names, and shows them to the
/// tree.
fn mounted(
    step: &Step<'_>,
    base: i32,
    namespace: Option<i32>,
    change: &[u8],
) -> sys::Result<()> {
    let place: &[u8] = match namespace {
        Some(_) => b"/layers/mapped",
        None => b"/layers/plain",
    };
    sys::make_directory(Text::new(place).as_c_str(), 0o755)?;
    let mut options = Text::new(b"userxattr,lowerdir=");
    let names = step.content.split(|byte| *byte == 0);
    for (index, name) in names.filter(|name| !name.is_empty()).enumerate() {
        let mut path = Text::new(place);
        path.push(b"/");
        path.push_number(index as u32);
        sys::make_directory(path.as_c_str(), 0o755)?;
        let at = sys::open(path.as_c_str(), sys::O_PATH | sys::O_CLOEXEC, 0)?;
        let set = PLAIN | Attributes::READ_ONLY;
        let outcome = attach_layer(base, Text::new(name).as_c_str(), at, namespace, set);
        sys::close(at);
        outcome?;
        if index > 0 {
            options.push(b":");
        }
        options.push_number(index as u32);
    }
    sys::change_directory(Text::new(place).as_c_str())?;
    for (option, name) in [
        (&b",upperdir="[..], &b"/upper"[..]),
        (b",workdir=", b"/work"),
    ] {
        options.push(option);
        options.push(change);
        options.push(name);
    }
    let flags = sys::MS_NOSUID | sys::MS_NODEV;
    sys::mount(c"overlay", step.target, c"overlay", flags, options.as_c_str()).map(drop)
}

/// Bind-mounts a path of the host, with all mounts below it, over an open path.
pub(super) fn attach_layer(
    directory: i32,
    path: &CStr,
    target: i32,
    user_namespace: Option<i32>,
    set: u64,
) -> sys::Result<()> {
    let mount = sys::clone_mount(directory, path)?;
    let attributes = Attributes {
        set,
        user_namespace,
        recursive: true,
    };
    let outcome = sys::set_attributes(mount, attributes).and_then(|_| sys::attach(mount, target));
    sys::close(mount);
    outcome.map(drop)
}
