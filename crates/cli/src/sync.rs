//! The command `peregrine sync`: its options and its report.

use crate::{
    args::common::{IndexArgs, MarkArgs, OnHintFailure},
    hint_location::HintLocation,
    index::IndexesAfter,
    peer_args::{PeerArgs, is_direct},
    prelude::*,
    report::{self, undo_files_text},
    run::record,
    units::duration,
    update::update_rows,
};
use engine::hints::{AggregateKind, HintOptions};
use sync::{
    DownloadReport, FollowEnd, FollowReport, MIN_PRUNE_BYTES, MarkedBranch, Shortfall, SyncOptions,
    SyncReport,
};

#[derive(Args, Debug)]
pub struct SyncArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    #[command(flatten)]
    pub peers: PeerArgs,

    /// Download only the blocks; bitcoind, or another run, does the rest
    #[arg(long)]
    pub blocks_only: bool,

    /// Delete block files that are not needed any more, so that they take about this much space (550M or
    /// more; hints or a larger size make it faster); then run bitcoind with -prune
    #[arg(long, value_name = "SIZE", value_parser = prune_size, conflicts_with = "blocks_only")]
    pub prune: Option<u64>,

    /// Make a full node of a pruned one: download the deleted blocks again and make their undo data; until
    /// that is done, it stays a pruned node on which bitcoind starts
    #[arg(long, conflicts_with_all = ["prune", "blocks_only", "to"])]
    pub unprune: bool,

    /// Ask peers that offer them for the coins that blocks spend (BIP 455, a draft), so that each block is
    /// checked once; not with --prune, --unprune, --hints and --blocks-only
    #[arg(long, conflicts_with_all = ["prune", "unprune", "hints", "blocks_only"], hide_short_help = true)]
    pub spent_coins: bool,

    /// Stay at the tip: connect new blocks and follow reorganisations until Ctrl-C, or until bitcoind is
    /// started; not with --blocks-only, --prune and --to
    #[arg(long, conflicts_with_all = ["blocks_only", "prune", "to"])]
    pub follow: bool,

    /// Stop at this height
    #[arg(long, value_name = "HEIGHT", alias = "stop-at-height")]
    pub to: Option<u32>,

    /// Use SwiftSync hints: less work and less memory; spend rules up to their last block rest on
    /// --assumevalid. A file may be packed with xz or gzip; a URL is downloaded by https, through --proxy if
    /// that is given
    #[arg(long, value_name = "FILE|URL")]
    pub hints: Option<HintLocation>,

    /// With --hints: what to do if the hints turn out to be wrong; join: not with --prune
    #[arg(long, value_enum, default_value_t = OnHintFailure::Stop, requires = "hints")]
    #[arg(hide_short_help = true)]
    pub on_hint_failure: OnHintFailure,

    #[command(flatten)]
    pub indexes: IndexArgs,

    #[command(flatten)]
    pub marks: MarkArgs,

    #[command(flatten)]
    pub resume: ResumeArgs,

    #[command(flatten)]
    pub run: RunArgs,
}

/// Parses the space for block files; units are binary, as for --memory.
fn prune_size(text: &str) -> Result<u64, String> {
    match size(text) {
        Ok(size) if size >= MIN_PRUNE_BYTES => Ok(size),
        _ => Err("give a size of at least 550M, as bitcoind needs".to_owned()),
    }
}

impl SyncArgs {
    /// Refuses what cannot be done because of other options.
    fn check(&self) -> Result<(), Error> {
        let kinds = &self.indexes.named.kinds;
        let needs_undo = |does: bool| kinds.iter().any(|kind| kind.needs_undo() == does);
        let detail = match self {
            Self { prune: Some(_), .. } if needs_undo(false) => {
                "bitcoind keeps no txindex and no txospenderindex with -prune; leave out these or --prune"
            }
            Self { prune: Some(_), on_hint_failure: OnHintFailure::Join, .. } => {
                "--on-hint-failure join needs the blocks that --prune deletes; leave out one of them"
            }
            Self { hints: Some(_), .. } if needs_undo(true) => {
                "blockfilterindex and coinstatsindex are made from the coins that blocks spend, which are \
                 not known with --hints; leave out one of them"
            }
            Self { blocks_only: true, .. } | Self { follow: true, .. } if !kinds.is_empty() => {
                "--index makes indexes up to the chainstate's best block when the run is done; leave out \
                 --blocks-only and --follow, or run peregrine index make afterwards"
            }
            _ => return Ok(()),
        };
        Err(Error::usage(detail))
    }

