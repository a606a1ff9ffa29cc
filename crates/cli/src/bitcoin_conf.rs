//! `bitcoin.conf`: what Bitcoin Core's configuration file sets, by Core's own rules.
//!
//! A line is `name=value`, in the part of one chain after `[chain]` or as `chain.name=value`; `#` starts a
//! comment; `noname=1` takes values back; `includeconf=FILE` adds a file (Core `common/config.cpp`). The part
//! of the chosen chain counts before the common one, and of several values the first (Core
//! `common/settings.cpp`). These rules are Core's alone, so no crate for configuration files has them.

use engine::{Disk as _, Error, ErrorKind, Network, RealDisk};
use peregrine::output::print_message;
use std::path::{Path, PathBuf};

/// Longest file that is read, in bytes.
const MAX_LEN: u64 = 4 << 20;

/// Names that Core does not let a file negate.
const NEVER_NEGATED: [&str; 2] = ["datadir", "signetchallenge"];

/// The settings of a configuration file and of the files that it includes, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BitcoinConf(Vec<Setting>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Setting {
    /// The chain to whose part it belongs; empty for the common part.
    section: String,
    name: String,
    /// `None` if the values before it are taken back.
    value: Option<String>,
}

impl BitcoinConf {
    /// Reads the file at `path` and the files that it includes; their paths start at `datadir`. `chain` is
    /// the network that the command line names. Returns `None` if there is no file.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for what bitcoind would refuse too: a line without meaning, an included file that
    /// is missing. [`ErrorKind::Environment`] if a file cannot be read.
    pub fn read(path: &Path, datadir: &Path, chain: Option<Network>) -> Result<Option<Self>, Error> {
        let Some(mut conf) = Self::read_one(path)? else { return Ok(None) };
        let usage = |detail: String| Error::new(ErrorKind::Usage, detail).in_file(path, None);
        let network = match chain {
            Some(network) => network,
            None => conf.chain().map_err(usage)?.unwrap_or(Network::Main),
        };
        let included = [network.name(), ""].map(|section| conf.values(section, "includeconf").0);
        for name in included.concat() {
            let file = datadir.join(&name);
            let missing = || usage(format!("it includes {}, which is missing", file.display()));
            let mut more = Self::read_one(&file)?.ok_or_else(missing)?;
            more.0.retain(|setting| {
                let is_nested = setting.name == "includeconf" && setting.value.is_some();
                if is_nested {
                    print_message(&format!("note: includeconf in {name} is ignored, as bitcoind does"));
                }
                !is_nested
            });
            conf.0.extend(more.0);
        }
        Ok(Some(conf))
    }

