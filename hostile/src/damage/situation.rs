//! The situations of testkit's list, which the tests of the advice bring about too.

use super::Description;
use crate::prelude::*;
use testkit::situation::{Place, all};

/// Brings the datadir into a situation of the list.
pub fn situation(scene: &mut Scene<'_>) -> Description {
    // The settings of a new folder choose a chain, as an option of the node here does.
    let situations: Vec<_> = all().filter(|situation| situation.name != "a new folder").collect();
    let chosen = scene.pick(&situations);
    // Reading a FIFO would block.
    let Some(situation) = chosen.filter(|_| !scene.fifo) else { return Ok(None) };
    let place = Place { root: scene.datadir(), net: scene.net(), store: scene.live.join("store") };
    fs::create_dir_all(&place.store)?;
    let other =
        scene.bases.iter().find(|base| base.name != scene.base.name && base.network == scene.base.network);
    let foreign = other.map(|base| disk::datadir::Datadir::at(&base.dir.join("datadir"), base.network));
    let older = scene.base.dir.join("backup/chainstate");
    for (name, from) in [("older", Some(older)), ("foreign", foreign.map(|paths| paths.chainstate_dir()))] {
        if let Some(from) = from.filter(|from| from.is_dir() && !place.store.join(name).exists()) {
            copy_all(&from, &place.store.join(name))?;
        }
    }
    Ok(match (situation.cause)(&place) {
        Ok(()) => Some(situation.name.to_owned()),
        Err(error) => Some(format!("{}, as far as possible: {error}", situation.name)),
    })
}
