//! `CURRENT` and `MANIFEST-NNNNNN`: the list of a database's tables. Written by LevelDB `VersionSet` and by
//! updates; read as by LevelDB `VersionSet::Recover`.
//!
//! `CURRENT` contains the manifest's file name and a newline. A manifest is a log (see `log`) of edits; the
//! state is the result of all edits. An edit is a sequence of fields, each a varint tag and:
//! ```text
//! 1  comparator         string: leveldb.BytewiseComparator
//! 2  log number         varint: logs below it are in tables
//! 3  next file number   varint
//! 4  last sequence      varint: greatest sequence number in the tables
//! 5  compact pointer    level varint, internal key string: where compaction continues; ignored here
//! 6  deleted file       level varint, number varint
//! 7  new file           level varint, number varint, size varint, smallest and largest internal key strings
//! 9  previous log       varint: one older log to read, 0 for none
//! ```
//! A crash leaves a torn last edit (tolerated, because the files of the edits before it still exist) or a
//! `CURRENT` that names the previous manifest.

use hex_conservative::DisplayHex as _;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::coding::{Input, MAX_SEQUENCE, put_string, put_varint, split_internal, user_key};
use super::{LevelDbError, log};
use vfs::{Disk, During as _, ReadAt};

/// Number of levels of tables. Tables may overlap in level 0, but not in the others.
pub(super) const LEVELS: usize = 7;

/// Maximum length of a manifest in bytes. A table needs about 120, and LevelDB begins a new manifest whenever
/// it opens a database.
const MAX_MANIFEST_LEN: u64 = 256 << 20;

const COMPARATOR: &[u8] = b"leveldb.BytewiseComparator";

const TAG_COMPARATOR: u64 = 1;
const TAG_LOG_NUMBER: u64 = 2;
const TAG_NEXT_FILE: u64 = 3;
const TAG_LAST_SEQUENCE: u64 = 4;
const TAG_COMPACT_POINTER: u64 = 5;
const TAG_DELETED_FILE: u64 = 6;
const TAG_NEW_FILE: u64 = 7;
const TAG_PREVIOUS_LOG: u64 = 9;

/// The properties of a table that the MANIFEST contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableMeta {
    /// File number; the file is `NUMBER.ldb`.
    pub(super) number: u64,
    /// Length of the file in bytes.
    pub(super) size: u64,
    /// Internal keys of the first and last row.
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
}

impl TableMeta {
    pub(super) fn first(&self) -> &[u8] {
        user_key(&self.smallest)
    }

    pub(super) fn last(&self) -> &[u8] {
        user_key(&self.largest)
    }
}

/// The state after all edits of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Its own number, from the name of the file.
    pub(super) number: u64,
    pub(super) log_number: u64,
    pub(super) previous_log: u64,
    pub(super) next_file: u64,
    pub(super) last_sequence: u64,
    /// The tables of each level: those of level 0 newest first, the others by key.
    pub(super) levels: [Vec<TableMeta>; LEVELS],
}

impl Manifest {
    /// Whether the log number is that of a log, which LevelDB creates before it writes the MANIFEST. It is 0
    /// in a new database, and the MANIFEST's own number in one to which tables were added here.
    pub(super) fn names_log(&self) -> bool {
        ![0, self.number].contains(&self.log_number)
    }
}

/// Returns the path of the file `NUMBER.SUFFIX`, with at least six digits.
pub(super) fn numbered(dir: &Path, number: u64, suffix: &str) -> PathBuf {
    dir.join(format!("{number:06}.{suffix}"))
}

pub(super) fn manifest_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// Returns the suffix and the number of the file of a database that has this name; the suffix of a manifest
/// counts as `MANIFEST`.
pub(super) fn parse_name(name: &OsStr) -> Option<(&str, u64)> {
    let name = name.to_str()?;
    let (digits, suffix) = match name.split_once('.') {
        Some((digits, suffix @ ("ldb" | "sst" | "log" | "dbtmp"))) => (digits, suffix),
        _ => (name.strip_prefix("MANIFEST-")?, "MANIFEST"),
    };
    let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    Some((suffix, number))
}

