//! Damage to the block index and the chainstate.

use super::{Description, name};
use crate::prelude::*;
use disk::index::write_block_index;

/// Returns a random non-empty file of the folder whose name satisfies `wanted`.
pub(super) fn file(scene: &mut Scene<'_>, dir: &Path, wanted: fn(&str) -> bool) -> Option<PathBuf> {
    let mut all = scene.database_files(dir);
    all.retain(|path| wanted(&name(path)) && fs::metadata(path).is_ok_and(|found| found.len() > 0));
    scene.pick(&all)
}

pub fn cut(scene: &mut Scene<'_>, dir: &Path) -> Description {
    let Some(path) = file(scene, dir, |name| !name.ends_with(".txt")) else { return Ok(None) };
    let old = fs::metadata(&path)?.len();
    let len = scene.rng.below(old);
    truncate(&path, len)?;
    Ok(Some(format!("{} cut to {len} of {old} bytes", name(&path))))
}

pub fn flip(scene: &mut Scene<'_>, dir: &Path) -> Description {
    let Some(path) = file(scene, dir, |name| !name.ends_with(".txt")) else { return Ok(None) };
    let at = scene.rng.below(fs::metadata(&path)?.len());
    flip_bit(&path, at, scene.rng.below(8) as u32)?;
    Ok(Some(format!("a bit flipped in {} at {at}", name(&path))))
}

pub fn delete_data(scene: &mut Scene<'_>, dir: &Path) -> Description {
    let is_data =
        |name: &str| name.ends_with(".ldb") || name.ends_with(".log") || name.starts_with("MANIFEST");
    let Some(path) = file(scene, dir, is_data) else { return Ok(None) };
    fs::remove_file(&path)?;
    Ok(Some(format!("{} deleted", name(&path))))
}

pub fn delete_current(_: &mut Scene<'_>, dir: &Path) -> Description {
    let path = dir.join("CURRENT");
    if !crate::scene::is_file(&path) {
        return Ok(None);
    }
    fs::remove_file(path)?;
    Ok(Some("CURRENT deleted".to_owned()))
}

/// Replaces the database by a copy of another folder.
pub fn replace(from: &Path, dir: &Path) -> Description {
    if !from.is_dir() || fs::symlink_metadata(dir).is_ok_and(|found| found.is_symlink()) {
        return Ok(None);
    }
    if is_dir(dir) {
        fs::remove_dir_all(dir)?;
    } else if fs::symlink_metadata(dir).is_ok() {
        return Ok(None);
    }
    copy_all(from, dir)?;
    Ok(Some("replaced".to_owned()))
}

/// Restores the index from a backup, so that the chainstate is newer.
pub fn index_older(scene: &mut Scene<'_>) -> Description {
    replace(&scene.base.dir.join("backup/blocks/index"), &scene.paths.index_dir())
}

type RowChange = (&'static str, fn(&mut disk::index::IndexEntry) -> Option<()>);

const ROW_CHANGES: [RowChange; 6] = [
    ("failed", |entry| {
        entry.status.0 |= BlockStatus::FAILED_VALID;
        Some(())
    }),
    ("without undo", |entry| {
        (entry.status.0, entry.undo_pos) = (entry.status.0 & !BlockStatus::HAVE_UNDO, None);
        entry.file = entry.file.filter(|_| entry.status.has_data());
        Some(())
    }),
    ("one byte off", |entry| entry.data_pos.as_mut().map(|pos| pos.0 += 1)),
    ("one byte off in its undo data", |entry| entry.undo_pos.as_mut().map(|pos| pos.0 += 1)),
    ("one too high", |entry| {
        entry.height.0 += 1;
        Some(())
    }),
    ("in another file", |entry| entry.file.as_mut().map(|file| file.0 += 7)),
];

pub fn index_rows(scene: &mut Scene<'_>) -> Description {
    change_index(scene, |scene, index| {
        let at = scene.below(index.entries.len());
        let (description, change) = ROW_CHANGES[scene.below(ROW_CHANGES.len())];
        let entry = index.entries.get_mut(at)?;
        change(entry)?;
        Some(format!("block {} ({}) is {description}", entry.hash, entry.height.0))
    })
}

/// Marks blocks as invalid, of the chain or stale, with all that descends from them, as a node does.
pub fn index_marks(scene: &mut Scene<'_>) -> Description {
    change_index(scene, |scene, index| {
        index.entries.sort_by_key(|entry| entry.height);
        let count = 1 + scene.below(3);
        let mut marked: HashSet<_> = (0..count)
            .filter_map(|_| Some(index.entries.get(scene.below(index.entries.len()))?.hash))
            .collect();
        for entry in &mut index.entries {
            if marked.contains(&entry.hash) || marked.contains(&entry.header.prev) {
                entry.status.0 |= BlockStatus::FAILED_VALID;
                marked.insert(entry.hash);
            }
        }
        Some(format!("{count} blocks, with {} in all, are marked as invalid", marked.len()))
    })
}

fn change_index(
    scene: &mut Scene<'_>,
    change: impl Fn(&mut Scene<'_>, &mut disk::index::BlockIndex) -> Option<String>,
) -> Description {
    let dir = scene.paths.index_dir();
    if scene.fifo || !is_dir(&dir) {
        return Ok(None);
    }
    let Ok(mut index) = read_block_index(&RealDisk, &dir) else { return Ok(None) };
    let Some(description) = change(scene, &mut index) else { return Ok(None) };
    for path in scene.database_files(&dir) {
        fs::remove_file(path)?;
    }
    // The writer creates each file.
    let _ = fs::remove_file(dir.join("LOCK"));
    write_block_index(&RealDisk, &dir, &index)?;
    Ok(Some(description))
}
