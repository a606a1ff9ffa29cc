//! The handshake as a state machine: messages in, messages to send out.
//!
//! We send `version`. The peer answers `version`, then before `verack` its features (`wtxidrelay`,
//! `sendaddrv2`, `feature`). We send `sendaddrv2` and `verack`: after our `verack` the former would get us
//! disconnected (Core `net_processing.cpp`). `wtxidrelay` is not sent, since we want no transactions. If
//! spent coins are wanted, we announce version 70017 and send their `feature` (BIP 434); otherwise,
//! announcing version 70016 leaves nothing to parse of it.

use crate::message::{FEATURE_VERSION, Message, PROTOCOL_VERSION, SPENT_COINS_FEATURE, Services, Version};
use std::time::{Duration, Instant};
use wire::SpentCoinsForm;

/// The time that the whole handshake may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// The lowest protocol version of a peer (Core `MIN_PEER_PROTO_VERSION`).
pub const MIN_VERSION: i32 = 31_800;
/// Maximum number of messages that are ignored before `verack`.
const MAX_EARLY_MESSAGES: u32 = 32;

/// Our own description, and whether spent coins are of use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandshakeOptions {
    /// Name and version of our program, such as `/peregrine:1.0.0-rc.1/`.
    pub user_agent: String,
    /// Our clock, in seconds since 1970.
    pub time: i64,
    /// Height of our best block.
    pub height: i32,
    /// Random numbers of all our open connections: a peer that sends one of them is ourselves.
    pub own_nonces: Vec<u64>,
    /// The random number of this connection.
    pub nonce: u64,
    /// Whether the coins that blocks spend are of use.
    pub wants_spent_coins: bool,
}

impl HandshakeOptions {
    /// The protocol version that is announced.
    const fn version(&self) -> i32 {
        if self.wants_spent_coins { FEATURE_VERSION } else { PROTOCOL_VERSION }
    }
}

/// The facts that the handshake found out about a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerInfo {
    /// The protocol version that both speak.
    pub version: i32,
    pub services: Services,
    /// Name and version of the peer's program, sanitised.
    pub user_agent: String,
    /// Height that the peer claims; negative if it gave none.
    pub height: i32,
    /// The form in which the peer sends the coins that blocks spend, if they are wanted and it offers them.
    pub spent_coins: Option<SpentCoinsForm>,
    /// Time between our `version` and its answer: the first measurement of the round trip.
    pub round_trip: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("connected to ourselves")]
    Ourselves,
    #[error("protocol version {got} is below {MIN_VERSION}")]
    OldVersion { got: i32 },
    #[error("the peer offers {}", what_is_offered(*.0))]
    Services(Services),
    #[error("a second version message")]
    SecondVersion,
    #[error("verack before version")]
    VerackBeforeVersion,
    /// The peer sent more than a few other messages before `verack`.
    #[error("{0} other messages before the end of the handshake")]
    EarlyMessages(u32),
    #[error("the handshake took more than 10 seconds")]
    TimedOut,
}

/// Words the services of a peer that does not offer blocks with witnesses.
fn what_is_offered(services: Services) -> &'static str {
    let has_blocks = [Services::NETWORK, Services::NETWORK_LIMITED].iter().any(|bit| services.has(*bit));
    if has_blocks { "blocks without witnesses only" } else { "no blocks" }
}

/// The consequence of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The handshake goes on. These messages are to be sent.
    Continue(Vec<Message>),
    Done(PeerInfo),
}

/// The handshake of a connection that we opened.
#[derive(Clone, Debug)]
pub struct Handshake {
    options: HandshakeOptions,
    started: Instant,
    info: Option<PeerInfo>,
    early_messages: u32,
}

impl Handshake {
    /// Starts a handshake. The message is to be sent first.
    pub fn start(options: HandshakeOptions, now: Instant) -> (Self, Message) {
        let version = Message::Version(Version {
            version: options.version(),
            // Without NETWORK and NETWORK_LIMITED, Core never asks us for headers or blocks.
            services: Services::default(),
            time: options.time,
            nonce: options.nonce,
            user_agent: options.user_agent.clone(),
            height: options.height,
            // Without transactions we do not count against the slots that peers keep for relaying them.
            relay: false,
        });
        (Self { options, started: now, info: None, early_messages: 0 }, version)
    }

