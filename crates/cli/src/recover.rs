//! The command `peregrine recover`.

use crate::{core_args::CoreJsonArgs, prelude::*, run_note::RunNote};
use engine::recover::{Recovery, RecoveryReport};

pub fn run(args: &CoreJsonArgs) -> Done {
    let located = args.core.locate()?;
    let report = engine::recover(&RealDisk, &located.location())?;
    if report.recovery.is_some() {
        RunNote::remove_if_over(&located.datadir());
    }
    Ok(reply(&report, Exit::Done, rows))
}

fn rows(report: &RecoveryReport) -> Rows {
    let outcome = match report.recovery {
        Some(Recovery::Finished) => "finished: all new databases are in place",
        Some(Recovery::Undone) => {
            "undone: the datadir was used after the interruption; all old databases are in place"
        }
        Some(Recovery::Abandoned) => {
            "given up: old and new databases were used after the interruption, and those in use were kept"
        }
        None if report.has_removed => {
            "none was interrupted; what an interrupted run was building, or its temporary files, were removed"
        }
        None => "none was interrupted: there is nothing to do",
    };
    Rows::default().row("datadir", report.dir.display()).row("replacement", outcome)
}
