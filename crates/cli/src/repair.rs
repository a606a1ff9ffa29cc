//! The command `peregrine repair`: its options and its report.

use crate::{
    args::common::{IndexArgs, MarkArgs},
    index::IndexesAfter,
    peer_args::PeerArgs,
    prelude::*,
    report::{reindex_rows, undo_files_text},
    run::record,
    sync::shortfall_text,
};
use engine::Remedy;
use peregrine::{output::print_note, remedy::remedy_text};
use sync::{DownloadReport, PeerOptions, RepairOptions, RepairReport};

#[derive(Args, Debug)]
pub struct RepairArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Take blocks from the block files in this folder or datadir first, whatever their order and
    /// obfuscation; each is checked. Can be given repeatedly; peers are asked only for the rest
    #[arg(long, value_name = "DIR")]
    pub from: Vec<PathBuf>,

    #[command(flatten)]
    pub peers: PeerArgs,

    #[command(flatten)]
    pub indexes: IndexArgs,

    #[command(flatten)]
    pub marks: MarkArgs,

    #[command(flatten)]
    pub resume: ResumeArgs,

    #[command(flatten)]
    pub run: RunArgs,
}

impl RepairArgs {
    fn options(&self, located: &Located) -> Result<RepairOptions, Error> {
        let chain = self.marks.of(self.datadir.chain_options(located, &self.run));
        let peers = match self.peers.like_node(located) {
            // What files lack stays missing: nobody is asked.
            Err(error) if self.peers.addnode.is_empty() => {
                print_note(&format!("no peer is asked: {error}"));
                PeerOptions { use_dns_seeds: false, use_fixed_seeds: false, ..PeerOptions::default() }
            }
            peers => peers?.options(located)?,
        };
        Ok(RepairOptions {
            chain: ChainOptions { resume: self.resume.options(), ..chain },
            set_aside_indexes: self.indexes.set_aside(),
            sources: self.from.clone(),
            peers,
        })
    }
}

pub fn run(args: &RepairArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let mut options = args.options(&located)?;
    let after = IndexesAfter::new(&located, &args.indexes.named, &options.chain, args.datadir.progress)
        .observing(&mut options.chain);
    paths::check(&located, args.run.work_dir.as_deref(), &[])?;
    let stages = if args.from.is_empty() { stages::REPAIR } else { stages::REPAIR_FROM };
    let report = record(Some(&options.chain), args.datadir.progress, stages, |recorder, interrupt| {
        sync::repair(&RealDisk, &options, recorder, interrupt)
    })?;
    let exit = if report.shortfall.is_some() { Exit::Environment } else { Exit::Done };
    after.reply(report, exit, repair_rows)
}

/// What was wrong with the undo data of so many blocks.
fn undo_text(blocks: u32) -> String {
    format!("of {} was damaged or missing", counted(blocks, "block"))
}

fn repair_rows(report: &RepairReport) -> Rows {
    let RepairReport { damaged, lost, lost_files, missing, damaged_undo, .. } = report;
    let parts = [
        (damaged - lost, "damaged".to_owned()),
        (*lost, format!("in {}", counted(*lost_files, "missing file"))),
        (*missing, "in no file".to_owned()),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, what)| format!("{} {what}", count(*number))).collect();
    let blocks = if parts.is_empty() { "none is damaged or missing".to_owned() } else { parts.join(", ") };
    let taken = (report.taken > 0).then(|| {
        format!("{}, {} from block files", counted(report.taken, "block"), HumanSize(report.taken_bytes))
    });
    let downloaded = report.download.map(|DownloadReport { blocks, bytes, peers, .. }| {
        let (blocks, peers) = (counted(blocks, "block"), counted(peers, "peer"));
        format!("{blocks}, {} from {peers}", HumanSize(bytes))
    });
    let rows = Rows::default()
        .row("blocks", blocks)
        .each("", report.first.iter().map(Error::fact_text))
        .each("", (report.others > 0).then(|| format!("and {} more", count(report.others))))
        .each("taken", taken)
        .each("downloaded", downloaded)
        .row("stored", format!("all blocks up to height {}", report.height))
        .each("incomplete", report.shortfall.iter().map(|lack| shortfall_text(lack, report.height)))
        .each("undo data", (*damaged_undo > 0).then(|| undo_text(*damaged_undo)))
        .each("note", report.notes.iter().map(warning_text));
    if let Some(rebuild) = &report.rebuild {
        let below = (rebuild.height < report.height).then(|| {
            format!(
                "the chainstate ends at height {}, below a block that breaks a rule; peers may have another \
                 branch: {}",
                rebuild.height,
                remedy_text(&Remedy::Sync)
            )
        });
        return rows.each("note", below).then(reindex_rows(rebuild, None, false));
    }
    let made = report.undo.as_ref().map(|made| &made.undo).filter(|undo| undo.blocks > 0);
    rows.each("undo data", made.map(undo_files_text)).row("chainstate", "sound, and left as it is")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_data_that_was_deleted_is_not_called_damaged_only() {
        assert_eq!(undo_text(1), "of 1 block was damaged or missing");
        assert_eq!(undo_text(2070), "of 2,070 blocks was damaged or missing");
    }
}
