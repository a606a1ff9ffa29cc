//! The ways from the blocks of a datadir to a chainstate: with any number of threads, within any memory, with
//! each engine, by index or scan, with hints, by ranges, at once or after interrupts. All of them come to the
//! same coins, or to the same verdict: a test takes each way that a source allows, and compares.

use super::{error_text, hinted, ranges::Ranges};
use crate::prelude::*;
use engine::Counts;

/// How the coins that are spent are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// By a join of all spends with all coins.
    Join,
    /// By the same, and in order from the first block on.
    Sequential,
    /// In a cache of coins over a database.
    Cache,
    /// By a sum over coins, below the last block of hints.
    Hints {
        aggregate: AggregateKind,
        /// Whether undo data is read.
        with_undo: bool,
    },
    /// In ranges of blocks that are checked apart and merged.
    Ranges {
        /// At most this many.
        ranges: u32,
        /// Number of shards of each.
        shards: Option<u32>,
    },
}

/// A way from blocks to a chainstate. Its name is how it prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// How the coins that are spent are found.
    pub means: Means,
    pub threads: usize,
    /// Memory for the join or the cache, in bytes; `None` if it holds all.
    pub join_bytes: Option<usize>,
    /// Whether the blocks are found by a scan.
    pub scan: bool,
    /// Whether the run is interrupted and resumed a few times.
    pub is_interrupted: bool,
}

/// A join or a cache that is written after each block.
const EACH_BLOCK: Option<usize> = Some(1);

const JOIN: Way =
    Way { means: Means::Join, threads: 1, join_bytes: None, scan: false, is_interrupted: false };
const SPILLED: Way = Way { join_bytes: EACH_BLOCK, ..JOIN };
const SEQUENTIAL: Way = Way { means: Means::Sequential, ..JOIN };
const CACHE: Way = Way { means: Means::Cache, ..JOIN };

const fn by_hints(number: usize, with_undo: bool) -> Way {
    Way { means: Means::Hints { aggregate: hinted::AGGREGATES[number], with_undo }, ..JOIN }
}

const fn by_ranges(ranges: u32, shards: Option<u32>) -> Way {
    Way { means: Means::Ranges { ranges, shards }, threads: 2, ..JOIN }
}

/// All ways. The first one is the plainest.
pub const WAYS: [Way; 31] = [
    JOIN,
    Way { threads: 2, ..JOIN },
    Way { threads: 8, ..JOIN },
    Way { threads: 2, is_interrupted: true, ..JOIN },
    Way { scan: true, ..JOIN },
    Way { scan: true, threads: 8, ..JOIN },
    SPILLED,
    Way { threads: 2, ..SPILLED },
    Way { threads: 8, join_bytes: Some(100 << 10), ..SPILLED },
    Way { is_interrupted: true, ..SPILLED },
    Way { threads: 2, is_interrupted: true, ..SPILLED },
    Way { scan: true, threads: 8, ..SPILLED },
    Way { scan: true, is_interrupted: true, ..SPILLED },
    SEQUENTIAL,
    Way { threads: 8, ..SEQUENTIAL },
    Way { join_bytes: EACH_BLOCK, ..CACHE },
    Way { threads: 2, join_bytes: Some(30_000), ..CACHE },
    Way { threads: 3, ..CACHE },
    by_hints(0, true),
    Way { threads: 2, join_bytes: EACH_BLOCK, ..by_hints(1, true) },
    Way { threads: 8, is_interrupted: true, ..by_hints(2, true) },
    Way { threads: 2, join_bytes: EACH_BLOCK, is_interrupted: true, ..by_hints(0, true) },
    Way { threads: 8, ..by_hints(0, false) },
    Way { is_interrupted: true, ..by_hints(1, false) },
    Way { threads: 2, join_bytes: EACH_BLOCK, ..by_hints(2, false) },
    Way { threads: 3, join_bytes: EACH_BLOCK, is_interrupted: true, ..by_hints(1, false) },
    by_ranges(1, None),
    by_ranges(4, None),
    by_ranges(16, Some(1)),
    by_ranges(64, Some(256)),
    by_ranges(141, Some(7)),
];

/// Hints of the blocks of a source.
pub struct SourceHints {
    path: PathBuf,
    format: HintFormat,
    /// The block up to which blocks are assumed valid, if they are buried.
    assumed: Option<BlockHash>,
}

