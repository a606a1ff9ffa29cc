//! The writer of hint files on a disk that fails at the n-th operation, for every n: the path contains the
//! old file or the complete new one, and a second attempt succeeds and leaves no other file.

use crate::common::{Chain, check, simulated};
use peregrine_hints::HintInfo;
use peregrine_hints::{HintFormat, HintReader, HintWriter, HintsError};
use std::io;
use std::path::Path;
use testkit::fault::{FaultDisk, InjectedFault, Operations};
use vfs::{Disk, RealDisk};
use wire::Height;

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
            let faults =
                FaultDisk::fail_at(at, InjectedFault::Once, Operations::All, io::ErrorKind::StorageFull);
            let result = write(&faults, &path, format, &new);
            let mut reader = HintReader::open(&RealDisk, &path, Some(format)).unwrap();
            let is_new = reader.info().height == Height(40);
            check(&mut reader, if is_new { &new } else { &old });
            if faults.count() <= at {
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
