//! Damage to block and undo files and to `xor.dat`.

use super::{Description, name};
use crate::{prelude::*, scene::xor};
use testkit::{
    block::{header_of, mine},
    corrupt::{overwrite, pad},
};
use wire::Header;

/// Returns a random file, and the length of its records in bytes.
pub(super) fn file(scene: &mut Scene<'_>, kind: &str) -> Res<Option<(PathBuf, usize)>> {
    let path = scene.any(kind);
    used(scene, path)
}

/// Returns the last `blk` file, and the length of its records in bytes.
fn last(scene: &Scene<'_>) -> Res<Option<(PathBuf, usize)>> {
    used(scene, scene.numbered("blk").pop())
}

/// Adds the length of a file's records in bytes. Returns `None` if there are none.
fn used(scene: &Scene<'_>, path: Option<PathBuf>) -> Res<Option<(PathBuf, usize)>> {
    let Some(path) = path else { return Ok(None) };
    let used = scene.records(&path)?.last().map_or(0, |record| record.at + record.len);
    Ok((used > 16).then_some((path, used)))
}

pub fn delete_any(scene: &mut Scene<'_>, kind: &str) -> Description {
    let Some(path) = scene.any(kind) else { return Ok(None) };
    fs::remove_file(&path)?;
    Ok(Some(format!("{} deleted", name(&path))))
}

pub fn cut(scene: &mut Scene<'_>, kind: &str) -> Description {
    let Some((path, used)) = file(scene, kind)? else { return Ok(None) };
    let len = scene.below(used);
    truncate(&path, len as u64)?;
    Ok(Some(format!("{} cut to {len} of {used} bytes", name(&path))))
}

pub fn blk_cut_at_record(scene: &mut Scene<'_>) -> Description {
    let Some(path) = scene.any("blk") else { return Ok(None) };
    let records = scene.records(&path)?;
    let kept = scene.below(records.len());
    let Some(record) = records.get(kept) else { return Ok(None) };
    truncate(&path, record.at as u64)?;
    Ok(Some(format!("{} cut to {kept} of {} records", name(&path), records.len())))
}

/// Writes zeros, in one of so many cases up to the end of the records.
pub fn zeros(scene: &mut Scene<'_>, kind: &str, cases: u64) -> Description {
    let Some((path, used)) = file(scene, kind)? else { return Ok(None) };
    let to_end = scene.rng.chance(1, cases);
    let from = scene.below(used);
    let len = if to_end { used - from } else { 1 + scene.below((used - from).min(5_000)) };
    overwrite(&path, from as u64, &vec![0; len])?;
    Ok(Some(format!("{len} zeros at {from} of {}, {used} used", name(&path))))
}

pub fn flip(scene: &mut Scene<'_>, kind: &str) -> Description {
    let Some((path, used)) = file(scene, kind)? else { return Ok(None) };
    let times = 1 + scene.below(4);
    let mut description = format!("bits flipped in {}:", name(&path));
    for _ in 0..times {
        let (at, bit) = (scene.below(used), scene.below(8));
        flip_bit(&path, at as u64, bit as u32)?;
        description += &format!(" {at}/{bit}");
    }
    Ok(Some(description))
}

/// Writes garbage after the records, or after the preallocated zeros.
pub fn garbage(scene: &mut Scene<'_>, kind: &str) -> Description {
    let Some((path, used)) = file(scene, kind)? else { return Ok(None) };
    let at = if scene.rng.chance(1, 2) { used } else { fs::metadata(&path)?.len() as usize };
    let mut bytes = vec![0; 1 + scene.below(3_000)];
    scene.rng.fill(&mut bytes);
    if scene.rng.chance(1, 3) {
        // Garbage that looks like a record.
        bytes.splice(0..0, [&scene.base.network.magic()[..], &200_u32.to_le_bytes()].concat());
        scene.write_plain(&path, at, &bytes)?;
    } else {
        overwrite(&path, at as u64, &bytes)?;
    }
    Ok(Some(format!("{} random bytes at {at} of {}, {used} used", bytes.len(), name(&path))))
}

/// Repeats records of some file after those of the last file.
pub fn blk_duplicate_record(scene: &mut Scene<'_>) -> Description {
    let (Some((from, _)), Some((to, mut at))) = (file(scene, "blk")?, last(scene)?) else { return Ok(None) };
    let (bytes, records) = (scene.read_plain(&from)?, scene.records(&from)?);
    let times = 1 + scene.below(3);
    for _ in 0..times {
        let Some(record) = scene.pick(&records) else { return Ok(None) };
        scene.write_plain(&to, at, &bytes[record.at..record.at + record.len])?;
        at += record.len;
    }
    Ok(Some(format!("{times} records of {} repeated behind those of {}", name(&from), name(&to))))
}

/// Changes the length in a record's header.
pub fn record_length(scene: &mut Scene<'_>, kind: &str) -> Description {
    let Some((path, _)) = file(scene, kind)? else { return Ok(None) };
    let records = scene.records(&path)?;
    let Some(record) = scene.pick(&records) else { return Ok(None) };
    // Of a `rev` file, the header's length is without the checksum.
    let right = record.len - if kind == "rev" { 40 } else { 8 };
    let lengths = [0, 1, 79, right - 1, right + 1, right + 500, 5_000_000, u32::MAX as usize];
    let Some(len) = scene.pick(&lengths) else { return Ok(None) };
    scene.write_plain(&path, record.at + 4, &(len as u32).to_le_bytes())?;
    let at = record.at;
    Ok(Some(format!("the record at {at} of {} has length {len} instead of {right}", name(&path))))
}

