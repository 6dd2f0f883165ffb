//! Which instance a call gets.

use super::*;

const ONE: ClientCapabilities = ClientCapabilities {
    sample: true,
    ..ClientCapabilities::NOTHING
};
const OTHER: ClientCapabilities = ClientCapabilities {
    list_roots: true,
    ..ClientCapabilities::NOTHING
};
const IDLE: Duration = Duration::from_secs(300);
/// How many calls an instance runs at once.
const LANES: u32 = 2;

/// Returns a client of an agent, in a session.
fn owner(agent: &str, session: u128) -> InstanceOwner {
    InstanceOwner {
        agent: agent.parse().unwrap(),
        key: KeyId::from_random(1),
        session: Some(session),
    }
}

fn request(
    capabilities: ClientCapabilities,
    owner: &InstanceOwner,
    most: usize,
) -> PoolRequest<'_, u64> {
    PoolRequest {
        capabilities,
        owner,
        lanes: LANES,
        most,
        shares: false,
        offers: &|_| true,
        is_common: true,
    }
}

/// Searches like a call, and returns the result: an instance, a new one, or none.
fn find(
    pool: &mut Pool<u64>,
    capabilities: ClientCapabilities,
    agent: &str,
) -> (&'static str, u64) {
    find_for(pool, &request(capabilities, &owner(agent, 1), 4))
}

