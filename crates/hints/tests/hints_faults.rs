//! The writer of hint files on a disk that fails at the n-th operation, for every n: the path contains the
//! old file or the complete new one, and a second attempt succeeds and leaves no other file.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail them")]

mod hints_common;

use hints_common::{Chain, check, simulated};
use peregrine_hints::HintInfo;
use peregrine_hints::{HintFormat, HintReader, HintWriter, HintsError};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Disk, Lock, Metadata, ReadAt, RealDisk, WriteFile};
use wire::Height;

/// A disk that fails the operation with the number `at`, of those that change something.
#[derive(Clone)]
struct Faults {
    done: Arc<AtomicU64>,
    at: u64,
}

impl Faults {
    fn step(&self) -> io::Result<()> {
        let number = self.done.fetch_add(1, Ordering::Relaxed);
        if number == self.at { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

struct FaultyFile(Box<dyn WriteFile>, Faults);

impl WriteFile for FaultyFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let result = self.1.step();
        self.0.write_all(&bytes[..if result.is_ok() { bytes.len() } else { bytes.len() / 2 }])?;
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.step()?;
        self.0.sync()
    }
}

fn unused<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Disk for Faults {
    fn open(&self, path: &Path) -> io::Result<Box<dyn ReadAt>> {
        self.step()?;
        RealDisk.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.step()?;
        Ok(Box::new(FaultyFile(RealDisk.create(path)?, self.clone())))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        RealDisk.metadata(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.sync_dir(dir)
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        unused()
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        unused()
    }

    fn exchange(&self, _: &Path, _: &Path) -> io::Result<()> {
        unused()
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        unused()
    }

    fn free_space(&self, _: &Path) -> io::Result<u64> {
        unused()
    }

    fn same_file_system(&self, _: &Path, _: &Path) -> io::Result<bool> {
        unused()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.step()?;
        RealDisk.lock(path)
    }
}

fn write(disk: &dyn Disk, path: &Path, format: HintFormat, chain: &Chain) -> Result<HintInfo, HintsError> {
    let height = Height(chain.blocks.len() as u32);
    let mut writer = HintWriter::create(disk, path, format, None, height, Some(chain.tip))?;
    for block in &chain.blocks {
        let (outputs, unspent) = block.hints(format.numbering());
        writer.push_block(Some(outputs), &unspent)?;
    }
    writer.finish()
}

#[test]
fn a_failed_write_leaves_the_old_or_the_new_hint_file() {
    let [old, new] = [20, 40].map(|count| simulated(count, count.into()));
    for format in HintFormat::ALL {
        for at in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("hints");
            write(&RealDisk, &path, format, &old).unwrap();
            let faults = Faults { done: Arc::default(), at };
            let result = write(&faults, &path, format, &new);
            let mut reader = HintReader::open(&RealDisk, &path, Some(format)).unwrap();
            let is_new = reader.info().height == Height(40);
            check(&mut reader, if is_new { &new } else { &old });
            if faults.done.load(Ordering::Relaxed) <= at {
                assert!(result.is_ok() && is_new && at >= 5, "all operations have failed once");
                break;
            }
            let error = result.err().map(|error| error.to_string());
            assert!(error.is_some_and(|text| text.contains("cannot")), "{format}: operation {at}");
            write(&RealDisk, &path, format, &new).unwrap();
            check(&mut HintReader::open(&RealDisk, &path, Some(format)).unwrap(), &new);
            assert_eq!(RealDisk.list(dir.path()).unwrap(), ["hints"], "{format}: operation {at}");
        }
    }
}
