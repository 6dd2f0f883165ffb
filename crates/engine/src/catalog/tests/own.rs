//! Lists that one client alone sees.

use super::*;

/// Returns an entry whose client of this session sees other tools.
fn with_own(session: u128, tools: &[&str]) -> CatalogEntry {
    let own = InstanceOwner::of(&everyone(), ClientIdentity::Session(session)).unwrap();
    let common = entry("a", &["x"]);
    let lists = ServerCatalog::clone(&entry("a", tools).catalog);
    common.with_own(vec![(own, Arc::new(lists))])
}

// fault T4
#[test]
fn lists_of_one_client_are_shown_and_told_to_it_alone() {
    let catalog = qualified(vec![entry("a", &["x"])]);
    let caller = everyone();
    let mut stranger = everyone();
    stranger.key = KeyId::from_random(2);
    let own = ClientIdentity::Session(1);
    let others = [
        ClientIdentity::Anyone,
        ClientIdentity::Key,
        ClientIdentity::Session(2),
    ];
    let marks = |who| catalog.revisions(&caller, &Scope::All, who);
    let tools = |who| listed(&catalog.view_for(&caller, &Scope::All, who));
    let first = marks(own);
    catalog.update(vec![with_own(1, &["x", "grown"])]);
    let second = marks(own);
    assert_ne!(second.tools, first.tools);
    assert_eq!(
        (second.prompts, second.resources),
        (first.prompts, first.resources)
    );
    assert_eq!(tools(own), ["a__x", "a__grown"]);
    let view = catalog.view_for(&caller, &Scope::All, own);
    assert!(matches!(
        view.resolve_tool("a__grown"),
        Resolution::Bound { .. }
    ));
    for other in others {
        assert_eq!(marks(other), first, "{other:?}");
        assert_eq!(tools(other), ["a__x"], "{other:?}");
    }
    assert_eq!(catalog.revisions(&stranger, &Scope::All, own), first);
    assert_eq!(
        listed(&catalog.view_for(&stranger, &Scope::All, own)),
        ["a__x"]
    );
    // The same again is no change.
    let revision = *catalog.changes().borrow();
    catalog.update(vec![with_own(1, &["x", "grown"])]);
    assert_eq!(marks(own), second);
    assert!(*catalog.changes().borrow() <= revision + 1);
    // It sees the common lists again, and hears that once.
    catalog.update(vec![entry("a", &["x"])]);
    let third = marks(own);
    assert_ne!(third.tools, second.tools);
    assert_eq!(tools(own), ["a__x"]);
    catalog.update(vec![entry("a", &["x"])]);
    assert_eq!(marks(own), third);
    for other in others {
        assert_eq!(marks(other), first, "{other:?}");
    }
}
