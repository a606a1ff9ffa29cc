//! The settings that change the rules of a chain for tests: those of the files, and of the command line or
//! else of bitcoind's when it last started.

use crate::{bitcoin_conf::BitcoinConf, core_args::CoreArgs};
use engine::{
    BuriedDeployment, ChainParams, Datadir, Error, Height, Location, Network, RealDisk, doctor::LastStart,
};
use hex_conservative::decode_to_vec;
use peregrine::output::print_note;
use std::path::Path;

impl CoreArgs {
    /// Returns the parameters of a network with these settings.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Usage`] if an option is not for this network, or a value has no meaning.
    pub fn params(&self, network: Network, conf: &BitcoinConf) -> Result<&'static ChainParams, Error> {
        let Self { signetchallenge, testactivationheight, test, .. } = self;
        let [is_main, is_signet, is_regtest] =
            [Network::Main, Network::Signet, Network::Regtest].map(|chain| chain == network);
        let misplaced = [
            ("signetchallenge", signetchallenge.is_some() && !is_signet, "signet"),
            (
                "testactivationheight",
                !testactivationheight.is_empty() && is_main,
                "test, testnet4, signet or regtest",
            ),
            ("test", !test.is_empty() && !is_regtest, "regtest"),
        ];
        if let Some((option, _, chains)) = misplaced.into_iter().find(|(_, is_misplaced, _)| *is_misplaced) {
            return Err(Error::usage(format!("--{option} needs --chain {chains}")));
        }
        let challenges = match signetchallenge {
            Some(given) => vec![given.clone()],
            None => conf.list(network, "signetchallenge"),
        };
        let params = match challenges.as_slice() {
            [hex] if is_signet => decode_to_vec(hex)
                .map(ChainParams::custom_signet)
                .map_err(|error| Error::usage(format!("signetchallenge: {error}; give a script in hex")))?,
            [_, _, ..] if is_signet => {
                return Err(Error::usage("signetchallenge: bitcoin.conf has several; keep one"));
            }
            _ => ChainParams::of(network),
        };
        if is_main {
            // With the other settings, bitcoind does not start.
            return Ok(params);
        }
        // As in bitcoind, the file does not take second place here: of all values, the last counts.
        let heights = [testactivationheight.clone(), conf.list(network, "testactivationheight")].concat();
        let heights: Result<Vec<_>, Error> = heights.iter().map(|text| activation(text)).collect();
        let has_bip94 = test.iter().chain(&conf.list(network, "test")).any(|name| name == "bip94");
        let enforce_bip94 = params.enforce_bip94 || is_regtest && has_bip94;
        Ok(ChainParams { enforce_bip94, ..params.clone() }.with_heights(&heights?))
    }

    /// Returns the paths of a network in the datadir at `root`, of a signet in the folder of its challenge.
    pub fn datadir_at(&self, root: &Path, network: Network, conf: &BitcoinConf) -> Datadir {
        // What is wrong with the settings is reported when the chain is chosen.
        let magic = self.params(network, conf).map_or(network.magic(), |params| params.magic);
        let location = Location { magic, ..Location::new(root, network) };
        Datadir::of(&RealDisk, &location).unwrap_or(Datadir::new(&location))
    }

    /// Returns these options with those that bitcoind got only on its command line when it last started: the
    /// chain follows their rules. Says so. What was taken back there does not count in `conf` either.
    pub fn with_last_start(&self, root: &Path, network: Network, conf: &mut BitcoinConf) -> Self {
        let mut all = self.clone();
        if network == Network::Main {
            return all;
        }
        let datadir = self.datadir_at(root, network, conf);
        let last = LastStart::read(&RealDisk, datadir.net_dir());
        for (name, own) in [("testactivationheight", &self.testactivationheight), ("test", &self.test)] {
            if own.is_empty() && last.takes_back(name) {
                conf.settings.retain(|setting| setting.name != name);
            }
        }
        // As in bitcoind, values of the file count beside these; only a challenge has one value.
        if self.testactivationheight.is_empty() {
            all.testactivationheight = last.told("testactivationheight");
        }
        if self.test.is_empty() && network == Network::Regtest {
            all.test = last.told("test").into_iter().filter(|name| name == "bip94").collect();
        }
        let is_public = self.signetchallenge.is_none() && conf.list(network, "signetchallenge").is_empty();
        if network == Network::Signet && is_public {
            all.signetchallenge = last.told("signetchallenge").pop();
        }
        let own = self.repeated(None);
        for (name, value) in all.repeated(None).into_iter().filter(|it| !own.contains(it)) {
            let log = datadir.net_dir().join("debug.log");
            print_note(&format!(
                "bitcoind was last started with {name}={value} ({}), so this counts here too",
                log.display()
            ));
        }
        all
    }
}

