//! Under which circumstances something was measured: machine, load, commit.

use crate::{place::failed, runs::BenchArgs};
use cli::{run_log::Machine, version::commit_or_version};
use engine::Error;
use serde::Serialize;
use std::{env::consts::ARCH, fs, path::Path};

/// The load average of one minute above which a machine is busy.
const MAX_LOAD: f64 = 0.5;

#[derive(Serialize)]
pub struct Circumstances {
    machine: Machine,
    /// Commit of the sources of this program, or its version if that is not known.
    commit: &'static str,
    /// The system's load average of one minute, before and after.
    load: [Option<f64>; 2],
    /// The kind of the disk on which it ran.
    disk: Option<&'static str>,
}

impl Circumstances {
    /// Describes the system before the first run, and the disk to which results go.
    ///
    /// # Errors
    /// [`engine::ErrorKind::Environment`] if it is busy and the caller does not accept that.
    pub fn begin(args: &BenchArgs) -> Result<Self, Error> {
        let (commit, before) = (commit_or_version(), load());
        if let Some(load) = before.filter(|load| *load > MAX_LOAD && !args.busy) {
            return Err(failed(format!(
                "the load average is {load}, above {MAX_LOAD}: something else runs on this machine, or has \
                 just ended; wait, or pass --busy to measure anyway"
            )));
        }
        Ok(Self { machine: Machine::this(), commit, load: [before, None], disk: disk(&args.work_dir) })
    }

    /// Adds what is known after the last run.
    pub fn end(self) -> Self {
        Self { load: [self.load[0], load()], ..self }
    }

    /// Returns the description as lines.
    pub fn text(&self) -> String {
        let Self { machine, commit, disk, .. } = self;
        let [before, after] =
            self.load.map(|load| load.map_or("unknown".to_owned(), |load| format!("{load:.1}")));
        let disk = disk.unwrap_or("unknown");
        format!(
            "machine  {ARCH}, {machine}\ndisk     {disk}\nload     {before} before, {after} after\n\
             commit   {commit}\n"
        )
    }
}

/// Returns the kind of the disk that has a folder, if the system knows it. A partition has it from its disk.
fn disk(folder: &Path) -> Option<&'static str> {
    let device = rustix::fs::stat(folder).ok()?.st_dev;
    let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let ask = |path: &str| fs::read_to_string(format!("{device}/{path}")).ok();
    match ask("queue/rotational").or_else(|| ask("../queue/rotational"))?.trim() {
        "0" => Some("reported as not rotating"),
        _ => Some("reported as rotating, as virtual disks often are"),
    }
}

/// Returns the system's load average of one minute, if it is known.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn circumstances_name_the_machine_and_the_commit() {
        let args = <Words as clap::Parser>::parse_from(["bench", "--busy"]).args;
        let text = Circumstances::begin(&args).unwrap().end().text();
        assert!(text.contains(ARCH), "{text}");
        assert!(text.contains(" cores, "), "{text}");
        assert!(text.contains(" GiB"), "{text}");
        assert!(text.contains("commit "), "{text}");
        assert_eq!(text.lines().count(), 4);
    }
}
