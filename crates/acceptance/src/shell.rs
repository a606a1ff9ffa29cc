//! Commands as users type them, run on a datadir of the tests: columns of the tables of what each command
//! does, and steps of other tests.

use crate::prelude::*;
use engine::Reconsider;
use sync::SyncSink;

/// Where commands run, and what their arguments mean.
pub struct Shell {
    pub disk: FaultDisk,
    /// The datadir.
    pub chain: ChainOptions,
    /// Heights of the blocks that a rebuild is given.
    pub given: Vec<u32>,
    /// The file that `snapshot load` reads.
    pub snapshot: PathBuf,
    /// Indexes that may be set aside.
    pub set_aside: SetAsideIndexes,
    /// A folder outside of the datadir, for what commands write elsewhere.
    pub outside: TempDir,
    /// The honest peer that is asked.
    pub peer: LazyLock<ScriptedPeer>,
}

/// What a command has done.
#[derive(Default)]
pub struct Done {
    /// Height of the chainstate, if one was made or continued.
    pub height: Option<Height>,
    pub diagnosis: Option<Diagnosis>,
    pub repair: Option<RepairReport>,
    pub sync: Option<SyncReport>,
    /// Where indexes were set aside.
    pub kept: Vec<PathBuf>,
    pub rebuild: Option<ReindexReport>,
}

impl Shell {
    pub fn of(case: &Case) -> Self {
        Self::at(case.root())
    }

    /// A shell for a datadir of regtest.
    pub fn at(root: &Path) -> Self {
        Self {
            disk: FaultDisk::healthy(),
            chain: ChainOptions::new(root, Network::Regtest, ScriptChecks::LeftOut),
            given: Vec::new(),
            snapshot: PathBuf::new(),
            set_aside: SetAsideIndexes::None,
            outside: super::scratch(),
            peer: LazyLock::new(honest),
        }
    }

    /// The options of `reindex` that a command line has.
    fn reindex_options(&self, command: &str) -> ReindexOptions {
        let words: Vec<&str> = command.split(' ').map(|word| word.trim_start_matches('-')).collect();
        let has = |flag| words.contains(&flag);
        let value = |flag| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
        let mut options = ReindexOptions::of(self.chain.clone());
        options.set_aside_indexes = self.set_aside.clone();
        options.chain.scan = has("scan");
        options.until_damage = has("until-damage");
        options.chain.keep_old = has("keep-old");
        options.accept_lower_tip = has("accept-lower-tip");
        options.output = has("output").then(|| self.outside.path().join("out"));
        options.chain.stop_at_height = value("to").map(|height| Height(height.parse().unwrap()));
        if value("engine") == Some("cache") {
            options.engine = Engine::Cache;
        }
        if value("undo") == Some("trust") {
            options.chain.undo = UndoPolicy::Trust;
        }
        if has("block") {
            let write = |&height: &u32| {
                let path = self.outside.path().join(format!("{height}.blk"));
                fs::write(&path, &block_at(height).bytes).unwrap();
                path
            };
            options.blocks = self.given.iter().map(write).collect();
        }
        options
    }

    /// Runs a command. Those that download have an honest peer.
    pub fn run(&self, command: &str) -> Result<Done, Error> {
        let kept = Mutex::new(Vec::new());
        let sink = |event| {
            if let Event::Warning(Warning::IndexSetAside { kept: path, .. }) = event {
                kept.lock().unwrap().push(path);
            }
        };
        let name = command.split(" --").next().unwrap();
        let done = match name {
            "repair" | "sync" => self.download(name, &sink),
            "doctor" | "reindex" | "update" | "recover" | "undo make" => self.mend(name, command, &sink),
            _ => self.read(name, command, &sink),
        }?;
        Ok(Done { kept: kept.into_inner().unwrap(), ..done })
    }

    /// Runs a command that asks a peer.
    fn download(&self, name: &str, sink: &dyn SyncSink) -> Result<Done, Error> {
        let (disk, never, mut chain) = (&self.disk, &AtomicBool::new(false), self.chain.clone());
        let (root, set_aside_indexes) = (chain.datadir.clone(), self.set_aside.clone());
        if name == "sync" {
            // Too little for a rebuild beside the download: chance would decide whether that meets damage
            // before the first block is asked for.
            chain.memory_bytes = 64 << 20;
            let options = SyncOptions { chain, set_aside_indexes, ..from(&root, &[&*self.peer]) };
            let sync = Some(sync::sync(disk, &options, sink, never)?);
            return Ok(Done { sync, ..Done::default() });
        }
        let options = RepairOptions { chain, set_aside_indexes, ..repairing(&root, &[&*self.peer]) };
        let repair = Some(sync::repair(disk, &options, sink, never)?);
        Ok(Done { repair, ..Done::default() })
    }

    /// Runs a command that examines or mends what is there.
    fn mend(&self, name: &str, command: &str, sink: &dyn SyncSink) -> Result<Done, Error> {
        let (disk, watch, chain) = (&self.disk, Watch { sink, ..unwatched() }, self.chain.clone());
        let (root, network) = (chain.datadir.clone(), chain.params.network);
        let mut done = Done::default();
        match name {
            "doctor" => {
                let deep = command.ends_with("deep");
                let options = DoctorOptions { chain, deep, ..DoctorOptions::new(&root, network) };
                done.diagnosis = Some(engine::doctor::diagnose(disk, &options, watch)?);
            }
            "reindex" => {
                let report = engine::reindex(disk, &self.reindex_options(command), watch)?;
                (done.height, done.rebuild) = (Some(report.height), Some(report));
            }
            "update" => {
                let reconsider = command.ends_with("reconsider").then_some(Reconsider::All);
                let options = ChainOptions { reconsider, ..chain };
                done.height = Some(engine::update(disk, &options, watch)?.height);
            }
            "undo make" => {
                engine::undo::make(disk, &chain, watch).map(drop)?;
            }
            _ => engine::recover(disk, &Location::new(&root, network)).map(drop)?,
        }
        Ok(done)
    }

    /// Runs a command that makes no change to blocks or their databases, except that a snapshot is loaded.
    fn read(&self, name: &str, command: &str, sink: &dyn SyncSink) -> Result<Done, Error> {
        let (disk, watch, chain) = (&self.disk, Watch { sink, ..unwatched() }, &self.chain);
        let (options, file) = (self.reindex_options(command), self.outside.path().join("made"));
        let made = &options.chain;
        match name {
            "verify" => {
                let against_chainstate = command.ends_with("against-chainstate");
                engine::verify(disk, made, against_chainstate, watch).map(drop)
            }
            "hints make" => engine::hints::make(disk, made, &file, HintFormat::Peregrine, watch).map(drop),
            "snapshot make" => engine::snapshot::make(disk, made, &file, watch).map(drop),
            "snapshot load" => engine::snapshot::load(disk, &self.snapshot, chain, watch).map(drop),
            "utxo stats" => {
                let chainstate = ChainOptions::reading(&chain.datadir, chain.params.network);
                engine::utxo::stats(disk, &chainstate, false, unwatched()).map(drop)
            }
            other => panic!("no command {other:?}"),
        }?;
        Ok(Done::default())
    }

    pub fn diagnosis(&self) -> Diagnosis {
        self.run("doctor").unwrap().diagnosis.unwrap()
    }

    pub fn advice(&self) -> Advice {
        self.diagnosis().advice
    }
}
