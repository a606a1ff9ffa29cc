//! The commands `peregrine index make`, `check` and `update`.

use crate::{
    args::common::{NamedIndexes, index_kind},
    prelude::*,
};
use engine::Remedy;
use indexes::{
    CheckedIndexesReport, IndexKind, IndexObserver, IndexOptions, MadeIndex, MadeIndexesReport, TxForm,
};
use std::sync::Arc;

#[derive(Subcommand, Debug)]
pub enum IndexCommand {
    /// Make indexes anew beside those that are there, and then exchange them
    Make(MakeIndexArgs),
    /// Compare every row and filter with the blocks; exit code 4 if anything differs
    Check(IndexRunArgs),
    /// Continue indexes from their best blocks to the chainstate's
    Update(IndexRunArgs),
}

// Options of all commands for indexes. A doc comment would become help text.
#[derive(Args, Debug)]
pub struct IndexRunArgs {
    /// The indexes: txindex, blockfilterindex, coinstatsindex, txospenderindex [default: those in the
    /// datadir; for make, also those that bitcoin.conf turns on]
    #[arg(value_name = "NAME", value_parser = index_kind)]
    pub names: Vec<IndexKind>,

    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// Directory for temporary files [default: beside the result, or the system's if there is none]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct MakeIndexArgs {
    #[command(flatten)]
    pub run: IndexRunArgs,

    /// Rows of a txindex: by-txid, which all releases read, or by-block, which releases from 32 on read, at
    /// 40 % of the size [default: as those of the old one; by-txid if there is none]
    #[arg(long, value_name = "by-txid|by-block", hide_short_help = true)]
    pub txindex_rows: Option<TxForm>,

    /// Keep the replaced indexes, with the suffix .old
    #[arg(long)]
    pub keep_old: bool,
}

impl IndexRunArgs {
    pub fn options(&self, located: &Located) -> IndexOptions {
        let chain = self.datadir.default_options(located, self.memory);
        let chain = ChainOptions { work_dir: self.work_dir.clone(), ..chain };
        IndexOptions { kinds: self.names.clone(), ..IndexOptions::new(chain) }
    }
}

/// What a command reports that changes the chainstate, with the indexes that were continued or made after it.
#[derive(Serialize, JsonSchema)]
pub struct WithIndexes<T> {
    #[serde(flatten)]
    pub report: T,
    /// The indexes that `--index` names.
    pub indexes: Option<MadeIndexesReport>,
}

/// The indexes that a command names, and how they are made.
pub struct IndexesAfter<'a> {
    located: &'a Located,
    options: IndexOptions,
    /// The observer to which the rebuild has shown its blocks.
    observer: Option<Arc<IndexObserver>>,
    style: Style,
}

impl<'a> IndexesAfter<'a> {
    /// The indexes after a command with these options.
    pub fn new(located: &'a Located, named: &NamedIndexes, chain: &ChainOptions, style: Style) -> Self {
        // The rebuild has written the block index that a scan does without.
        let chain = ChainOptions { scan: false, keep_old: false, ..chain.clone() };
        let options = IndexOptions { kinds: named.kinds.clone(), ..IndexOptions::new(chain) };
        Self { located, options, observer: None, style }
    }

    /// Lets a rebuild give its blocks to them.
    pub fn observing(mut self, chain: &mut ChainOptions) -> Self {
        if !self.options.kinds.is_empty() {
            self.options = self.options.with_old_form(&RealDisk);
            let observer = Arc::new(IndexObserver::new(&RealDisk, self.options.clone()));
            chain.observer = Some(Arc::clone(&observer) as _);
            self.observer = Some(observer);
        }
        self
    }

    /// Continues or makes them when the command has changed the chainstate, and returns what it prints.
    pub fn reply<T: Serialize>(self, report: T, exit: Exit, rows: impl FnOnce(&T) -> Rows) -> Done {
        let Self { located, options, observer, style } = self;
        // Done even if blocks above the chainstate are missing: those below it may be deleted by now.
        let indexes = (!options.kinds.is_empty()).then(|| {
            run::run(Some(&options.chain), style, stages::MAKE_INDEXES, |watch| {
                indexes::bring_indexes(&RealDisk, &options, observer.as_deref(), watch)
            })
        });
        let report = WithIndexes { report, indexes: indexes.transpose().map_err(after_command)? };
        Ok(reply(&report, exit, |WithIndexes { report, indexes }| {
            let rows = indexes.iter().map(made_rows).fold(rows(report), Rows::then);
            // What is wrong with the settings of bitcoind, which is to start after this.
            rows.each("before that", located.settings.faults.iter().map(|fault| &fault.error))
        }))
    }
}

