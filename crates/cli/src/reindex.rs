//! The command `peregrine reindex`.

use crate::{
    args::common::{IndexArgs, MarkArgs, OnHintFailure},
    hint_location::HintLocation,
    index::IndexesAfter,
    prelude::*,
    report,
    run::record,
    shared_report::{RecordedOptions, ReportToShare},
    storage::StorageJson,
};
use engine::{
    UndoPolicy,
    hints::{AggregateKind, HintOptions},
    reindex::{Engine, ReindexOptions},
};
use peregrine::{run_log::Run, running::set_place};
use std::net::SocketAddr;

#[derive(Args, Debug)]
pub struct ReindexArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    /// Stop at this height: rebuild the UTXO set as it was after that block
    #[arg(long, value_name = "HEIGHT", alias = "stop-at-height")]
    pub to: Option<u32>,

    /// How coins that are spent are found: join reads blocks in any order, on all cores; cache connects them
    /// in order over a coins cache, as Bitcoin Core does, with the same result, and without --hints
    #[arg(long, value_name = "join|cache", default_value_t = Engine::Join)]
    #[arg(hide_short_help = true)]
    pub engine: Engine,

    #[command(flatten)]
    pub resume: ResumeArgs,

    /// Proceed even if the new chainstate or block index covers fewer blocks than the one it replaces
    #[arg(long)]
    pub accept_lower_tip: bool,

    /// Read all blocks first, and rebuild up to the block below the lowest one that is damaged or missing.
    /// The block index keeps only the headers of such blocks, so that bitcoind downloads these and no others
    #[arg(long)]
    pub until_damage: bool,

    /// Use the block in this file in place of one that is damaged or missing; can be given repeatedly. The
    /// file has it as bytes or as hex digits, as bitcoin-cli getblock HASH 0 prints it; the header in the
    /// block index proves that it is the right one
    #[arg(long = "block", value_name = "FILE", conflicts_with_all = ["scan", "output"])]
    pub blocks: Vec<PathBuf>,

    /// Keep the replaced databases as chainstate.old and, with --scan, blocks/index.old
    #[arg(long, conflicts_with = "output")]
    pub keep_old: bool,

    #[command(flatten)]
    pub indexes: IndexArgs,

    #[command(flatten)]
    pub marks: MarkArgs,

    /// Use SwiftSync hints: less memory, and less work with --without-undo. A file may be packed with xz or
    /// gzip; a URL is downloaded by https
    #[arg(long, value_name = "FILE|URL")]
    pub hints: Option<HintLocation>,

    /// With --hints: download them through this SOCKS5 proxy, which resolves their name
    #[arg(long, value_name = "ADDRESS:PORT", requires = "hints")]
    pub proxy: Option<SocketAddr>,

    /// With --hints: hash that the sum over created and spent outputs is built from: sha256, siphash128 or
    /// muhash
    #[arg(long, default_value_t = AggregateKind::Sha256, requires = "hints", hide_short_help = true)]
    pub aggregate: AggregateKind,

    /// With --hints: use no undo data up to the last hinted block; spend rules there rest on
    /// --assumevalid. Undo data above it, and that of the last 288 blocks, is made where it is missing
    #[arg(long, requires = "hints", hide_short_help = true)]
    pub without_undo: bool,

    /// With --hints: what to do if the hints turn out to be wrong
    #[arg(long, value_enum, default_value_t = OnHintFailure::Stop, requires = "hints")]
    #[arg(hide_short_help = true)]
    pub on_hint_failure: OnHintFailure,

    /// Write the new chainstate (with --scan also a new block index) to this datadir; leave --datadir
    /// unchanged
    #[arg(long, value_name = "DIR2")]
    pub output: Option<PathBuf>,

    /// Write the run's log to this new file, as JSON lines: for peregrine-bench plot
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    /// Write a report to this new file that can be sent to the developers: machine, times and result, without
    /// names and paths
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

impl ReindexArgs {
    /// Refuses options that contradict each other.
    fn check_combination(&self) -> Result<(), Error> {
        let indexes = &self.indexes.named.kinds;
        let detail = if self.output.is_some() && !indexes.is_empty() {
            "--index is about indexes of the datadir, which --output leaves as it is"
        } else if self.without_undo && indexes.iter().any(|kind| kind.needs_undo()) {
            "blockfilterindex and coinstatsindex are made from undo data, which --without-undo leaves missing"
        } else if self.hints.is_some() && !self.without_undo && self.check.undo == UndoPolicy::Make {
            "--hints reads undo data, which --undo make leaves unread"
        } else {
            return Ok(());
        };
        Err(Error::usage(format!("{detail}; leave out one of them")))
    }

    pub fn options(&self, located: &Located) -> ReindexOptions {
        let chain = ChainOptions {
            resume: self.resume.options(),
            stop_at_height: self.to.map(Height),
            keep_old: self.keep_old,
            ..self.marks.of(self.check.options(located))
        };
        ReindexOptions {
            chain,
            output: self.output.clone(),
            accept_lower_tip: self.accept_lower_tip,
            until_damage: self.until_damage,
            blocks: self.blocks.clone(),
            set_aside_indexes: self.indexes.set_aside(),
            engine: self.engine,
            hints: self.hints.as_ref().map(|hints| HintOptions {
                file: hints.source(self.proxy),
                format: None,
                aggregate: self.aggregate,
                without_undo: self.without_undo,
                on_failure_join: self.on_hint_failure == OnHintFailure::Join,
                wanted_indexes: located.index_kinds(),
            }),
        }
    }
}

pub fn reindex(args: &ReindexArgs) -> Done {
    let located = args.check.datadir.core.locate()?;
    if args.output.is_some() {
        // What an error is about may be there.
        set_place(Vec::new());
    }
    let mut options = args.options(&located);
    let files = [("--log", args.log.as_deref()), ("--report", args.report.as_deref())];
    let work_dir = args.check.run.work_dir.as_deref();
    args.check_combination()?;
    paths::check_reindex(&located, work_dir, &files, args.output.as_deref())?;
    args.hints.as_ref().map_or(Ok(()), |hints| hints.check(args.proxy))?;
    let style = args.check.datadir.progress;
    let after =
        IndexesAfter::new(&located, &args.indexes.named, &options.chain, style).observing(&mut options.chain);
    let (report, shared) = record(Some(&options.chain), style, stages::REINDEX, |recorder, interrupt| {
        let recorded = RecordedOptions {
            stop_at_height: args.to,
            output: args.output.is_some(),
            restart: args.resume.restart,
            hints: args.hints.is_some(),
            without_undo: args.without_undo,
            ..RecordedOptions::of(&args.check, &options.chain)
        };
        let result = args.output.clone().unwrap_or_else(|| located.datadir().chainstate_dir());
        let shared = ReportToShare::new(args.report.as_deref(), "reindex", recorded, &located, &result)?;
        let mut run = Run::of(&options.chain);
        run.machine.filesystem = StorageJson::of(&located.datadir().blocks_dir()).file_system;
        args.log.as_deref().map_or(Ok(()), |log| recorder.begin_log(log, run))?;
        let report = engine::reindex(&RealDisk, &options, Watch { sink: recorder, interrupt });
        recorder.end_log(report.as_ref());
        let shared = shared.and_then(|shared| shared.write(recorder, report.as_ref(), Exit::Done));
        Ok((report?, shared))
    })?;
    after.reply(report, Exit::Done, |report| {
        report::reindex_rows(report, None, args.output.is_some()).each("to be shared", &shared)
    })
}
