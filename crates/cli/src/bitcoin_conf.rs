//! `bitcoin.conf` and `settings.json`: what Bitcoin Core's files set, by Core's own rules.
//!
//! A line is `name=value`, in the part of one chain after `[chain]` or as `chain.name=value`; `#` starts a
//! comment; `noname=1` takes values back; `includeconf=FILE` adds a file (Core `common/config.cpp`). The part
//! of the chosen chain counts before the common one, and of several values the first (Core
//! `common/settings.cpp`). These rules are Core's alone, so no crate for configuration files has them.

use engine::{Disk as _, Error, ErrorKind, Network, RealDisk, doctor::LastStart};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::{Map, Value};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Longest file that is read, in bytes.
const MAX_LEN: u64 = 4 << 20;

/// Names that Core does not let a file negate.
const NEVER_NEGATED: [&str; 2] = ["datadir", "signetchallenge"];

/// The settings that choose the chain, which count in the common part only.
const CHAIN_NAMES: [&str; 5] = ["chain", "regtest", "signet", "testnet", "testnet4"];

/// The settings of a configuration file, of the files that it includes and of `settings.json`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BitcoinConf {
    /// Those of all networks, in their order.
    pub settings: Vec<Setting>,
    /// What bitcoind ignores, or what is not known of its settings, in words.
    pub ignored: Vec<String>,
    /// The file without which it is not known how bitcoind connects, and what is wrong with that.
    pub unread: Option<(PathBuf, &'static str)>,
}

/// The part of the settings that contains one: the section of a chain, the part before all sections (empty),
/// or `None` for `settings.json` and a command line, which take precedence over the configuration file.
type Part<'a> = Option<&'a str>;

/// A line of a configuration file, a member of `settings.json`, or an option of a command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The part that contains it, see [`Part`].
    section: Option<String>,
    pub name: String,
    /// `None` if the values before it are taken back.
    value: Option<String>,
    pub file: PathBuf,
    /// The number of its line, if it is in a configuration file.
    pub line: Option<u32>,
    pub has_comment: bool,
}

impl BitcoinConf {
    /// Reads the file at `path` and the files that it includes; their paths start at `datadir`. `chain` is
    /// the network that the command line names. Returns `None` if there is no file.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Usage`] for what bitcoind would refuse too: a line without meaning, an included
    /// file that is missing. [`engine::ErrorKind::Environment`] if a file cannot be read.
    pub fn read(path: &Path, datadir: &Path, chain: Option<Network>) -> Result<Option<Self>, Error> {
        let Some(mut conf) = Self::read_one(path)? else { return Ok(None) };
        let usage = |detail: String| Error::usage(detail).in_file(path, None);
        let network = match chain {
            Some(network) => network,
            None => conf.chain().map_err(usage)?.unwrap_or(Network::Main),
        };
        let included = [network.name(), ""].map(|section| conf.named(Some(section), "includeconf").0);
        let included: Vec<_> = included.concat().iter().map(|setting| setting.value().to_owned()).collect();
        for name in included {
            let file = datadir.join(&name);
            let missing = || {
                let why = unexpanded(&name).unwrap_or_default();
                usage(format!("it includes {}, which is missing{why}", file.display()))
            };
            let mut more = Self::read_one(&file)?.ok_or_else(missing)?;
            more.settings.retain(|setting| {
                let is_nested = setting.name == "includeconf" && setting.value.is_some();
                if is_nested {
                    conf.ignored.push(format!("includeconf in {name} is ignored, as bitcoind does"));
                }
                !is_nested
            });
            conf.settings.extend(more.settings);
            conf.ignored.extend(more.ignored);
        }
        Ok(Some(conf))
    }