/// Adds to an error of the indexes that the command has done all else.
fn after_command(mut error: Error) -> Error {
    let done = "the chainstate is in place, but not all indexes";
    error.detail = match error.kind {
        ErrorKind::Interrupted => format!("interrupted; {done}"),
        _ => format!("{}; {done}", error.detail),
    };
    error.with_remedies([Remedy::MakeIndex(None)])
}

pub fn make(args: &MakeIndexArgs) -> Done {
    let MakeIndexArgs { run, txindex_rows, keep_old } = args;
    let located = run.datadir.core.locate()?;
    paths::check(&located, run.work_dir.as_deref(), &[])?;
    let mut options = run.options(&located);
    options.chain.keep_old = *keep_old;
    options.also = located.index_kinds();
    options.tx_form = *txindex_rows;
    let made = run.datadir.run(Some(&options.chain), stages::MAKE_INDEXES, |watch| {
        indexes::make_indexes(&RealDisk, &options, watch)
    })?;
    Ok(reply(&made, Exit::Done, made_rows))
}

pub fn update(args: &IndexRunArgs) -> Done {
    let located = args.datadir.core.locate()?;
    paths::check(&located, args.work_dir.as_deref(), &[])?;
    let options = args.options(&located);
    let made = args.datadir.run(Some(&options.chain), stages::UPDATE_INDEXES, |watch| {
        indexes::update_indexes(&RealDisk, &options, watch)
    })?;
    Ok(reply(&made, Exit::Done, made_rows))
}

pub fn check(args: &IndexRunArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.options(&located);
    let checked = args.datadir.run(Some(&options.chain), stages::CHECK_INDEXES, |watch| {
        indexes::check_indexes(&RealDisk, &options, watch)
    })?;
    let exit = if checked.is_sound() { Exit::Done } else { Exit::Damaged };
    Ok(reply(&checked, exit, checked_rows))
}

fn made_rows(made: &MadeIndexesReport) -> Rows {
    let rows = Rows::default().row("block", format!("{} ({})", made.hash, made.height));
    let each = |rows: Rows, index: &MadeIndex| {
        let form = index.form.map_or(String::new(), |form| format!(" {}", form.name().replace('-', " ")));
        let from = match index.from_height {
            0 => String::new(),
            height => format!(", from block {height}"),
        };
        let text = match index.rows {
            0 => "has the rows of all blocks already".to_owned(),
            number => format!("{number} rows{form}{from}"),
        };
        rows.row(index.name.option(), text)
    };
    let rows = made.result.indexes.iter().fold(rows, each);
    rows.each("kept", made.result.kept.iter().map(|path| path.display()))
        .each("note", made.notes.iter().map(warning_text))
}

fn checked_rows(checked: &CheckedIndexesReport) -> Rows {
    let mut rows = Rows::default().row("block", format!("{} ({})", checked.hash, checked.height));
    for index in &checked.result.indexes {
        let height = match index.height {
            Some(height) if height < checked.height => format!("up to block {height}, which is behind: "),
            Some(height) => format!("up to block {height}: "),
            None if index.flaws == 0 => "empty: ".to_owned(),
            None => String::new(),
        };
        let found = format!("{} rows sound, {} wrong or missing", index.sound_rows, index.flaws);
        rows = rows.row(index.name.option(), height + &found);
        if let Some(flaw) = &index.first {
            let at = flaw.height.map(|height| format!("block {height}: ")).unwrap_or_default();
            rows = rows.line(format!("  {at}{}", flaw.detail));
        }
    }
    let help = (!checked.is_sound()).then_some("`index make` makes them anew");
    rows.each("help", help).each("note", checked.notes.iter().map(warning_text))
}
