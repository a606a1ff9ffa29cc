//! The options that bitcoind has too: which datadir, and which chain. Their values come from the command
//! line, then from `bitcoin.conf`, then from Core's defaults.

use crate::{
    bitcoin_conf::BitcoinConf,
    named_dirs::{existing_dir, own_network, refuse_unexpanded, right_blocksdir},
    node_settings::{self, Connections, MIN_PRUNE_TARGET},
};
use clap::Args as ClapArgs;
use engine::{
    AssumeValid, ChainOptions, ChainParams, Datadir, Disk as _, Error, ErrorKind, FileKind, IndexKind,
    Location, Network, RealDisk, Remedy, dir_of,
    doctor::{Advice, LastStart, NodeSettings, StartFault},
};
use peregrine::{
    output::print_message,
    running::{self, set_chain, set_place},
};
use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// The heading of these options in the help.
const DATADIR: &str = "Datadir";

#[derive(ClapArgs, Clone, PartialEq, Debug, Default)]
pub struct CoreArgs {
    /// Bitcoin Core's data directory, as for bitcoind -datadir (or the network's own folder in it) [default:
    /// as for bitcoind]
    #[arg(long, help_heading = DATADIR, value_name = "DIR")]
    pub datadir: Option<PathBuf>,

    /// Network, as for bitcoind -chain: main, test, testnet4, signet, regtest [default: main, or the only one
    /// in the datadir]
    #[arg(long, help_heading = DATADIR, value_name = "NAME", value_parser = chain)]
    pub chain: Option<Network>,

    /// Directory with the folder of the block files, as for bitcoind -blocksdir [default: the datadir]
    #[arg(long, help_heading = DATADIR, value_name = "DIR", hide_short_help = true)]
    pub blocksdir: Option<PathBuf>,

    /// Bitcoin Core's configuration file; a relative path starts at the datadir [default: bitcoin.conf]
    #[arg(long, help_heading = DATADIR, value_name = "FILE", hide_short_help = true)]
    pub conf: Option<PathBuf>,

    /// Read no configuration file
    #[arg(long, help_heading = DATADIR, conflicts_with = "conf", hide_short_help = true)]
    pub noconf: bool,

    /// Challenge of a custom signet, as for bitcoind -signetchallenge
    #[arg(long, help_heading = DATADIR, value_name = "HEX", hide_short_help = true)]
    pub signetchallenge: Option<String>,

    /// On another chain than main, activation height of segwit, bip34, dersig, cltv or csv; can be given
    /// repeatedly
    #[arg(long, help_heading = DATADIR, value_name = "NAME@HEIGHT", hide_short_help = true)]
    pub testactivationheight: Vec<String>,

    /// On regtest, the rules of BIP-0094, as for bitcoind -test
    #[arg(long, help_heading = DATADIR, value_parser = ["bip94"], hide_short_help = true)]
    pub test: Vec<String>,
}

