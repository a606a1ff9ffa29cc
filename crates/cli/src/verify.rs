//! The command `peregrine verify`.

use crate::{
    args::common::CheckArgs,
    paths,
    progress::stages,
    report,
    shared_report::{Outcome, RecordedOptions, Recorder},
};
use clap::Args as ClapArgs;
use engine::{ChainOptions, Event, EventSink as _, Height, RealDisk};
use peregrine::{
    exit::Exit,
    output::{Done, reply},
};
use std::path::PathBuf;

#[derive(ClapArgs, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    /// Height of the last block to check [default: the best chain on disk]
    #[arg(long, value_name = "HEIGHT", alias = "stop-at-height", conflicts_with = "against_chainstate")]
    pub to: Option<u32>,

    /// Stop at the chainstate's best block, and compare the resulting coins with the chainstate's
    #[arg(long)]
    pub against_chainstate: bool,

    /// Write a report to this new file that can be sent to the developers: machine, times and result, without
    /// names and paths
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs the command.
pub fn verify(args: &VerifyArgs) -> Done {
    let datadir = &args.check.datadir;
    let located = datadir.core.locate()?;
    let options = ChainOptions { stop_at_height: args.to.map(Height), ..args.check.options(&located) };
    paths::check_verify(&located, args.check.run.work_dir.as_deref(), args.report.as_deref())?;
    let (report, shared) = datadir.run(Some(&options), stages::VERIFY, |progress, interrupt| {
        let recorder = args.report.as_ref().map(|file| {
            let recorded = RecordedOptions {
                against_chainstate: args.against_chainstate,
                ..RecordedOptions::of(&args.check, &options)
            };
            Recorder::new(file, "verify", recorded, &located, &located.datadir().chainstate_dir())
        });
        let recorder = recorder.transpose()?;
        let sink = |event: Event| {
            recorder.iter().for_each(|recorder| recorder.event(&event));
            progress.event(event);
        };
        let report = engine::verify(&RealDisk, &options, args.against_chainstate, &sink, interrupt);
        let outcome = report.as_ref().map_or_else(Outcome::Failed, Outcome::Verified);
        let shared = recorder.map(|recorder| recorder.finish(&outcome)).transpose();
        Ok((report?, shared?))
    })?;
    let exit = if report.differs() { Exit::Damaged } else { Exit::Done };
    Ok(reply(&report, exit, |report| report::verify_rows(report).each("to be shared", &shared)))
}
