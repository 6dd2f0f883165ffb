//! Hosts that cannot give a root of its own: nothing runs, and it is said why.

use crate::denied::Denied;
use crate::owner::{Owner, Rights};

#[test]
fn without_a_root_of_its_own_nothing_runs() {
    for (rights, denied, why) in [
        (Rights::NoNamespaces, Denied::Nothing, "namespaces"),
        (Rights::Own, Denied::Unshare, "namespaces"),
        (Rights::Nobody, Denied::Unshare, "namespaces"),
        (Rights::Own, Denied::Mount, "Operation not permitted"),
    ] {
        let owner = Owner::denied(rights, "image", denied);
        let refused = owner.promise("refused");
        assert!(
            refused.starts_with("this host does not support a separate root: "),
            "{refused}"
        );
        assert!(refused.contains(why), "{refused}");
        let owner = Owner::denied(rights, "gvisor", denied);
        let refused = owner.promise("refused");
        assert!(
            refused.starts_with("`/usr/bin/runsc` cannot run servers: ") && refused.contains(why),
            "{refused}"
        );
    }
}

#[test]
fn a_root_goes_without_what_it_does_not_need() {
    // The loopback stays down, and the report says so; the root is there.
    let owner = Owner::denied(Rights::Own, "image", Denied::Loopback);
    assert!(
        owner
            .promise("root")
            .starts_with("Enforced own root from 3 image layers")
    );
    let owner = Owner::denied(Rights::Own, "image", Denied::Landlock);
    let files = owner.promise("filesystem");
    assert!(
        files.starts_with("Enforced") && !files.contains("Landlock"),
        "{files}"
    );
}