// Options of a command that only names a datadir. A doc comment would become help text.
#[derive(ClapArgs, Debug)]
pub struct CoreJsonArgs {
    #[command(flatten)]
    pub core: CoreArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// MiB that bitcoind keeps free below the size to which it prunes (Core `BLOCKFILE_CHUNK_SIZE` and
/// `UNDOFILE_CHUNK_SIZE`), and one for the rounding.
const PRUNE_ROOM: u64 = 16 + 1 + 1;

/// The datadir and the chain that a command works on.
#[derive(Clone, Debug)]
pub struct Located {
    pub root: PathBuf,
    /// The directory of the block files, if it is elsewhere.
    pub blocksdir: Option<PathBuf>,
    pub params: &'static ChainParams,
    /// What the configuration file says of assumed validity.
    pub assume_valid: Option<AssumeValid>,
    /// To how many MiB the settings let bitcoind prune, 1 for only what it is told to; `None` if they do not.
    pub prune: Option<u64>,
    /// What the settings mean for a start of bitcoind.
    pub settings: NodeSettings,
    /// What the configuration file and `settings.json` say.
    pub bitcoin_conf: BitcoinConf,
    /// The configuration file, if it was read.
    conf: Option<PathBuf>,
    /// Options that another command needs, besides those of the datadir and the configuration file, to work
    /// on the same chain: names and values.
    repeated: Vec<(&'static str, String)>,
    noconf: bool,
    /// Whether printed commands leave out `--datadir`: the configuration file names the datadir, and the
    /// paths of files that it includes start at the usual datadir only if the command line names no other.
    omits_datadir: bool,
}

/// What the settings say of a chain.
struct Read {
    conf: BitcoinConf,
    conf_path: Option<PathBuf>,
    /// The network that the configuration file chooses.
    chosen: Option<Network>,
    network: Network,
    root: PathBuf,
    blocksdir: Option<PathBuf>,
    /// What is wrong with the files.
    faults: Vec<StartFault>,
}

/// Parses the name of a network, with the names that people use besides Core's.
fn chain(name: &str) -> Result<Network, String> {
    match name {
        "mainnet" => Ok(Network::Main),
        "testnet" | "testnet3" => Ok(Network::Test),
        name => name.parse().map_err(|error| format!("{error}")),
    }
}

/// Rewrites options that are written as for bitcoind: `-datadir=DIR` to `--datadir=DIR`, and `-testnet` to
/// `--chain=test`.
pub fn accept_core_spelling(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    const NAMES: [&str; 16] = [
        "addnode",
        "assumevalid",
        "blocksdir",
        "chain",
        "conf",
        "connect",
        "datadir",
        "dnsseed",
        "fixedseeds",
        "noconf",
        "onlynet",
        "proxy",
        "signetchallenge",
        "test",
        "testactivationheight",
        "v2transport",
    ];
    let rewrite = |word: OsString| {
        let Some((option, text)) = word.to_str().and_then(|text| Some((text.strip_prefix('-')?, text)))
        else {
            return word;
        };
        let name = option.split('=').next().unwrap_or_default();
        match option.trim_start_matches('-').trim_end_matches("=1") {
            "testnet" => "--chain=test".into(),
            network @ ("testnet4" | "signet" | "regtest") => format!("--chain={network}").into(),
            _ if NAMES.contains(&name) => format!("-{text}").into(),
            _ => word,
        }
    };
    let mut is_option = true;
    let words = words.map(|word| {
        is_option &= word != "--";
        if is_option { rewrite(word) } else { word }
    });
    words.collect()
}

/// Returns the datadir that bitcoind uses if it is not told one (Core `GetDefaultDataDir`).
fn default_datadir() -> PathBuf {
    let home = env::var_os("HOME").filter(|home| !home.is_empty()).map_or("/".into(), PathBuf::from);
    let is_mac = cfg!(target_os = "macos");
    home.join(if is_mac { "Library/Application Support/Bitcoin" } else { ".bitcoin" })
}

impl CoreArgs {
    /// Finds the datadir and the chain, and says which they are where the command line does not.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if options or the configuration file contradict themselves;
    /// [`ErrorKind::Environment`] if the configuration file cannot be read.
    pub fn locate(&self) -> Result<Located, Error> {
        self.locate_with(true)
    }

    /// These options of a command on files, which needs no datadir; `None` if none is named.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if another of them is given then, which would have no effect.
    pub fn if_named(&self) -> Result<Option<&Self>, Error> {
        if self.datadir.is_none() && *self != Self::default() {
            let detail = "--chain, --conf and other options about a datadir have no effect without \
                          --datadir: leave them out, or pass --datadir";
            return Err(Error::usage(detail));
        }
        Ok(self.datadir.as_ref().map(|_| self))
    }

    /// Like [`CoreArgs::locate`], for a command with a file that states the network.
    pub fn locate_on(&self, network: Network) -> Result<Located, Error> {
        Self { chain: self.chain.or(Some(network)), ..self.clone() }.locate()
    }

    /// Like [`CoreArgs::locate`], for a command that creates what is missing. If no option says which chain
    /// is meant, a datadir with blocks of another one than main is refused.
    pub fn locate_new(&self) -> Result<Located, Error> {
        let located = self.locate_with(false)?;
        let dirs = [located.root.clone(), located.datadir().net_dir().to_owned()];
        if let Some(link) = dirs.into_iter().find(|dir| !dir.exists() && dir.is_symlink()) {
            let detail = "this link leads to nothing: mount the disk that it leads to, or remove the link";
            return Err(Error::usage(detail).in_file(link, None));
        }
        Ok(located)
    }

