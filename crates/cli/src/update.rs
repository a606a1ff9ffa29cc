//! The command `peregrine update`: its options and its report.

use crate::{
    args::common::{DatadirArgs, MarkArgs, NamedIndexes, size},
    core_args::{ASSUME_VALID, Located, assume_valid},
    index::IndexesAfter,
    progress::{Style, stages},
    report::{checked_text, next_text, notes_text, scripts_text, stages_text},
    run,
    units::counted,
};
use clap::Args as ClapArgs;
use engine::{AssumeValid, Height, RealDisk, UpdateOptions, UpdateReport};
use peregrine::{exit::Exit, output::Done};

#[derive(ClapArgs, Debug)]
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

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

impl UpdateArgs {
    /// Returns the engine's options for an update.
    fn options(&self, located: &Located) -> UpdateOptions {
        let chain = self.datadir.checking_options(located, self.memory, self.assumevalid);
        UpdateOptions { chain: self.marks.of(chain), stop_at_height: self.to.map(Height) }
    }
}

/// Runs the command.
pub fn run(args: &UpdateArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.options(&located);
    let report = run::run(Some(&options.chain), args.progress, stages::CONNECT, |sink, interrupt| {
        engine::update(&RealDisk, &options, sink, interrupt)
    })?;
    let prune = || report.is_pruned.then(|| located.prune_target(None));
    let prune = prune();
    let after = IndexesAfter::new(&located, &args.indexes, &options.chain, args.progress);
    after.reply(report, Exit::Done, |report| update_text(report, prune))
}

/// Returns a report of an update. `prune`: to how many MiB bitcoind is to prune the node, if it is pruned.
pub fn update_text(report: &UpdateReport, prune: Option<u64>) -> String {
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
        checked_text(report.scripts),
        counted(counts.blocks, "block"),
        counted(counts.transactions, "transaction"),
        counted(counts.inputs, "input"),
        scripts_text(report.scripts),
        counted(report.undo_written, "block"),
        report.elapsed.as_secs_f64(),
        counted(report.threads as u64, "thread"),
        counted(report.commits, "commit"),
        stages_text(&report.stages),
        notes_text(&report.notes),
        next_text(&report.chainstate, 0, prune),
    )
}
