//! Damage to the records of `rev` files, and to what waits to be put into them.

use super::{
    Description,
    blocks::{self, file},
    name,
};
use crate::{
    prelude::*,
    scene::{Record, xor},
};
use std::os::unix::fs::{PermissionsExt, chown};

/// A `rev` file, its records, and its bytes without obfuscation.
type Records = (PathBuf, Vec<Record>, Vec<u8>);

/// Reads a random `rev` file.
fn records(scene: &mut Scene<'_>) -> Res<Option<Records>> {
    let Some((path, _)) = file(scene, "rev")? else { return Ok(None) };
    let (records, bytes) = (scene.records(&path)?, scene.read_plain(&path)?);
    Ok(Some((path, records, bytes)))
}

/// Replaces all bytes of a file by these, obfuscated.
fn replace(scene: &Scene<'_>, path: &Path, mut bytes: Vec<u8>) -> Res<()> {
    xor(&mut bytes, scene.key(), 0);
    blocks::replace(path, &bytes)
}

/// Flips a bit of one record: of its header, its undo data or its checksum.
pub fn rev_flip_record(scene: &mut Scene<'_>) -> Description {
    let Some((path, records, _)) = records(scene)? else { return Ok(None) };
    let Some(record) = scene.pick(&records) else { return Ok(None) };
    let ranges = [(0, 8), (8, record.len - 40), (record.len - 32, 32)];
    let Some((from, len)) = scene.pick(&ranges) else { return Ok(None) };
    let at = record.at + from + scene.below(len);
    flip_bit(&path, at as u64, scene.below(8) as u32)?;
    Ok(Some(format!("a bit flipped at {at} of {}, in the record at {}", name(&path), record.at)))
}

/// Removes the end of a record. The next ones follow at once, or where they were.
pub fn rev_shorten_record(scene: &mut Scene<'_>) -> Description {
    let Some((path, records, mut bytes)) = records(scene)? else { return Ok(None) };
    let Some(Record { at, len }) = scene.pick(&records) else { return Ok(None) };
    let kept = scene.below(len);
    let follow = scene.rng.chance(1, 2);
    if follow {
        bytes.drain(at + kept..at + len);
    } else {
        bytes[at + kept..at + len].fill(0);
    }
    replace(scene, &path, bytes)?;
    let then = if follow { "the next ones follow at once" } else { "zeros follow" };
    Ok(Some(format!("{kept} of {len} bytes of the record at {at} of {} are left; {then}", name(&path))))
}

/// Exchanges two records, which may have different lengths.
pub fn rev_swap_records(scene: &mut Scene<'_>) -> Description {
    let Some((path, records, bytes)) = records(scene)? else { return Ok(None) };
    let (one, other) = (scene.below(records.len()), scene.below(records.len()));
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.swap(one, other);
    let Some(end) = records.last().map(|last| last.at + last.len) else { return Ok(None) };
    if one == other {
        return Ok(None);
    }
    let of = |number: &usize| &bytes[records[*number].at..records[*number].at + records[*number].len];
    let swapped = [order.iter().flat_map(of).copied().collect(), bytes[end..].to_vec()].concat();
    replace(scene, &path, swapped)?;
    Ok(Some(format!("records {one} and {other} of {} are swapped", name(&path))))
}

/// Repeats a record at the end of the file, as a second connection of its block does.
pub fn rev_repeat_record(scene: &mut Scene<'_>) -> Description {
    let Some((path, records, bytes)) = records(scene)? else { return Ok(None) };
    let (Some(record), Some(last)) = (scene.pick(&records), records.last()) else { return Ok(None) };
    let at = if scene.rng.chance(1, 2) { last.at + last.len } else { bytes.len() };
    scene.write_plain(&path, at, &bytes[record.at..record.at + record.len])?;
    Ok(Some(format!("the record at {} of {} again at {at}", record.at, name(&path))))
}

pub fn rev_empty(scene: &mut Scene<'_>) -> Description {
    let Some(path) = scene.any("rev") else { return Ok(None) };
    truncate(&path, 0)?;
    Ok(Some(format!("{} is empty", name(&path))))
}

/// Adds what a killed run leaves, which no run can continue, sometimes with a note of the user in it.
pub fn undo_leftover(scene: &mut Scene<'_>) -> Description {
    let dir = scene.blocks().join("peregrine-undo");
    if !is_dir(&scene.blocks()) || fs::symlink_metadata(&dir).is_ok() {
        return Ok(None);
    }
    fs::create_dir(&dir)?;
    let mut mark = b"PGRN-UD2".to_vec();
    mark.resize(scene.below(80), 7);
    fs::write(dir.join("peregrine.mark"), mark)?;
    fs::write(dir.join("rev00000.dat"), vec![9; scene.below(5_000)])?;
    let modes =
        [(dir.clone(), 0o700), (dir.join("peregrine.mark"), 0o600), (dir.join("rev00000.dat"), 0o600)];
    for (path, mode) in modes {
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        if let Some(user) = scene.node_user {
            chown(&path, Some(user), Some(user))?;
        }
    }
    if scene.rng.chance(2, 3) {
        return Ok(Some(format!("{} as a killed run leaves it", dir.display())));
    }
    scene.add_note(&dir.join("why-this-folder-is-here.txt"))
}