    fn locate_with(&self, may_guess: bool) -> Result<Located, Error> {
        for (name, dir) in [("datadir", &self.datadir), ("blocksdir", &self.blocksdir), ("conf", &self.conf)]
        {
            refuse_unexpanded(&format!("--{name}"), dir.as_deref())?;
        }
        let mut named = self.datadir.clone().unwrap_or_else(default_datadir);
        if named.file_name().is_none() {
            // Such as `.`: its name can be that of a network.
            named = RealDisk.resolve(&named).unwrap_or(named);
        }
        let own = own_network(&named).filter(|own| self.chain.is_none_or(|chain| chain == *own));
        let base = match own {
            // The folder of a custom signet says which one is meant.
            Some(own) if named.file_name() == own.subdirectory().map(OsStr::new) => dir_of(&named),
            _ => &named,
        };
        let chain = self.chain.or(own);
        let read = self.read(base, chain);
        let known = chain.or(read.as_ref().ok().and_then(|read| read.chosen));
        let only = known.is_none().then(|| self.only_network(base, read.as_ref().ok())).flatten();
        if let Some(other) = only.filter(|only| !may_guess && *only != Network::Main) {
            let detail = format!("it has blocks of {other} only, and no option says which chain is meant");
            let error = Error::usage(detail).in_file(base, None);
            return Err(error.with_remedies([Remedy::ChooseNetwork(other)]));
        }
        let mut read = match only {
            // Read as if the command line had named this network.
            Some(other) if other != Network::Main || read.is_err() => self.read(base, only)?,
            _ => read?,
        };
        let network = read.network;
        let why = match (own, only) {
            (Some(_), _) if self.chain.is_none() => " (by the folder's name)",
            (_, Some(_)) => " (there is no other)",
            _ => "",
        };
        let is_named = read.chosen != Some(network) && (network != Network::Main || read.chosen.is_some());
        set_chain(network.name());
        let all = self.with_last_start(&read.root, network, &mut read.conf);
        let conf = &read.conf;
        let prune = conf.get(network, "prune").as_deref().map(node_settings::leading_number);
        let mut located = Located {
            params: all.params(network, conf)?,
            assume_valid: conf.get(network, "assumevalid").as_deref().map(conf_assume_valid).transpose()?,
            prune: prune.and_then(|mebibytes| mebibytes.try_into().ok()).filter(|&mebibytes| mebibytes > 0),
            settings: NodeSettings::default(),
            bitcoin_conf: conf.clone(),
            repeated: all.repeated(is_named.then_some(network)),
            noconf: self.noconf,
            omits_datadir: self.datadir.is_none()
                && conf.setting(network, "datadir").is_some()
                && !conf.list(network, "includeconf").is_empty(),
            conf: read.conf_path,
            root: read.root,
            blocksdir: read.blocksdir,
        };
        located.settings = node_settings::of(conf, network, &located.datadir().blocks_dir());
        located.settings.faults.splice(0..0, read.faults);
        set_place(located.flags());
        let is_unsaid = network != Network::Main && self.chain.is_none();
        if self.datadir.is_none() || located.conf.is_some() || is_unsaid {
            located.announce(is_unsaid.then_some(why));
        }
        Ok(located)
    }

