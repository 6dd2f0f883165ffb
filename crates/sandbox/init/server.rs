//! The last steps in the server's own process: it joins its cgroups, drops privileges, installs
//! filters, then executes the program. Never returns: either the program runs, or the failed step
//! is reported.

use core::ffi::CStr;

use crate::ids;
use crate::job::{Cursor, Job};
use crate::protocol::{
    FLAG_CGROUP_NAMESPACE, FLAG_CGROUP_V2, FLAG_HOME, FLAG_OWN_ROOT, FLAG_PROBE, FLAG_RUNTIME, FLAG_WHOLE,
    KEEP_ID, KIND_LANDLOCK, KIND_SERVER, Record, STAGE_CAPABILITIES, STAGE_CGROUP,
    STAGE_CGROUP_NAMESPACE, STAGE_CWD, STAGE_EXEC, STAGE_INTERPRETER, STAGE_LANDLOCK, STAGE_PRIVILEGES,
    STAGE_RECEIVE, STAGE_RLIMIT, STAGE_SECCOMP, STAGE_USER,
};
use crate::report::{CONTROL, fail, lack, send};
use crate::root::Made;
use crate::sys;

/// The accesses that a Landlock rule on a regular file may grant: execute, write, read, truncate,
/// device ioctl.
const LANDLOCK_FILE_ACCESS: u64 = 0b1100_0000_0000_0111;

const PR_SET_NO_NEW_PRIVS: usize = 38;

/// Becomes the server; it is already in the first `joined` of its cgroups.
pub(crate) fn run(
    job: &Job<'_>,
    made: &Made,
    data: [i32; 3],
    cgroups: &[i32],
    joined: usize,
) -> ! {
    let control = sys::duplicate_above(CONTROL, 16).unwrap_or(CONTROL);
    send(
        control,
        Record {
            kind: KIND_SERVER,
            stage: 0,
            value: 0,
            data: 0,
        },
    );
    sys::new_session();
    for (index, cgroup) in cgroups.iter().enumerate().skip(joined) {
        let directory = index == 0 && job.flags & FLAG_CGROUP_V2 != 0;
        if let Err(errno) = join(*cgroup, directory) {
            lack(control, job.flags, STAGE_CGROUP, errno, index);
        }
    }
    if job.flags & FLAG_CGROUP_NAMESPACE != 0
        && let Err(errno) = sys::unshare(sys::CLONE_NEWCGROUP)
    {
        lack(control, job.flags, STAGE_CGROUP_NAMESPACE, errno, 0);
    }
    for (target, fd) in data.into_iter().enumerate() {
        if let Err(errno) = sys::duplicate_to(fd, target as i32) {
            fail(control, STAGE_RECEIVE, errno, target);
        }
    }
    sys::close_from(3, true);
    limits(job, control);
    let ruleset = ruleset(job, control);
    if job.flags & FLAG_OWN_ROOT != 0
        && let Err(errno) = ids::become_inside(job, made)
    {
        fail(control, STAGE_USER, errno, 0);
    }
    if job.flags & FLAG_OWN_ROOT == 0 {
        // Without the right to drop capabilities there are none to gain either: "no new privileges"
        // is set.
        let _ = ids::drop_bounding_set(job.kept_capabilities);
    }
    if job.flags & FLAG_OWN_ROOT == 0
        && job.uid != KEEP_ID
        && let Err(errno) = sys::become_user(job.uid, job.gid)
    {
        fail(control, STAGE_USER, errno, 0);
    }
    if let Err(errno) = sys::change_directory(job.cwd) {
        fail(control, STAGE_CWD, errno, 0);
    }
    if job.flags & FLAG_RUNTIME == 0
        && let Err(errno) = sys::set_capabilities(job.kept_capabilities, job.kept_capabilities)
    {
        fail(control, STAGE_CAPABILITIES, errno, 0);
    }
    if let Err(errno) = sys::prctl(PR_SET_NO_NEW_PRIVS, 1, 0) {
        fail(control, STAGE_PRIVILEGES, errno, 0);
    }
    if let Some(ruleset) = ruleset
        && let Err(errno) = sys::landlock_restrict(ruleset)
    {
        lack(control, job.flags, STAGE_LANDLOCK, errno, 0);
    }
    sys::default_signals();
    sys::block_signals(0);
    let mut filters = job.filters;
    if job.flags & (FLAG_WHOLE | FLAG_RUNTIME) == FLAG_WHOLE && filters.count == 0 {
        fail(control, STAGE_SECCOMP, sys::EINVAL, 0);
    }
    for index in 0..filters.count as usize {
        let outcome = filters
            .blob()
            .ok_or(sys::EINVAL)
            .and_then(sys::install_filter);
        if let Err(errno) = outcome {
            lack(control, job.flags, STAGE_SECCOMP, errno, index);
        }
    }
    if job.flags & FLAG_PROBE != 0 {
        let abi = sys::landlock_abi().unwrap_or(0) as i32;
        send(
            control,
            Record {
                kind: KIND_LANDLOCK,
                stage: 0,
                value: abi,
                data: 0,
            },
        );
        sys::exit(0);
    }
    execute(job, made, control)
}