/// Reads `CURRENT` and the manifest it names in the database `dir`.
///
/// # Errors
/// [`LevelDbError::File`] or [`LevelDbError::Damaged`].
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Manifest, LevelDbError> {
    let current = dir.join("CURRENT");
    let name = disk.read(&current, 4096).during("read", &current)?;
    let name = std::str::from_utf8(&name).ok().and_then(|text| text.strip_suffix('\n')).unwrap_or_default();
    let Some(("MANIFEST", number)) = parse_name(name.as_ref()) else {
        let flaw = "it does not contain the name of a MANIFEST and a newline";
        return Err(LevelDbError::damaged(&current, 0, flaw));
    };
    let path = dir.join(name);
    let file = disk.read(&path, MAX_MANIFEST_LEN).during("read", &path)?;
    Ok(Manifest { number, ..decode(&file, &path)? })
}

fn decode(file: &dyn ReadAt, path: &Path) -> Result<Manifest, LevelDbError> {
    let mut state = EditState::default();
    log::read_records(file, path, |offset, edit| {
        state.apply(edit).map_err(|flaw| LevelDbError::damaged(path, offset, flaw))
    })?;
    state.finish().map_err(|flaw| LevelDbError::damaged(path, file.len().unwrap_or_default(), flaw))
}

/// The fields of all edits so far.
#[derive(Default)]
struct EditState {
    log_number: Option<u64>,
    previous_log: Option<u64>,
    next_file: Option<u64>,
    last_sequence: Option<u64>,
    /// The tables by level and number.
    tables: BTreeMap<(usize, u64), TableMeta>,
}

impl EditState {
    fn apply(&mut self, edit: &[u8]) -> Result<(), String> {
        let mut rest = Input(edit);
        // Deletions come before additions, whatever the order of the fields.
        let (mut deleted, mut added) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            match number(&mut rest, "edit")? {
                TAG_COMPARATOR => {
                    let name = rest.string().ok_or("the comparator is truncated")?;
                    if name != COMPARATOR {
                        let name = String::from_utf8_lossy(name);
                        return Err(format!(
                            "the keys are in the order of {name}, which Bitcoin Core does not read"
                        ));
                    }
                }
                TAG_LOG_NUMBER => self.log_number = Some(number(&mut rest, "log number")?),
                TAG_PREVIOUS_LOG => self.previous_log = Some(number(&mut rest, "previous log")?),
                TAG_NEXT_FILE => self.next_file = Some(number(&mut rest, "next file number")?),
                TAG_LAST_SEQUENCE => self.last_sequence = Some(number(&mut rest, "last sequence")?),
                TAG_COMPACT_POINTER => {
                    level(&mut rest)?;
                    rest.string().ok_or("the compact pointer is truncated")?;
                }
                TAG_DELETED_FILE => deleted.push((level(&mut rest)?, number(&mut rest, "deleted file")?)),
                TAG_NEW_FILE => added.push((level(&mut rest)?, new_file(&mut rest)?)),
                tag => return Err(format!("unknown field {tag} in an edit")),
            }
        }
        deleted.iter().for_each(|place| drop(self.tables.remove(place)));
        self.tables.extend(added.into_iter().map(|(level, table)| ((level, table.number), table)));
        Ok(())
    }

    fn finish(self) -> Result<Manifest, String> {
        let greatest = self.next_file.into_iter().chain(self.last_sequence).max();
        if greatest.is_some_and(|number| number > MAX_SEQUENCE) {
            return Err("a file or sequence number is above 2^56".to_owned());
        }
        let mut manifest = Manifest {
            number: 0,
            log_number: self.log_number.ok_or("no edit contains the log number")?,
            previous_log: self.previous_log.unwrap_or(0),
            next_file: self.next_file.ok_or("no edit contains the next file number")?,
            last_sequence: self.last_sequence.ok_or("no edit contains the last sequence number")?,
            levels: Default::default(),
        };
        for ((level, _), table) in self.tables {
            manifest.levels.get_mut(level).ok_or("a level is beyond 6")?.push(table);
        }
        let [level0, deeper @ ..] = &mut manifest.levels;
        level0.reverse();
        for tables in deeper {
            tables.sort_by(|a, b| internal_order(&a.smallest).cmp(&internal_order(&b.smallest)));
            for (left, right) in tables.iter().zip(tables.iter().skip(1)) {
                if internal_order(&left.largest) >= internal_order(&right.smallest) {
                    let [before, after] = [left, right].map(|table| table.number);
                    let key = right.first().as_hex();
                    return Err(format!(
                        "tables {before:06} and {after:06} of one level overlap at key {key}"
                    ));
                }
            }
        }
        Ok(manifest)
    }
}