    /// Reads the settings of a chain, or of the one that they choose.
    fn read(&self, base: &Path, chain: Option<Network>) -> Result<Read, Error> {
        let (mut conf, conf_path) = self.read_conf(base, chain)?;
        let chosen = match conf.chain() {
            Err(detail) if chain.is_none() => {
                return Err(Error::usage(detail).in_file(conf_path.unwrap_or_default(), None));
            }
            // If the command line names the chain, it counts.
            chosen => chosen.unwrap_or_default(),
        };
        let network = chain.or(chosen).unwrap_or(Network::Main);
        let root = match (&self.datadir, conf.setting(network, "datadir")) {
            (None, Some(setting)) if !setting.value().is_empty() => existing_dir(setting)?,
            _ => base.to_owned(),
        };
        let name = conf.get(network, "settings").unwrap_or("settings.json".to_owned());
        let path = self.datadir_at(&root, network, &conf).net_dir().join(&name);
        let is_off = name == "0" || name.is_empty();
        let read = if is_off { Ok(()) } else { conf.add_settings_file(&path) };
        let broken = read.err().map(|error| StartFault {
            advice: match error.kind {
                ErrorKind::Environment if !path.is_dir() => Advice::ChangeOwner { directories: vec![path] },
                _ => Advice::MoveAway { path },
            },
            error,
        });
        let ignored = conf_path.as_ref().and_then(|used| ignored_conf(used, &root, &conf, network));
        let faults = broken.into_iter().chain(ignored).collect();
        let blocksdir = match (&self.blocksdir, conf.setting(network, "blocksdir")) {
            (None, Some(setting)) if !setting.value().is_empty() => Some(existing_dir(setting)?),
            (given, _) => given.clone(),
        };
        if let Some(dir) = blocksdir.as_ref() {
            if !dir.is_dir() {
                let detail = "no such directory, but it is to contain the block files (blocksdir)";
                return Err(Error::usage(detail).in_file(dir, None));
            }
            if let Some(right) = right_blocksdir(dir, self.chain) {
                let detail = format!(
                    "the block files are in this directory, and not in the directory `blocks` of a chain \
                     below it: use --blocksdir {}",
                    right.display()
                );
                return Err(Error::usage(detail).in_file(dir, None));
            }
        }
        Ok(Read { conf, conf_path, chosen, network, root, blocksdir, faults })
    }

    /// Returns the only network that has block files, each looked for by its own settings; those of `main`
    /// may have been read already.
    fn only_network(&self, base: &Path, main: Option<&Read>) -> Option<Network> {
        let has_them = |network: Network, Read { root, blocksdir, .. }: &Read| {
            let location = Location { blocksdir: blocksdir.clone(), ..Location::new(root, network) };
            location.likely_networks(&RealDisk).unwrap_or_default().contains(&network)
        };
        let has_blocks = |network: &Network| match main.filter(|_| *network == Network::Main) {
            Some(read) => has_them(*network, read),
            // What cannot be read is reported when it is opened.
            None => self.read(base, Some(*network)).is_ok_and(|read| has_them(*network, &read)),
        };
        let found: Vec<Network> = Network::ALL.into_iter().filter(has_blocks).collect();
        <[Network; 1]>::try_from(found).ok().map(|[only]| only)
    }

    /// Reads the configuration file. Returns its path too, if there is one.
    fn read_conf(
        &self,
        base: &Path,
        chain: Option<Network>,
    ) -> Result<(BitcoinConf, Option<PathBuf>), Error> {
        if self.noconf {
            return Ok(Default::default());
        }
        let home = if own_network(base).is_some() { dir_of(base) } else { base };
        let path = home.join(self.conf.as_deref().unwrap_or(Path::new("bitcoin.conf")));
        match BitcoinConf::read(&path, home, chain)? {
            Some(conf) => Ok((conf, Some(path))),
            None if self.conf.is_some() => {
                Err(Error::usage("no such configuration file").in_file(path, None))
            }
            None => {
                let network = chain.unwrap_or(Network::Main);
                let datadir = self.datadir_at(base, network, &BitcoinConf::default());
                BitcoinConf::of_last_start(home, datadir.net_dir(), chain)
            }
        }
    }

    /// The options of the command line that choose the chain and its block files.
    pub fn repeated(&self, chain: Option<Network>) -> Vec<(&'static str, String)> {
        let blocksdir = self.blocksdir.as_ref().map(|dir| dir.display().to_string());
        let heights = self.testactivationheight.iter().map(|text| ("testactivationheight", text.clone()));
        let single = [
            ("chain", chain.map(|network| network.name().to_owned())),
            ("blocksdir", blocksdir),
            ("signetchallenge", self.signetchallenge.clone()),
        ];
        let tests = self.test.iter().map(|text| ("test", text.clone()));
        let single = single.into_iter().filter_map(|(name, value)| Some((name, value?)));
        single.chain(heights).chain(tests).collect()
    }
}

impl Located {
    pub fn network(&self) -> Network {
        self.params.network
    }

    /// The indexes that bitcoind's settings turn on.
    pub fn index_kinds(&self) -> Vec<IndexKind> {
        self.settings.indexes.iter().map(|setting| setting.kind).collect()
    }

