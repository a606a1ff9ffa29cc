//! Which addresses are dialled, and how many connections are wanted.

use crate::{
    address::{NetGroup, NetworkKind},
    addresses::AddressTable,
    message::Services,
    peer::{CloseReason, PeerId},
    pool::{PeerOptions, Target},
    transport::TransportVersion,
};
use std::{
    collections::{BTreeMap, HashSet},
    time::{Duration, Instant},
};

/// Connections that are opened at the same time.
const MAX_OPENING: usize = 8;
/// How many of them may be to I2P addresses, unless all are: an address that leads nowhere takes minutes.
const MAX_OPENING_I2P: usize = 4;
const FIRST_PEERS: usize = 16;
/// Connections that are added while the download gets faster.
const STEP_PEERS: usize = 8;
/// Time after which it is seen whether the download got faster.
const STEP_TIME: Duration = Duration::from_secs(5);
/// Growth that counts as faster.
const STEP_GROWTH: f64 = 1.05;
/// Targets of the user that are opened at the same time: there are few.
const MAX_OPENING_USERS: usize = 32;
/// Time after which a target of the user is dialled again, and the longest one: it doubles with each failure
/// in a row.
const USER_RETRY: Duration = Duration::from_secs(2);
const USER_RETRY_MAX: Duration = Duration::from_secs(60);
/// The same, if the peer broke the protocol.
const MISBEHAVED_RETRY: Duration = Duration::from_secs(10);
const MISBEHAVED_RETRY_MAX: Duration = Duration::from_secs(20 * 60);

#[derive(Clone, Debug)]
struct UserTarget {
    target: Target,
    /// Where it leads: itself, or the addresses of a name; none if the name is to be resolved.
    routes: Vec<Target>,
    /// The next of them.
    next: usize,
    /// The one that was dialled last.
    dialled: Option<Target>,
    connected_as: Option<PeerId>,
    not_before: Option<Instant>,
    failures: u32,
    needs_v1: bool,
    /// Whether it is only to tell addresses of other peers.
    is_seed: bool,
}

impl UserTarget {
    fn is_due(&self, now: Instant) -> bool {
        self.connected_as.is_none() && self.not_before.is_none_or(|at| now >= at)
    }

    /// Notes that a connection ended or could not be tried, and when the target is dialled again. All routes
    /// have their turn first.
    fn closed(&mut self, reason: &CloseReason, has_delivered: bool, now: Instant) {
        self.connected_as = None;
        // It will not be asked for coins again, and its blocks are good.
        if matches!(reason, CloseReason::AskedForTooMuch | CloseReason::SpentCoins(_)) {
            self.not_before = Some(now);
            return;
        }
        self.next += 1;
        if has_delivered && !reason.is_misbehaviour() {
            self.failures = 0;
        } else if self.next < self.routes.len() {
            self.not_before = Some(now);
            return;
        }
        self.pause(reason.is_misbehaviour(), now);
    }

