//! The addresses of peers that a sync of some hours needs: a table with limits for each source and group.
//!
//! It is far smaller than Core's `addrman`: nobody can fill it, since one source adds at most 64 entries and
//! one group of addresses has at most 16.

use crate::{
    address::{NetGroup, NetworkKind, PeerAddress},
    message::{AddressRecord, Services},
    peer::PeerId,
};
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

/// Maximum number of addresses.
pub const MAX_ENTRIES: usize = 20_000;
/// Maximum number of addresses from one source.
pub const MAX_PER_SOURCE: usize = 64;
/// Maximum number of addresses in one group.
pub const MAX_PER_GROUP: usize = 16;
/// The lowest port that is dialled: those below belong to other services (Core's `IsBadPort` has a list).
const FIRST_PORT: u16 = 1024;
/// Time after a failure before an address is dialled again; it doubles with each failure in a row.
const RETRY: Duration = Duration::from_secs(60);
/// Failures in a row after which an address is removed.
const MAX_FAILURES: u32 = 5;
/// Time for which the address of a peer that broke the protocol is not dialled.
const BAN: Duration = Duration::from_secs(24 * 60 * 60);

/// Where an address was learned from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// An earlier run knew it.
    Saved,
    /// A DNS seed with this number.
    Seed(u16),
    /// The list in the program, of addresses in this network.
    Fixed(NetworkKind),
    /// A peer whose address is in this group.
    Peer(NetGroup),
    /// A peer that was dialled by its name, such as a DNS seed behind a proxy.
    Name(PeerId),
}

#[derive(Clone, Copy, Debug)]
struct AddressEntry {
    /// What a later run can use too.
    known: KnownPeer,
    /// Where it was heard of first.
    source: Source,
    not_before: Option<Instant>,
}

/// What is known of the address of a peer, so that a later run can use it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KnownPeer {
    /// Where it listens.
    pub address: PeerAddress,
    /// The services that it is said to offer, or offered (Core `ServiceFlags`).
    pub services: Services,
    /// Bytes per second when it last delivered blocks.
    pub bytes_per_second: Option<f64>,
    /// Whether version 2 of the transport failed.
    pub needs_v1: bool,
    /// Failures since it last was of use.
    pub failures: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct AddressTable {
    entries: Vec<AddressEntry>,
    index: HashMap<PeerAddress, usize>,
    per_source: HashMap<Source, usize>,
    per_group: HashMap<NetGroup, usize>,
}

impl AddressTable {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn get(&self, address: &PeerAddress) -> Option<&AddressEntry> {
        self.entries.get(*self.index.get(address)?)
    }

    /// Returns what is known of all addresses, for saving it.
    pub fn known(&self) -> impl Iterator<Item = KnownPeer> {
        self.entries.iter().map(|entry| entry.known)
    }

    /// Adds an address, unless it is known, cannot be one on the public network, or a limit is reached.
    /// Returns whether it was added.
    pub fn add(&mut self, record: &AddressRecord, source: Source) -> bool {
        let (address, group) = (record.address, record.address.host.group());
        if let Some(entry) = self.entry_mut(&address) {
            entry.known.services = entry.known.services.with(record.services);
            return false;
        }
        let from_source = self.per_source.get(&source).copied().unwrap_or_default();
        let in_group = self.per_group.get(&group).copied().unwrap_or_default();
        let fits = from_source < MAX_PER_SOURCE && in_group < MAX_PER_GROUP && self.len() < MAX_ENTRIES;
        if !(is_usable(&address) && fits) {
            return false;
        }
        let (bytes_per_second, needs_v1, failures) = Default::default();
        let services = record.services;
        self.insert(KnownPeer { address, services, bytes_per_second, needs_v1, failures }, source);
        true
    }

    fn insert(&mut self, known: KnownPeer, source: Source) {
        *self.per_source.entry(source).or_default() += 1;
        *self.per_group.entry(known.address.host.group()).or_default() += 1;
        self.index.insert(known.address, self.entries.len());
        self.entries.push(AddressEntry { known, source, not_before: None });
    }

    /// Adds what an earlier run knew of an address, unless the table is full or the address is known.
    pub fn restore(&mut self, known: &KnownPeer) {
        let address = &known.address;
        if self.len() < MAX_ENTRIES && self.get(address).is_none() && is_usable(address) {
            self.insert(*known, Source::Saved);
        }
    }

