//! The command `peregrine repair`: its options and its report.

use crate::{
    args::{DatadirArgs, IndexArgs, ResumeArgs, RunArgs},
    core_args::Located,
    json::{self, Report},
    limits,
    notes::NoteJson,
    paths,
    peer_args::PeerArgs,
    peers,
    progress::{Progress, stages},
    report::{self, json::ReindexJson, notes_text, undo_files_text},
    sync::SenderJson,
    undo::{MadeJson, made_json},
};
use clap::Args as ClapArgs;
use engine::{
    DownloadReport, Error, Event, EventSink as _, HumanSize, PeerEvent, RealDisk, RepairOptions, RepairReport,
};
use peregrine::{exit::Exit, output::Done, remedy::error_text, stop::interrupt};
use serde::Serialize;

#[derive(ClapArgs, Debug)]
pub struct RepairArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

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
            set_aside_indexes: self.indexes.set_aside_indexes,
            peers: self.peers.options(located)?,
        })
    }
}

/// Runs the command.
pub fn run(args: &RepairArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.options(&located)?;
    paths::check_work_dir(&located, args.run.work_dir.as_deref())?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.run.progress, stages::REPAIR);
    let sink = |event: Event| match event {
        Event::Peer(PeerEvent::Known(known)) => peers::save(&located, &known),
        event => progress.event(event),
    };
    let report = engine::repair(&RealDisk, &options, &sink, &interrupt);
    progress.close();
    let report = report?;
    Ok(match args.datadir.json {
        true => json::report(Report::Repair(Box::new(repair_json(&report))), Exit::Done),
        false => (repair_text(&report), Exit::Done),
    })
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RepairJson {
    chain: &'static str,
    height: u32,
    damaged_blocks: u32,
    missing_blocks: u32,
    damaged_undo: u32,
    /// What was wrong with the lowest damaged blocks.
    first: Vec<String>,
    blocks_downloaded: u32,
    bytes_downloaded: u64,
    senders: Vec<SenderJson>,
    rebuild: Option<ReindexJson>,
    undo: Option<MadeJson>,
    notes: Vec<NoteJson>,
}

/// Words what was wrong; how it was repaired is known.
fn fact_text(error: &Error) -> String {
    let mut error = error.clone();
    error.remedies.clear();
    error_text(&error)
}

fn repair_json(report: &RepairReport) -> RepairJson {
    let download = report.download.unwrap_or_default();
    RepairJson {
        chain: report.network.name(),
        height: report.height.0,
        damaged_blocks: report.damaged,
        missing_blocks: report.missing,
        damaged_undo: report.damaged_undo,
        first: report.first.iter().map(fact_text).collect(),
        blocks_downloaded: download.blocks,
        bytes_downloaded: download.bytes,
        senders: report.peers.iter().map(SenderJson::new).collect(),
        rebuild: report.rebuild.as_ref().map(ReindexJson::new),
        undo: report.undo.as_ref().map(|undo| made_json(undo, report.network)),
        notes: NoteJson::list(&report.notes),
    }
}

fn repair_text(report: &RepairReport) -> String {
    let RepairReport { damaged, missing, damaged_undo, .. } = report;
    let mut text = match damaged + missing {
        0 => "blocks             none is damaged or missing".to_owned(),
        _ => format!("blocks             {damaged} were damaged, {missing} missing"),
    };
    for error in &report.first {
        text += &format!("\n                   {}", fact_text(error));
    }
    if let Some(DownloadReport { blocks, bytes, peers, .. }) = report.download {
        text += &format!("\ndownloaded         {blocks} blocks, {} from {peers} peers", HumanSize(bytes));
    }
    text += &format!("\nstored             all blocks up to height {}", report.height);
    if *damaged_undo > 0 {
        text += &format!("\nundo data          of {damaged_undo} blocks was damaged");
    }
    text += &notes_text(&report.notes);
    match (&report.rebuild, &report.undo) {
        (Some(rebuild), _) => text + "\n\n" + &report::reindex_text(rebuild),
        (None, Some(made)) if made.undo.blocks > 0 => {
            text + &format!(
                "\nundo data          {}\nchainstate         sound, and left as it is",
                undo_files_text(&made.undo)
            )
        }
        (None, _) => text + "\nchainstate         sound, and left as it is",
    }
}