    /// Is not dialled for a while, and then resolved again.
    fn pause(&mut self, has_misbehaved: bool, now: Instant) {
        let (first, longest) = match has_misbehaved {
            true => (MISBEHAVED_RETRY, MISBEHAVED_RETRY_MAX),
            false => (USER_RETRY, USER_RETRY_MAX),
        };
        self.not_before = Some(now + (first * (1 << self.failures.min(10))).min(longest));
        (self.next, self.failures) = (0, self.failures + 1);
        if self.routes.first().is_some_and(|route| *route != self.target) {
            self.routes.clear();
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Open {
    group: Option<NetGroup>,
    is_ready: bool,
}

impl Open {
    fn is_i2p(&self) -> bool {
        self.group.is_some_and(|group| group.network() == NetworkKind::I2p)
    }
}

/// Chooses what is dialled.
#[derive(Debug)]
pub struct Dialer {
    users: Vec<UserTarget>,
    /// The addresses that are known.
    pub table: AddressTable,
    options: PeerOptions,
    only_users: bool,
    wanted: usize,
    last_step: Option<(Instant, f64)>,
    open: BTreeMap<PeerId, Open>,
}

impl Dialer {
    pub(super) fn new(options: &PeerOptions, only_users: bool) -> Self {
        let mut dialer = Self {
            users: Vec::new(),
            table: AddressTable::default(),
            options: options.clone(),
            only_users,
            wanted: FIRST_PEERS.min(options.peers_max),
            last_step: None,
            open: BTreeMap::new(),
        };
        for target in options.connect.iter().chain(&options.add) {
            dialer.add_target(target.clone(), false);
        }
        options.known.iter().for_each(|known| dialer.table.restore(known));
        dialer
    }

    /// Adds a target that the user gave. It is dialled until it is connected, and again when it is closed.
    /// Without a proxy, the caller resolves names ([`Dialer::unresolved`]). `is_seed`: it is a DNS seed,
    /// which a proxy resolves, and is dialled until it has told addresses of other peers.
    pub fn add_target(&mut self, target: Target, is_seed: bool) {
        let is_route = self.options.proxy.is_some() || !matches!(target, Target::Name(..));
        self.users.push(UserTarget {
            routes: is_route.then(|| target.clone()).into_iter().collect(),
            target,
            next: 0,
            dialled: None,
            connected_as: None,
            not_before: None,
            failures: 0,
            needs_v1: false,
            is_seed,
        });
    }

    /// Forgets a seed that has told addresses. Returns whether it was one.
    pub(super) fn forget_seed(&mut self, target: &Target) -> bool {
        let before = self.users.len();
        self.users.retain(|user| !(user.is_seed && user.target == *target));
        self.users.len() < before
    }

    /// Returns the names that are to be resolved now, and again later if none of their addresses is of use.
    pub fn unresolved(&self, now: Instant) -> Vec<Target> {
        let due = self.users.iter().filter(|user| user.routes.is_empty() && user.is_due(now));
        due.map(|user| user.target.clone()).collect()
    }

    /// Takes the addresses of a name, which are dialled in this order until one is connected; none if it
    /// could not be resolved, or has no usable ones.
    pub fn resolved(&mut self, name: &Target, addresses: &[Target], now: Instant) {
        for user in self.users.iter_mut().filter(|user| user.target == *name && user.routes.is_empty()) {
            if addresses.is_empty() {
                user.pause(false, now);
            }
            addresses.clone_into(&mut user.routes);
        }
    }

    /// Returns what the user gave that leads to a target: this, or a name; `None` if it was found.
    pub fn named(&self, target: &Target) -> Option<&Target> {
        let leads = |user: &&UserTarget| user.target == *target || user.dialled.as_ref() == Some(target);
        self.users.iter().filter(|user| !user.is_seed).find(leads).map(|user| &user.target)
    }

    /// Sets how many connections are wanted from now on.
    pub(super) fn limit(&mut self, peers: usize) {
        self.wanted = self.wanted.min(peers);
        self.options.peers_max = self.options.peers_max.min(peers);
    }

    pub(super) const fn wants_addresses(&self) -> bool {
        !self.only_users
    }

    /// Returns whether an address would be dialled if a connection was closed.
    pub(super) fn candidate_waits(&self, now: Instant) -> bool {
        !self.only_users && self.open.len() >= self.wanted && self.choose(now).is_some()
    }

    fn choose(&self, now: Instant) -> Option<(Target, TransportVersion)> {
        let groups: HashSet<NetGroup> = self.open.values().filter_map(|open| open.group).collect();
        let random = u64::from_le_bytes(crate::random::bytes());
        let opening_i2p = self.open.values().filter(|open| !open.is_ready && open.is_i2p()).count();
        let all = self.options.networks.as_slice();
        let others: Vec<_> = all.iter().copied().filter(|network| *network != NetworkKind::I2p).collect();
        let has_enough_i2p = opening_i2p >= MAX_OPENING_I2P && !others.is_empty();
        let networks = if has_enough_i2p { others.as_slice() } else { all };
        let known = self.table.choose(networks, &groups, random, now)?;
        let has_v2 = known.services.has(Services::P2P_V2) && !known.needs_v1;
        let version = if self.options.use_v2 && has_v2 { TransportVersion::V2 } else { TransportVersion::V1 };
        Some((Target::Address(known.address), version))
    }

    /// Returns the next target to dial, or `None` if there are enough connections or nothing to dial.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Target, TransportVersion)> {
        let opening = self.open.values().filter(|open| !open.is_ready).count();
        if opening >= MAX_OPENING_USERS {
            return None;
        }
        // Those that have never been tried come first.
        let due = self.users.iter_mut().filter(|user| user.is_due(now) && !user.routes.is_empty());
        if let Some(user) = due.min_by_key(|user| user.not_before) {
            user.not_before = Some(now + USER_RETRY);
            user.dialled = user.routes.get(user.next).or(user.routes.first()).cloned();
            let is_v2 = self.options.use_v2 && !user.needs_v1;
            let version = if is_v2 { TransportVersion::V2 } else { TransportVersion::V1 };
            return Some((user.dialled.clone()?, version));
        }
        if opening >= MAX_OPENING || self.only_users || self.open.len() >= self.wanted {
            return None;
        }
        self.choose(now)
    }

    pub(super) fn dialled(&mut self, id: PeerId, target: &Target, now: Instant) {
        let group = match target {
            Target::Address(address) => {
                self.table.dialled(address, now);
                Some(address.host.group())
            }
            Target::Name(..) => None,
        };
        let is_free =
            |user: &&mut UserTarget| user.dialled.as_ref() == Some(target) && user.connected_as.is_none();
        if let Some(user) = self.users.iter_mut().find(is_free) {
            user.connected_as = Some(id);
        }
        self.open.insert(id, Open { group, is_ready: false });
    }

    pub(super) fn ready(&mut self, id: PeerId, target: &Target, services: Services) {
        if let Some(open) = self.open.get_mut(&id) {
            open.is_ready = true;
        }
        if let Target::Address(address) = target {
            self.table.connected(address, services);
        }
    }

    /// Notes that a connection ended or could not be tried. `speed` is that of its blocks, if there were any.
    pub(super) fn closed(
        &mut self,
        id: Option<PeerId>,
        target: &Target,
        reason: &CloseReason,
        speed: Option<f64>,
        now: Instant,
    ) {
        let was_ready = id.and_then(|id| self.open.remove(&id)).is_some_and(|open| open.is_ready);
        let was_this =
            |user: &&mut UserTarget| user.dialled.as_ref() == Some(target) && user.connected_as == id;
        if let Some(user) = self.users.iter_mut().find(was_this) {
            user.closed(reason, speed.is_some(), now);
        }
        let Target::Address(address) = target else { return };
        if let Some(speed) = speed {
            self.table.delivered(address, speed);
        }
        // With one other connection, which may be to a node nearby, this machine may be offline.
        let is_online = was_ready || self.open.values().filter(|open| open.is_ready).count() > 1;
        if matches!(reason, CloseReason::AskedForTooMuch | CloseReason::SpentCoins(_)) {
            self.table.dial_again(address);
        } else if reason.is_misbehaviour() {
            self.table.misbehaved(address, now);
        } else if is_online && (!was_ready || speed.is_none() && *reason != CloseReason::NotNeeded) {
            self.table.failed(address, now);
        }
    }

    /// Notes that version 2 of the transport failed with a target.
    pub(super) fn needs_v1(&mut self, target: &Target) {
        let leads = |user: &&mut UserTarget| user.dialled.as_ref() == Some(target);
        self.users.iter_mut().filter(leads).for_each(|user| user.needs_v1 = true);
        if let Target::Address(address) = target {
            self.table.needs_v1(address);
        }
    }

    /// Wants more connections if the last ones made the download faster.
    pub(super) fn update(&mut self, bytes_per_second: f64, now: Instant) {
        let (last, speed_then) = *self.last_step.get_or_insert((now, bytes_per_second));
        if now.saturating_duration_since(last) >= STEP_TIME {
            if bytes_per_second > speed_then * STEP_GROWTH && self.open.len() >= self.wanted {
                self.wanted = (self.wanted + STEP_PEERS).min(self.options.peers_max);
            }
            self.last_step = Some((now, bytes_per_second));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{address::PeerAddress, addresses::Source, message::AddressRecord};

    fn address(a: u8, b: u8) -> PeerAddress {
        PeerAddress { host: crate::address::Host::V4([a, b, 1, 1].into()), port: 8333 }
    }

    fn options(resolves: bool, peers_max: usize) -> PeerOptions {
        let proxy = (!resolves).then(|| ([127, 0, 0, 1], 9050).into());
        PeerOptions { networks: vec![NetworkKind::Ipv4], peers_max, proxy, ..PeerOptions::default() }
    }

    fn dialer(count: u8, peers_max: usize) -> Dialer {
        let mut dialer = Dialer::new(&options(true, peers_max), false);
        for at in 0..count {
            let services = Services::FULL.with(Services::P2P_V2);
            let record = AddressRecord { time: 0, services, address: address(20 + at / 2, at % 2) };
            assert!(dialer.table.add(&record, Source::Seed(at.into())));
        }
        dialer
    }

    #[test]
    fn eight_are_opened_at_once_and_one_in_each_group() {
        let now = Instant::now();
        let mut dialer = dialer(40, 64);
        let mut groups = HashSet::new();
        for id in 0.. {
            let Some((target, version)) = dialer.next(now) else {
                assert_eq!(id, 8);
                break;
            };
            assert_eq!(version, TransportVersion::V2);
            let Target::Address(found) = &target else { panic!("a name") };
            assert!(groups.insert(found.host.group()));
            dialer.dialled(PeerId(id), &target, now);
            if id == 0 {
                dialer.closed(Some(PeerId(0)), &target, &CloseReason::ConnectTimedOut, None, now);
                dialer.dialled(PeerId(0), &target, now);
            }
        }
        dialer.ready(PeerId(3), &Target::Address(address(99, 0)), Services::FULL);
        assert!(dialer.next(now).is_some(), "a place is free again");
    }

    #[test]
    fn more_connections_are_wanted_only_while_the_download_gets_faster() {
        let now = Instant::now();
        let mut dialer = dialer(100, 26);
        assert_eq!(dialer.wanted, 16);
        for id in 0..30 {
            dialer.open.insert(PeerId(id), Open { group: None, is_ready: true });
        }
        let at = |steps: u32| now + STEP_TIME * steps;
        let speeds = [(1.0, 16), (2.0, 24), (2.05, 24), (3.0, 26), (9.0, 26)];
        for (step, (speed, wanted)) in speeds.into_iter().enumerate() {
            dialer.update(speed, at(step as u32));
            assert_eq!(dialer.wanted, wanted, "step {step}");
        }
        assert!(dialer.candidate_waits(at(9)));
        dialer.limit(8);
        assert_eq!(dialer.wanted, 8);
    }

    /// After an hour without a network, a run that waits once knew nobody any more.
    #[test]
    fn addresses_are_kept_while_nobody_is_connected() {
        let mut now = Instant::now();
        let mut dialer = dialer(1, 64);
        let mut fails = |dialer: &mut Dialer| {
            let (target, _) = dialer.next(now)?;
            dialer.dialled(PeerId(0), &target, now);
            dialer.closed(Some(PeerId(0)), &target, &CloseReason::ConnectTimedOut, None, now);
            now += Duration::from_secs(60 * 60);
            Some(())
        };
        assert!((0..20).all(|_| fails(&mut dialer).is_some()), "it is dialled again and again");
        dialer.open.extend([98, 99].map(|id| (PeerId(id), Open { group: None, is_ready: true })));
        assert!((0..20).any(|_| fails(&mut dialer).is_none()), "others are connected, so it is at fault");
        assert!(dialer.table.is_empty());
    }

    /// A named peer that once broke a rule was not dialled for a day.
    #[test]
    fn targets_of_the_user_are_dialled_again_after_growing_pauses() {
        let start = Instant::now();
        let mut dialer = Dialer::new(&options(false, 8), true);
        let target = Target::Name("node.example".to_owned(), 8333);
        dialer.add_target(target.clone(), false);
        let (mut now, mut version) = (start, TransportVersion::V2);
        for (id, (reason, speed, pause)) in [
            (CloseReason::ClosedByPeer, None, USER_RETRY),
            (CloseReason::ClosedByPeer, None, USER_RETRY * 2),
            (CloseReason::AskedForTooMuch, Some(1.0), Duration::ZERO),
            (CloseReason::Stalled, Some(1.0), USER_RETRY),
            (CloseReason::Mutated, Some(1.0), MISBEHAVED_RETRY * 2),
            (CloseReason::Mutated, Some(1.0), MISBEHAVED_RETRY * 4),
            (CloseReason::ConnectTimedOut, None, USER_RETRY * 8),
        ]
        .into_iter()
        .enumerate()
        {
            let id = PeerId(id as u64);
            assert_eq!(dialer.next(now), Some((target.clone(), version)), "{reason}");
            dialer.dialled(id, &target, now);
            assert_eq!(dialer.next(now + USER_RETRY_MAX * 60), None, "it is connected");
            dialer.needs_v1(&target);
            version = TransportVersion::V1;
            dialer.closed(Some(id), &target, &reason, speed, now);
            let early = now + pause.saturating_sub(Duration::from_millis(1));
            assert!(pause.is_zero() || dialer.next(early).is_none(), "{reason}");
            now += pause;
        }
    }

    #[test]
    fn a_seed_is_nobody_s_peer_and_is_forgotten() {
        let now = Instant::now();
        let mut dialer = Dialer::new(&options(false, 8), false);
        let seed = Target::Name("seed.example".to_owned(), 8333);
        dialer.add_target(seed.clone(), true);
        assert_eq!(dialer.next(now).map(|(target, _)| target).as_ref(), Some(&seed));
        dialer.dialled(PeerId(1), &seed, now);
        assert_eq!(dialer.named(&seed), None);
        assert!(dialer.forget_seed(&seed) && !dialer.forget_seed(&seed));
        dialer.closed(Some(PeerId(1)), &seed, &CloseReason::NotNeeded, None, now);
        assert_eq!(dialer.next(now + USER_RETRY_MAX), None);
    }

    #[test]
    fn all_addresses_of_a_name_are_tried_before_it_is_resolved_again() {
        let mut now = Instant::now();
        let mut dialer = Dialer::new(&options(true, 8), true);
        let name = Target::Name("node.example".to_owned(), 8333);
        let addresses = [7, 8].map(|at| Target::Address(address(at, 0)));
        dialer.add_target(name.clone(), false);
        for round in 0..3 {
            assert_eq!((dialer.next(now), dialer.unresolved(now)), (None, vec![name.clone()]));
            dialer.resolved(&name, &addresses, now);
            for (id, address) in addresses.iter().enumerate() {
                assert_eq!(dialer.next(now).map(|(target, _)| target).as_ref(), Some(address), "{round}");
                assert_eq!(dialer.named(address), Some(&name));
                let id = PeerId(id as u64);
                dialer.dialled(id, address, now);
                dialer.closed(Some(id), address, &CloseReason::ConnectTimedOut, None, now);
            }
            assert_eq!((dialer.next(now), dialer.unresolved(now)), (None, vec![]), "after a pause");
            now += USER_RETRY_MAX;
        }
        dialer.resolved(&name, &[], now);
        assert_eq!(dialer.unresolved(now), []);
    }
}