    /// Handles a message.
    ///
    /// # Errors
    /// [`HandshakeError`] names what the peer did; the connection must then be closed.
    pub fn receive(&mut self, message: &Message, now: Instant) -> Result<Progress, HandshakeError> {
        self.check_time(now)?;
        match (message, &mut self.info) {
            (Message::Version(_), Some(_)) => Err(HandshakeError::SecondVersion),
            (Message::Version(version), None) => {
                let info = self.check_version(version, now)?;
                let mut replies = vec![Message::SendAddrV2];
                if info.version >= FEATURE_VERSION {
                    replies.push(Message::Feature { id: SPENT_COINS_FEATURE.to_vec(), data: Vec::new() });
                }
                replies.push(Message::Verack);
                self.info = Some(info);
                Ok(Progress::Continue(replies))
            }
            (Message::Verack, None) => Err(HandshakeError::VerackBeforeVersion),
            (Message::Verack, Some(info)) => Ok(Progress::Done(info.clone())),
            // No peer gets addresses from this program.
            (Message::SendAddrV2, Some(_)) => Ok(Progress::Continue(vec![])),
            (Message::Feature { id, .. }, Some(info))
                if info.version >= FEATURE_VERSION && id == SPENT_COINS_FEATURE =>
            {
                info.spent_coins = Some(SpentCoinsForm::Draft);
                Ok(Progress::Continue(vec![]))
            }
            _ => {
                // Core, too, ignores what comes too early.
                self.early_messages += 1;
                if self.early_messages > MAX_EARLY_MESSAGES {
                    return Err(HandshakeError::EarlyMessages(self.early_messages));
                }
                Ok(Progress::Continue(vec![]))
            }
        }
    }

    /// Checks that there is time left.
    ///
    /// # Errors
    /// [`HandshakeError::TimedOut`].
    pub fn check_time(&self, now: Instant) -> Result<(), HandshakeError> {
        if now >= self.started + TIMEOUT { Err(HandshakeError::TimedOut) } else { Ok(()) }
    }