    /// Returns an address to dial: of one of `networks`, offering all services that blocks need, not in
    /// `groups`, and not tried a short time ago. `random` chooses among them. Addresses that delivered blocks
    /// come first, then those that have not failed.
    pub fn choose(
        &self,
        networks: &[NetworkKind],
        groups: &HashSet<NetGroup>,
        random: u64,
        now: Instant,
    ) -> Option<KnownPeer> {
        let count = self.entries.len();
        let start = random.checked_rem(count as u64)? as usize;
        let order = self.entries.iter().skip(start).chain(self.entries.iter().take(start));
        let not_tried = order.filter(|entry| entry.not_before.is_none_or(|at| now >= at));
        let usable = not_tried.map(|entry| entry.known).filter(|known| {
            known.services.has(Services::FULL)
                && networks.contains(&known.address.host.network())
                && !groups.contains(&known.address.host.group())
        });
        usable.min_by_key(|known| (known.failures, known.bytes_per_second.is_none()))
    }

    /// Notes that an address is being dialled, so that it is not chosen again at once.
    pub fn dialled(&mut self, address: &PeerAddress, now: Instant) {
        if let Some(entry) = self.entry_mut(address) {
            entry.not_before = Some(now + RETRY);
        }
    }

    /// Lets an address be dialled at once, because it was closed through no fault of its own.
    pub fn dial_again(&mut self, address: &PeerAddress) {
        if let Some(entry) = self.entry_mut(address) {
            entry.not_before = None;
        }
    }

    /// Notes that a peer shook hands, and what it offers.
    pub fn connected(&mut self, address: &PeerAddress, services: Services) {
        if let Some(entry) = self.entry_mut(address) {
            (entry.known.services, entry.known.failures) = (services, 0);
        }
    }

    /// Notes with which speed a peer delivered blocks, in bytes per second.
    pub fn delivered(&mut self, address: &PeerAddress, speed: f64) {
        if let Some(entry) = self.entry_mut(address) {
            entry.known.bytes_per_second = Some(speed);
        }
    }

    /// Notes that the version 2 transport failed with an address.
    pub fn needs_v1(&mut self, address: &PeerAddress) {
        if let Some(entry) = self.entry_mut(address) {
            entry.known.needs_v1 = true;
        }
    }

    /// Notes that an address could not be reached, or that its peer was useless. After some failures in a row
    /// it is removed.
    pub fn failed(&mut self, address: &PeerAddress, now: Instant) {
        let Some(entry) = self.entry_mut(address) else { return };
        let failures = entry.known.failures.saturating_add(1);
        entry.known.failures = failures;
        entry.not_before = Some(now + RETRY * (1 << failures.min(6)) / 2);
        if failures >= MAX_FAILURES {
            self.remove(address);
        }
    }

    /// Notes that the peer at an address broke the protocol: it is not dialled for a day, and by a later run
    /// only after all others.
    pub fn misbehaved(&mut self, address: &PeerAddress, now: Instant) {
        if let Some(entry) = self.entry_mut(address) {
            entry.not_before = Some(now + BAN);
            entry.known.failures = MAX_FAILURES - 1;
        }
    }

    fn entry_mut(&mut self, address: &PeerAddress) -> Option<&mut AddressEntry> {
        self.entries.get_mut(*self.index.get(address)?)
    }

    fn remove(&mut self, address: &PeerAddress) {
        let Some(at) = self.index.remove(address) else { return };
        let entry = self.entries.swap_remove(at);
        if let Some(moved) = self.entries.get(at) {
            self.index.insert(moved.known.address, at);
        }
        lower(&mut self.per_source, &entry.source);
        lower(&mut self.per_group, &address.host.group());
    }
}

/// Whether an address that somebody told can be that of a node. Otherwise this program could be led to
/// connect to another service, or to machines nearby.
fn is_usable(address: &PeerAddress) -> bool {
    let is_i2p = address.host.network() == NetworkKind::I2p;
    address.host.is_routable() && (address.port >= FIRST_PORT || is_i2p)
}

