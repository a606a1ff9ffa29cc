//! Network namespaces without a name. Each exists as long as a process of ours that holds it, and no longer:
//! the system ends all processes that are started here when this one ends, even by `kill -9`.

use super::failed;
use engine::{Error, ErrorKind};
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a process may take to enter a new namespace.
const ENTER_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes and packets that an interface received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    pub bytes: u64,
    pub packets: u64,
}

/// A network namespace.
pub struct Namespace {
    holder: Running,
}

/// A process that is ended when this is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that the system ends when this process ends.
fn tied(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program.as_ref());
    command
}

impl Namespace {
    /// Creates a namespace that has the loopback device only.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`] if the system refuses it, or lacks one of the programs for it.
    pub fn new() -> Result<Self, Error> {
        let refused = |error: io::Error| failed("make a network namespace with unshare", error);
        let own = fs::read_link("/proc/self/ns/net").map_err(refused)?;
        let holder = tied("unshare").args(["--net", "sleep", "infinity"]).stdin(Stdio::null()).spawn();
        let mut namespace = Self { holder: Running(holder.map_err(refused)?) };
        let deadline = Instant::now() + ENTER_TIMEOUT;
        while fs::read_link(namespace.link()).map_err(refused)? == own {
            if namespace.holder.0.try_wait().map_err(refused)?.is_some() || Instant::now() > deadline {
                let detail = "this system or this user cannot make network namespaces (unshare --net)";
                return Err(Error::new(ErrorKind::Environment, detail));
            }
            thread::sleep(Duration::from_millis(1));
        }
        namespace.configure("link set lo up\n")?;
        Ok(namespace)
    }

    fn link(&self) -> PathBuf {
        Path::new("/proc").join(self.holder.0.id().to_string()).join("ns/net")
    }

    /// A command that runs a program in this namespace.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = tied("nsenter");
        let mut argument = std::ffi::OsString::from("--net=");
        argument.push(self.link());
        command.arg(argument).arg("--").arg(program);
        command
    }

    /// Moves an interface into this namespace, and gives it an address and its neighbour's.
    pub fn take(&self, device: &str, address: &str, neighbour: &str) -> Result<(), Error> {
        let mut command = Command::new("ip");
        command.args(["link", "set", device, "netns", &self.holder.0.id().to_string()]);
        let status = command.status().map_err(|error| failed("run ip (iproute2)", error))?;
        if !status.success() {
            let detail = format!("cannot move an interface into a network namespace (ip: {status})");
            return Err(Error::new(ErrorKind::Environment, detail));
        }
        // Without addrgenmode, IPv6 would send packets of its own.
        self.configure(&format!(
            "link set {device} addrgenmode none\nlink set {device} txqueuelen 1000 up\n\
             addr add {address} peer {neighbour} dev {device}\n"
        ))
    }

    /// Runs lines of `ip` in this namespace.
    fn configure(&self, lines: &str) -> Result<(), Error> {
        let run = || -> io::Result<_> {
            let mut command = self.command(Path::new("ip"));
            let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
            child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?.write_all(lines.as_bytes())?;
            child.wait()
        };
        let status = run().map_err(|error| failed("run ip (iproute2)", error))?;
        if !status.success() {
            let detail = format!("cannot set up a network namespace (ip: {status})");
            return Err(Error::new(ErrorKind::Environment, detail));
        }
        Ok(())
    }

    /// Returns what each interface has received: its name, bytes and packets.
    pub fn received(&self) -> io::Result<Vec<(String, Received)>> {
        let path = Path::new("/proc").join(self.holder.0.id().to_string()).join("net/dev");
        Ok(interfaces(&fs::read_to_string(path)?))
    }
}

/// Reads Linux's `/proc/PID/net/dev`.
fn interfaces(text: &str) -> Vec<(String, Received)> {
    let line = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let mut numbers = numbers.split_whitespace().map_while(|number| number.parse().ok());
        let received = Received { bytes: numbers.next()?, packets: numbers.next()? };
        Some((name.trim().to_owned(), received))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read() {
        let text = "Inter-|   Receive      |  Transmit\n face |bytes  packets errs|bytes packets\n    \
                    lo: 12 3 0 0 0 0 0 0 12 3 0 0 0 0 0 0\n  tun0:4096 5 0 0 0 0 0 0 7 8 0 0 0 0 0 0\n";
        let received = |bytes, packets| Received { bytes, packets };
        assert_eq!(interfaces(text), [("lo".into(), received(12, 3)), ("tun0".into(), received(4096, 5))]);
        assert_eq!(interfaces("lo: x"), []);
    }
}
