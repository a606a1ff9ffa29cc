//! Damage to `txindex` and the other indexes of the node.

use super::{
    Description,
    databases::{file, replace},
    name,
};
use crate::prelude::*;
use leveldb::{Database, write_database};

/// Returns the folder of one of the indexes that are there, and that of its database.
fn index(scene: &mut Scene<'_>) -> Option<(PathBuf, PathBuf)> {
    let net = scene.net();
    let found = IndexKind::ALL.map(|kind| (net.join(kind.replaced_dir()), net.join(kind.database_dir())));
    let found: Vec<_> = found.into_iter().filter(|(_, database)| database.is_dir()).collect();
    scene.pick(&found)
}

pub fn in_database(
    scene: &mut Scene<'_>,
    damage: impl FnOnce(&mut Scene<'_>, &Path) -> Description,
) -> Description {
    let Some((_, dir)) = index(scene) else { return Ok(None) };
    let description = damage(scene, &dir)?;
    Ok(description.map(|what| format!("{}: {what}", dir.strip_prefix(scene.net()).unwrap_or(&dir).display())))
}

pub fn node_index_delete(scene: &mut Scene<'_>) -> Description {
    let Some((dir, _)) = index(scene) else { return Ok(None) };
    fs::remove_dir_all(&dir)?;
    Ok(Some(format!("{} deleted", name(&dir))))
}

/// Restores an index from a backup, so that it is behind.
pub fn node_index_older(scene: &mut Scene<'_>) -> Description {
    let Some((dir, _)) = index(scene) else { return Ok(None) };
    let backup = scene.base.dir.join("backup").join(dir.strip_prefix(scene.net())?);
    Ok(replace(&backup, &dir)?.map(|what| format!("{} {what}", name(&dir))))
}

/// Removes or changes a row, under sound checksums.
pub fn node_index_row(scene: &mut Scene<'_>) -> Description {
    in_database(scene, |scene, dir| {
        let Some(mut rows) = rows(dir) else { return Ok(None) };
        if rows.is_empty() {
            return Ok(None);
        }
        let at = scene.below(rows.len());
        let description = format!("row {at} of {}", rows.len());
        if scene.rng.chance(1, 2) || rows[at].1.is_empty() {
            rows.remove(at);
        } else {
            let byte = scene.below(rows[at].1.len());
            rows[at].1[byte] ^= 1 << scene.rng.below(8);
        }
        fs::remove_dir_all(dir)?;
        fs::create_dir_all(dir)?;
        write_database(&RealDisk, dir, rows)?;
        Ok(Some(description))
    })
}

/// All rows of a database; `None` if an earlier damage keeps it from being read.
fn rows(dir: &Path) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let database = Database::open(&RealDisk, dir).ok()?;
    let (mut cursor, mut rows) = (database.range(&[], None).ok()?, Vec::new());
    while cursor.advance().ok()? {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
    }
    Some(rows)
}

/// Flips a bit in a file with filters, or cuts it.
pub fn node_index_filter(scene: &mut Scene<'_>) -> Description {
    let dir = scene.net().join(IndexKind::BlockFilter.replaced_dir());
    let Some(path) = file(scene, &dir, |name| name.starts_with("fltr")) else { return Ok(None) };
    let at = scene.rng.below(fs::metadata(&path)?.len());
    if scene.rng.chance(1, 2) {
        flip_bit(&path, at, scene.rng.below(8) as u32)?;
        return Ok(Some(format!("a bit flipped in {} at {at}", name(&path))));
    }
    testkit::corrupt::truncate(&path, at)?;
    Ok(Some(format!("{} cut to {at} bytes", name(&path))))
}