fn lower<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str, services: Services) -> AddressRecord {
        AddressRecord { time: 0, services, address: PeerAddress { host: text.parse().unwrap(), port: 8333 } }
    }

    fn full(a: usize, b: usize, c: usize) -> AddressRecord {
        record(&format!("{a}.{b}.{c}.1"), Services::FULL)
    }

    #[test]
    fn no_source_and_no_group_fills_the_table() {
        let mut table = AddressTable::default();
        let flood = Source::Peer(full(5, 5, 5).address.host.group());
        let added = (0..1_000).filter(|at| table.add(&full(60 + at / 200, at % 200, 0), flood)).count();
        assert_eq!(added, MAX_PER_SOURCE);
        let sources = (0..100).map(Source::Seed);
        let added = sources.enumerate().filter(|(at, source)| table.add(&full(7, 7, *at), *source)).count();
        assert_eq!(added, MAX_PER_GROUP);
        let mut table = AddressTable::default();
        for at in 0..30_000 {
            table.add(&full(11 + at / 200, at % 200, 0), Source::Seed(at as u16));
        }
        assert_eq!(table.len(), MAX_ENTRIES);
    }

    #[test]
    fn what_an_earlier_run_knew_is_restored_and_counts_for_its_group() {
        let mut table = AddressTable::default();
        let known = |at, bytes_per_second, needs_v1, failures| {
            let AddressRecord { address, services, .. } = full(1, 2, at);
            KnownPeer { address, services, bytes_per_second, needs_v1, failures }
        };
        (0..MAX_PER_GROUP + 4).for_each(|at| table.restore(&known(at, Some(1e6), true, 2)));
        table.restore(&known(0, None, false, 0));
        assert_eq!(table.len(), MAX_PER_GROUP + 4, "they passed the limits when they were added");
        let entry = table.get(&full(1, 2, 3).address).unwrap().known;
        assert_eq!((entry.bytes_per_second, entry.needs_v1, entry.failures), (Some(1e6), true, 2));
        assert!(!table.add(&full(1, 2, 200), Source::Seed(0)), "the group is full");
        (0..9).for_each(|_| table.failed(&full(1, 2, 3).address, Instant::now()));
        assert_eq!(table.len(), MAX_PER_GROUP + 3);
    }

    #[test]
    fn useless_addresses_are_not_added() {
        let mut table = AddressTable::default();
        assert!(!table.add(&record("10.1.2.3", Services::FULL), Source::Seed(0)));
        let mut no_port = full(1, 2, 3);
        for port in [0, 22] {
            no_port.address.port = port;
            assert!(!table.add(&no_port, Source::Seed(0)));
        }
        assert!(table.add(&full(1, 2, 3), Source::Seed(0)));
        assert!(!table.add(&full(1, 2, 3), Source::Seed(1)), "it is known");
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn choosing_leaves_out_networks_groups_services_and_recent_tries() {
        let now = Instant::now();
        let mut table = AddressTable::default();
        let first = full(1, 2, 3);
        table.add(&first, Source::Seed(0));
        table.add(&record("3.4.5.6", Services::NETWORK), Source::Seed(0));
        let choose = |table: &AddressTable, groups: &[NetGroup], now| {
            let groups = groups.iter().copied().collect();
            let all = [0, 1, 2].map(|random| table.choose(&[NetworkKind::Ipv4], &groups, random, now));
            assert!(all.iter().all(|entry| entry.map(|e| e.address) == all[0].map(|e| e.address)));
            all[0].map(|entry| entry.address)
        };
        assert_eq!(choose(&table, &[], now), Some(first.address));
        assert_eq!(choose(&table, &[first.address.host.group()], now), None);
        assert!(table.choose(&[NetworkKind::Onion], &HashSet::new(), 0, now).is_none());
        table.dialled(&first.address, now);
        assert_eq!(choose(&table, &[], now + RETRY / 2), None);
        assert_eq!(choose(&table, &[], now + RETRY), Some(first.address));
        table.misbehaved(&first.address, now);
        assert_eq!(choose(&table, &[], now + BAN / 2), None);
        let second = full(8, 9, 1);
        table.add(&second, Source::Seed(1));
        table.add(&full(9, 9, 1), Source::Seed(1));
        table.delivered(&second.address, 1e6);
        assert_eq!(choose(&table, &[], now), Some(second.address), "those that delivered come first");
        table.misbehaved(&second.address, now);
        let mut later = AddressTable::default();
        table.known().for_each(|known| later.restore(&KnownPeer { needs_v1: false, ..known }));
        assert_eq!(choose(&later, &[], now), Some(full(9, 9, 1).address), "it broke the protocol in no run");
    }

    #[test]
    fn addresses_that_fail_are_tried_less_often_and_then_removed() {
        let now = Instant::now();
        let mut table = AddressTable::default();
        let address = full(1, 2, 3);
        table.add(&full(2, 2, 3), Source::Seed(0));
        table.add(&address, Source::Seed(0));
        table.failed(&address.address, now);
        table.failed(&address.address, now);
        assert_eq!(table.get(&address.address).unwrap().not_before, Some(now + RETRY * 2));
        table.connected(&address.address, Services::FULL);
        for _ in 0..MAX_FAILURES {
            assert!(table.get(&address.address).is_some());
            table.failed(&address.address, now);
        }
        assert!(table.get(&address.address).is_none());
        assert_eq!((table.len(), table.per_source[&Source::Seed(0)], table.per_group.len()), (1, 1, 1));
        assert!(table.get(&full(2, 2, 3).address).is_some());
    }
}