/// Parses `NAME@HEIGHT`.
fn activation(text: &str) -> Result<(BuriedDeployment, Height), Error> {
    let wrong = |what: String| Error::usage(format!("testactivationheight={text}: {what}"));
    let (name, height) = text.split_once('@').ok_or_else(|| wrong("give NAME@HEIGHT".to_owned()))?;
    let deployment = name.parse().map_err(|error| wrong(format!("{error}")))?;
    match height.parse() {
        Ok(height) if height < i32::MAX as u32 => Ok((deployment, Height(height))),
        _ => Err(wrong("the height is not a number below 2147483647".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_args::Located;
    use std::fs;
    use tempfile::TempDir;

    fn args(dir: &Path, network: Network, challenge: Option<&str>, heights: &[&str]) -> CoreArgs {
        CoreArgs {
            datadir: Some(dir.to_owned()),
            chain: Some(network),
            signetchallenge: challenge.map(str::to_owned),
            testactivationheight: heights.iter().map(|&text| text.to_owned()).collect(),
            ..CoreArgs::default()
        }
    }

    fn located(args: &CoreArgs) -> Located {
        args.locate().unwrap()
    }

    #[test]
    fn chains_of_tests_have_their_own_parameters() {
        let dir = TempDir::new().unwrap();
        let args = |network, challenge, heights: &[&str]| args(dir.path(), network, challenge, heights);
        let custom = located(&args(Network::Signet, Some("51"), &[]));
        assert_eq!(custom.params.signet_challenge, Some(&[0x51][..]));
        let regtest = located(&args(Network::Regtest, None, &["csv@432", "bip34@2"]));
        assert_eq!((regtest.params.csv_height, regtest.params.bip34_height), (Height(432), Height(2)));
        let text = "[signet]\nsignetchallenge=51\n[regtest]\ntestactivationheight=cltv@9\n";
        fs::write(dir.path().join("bitcoin.conf"), text).unwrap();
        let from_file = located(&args(Network::Signet, None, &[]));
        assert_eq!(from_file.params.magic, custom.params.magic);
        assert_eq!(located(&args(Network::Regtest, None, &[])).params.bip65_height, Height(9));
    }

    /// Headers were accepted that bitcoind rejects with this option.
    #[test]
    fn regtest_has_the_rules_of_bip94_if_an_option_or_the_file_says_so() {
        let dir = TempDir::new().unwrap();
        let args = |network| args(dir.path(), network, None, &[]);
        let has_it = |args: &CoreArgs| located(args).params.enforce_bip94;
        let plain = args(Network::Regtest);
        let told = CoreArgs { test: vec!["bip94".to_owned()], ..plain.clone() };
        assert_eq!((has_it(&plain), has_it(&told)), (false, true));
        assert!(located(&told).flags().join(" ").ends_with("--chain regtest --test bip94"));
        fs::write(dir.path().join("bitcoin.conf"), "test=addrman\ntest=bip94\n").unwrap();
        assert_eq!((has_it(&plain), has_it(&args(Network::Signet))), (true, false));
    }

    /// Those in the folder of the public signet, of another node, were read.
    #[test]
    fn the_settings_and_the_log_of_a_custom_signet_are_in_its_own_folder() {
        let dir = TempDir::new().unwrap();
        for folder in ["signet", "signet_54d26fbd"] {
            fs::create_dir_all(dir.path().join(folder).join("blocks")).unwrap();
            let conf = dir.path().join(folder).join("node.conf").display().to_string();
            let log = format!("2026 Bitcoin Core version v32.0.0\n2026 Config file: {conf}\n");
            fs::write(dir.path().join(folder).join("debug.log"), log).unwrap();
        }
        let own = dir.path().join("signet_54d26fbd");
        fs::write(dir.path().join("signet/settings.json"), "").unwrap();
        fs::write(own.join("settings.json"), r#"{"prune": "700"}"#).unwrap();
        for (root, challenge) in [(dir.path(), Some("51")), (&*own, None)] {
            let found = located(&args(root, Network::Signet, challenge, &[]));
            assert_eq!((found.prune, found.settings.faults.len()), (Some(700), 0));
            assert!(found.bitcoin_conf.ignored.concat().contains("signet_54d26fbd/node.conf"));
        }
    }

    /// The blocks of such a node were called invalid; and again if the file had an option of the same name.
    /// With `-notestactivationheight`, each command ended.
    #[test]
    fn what_only_the_command_line_of_bitcoinds_last_start_had_is_taken_from_its_log() {
        let dir = TempDir::new().unwrap();
        let args = |heights: &[&str]| args(dir.path(), Network::Regtest, None, heights);
        let heights = ["\"segwit@9\"", "false", "\"csv@5\"", "\"cltv@6\""];
        let heights = heights.map(|value| format!("2026 Command-line arg: testactivationheight={value}\n"));
        let told = heights.concat() + "2026 Command-line arg: test=\"bip94\"\n";
        fs::create_dir(dir.path().join("regtest")).unwrap();
        let log = format!("2026 Bitcoin Core version v31.0.0\n{told}");
        fs::write(dir.path().join("regtest/debug.log"), log).unwrap();
        let found = located(&args(&[]));
        assert_eq!(found.params.activation_heights(), "segwit@0 bip34@1 dersig@1 cltv@6 csv@5 bip94");
        // Nor is bitcoind to be started without them.
        let flags = "-testactivationheight=csv@5 -testactivationheight=cltv@6 -test=bip94";
        assert!(found.core_flags(dir.path()).join(" ").ends_with(flags));
        let (csv, cltv) = (Height(7), Height(1));
        let given = located(&args(&["csv@7"])).params;
        assert_eq!((given.csv_height, given.bip65_height), (csv, cltv));
        fs::write(dir.path().join("bitcoin.conf"), "testactivationheight=csv@7\n").unwrap();
        let from_file = located(&args(&[])).params;
        assert_eq!((from_file.csv_height, from_file.bip65_height), (csv, Height(6)));
        // What it took back in the end counted if the file had it.
        let log = "2026 Bitcoin Core version v31.0.0\n2026 Command-line arg: testactivationheight=false\n";
        fs::write(dir.path().join("regtest/debug.log"), log).unwrap();
        assert_eq!(located(&args(&[])).params.csv_height, ChainParams::of(Network::Regtest).csv_height);
    }

    /// They were for regtest only, and the file's did not count beside those of the command line.
    #[test]
    fn of_all_activation_heights_the_last_of_the_file_counts_on_each_chain_but_main() {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("bitcoin.conf"), "testactivationheight=csv@7\nsignetchallenge=51\n")
            .unwrap();
        for network in Network::ALL {
            let usual = ChainParams::of(network);
            let heights: &[&str] = if network == Network::Main { &[] } else { &["csv@5", "cltv@6"] };
            let params = located(&args(dir.path(), network, None, heights)).params;
            let expected = match network {
                Network::Main => (usual.csv_height, usual.bip65_height),
                _ => (Height(7), Height(6)),
            };
            assert_eq!((params.csv_height, params.bip65_height), expected, "{network}");
            assert_eq!(params.magic != usual.magic, network == Network::Signet);
        }
    }
}