    fn options(&self, located: &Located) -> Result<SyncOptions, Error> {
        self.check()?;
        let args = self.peers.like_node(located)?;
        let peers = args.options(located)?;
        self.hints.as_ref().map_or(Ok(()), |hints| hints.check(args.proxy))?;
        if let Some(HintLocation::Url(url)) = &self.hints
            && args.proxy.is_none()
            && !peers.networks.iter().any(is_direct)
        {
            let detail = format!("{url}: --onlynet excludes a direct connection to it");
            let remedy = "give --proxy, or download the hints yourself";
            return Err(Error::usage(format!("{detail}; {remedy}")));
        }
        Ok(SyncOptions {
            chain: ChainOptions {
                resume: self.resume.options(),
                stop_at_height: self.to.map(Height),
                ..self.marks.of(self.datadir.chain_options(located, &self.run))
            },
            set_aside_indexes: self.indexes.set_aside(),
            hints: self.hints.as_ref().map(|hints| HintOptions {
                file: hints.source(args.proxy),
                format: None,
                aggregate: AggregateKind::Sha256,
                without_undo: true,
                on_failure_join: self.on_hint_failure == OnHintFailure::Join,
                wanted_indexes: located.index_kinds(),
            }),
            blocks_only: self.blocks_only,
            prune_bytes: self.prune,
            unprune: self.unprune,
            spent_coins: self.spent_coins,
            follow: self.follow,
            peers,
        })
    }
}

pub fn run(args: &SyncArgs) -> Done {
    let located = args.datadir.core.locate_new()?;
    let mut options = args.options(&located)?;
    let after = IndexesAfter::new(&located, &args.indexes.named, &options.chain, args.datadir.progress)
        .observing(&mut options.chain);
    paths::check(&located, args.run.work_dir.as_deref(), &[])?;
    let stages = match (args.blocks_only, args.follow) {
        (true, _) => stages::BLOCKS_ONLY,
        (false, true) => stages::FOLLOW,
        (false, false) if args.prune.is_some() => stages::PRUNE,
        (false, false) => stages::SYNC,
    };
    let report = record(Some(&options.chain), args.datadir.progress, stages, |recorder, interrupt| {
        sync::sync(&RealDisk, &options, recorder, interrupt)
    })?;
    let exit = match (&report.follow, &report.left_out, &report.shortfall) {
        // However a stay at the tip ends, it is no failure.
        (Some(_), ..) | (None, None, None) => Exit::Done,
        (None, Some(_), _) => Exit::Consensus,
        (None, None, Some(_)) => Exit::Environment,
    };
    after.reply(report, exit, |report| {
        let is_unused = args.hints.is_some() && report.rebuild.is_none();
        let unused = is_unused.then_some("not used: the chainstate was not rebuilt");
        sync_rows(report, located.prune).each("hints", unused)
    })
}

/// Returns up to where peers claim blocks, and why they are not there.
pub fn shortfall_text(shortfall: &Shortfall, height: Height) -> String {
    let Shortfall { claimed, is_clock_behind, reasons } = shortfall;
    let mut lines = vec![format!("ends at height {height}, and peers claim blocks up to {claimed}")];
    lines.extend(reasons.iter().map(ToString::to_string));
    let help = match is_clock_behind {
        true => "if this machine's clock is wrong, correct it; then run the command again",
        false => "name a peer that has them with --connect, or pass --wait",
    };
    lines.push(help.to_owned());
    lines.join("\n")
}

fn follow_text(report: &FollowReport) -> String {
    let end = match report.end {
        FollowEnd::Interrupted => "interrupted",
        FollowEnd::DatadirInUse => "another process uses the datadir now",
        FollowEnd::DatadirChanged => "another process has changed the datadir",
    };
    let (time, connected) = (duration(report.elapsed), counted(report.connected, "block"));
    format!("for {time}: connected {connected}, disconnected {}; {end}", report.disconnected)
}

