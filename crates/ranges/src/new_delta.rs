//! A delta that is written: its directory gets its name when it is complete.

use super::deltas::DeltaReport;
use api::{error::Error, remedy::Remedy};
use chain::threads::for_all;
use disk::{
    delta::{Delta, DeltaShard, is_delta_file, shard_path},
    sorted_run::{SortedRunMeta, SortedRunWriter},
};
use pipeline::stages::work_dir::WorkDir;
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use vfs::{Disk, During as _, sync_dir_of, unfinished};
use wire::Network;

/// Bytes of a sorted run that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

pub struct NewDelta<'w, 'd> {
    work: &'w WorkDir<'d>,
    dir: PathBuf,
}

/// The work directory of the job whose result is the directory `output`: beside it, with a name of its own,
/// so that several jobs can work in one place.
pub fn work_dir<'d>(disk: &'d dyn Disk, output: &Path) -> WorkDir<'d> {
    WorkDir::new(disk, unfinished::temporary(output, unfinished::SUFFIX))
}

/// The error of a job with such a directory, which is elsewhere only if the output is.
pub fn beside_output(mut error: Error) -> Error {
    let remedies = std::mem::take(&mut error.remedies).into_iter();
    error.with_remedies(remedies.map(|remedy| match remedy {
        Remedy::OtherWorkDir => Remedy::OtherOutput,
        other => other,
    }))
}

/// Returns the delta that is at `output` already. What a run that was killed at its end has left of its work
/// directory is removed.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if something else is there; any I/O error.
pub fn find(
    disk: &dyn Disk,
    output: &Path,
    is_same: impl FnOnce(&Delta) -> bool,
) -> Result<Option<Delta>, Error> {
    if !disk.exists(output).during_creation(output)? {
        return Ok(None);
    }
    let found = Delta::exists(disk, output)?.then(|| Delta::read(disk, output)).transpose()?;
    let Some(found) = found.filter(is_same) else {
        let error = Error::usage("it exists already, and is something else");
        return Err(error.in_file(output, None).with_remedies([Remedy::OtherName]));
    };
    // If that fails, or another job works there, nothing depends on it.
    let _ = work_dir(disk, &unfinished::target(disk, output)?).remove();
    Ok(Some(found))
}

impl<'w, 'd> NewDelta<'w, 'd> {
    /// Begins a delta in a work directory. What an interrupted job has left of one is removed.
    ///
    /// # Errors
    /// Those of [`WorkDir::take`]; any I/O error.
    pub fn begin(work: &'w WorkDir<'d>) -> Result<Self, Error> {
        work.take()?;
        let new = Self { work, dir: work.path().join("delta") };
        new.clear()?;
        work.disk().create_dir_all(&new.dir).during_creation(&new.dir)?;
        Ok(new)
    }

    /// Writes shards on several threads: `fill` adds the entries of the shard with a number.
    ///
    /// # Errors
    /// The first error of `fill`; any I/O error.
    pub fn write_shards<E: From<Error> + Send>(
        &self,
        network: Network,
        numbers: &[u32],
        threads: usize,
        fill: &(impl Fn(u32, &mut SortedRunWriter) -> Result<(), E> + Sync),
    ) -> Result<Vec<DeltaShard>, E> {
        let has_failed = AtomicBool::new(false);
        let write = |&number: &u32| -> Result<DeltaShard, E> {
            let (disk, path) = (self.work.disk(), shard_path(&self.dir, number));
            let mut writer =
                SortedRunWriter::create(disk, &path, network, BUFFER_BYTES).map_err(Error::from)?;
            fill(number, &mut writer)?;
            let SortedRunMeta { entries, spends, .. } = writer.finish().map_err(Error::from)?;
            Ok(DeltaShard::of_file(disk, &self.dir, number, entries, spends).map_err(Error::from)?)
        };
        // After an error, no other shard is begun.
        let numbers = numbers.iter().take_while(|_| !has_failed.load(Ordering::Relaxed));
        let written = for_all(threads, numbers, |number| {
            write(number).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
        })?;
        let mut shards = written.into_iter().collect::<Result<Vec<_>, E>>()?;
        shards.sort_unstable_by_key(|shard| shard.number);
        Ok(shards)
    }

    /// Writes the list of the files, and gives the directory its name. If another job has meanwhile made the
    /// same delta, that one is kept.
    ///
    /// # Errors
    /// Those of [`find`].
    pub fn finish(self, delta: &Delta, output: &Path) -> Result<DeltaReport, Error> {
        let (disk, dir) = (self.work.disk(), &self.dir);
        if let Some(found) = find(disk, output, |found| found.content() == delta.content())? {
            // What was found is to be reported.
            let _ = (self.clear(), self.work.remove());
            return Ok(DeltaReport::of(&found, true));
        }
        // The list's own commit syncs the directory, and so the names of the shards.
        delta.write(disk, dir)?;
        disk.rename(dir, output).during("rename to its final name", dir)?;
        sync_dir_of(disk, output)?;
        self.work.remove()?;
        Ok(DeltaReport::of(delta, false))
    }

    /// Removes the directory, and what belongs to a delta in it.
    pub fn clear(&self) -> Result<(), Error> {
        let (disk, dir) = (self.work.disk(), &self.dir);
        if !disk.exists(dir).during("look for", dir)? {
            return Ok(());
        }
        for name in disk.list(dir).during("list", dir)? {
            let path = dir.join(&name);
            if is_delta_file(&path) {
                disk.remove_file(&path).during("remove", &path)?;
            }
        }
        Ok(disk.remove_dir(dir).during("remove", dir)?)
    }
}
