//! On what kind of disk a directory is, as far as Linux describes it.

use schemars::JsonSchema;
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A disk and its file system.
#[derive(Serialize, PartialEq, Debug, JsonSchema)]
pub struct StorageJson {
    kind: DiskKind,
    /// `ext4`, `xfs`, `overlay`, ..
    pub file_system: Option<String>,
}

#[derive(Clone, Copy, Serialize, PartialEq, Debug, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum DiskKind {
    Nvme,
    /// Another one without rotating parts.
    Ssd,
    Rotating,
    SdCard,
    /// The disk of a virtual machine, whose medium the guest does not know.
    Virtual,
    Memory,
    Network,
    Unknown,
}

impl StorageJson {
    /// Describes the disk of what is at `path`, or of the nearest directory above it that exists.
    pub fn of(path: &Path) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let existing = path.ancestors().find_map(|above| fs::canonicalize(above).ok());
        let mount = existing.or(fs::canonicalize(".").ok()).and_then(|path| mount_of(&mounts, &path));
        let Some((file_system, source)) = mount else {
            return Self { kind: DiskKind::Unknown, file_system: None };
        };
        Self { kind: kind(&file_system, &source), file_system: Some(file_system) }
    }
}

/// Returns the file system at a path, and the device that it is on, taken from the longest mount point that
/// contains the path, the most recent if there are several.
fn mount_of(mounts: &str, path: &Path) -> Option<(String, String)> {
    let mount = |line: &str| {
        let (place, rest) = line.split_once(" - ")?;
        // Linux writes blanks in names as octal numbers.
        let point = PathBuf::from(place.split(' ').nth(4)?.replace("\\040", " "));
        let mut rest = rest.split(' ');
        let found = (rest.next()?.to_owned(), rest.next()?.to_owned());
        path.starts_with(&point).then(|| (point.components().count(), found))
    };
    mounts.lines().filter_map(mount).max_by_key(|(length, _)| *length).map(|(_, found)| found)
}

fn kind(file_system: &str, source: &str) -> DiskKind {
    match file_system {
        "tmpfs" | "ramfs" => return DiskKind::Memory,
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "virtiofs" => return DiskKind::Network,
        _ => {}
    }
    // A logical volume has a link to its device.
    let device = fs::canonicalize(source).unwrap_or_else(|_| source.into());
    let name = device.file_name().unwrap_or_default();
    let Ok(device) = fs::canonicalize(Path::new("/sys/class/block").join(name)) else {
        return DiskKind::Unknown;
    };
    let name = name.to_string_lossy();
    // A partition is in the directory of its disk.
    let rotates = [device.join("queue/rotational"), device.join("../queue/rotational")];
    let rotates = rotates.iter().find_map(|file| fs::read_to_string(file).ok());
    match rotates.as_deref().map(str::trim) {
        _ if name.starts_with("nvme") => DiskKind::Nvme,
        _ if name.starts_with("mmcblk") => DiskKind::SdCard,
        _ if ["vd", "xvd"].iter().any(|prefix| name.starts_with(prefix)) => DiskKind::Virtual,
        Some("1") => DiskKind::Rotating,
        Some("0") => DiskKind::Ssd,
        _ => DiskKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_and_last_mount_point_counts() {
        let mounts = "\
            22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n\
            40 22 8:1 / /var/my\\040disk rw - xfs /dev/sda1 rw\n\
            41 22 0:40 / /var/mnt rw - tmpfs tmpfs rw\n\
            42 41 0:41 / /var/mnt rw - nfs4 server:/share rw\n";
        let of = |path: &str| mount_of(mounts, Path::new(path)).unwrap();
        let expected = |file_system: &str, source: &str| (file_system.to_owned(), source.to_owned());
        assert_eq!(of("/var/lib"), expected("ext4", "/dev/nvme0n1p2"));
        assert_eq!(of("/var/my disk/node"), expected("xfs", "/dev/sda1"));
        assert_eq!(of("/var/mnt/mydisk"), expected("nfs4", "server:/share"));
        assert_eq!((kind("tmpfs", "tmpfs"), kind("nfs4", "server:/")), (DiskKind::Memory, DiskKind::Network));
    }
}
