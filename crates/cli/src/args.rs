//! The command line. Each flag is defined once; parser and help are derived from the definition.

pub mod common;

#[cfg(feature = "export")]
use crate::export;
use crate::{
    core_args, doctor, hints, index, packaging, range, reindex, repair, snapshot, sync, undo, update, utxo,
    verify,
};
use clap::{CommandFactory as _, Parser, Subcommand};
use peregrine::{version, wrap};

/// Rebuilds a Bitcoin Core chainstate from its block files.
#[derive(Parser, Debug)]
#[command(name = "peregrine", version, long_version = version::long_version())]
#[command(about, after_help = packaging::EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands as `--help` lists them. Those that are hardly needed are in the manual only.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Every day", &["doctor", "reindex", "sync", "repair", "verify", "index"]),
    ("Data", &["utxo", "export", "snapshot"]),
    ("Drafts and measurements", &["update", "undo", "hints", "range"]),
];

/// Returns the definition of the command line; the help lists commands in groups.
pub fn definition() -> clap::Command {
    let root = Args::command();
    let mut help = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (title, names) in GROUPS {
        help += &format!("\n{title}:\n");
        for command in names.iter().filter_map(|name| root.find_subcommand(name)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            help += &format!("  {:<12} {about}\n", command.get_name());
        }
    }
    let help = wrap::for_stream(help.trim_end(), std::io::stdout());
    root.help_template(help + "\n\nOptions:\n{options}{after-help}")
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Examine a datadir without changing it: what is damaged or missing, and which command helps
    Doctor(doctor::DoctorArgs),
    /// Rebuild the chainstate from block and undo files, and replace the old one
    Reindex(reindex::ReindexArgs),
    /// Connect the stored blocks above the chainstate, and switch to a heavier stored branch
    Update(update::UpdateArgs),
    /// Download headers and blocks from peers, and build the chainstate
    Sync(sync::SyncArgs),
    /// Download the blocks that are damaged or missing, and rebuild what needs it
    Repair(repair::RepairArgs),
    /// Finish or undo a replacement of databases that was interrupted
    Recover(core_args::CoreJsonArgs),
    /// Show what sync knows of the addresses of peers
    Peers(core_args::CoreJsonArgs),
    /// Check block and undo files as reindex does, without changing the datadir
    Verify(verify::VerifyArgs),
    /// Make, inspect, convert or check SwiftSync hints
    #[command(subcommand)]
    Hints(hints::HintsCommand),
    /// Make, inspect, verify, load, share or fetch UTXO snapshots, in the format of dumptxoutset
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Check undo data (rev files), or make what is missing or damaged
    #[command(subcommand)]
    Undo(undo::UndoCommand),
    /// Make, check or continue bitcoind's indexes: txindex, blockfilterindex, coinstatsindex, txospenderindex
    #[command(subcommand)]
    Index(index::IndexCommand),
    /// Inspect the UTXO set on disk
    #[command(subcommand)]
    Utxo(utxo::UtxoCommand),
    /// Write coins in formats of programs that work with data
    #[cfg(feature = "export")]
    #[command(subcommand)]
    Export(export::ExportCommand),
    /// Check a chain on several machines: each takes ranges of it
    #[command(subcommand)]
    Range(range::RangeCommand),
    /// Print a script that completes commands and options in a shell
    Completions(packaging::CompletionsArgs),
    /// Write the man pages to a folder
    Man(packaging::ManArgs),
}

#[cfg(test)]
mod tests {
    use super::{common::size, *};
    use engine::{Height, Network, reindex::Engine};

    #[test]
    fn command_line_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn each_command_is_in_a_group_or_in_the_manual_only() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let root = Args::command();
        let all: Vec<&str> = root.get_subcommands().map(clap::Command::get_name).collect();
        let exists = |name: &&&str| cfg!(feature = "export") || **name != "export";
        assert!(grouped.iter().filter(exists).all(|name| all.contains(name)), "{all:?}");
        let others: Vec<&str> = all.into_iter().filter(|name| !grouped.contains(name)).collect();
        assert_eq!(others, ["recover", "peers", "completions", "man"]);
    }

    /// The options have names that earlier versions gave them, too.
    #[test]
    fn flags_become_engine_options() {
        let line = "peregrine reindex --datadir d --chain test --threads 3 --stop-at-height 7 --output o \
                    --scan --engine cache --json";
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        let Command::Reindex(args) = args.command else { panic!("reindex") };
        let options = args.options(&args.check.datadir.core.locate().unwrap());
        assert_eq!((options.chain.params.network, options.chain.threads.get()), (Network::Test, 3));
        assert_eq!((options.chain.stop_at_height, options.chain.scan), (Some(Height(7)), true));
        assert!(args.check.datadir.json && options.engine == Engine::Cache);
        assert_eq!(options.output.as_deref(), Some("o".as_ref()));
    }

    #[test]
    fn sizes_are_parsed_with_units() {
        assert_eq!(size("134217728"), Ok(128 << 20));
        assert_eq!((size("128M"), size("1g"), size("2GiB")), (Ok(128 << 20), Ok(1 << 30), Ok(2 << 30)));
        assert_eq!(size("1.5G"), Ok(3 << 29));
        assert_eq!((size("256MB"), size("524288k")), (Ok(256 << 20), Ok(512 << 20)));
        for text in ["", "M", "64M", "1X", "-1G", "99999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