    fn read_one(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |source: std::io::Error| {
            let detail = format!("cannot read: {source}; --noconf goes without it");
            Error::new(ErrorKind::Environment, detail).in_file(path, None).caused_by(source)
        };
        if RealDisk.metadata(path).map_err(failed)?.is_none() {
            return Ok(None);
        }
        let bytes = RealDisk.read(path, MAX_LEN).map_err(failed)?;
        let parsed = Self::parse(&String::from_utf8_lossy(&bytes));
        parsed.map(Some).map_err(|detail| Error::new(ErrorKind::Usage, detail).in_file(path, None))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (mut settings, mut section) = (Vec::new(), String::new());
        for (number, line) in (1..).zip(text.split('\n')) {
            let line = line.split('#').next().unwrap_or_default().trim_matches([' ', '\t', '\r']);
            let wrong = |what: &str| Err(format!("line {number}, `{line}`: {what}"));
            if line.is_empty() {
            } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.clone_into(&mut section);
            } else if line.starts_with('-') {
                return wrong("in this file, options are written without a dash before them");
            } else if let Some((name, value)) = line.split_once('=') {
                let setting = Setting::new(&section, name.trim(), value.trim());
                if name.trim().ends_with(&format!("no{}", setting.name))
                    && NEVER_NEGATED.contains(&&*setting.name)
                {
                    return wrong("this cannot be negated");
                }
                settings.push(setting);
            } else {
                return wrong("this is not NAME=VALUE");
            }
        }
        Ok(Self(settings))
    }

    /// Returns the values of a name in a section after the last one that takes values back, and whether that
    /// is the last one.
    fn values(&self, section: &str, name: &str) -> (Vec<String>, bool) {
        let named = self.0.iter().filter(|setting| setting.section == section && setting.name == name);
        let (mut values, mut is_negated) = (Vec::new(), false);
        for setting in named {
            is_negated = setting.value.is_none();
            match &setting.value {
                Some(value) => values.push(value.clone()),
                None => values.clear(),
            }
        }
        (values, is_negated)
    }

    /// Returns the network that the file chooses.
    ///
    /// # Errors
    /// If the file chooses several networks, or one that Core does not know.
    pub fn chain(&self) -> Result<Option<Network>, String> {
        let named = |name: &str| self.values("", name).0;
        let is_on = |name: &&str| named(name).last().is_some_and(|value| is_true(value));
        let mut chosen: Vec<String> = named("chain").into_iter().take(1).collect();
        let switches = ["regtest", "signet", "testnet", "testnet4"].into_iter().filter(is_on);
        chosen.extend(switches.map(|name| if name == "testnet" { "test" } else { name }.to_owned()));
        match chosen.as_slice() {
            [] => Ok(None),
            [name] => name.parse().map(Some).map_err(|error| format!("{error}")),
            several => Err(format!("it chooses several chains: {}; keep one of them", several.join(", "))),
        }
    }

    /// Returns the value that counts for a name on a network: `None` if there is none, `Some(None)` if it is
    /// taken back.
    fn lookup(&self, network: Network, name: &str) -> Option<Option<String>> {
        for section in [network.name(), ""] {
            let (values, is_negated) = self.values(section, name);
            if is_negated || !values.is_empty() {
                return Some(values.into_iter().next());
            }
        }
        None
    }

    /// Returns the value that counts for a name on a network; `0` if it is taken back.
    pub fn get(&self, network: Network, name: &str) -> Option<String> {
        self.lookup(network, name).map(|value| value.unwrap_or("0".to_owned()))
    }

    /// Whether bitcoind keeps an index, whose name is that of its option.
    pub fn turns_on(&self, network: Network, name: &str) -> bool {
        self.get(network, name).is_some_and(|value| value == "basic" || is_true(&value))
    }

    /// Returns the path that counts for a name on a network.
    pub fn path(&self, network: Network, name: &str) -> Option<PathBuf> {
        self.lookup(network, name).flatten().filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// Returns all values of a name on a network, those of its own part first.
    pub fn list(&self, network: Network, name: &str) -> Vec<String> {
        let (mut all, is_negated) = self.values(network.name(), name);
        if !is_negated {
            all.extend(self.values("", name).0);
        }
        all
    }
}

impl Setting {
    fn new(section: &str, name: &str, value: &str) -> Self {
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
        Self { section: section.to_owned(), name: name.to_owned(), value: value.map(str::to_owned) }
    }
}

/// Whether Core takes a value for true: if it is empty, or begins with a number that is not 0.
fn is_true(value: &str) -> bool {
    let number = value.trim_start().trim_start_matches(['+', '-']);
    let mut digits = number.chars().take_while(char::is_ascii_digit);
    value.is_empty() || digits.any(|digit| digit != '0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(text: &str) -> BitcoinConf {
        BitcoinConf::parse(text).unwrap()
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
        assert_eq!(conf("blocksdir=a\nnoblocksdir=1").path(Network::Main, "blocksdir"), None);
        assert_eq!(blocksdir("noblocksdir=0"), some("1"));
        assert_eq!(get("# datadir=a\n  datadir = b # c\r\n", Network::Main), some("b"));
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
        assert!(chain("signet=1\nchain=main").unwrap_err().contains("several chains: main, signet"));
        assert!(chain("chain=mainnet").unwrap_err().contains("unknown chain `mainnet`"));
    }

    #[test]
    fn lines_that_bitcoind_refuses_are_refused_by_their_number() {
        let error = |text: &str| BitcoinConf::parse(text).unwrap_err();
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