/// What a way starts from.
pub struct Source {
    /// What is the same for all ways: the datadir, its network, the undo policy.
    pub options: ReindexOptions,
    /// Height of the last block.
    pub height: u32,
    /// Hints, which are true unless a test says otherwise.
    pub hints: Option<SourceHints>,
    /// Number of last blocks for which hints are not used without undo data, but undo data is made.
    pub undo_blocks: u32,
    files: TempDir,
}

impl Source {
    /// A datadir without hints, whose last block is at this height.
    pub fn new(options: ReindexOptions, height: u32) -> Self {
        Self { options, height, hints: None, undo_blocks: 0, files: scratch() }
    }

    /// Writes a datadir of a chain, with hints for all of it, whose blocks are assumed to be valid.
    pub fn of(dir: &Path, chain: &Chain, layout: &Layout) -> Self {
        chain.write_datadir(dir, layout).unwrap();
        let (truth, tip) = (Truth::of(chain), chain.tip().height);
        let mut source = Self::new(options(dir), tip);
        hinted::bury(&dir.join("regtest/blocks/index"));
        source.hint(&truth, HintFormat::Peregrine, tip, Some(truth.hash(tip)));
        source
    }

    /// Writes hints that reach to a height.
    pub fn hint(&mut self, truth: &Truth, format: HintFormat, height: u32, assumed: Option<BlockHash>) {
        let path = self.files.path().join(format!("{format}-{height}"));
        if !path.exists() {
            truth.write(&path, format, &truth.hints(height));
        }
        self.hint_by(path, format, assumed);
    }

    /// Takes hints from a file.
    pub fn hint_by(&mut self, path: PathBuf, format: HintFormat, assumed: Option<BlockHash>) {
        self.hints = Some(SourceHints { path, format, assumed });
    }

    pub fn stop_at(&mut self, height: u32) {
        (self.height, self.options.chain.stop_at_height) = (height, Some(Height(height)));
    }

    /// Returns the ways that this source allows.
    pub fn ways(&self) -> impl Iterator<Item = Way> {
        WAYS.into_iter().filter(|way| match way.means {
            Means::Hints { with_undo, .. } => {
                self.hints.as_ref().is_some_and(|hints| with_undo || hints.assumed.is_some())
            }
            _ => true,
        })
    }

    /// Takes these ways, none of which changes the datadir.
    pub fn take(&self, ways: impl Iterator<Item = Way>, mut check: impl FnMut(Way, Result<Found, Error>)) {
        let root = &self.options.chain.datadir;
        let before = tree(root);
        for way in ways {
            check(way, way.take(self));
        }
        assert_same_tree(&before, root, "rebuilds elsewhere");
    }
}

/// What a way has led to.
pub struct Found {
    /// What is in the new chainstate, of which the report has said the same.
    pub stats: UtxoStatsReport,
    /// Numbers of blocks, transactions, inputs and outputs.
    pub counts: Counts,
    /// The files of the chainstate, by name.
    pub files: Tree,
    /// The report, unless there were ranges.
    pub report: Option<ReindexReport>,
}

impl Way {
    /// The ways that use hints, with undo data or without.
    pub fn hinted(with_undo: bool) -> impl Iterator<Item = Self> {
        let is_meant =
            move |way: &Self| matches!(way.means, Means::Hints { with_undo: with, .. } if with == with_undo);
        WAYS.into_iter().filter(is_meant)
    }

    /// Whether ranges are checked apart.
    pub const fn is_of_ranges(&self) -> bool {
        matches!(self.means, Means::Ranges { .. })
    }

    /// Whether spends are matched with undo data.
    pub const fn reads_undo(&self) -> bool {
        matches!(self.means, Means::Join | Means::Ranges { .. } | Means::Hints { with_undo: true, .. })
    }

    /// Whether undo data that is missing or damaged is made.
    pub const fn makes_undo(&self) -> bool {
        matches!(self.means, Means::Join | Means::Cache)
    }

    /// How the report says that spends were matched.
    pub const fn matching(&self) -> Matching {
        match self.means {
            Means::Sequential => Matching::Sequential,
            Means::Cache => Matching::Cache,
            Means::Hints { .. } => Matching::Swiftsync,
            _ => Matching::Parallel,
        }
    }

