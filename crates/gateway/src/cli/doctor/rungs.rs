//! Which isolation levels this host supports, and how to enable the others.
//!
//! Evaluates the results of the probe; tries nothing itself. Entry point: [`advise`].

/// Ubuntu's setting that restricts user namespaces of unprivileged users.
const RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Returns what to do about a missing capability, if anything can be done.
pub(super) fn advise(name: &str, detail: &str) -> Option<String> {
    let restricted = std::fs::read_to_string(RESTRICTED).is_ok_and(|text| text.trim() == "1");
    advice(name, detail, restricted)
}

fn advice(name: &str, detail: &str, is_restricted: bool) -> Option<String> {
    let about_users = ["user", "namespaces", "process", "root", "gvisor"];
    let is_about_users = about_users.iter().any(|word| name.contains(word));
    if is_restricted && is_about_users && !rustix::process::geteuid().is_root() {
        return Some(
            "this system keeps user namespaces from ordinary programs: allow them to Gantry with the \
             AppArmor profile of `docs/hosting.md`, or run the gateway as root"
                .to_owned(),
        );
    }
    match name {
        "rung gvisor" if detail.contains("not on") => Some(
            "install `runsc` (the package `runsc`, or a release of gVisor) on the gateway's PATH; \
             images run in own namespaces until then"
                .to_owned(),
        ),
        "rung gvisor" => Some("install a newer `runsc`".to_owned()),
        "rung firecracker" | "rung e2b" => Some("`auto` tries the next rung".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_rung_says_how_to_get_it() {
        let told = |name, detail| advice(name, detail, false).unwrap_or_default();
        let missing = "`runsc` is not on the gateway's PATH";
        assert!(told("rung gvisor", missing).contains("install `runsc`"));
        assert!(told("rung gvisor", "runsc 2022 is too old").contains("newer"));
        assert!(told("rung firecracker", "no driver").contains("next rung"));
        assert_eq!(advice("landlock", "not there", false), None);
    }
}
