//! What bitcoind's settings mean for its start: which keep it from starting, which let it discard databases,
//! and which indexes they turn on. The rules are those of Core's `common/config.cpp`, `init.cpp` and
//! `node/blockmanager_args.cpp`.

use crate::bitcoin_conf::{BitcoinConf, Setting, is_true};
use engine::{
    Disk as _, Error, IndexKind, Network, RealDisk, Remedy,
    doctor::{Advice, IndexSetting, NodeSettings, StartFault},
};
use std::path::Path;

/// The least number of MiB to which bitcoind prunes (Core `MIN_DISK_SPACE_FOR_BLOCK_FILES`).
pub const MIN_PRUNE_TARGET: u64 = 550;

/// Options that cannot be on together with `prune`, and are the ones to remove.
const EXCLUDE_PRUNE: [&str; 3] = ["txindex", "txospenderindex", "reindex-chainstate"];

/// Options that are of no use, and not allowed, if another one is off.
const NEED_ANOTHER: [(&str, &str, bool); 5] = [
    ("peerblockfilters", "blockfilterindex", false),
    ("forcednsseed", "dnsseed", true),
    ("listenonion", "listen", true),
    ("bind", "listen", true),
    ("whitebind", "listen", true),
];

/// Options that another chain than main has in its own section only (Core `ArgsManager::NETWORK_ONLY`).
const IN_SECTION: [&str; 8] =
    ["addnode", "bind", "connect", "port", "rpcbind", "rpcport", "wallet", "walletdir"];

/// Options for tests, and the chains whose nodes do not start with them.
const FOR_TESTS: [(&str, &[Network]); 3] = [
    ("test", &[Network::Main, Network::Test, Network::Testnet4, Network::Signet]),
    ("testactivationheight", &[Network::Main]),
    ("vbparams", &[Network::Main]),
];

/// An option, the values with which bitcoind starts, and what is wrong with others.
type ValueRule = (&'static str, fn(&str) -> bool, &'static str);

const VALUES: [ValueRule; 10] = [
    ("prune", is_prune_target, "the least is 550, or 1"),
    ("blockfilterindex", |value| ["", "0", "1", "basic"].contains(&value), "there is no such filter"),
    ("maxconnections", |value| leading_number(value) >= 0, "the least is 0"),
    ("maxmempool", |value| leading_number(value) >= 5, "the least is 5"),
    ("minimumchainwork", is_hash, "it is not a number of at most 64 hexadecimal digits"),
    (
        "onlynet",
        |value| ["ipv4", "ipv6", "onion", "i2p", "cjdns"].contains(&&*value.to_lowercase()),
        "there is no such network",
    ),
    ("peertimeout", |value| leading_number(value) > 0, "it must be more than 0"),
    ("port", is_port, "there is no such port"),
    ("rpcport", is_port, "there is no such port"),
    (
        "vbparams",
        is_vbparams,
        "it is not NAME:START:END or NAME:START:END:HEIGHT of a deployment that bitcoind knows",
    ),
];

/// Options of which bitcoind takes all values, and not only one.
const LISTS: [&str; 2] = ["onlynet", "vbparams"];

/// Options that are meant for one start, and what they do at each.
const FOR_ONE_START: [(&str, &str); 4] = [
    ("reindex", "at each start, bitcoind discards databases and builds them anew"),
    ("reindex-chainstate", "at each start, bitcoind discards databases and builds them anew"),
    ("stopafterblockimport", "bitcoind stops again after each start"),
    ("stopatheight", "bitcoind stops at this height, and after each start from there on"),
];