/// `conf_prune`: to how many MiB the configuration file lets bitcoind prune, if it does.
fn sync_rows(report: &SyncReport, conf_prune: Option<u64>) -> Rows {
    let DownloadReport { blocks, bytes, duplicate_bytes, found, peers, elapsed, pruned, .. } =
        report.download;
    let DownloadReport { blocks_with_coins, coins_bytes, .. } = report.download;
    let seconds = elapsed.as_secs_f64();
    let downloaded = format!(
        "{}, {} from {} in {seconds:.1} s ({}/s)",
        counted(blocks, "block"),
        HumanSize(bytes),
        counted(peers, "peer"),
        HumanSize((bytes as f64 / seconds.max(1e-3)) as u64)
    );
    let then = report.elapsed.checked_sub(elapsed).filter(|_| report.rebuild.is_some());
    let then = then.map(|then| format!("download {seconds:.1} s, then {:.1} s", then.as_secs_f64()));
    let coins = (blocks_with_coins > 0)
        .then(|| format!("those of {}, {}", counted(blocks_with_coins, "block"), HumanSize(coins_bytes)));
    let headers = (report.header_height > report.height)
        .then(|| format!("; headers up to height {}", report.header_height));
    let chainstate = report.chainstate_height.filter(|best| *best < report.height).map(|best| {
        let left = counted(report.height.0 - best.0, "block");
        format!("at height {best}; bitcoind connects {left} above it")
    });
    let left_out = report.left_out.map(|MarkedBranch { height, hash, tip }| {
        format!(
            "the peers' blocks from {height} to {tip}: this datadir marks block {hash}\n\
             as invalid; --reconsider {hash} has it checked"
        )
    });
    let prune = report.prune_bytes.map(|bytes| bytes >> 20);
    let level = if report::lacks_last_undo(&report.notes) { " -checklevel=1" } else { "" };
    let pruned = prune.map(|mib| format!("{pruned} blocks deleted; start bitcoind with -prune={mib}{level}"));
    let full = match conf_prune {
        None => "all blocks are stored: start bitcoind without -prune",
        Some(_) => {
            "all blocks are stored: start bitcoind without -prune\n\
             remove prune= from bitcoin.conf first, or it deletes them again"
        }
    };
    let notes = report.notes.iter().filter(|_| report.rebuild.is_none());
    let rows = Rows::default()
        .row("downloaded", downloaded)
        .each("time", then)
        .each("spent coins", coins)
        .each("", (duplicate_bytes > 0).then(|| format!("{} came twice", HumanSize(duplicate_bytes))))
        .each("", (found > 0).then(|| format!("{found} blocks were in the block files already")))
        .row("blocks", format!("up to {} ({}){}", report.hash, report.height, headers.unwrap_or_default()))
        .each("chainstate", chainstate)
        .each("left out", left_out)
        .each("incomplete", report.shortfall.iter().map(|lack| shortfall_text(lack, report.height)))
        .each("undo data", report.undo.as_ref().map(|made| undo_files_text(&made.undo)))
        .each("pruned", pruned)
        .each("full node", report.unpruned.then_some(full))
        .each("note", notes.map(warning_text));
    let follow = report.follow.as_ref().map(follow_text);
    let then = [
        report.rebuild.as_ref().map(|rebuild| report::reindex_rows(rebuild, prune, false)),
        report.update.as_ref().map(|update| update_rows(update, prune)),
        follow.map(|follow| Rows::default().row("at the tip", follow)),
    ];
    then.into_iter().flatten().fold(rows, Rows::then)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        args::{Args, Command},
        peer_args::{PEERS, PEERS_BEHIND_PROXY},
    };
    use clap::Parser as _;
    use sync::NetworkKind;

    fn options(more: &str) -> Result<SyncOptions, String> {
        let datadir = if more.contains("--datadir") { "" } else { "--datadir d" };
        let line = format!("peregrine sync {datadir} --chain regtest {more}");
        let args = Args::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?;
        let Command::Sync(args) = args.command else { panic!("sync") };
        let located = args.datadir.core.locate_new().map_err(|error| error.to_string())?;
        args.options(&located).map_err(|error| error.to_string())
    }

    fn connect(more: &str) -> Vec<String> {
        options(more).unwrap().peers.connect.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn peers_are_named_with_and_without_ports() {
        assert_eq!(connect("--connect 1.2.3.4 --connect 1.2.3.4:5"), ["1.2.3.4:18444", "1.2.3.4:5"]);
        assert_eq!(connect("--connect ::1 --connect [::1]:7"), ["[::1]:18444", "[::1]:7"]);
        for more in ["", "--proxy 127.0.0.1:9050"] {
            assert_eq!(connect(&format!("--connect node.example {more}")), ["node.example:18444"]);
        }
        let i2p = format!("{}.b32.i2p", "a".repeat(52));
        assert_eq!(connect(&format!("--i2psam 127.0.0.1:7656 --connect {i2p}")), [format!("{i2p}:0")]);
    }

    #[test]
    fn what_is_of_use_together_is_accepted() {
        assert!(options("--follow").unwrap().follow);
        assert!(options("--spent-coins").unwrap().spent_coins && !options("").unwrap().spent_coins);
        assert!(options("--wait").unwrap().peers.wait && !options("").unwrap().peers.wait);
        let onion = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion";
        for other in [
            "--spent-coins --index coinstatsindex",
            "--prune 1G --index blockfilterindex",
            "--hints h --index txindex",
            // It was refused, though it changes nothing.
            "--hints h --on-hint-failure stop --prune 1G",
            "--index txindex",
            &format!("--connect {onion} --proxy 127.0.0.1:9050"),
        ] {
            assert!(options(other).is_ok(), "{other}");
        }
    }

    #[test]
    fn a_proxy_means_fewer_peers_and_onion_addresses() {
        let plain = options("--hints h --dnsseed 0 --to 9").unwrap();
        assert_eq!((plain.peers.peers_max, plain.peers.use_dns_seeds), (PEERS, false));
        assert_eq!(plain.peers.networks, [NetworkKind::Ipv4, NetworkKind::Ipv6]);
        assert!(plain.hints.is_some_and(|hints| hints.without_undo));
        assert_eq!(plain.chain.stop_at_height, Some(Height(9)));
        let proxied = options("--proxy 127.0.0.1:9050").unwrap();
        assert_eq!(proxied.peers.peers_max, PEERS_BEHIND_PROXY);
        assert!(proxied.peers.networks.contains(&NetworkKind::Onion));
        let i2p = options("--i2psam 127.0.0.1:7656").unwrap().peers;
        assert!(i2p.networks.contains(&NetworkKind::I2p) && i2p.use_dns_seeds);
        let i2p = options("--i2psam 127.0.0.1:7656 --onlynet i2p").unwrap().peers;
        assert_eq!((i2p.networks, i2p.use_dns_seeds), (vec![NetworkKind::I2p], false));
        let onion = options("--onlynet onion --proxy 127.0.0.1").unwrap().peers;
        assert_eq!((onion.networks, onion.proxy), (vec![NetworkKind::Onion], "127.0.0.1:9050".parse().ok()));
        assert!(!onion.use_dns_seeds && proxied.peers.use_dns_seeds);
        assert_eq!(options("--max-download-rate 500k").unwrap().peers.bytes_per_second, Some(500_000));
    }

    /// Settings of bitcoind once were ignored: a node that was kept in Tor showed itself.
    #[test]
    fn a_node_that_connects_to_no_peer_directly_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let options = |conf: &str, more: &str| {
            std::fs::write(dir.path().join("bitcoin.conf"), format!("[regtest]\n{conf}")).unwrap();
            let datadir = dir.path().display();
            self::options(&format!("--datadir {datadir} {more}")).map(|options| options.peers)
        };
        let tor = "proxy=127.0.0.1:9050\nonlynet=onion\n";
        let peers = options(tor, "").unwrap();
        assert_eq!((peers.proxy, peers.networks), ("127.0.0.1:9050".parse().ok(), vec![NetworkKind::Onion]));
        assert!(!peers.use_dns_seeds);
        assert_eq!(options("connect=10.0.0.9:7\n", "").unwrap().connect[0].to_string(), "10.0.0.9:7");
        let named = options(tor, "--connect 10.0.0.9").unwrap();
        assert_eq!((named.proxy, named.connect.len()), (None, 1), "the command line says how");
        for direct in ["", "onlynet=ipv4\nonlynet=onion\n", "onion=127.0.0.1:9050\n", "proxy=0\n"] {
            assert!(options(direct, "").unwrap().use_dns_seeds, "{direct}");
        }
        for conf in ["connect=0\n", "proxy=unix:/run/tor\n", "onlynet=onion\n"] {
            let error = options(conf, "").unwrap_err();
            assert!(error.contains("bitcoind") || error.contains("--proxy"), "{error}");
        }
    }

    #[cfg(feature = "hints-url")]
    #[test]
    fn hints_are_downloaded_from_networks_that_the_user_allows() {
        let url = "--hints https://hints.example/file";
        for more in ["", "--onlynet ipv6", "--onlynet onion --proxy 127.0.0.1:9050"] {
            let hints = options(&format!("{url} {more}")).unwrap().hints.unwrap();
            assert_eq!(hints.file.name().to_str(), Some("https://hints.example/file"));
        }
    }
}
