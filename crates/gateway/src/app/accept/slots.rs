//! Connection slots, counted by address, and which connection is closed when they run out.
//!
//! An address is an IPv4 address or an IPv6 /64. No address exceeds its limit; the last eighth of
//! all slots is reserved for addresses with few connections; when no slot is free, an idle
//! connection of the address with the most is closed for an address with fewer. Not a `Quota`: a
//! connection has no project before its first key, and idle ones give way. Never waits. Entry
//! point: [`Slots::take`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::Bounds;
use crate::app::connection::Watch;

/// Below this number of connections an address may use the reserved slots.
const FEW: usize = 64;
/// The reserved share of all slots: one in this many.
const RESERVED: usize = 8;

/// The current connections.
#[derive(Debug, Clone)]
pub(in crate::app) struct Slots {
    bounds: Bounds,
    taken: Arc<Mutex<Occupied>>,
}

#[derive(Debug, Default)]
struct Occupied {
    all: usize,
    next: u64,
    /// The connections of each address, oldest first.
    by_address: HashMap<IpAddr, BTreeMap<u64, Occupant>>,
}

#[derive(Debug)]
struct Occupant {
    watch: Arc<Watch>,
    close: CancellationToken,
}

/// A connection's slot, released when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    /// What the connection is doing.
    pub(super) watch: Arc<Watch>,
    /// Closes the connection in favour of another.
    pub(super) close: CancellationToken,
    address: IpAddr,
    number: u64,
    taken: Arc<Mutex<Occupied>>,
}

impl Slots {
    pub(in crate::app) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            taken: Arc::default(),
        }
    }

    /// Takes a slot for a connection from an address, closing another connection if necessary.
    pub(super) fn take(&self, address: IpAddr) -> Option<Slot> {
        let address = counted(address);
        let mut taken = self.lock();
        let own = taken.by_address.get(&address).map_or(0, BTreeMap::len);
        if own >= self.bounds.per_address {
            return None;
        }
        if !self.has_room(taken.all, own) && !taken.make_room(own) {
            return None;
        }
        let (watch, close) = (Arc::<Watch>::default(), CancellationToken::new());
        let number = taken.next;
        taken.next += 1;
        taken.all += 1;
        let occupant = Occupant {
            watch: Arc::clone(&watch),
            close: close.clone(),
        };
        let of_address = taken.by_address.entry(address).or_default();
        of_address.insert(number, occupant);
        Some(Slot {
            watch,
            close,
            address,
            number,
            taken: Arc::clone(&self.taken),
        })
    }

    /// Returns whether an address with this many connections may take a free slot.
    fn has_room(&self, all: usize, own: usize) -> bool {
        let bounds = self.bounds;
        let free = bounds.connections.saturating_sub(all);
        // If one address may have all slots, none are reserved.
        let is_reserved = own >= FEW && bounds.per_address < bounds.connections;
        let kept = match is_reserved {
            true => bounds.connections / RESERVED,
            false => 0,
        };
        free > kept
    }

    fn lock(&self) -> MutexGuard<'_, Occupied> {
        self.taken.lock()
    }
}

/// Returns the address that a client is counted by.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & (u128::MAX << 64)).into()),
    }
}

impl Occupied {
    /// Closes a connection of the address with the most connections, if it has more than the new
    /// one would: preferably one without any request so far, then the oldest idle one, else the
    /// oldest with a slow head.
    fn make_room(&mut self, own: usize) -> bool {
        let larger = self
            .by_address
            .iter()
            .filter(|(_, held)| held.len() > own + 1);
        let mut larger: Vec<_> = larger.collect();
        larger.sort_by_key(|(_, held)| Reverse(held.len()));
        let first = |held: &BTreeMap<u64, Occupant>, fits: fn(&Watch) -> bool| {
            let mut held = held.iter();
            let found = held.find(|(_, occupant)| fits(&occupant.watch));
            found.map(|(number, occupant)| (*number, occupant.close.clone()))
        };
        let resting = larger.iter().find_map(|(address, held)| {
            let goes = first(held, Watch::is_unused).or_else(|| first(held, Watch::rests));
            goes.map(|goes| (**address, goes))
        });
        let goes = resting.or_else(|| {
            let mut larger = larger.iter();
            larger.find_map(|(address, held)| Some((**address, first(held, Watch::dawdles)?)))
        });
        let Some((address, (number, close))) = goes else {
            return false;
        };
        close.cancel();
        self.leave(address, number);
        true
    }

