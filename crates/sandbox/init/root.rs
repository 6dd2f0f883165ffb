//! Builds a separate root for the tree, in the steps of the job, and enters it.
//!
//! Everything is built in memory at a place that only this process sees: there `/old` is the host's
//! root, `/new` becomes the tree's. At the end the tree's root is entered and the host's root is
//! unmounted. Paths in the tree's root are resolved inside it only: an image may contain any link.

use core::ffi::CStr;

use crate::job::{Job, Step};
use crate::protocol::{
    FLAG_MANY_IDS, KEEP_ID, STAGE_HOST_NAME, STAGE_LOOKUP, STAGE_PIVOT, STAGE_PROPAGATION,
    STAGE_LAYER_OWNERS, STAGE_ONE_USER, STAGE_ROOT, STAGE_STEP, STEP_APART, STEP_AROUND, STEP_BIND, STEP_DEVICE, STEP_DIRECTORY, STEP_FILE, STEP_FILE_FOR_USER,
    STEP_FOLDER_ROOT, STEP_FOR_USER, STEP_HAND_OVER, STEP_IN_ROOT, STEP_IN_SCRATCH,
    STEP_LAYERS_ROOT, STEP_LINK, STEP_MASK, STEP_MEMORY, STEP_MEMORY_ROOT, STEP_OPTIONAL,
    STEP_PROC, STEP_READ_ONLY, STEP_SCRATCH, STEP_SEAL, STEP_TERMINALS, STEP_USER,
};
use crate::report::{CONTROL, fail, lack, note};
use crate::sys::{self, Attributes, Beneath};
use crate::text::Text;
use crate::users;

mod layers;

/// How many ids a user namespace with a range has.
const IDS: u32 = 65_536;
const NO_DEVICES: usize = sys::MS_NOSUID | sys::MS_NODEV;
const PLAIN: u64 = Attributes::NO_SUID | Attributes::NO_DEVICES;

/// The results of building the root that the server needs.
pub(crate) struct Made {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// `HOME=…`
    pub(crate) home: Text,
    /// The user namespace that the server enters.
    pub(crate) user_namespace: Option<i32>,
}

/// A root under construction.
struct Building<'a> {
    made: &'a mut Made,
    /// The host's root.
    host: i32,
    /// The tree's root.
    root: i32,
    /// The root that was started before it, in which a runtime runs.
    around: i32,
    /// The folder behind an id-mapped root: missing mount points are created here.
    folder: Option<i32>,
    /// The directory that the tree does not see.
    apart: i32,
    scratch: i32,
    first_id: u32,
    many_ids: bool,
}

/// How an object was created.
#[derive(Clone, Copy)]
enum Maker {
    Root,
    Folder,
}

impl Made {
    pub(crate) fn new(job: &Job<'_>, user_namespace: Option<i32>) -> Self {
        let or_root = |id: u32| if id == KEEP_ID { 0 } else { id };
        Self {
            uid: or_root(job.uid),
            gid: or_root(job.gid),
            home: Text::new(b"HOME=/"),
            user_namespace,
        }
    }
}

/// Builds the root and enters it.
pub(crate) fn make(job: &Job<'_>, made: &mut Made) {
    if let Err(errno) = sys::mount(c"none", c"/", c"", sys::MS_SLAVE | sys::MS_REC, c"") {
        fail(CONTROL, STAGE_PROPAGATION, errno, 0);
    }
    if !job.host_name.is_empty()
        && let Err(errno) = sys::set_host_name(job.host_name.to_bytes())
    {
        lack(CONTROL, job.flags, STAGE_HOST_NAME, errno, 0);
    }
    let host = match begin() {
        Ok(host) => host,
        Err(errno) => fail(CONTROL, STAGE_ROOT, errno, 0),
    };
    let mut building = Building {
        made,
        host,
        root: -1,
        around: -1,
        folder: None,
        apart: -1,
        scratch: -1,
        first_id: job.first_id,
        many_ids: job.flags & FLAG_MANY_IDS != 0,
    };
    match sys::open(c"/apart", sys::O_PATH | sys::O_CLOEXEC, 0) {
        Ok(fd) => building.apart = fd,
        Err(errno) => fail(CONTROL, STAGE_ROOT, errno, 0),
    }
    let mut steps = job.steps;
    for index in 0..steps.count as usize {
        let Some(step) = steps.step() else {
            fail(CONTROL, STAGE_STEP, sys::EINVAL, index);
        };
        match building.take(&step) {
            Ok(()) => {}
            Err(sys::ENOENT) if step.flags & STEP_OPTIONAL != 0 => {}
            Err(errno) if step.flags & STEP_OPTIONAL != 0 && protects(&step) => {
                lack(CONTROL, job.flags, STAGE_STEP, errno, index);
            }
            Err(errno) if step.flags & STEP_OPTIONAL != 0 => note(CONTROL, STAGE_STEP, errno, index),
            Err(errno) if step.kind == STEP_USER => fail(CONTROL, STAGE_LOOKUP, errno, index),
            Err(errno) => fail(CONTROL, STAGE_STEP, errno, index),
        }
    }
    building.close();
    if let Err(errno) = enter() {
        fail(CONTROL, STAGE_PIVOT, errno, 0);
    }
}