    /// Reads the file that bitcoind read when it last started on a datadir without `bitcoin.conf`, such as
    /// one that a service names. Returns its path too.
    pub fn of_last_start(
        datadir: &Path,
        net_dir: &Path,
        chain: Option<Network>,
    ) -> Result<(Self, Option<PathBuf>), Error> {
        let real = |file: &Path| Some(RealDisk.resolve(file.parent()?).ok()?.join(file.file_name()?));
        let own = real(&datadir.join("bitcoin.conf"));
        let last = LastStart::read(&RealDisk, net_dir);
        let unknown = |file: PathBuf, why| {
            let ignored = vec![format!("{}: {why}", file.display())];
            Ok((Self { ignored, unread: Some((file, why)), ..Self::default() }, None))
        };
        // bitcoind has run here, perhaps with a proxy.
        if last.version.is_none() && net_dir.join("peers.dat").exists() {
            let why = "it is missing, or lacks bitcoind's last start, whose settings are unknown";
            return unknown(net_dir.join("debug.log"), why);
        }
        let Some(path) = last.conf.filter(|file| real(file) != own) else { return Ok(Default::default()) };
        // The log of a copy names the file of the other node, and perhaps its block files.
        let is_own = last.net_dir.is_some_and(|dir| real(&dir) == real(net_dir));
        match if is_own { Self::read(&path, datadir, chain) } else { Ok(None) } {
            Ok(Some(conf)) => Ok((conf, Some(path))),
            Err(error) if error.kind != ErrorKind::Environment => Err(error),
            _ => {
                let why = "bitcoind read this file when it last started, and it cannot be read now, or is \
                           another node's";
                unknown(path, why)
            }
        }
    }

    fn read_one(path: &Path) -> Result<Option<Self>, Error> {
        let Some(text) = read_text(path)? else { return Ok(None) };
        let parsed = Self::parse(&text, path);
        parsed.map(Some).map_err(|detail| Error::usage(detail).in_file(path, None))
    }