    /// The options of a source, changed to go this way.
    pub fn options(&self, source: &Source) -> ReindexOptions {
        let mut options = with_threads(&source.options, self.threads);
        if self.is_interrupted {
            options = bounded(&options);
        }
        options = changed(options, |it| {
            it.chain.scan = self.scan;
            it.chain.hooks.join_bytes = self.join_bytes;
            if self.join_bytes.is_some() {
                it.chain.memory_bytes = MIN_MEMORY;
            }
        });
        match self.means {
            Means::Join | Means::Ranges { .. } => {}
            Means::Sequential => options.chain.hooks.matching = Matching::Sequential,
            Means::Cache => options.engine = Engine::Cache,
            Means::Hints { aggregate, with_undo } => {
                let hints = source.hints.as_ref().unwrap();
                options = with_hints(&options, &hints.path, aggregate);
                // Few indices are valid in both byte orders, so the format must be named.
                options.hints.as_mut().unwrap().format = Some(hints.format);
                if !with_undo {
                    options = without_undo(&options, hints.assumed.unwrap());
                    options.chain.hooks.undo_blocks = source.undo_blocks;
                }
            }
        }
        options
    }

    /// Rebuilds with options of this way.
    pub fn run(&self, options: &ReindexOptions) -> Result<ReindexReport, Error> {
        if self.is_interrupted {
            let mut rng = Rng::new(0, &format!("{self:?}"));
            for _ in 0..4 {
                match run_until(options, 1 + rng.below(230)).0 {
                    Err(error) if error.kind == ErrorKind::Interrupted => {}
                    done => return done,
                }
            }
        }
        run(options)
    }

    /// Makes a chainstate in a directory of its own. Nothing else is left, unless damage is to be repaired.
    pub fn take(&self, source: &Source) -> Result<Found, Error> {
        let output = scratch();
        let options = elsewhere(self.options(source), output.path());
        let network = options.chain.params.network;
        let (said, counts, report) = match self.means {
            Means::Ranges { ranges, shards } => {
                let count = ranges.min(source.height + 1);
                let cut = Ranges::plan(options.chain, count, shards)?;
                let done = cut.run_to(output.path())?;
                // Who has checked what.
                let heights: u32 = done.ranges.iter().map(|range| range.to - range.from + 1).sum();
                let checked = (done.ranges.len(), heights, &*done.ranges[0].checker);
                assert_eq!(checked, (count as usize, source.height + 1, "machine-0"), "{self:?}");
                assert_eq!(leftovers(cut.dir.path()), [] as [&Path; 0], "{self:?}");
                let said = (done.hash, done.hash_serialized_3, done.txouts, done.total_amount);
                ((said, Some(done.muhash)), done.counts, None)
            }
            _ => match self.run(&options) {
                Ok(done) => {
                    let said = (done.hash, done.hash_serialized_3, done.txouts, done.total_amount);
                    ((said, None), done.counts, Some(done))
                }
                Err(error) => {
                    let is_final = matches!(error.kind, ErrorKind::Consensus | ErrorKind::Hints);
                    assert!(!is_final || leftovers(output.path()).is_empty(), "{self:?}: {error}");
                    let chainstate = Datadir::at(output.path(), network).chainstate_dir();
                    assert!(!chainstate.exists(), "{self:?}: {error}");
                    return Err(error);
                }
            },
        };
        let stats = stats(output.path(), network)?;
        let found = (stats.best_block, stats.hash_serialized_3, stats.txouts, stats.total_amount);
        assert_eq!(said.0, found, "{self:?}: the chainstate differs from the report");
        assert!(said.1.is_none_or(|muhash| stats.muhash == Some(muhash)), "{self:?}");
        assert_eq!(leftovers(output.path()), [] as [&Path; 0], "{self:?}");
        let files = files(&Datadir::at(output.path(), network).chainstate_dir());
        Ok(Found { stats, counts, files, report })
    }
}

/// Kind, text and place of an error, without the paths of this run.
pub fn verdict(error: &Error, root: &Path) -> String {
    let place = (error.height, error.block_hash, error.txid, &error.core, error.rule);
    format!("{} {place:?}", error_text(error, root))
}