/// Adds a sibling: a block with the same transactions as another one, but another time.
pub fn blk_sibling_record(scene: &mut Scene<'_>) -> Description {
    if scene.base.network != Network::Regtest {
        return Ok(None);
    }
    let (Some((from, _)), Some((to, at))) = (file(scene, "blk")?, last(scene)?) else { return Ok(None) };
    let (bytes, records) = (scene.read_plain(&from)?, scene.records(&from)?);
    let pick = if scene.rng.chance(1, 3) { records.last().copied() } else { scene.pick(&records) };
    let Some(record) = pick else { return Ok(None) };
    let mut sibling = bytes[record.at..record.at + record.len].to_vec();
    let mut header: Header = header_of(&sibling[8..]);
    header.time.0 += 1;
    mine(&mut header, |_| true);
    let (time, nonce) = (header.time.0, header.nonce);
    sibling[8 + 68..8 + 72].copy_from_slice(&time.to_le_bytes());
    sibling[8 + 76..8 + 80].copy_from_slice(&nonce.to_le_bytes());
    scene.write_plain(&to, at, &sibling)?;
    Ok(Some(format!("a sibling of the block at {} of {} behind {}", record.at, name(&from), name(&to))))
}

pub fn swap(scene: &mut Scene<'_>, kind: &str) -> Description {
    let (Some(one), Some(other)) = (scene.any(kind), scene.any(kind)) else { return Ok(None) };
    if one == other {
        return Ok(None);
    }
    let aside = one.with_extension("aside");
    fs::rename(&one, &aside)?;
    fs::rename(&other, &one)?;
    fs::rename(&aside, &other)?;
    Ok(Some(format!("{} and {} swapped", name(&one), name(&other))))
}

pub(super) fn replace(path: &Path, bytes: &[u8]) -> Res<()> {
    truncate(path, bytes.len() as u64)?;
    Ok(overwrite(path, 0, bytes)?)
}

/// Replaces a file by one of another datadir, as it is or with this datadir's obfuscation.
pub fn of_another(scene: &mut Scene<'_>, kind: &str) -> Description {
    let Some(path) = scene.any(kind) else { return Ok(None) };
    let bases = scene.bases;
    let other = &bases[scene.below(bases.len())];
    let blocks = Datadir::at(&other.dir.join("datadir"), other.network).blocks_dir();
    let from = blocks.join(format!("{kind}00000.dat"));
    if !is_file(&from) || other.name == scene.base.name {
        return Ok(None);
    }
    let mut bytes = fs::read(&from)?;
    let obfuscated = scene.rng.chance(1, 2);
    if obfuscated {
        let key = fs::read(blocks.join("xor.dat")).unwrap_or_default().try_into().unwrap_or_default();
        xor(&mut bytes, key, 0);
        xor(&mut bytes, scene.key(), 0);
    }
    replace(&path, &bytes)?;
    let with = if obfuscated { ", with the obfuscation of this one" } else { "" };
    Ok(Some(format!("{} is that of {}{with}", name(&path), other.name)))
}

/// Restores files of these kinds as they were some blocks ago; those that are newer are missing then.
pub fn from_backup(scene: &mut Scene<'_>, kinds: &[&str]) -> Description {
    let backup = scene.base.dir.join("backup/blocks");
    if !backup.is_dir() {
        return Ok(None);
    }
    for path in kinds.iter().flat_map(|kind| scene.numbered(kind)) {
        let from = backup.join(name(&path));
        if from.exists() { replace(&path, &fs::read(from)?)? } else { fs::remove_file(path)? }
    }
    Ok(Some(format!("{} files are from a backup", kinds.join(" and "))))
}

/// Copies a file to a number that is not in use, or to a name that Core does not use.
pub fn blk_far_number(scene: &mut Scene<'_>) -> Description {
    let Some((path, _)) = last(scene)? else { return Ok(None) };
    let names =
        ["blk00099.dat", "blk99999.dat", "blk00000.dat.bak", "blk1.dat", "rev00099.dat", "blk000001.dat"];
    let Some(new) = scene.pick(&names) else { return Ok(None) };
    let to = scene.blocks().join(new);
    if to.exists() {
        return Ok(None);
    }
    fs::copy(&path, &to)?;
    Ok(Some(format!("{} is also {new}", name(&path))))
}

/// Adds preallocated zeros to the last files.
pub fn sparse_tails(scene: &mut Scene<'_>) -> Description {
    for kind in ["blk", "rev"] {
        if let Some(path) = scene.numbered(kind).pop() {
            pad(&path, 16 << 20)?;
        }
    }
    Ok(Some("the last files end in 16 MiB of zeros".to_owned()))
}

pub fn xor_change(scene: &mut Scene<'_>) -> Description {
    let path = scene.blocks().join("xor.dat");
    if !is_file(&path) {
        return Ok(None);
    }
    let mut bytes = fs::read(&path)?;
    match scene.below(5) {
        0 => bytes.iter_mut().for_each(|byte| *byte = 0),
        1 => bytes.truncate(7),
        2 => bytes.clear(),
        3 => bytes.push(1),
        _ => bytes.iter_mut().for_each(|byte| *byte ^= 0x10),
    }
    fs::write(&path, &bytes)?;
    Ok(Some(format!("xor.dat is {bytes:02x?}")))
}
