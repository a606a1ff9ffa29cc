//! The command `peregrine update`: its options and its report.

use crate::{
    args::{DatadirArgs, assume_valid, size},
    core_args::Located,
    json::{self, Report},
    limits,
    notes::NoteJson,
    progress::{Progress, Style, stages},
    report::{
        checked_text,
        json::{ScriptsJson, StageJson},
        next_text, notes_text, scripts_text, stages_text,
    },
    units::counted,
};
use clap::Args as ClapArgs;
use engine::{AssumeValid, Height, RealDisk, UpdateOptions, UpdateReport};
use peregrine::{exit::Exit, output::Done, stop::interrupt};
use serde::Serialize;

#[derive(ClapArgs, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Stop at this height
    #[arg(long, value_name = "N")]
    pub stop_at_height: Option<u32>,

    /// Do not run the scripts of this block and its ancestors, as bitcoind -assumevalid; 0: run all scripts
    /// [default: as the Bitcoin Core release that this version follows]
    #[arg(long, value_name = "HASH|0|default", value_parser = assume_valid)]
    pub assumevalid: Option<AssumeValid>,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]. The
    /// more, the fewer commits
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

impl UpdateArgs {
    /// Returns the engine's options for an update.
    fn options(&self, located: &Located) -> UpdateOptions {
        let chain = self.datadir.checking_options(located, self.memory, self.assumevalid);
        UpdateOptions { chain, stop_at_height: self.stop_at_height.map(Height) }
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpdateJson {
    chain: &'static str,
    height_before: u32,
    block_hash_before: String,
    height: u32,
    block_hash: String,
    blocks_disconnected: u32,
    blocks: u64,
    transactions: u64,
    inputs: u64,
    outputs_created: u64,
    block_bytes: u64,
    undo_written: u32,
    commits: u32,
    scripts: ScriptsJson,
    script_inputs: u64,
    threads: usize,
    seconds: f64,
    chainstate: String,
    notes: Vec<NoteJson>,
    stages: Vec<StageJson>,
}

/// Runs the command.
pub fn run(args: &UpdateArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.options(&located);
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.datadir.json)?;
    let progress = Progress::new(args.progress, stages::CONNECT);
    let report = engine::update(&RealDisk, &options, &progress, &interrupt);
    progress.close();
    let report = report?;
    Ok(match args.datadir.json {
        true => json::report(Report::Update(update_json(&report)), Exit::Done),
        false => (update_text(&report), Exit::Done),
    })
}

pub fn update_json(report: &UpdateReport) -> UpdateJson {
    UpdateJson {
        chain: report.network.name(),
        height_before: report.height_before.0,
        block_hash_before: report.hash_before.to_string(),
        height: report.height.0,
        block_hash: report.hash.to_string(),
        blocks_disconnected: report.disconnected,
        blocks: report.counts.blocks,
        transactions: report.counts.transactions,
        inputs: report.counts.inputs,
        outputs_created: report.counts.outputs,
        block_bytes: report.counts.block_bytes,
        undo_written: report.undo_written,
        commits: report.commits,
        scripts: ScriptsJson::new(report.scripts, report.height),
        script_inputs: report.counts.scripts,
        threads: report.threads,
        seconds: report.elapsed.as_secs_f64(),
        chainstate: report.chainstate.display().to_string(),
        notes: NoteJson::list(&report.notes),
        stages: StageJson::all(&report.stages),
    }
}

pub fn update_text(report: &UpdateReport) -> String {
    let counts = &report.counts;
    let before = match (report.disconnected, counts.blocks) {
        (0, 0) => "it was at the end of the stored chain already".to_owned(),
        (0, _) => format!("it was at height {}", report.height_before),
        (blocks, _) => format!(
            "it was at height {}; disconnected {} of a branch with less work",
            report.height_before,
            counted(blocks, "block")
        ),
    };
    format!(
        "chainstate of {} at height {} is in {}\n\
         block              {}\n\
         before             {before}\n\
         checked            {}\n\
         \x20                  {}, {}, {}\n\
         scripts            {}\n\
         undo data          written for {}\n\
         time               {:.2} s on {}, {}\n\
         \x20                  {}{}{}",
        report.network.name(),
        report.height,
        report.chainstate.display(),
        report.hash,
        checked_text(report.scripts, report.height),
        counted(counts.blocks, "block"),
        counted(counts.transactions, "transaction"),
        counted(counts.inputs, "input"),
        scripts_text(report.scripts, report.height),
        counted(report.undo_written, "block"),
        report.elapsed.as_secs_f64(),
        counted(report.threads as u64, "thread"),
        counted(report.commits, "commit"),
        stages_text(&report.stages),
        notes_text(&report.notes),
        next_text(&report.chainstate, 0),
    )
}
