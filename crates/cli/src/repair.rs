//! The command `peregrine repair`: its options and its report.

use crate::{
    args::common::{DatadirArgs, IndexArgs, ResumeArgs, RunArgs},
    core_args::Located,
    index::IndexesAfter,
    paths,
    peer_args::PeerArgs,
    peers::Saving,
    progress::stages,
    report::{self, notes_text, undo_files_text},
    run,
    sync::shortfall_text,
    units::{count, counted},
};
use clap::Args as ClapArgs;
use engine::{Error, HumanSize, RealDisk};
use peregrine::{exit::Exit, output::Done};
use std::path::PathBuf;
use sync::{DownloadReport, RepairOptions, RepairReport};

#[derive(ClapArgs, Debug)]
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
    pub resume: ResumeArgs,

    #[command(flatten)]
    pub run: RunArgs,
}

impl RepairArgs {
    /// Returns the engine's options.
    fn options(&self, located: &Located) -> Result<RepairOptions, Error> {
        Ok(RepairOptions {
            chain: self.datadir.chain_options(located, &self.run),
            resume: self.resume.options(),
            set_aside_indexes: self.indexes.set_aside(),
            sources: self.from.clone(),
            peers: self.peers.options(located)?,
        })
    }
}

/// Runs the command.
pub fn run(args: &RepairArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let mut options = args.options(&located)?;
    let after = IndexesAfter::new(&located, &args.indexes.named, &options.chain, args.run.progress)
        .observing(&mut options.chain);
    paths::check_work_dir(&located, args.run.work_dir.as_deref())?;
    let stages = if args.from.is_empty() { stages::REPAIR } else { stages::REPAIR_FROM };
    let report = run::run(Some(&options.chain), args.run.progress, stages, |progress, interrupt| {
        sync::repair(&RealDisk, &options, &Saving { located: &located, sink: progress }, interrupt)
    })?;
    let exit = if report.shortfall.is_some() { Exit::Environment } else { Exit::Done };
    after.reply(report, exit, repair_text)
}

fn repair_text(report: &RepairReport) -> String {
    let RepairReport { damaged, lost, lost_files, missing, damaged_undo, .. } = report;
    let parts = [
        (damaged - lost, "damaged".to_owned()),
        (*lost, format!("in {}", counted(*lost_files, "missing file"))),
        (*missing, "in no file".to_owned()),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(number, what)| format!("{} {what}", count(*number))).collect();
    let mut text = match parts.is_empty() {
        true => "blocks             none is damaged or missing".to_owned(),
        false => format!("blocks             {}", parts.join(", ")),
    };
    for error in &report.first {
        text += &format!("\n                   {}", error.fact_text());
    }
    if report.others > 0 {
        text += &format!("\n                   and {} more", count(report.others));
    }
    if report.taken > 0 {
        let (blocks, bytes) = (counted(report.taken, "block"), HumanSize(report.taken_bytes));
        text += &format!("\ntaken              {blocks}, {bytes} from other files");
    }
    if let Some(DownloadReport { blocks, bytes, peers, .. }) = report.download {
        let (blocks, peers) = (counted(blocks, "block"), counted(peers, "peer"));
        text += &format!("\ndownloaded         {blocks}, {} from {peers}", HumanSize(bytes));
    }
    text += &format!("\nstored             all blocks up to height {}", report.height);
    if let Some(shortfall) = &report.shortfall {
        text += &shortfall_text(shortfall, report.height);
    }
    if *damaged_undo > 0 {
        text += &format!("\nundo data          of {damaged_undo} blocks was damaged");
    }
    text += &notes_text(&report.notes);
    match (&report.rebuild, &report.undo) {
        (Some(rebuild), _) => text + "\n\n" + &report::reindex_text(rebuild, None),
        (None, Some(made)) if made.undo.blocks > 0 => {
            text + &format!(
                "\nundo data          {}\nchainstate         sound, and left as it is",
                undo_files_text(&made.undo)
            )
        }
        (None, _) => text + "\nchainstate         sound, and left as it is",
    }
}
