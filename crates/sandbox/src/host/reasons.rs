//! Explains why a host denies namespaces: looks up and names the setting that forbids them.

use std::fs;
use std::io;

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EUSERS: i32 = 87;

/// Explains why namespaces, or the map of a user namespace, were denied.
pub(crate) fn of_namespaces(errno: i32) -> String {
    let error = io::Error::from_raw_os_error(errno);
    match setting(errno, |path| {
        fs::read_to_string(format!("/proc/sys/{path}")).ok()
    }) {
        Some(why) => format!("{error}: {why}"),
        None => error.to_string(),
    }
}

/// Finds the setting that forbids them.
fn setting(errno: i32, read: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let is = |path: &str, value: &str| read(path).is_some_and(|text| text.trim() == value);
    match errno {
        EPERM | EACCES if is("kernel/apparmor_restrict_unprivileged_userns", "1") => Some(
            "AppArmor keeps user namespaces from ordinary users here \
             (kernel.apparmor_restrict_unprivileged_userns=1, as on Ubuntu); load an AppArmor \
             profile with `userns,` for the gateway's program",
        ),
        EPERM | EACCES if is("kernel/unprivileged_userns_clone", "0") => Some(
            "ordinary users may make no user namespaces here \
             (kernel.unprivileged_userns_clone=0)",
        ),
        ENOSPC | EUSERS if is("user/max_user_namespaces", "0") => {
            Some("user namespaces are switched off here (user.max_user_namespaces=0)")
        }
        ENOSPC | EUSERS => Some("no more namespaces may be made (sysctl user.max_*_namespaces)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_named() {
        let host = |path: &'static str, value: &'static str| {
            move |asked: &str| (asked == path).then(|| format!("{value}\n"))
        };
        let ubuntu = host("kernel/apparmor_restrict_unprivileged_userns", "1");
        assert!(setting(EPERM, ubuntu).unwrap().contains("AppArmor"));
        assert!(setting(EACCES, ubuntu).unwrap().contains("userns,"));
        let old_debian = host("kernel/unprivileged_userns_clone", "0");
        assert!(setting(EPERM, old_debian).unwrap().contains("clone=0"));
        let off = host("user/max_user_namespaces", "0");
        assert!(setting(ENOSPC, off).unwrap().contains("switched off"));
        assert_eq!(setting(EPERM, |_: &str| None), None);
    }
}
