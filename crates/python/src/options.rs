//! The arguments of Python as options of the engine.

use engine::{
    ChainOptions, Error, Location, Network, RealDisk, ScriptChecks,
    machine::{MIN_MEMORY, memory_limit},
};
use std::{fmt::Display, num::NonZeroUsize, path::PathBuf, thread};

/// Which datadir is read, and with how many threads and how much memory.
pub struct Place<'a> {
    pub datadir: PathBuf,
    /// Its name; `None`: the only one that the datadir has, or the main network.
    pub chain: Option<&'a str>,
    pub blocksdir: Option<PathBuf>,
    pub threads: Option<NonZeroUsize>,
    pub memory: Option<u64>,
}

impl Place<'_> {
    pub fn options(self) -> Result<ChainOptions, Error> {
        let network = self.network()?;
        if self.memory.is_some_and(|bytes| bytes < MIN_MEMORY) {
            return Err(Error::usage(format!("memory must be at least {MIN_MEMORY} bytes")));
        }
        if let Some(most) = memory_limit().filter(|most| self.memory.is_some_and(|bytes| bytes > *most)) {
            let detail = format!("memory must be at most {most} bytes, to which this process is limited");
            return Err(Error::usage(detail));
        }
        let options = ChainOptions::new(&self.datadir, network, script_checks());
        let threads = self.threads.or_else(|| thread::available_parallelism().ok());
        Ok(ChainOptions {
            blocksdir: self.blocksdir,
            threads: threads.unwrap_or(NonZeroUsize::MIN),
            memory_bytes: self.memory.unwrap_or(options.memory_bytes),
            ..options
        })
    }

    fn network(&self) -> Result<Network, Error> {
        if let Some(name) = self.chain {
            return name.parse().map_err(unknown);
        }
        let main = Location::new(&self.datadir, Network::Main);
        // What cannot be read is reported when it is opened.
        let there = Location { blocksdir: self.blocksdir.clone(), ..main }.likely_networks(&RealDisk);
        Ok(match there.unwrap_or_default()[..] {
            [only] => only,
            _ => Network::Main,
        })
    }
}

/// The error for a name that is not known.
pub fn unknown(error: impl Display) -> Error {
    Error::usage(error.to_string())
}

/// Scripts are run by Bitcoin Core's own code, and left out by a build without it.
fn script_checks() -> ScriptChecks {
    #[cfg(feature = "scripts")]
    return ScriptChecks::By(std::sync::Arc::new(script::Core));
    #[cfg(not(feature = "scripts"))]
    ScriptChecks::LeftOut
}
