//! What bitcoind's settings mean for its start: which keep it from starting, which let it discard databases,
//! and which indexes they turn on. The rules are those of Core's `common/config.cpp`, `init.cpp` and
//! `node/blockmanager_args.cpp`.

use crate::bitcoin_conf::{BitcoinConf, Place, Setting, is_true};
use engine::{Advice, Error, ErrorKind, IndexKind, IndexSetting, Network, NodeSettings, StartFault};

/// The least number of MiB to which bitcoind prunes (Core `MIN_DISK_SPACE_FOR_BLOCK_FILES`).
pub const MIN_PRUNE_TARGET: u64 = 550;

/// Options that cannot be on together: the second one is the one to remove.
const EXCLUSIVE: [(&str, &str); 3] =
    [("prune", "txindex"), ("prune", "txospenderindex"), ("prune", "reindex-chainstate")];

/// Options that are of no use, and not allowed, if another one is off.
const NEED_ANOTHER: [(&str, &str, bool); 3] = [
    ("peerblockfilters", "blockfilterindex", false),
    ("forcednsseed", "dnsseed", true),
    ("listenonion", "listen", true),
];

/// Returns what the settings mean for the start of a node on this network.
pub fn of(conf: &BitcoinConf, network: Network) -> NodeSettings {
    let mut faults = Vec::new();
    let refused = "bitcoind does not start with it";
    let is_on = |name: &str| conf.turns_on(network, name, &["basic"]);
    for setting in conf.all() {
        if setting.name == "conf" && setting.place.line.is_some() {
            faults.push(fault(
                setting,
                "a configuration file cannot name another one: use includeconf",
                true,
            ));
        }
        if setting.name == "rpcpassword" && setting.has_comment {
            let what = "with a # in the line of a password, bitcoind does not start: choose one without it";
            faults.push(fault(setting, what, false));
        }
    }
    let prune = conf.setting(network, "prune");
    let target = prune.map_or(0, |setting| setting.value().parse::<i64>().unwrap_or(0));
    if let Some(setting) = prune.filter(|_| target < 0 || (2..MIN_PRUNE_TARGET as i64).contains(&target)) {
        faults.push(fault(setting, &format!("the least is {MIN_PRUNE_TARGET}, or 1; {refused}"), true));
    }
    for (first, second) in EXCLUSIVE.iter().filter(|_| target != 0) {
        let setting = is_on(second);
        faults.extend(setting.map(|it| fault(it, &format!("it excludes {first}; {refused}"), true)));
    }
    for (name, other, default) in NEED_ANOTHER {
        let has_other = conf.get(network, other).map_or(default, |value| value == "basic" || is_true(&value));
        let setting = is_on(name).filter(|_| !has_other);
        faults.extend(setting.map(|it| fault(it, &format!("it needs {other}; {refused}"), true)));
    }
    let is_known = |setting: &&Setting| !["", "0", "1", "basic"].contains(&setting.value());
    if let Some(setting) = conf.setting(network, "blockfilterindex").filter(is_known) {
        faults.push(fault(setting, &format!("there is no such filter; {refused}"), true));
    }
    for name in ["reindex", "reindex-chainstate"] {
        let what = "at each start, bitcoind discards databases and builds them anew";
        faults.extend(is_on(name).map(|setting| fault(setting, what, true)));
    }
    let indexes = IndexKind::ALL.into_iter().filter_map(|kind| {
        let Place { file, line } = is_on(kind.option())?.place.clone();
        Some(IndexSetting { kind, file, line })
    });
    NodeSettings { indexes: indexes.collect(), faults }
}

fn fault(setting: &Setting, what: &str, is_removable: bool) -> StartFault {
    let Place { file, line } = setting.place.clone();
    let place = line.map_or(String::new(), |line| format!("line {line}, "));
    // A password is not to be printed.
    let value = if is_removable { setting.value() } else { ".." };
    let detail = format!("{place}`{}={value}`: {what}", setting.name);
    let error = Error::new(ErrorKind::Usage, detail).in_file(file.clone(), None);
    // A member of settings.json is not a line.
    let is_removable = is_removable && line.is_some();
    StartFault { error, advice: Advice::CorrectSetting { file, line, is_removable } }
}
