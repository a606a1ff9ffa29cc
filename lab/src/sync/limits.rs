//! The measured program gets only a part of this machine: processors, memory, disk bandwidth. Control groups
//! hold it to that, of version 2 or 1.

use super::{failed, link::number};
use crate::place::environment;
use engine::Error;
use rustix::fs::{major, minor};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    str::FromStr,
    thread,
    time::Duration,
};

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// Microseconds of the period in which processor time is counted.
const PERIOD: f64 = 100_000.0;
/// Raspberry Pis, as parts of an x86-64 server core. These are estimates: a core of the Pi 4 does about a
/// quarter of such a core's work, and one of the Pi 5 half of it. Disks: a card or USB stick; an NVMe disk.
const BOARDS: &[(&str, &str)] = &[("pi4", "cpu=1,memory=4G,disk=40M"), ("pi5", "cpu=2,memory=8G,disk=400M")];

/// What the program gets at most.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Limits {
    /// Seconds of processor time per second.
    pub processors: Option<f64>,
    /// Bytes of memory, page cache included.
    pub memory: Option<u64>,
    /// Bytes per second that are read from disk, and as many that are written to it.
    pub disk: Option<u64>,
}

impl FromStr for Limits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = BOARDS.iter().find(|(name, _)| *name == text).map_or(text, |(_, limits)| limits);
        let mut limits = Self::default();
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("cpu", text)) => limits.processors = Some(number(text)?),
                Some(("memory", text)) => limits.memory = Some(number(text)? as u64),
                Some(("disk", text)) => limits.disk = Some(number(text)? as u64),
                _ => return Err(format!("{part} is none of pi4, pi5, cpu=N, memory=BYTES and disk=BYTES")),
            }
        }
        Ok(limits)
    }
}

impl Limits {
    /// Returns what is to be written to control groups of version 2 (or 1): controller, file and text.
    fn settings(&self, device: &str, is_version_2: bool) -> Vec<(&'static str, &'static str, String)> {
        let mut all = Vec::new();
        if let Some(processors) = self.processors {
            let quota = (processors * PERIOD) as u64;
            match is_version_2 {
                true => all.push(("cpu", "cpu.max", format!("{quota} {PERIOD}"))),
                false => all.push(("cpu", "cpu.cfs_quota_us", quota.to_string())),
            }
        }
        if let Some(bytes) = self.memory {
            let file = if is_version_2 { "memory.max" } else { "memory.limit_in_bytes" };
            all.push(("memory", file, bytes.to_string()));
        }
        if let Some(bytes) = self.disk {
            if is_version_2 {
                all.push(("io", "io.max", format!("{device} rbps={bytes} wbps={bytes}")));
            } else {
                let text = format!("{device} {bytes}");
                all.push(("blkio", "blkio.throttle.read_bps_device", text.clone()));
                all.push(("blkio", "blkio.throttle.write_bps_device", text));
            }
        }
        all
    }
}

/// The control groups of one run. They are removed when this is dropped.
#[derive(Default)]
pub struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes groups with these limits. `work_dir` is on the disk that is limited.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`](engine::ErrorKind::Environment) if the system refuses one of them.
    pub fn new(limits: &Limits, work_dir: &Path) -> Result<Self, Error> {
        let device = match limits.disk {
            Some(_) => device(work_dir).map_err(|error| environment("find the disk of", work_dir, error))?,
            None => String::new(),
        };
        let is_version_2 = Path::new(ROOT).join("cgroup.controllers").exists();
        let name = format!("peregrine-bench-{}", std::process::id());
        let mut groups = Self(Vec::new());
        for (controller, file, text) in limits.settings(&device, is_version_2) {
            let tree = if is_version_2 { PathBuf::from(ROOT) } else { Path::new(ROOT).join(controller) };
            let folder = tree.join(&name);
            let set = groups.make(&folder).and_then(|()| fs::write(folder.join(file), &text));
            set.map_err(|error| failed(&format!("write {text} to {file} of a control group"), error))?;
        }
        Ok(groups)
    }

    fn make(&mut self, folder: &Path) -> io::Result<()> {
        if !self.0.iter().any(|known| known == folder) {
            fs::create_dir(folder)?;
            self.0.push(folder.to_owned());
        }
        Ok(())
    }

    /// Returns the words of a command that runs the words after them in these groups.
    pub fn prefix(&self) -> Vec<OsString> {
        let mut line = String::new();
        for at in 1..=self.0.len() {
            line += &format!("echo $$ > \"${at}/cgroup.procs\" && ");
        }
        line += &format!("shift {} && exec \"$@\"", self.0.len());
        let words = ["sh", "-c", &line, "sh"].map(OsString::from);
        words.into_iter().chain(self.0.iter().map(OsString::from)).collect()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for folder in &self.0 {
            // The system may need a moment after the last process has ended.
            for _ in 0..100 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Returns the number of the whole disk on which a folder is: `254:0`.
fn device(folder: &Path) -> io::Result<String> {
    let number = fs::metadata(folder)?.dev();
    let number = format!("{}:{}", major(number), minor(number));
    let entry = fs::canonicalize(Path::new("/sys/dev/block").join(&number))?;
    // A partition's folder is in its disk's.
    let is_part = entry.join("partition").exists();
    let disk = if is_part { entry.parent().unwrap_or(&entry) } else { &entry };
    Ok(fs::read_to_string(disk.join("dev"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_they_are_written() {
        let limits: Limits = "cpu=1.5,memory=2G,disk=40M".parse().unwrap();
        let parts = (limits.processors, limits.memory, limits.disk);
        assert_eq!(parts, (Some(1.5), Some(2_000_000_000), Some(40_000_000)));
        assert!(BOARDS.iter().all(|(name, _)| name.parse::<Limits>().is_ok_and(|it| it.disk.is_some())));
        assert!("cpu=0".parse::<Limits>().is_err() && "pi3".parse::<Limits>().is_err());
    }

    #[test]
    fn both_versions_of_control_groups_get_their_words() {
        let limits: Limits = "cpu=0.5,memory=1G,disk=1M".parse().unwrap();
        let texts = |is_version_2| {
            let settings = limits.settings("8:0", is_version_2);
            settings
                .into_iter()
                .map(|(tree, file, text)| format!("{tree}/{file}: {text}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            texts(false),
            [
                "cpu/cpu.cfs_quota_us: 50000",
                "memory/memory.limit_in_bytes: 1000000000",
                "blkio/blkio.throttle.read_bps_device: 8:0 1000000",
                "blkio/blkio.throttle.write_bps_device: 8:0 1000000",
            ]
        );
        assert_eq!(
            texts(true),
            [
                "cpu/cpu.max: 50000 100000",
                "memory/memory.max: 1000000000",
                "io/io.max: 8:0 rbps=1000000 wbps=1000000"
            ]
        );
    }
}