/// Returns whether skipping a step would expose something to the tree.
fn protects(step: &Step<'_>) -> bool {
    step.kind == STEP_MASK || step.kind == STEP_BIND && step.flags & STEP_IN_ROOT != 0
}

/// Enters a new root in memory with the host's root below it; returns the host's root.
fn begin() -> sys::Result<i32> {
    // Any directory would do: it becomes visible again once the new root is entered.
    let options = c"mode=755,size=64m";
    sys::mount(c"tmpfs", c"/proc", c"tmpfs", NO_DEVICES, options)?;
    sys::change_directory(c"/proc")?;
    sys::make_directory(c"old", 0o755)?;
    sys::pivot_root(c".", c"old")?;
    sys::change_directory(c"/")?;
    for place in [c"/new", c"/scratch", c"/layers", c"/change", c"/apart"] {
        sys::make_directory(place, 0o755)?;
    }
    sys::open(c"/old", sys::O_PATH | sys::O_CLOEXEC, 0)
}

/// Makes the new root the root directory, and unmounts everything else.
fn enter() -> sys::Result<()> {
    sys::change_directory(c"/new")?;
    // The old root is stacked on the new one until it is unmounted.
    sys::pivot_root(c".", c".")?;
    sys::unmount(c".")?;
    sys::change_directory(c"/").map(drop)
}