/// Returns what the settings mean for the start of a node on this network, which has its block files in
/// `blocks_dir`.
pub fn of(conf: &BitcoinConf, network: Network, blocks_dir: &Path) -> NodeSettings {
    let mut faults = Vec::new();
    let refused = |setting: &Setting, what: &str, is_removable: bool| {
        fault(setting, &format!("{what}; bitcoind does not start with it"), is_removable)
    };
    let is_on = |name: &str| conf.turns_on(network, name, &["basic"]);
    for setting in &conf.settings {
        if setting.name == "conf" && setting.line.is_some() {
            let what = "a configuration file cannot name another one, use includeconf";
            faults.push(refused(setting, what, true));
        }
        if setting.name == "rpcpassword" && setting.has_comment {
            let what = "with a # in the line of a password, bitcoind does not start: choose one without it";
            faults.push(fault(setting, what, false));
        }
    }
    let (own, others): (Vec<_>, Vec<_>) =
        conf.chain_choices().into_iter().partition(|(_, chosen)| *chosen == Some(network));
    // An option of the command line replaces only a `chain=` that Core knows.
    let is_replaced =
        |name: &str, chosen: Option<Network>| own.is_empty() && name == "chain" && chosen.is_some();
    let others = others.into_iter().filter(|(setting, chosen)| !is_replaced(&setting.name, *chosen));
    for (setting, _) in others.chain(own.iter().copied().skip(1)) {
        faults.push(refused(setting, "it is not the only one that chooses a chain", false));
    }
    for name in IN_SECTION.iter().filter(|_| network != Network::Main) {
        let setting = conf.setting(network, name).filter(|setting| setting.is_common());
        let what = format!("for this chain, it must be in the section [{network}]");
        faults.extend(setting.map(|it| refused(it, &what, false)));
    }
    for (name, _) in FOR_TESTS.into_iter().filter(|(_, chains)| chains.contains(&network)) {
        let what = "it is for other chains only, so it must be in their sections";
        faults.extend(conf.setting(network, name).map(|it| refused(it, what, false)));
    }
    for (name, is_valid, what) in VALUES {
        let settings = match LISTS.contains(&name) {
            true => conf.settings_of(network, name),
            false => conf.setting(network, name).into_iter().collect(),
        };
        let wrong = settings.into_iter().filter(|setting| !is_valid(setting.value()));
        // Without it, the node would show itself in networks from which it was kept away.
        let is_removable = name != "onlynet";
        faults.extend(wrong.map(|it| refused(it, what, is_removable)));
    }
    let prunes = conf.setting(network, "prune").is_some_and(|setting| leading_number(setting.value()) != 0);
    for name in EXCLUDE_PRUNE.iter().filter(|_| prunes) {
        faults.extend(is_on(name).map(|it| refused(it, "it excludes prune", true)));
    }
    for (name, other, default) in NEED_ANOTHER {
        let default = if name == "listenonion" { listens_unless_told(conf, network) } else { default };
        let has_other = conf.get(network, other).map_or(default, |value| value == "basic" || is_true(&value));
        let setting = if name.ends_with("bind") { conf.setting(network, name) } else { is_on(name) };
        let setting = setting.filter(|_| !has_other);
        faults.extend(setting.map(|it| refused(it, &format!("it needs {other}"), true)));
    }
    let has_key =
        || RealDisk.read(&blocks_dir.join("xor.dat"), 8).is_ok_and(|key| key.iter().any(|byte| *byte != 0));
    if let Some(setting) = conf.setting(network, "blocksxor").filter(|it| !is_true(it.value()) && has_key()) {
        faults.push(refused(setting, "the block files have a key", true));
    }
    for (name, what) in FOR_ONE_START {
        faults.extend(is_on(name).map(|setting| fault(setting, what, true)));
    }
    let indexes = IndexKind::ALL.into_iter().filter_map(|kind| {
        let Setting { file, line, .. } = is_on(kind.option())?.clone();
        Some(IndexSetting { kind, file, line })
    });
    NodeSettings { indexes: indexes.collect(), faults }
}

/// How a node connects, if its settings do not let it connect directly to arbitrary peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    /// The setting that keeps it from that, and its place.
    pub because: String,
    /// Whether it connects to no peer at all.
    pub are_off: bool,
    pub proxy: Option<String>,
    pub i2psam: Option<String>,
    pub onlynet: Vec<String>,
    pub connect: Vec<String>,
}

/// Returns how a node connects; `None` if its settings let it connect directly to arbitrary peers.
///
/// # Errors
/// [`engine::ErrorKind::Usage`] if not all settings could be read.
pub fn connections(conf: &BitcoinConf, network: Network) -> Result<Option<Connections>, Error> {
    if let Some((file, why)) = &conf.unread {
        let detail = format!(
            "{why}, so that this command does not know how to connect: name bitcoind's configuration file \
             with --conf, or pass --noconf"
        );
        let error = Error::usage(detail).in_file(file.clone(), None);
        return Err(error.with_remedies([Remedy::SayHowToConnect]));
    }
    let set = |name| conf.setting(network, name).filter(|setting| !["", "0"].contains(&setting.value()));
    let onlynet = conf.list(network, "onlynet");
    let is_direct = onlynet.iter().any(|name| ["ipv4", "ipv6"].contains(&&*name.to_lowercase()));
    let connect: Vec<_> = conf.list(network, "connect").into_iter().filter(|peer| peer != "0").collect();
    let no_peer = conf.lookup(network, "connect").filter(|_| connect.is_empty());
    let inactive = conf.lookup(network, "networkactive").filter(|setting| !is_true(setting.value()));
    let is_none = |most: &&Setting| leading_number(most.value()) <= 0;
    let none = conf.lookup(network, "maxconnections").filter(is_none).filter(|_| connect.is_empty());
    let off = no_peer.or(inactive).or(none);
    let restricting = off.or(set("proxy")).or(set("onlynet").filter(|_| !is_direct));
    let setting = restricting.or(conf.lookup(network, "connect"));
    let Some(setting) = setting else { return Ok(None) };
    let value = |name| Some(set(name)?.value().to_owned());
    let line = setting.line.map_or(String::new(), |line| format!(" line {line}"));
    Ok(Some(Connections {
        because: format!("{}{line}: `{}={}`", setting.file.display(), setting.name, setting.value()),
        are_off: off.is_some(),
        proxy: value("proxy").or(value("onion")),
        i2psam: value("i2psam"),
        onlynet,
        connect,
    }))
}