    fn check_version(&self, version: &Version, now: Instant) -> Result<PeerInfo, HandshakeError> {
        let options = &self.options;
        let is_ours = version.nonce == options.nonce || options.own_nonces.contains(&version.nonce);
        if version.nonce != 0 && is_ours {
            return Err(HandshakeError::Ourselves);
        }
        if version.version < MIN_VERSION {
            return Err(HandshakeError::OldVersion { got: version.version });
        }
        // One that has deleted old blocks has the last ones.
        let offered = match version.services.has(Services::NETWORK_LIMITED) {
            true => version.services.with(Services::NETWORK),
            false => version.services,
        };
        if !offered.has(Services::FULL) {
            return Err(HandshakeError::Services(version.services));
        }
        let offers_by_service = options.wants_spent_coins && version.services.has(Services::BLOCK_UNDO);
        Ok(PeerInfo {
            version: version.version.min(options.version()),
            services: version.services,
            user_agent: version.user_agent.clone(),
            height: version.height,
            spent_coins: offers_by_service.then_some(SpentCoinsForm::Reference),
            round_trip: now.saturating_duration_since(self.started),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Command;

    fn start(now: Instant) -> Handshake {
        let options = HandshakeOptions {
            user_agent: "/peregrine:1.0.0-rc.1/".to_owned(),
            time: 1_000,
            height: 7,
            own_nonces: vec![11, 12],
            nonce: 13,
            wants_spent_coins: false,
        };
        let (handshake, message) = Handshake::start(options, now);
        let Message::Version(version) = message else { panic!("the first message is a version") };
        assert_eq!((version.version, version.services, version.relay), (70016, Services(0), false));
        assert_eq!((version.nonce, version.height, version.time), (13, 7, 1_000));
        handshake
    }

    fn theirs() -> Version {
        Version {
            version: 70017,
            services: Services::FULL.with(Services::P2P_V2),
            time: 1_060,
            nonce: 99,
            user_agent: "/Satoshi:31.0.0/".to_owned(),
            height: 900_000,
            relay: true,
        }
    }

    #[test]
    fn features_come_between_version_and_verack() {
        let now = Instant::now();
        let mut handshake = start(now);
        let later = now + Duration::from_millis(80);
        let answer = handshake.receive(&Message::Version(theirs()), later).unwrap();
        assert_eq!(answer, Progress::Continue(vec![Message::SendAddrV2, Message::Verack]));
        for message in [
            Message::SendAddrV2,
            Message::Ignored(Command::new("wtxidrelay")),
            Message::Ignored(Command::new("feature")),
            Message::Ignored(Command::new("anything")),
        ] {
            assert_eq!(handshake.receive(&message, later), Ok(Progress::Continue(vec![])));
        }
        let Ok(Progress::Done(info)) = handshake.receive(&Message::Verack, later) else { panic!("not done") };
        assert_eq!((info.version, info.height), (70016, 900_000));
        assert_eq!(info.round_trip, Duration::from_millis(80));
    }

    #[test]
    fn spent_coins_are_negotiated_by_feature_or_service() {
        let now = Instant::now();
        let ours = Message::Feature { id: SPENT_COINS_FEATURE.to_vec(), data: vec![] };
        let other = Message::Feature { id: b"BIP434".to_vec(), data: vec![1] };
        let reference = Services::FULL.with(Services::BLOCK_UNDO);
        for (wants, version, services, feature, expected) in [
            (true, 70017, Services::FULL, Some(&ours), Some(SpentCoinsForm::Draft)),
            (true, 70018, reference, Some(&ours), Some(SpentCoinsForm::Draft)),
            (true, 70017, Services::FULL, Some(&other), None),
            (true, 70016, Services::FULL, Some(&ours), None),
            (true, 70016, reference, None, Some(SpentCoinsForm::Reference)),
            (false, 70017, reference, Some(&ours), None),
        ] {
            let mut handshake = start(now);
            handshake.options.wants_spent_coins = wants;
            let theirs = Version { version, services, ..theirs() };
            let Ok(Progress::Continue(replies)) = handshake.receive(&Message::Version(theirs), now) else {
                panic!("not refused")
            };
            let sends = replies.iter().position(|reply| *reply == ours);
            assert_eq!(sends, (wants && version >= 70017).then_some(1), "between version and verack");
            assert_eq!(replies.last(), Some(&Message::Verack));
            if let Some(feature) = feature {
                assert_eq!(handshake.receive(feature, now), Ok(Progress::Continue(vec![])));
            }
            let Ok(Progress::Done(info)) = handshake.receive(&Message::Verack, now) else {
                panic!("not done")
            };
            let spoken = if wants { version.min(70017) } else { 70016 };
            assert_eq!((info.spent_coins, info.version), (expected, spoken), "{wants} {version}");
        }
    }

    #[test]
    fn unsuitable_peers_are_refused() {
        let refuse = |change: &dyn Fn(&mut Version)| {
            let (now, mut version) = (Instant::now(), theirs());
            change(&mut version);
            start(now).receive(&Message::Version(version), now).err()
        };
        assert_eq!(refuse(&|_| ()), None);
        assert_eq!(refuse(&|version| version.version = 31_800), None);
        assert_eq!(refuse(&|version| version.nonce = 0), None);
        let refused = refuse(&|version| version.version = 31_799);
        assert_eq!(refused, Some(HandshakeError::OldVersion { got: 31_799 }));
        for nonce in [11, 12, 13] {
            assert_eq!(refuse(&|version| version.nonce = nonce), Some(HandshakeError::Ourselves));
        }
        let limited = Services::NETWORK_LIMITED;
        for (got, words) in [
            (Services(0), "the peer offers no blocks"),
            (Services(1), "the peer offers blocks without witnesses only"),
            (Services(8), "the peer offers no blocks"),
            (limited, "the peer offers blocks without witnesses only"),
        ] {
            let refused = refuse(&|version| version.services = got).unwrap();
            assert_eq!((refused, &*refused.to_string()), (HandshakeError::Services(got), words));
        }
        assert_eq!(refuse(&|version| version.services = limited.with(Services::WITNESS)), None);
        assert_eq!(refuse(&|version| version.time = i64::MIN), None, "a wrong clock is not refused here");
    }

    #[test]
    fn messages_out_of_order_are_bounded() {
        let now = Instant::now();
        assert_eq!(start(now).receive(&Message::Verack, now), Err(HandshakeError::VerackBeforeVersion));
        let mut twice = start(now);
        twice.receive(&Message::Version(theirs()), now).unwrap();
        assert_eq!(twice.receive(&Message::Version(theirs()), now), Err(HandshakeError::SecondVersion));
        let mut early = start(now);
        for _ in 0..32 {
            assert_eq!(early.receive(&Message::Block(vec![]), now), Ok(Progress::Continue(vec![])));
        }
        assert_eq!(early.receive(&Message::Ping(1), now), Err(HandshakeError::EarlyMessages(33)));
    }

    #[test]
    fn ten_seconds_are_for_all_of_it() {
        let now = Instant::now();
        let mut handshake = start(now);
        let almost = now + Duration::from_millis(9_999);
        handshake.receive(&Message::Version(theirs()), almost).unwrap();
        assert_eq!(handshake.check_time(almost), Ok(()));
        assert_eq!(handshake.receive(&Message::Verack, now + TIMEOUT), Err(HandshakeError::TimedOut));
    }
}