/// Moves this process, which has one thread, into a cgroup, given by its directory or its `tasks`
/// file.
fn join(cgroup: i32, directory: bool) -> sys::Result<usize> {
    let procs = if directory {
        sys::open_at(cgroup, c"cgroup.procs", sys::O_WRONLY | sys::O_CLOEXEC, 0)?
    } else {
        cgroup
    };
    sys::write(procs, b"0")
}

fn limits(job: &Job<'_>, control: i32) {
    let mut limits = job.limits;
    for _ in 0..limits.count {
        if let Some((resource, limit)) = limits.limit()
            && let Err(errno) = sys::set_limit(resource, limit)
        {
            lack(control, job.flags, STAGE_RLIMIT, errno, resource as usize);
        }
    }
}

/// Builds the Landlock ruleset while the paths can still be opened.
fn ruleset(job: &Job<'_>, control: i32) -> Option<i32> {
    let handled = job.landlock_handled;
    let length = match handled {
        [0, 0, 0] if job.flags & (FLAG_WHOLE | FLAG_RUNTIME) == FLAG_WHOLE => {
            fail(control, STAGE_LANDLOCK, sys::EINVAL, 0)
        }
        [0, 0, 0] => return None,
        [_, 0, 0] => 8,
        [_, _, 0] => 16,
        _ => 24,
    };
    let ruleset = match sys::landlock_create(&handled, length) {
        Ok(ruleset) => ruleset,
        Err(errno) => {
            lack(control, job.flags, STAGE_LANDLOCK, errno, 0);
            return None;
        }
    };
    let mut rules = job.landlock_rules;
    for index in 0..rules.count as usize {
        let Some((access, path)) = rules.rule() else {
            break;
        };
        // A system directory that does not exist needs no rule.
        let Ok(fd) = sys::open(path, sys::O_PATH | sys::O_CLOEXEC, 0) else {
            continue;
        };
        let access = if sys::is_directory(fd) {
            access
        } else {
            access & LANDLOCK_FILE_ACCESS
        };
        if let Err(errno) = sys::landlock_allow(ruleset, access & handled[0], fd) {
            lack(control, job.flags, STAGE_LANDLOCK, errno, index + 1);
        }
        sys::close(fd);
    }
    Some(ruleset)
}

/// Executes the first candidate that exists, like a search along `PATH`.
fn execute(job: &Job<'_>, made: &Made, control: i32) -> ! {
    let home = Some(made.home.as_c_str()).filter(|_| job.flags & FLAG_HOME != 0);
    let (Ok(arguments), Ok(environment)) = (
        pointers(job.arguments, None),
        pointers(job.environment, home),
    ) else {
        fail(control, STAGE_EXEC, sys::EINVAL, 0);
    };
    let mut denied = None;
    let mut candidates = job.candidates;
    for index in 0..candidates.count as usize {
        let Some(program) = candidates.text() else {
            break;
        };
        // SAFETY: both arrays end with null and point to strings inside the job's mapping.
        let errno = unsafe { sys::execute(program, arguments, environment) };
        match errno {
            sys::ENOENT | sys::ENOTDIR if sys::exists(program) => {
                fail(control, STAGE_INTERPRETER, errno, index)
            }
            sys::ENOENT | sys::ENOTDIR => {}
            // In a search, a path that is not even visible counts as missing.
            sys::EACCES if job.candidates.count == 1 || sys::exists(program) => {
                denied = Some(index);
            }
            sys::EACCES => {}
            _ => fail(control, STAGE_EXEC, errno, index),
        }
    }
    match denied {
        Some(index) => fail(control, STAGE_EXEC, sys::EACCES, index),
        None => fail(control, STAGE_EXEC, sys::ENOENT, 0),
    }
}

/// Builds the null-terminated pointer array for exec.
fn pointers(mut texts: Cursor<'_>, last: Option<&CStr>) -> sys::Result<*const *const u8> {
    let count = texts.count as usize;
    let array = sys::map_memory((count + 2) * size_of::<*const u8>())?.cast::<*const u8>();
    for index in 0..count {
        let text: &CStr = texts.text().ok_or(sys::EINVAL)?;
        // SAFETY: the mapping holds `count + 2` pointers and `index` is below `count`.
        unsafe { array.add(index).write(text.as_ptr().cast()) };
    }
    if let Some(last) = last {
        // SAFETY: the mapping holds `count + 2` pointers; the last of them stays null.
        unsafe { array.add(count).write(last.as_ptr().cast()) };
    }
    Ok(array)
}