    fn leave(&mut self, address: IpAddr, number: u64) {
        let Some(held) = self.by_address.get_mut(&address) else {
            return;
        };
        // A connection that was closed in favour of another was already removed.
        if held.remove(&number).is_some() {
            self.all -= 1;
        }
        if held.is_empty() {
            self.by_address.remove(&address);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        taken.leave(self.address, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn seats_are_bounded_in_all_and_by_address() {
        // fault A2
        let slots = Slots::new(Bounds {
            connections: 3,
            per_address: 1,
        });
        let (far, near) = (address("192.0.2.1"), address("127.0.0.1"));
        let first = slots.take(far).unwrap();
        assert!(slots.take(far).is_none());
        assert!(slots.take(address("::ffff:192.0.2.1")).is_none());
        let _near = slots.take(near).unwrap();
        assert!(slots.take(near).is_none(), "loopback is held to it too");
        let _beside = slots.take(address("127.0.0.2")).unwrap();
        assert!(slots.take(address("127.0.0.3")).is_none());
        drop(first);
        assert!(slots.take(far).is_some());
    }

    // fault A2
    #[test]
    fn a_subscriber_of_ipv6_is_one_address() {
        let slots = Slots::new(Bounds {
            connections: 8,
            per_address: 2,
        });
        let _held: Vec<_> = ["2001:db8::1", "2001:db8::ffff:1"]
            .map(|text| slots.take(address(text)).unwrap())
            .into();
        assert!(slots.take(address("2001:db8:0:0:abcd::1")).is_none());
        assert!(slots.take(address("2001:db8:0:1::1")).is_some());
    }

    // fault A2: two addresses that take all they can leave room for others, and each other.
    #[test]
    fn a_few_addresses_cannot_take_all_places() {
        let slots = Slots::new(Bounds {
            connections: 1024,
            per_address: 512,
        });
        let fill = |text: &str| {
            let address = address(text);
            std::iter::from_fn(move || slots.take(address)).take(2_000)
        };
        let first: Vec<_> = fill.clone()("192.0.2.1").collect();
        assert_eq!(first.len(), 512);
        let second: Vec<_> = fill.clone()("192.0.2.2").collect();
        let closed = first.iter().filter(|slot| slot.close.is_cancelled());
        // The reserve is free, and both addresses have the same number.
        let closed = closed.count();
        assert_eq!((second.len(), first.len() - closed), (448, 448));
        let third: Vec<_> = fill("192.0.2.3").take(FEW).collect();
        assert_eq!(third.len(), FEW);
        assert!(second.iter().all(|slot| !slot.close.is_cancelled()));
    }

    #[test]
    fn who_has_a_request_is_not_closed() {
        let slots = Slots::new(Bounds {
            connections: 3,
            per_address: 3,
        });
        let held: Vec<_> = (0..3)
            .map(|_| slots.take(address("192.0.2.1")).unwrap())
            .collect();
        held[0].watch.begin_for_test();
        held[1].watch.begin_for_test();
        let late = slots.take(address("192.0.2.2")).unwrap();
        let closed: Vec<_> = held.iter().map(|slot| slot.close.is_cancelled()).collect();
        assert_eq!(closed, [false, false, true]);
        assert!(slots.take(address("192.0.2.3")).is_none(), "all are busy");
        drop(held);
        drop(late);
        assert_eq!(slots.lock().all, 0);
        assert!(slots.lock().by_address.is_empty());
    }

    // fault A2: an address whose connections are all busy costs nobody a place that another can spare.
    #[test]
    fn who_comes_gets_the_place_of_any_larger_address() {
        let slots = Slots::new(Bounds {
            connections: 5,
            per_address: 5,
        });
        let take = |text: &str| slots.take(address(text)).unwrap();
        let busy: Vec<_> = (0..3).map(|_| take("192.0.2.1")).collect();
        busy.iter().for_each(|slot| slot.watch.begin_for_test());
        let idle: Vec<_> = (0..2).map(|_| take("192.0.2.2")).collect();
        let _late = take("192.0.2.3");
        assert!(busy.iter().all(|slot| !slot.close.is_cancelled()));
        let closed: Vec<_> = idle.iter().map(|slot| slot.close.is_cancelled()).collect();
        assert_eq!(closed, [true, false]);
        // An address with no more connections than the new one keeps them.
        assert!(slots.take(address("192.0.2.4")).is_none());
    }

    // fault A2
    #[tokio::test(start_paused = true)]
    async fn a_head_on_its_way_is_not_cut_unless_it_takes_long() {
        let slots = Slots::new(Bounds {
            connections: 3,
            per_address: 3,
        });
        let held: Vec<_> = (0..3)
            .map(|_| slots.take(address("192.0.2.1")).unwrap())
            .collect();
        held[0].watch.begin_for_test();
        held[1].watch.begin_head_for_test();
        let closed = || held.iter().map(|slot| slot.close.is_cancelled());
        let first = slots.take(address("192.0.2.2")).unwrap();
        assert_eq!(closed().collect::<Vec<_>>(), [false, false, true]);
        drop(first);
        let beside = slots.take(address("192.0.2.1")).unwrap();
        beside.watch.begin_for_test();
        let late = || slots.take(address("192.0.2.2"));
        assert!(late().is_none(), "nobody can spare a place");
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        assert!(late().is_some());
        assert_eq!(closed().collect::<Vec<_>>(), [false, true, true]);
    }
}
