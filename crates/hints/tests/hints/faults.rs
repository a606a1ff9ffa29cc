//! The writer of hint files on a disk that fails at the n-th operation, for every n: the path contains the
//! old file or the complete new one, and a second attempt succeeds and leaves no other file.

use crate::common::{check, simulated, write, write_on};
use peregrine_hints::{HintFormat, HintReader};
use std::io;
use testkit::fault::{FaultDisk, InjectedFault, Operations};
use vfs::{Disk, RealDisk};
use wire::Height;

#[test]
fn a_failed_write_leaves_the_old_or_the_new_hint_file() {
    let [old, new] = [20, 40].map(|count| simulated(count, count.into()));
    for format in HintFormat::ALL {
        for at in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("hints");
            write(&path, format, &old);
            let faults =
                FaultDisk::fail_at(at, InjectedFault::Once, Operations::All, io::ErrorKind::StorageFull);
            let result = write_on(&faults, &path, format, &new);
            let mut reader = HintReader::open(&RealDisk, &path, Some(format)).unwrap();
            let is_new = reader.info().height == Height(40);
            check(&mut reader, if is_new { &new } else { &old });
            if faults.count() <= at {
                assert!(result.is_ok() && is_new && at >= 5, "all operations have failed once");
                break;
            }
            let error = result.err().map(|error| error.to_string());
            assert!(error.is_some_and(|text| text.contains("cannot")), "{format}: operation {at}");
            write(&path, format, &new);
            check(&mut HintReader::open(&RealDisk, &path, Some(format)).unwrap(), &new);
            assert_eq!(RealDisk.list(dir.path()).unwrap(), ["hints"], "{format}: operation {at}");
        }
    }
}