/// Whether a node listens for peers if `listen` is not set (Core `InitParameterInteraction`).
fn listens_unless_told(conf: &BitcoinConf, network: Network) -> bool {
    let is_set = |name: &str| conf.setting(network, name).is_some();
    let is_closed = conf.get(network, "connect").is_some()
        || conf.get(network, "maxconnections").is_some_and(|most| leading_number(&most) <= 0)
        || conf.get(network, "proxy").is_some_and(|proxy| !["", "0"].contains(&&*proxy));
    is_set("bind") || is_set("whitebind") || !is_closed
}

/// The number with which a value begins, as Core reads numbers; 0 if there is none.
pub fn leading_number(value: &str) -> i64 {
    let is_of_number = |(at, c): &(usize, char)| c.is_ascii_digit() || *at == 0 && "+-".contains(*c);
    let number: String = value.char_indices().take_while(is_of_number).map(|(_, c)| c).collect();
    number.parse().unwrap_or(0)
}

fn is_prune_target(value: &str) -> bool {
    let target = leading_number(value);
    target == 0 || target == 1 || target >= MIN_PRUNE_TARGET as i64
}

fn is_hash(value: &str) -> bool {
    let digits = value.strip_prefix("0x").unwrap_or(value);
    digits.len() <= 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_port(value: &str) -> bool {
    port(value).is_some_and(|port| port > 0)
}

/// Parses a port. Core knows no number with a `+` (`ToIntegral`).
pub fn port(value: &str) -> Option<u16> {
    value.parse().ok().filter(|_| !value.starts_with('+'))
}

/// Releases up to 31 know taproot too (`deploymentinfo.cpp`).
fn is_vbparams(value: &str) -> bool {
    let Some((name, numbers)) = value.split_once(':') else { return false };
    let mut parts = numbers.split(':');
    ["testdummy", "taproot"].contains(&name)
        && (2..=3).contains(&parts.clone().count())
        && parts.all(|part| !part.starts_with('+') && part.parse::<i64>().is_ok())
}

fn fault(setting: &Setting, what: &str, is_removable: bool) -> StartFault {
    let Setting { file, line, .. } = setting.clone();
    let place = line.map_or(String::new(), |line| format!("line {line}, "));
    // A password is not to be printed.
    let value = if setting.name == "rpcpassword" { ".." } else { setting.value() };
    let detail = format!("{place}`{}={value}`: {what}", setting.name);
    let error = Error::usage(detail).in_file(file.clone(), None);
    // A member of settings.json is not a line.
    let is_removable = is_removable && line.is_some();
    StartFault { error, advice: Advice::CorrectSetting { file, line, is_removable } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// bitcoind was advised to be started with these; and a release that knows taproot not to be.
    #[test]
    fn options_for_tests_keep_the_nodes_of_other_chains_from_starting() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("bitcoin.conf");
        let faults = |line: &str| {
            fs::write(&path, format!("{line}\n")).unwrap();
            Network::ALL.map(|network| {
                let conf = BitcoinConf::read(&path, dir.path(), Some(network)).unwrap().unwrap();
                of(&conf, network, dir.path()).faults.len()
            })
        };
        assert_eq!(Network::ALL[0], Network::Main);
        for (line, expected) in [
            ("test=bip94", [1, 1, 1, 1, 0]),
            ("testactivationheight=csv@1", [1, 0, 0, 0, 0]),
            ("vbparams=testdummy:0:1", [1, 0, 0, 0, 0]),
            ("vbparams=testdummy:0", [2, 1, 1, 1, 1]),
            ("vbparams=testdummy:0:1:2", [1, 0, 0, 0, 0]),
            ("vbparams=testdummy:0:-1:2:3", [2, 1, 1, 1, 1]),
            ("vbparams=testdummy:0:+1", [2, 1, 1, 1, 1]),
            ("vbparams=taproot:0:1", [1, 0, 0, 0, 0]),
            ("vbparams=segwit:0:1", [2, 1, 1, 1, 1]),
            ("vbparams=testdummy:0:1\nvbparams=testdummy:0", [2, 1, 1, 1, 1]),
            ("onlynet=ipv4\nonlynet=tor", [1; 5]),
            ("maxconnections=-1", [1; 5]),
            ("rpcport=+8332", [1, 2, 2, 2, 2]),
            ("maxconnections=0", [0; 5]),
            ("[regtest]\ntest=bip94\nvbparams=testdummy:0:1", [0; 5]),
        ] {
            assert_eq!(faults(line), expected, "{line}");
        }
    }
}