/// Returns the sort key of an internal key: by user key, then newest first.
fn internal_order(key: &[u8]) -> (&[u8], std::cmp::Reverse<u64>) {
    let (user, trailer) = split_internal(key).unwrap_or_default();
    (user, std::cmp::Reverse(trailer))
}

fn number(rest: &mut Input<'_>, what: &str) -> Result<u64, String> {
    rest.varint().ok_or_else(|| format!("the {what} is truncated"))
}

fn level(rest: &mut Input<'_>) -> Result<usize, String> {
    let level = rest.varint().and_then(|level| usize::try_from(level).ok());
    Ok(level.filter(|&level| level < LEVELS).ok_or("a level is truncated or beyond 6")?)
}

fn new_file(rest: &mut Input<'_>) -> Result<TableMeta, String> {
    let (number, size) = (rest.varint(), rest.varint());
    let mut key = || rest.string().filter(|key| split_internal(key).is_some()).map(<[u8]>::to_vec);
    let (Some(number), Some(size), Some(smallest), Some(largest)) = (number, size, key(), key()) else {
        return Err("a new file is truncated, or a key of it has fewer than 8 bytes".into());
    };
    if internal_order(&smallest) > internal_order(&largest) {
        return Err(format!("new file {number:06} ends before it begins"));
    }
    Ok(TableMeta { number, size, smallest, largest })
}