    fn parse(text: &str, file: &Path) -> Result<Self, String> {
        let (mut conf, mut section) = (Self::default(), String::new());
        for (number, whole) in (1..).zip(text.split('\n')) {
            let line = whole.split('#').next().unwrap_or_default().trim_matches([' ', '\t', '\r']);
            let wrong = |what: &str| Err(format!("line {number}, `{line}`: {what}"));
            if line.is_empty() {
            } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                if name.parse::<Network>().is_err() {
                    conf.ignored
                        .push(format!("line {number}: bitcoind knows no section [{name}], and ignores it"));
                }
                name.clone_into(&mut section);
            } else if line.starts_with('-') {
                return wrong("in this file, options are written without a dash before them");
            } else if let Some((name, value)) = line.split_once('=') {
                let mut setting = Setting::new(&section, name.trim(), value.trim(), (file, number));
                setting.has_comment = whole.contains('#');
                if name.trim().ends_with(&format!("no{}", setting.name))
                    && NEVER_NEGATED.contains(&&*setting.name)
                {
                    return wrong("this cannot be negated");
                }
                if CHAIN_NAMES.contains(&&*setting.name) && setting.section.as_deref() != Some("") {
                    conf.ignored.push(format!("line {number}, `{line}`: in a section, it chooses no chain"));
                }
                conf.settings.push(setting);
            } else {
                return wrong("this is not NAME=VALUE");
            }
        }
        Ok(conf)
    }

    /// Adds the settings that bitcoind has written to a file, which count before those of the configuration
    /// file. A missing file is not an error.
    ///
    /// # Errors
    /// Why bitcoind does not start with this file.
    pub fn add_settings_file(&mut self, path: &Path) -> Result<(), Error> {
        let Some(text) = read_text(path)? else { return Ok(()) };
        let wrong = |what: String| Error::damaged(what).in_file(path, None);
        let Members(values) = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("bitcoind does not start with this file: {error}")))?;
        for (name, value) in values {
            let values = if let Value::Array(values) = value { values } else { vec![value] };
            self.settings.extend(values.into_iter().map(|value| {
                let value = match value {
                    Value::String(text) => Some(text),
                    Value::Bool(false) => None,
                    Value::Bool(true) => Some("1".to_owned()),
                    other => Some(other.to_string()),
                };
                Setting::overriding(&name, value, path)
            }));
        }
        Ok(())
    }

    /// Adds the command line of bitcoind's last start, by its log in a network's folder. It counts before
    /// `settings.json`.
    pub fn add_last_command_line(&mut self, net_dir: &Path) {
        let log = net_dir.join("debug.log");
        self.settings.extend(LastStart::read(&RealDisk, net_dir).command_line().iter().map(
            |[_, name, value]| Setting::overriding(name, (value != "false").then(|| value.clone()), &log),
        ));
    }

    /// Returns the settings with a name in a part that follow the last one that takes values back, and the
    /// last of all if that takes them back.
    fn named(&self, part: Part<'_>, name: &str) -> (Vec<&Setting>, Option<&Setting>) {
        let is_named = |setting: &&Setting| setting.section.as_deref() == part && setting.name == name;
        let all: Vec<&Setting> = self.settings.iter().filter(is_named).collect();
        let values = all.rsplit(|setting| setting.value.is_none()).next().unwrap_or_default();
        (values.to_vec(), all.last().copied().filter(|last| last.value.is_none()))
    }

    /// Returns the settings that choose a network, and the network that each chooses, if Core knows it. With
    /// more than one, bitcoind does not start.
    pub fn chain_choices(&self) -> Vec<(&Setting, Option<Network>)> {
        let choices = CHAIN_NAMES.into_iter().filter_map(|name| {
            let settings = self.named(Some(""), name).0;
            match name {
                "chain" => settings.first().map(|setting| (*setting, setting.value().parse().ok())),
                _ => {
                    let last = settings.last().filter(|setting| is_true(setting.value()))?;
                    Some((*last, if name == "testnet" { "test" } else { name }.parse().ok()))
                }
            }
        });
        choices.collect()
    }

    /// Returns the network that the file chooses.
    ///
    /// # Errors
    /// If the file chooses several networks, or one that Core does not know.
    pub fn chain(&self) -> Result<Option<Network>, String> {
        match self.chain_choices().as_slice() {
            [] => Ok(None),
            [(_, Some(network))] => Ok(Some(*network)),
            [(setting, None)] => setting.value().parse().map(Some).map_err(|error| format!("{error}")),
            several => {
                let names: Vec<_> =
                    several.iter().map(|(it, _)| format!("{}={}", it.name, it.value())).collect();
                Err(format!("it chooses several chains: {}; keep one of them", names.join(", ")))
            }
        }
    }

    /// Returns the setting that counts for a name on a network, which may be one that takes values back.
    pub fn lookup(&self, network: Network, name: &str) -> Option<&Setting> {
        [None, Some(network.name()), Some("")].into_iter().find_map(|part| {
            let (settings, negation) = self.named(part, name);
            let first = if part.is_none() { settings.last() } else { settings.first() };
            first.copied().or(negation)
        })
    }

    /// Returns the setting that counts for a name on a network, unless it is taken back.
    pub fn setting(&self, network: Network, name: &str) -> Option<&Setting> {
        self.lookup(network, name).filter(|setting| setting.value.is_some())
    }

    /// Returns the value that counts for a name on a network; `0` if it is taken back.
    pub fn get(&self, network: Network, name: &str) -> Option<String> {
        self.lookup(network, name).map(|setting| setting.value().to_owned())
    }

    /// Returns the setting that turns an option on for a network, whose value is `1` or one of `values`.
    pub fn turns_on(&self, network: Network, name: &str, values: &[&str]) -> Option<&Setting> {
        let is_on = |setting: &&Setting| is_true(setting.value()) || values.contains(&setting.value());
        self.setting(network, name).filter(is_on)
    }

    /// Returns all settings of a name on a network, in the order in which parts count.
    pub fn settings_of(&self, network: Network, name: &str) -> Vec<&Setting> {
        let mut all = Vec::new();
        for part in [None, Some(network.name()), Some("")] {
            let (settings, negation) = self.named(part, name);
            all.extend(settings);
            if negation.is_some() && all.is_empty() {
                break;
            }
        }
        all
    }

    /// Returns the values of these.
    pub fn list(&self, network: Network, name: &str) -> Vec<String> {
        let all = self.settings_of(network, name).into_iter();
        all.map(|setting| setting.value().to_owned()).collect()
    }
}

