//! Stage commit, and what must be so before anything is written: where the new chainstate is built, and how
//! it takes the old one's place.
//!
//! The new chainstate is built beside the old one, under a name that Core does not know, and takes its place
//! by one atomic exchange of names; then the old one, now under our name, is removed. A crash at any point
//! leaves either the old or the new one in place; what is left over under our name is removed by the next
//! run.

use crate::{
    error::{Error, ErrorKind},
    event::{Event, Sink},
    options::ReindexOptions,
};
use disk::{
    datadir::Datadir,
    fs::{Disk, During as _, FileError, finish_exchange},
    index::{BlockIndex, write_block_index},
};
use std::{
    cell::Cell,
    path::{Path, PathBuf},
};

/// Suffix of the directories we build in.
const BUILDING: &str = ".peregrine";

/// Name of the folder for temporary files.
pub const WORK_DIR: &str = "peregrine-work";

/// Where the results go.
pub struct Target {
    chainstate: Place,
    index: Option<Place>,
}

/// A directory, and the one beside it in which its successor is built.
struct Place {
    dir: PathBuf,
    building: PathBuf,
    /// The new one has the name `dir`. Under the other name is the old one, which must stay until that is on
    /// the medium.
    exchanged: Cell<bool>,
}

impl Place {
    fn new(dir: PathBuf) -> Self {
        let mut building = dir.clone().into_os_string();
        building.push(BUILDING);
        Self { dir, building: building.into(), exchanged: Cell::new(false) }
    }

    /// Makes the folders above in an output, which must not have the database yet.
    fn make_room(&self, disk: &dyn Disk) -> Result<(), Error> {
        // Whatever is wrong with this path, it is not damage to the datadir.
        let unusable = |error: FileError| {
            let error = Error::from(error);
            let detail = format!("{}; or name another --output", error.detail);
            Error { kind: ErrorKind::Environment, detail, ..error }
        };
        if disk.exists(&self.dir).during("look for", &self.dir).map_err(unusable)? {
            let detail = "the output has one already; name an empty or new directory";
            return Err(Error::new(ErrorKind::Usage, detail).in_file(&self.dir, None));
        }
        let parent = self.dir.parent().unwrap_or(&self.dir);
        disk.create_dir_all(parent).during("create", parent).map_err(unusable)
    }

    /// Ends an exchange that a crash cut short, and removes what was built or replaced before.
    fn clear_leftovers(&self, disk: &dyn Disk) -> Result<(), Error> {
        // The same order of names as in the exchange itself.
        finish_exchange(disk, &self.building, &self.dir).during("put back", &self.dir)?;
        if disk.exists(&self.building).during("look for", &self.building)? {
            self.sync_names(disk)?;
        }
        remove(disk, &self.building)
    }

    /// Puts the names on the medium, before what may be the only other chainstate is removed.
    fn sync_names(&self, disk: &dyn Disk) -> Result<(), Error> {
        let parent = self.dir.parent().unwrap_or(&self.dir);
        Ok(disk.sync_dir(parent).during("sync", parent)?)
    }

    fn commit(&self, disk: &dyn Disk) -> Result<(), Error> {
        if disk.exists(&self.dir).during("look for", &self.dir)? {
            disk.exchange(&self.building, &self.dir).during("put the new database in place of", &self.dir)?;
        } else {
            disk.rename(&self.building, &self.dir).during("put the new database in place as", &self.dir)?;
        }
        self.exchanged.set(true);
        self.sync_names(disk)
    }
}

fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    if disk.exists(dir).during("look for", dir)? {
        disk.remove_dir_all(dir).during("remove", dir)?;
    }
    Ok(())
}

impl Target {
    /// Decides where results go; refuses an output that has a chainstate already. Makes the output's folders.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an output that is in use, [`ErrorKind::Environment`] if it cannot be made.
    pub fn prepare(disk: &dyn Disk, datadir: &Datadir, options: &ReindexOptions) -> Result<Self, Error> {
        let home = match &options.output {
            None => datadir.clone(),
            Some(output) => Datadir::at(output, options.network),
        };
        let target = Self {
            chainstate: Place::new(home.chainstate_dir()),
            index: options.scan.then(|| Place::new(home.index_dir())),
        };
        if options.output.is_some() {
            target.places().try_for_each(|place| place.make_room(disk))?;
        }
        Ok(target)
    }

    fn places(&self) -> impl Iterator<Item = &Place> {
        self.index.iter().chain([&self.chainstate])
    }

    /// Removes what an earlier run left.
    ///
    /// # Errors
    /// What the file system says.
    pub fn clear_leftovers(&self, disk: &dyn Disk) -> Result<(), Error> {
        self.places().try_for_each(|place| place.clear_leftovers(disk))
    }

    /// Removes what this run has built so far: after a failure.
    pub fn discard(&self, disk: &dyn Disk) {
        for place in self.places().filter(|place| !place.exchanged.get()) {
            // The failure is what the user must hear of; the next run removes what stays.
            let _ = remove(disk, &place.building);
        }
    }

    /// Where temporary files go.
    #[must_use]
    pub fn work_dir(&self, options: &ReindexOptions) -> PathBuf {
        if let Some(dir) = &options.work_dir {
            return dir.join(WORK_DIR);
        }
        self.chainstate.dir.with_file_name(WORK_DIR)
    }

    /// Where the new chainstate will be.
    #[must_use]
    pub fn chainstate_dir(&self) -> &Path {
        &self.chainstate.dir
    }

    /// Where the new chainstate is built.
    #[must_use]
    pub fn building(&self) -> &Path {
        &self.chainstate.building
    }

    /// Puts everything in place: the index of a scan first, for a chainstate's best block must be in it.
    /// Gives the chainstate's place. An old database that cannot be removed is told to `sink`: the work is
    /// done without.
    ///
    /// # Errors
    /// What the file system says.
    pub fn commit(
        &self,
        disk: &dyn Disk,
        index: Option<&BlockIndex>,
        sink: &dyn Sink,
    ) -> Result<PathBuf, Error> {
        if let (Some(place), Some(index)) = (&self.index, index) {
            write_block_index(disk, &place.building, index)?;
        }
        self.places().try_for_each(|place| place.commit(disk))?;
        for place in self.places() {
            if let Err(error) = remove(disk, &place.building) {
                sink.event(Event::Note(format!("the old database stays until the next run: {error}")));
            }
        }
        Ok(self.chainstate.dir.clone())
    }
}