/// Encodes a manifest file with this state: one edit, with the numbers and then the tables.
pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut file = Vec::new();
    let mut edit = Vec::new();
    put_varint(&mut edit, TAG_COMPARATOR);
    put_string(&mut edit, COMPARATOR);
    for (tag, value) in [
        (TAG_LOG_NUMBER, manifest.log_number),
        (TAG_PREVIOUS_LOG, manifest.previous_log),
        (TAG_NEXT_FILE, manifest.next_file),
        (TAG_LAST_SEQUENCE, manifest.last_sequence),
    ] {
        put_varint(&mut edit, tag);
        put_varint(&mut edit, value);
    }
    for (level, tables) in manifest.levels.iter().enumerate() {
        for table in tables {
            for value in [TAG_NEW_FILE, level as u64, table.number, table.size] {
                put_varint(&mut edit, value);
            }
            put_string(&mut edit, &table.smallest);
            put_string(&mut edit, &table.largest);
        }
    }
    log::append_record(&mut file, &edit);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(number: u64, first: &str, last: &str) -> TableMeta {
        let key = |user: &str| [user.as_bytes(), &[1, 1, 0, 0, 0, 0, 0, 0]].concat();
        TableMeta { number, size: 1000 * number, smallest: key(first), largest: key(last) }
    }

    fn sample() -> Manifest {
        let mut manifest = Manifest {
            log_number: 3,
            previous_log: 2,
            next_file: 9,
            last_sequence: 77,
            ..Default::default()
        };
        manifest.levels[0] = vec![table(8, "a", "z"), table(4, "b", "c")];
        manifest.levels[6] = vec![table(7, "a", "b"), table(5, "c", "c"), table(6, "d", "e")];
        manifest
    }

    fn decode_edits(edits: &[Vec<u8>]) -> Result<Manifest, String> {
        let mut file = Vec::new();
        edits.iter().for_each(|edit| log::append_record(&mut file, edit));
        decode(&file, Path::new("MANIFEST-000001")).map_err(|error| error.to_string())
    }

    /// Returns the edit that [`encode`] writes, without its framing.
    fn edit(manifest: &Manifest) -> Vec<u8> {
        encode(manifest)[7..].to_vec()
    }

    #[test]
    fn a_manifest_round_trips() {
        let manifest = sample();
        assert_eq!(decode(&encode(&manifest), Path::new("m")).unwrap(), manifest);
        // With many tables, the edit spans several blocks of the log.
        let mut large = sample();
        large.levels[6] =
            (0..5000).map(|n| table(n + 10, &format!("{n:04}a"), &format!("{n:04}b"))).collect();
        assert_eq!(decode(&encode(&large), Path::new("m")).unwrap(), large);
    }

    #[test]
    fn later_edits_delete_and_move_tables_and_change_numbers() {
        let mut second = Vec::new();
        for value in
            [TAG_DELETED_FILE, 0, 4, TAG_DELETED_FILE, 6, 6, TAG_LAST_SEQUENCE, 80, TAG_LOG_NUMBER, 8]
        {
            put_varint(&mut second, value);
        }
        // The edit moves a table: it adds it to one level and deletes it from another.
        for value in [TAG_NEW_FILE, 5, 6, 6000] {
            put_varint(&mut second, value);
        }
        put_string(&mut second, &table(6, "d", "e").smallest);
        put_string(&mut second, &table(6, "d", "e").largest);
        for value in [TAG_COMPACT_POINTER, 3, 1, 0] {
            put_varint(&mut second, value);
        }
        let found = decode_edits(&[edit(&sample()), second]).unwrap();
        let mut want = sample();
        want.levels[0].pop();
        want.levels[5] = vec![want.levels[6].pop().unwrap()];
        (want.last_sequence, want.log_number) = (80, 8);
        assert_eq!(found, want);
    }

    #[test]
    fn malformed_edits_are_refused() {
        let check = |edits: &[Vec<u8>], want: &str| {
            let text = decode_edits(edits).unwrap_err();
            assert!(text.contains(want), "{text}");
        };
        check(&[], "no edit contains the log number");
        check(&[vec![2, 5]], "no edit contains the next file number");
        check(&[vec![2, 5, 3, 6]], "no edit contains the last sequence number");
        check(&[[&[2, 5, 9, 0, 3, 6, 4][..], &[0xff; 9], &[1]].concat()], "above 2^56");
        check(&[vec![8, 1]], "unknown field 8");
        check(&[vec![6, 7, 1]], "a level is truncated or beyond 6");
        check(&[vec![1, 1, b'x']], "keys are in the order of x");
        let mut overlap = sample();
        overlap.levels[6][1] = table(5, "b", "c");
        overlap.levels[6][0] = table(7, "a", "c");
        check(&[edit(&overlap)], "tables 000007 and 000005 of one level overlap at key 62");
        let mut reversed = sample();
        reversed.levels[6] = vec![table(5, "d", "c")];
        check(&[edit(&reversed)], "new file 000005 ends before it begins");
        let mut short = sample();
        short.levels[6][0].smallest.truncate(7);
        check(&[edit(&short)], "fewer than 8 bytes");
        let good = edit(&sample());
        for len in 1..good.len() {
            let _ = decode_edits(&[good[..len].to_vec()]); // must not panic
        }
    }
}
