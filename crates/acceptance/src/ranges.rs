//! Ranges of a chain, planned, checked and merged in a directory of their own.

use crate::prelude::*;
use ranges::{
    CheckRangeOptions, DeltaReport, FinishRangesOptions, MergeDeltasOptions, PlanRangesOptions, RangePlan,
    RangesReport, check_range, finish_ranges, merge_deltas, plan_ranges,
};

/// A plan, and a directory for deltas.
pub struct Ranges {
    pub chain: ChainOptions,
    pub plan: RangePlan,
    pub dir: TempDir,
}

impl Ranges {
    pub fn plan(chain: ChainOptions, ranges: u32, shards: Option<u32>) -> Result<Self, Error> {
        let dir = scratch();
        let path = dir.path().join("plan.blocks");
        let options = PlanRangesOptions { chain: chain.clone(), ranges, shards };
        let plan = plan_ranges(&FaultDisk::healthy(), &options, &path, unwatched())?;
        let read = RangePlan::read(&FaultDisk::healthy(), &path)?;
        assert_eq!((read.digest(), read.tip()), (plan.digest(), plan.tip()));
        Ok(Self { chain, plan: read, dir })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn check_options(&self, range: u32) -> CheckRangeOptions {
        CheckRangeOptions {
            chain: self.chain.clone(),
            range,
            checker: format!("machine-{range}"),
            program: "a test".to_owned(),
        }
    }

    pub fn check_as(&self, options: &CheckRangeOptions, name: &str) -> Result<DeltaReport, Error> {
        check_range(&FaultDisk::healthy(), &self.plan, options, &self.path(name), unwatched())
    }

    pub fn check(&self, range: u32) -> Result<PathBuf, Error> {
        let name = format!("r{range}");
        self.check_as(&self.check_options(range), &name)?;
        Ok(self.path(&name))
    }

    pub fn check_all(&self) -> Result<Vec<PathBuf>, Error> {
        (0..self.plan.ranges()).map(|range| self.check(range)).collect()
    }

    pub fn merge(
        &self,
        inputs: &[PathBuf],
        (shard, partial): (Option<u32>, bool),
        name: &str,
    ) -> Result<PathBuf, Error> {
        let options = MergeDeltasOptions { shard, partial, threads: NonZeroUsize::new(2).unwrap() };
        let (disk, output) = (FaultDisk::healthy(), self.path(name));
        merge_deltas(&disk, &self.plan, inputs, &options, &output, unwatched())?;
        Ok(output)
    }

    pub fn merge_all(&self, inputs: &[PathBuf]) -> Result<PathBuf, Error> {
        self.merge(inputs, (None, false), "merged")
    }

    pub fn finish(
        &self,
        inputs: &[PathBuf],
        recheck_percent: Option<f64>,
        output: &Path,
    ) -> Result<RangesReport, Error> {
        let work_dir = Some(self.dir.path().to_owned());
        let options =
            FinishRangesOptions { chain: ChainOptions { work_dir, ..self.chain.clone() }, recheck_percent };
        finish_ranges(&FaultDisk::healthy(), &self.plan, inputs, &options, output, unwatched())
    }

    /// All of it, to a report and the directory of the chainstate.
    pub fn run(&self) -> Result<(RangesReport, TempDir), Error> {
        let output = scratch();
        Ok((self.run_to(output.path())?, output))
    }

    /// The same in this directory.
    pub fn run_to(&self, output: &Path) -> Result<RangesReport, Error> {
        let merged = self.merge_all(&self.check_all()?)?;
        self.finish(&[merged], None, output)
    }
}

/// The chain of the tests, cut.
pub fn cut(ranges: u32, shards: Option<u32>) -> (Case, Ranges) {
    let case = Case::new();
    let ranges = Ranges::plan(case.options().chain, ranges, shards).unwrap();
    (case, ranges)
}

/// The files of a delta, by name.
pub fn delta_files(dir: &Path) -> Tree {
    let is_run = |(name, _): &(PathBuf, _)| name.extension().is_some_and(|suffix| suffix == "run");
    files(dir).into_iter().filter(is_run).collect()
}