    pub fn location(&self) -> Location {
        let (root, blocksdir) = (self.root.clone(), self.blocksdir.clone());
        Location { root, blocksdir, network: self.params.network, magic: self.params.magic }
    }

    pub fn datadir(&self) -> Datadir {
        Datadir::of(&RealDisk, &self.location()).unwrap_or(Datadir::new(&self.location()))
    }

    /// The engine's default options for this datadir and chain, for commands that run no scripts.
    pub fn chain_options(&self) -> ChainOptions {
        ChainOptions {
            blocksdir: self.blocksdir.clone(),
            params: self.params,
            ..ChainOptions::reading(&self.root, self.params.network)
        }
    }

    /// Returns how bitcoind connects, by its files and the command line of its last start; `None` if they let
    /// it connect directly to arbitrary peers.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if not all settings could be read.
    pub fn connections(&self) -> Result<Option<Connections>, Error> {
        let mut all = self.bitcoin_conf.clone();
        if !self.noconf {
            all.add_last_command_line(self.datadir().net_dir());
        }
        node_settings::connections(&all, self.network())
    }

    /// The same with another network, which has its default parameters.
    pub fn with_network(&self, network: Network) -> Self {
        let mut other = self.clone();
        other.params = ChainParams::of(network);
        other.repeated.retain(|(name, _)| *name == "blocksdir");
        other.repeated.insert(0, ("chain", network.name().to_owned()));
        other
    }

    /// The same without a directory of block files that the command line names.
    pub fn without_blocksdir(&self) -> Self {
        let mut other = self.clone();
        other.repeated.retain(|(name, _)| *name != "blocksdir");
        other
    }

    /// Returns the options with which another `peregrine` works on the same datadir and chain.
    pub fn flags(&self) -> Vec<String> {
        let root = (!self.omits_datadir).then(|| self.root.display().to_string());
        let mut words: Vec<_> = root.into_iter().flat_map(|root| ["--datadir".to_owned(), root]).collect();
        words.extend(self.other_conf().into_iter().flat_map(|path| ["--conf".to_owned(), path]));
        words.extend(self.noconf.then(|| "--noconf".to_owned()));
        words.extend(self.repeated.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]));
        words
    }

    /// Returns the options with which bitcoind works on the same chain of the datadir at `root`.
    pub fn core_flags(&self, root: &Path) -> Vec<String> {
        let datadir = (!self.omits_datadir).then(|| format!("-datadir={}", root.display()));
        let mut words: Vec<_> = datadir.into_iter().collect();
        words.extend(self.other_conf().map(|path| format!("-conf={path}")));
        words.extend(self.noconf.then(|| "-noconf".to_owned()));
        words.extend(self.repeated.iter().map(|(name, value)| format!("-{name}={value}")));
        words
    }

    /// Returns to how many MiB bitcoind prunes: as the settings say, or else as it did at its last start.
    pub fn prunes_to(&self) -> Option<u64> {
        self.prune.or_else(|| LastStart::read(&RealDisk, self.datadir().net_dir()).prune(self.network()))
    }

    /// The same for a datadir whose block files were deleted, or else so that nothing more is deleted.
    pub fn prune_target(&self) -> u64 {
        let datadir = self.datadir();
        let bytes_of = |kind: FileKind| {
            let files = datadir.block_files(&RealDisk, kind).unwrap_or_default().into_iter();
            let len = |file| Some(RealDisk.metadata(&datadir.block_file_path(kind, file)).ok()??.len);
            files.filter_map(len).sum::<u64>()
        };
        let stored = || (bytes_of(FileKind::Blk) + bytes_of(FileKind::Rev)).div_ceil(1 << 20);
        self.prunes_to().unwrap_or_else(|| (stored() + PRUNE_ROOM).max(MIN_PRUNE_TARGET))
    }

    /// The configuration file, if it is not the one that belongs to the datadir.
    fn other_conf(&self) -> Option<String> {
        let other = self.conf.as_ref().filter(|path| **path != self.root.join("bitcoin.conf"));
        other.map(|path| env::current_dir().unwrap_or_default().join(path).display().to_string())
    }