impl Building<'_> {
    fn take(&mut self, step: &Step<'_>) -> sys::Result<()> {
        match step.kind {
            STEP_MEMORY_ROOT => {
                sys::mount(c"tmpfs", step.target, c"tmpfs", NO_DEVICES, step.source)?;
                self.begin_root(step.target)
            }
            STEP_LAYERS_ROOT => {
                self.layers(step)?;
                self.begin_root(step.target)
            }
            STEP_FOLDER_ROOT => {
                let folder = self.from_host(step.source)?;
                let at = sys::open(step.target, sys::O_PATH | sys::O_CLOEXEC, 0)?;
                if let Some(namespace) = self.made.user_namespace {
                    match layers::attach_layer(folder, c"", at, Some(namespace), PLAIN) {
                        Ok(()) => {
                            self.begin_root(step.target)?;
                            self.folder = Some(folder);
                            return Ok(());
                        }
                        Err(errno) => note(CONTROL, STAGE_LAYER_OWNERS, errno, 0),
                    }
                }
                layers::attach_layer(folder, c"", at, None, PLAIN)?;
                self.begin_root(step.target)
            }
            STEP_SCRATCH => self.scratch(step),
            STEP_USER => self.user(step.source),
            STEP_DIRECTORY => self.directory(step),
            STEP_FILE => self.file(step, &[step.content]),
            STEP_FILE_FOR_USER => {
                let (mut uid, mut gid) = (Text::new(b""), Text::new(b""));
                if !self.many_ids && (self.made.uid, self.made.gid) != (0, 0) {
                    // Files that the guest creates as another user could not get an owner.
                    note(CONTROL, STAGE_ONE_USER, 0, 0);
                    (self.made.uid, self.made.gid) = (0, 0);
                }
                uid.push_number(self.made.uid);
                gid.push_number(self.made.gid);
                let (uid, gid) = (uid.as_c_str().to_bytes(), gid.as_c_str().to_bytes());
                let mut parts = step.content.splitn(3, |byte| *byte == 0);
                let mut part = || parts.next().unwrap_or_default();
                self.file(step, &[part(), uid, part(), gid, part()])
            }
            STEP_LINK => self.link(step),
            STEP_BIND => self.bind(step),
            STEP_MEMORY => {
                let target = self.place(self.target_root(step), step, true)?;
                let read_only = if step.flags & STEP_READ_ONLY != 0 { sys::MS_RDONLY } else { 0 };
                mount_over(c"tmpfs", target, NO_DEVICES | read_only, step.source)
            }
            STEP_PROC => {
                let target = self.place(self.root, step, true)?;
                mount_over(c"proc", target, NO_DEVICES | sys::MS_NOEXEC, c"")
            }
            STEP_TERMINALS => {
                let target = self.place(self.root, step, true)?;
                // Bounded: all trees share the host's terminals.
                let options = c"newinstance,ptmxmode=0666,mode=0620,max=64";
                mount_over(c"devpts", target, sys::MS_NOSUID | sys::MS_NOEXEC, options)
            }
            STEP_MASK => self.mask(step),
            STEP_SEAL => {
                let target = sys::open_beneath(self.root, step.target, sys::O_PATH, 0, Beneath::InRoot)?;
                let set = Attributes::READ_ONLY;
                let outcome = sys::set_attributes(target, Attributes { set, ..Attributes::default() });
                sys::close(target);
                outcome.map(drop)
            }
            _ => Err(sys::EINVAL),
        }
    }

    /// Closes everything that is not the tree's, the host's root first.
    fn close(&self) {
        let folder = self.folder.unwrap_or(-1);
        for fd in [self.host, self.root, self.around, self.apart, self.scratch, folder] {
            sys::close(fd);
        }
    }

    /// Makes the mount at a place the root of the following steps.
    fn begin_root(&mut self, place: &CStr) -> sys::Result<()> {
        self.around = self.root;
        self.folder = None;
        self.root = sys::open(place, sys::O_PATH | sys::O_DIRECTORY | sys::O_CLOEXEC, 0)?;
        Ok(())
    }

    /// Returns the host's id for an id of the tree.
    fn outside(&self, id: u32) -> u32 {
        if self.many_ids {
            self.first_id.saturating_add(id)
        } else {
            self.first_id
        }
    }

    /// Opens a path of the host without following links.
    fn from_host(&self, path: &CStr) -> sys::Result<i32> {
        sys::open_beneath(self.host, path, sys::O_PATH, 0, Beneath::NoLinks)
    }

    fn scratch(&mut self, step: &Step<'_>) -> sys::Result<()> {
        let place = sys::open(c"/scratch", sys::O_PATH | sys::O_CLOEXEC, 0)?;
        if step.source.is_empty() {
            let options = Text::new(step.content);
            sys::mount(c"tmpfs", c"/scratch", c"tmpfs", NO_DEVICES, options.as_c_str())?;
        } else {
            let folder = self.from_host(step.source)?;
            layers::attach_layer(folder, c"", place, None, PLAIN)?;
            sys::close(folder);
        }
        sys::close(place);
        self.scratch = sys::open(c"/scratch", sys::O_PATH | sys::O_DIRECTORY | sys::O_CLOEXEC, 0)?;
        Ok(())
    }

    fn user(&mut self, text: &CStr) -> sys::Result<()> {
        let user = users::find(self.root, text.to_bytes())?;
        if user.uid >= IDS || user.gid >= IDS {
            return Err(sys::EINVAL);
        }
        self.made.uid = user.uid;
        self.made.gid = user.gid;
        self.made.home = user.home;
        Ok(())
    }

    fn directory(&self, step: &Step<'_>) -> sys::Result<()> {
        let within = if step.flags & STEP_IN_SCRATCH != 0 {
            self.scratch
        } else {
            self.root
        };
        if let Ok(found) =
            sys::open_beneath(within, step.target, sys::O_PATH, 0, Beneath::InRoot)
        {
            sys::close(found);
            return Ok(());
        }
        let (parent, name) = self.parent(within, step.target)?;
        let outcome = self.create(within, parent, step.target.to_bytes(), true);
        let outcome = match outcome {
            Ok(Maker::Root) => self
                .own(parent, name.as_c_str(), step)
                // After the owner, since chown clears mode bits.
                .and_then(|()| sys::change_mode(parent, name.as_c_str(), step.mode).map(drop)),
            Ok(Maker::Folder) => Ok(()),
            Err(errno) => Err(errno),
        };
        sys::close(parent);
        outcome
    }

    /// Sets the owner of a new directory entry.
    fn own(&self, parent: i32, name: &CStr, step: &Step<'_>) -> sys::Result<()> {
        let (uid, gid) = match step.flags & STEP_FOR_USER {
            0 => (self.outside(0), self.outside(0)),
            _ => (self.outside(self.made.uid), self.outside(self.made.gid)),
        };
        sys::change_owner(parent, name, uid, gid).map(drop)
    }

    /// Creates the last directory or file of a path whose parent is open.
    ///
    /// In an id-mapped folder this process has no valid id to own anything: there it creates the
    /// object in the folder itself, with the ids of the folder.
    fn create(
        &self,
        within: i32,
        parent: i32,
        path: &[u8],
        directory: bool,
    ) -> sys::Result<Maker> {
        let split = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let name = Text::new(&path[split + 1..]);
        let make = |parent: i32| {
            if directory {
                return sys::make_directory_at(parent, name.as_c_str(), 0o755).map(drop);
            }
            let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_EXCL;
            sys::open_beneath(parent, name.as_c_str(), flags, 0o644, Beneath::NoLinks)
                .map(sys::close)
        };
        match (make(parent), self.folder) {
            (Err(sys::EOVERFLOW), Some(folder)) if within == self.root => {
                let mut above = Text::new(&path[..split]);
                above.push(b"/");
                let parent =
                    sys::open_beneath(folder, above.as_c_str(), sys::O_PATH, 0, Beneath::InRoot)?;
                let outcome = make(parent);
                sys::close(parent);
                outcome.map(|()| Maker::Folder)
            }
            (outcome, _) => outcome.map(|()| Maker::Root),
        }
    }

    fn file(&self, step: &Step<'_>, parts: &[&[u8]]) -> sys::Result<()> {
        let within = match step.flags & STEP_APART {
            0 => self.target_root(step),
            _ => self.apart,
        };
        let (parent, name) = self.parent(within, step.target)?;
        let flags = sys::O_WRONLY | sys::O_CREAT | sys::O_EXCL;
        let file = sys::open_beneath(parent, name.as_c_str(), flags, step.mode, Beneath::NoLinks)?;
        let mut outcome = Ok(());
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() && outcome.is_ok() {
                match sys::write(file, rest) {
                    Ok(length) => rest = rest.get(length..).unwrap_or_default(),
                    Err(errno) => outcome = Err(errno),
                }
            }
        }
        sys::close(file);
        let outcome = outcome.and_then(|()| self.own(parent, name.as_c_str(), step));
        sys::close(parent);
        outcome
    }

    fn link(&self, step: &Step<'_>) -> sys::Result<()> {
        let (parent, name) = self.parent(self.root, step.target)?;
        let outcome = sys::make_link_at(parent, name.as_c_str(), step.source);
        sys::close(parent);
        outcome.map(drop)
    }

    fn bind(&self, step: &Step<'_>) -> sys::Result<()> {
        let source = match step.flags & (STEP_IN_SCRATCH | STEP_IN_ROOT | STEP_APART) {
            0 => self.from_host(step.source)?,
            STEP_IN_SCRATCH => {
                sys::open_beneath(self.scratch, step.source, sys::O_PATH, 0, Beneath::NoLinks)?
            }
            STEP_APART => {
                sys::open_beneath(self.apart, step.source, sys::O_PATH, 0, Beneath::NoLinks)?
            }
            _ => sys::open_beneath(self.root, step.source, sys::O_PATH, 0, Beneath::InRoot)?,
        };
        let directory = sys::metadata(source)?.is_directory();
        if step.flags & STEP_HAND_OVER != 0 {
            self.hand_over(source, step)?;
        }
        let target = self.place(self.target_root(step), step, directory)?;
        let mut set = match step.flags & STEP_DEVICE {
            0 => PLAIN,
            _ => Attributes::NO_SUID | Attributes::NO_EXECUTION,
        };
        if step.flags & STEP_READ_ONLY != 0 {
            set |= Attributes::READ_ONLY;
        }
        let outcome = layers::attach_layer(source, c"", target, None, set);
        sys::close(source);
        sys::close(target);
        outcome
    }

    /// Gives an empty folder to the owner of the folder that it is mounted over, or to the user.
    fn hand_over(&self, source: i32, step: &Step<'_>) -> sys::Result<()> {
        let own = (self.outside(self.made.uid), self.outside(self.made.gid));
        let inside = Text::new(step.content);
        let path = if step.content.is_empty() { step.target } else { inside.as_c_str() };
        let found = sys::open_beneath(self.root, path, sys::O_PATH, 0, Beneath::InRoot);
        let owner = found.and_then(sys::metadata).ok();
        if let Ok(fd) = found {
            sys::close(fd);
        }
        let (uid, gid) = owner.map_or(own, |owner| (owner.uid, owner.gid));
        // An owner outside the tree's ids is ignored.
        let last = self.outside(IDS - 1);
        let ours = |id: u32| (self.first_id..=last).contains(&id);
        let (uid, gid) = if ours(uid) && ours(gid) { (uid, gid) } else { own };
        sys::change_owner(source, c"", uid, gid).map(drop)
    }

    /// Returns the root that contains the target of a step.
    fn target_root(&self, step: &Step<'_>) -> i32 {
        if step.flags & STEP_AROUND != 0 { self.around } else { self.root }
    }

    fn mask(&self, step: &Step<'_>) -> sys::Result<()> {
        let within = self.target_root(step);
        let target = sys::open_beneath(within, step.target, sys::O_PATH, 0, Beneath::InRoot)?;
        if sys::metadata(target)?.is_directory() {
            return mount_over(c"tmpfs", target, NO_DEVICES | sys::MS_RDONLY, c"mode=555,size=4k");
        }
        let null = sys::open_beneath(within, c"/dev/null", sys::O_PATH, 0, Beneath::InRoot)?;
        let set = Attributes::NO_SUID | Attributes::NO_EXECUTION | Attributes::READ_ONLY;
        let outcome = layers::attach_layer(null, c"", target, None, set);
        sys::close(null);
        sys::close(target);
        outcome
    }

    /// Opens a mount point; creates it and its parents if they are missing.
    fn place(&self, within: i32, step: &Step<'_>, directory: bool) -> sys::Result<i32> {
        let open = || sys::open_beneath(within, step.target, sys::O_PATH, 0, Beneath::InRoot);
        match open() {
            Err(sys::ENOENT) => {}
            outcome => return outcome,
        }
        let (parent, name) = self.parent(within, step.target)?;
        let outcome = self.create(within, parent, step.target.to_bytes(), directory);
        let outcome = outcome.and_then(|maker| self.give_to_root(maker, parent, name.as_c_str()));
        sys::close(parent);
        outcome?;
        open()
    }

    fn give_to_root(&self, maker: Maker, parent: i32, name: &CStr) -> sys::Result<()> {
        let root = self.outside(0);
        match maker {
            Maker::Root => sys::change_owner(parent, name, root, root).map(drop),
            Maker::Folder => Ok(()),
        }
    }

    /// Opens the parent directory of a path, creating it if missing, and returns the last name.
    fn parent(&self, within: i32, path: &CStr) -> sys::Result<(i32, Text)> {
        let bytes = path.to_bytes();
        let split = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let name = Text::new(&bytes[split + 1..]);
        let mut parent = sys::open_beneath(within, c"/", sys::O_PATH, 0, Beneath::InRoot)?;
        let mut start = 1;
        for end in 1..=split {
            if end < split && bytes[end] != b'/' || end == start {
                continue;
            }
            let so_far = Text::new(&bytes[..end]);
            let open =
                || sys::open_beneath(within, so_far.as_c_str(), sys::O_PATH, 0, Beneath::InRoot);
            let next = match open() {
                Err(sys::ENOENT) => {
                    let part = Text::new(&bytes[start..end]);
                    match self.create(within, parent, &bytes[..end], true) {
                        Ok(maker) => self.give_to_root(maker, parent, part.as_c_str()),
                        Err(sys::EEXIST) => Ok(()),
                        Err(errno) => Err(errno),
                    }
                    .and_then(|()| open())
                }
                outcome => outcome,
            };
            sys::close(parent);
            parent = next?;
            start = end + 1;
        }
        Ok((parent, name))
    }
}

/// Mounts a kernel file system over an open path.
fn mount_over(kind: &CStr, target: i32, flags: usize, options: &CStr) -> sys::Result<()> {
    let mut path = Text::new(b"/old/proc/self/fd/");
    path.push_number(target as u32);
    let outcome = sys::mount(kind, path.as_c_str(), kind, flags, options);
    sys::close(target);
    outcome.map(drop)
}
