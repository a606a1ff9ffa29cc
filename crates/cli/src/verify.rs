//! The command `peregrine verify`.

use crate::{
    prelude::*,
    report,
    run::record,
    shared_report::{RecordedOptions, ReportToShare},
};
use engine::verify::VerifyReport;

#[derive(Args, Debug)]
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

pub fn verify(args: &VerifyArgs) -> Done {
    let datadir = &args.check.datadir;
    let located = datadir.core.locate()?;
    let options = ChainOptions { stop_at_height: args.to.map(Height), ..args.check.options(&located) };
    let files = [("--report", args.report.as_deref())];
    paths::check(&located, args.check.run.work_dir.as_deref(), &files)?;
    let exit = |report: &VerifyReport| if report.differs() { Exit::Damaged } else { Exit::Done };
    let (report, shared) =
        record(Some(&options), datadir.progress, stages::VERIFY, |recorder, interrupt| {
            let recorded = RecordedOptions {
                against_chainstate: args.against_chainstate,
                ..RecordedOptions::of(&args.check, &options)
            };
            let chainstate = located.datadir().chainstate_dir();
            let shared =
                ReportToShare::new(args.report.as_deref(), "verify", recorded, &located, &chainstate)?;
            let watch = Watch { sink: recorder, interrupt };
            let report = engine::verify(&RealDisk, &options, args.against_chainstate, watch);
            let exit = report.as_ref().map_or(Exit::Done, exit);
            let shared = shared.and_then(|shared| shared.write(recorder, report.as_ref(), exit));
            Ok((report?, shared))
        })?;
    Ok(reply(&report, exit(&report), |report| report::verify_rows(report).each("to be shared", &shared)))
}