    /// Says which datadir and which file are used; with `why`, which chain too.
    fn announce(&self, why: Option<&str>) {
        // With `--progress json`, a program reads stderr, and learns the chain from the report.
        if running::errors_as_json() {
            return;
        }
        let conf = match (&self.conf, self.other_conf()) {
            (_, Some(other)) => format!(" ({other})"),
            (Some(_), None) => " (bitcoin.conf)".to_owned(),
            _ => String::new(),
        };
        let chain = why.map_or(String::new(), |why| format!(", chain {}{why}", self.params.network));
        print_message(&format!("using {}{conf}{chain}", self.root.display()));
        if matches!(running::command().as_deref(), Some("reindex" | "repair" | "sync" | "update")) {
            let faults = self.settings.faults.iter();
            faults.for_each(|fault| print_message(&format!("note: {}", fault.error)));
        }
    }
}

/// Returns what is wrong if the datadir has a configuration file other than the `used` one, which bitcoind
/// would ignore.
fn ignored_conf(used: &Path, root: &Path, conf: &BitcoinConf, network: Network) -> Option<StartFault> {
    let path = root.join("bitcoin.conf");
    let real = |path: &Path| RealDisk.resolve(path).ok();
    if !path.exists()
        || real(&path) == real(used)
        || conf.turns_on(network, "allowignoredconf", &[]).is_some()
    {
        return None;
    }
    let detail = format!(
        "bitcoind does not start, because it would ignore this file beside {}, which it reads",
        used.display()
    );
    let error = Error::usage(detail).in_file(&path, None);
    Some(StartFault { error, advice: Advice::MoveAway { path } })
}

/// Parses `assumevalid` of a configuration file, which may lack zeros at its start.
fn conf_assume_valid(text: &str) -> Result<AssumeValid, Error> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    match digits.chars().all(|digit| digit == '0') {
        true => Ok(AssumeValid::Off),
        false => assume_valid(&format!("{digits:0>64}"))
            .map_err(|error| Error::usage(format!("assumevalid={text} in bitcoin.conf: {error}"))),
    }
}

/// The help about it.
pub const ASSUME_VALID: &str = "\
     Do not run the scripts of this block and its ancestors, as bitcoind -assumevalid; 0: run all \
     scripts; checked: the default, and above it what bitcoind has checked before, by the marks of the \
     datadir's block index, whose writer is trusted; blocks that this run downloads for the first time \
     have none [checked: not with --scan] [default: as the Bitcoin Core release that this version follows]";

