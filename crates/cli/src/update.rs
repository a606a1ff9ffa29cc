//! The command `peregrine update`: its options and its report.

use crate::{
    args::common::{MarkArgs, NamedIndexes},
    core_args::{ASSUME_VALID, assume_valid},
    index::IndexesAfter,
    prelude::*,
    report::{chainstate_rows, checked_text, lacks_last_undo, next_text, scripts_text, stages_text},
};
use engine::{AssumeValid, Remedy, update::UpdateReport};
use peregrine::remedy::remedy_text;

#[derive(Args, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Stop at this height
    #[arg(long, value_name = "HEIGHT", alias = "stop-at-height")]
    pub to: Option<u32>,

    #[arg(long, value_name = "HASH|0|checked|default", value_parser = assume_valid, help = ASSUME_VALID)]
    pub assumevalid: Option<AssumeValid>,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]. The
    /// more, the fewer commits
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    #[command(flatten)]
    pub indexes: NamedIndexes,

    #[command(flatten)]
    pub marks: MarkArgs,
}

pub fn run(args: &UpdateArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let chain = args.datadir.checking_options(&located, args.memory, args.assumevalid);
    let options = ChainOptions { stop_at_height: args.to.map(Height), ..args.marks.of(chain) };
    let report = args
        .datadir
        .run(Some(&options), stages::CONNECT, |watch| engine::update(&RealDisk, &options, watch))?;
    let prune = report.is_pruned.then(|| located.prune_target());
    let after = IndexesAfter::new(&located, &args.indexes, &options, args.datadir.progress);
    after.reply(report, Exit::Done, |report| update_rows(report, prune))
}

/// Returns a report of an update. `prune`: to how many MiB bitcoind is to prune the node, if it is pruned.
pub fn update_rows(report: &UpdateReport, prune: Option<u64>) -> Rows {
    let counts = &report.counts;
    let height = report.height_before;
    let before = match (report.disconnected, counts.blocks) {
        (0, 0) => "it was at the end of the stored chain already".to_owned(),
        (0, _) => format!("it was at height {height}"),
        (blocks, _) => {
            let blocks = counted(blocks, "block");
            format!("it was at height {height}; disconnected {blocks} of a branch with less work")
        }
    };
    let checked = format!(
        "{}\n{}, {}, {}",
        checked_text(report.scripts),
        counted(counts.blocks, "block"),
        counted(counts.transactions, "transaction"),
        counted(counts.inputs, "input")
    );
    let time = format!(
        "{:.2} s on {}, {}\n{}",
        report.elapsed.as_secs_f64(),
        counted(report.threads as u64, "thread"),
        counted(report.commits, "commit"),
        stages_text(&report.stages)
    );
    let has_connected = counts.blocks > 0;
    let undo = || format!("written for {}", counted(report.undo_written, "block"));
    let lacks_undo = lacks_last_undo(&report.notes);
    let next = match prune {
        None if lacks_undo => remedy_text(&Remedy::MakeUndo),
        Some(mebibytes) if lacks_undo => format!("start bitcoind with -prune={mebibytes} -checklevel=1"),
        _ => next_text(&report.chainstate, 0, prune),
    };
    chainstate_rows(report.network, report.height, report.hash, &report.chainstate)
        .row("before", before)
        .each("checked", has_connected.then_some(checked))
        .each("scripts", has_connected.then(|| scripts_text(report.scripts)))
        .each("undo data", has_connected.then(undo))
        .row("time", time)
        .each("note", report.notes.iter().map(warning_text))
        .row("next", next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Datadir, Warning, update::empty_report};

    /// The user was sent to a bitcoind that does not start.
    #[test]
    fn undo_data_that_bitcoind_reads_when_it_starts_is_made_first() {
        let root = Path::new("d");
        let options = ChainOptions::reading(root, Network::Regtest);
        let mut report = empty_report(&options, &Datadir::at(root, Network::Regtest));
        let next = |report: &UpdateReport, prune| {
            let text = update_rows(report, prune).to_string();
            text.lines().last().unwrap_or_default().trim_start_matches("next").trim().to_owned()
        };
        assert!(next(&report, None).starts_with("start bitcoind: "));
        report.notes.push(Warning::LacksLastUndo { blocks: 6 });
        assert!(next(&report, None).starts_with("make it with: peregrine undo make"));
        assert_eq!(next(&report, Some(550)), "start bitcoind with -prune=550 -checklevel=1");
    }
}