impl Setting {
    fn new(section: &str, name: &str, value: &str, (file, line): (&Path, u32)) -> Self {
        let (section, name) = match (section, name.split_once('.')) {
            ("", Some((section, name))) => (section, name),
            _ => (section, name),
        };
        let (name, value) = match name.strip_prefix("no") {
            None => (name, Some(value)),
            // Two negations are none.
            Some(name) if !is_true(value) => (name, Some("1")),
            Some(name) => (name, None),
        };
        let (name, value) = (name.to_owned(), value.map(str::to_owned));
        let (section, file, line) = (Some(section.to_owned()), file.to_owned(), Some(line));
        Self { section, name, value, file, line, has_comment: false }
    }

    /// A setting that takes precedence over the configuration file.
    fn overriding(name: &str, value: Option<String>, file: &Path) -> Self {
        let (name, file) = (name.to_owned(), file.to_owned());
        Self { section: None, name, value, file, line: None, has_comment: false }
    }

    /// Whether it is for all chains.
    pub fn is_common(&self) -> bool {
        self.section.as_deref() == Some("")
    }

    /// Its value; `0` if it takes values back.
    pub fn value(&self) -> &str {
        self.value.as_deref().unwrap_or("0")
    }
}

/// The members of a JSON object, of which none has the name of another.
struct Members(Map<String, Value>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self(Map::new()))
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with settings")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut from: A) -> Result<Self, A::Error> {
        while let Some((name, value)) = from.next_entry::<String, Value>()? {
            if self.0.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` is there twice")));
            }
            self.0.insert(name, value);
        }
        Ok(self)
    }
}

/// Reads a file as text; `None` if there is none.
fn read_text(path: &Path) -> Result<Option<String>, Error> {
    let failed = |source: std::io::Error| {
        let detail = format!("cannot read: {source}; --noconf goes without it");
        Error::environment(detail).in_file(path, None).caused_by(source)
    };
    if RealDisk.metadata(path).map_err(failed)?.is_none() {
        return Ok(None);
    }
    let bytes = RealDisk.read(path, MAX_LEN).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Explains a path that a shell would have changed, but neither bitcoind nor this program does: in words that
/// follow it.
pub fn unexpanded(path: &str) -> Option<String> {
    let quoted = ['"', '\''].into_iter().find(|quote| path.starts_with(*quote));
    if let Some(quote) = quoted {
        return Some(format!("; the quotes {quote} are taken as part of the name: leave them out"));
    }
    let rest = path.strip_prefix('~')?;
    let home = std::env::var("HOME").unwrap_or("$HOME".to_owned());
    let meant = match rest.strip_prefix('/') {
        None if !rest.is_empty() => "the whole path of that home directory".to_owned(),
        _ => format!("{home}{rest}"),
    };
    Some(format!("; `~` is not expanded here: write {meant}"))
}

/// Whether Core takes a value for true: if it is empty, or begins with a number that is not 0.
pub fn is_true(value: &str) -> bool {
    let number = value.trim_start().trim_start_matches(['+', '-']);
    let mut digits = number.chars().take_while(char::is_ascii_digit);
    value.is_empty() || digits.any(|digit| digit != '0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(text: &str) -> BitcoinConf {
        BitcoinConf::parse(text, Path::new("f")).unwrap()
    }

    /// Each line is a rule of Core's `common/settings.cpp`.
    #[test]
    fn of_several_values_the_one_that_core_uses_counts() {
        let get = |text: &str, network| conf(text).get(network, "datadir");
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(get("datadir=a\ndatadir=b", Network::Main), some("a"));
        assert_eq!(get("datadir=a\n[test]\ndatadir=b", Network::Main), some("a"));
        assert_eq!(get("datadir=a\n[test]\ndatadir=b", Network::Test), some("b"));
        assert_eq!(get("datadir=a\ntest.datadir=b", Network::Test), some("b"));
        assert_eq!(get("[main]\ndatadir=a", Network::Main), some("a"));
        assert_eq!(get("[main]\ndatadir=a", Network::Signet), None);
        let blocksdir = |text: &str| conf(text).get(Network::Main, "blocksdir");
        assert_eq!(blocksdir("blocksdir=a\nnoblocksdir=1\nblocksdir=c"), some("c"));
        assert_eq!(blocksdir("blocksdir=a\nnoblocksdir=1"), some("0"));
        assert_eq!(conf("blocksdir=a\nnoblocksdir=1").setting(Network::Main, "blocksdir"), None);
        assert_eq!(blocksdir("noblocksdir=0"), some("1"));
        assert_eq!(get("# datadir=a\n  datadir = b # c\r\n", Network::Main), some("b"));
        // Of a list, all count.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.json");
        std::fs::write(&path, r#"{"connect": ["a", "b"]}"#).unwrap();
        let mut all = conf("connect=d\n[main]\nconnect=c");
        all.add_settings_file(&path).unwrap();
        assert_eq!(all.list(Network::Main, "connect"), ["a", "b", "c", "d"]);
    }

    #[test]
    fn the_chain_is_chosen_by_the_common_part_only() {
        let chain = |text: &str| conf(text).chain();
        assert_eq!(chain(""), Ok(None));
        assert_eq!(chain("testnet=1"), Ok(Some(Network::Test)));
        assert_eq!(chain("testnet4="), Ok(Some(Network::Testnet4)));
        assert_eq!(chain("signet=0\nchain=regtest"), Ok(Some(Network::Regtest)));
        assert_eq!(chain("regtest=true"), Ok(None));
        assert_eq!(chain("[test]\nregtest=1"), Ok(None));
        // Here, the last value counts.
        assert_eq!(chain("signet=0\nsignet=1"), Ok(Some(Network::Signet)));
        assert!(chain("signet=1\nchain=main").unwrap_err().contains("several chains: chain=main, signet=1"));
        assert!(chain("chain=mainnet").unwrap_err().contains("unknown chain `mainnet`"));
    }

    #[test]
    fn lines_that_bitcoind_refuses_are_refused_by_their_number() {
        let error = |text: &str| BitcoinConf::parse(text, Path::new("f")).unwrap_err();
        assert!(error("\n-datadir=a").starts_with("line 2, `-datadir=a`: in this file, options"));
        assert!(error("main.nodatadir=1").contains("this cannot be negated"));
        assert!(error("testnet").starts_with("line 1, `testnet`: this is not NAME=VALUE"));
    }

    #[test]
    fn included_files_start_at_the_datadir_and_add_their_settings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bitcoin.conf");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let read = |chain| BitcoinConf::read(&path, dir.path(), chain);
        assert_eq!(read(None).unwrap(), None);
        write("bitcoin.conf", "includeconf=common\n[signet]\nincludeconf=signet\n");
        write("common", "datadir=a\nincludeconf=never\n");
        let get = |chain: Network| read(Some(chain)).unwrap().unwrap().get(chain, "datadir");
        assert_eq!(get(Network::Main), Some("a".to_owned()));
        let error = read(Some(Network::Signet)).unwrap_err().to_string();
        assert!(error.contains("it includes") && error.contains("which is missing"), "{error}");
        write("signet", "[signet]\ndatadir=b\n");
        assert_eq!(get(Network::Signet), Some("b".to_owned()));
        write("bitcoin.conf", "noincludeconf=1\n");
        assert_eq!(get(Network::Main), None);
    }
}