/// Parses the value of `--assumevalid`: a block hash or 0, as for Core's `-assumevalid`, or a word.
pub fn assume_valid(text: &str) -> Result<AssumeValid, String> {
    match text {
        "default" => Ok(AssumeValid::Default),
        "0" => Ok(AssumeValid::Off),
        "checked" => Ok(AssumeValid::Checked),
        hash => hash
            .parse()
            .map(AssumeValid::Block)
            .map_err(|error| format!("{error}; pass a block hash, 0, checked or default")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    fn located(core: &CoreArgs) -> Result<Located, String> {
        core.locate().map_err(|error| error.to_string())
    }

    #[test]
    fn options_in_bitcoinds_spelling_are_accepted() {
        let accepted = |line: &str| {
            let words = accept_core_spelling(line.split(' ').map(OsString::from));
            words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (written, meant) in [
            ("reindex -datadir=d -testnet", "reindex --datadir=d --chain=test"),
            ("reindex --regtest -signet=1", "reindex --chain=regtest --chain=signet"),
            ("reindex -datadir d -o x", "reindex --datadir d -o x"),
            ("reindex --datadir=d -assumevalid=0", "reindex --datadir=d --assumevalid=0"),
            ("hints info -- -datadir=d", "hints info -- -datadir=d"),
            ("reindex -reindex -testnet=0", "reindex -reindex -testnet=0"),
        ] {
            assert_eq!(accepted(written), meant);
        }
        let chains = ["mainnet", "testnet", "testnet3", "signet"].map(chain);
        assert_eq!(chains, [Ok(Network::Main), Ok(Network::Test), Ok(Network::Test), Ok(Network::Signet)]);
    }

    #[test]
    fn the_command_line_counts_before_the_configuration_file() {
        let (dir, blocks) = testkit::fresh_path("blocks");
        for name in ["blocks", "there", "other/signet/blocks"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let conf = format!(
            "datadir={0}/there\nblocksdir={0}/blocks\nsignet=1\nassumevalid=1f\n",
            dir.path().display()
        );
        fs::write(dir.path().join("node.conf"), conf).unwrap();
        let given = CoreArgs { conf: Some(dir.path().join("node.conf")), ..CoreArgs::default() };
        let found = located(&given).unwrap();
        assert_eq!((found.network(), found.root.clone()), (Network::Signet, dir.path().join("there")));
        assert_eq!(found.datadir().blocks_dir(), dir.path().join("blocks/signet/blocks"));
        assert_eq!(found.assume_valid, Some(assume_valid(&format!("{:0>64}", "1f")).unwrap()));
        let conf = dir.path().join("node.conf").display().to_string();
        assert_eq!(found.flags()[1..], [found.root.display().to_string(), "--conf".to_owned(), conf]);
        let args = CoreArgs {
            datadir: Some(dir.path().to_owned()),
            chain: Some(Network::Main),
            blocksdir: Some(blocks.clone()),
            ..given.clone()
        };
        let found = located(&args).unwrap();
        assert_eq!((found.network(), &*found.root), (Network::Main, dir.path()));
        assert_eq!(found.datadir().blocks_dir(), blocks.join("blocks"));
        // Another command must not be led astray by the file either.
        assert!(found.flags().join(" ").ends_with(&format!("--chain main --blocksdir {}", blocks.display())));
        let flags = found.core_flags(Path::new("r"));
        assert_eq!(flags[2..], ["-chain=main".to_owned(), format!("-blocksdir={}", blocks.display())]);
        fs::write(dir.path().join("other/signet/blocks/blk00000.dat"), "").unwrap();
        let other = dir.path().join("other").display().to_string();
        // The section of the only chain that has blocks counts.
        fs::write(dir.path().join("node.conf"), format!("[signet]\nblocksdir={other}\n")).unwrap();
        assert_eq!(located(&given).unwrap().network(), Network::Signet);
    }

    #[test]
    fn a_networks_own_folder_and_the_only_network_are_found() {
        let (dir, own) = testkit::fresh_path("testnet4");
        fs::create_dir_all(own.join("blocks")).unwrap();
        let at = |dir: &Path| CoreArgs { datadir: Some(dir.to_owned()), ..CoreArgs::default() };
        for named in [&own, dir.path()] {
            let found = located(&at(named)).unwrap();
            assert_eq!((found.network(), &*found.root), (Network::Testnet4, dir.path()));
            assert!(found.flags().join(" ").ends_with("--chain testnet4"));
        }
        let error = at(dir.path()).locate_new().unwrap_err();
        assert!(error.remedies.contains(&Remedy::ChooseNetwork(Network::Testnet4)), "{error}");
        // A network that is named is not guessed; nor is one of two.
        let signet = CoreArgs { chain: Some(Network::Signet), ..at(&own) };
        assert_eq!(located(&signet).unwrap().root, own);
        fs::create_dir_all(dir.path().join("signet/blocks")).unwrap();
        assert_eq!(located(&at(dir.path())).unwrap().network(), Network::Main);
        // If the file chooses several, the only one that has blocks counts.
        let (dir, blocks) = testkit::fresh_path("blocks");
        fs::create_dir(blocks).unwrap();
        fs::write(dir.path().join("bitcoin.conf"), "chain=main\nsignet=1\n").unwrap();
        assert_eq!(located(&at(dir.path())).unwrap().network(), Network::Main);
    }

    /// After an update, a node that deletes only what it is told to was to delete by itself.
    #[test]
    fn a_pruned_node_is_to_prune_as_at_its_last_start() {
        let dir = TempDir::new().unwrap();
        let args = CoreArgs { datadir: Some(dir.path().to_owned()), ..CoreArgs::default() };
        assert_eq!(located(&args).unwrap().prune_target(), MIN_PRUNE_TARGET);
        let log = "2026 Bitcoin Core version v31.0.0\n2026 Command-line arg: prune=\"1\"\n";
        fs::write(dir.path().join("debug.log"), log).unwrap();
        assert_eq!(located(&args).unwrap().prune_target(), 1);
    }
}