fn find_for(pool: &mut Pool<u64>, request: &PoolRequest<'_, u64>) -> (&'static str, u64) {
    let now = Instant::now();
    match pool.find(request, now) {
        Allocation::Free(number, _) => ("free", number),
        Allocation::Room(number, ended) => {
            pool.insert(number, (request.capabilities, request.owner), number, now);
            (if ended.is_some() { "instead" } else { "new" }, number)
        }
        Allocation::Wait(_) => ("wait", 0),
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_client_share_its_life_and_another_begins_before_one_waits() {
    let mut pool = Pool::default();
    assert_eq!(find(&mut pool, ONE, "a"), ("new", 1));
    assert_eq!(find(&mut pool, ONE, "a"), ("free", 1));
    assert_eq!(find(&mut pool, ONE, "a"), ("new", 2), "the first is full");
    assert_eq!(find(&mut pool, ONE, "a"), ("free", 2));
    pool.leave(1, Instant::now());
    assert_eq!(find(&mut pool, ONE, "a"), ("free", 1));
    for number in [3, 3, 4, 4] {
        assert_eq!(find(&mut pool, ONE, "a").1, number);
    }
    assert_eq!(find(&mut pool, ONE, "a"), ("wait", 0), "all are full");
}

// row 1.7, fault A5
#[tokio::test(start_paused = true)]
async fn one_agent_uses_all_that_is_free_and_keeps_nobody_from_its_share() {
    let mut pool = Pool::default();
    let own: Vec<InstanceOwner> = (1..=5).map(|session| owner("a", session)).collect();
    for (number, owner) in (1..=4).zip(&own) {
        assert_eq!(
            find_for(&mut pool, &request(ONE, owner, 4)),
            ("new", number)
        );
    }
    let full = pool.find(&request(ONE, &own[4], 4), Instant::now());
    assert!(matches!(full, Allocation::Wait(Full::Processes(4))));
    // A new agent gets its half immediately, and no more.
    let theirs: Vec<InstanceOwner> = (1..=3).map(|session| owner("b", session)).collect();
    assert_eq!(
        find_for(&mut pool, &request(ONE, &theirs[0], 4)),
        ("new", 5)
    );
    assert_eq!(
        find_for(&mut pool, &request(ONE, &theirs[1], 4)),
        ("new", 6)
    );
    let full = pool.find(&request(ONE, &theirs[2], 4), Instant::now());
    assert!(matches!(full, Allocation::Wait(Full::OfAgent(2))));
    // The agent with more waits until the usual number is reached.
    for number in [1, 2] {
        pool.leave(number, Instant::now());
        let full = pool.find(&request(ONE, &own[0], 4), Instant::now());
        assert!(matches!(full, Allocation::Wait(Full::OfAgent(_))));
    }
    pool.leave(3, Instant::now());
    assert_eq!(
        find_for(&mut pool, &request(ONE, &own[4], 4)),
        ("instead", 7)
    );
    assert_eq!(
        find_for(&mut pool, &request(ONE, &theirs[2], 4)),
        ("wait", 0)
    );
    // A running instance still accepts calls.
    assert_eq!(find_for(&mut pool, &request(ONE, &own[3], 4)), ("free", 4));
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_than_twice_as_many() {
    let mut pool = Pool::default();
    for session in 1..=2 {
        find_for(&mut pool, &request(ONE, &owner("a", session), 2));
    }
    for agent in ["b", "c"] {
        assert_eq!(
            find_for(&mut pool, &request(ONE, &owner(agent, 1), 2)).0,
            "new"
        );
    }
    assert_eq!(
        find_for(&mut pool, &request(ONE, &owner("d", 1), 2)),
        ("wait", 0)
    );
    pool.leave(2, Instant::now());
    assert_eq!(
        find_for(&mut pool, &request(ONE, &owner("a", 2), 2)),
        ("wait", 0)
    );
    assert_eq!(
        find_for(&mut pool, &request(ONE, &owner("d", 1), 2)),
        ("instead", 5)
    );
}

#[tokio::test(start_paused = true)]
async fn the_idle_life_of_whoever_has_the_most_gives_way() {
    let mut pool = Pool::default();
    assert_eq!(find(&mut pool, ONE, "b"), ("new", 1));
    pool.leave(1, Instant::now());
    let third = ClientCapabilities {
        list_roots: true,
        ..ONE
    };
    for (number, capabilities) in [(2, OTHER), (3, third)] {
        tokio::time::advance(IDLE / 10).await;
        assert_eq!(find(&mut pool, capabilities, "a"), ("new", number));
        pool.leave(number, Instant::now());
    }
    // The oldest belongs to another agent, and stays.
    let other = owner("c", 1);
    let found = find_for(&mut pool, &request(ClientCapabilities::NOTHING, &other, 3));
    assert_eq!(found, ("instead", 4));
    assert_eq!(find(&mut pool, ONE, "b"), ("free", 1));
    assert_eq!(find(&mut pool, third, "a"), ("free", 3));
}

// fault T4
#[tokio::test(start_paused = true)]
async fn a_life_serves_the_client_that_it_began_for_and_no_other() {
    let mut pool = Pool::default();
    let (own, other) = (owner("a", 1), owner("a", 2));
    assert_eq!(find_for(&mut pool, &request(ONE, &own, 4)), ("new", 1));
    pool.leave(1, Instant::now());
    // The same key in another session is another client.
    assert_eq!(find_for(&mut pool, &request(ONE, &other, 4)), ("new", 2));
    pool.leave(2, Instant::now());
    assert_eq!(find_for(&mut pool, &request(ONE, &own, 4)), ("free", 1));
    assert_eq!(find_for(&mut pool, &request(OTHER, &own, 4)), ("new", 3));
}

#[tokio::test(start_paused = true)]
async fn a_life_that_nobody_uses_ends() {
    let mut pool = Pool::default();
    find(&mut pool, ONE, "a");
    tokio::time::advance(2 * IDLE).await;
    let next = pool.look(1, Instant::now(), IDLE);
    assert_eq!(next, Some(Instant::now() + IDLE), "it is in use");
    pool.leave(1, Instant::now());
    tokio::time::advance(IDLE).await;
    assert_eq!(pool.look(1, Instant::now(), IDLE), None);
    assert_eq!(find(&mut pool, ONE, "a"), ("new", 2));
}

#[tokio::test]
async fn where_requests_say_their_call_clients_share_lives_when_there_is_no_room() {
    let mut pool = Pool::default();
    let (first, second) = (owner("a", 1), owner("a", 2));
    let sharing = |owner| PoolRequest {
        shares: true,
        ..request(ONE, owner, 2)
    };
    assert_eq!(find_for(&mut pool, &sharing(&first)), ("new", 1));
    for _ in 0..=LANES {
        assert_eq!(find_for(&mut pool, &sharing(&first)), ("free", 1));
    }
    let (other, third) = (owner("b", 1), owner("c", 1));
    assert_eq!(find_for(&mut pool, &sharing(&other)), ("new", 2));
    assert_eq!(find_for(&mut pool, &sharing(&second)), ("free", 1));
    // Never with another agent.
    assert_eq!(find_for(&mut pool, &sharing(&third)), ("new", 3));
}

#[tokio::test]
async fn a_call_of_what_one_life_alone_offers_waits_for_that() {
    let mut pool = Pool::default();
    let own = owner("a", 1);
    for number in [1, 1, 2] {
        assert_eq!(find_for(&mut pool, &request(ONE, &own, 8)).1, number);
    }
    let grown = PoolRequest {
        offers: &|instance| *instance == 1,
        is_common: false,
        ..request(ONE, &own, 8)
    };
    assert_eq!(find_for(&mut pool, &grown), ("wait", 0));
    pool.leave(1, Instant::now());
    assert_eq!(find_for(&mut pool, &grown), ("free", 1));
}
