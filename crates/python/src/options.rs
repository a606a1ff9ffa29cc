//! The arguments of Python as options of the engine.

use engine::{ChainOptions, Error, Location, Network, RealDisk, ScriptChecks};
use std::{num::NonZeroUsize, path::PathBuf, thread};

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
            return name.parse().map_err(|error| Error::usage(format!("{error}")));
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

/// Scripts are run by Bitcoin Core's own code, and left out by a build without it.
fn script_checks() -> ScriptChecks {
    #[cfg(feature = "scripts")]
    return ScriptChecks::By(std::sync::Arc::new(script::Core));
    #[cfg(not(feature = "scripts"))]
    ScriptChecks::LeftOut
}

/// Returns which of `all` is called `wanted`, the value of `option`.
pub fn named<T: Copy>(
    option: &str,
    all: &[T],
    name: fn(T) -> &'static str,
    wanted: &str,
) -> Result<T, Error> {
    let names = || all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", ");
    let found = all.iter().copied().find(|&one| name(one) == wanted);
    found.ok_or_else(|| Error::usage(format!("{option} is {wanted:?}, but must be one of {}", names())))
}
