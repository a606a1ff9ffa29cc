//! The hostile loop: damages random datadirs at random, then runs `peregrine reindex` on them in place,
//! interrupted or not. Afterwards a real `bitcoind` must start if it started before, at the same height or a
//! greater one, and no file of the user may have changed.
//!
//! Everything follows from a printed seed and the number of the case, except the moment at which a signal
//! arrives.
#![forbid(unsafe_code)]

mod base;
mod block_files;
mod case;
mod damage;
mod datadir_state;
mod finding;
mod indexes;
mod prelude;
mod program;
mod scene;
mod steps;
mod tree;

use case::{Outcome, clear, run_case};
use clap::Parser;
use prelude::*;
use program::Program;
use std::{
    process::{ExitCode, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};
use testkit::node::Writer;

/// Damages datadirs, runs `peregrine reindex` on them and checks the result with a real bitcoind.
#[derive(Parser)]
#[command(name = "hostile", version)]
struct Args {
    /// Seed of all random numbers [default: the current time]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of cases
    #[arg(long, default_value_t = 2000)]
    runs: u64,
    /// Number of the first case
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Bitcoin Core's bitcoind
    #[arg(long, default_value = "bitcoind")]
    bitcoind: PathBuf,
    /// The peregrine to test [default: the one beside this program]
    #[arg(long)]
    peregrine: Option<PathBuf>,
    /// Directory for datadirs; a file system in memory is fastest
    #[arg(long, default_value = "target/hostile")]
    dir: PathBuf,
    /// Kind of the first damage in each case; see --list
    #[arg(long)]
    only: Option<String>,
    /// Use only base datadirs whose name contains this
    #[arg(long)]
    base: Option<String>,
    /// Keep the folders of all cases, not only of cases with findings
    #[arg(long)]
    keep: bool,
    /// Number of cases that run concurrently
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Seconds after which a run counts as hung; use more on a busy machine
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// Print the kinds of damage and exit
    #[arg(long)]
    list: bool,
    /// Print the log of each case
    #[arg(long)]
    verbose: bool,
}

/// The configuration that all cases share.
pub struct Context {
    pub seed: u64,
    pub bitcoind: PathBuf,
    pub peregrine: PathBuf,
    /// Directory for datadirs.
    pub dir: PathBuf,
    /// Kind of the first damage in each case.
    pub only: Option<String>,
    /// Time after which a process counts as hung.
    pub patience: Duration,
    /// Part of the names of the base datadirs to use.
    pub base: Option<String>,
    /// Whether `strace` works, so that runs can be killed at a system call.
    pub has_strace: bool,
}

impl Context {
    /// The peregrine, run by this user.
    pub fn program(&self, user: Option<u32>) -> Program<'_> {
        Program { path: &self.peregrine, user, patience: self.patience }
    }

    /// The bitcoind, with these flags.
    pub fn writer<'a>(&'a self, flags: &'a [String]) -> Writer<'a> {
        Writer { program: &self.bitcoind, flags, patience: self.patience }
    }
}

/// Maximum number of findings of one class whose folders are kept.
const KEPT_PER_CLASS: u64 = 5;

#[derive(Default)]
struct Tally {
    cases: u64,
    started: u64,
    ends: BTreeMap<String, u64>,
    findings: BTreeMap<&'static str, (u64, Vec<u64>)>,
    /// Cases in which the node itself hung before any run.
    node_hung: Vec<u64>,
    broken: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        damage::KINDS.iter().for_each(|kind| println!("{}", kind.name));
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hostile: {error}");
            ExitCode::from(2)
        }
    }
}

/// Finds a program by its path, or by its name on the `PATH`.
fn find(program: &Path, advice: &str) -> Res<PathBuf> {
    let places = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&places).map(|dir| dir.join(program));
    let mut all = [program.to_owned()].into_iter().chain(named);
    let found = all.find(|path| path.is_file());
    let found = found.ok_or_else(|| format!("there is no {}: {advice}", program.display()))?;
    Ok(fs::canonicalize(found)?)
}

fn context(args: &Args) -> Res<Context> {
    let bitcoind =
        find(&args.bitcoind, "name Bitcoin Core's node with --bitcoind PATH (make hostile BITCOIND=PATH)")?;
    let beside = std::env::current_exe()?.with_file_name("peregrine");
    let peregrine = args.peregrine.as_deref().unwrap_or(&beside);
    let peregrine = find(peregrine, "build it with make hostile, or name it with --peregrine PATH")?;
    fs::create_dir_all(&args.dir)?;
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=1", "true"])
        .stdin(Stdio::null())
        .output();
    let seed = args.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_secs())
    });
    if let Some(only) = &args.only
        && !damage::KINDS.iter().any(|kind| kind.name == only)
    {
        return Err(format!("there is no kind of damage {only}; --list prints all").into());
    }
    Ok(Context {
        seed,
        bitcoind,
        peregrine,
        dir: fs::canonicalize(&args.dir)?,
        only: args.only.clone(),
        base: args.base.clone(),
        patience: Duration::from_secs(args.patience),
        has_strace: traced.is_ok_and(|output| output.status.success()),
    })
}

/// Runs all cases. Returns false if there are findings.
fn run(args: &Args) -> Res<bool> {
    let context = context(args)?;
    println!("seed {}, cases {} to {}", context.seed, args.first, args.first + args.runs - 1);
    println!("kills at system calls: {}", context.has_strace);
    let bases = base::bases(&context)?;
    let (next, tally, begun) = (AtomicU64::new(args.first), Mutex::new(Tally::default()), Instant::now());
    thread::scope(|scope| {
        for _ in 0..args.workers.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= args.first + args.runs {
                        return;
                    }
                    let outcome = run_case(&context, &bases, number);
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    note(&mut tally, args, number, outcome);
                    if tally.cases % 50 == 0 {
                        println!("{} cases in {:.0?}", tally.cases, begun.elapsed());
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report(&context, &tally, begun))
}

fn note(tally: &mut Tally, args: &Args, number: u64, outcome: Res<Outcome>) {
    tally.cases += 1;
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            println!("case {number}: the loop itself failed: {error}");
            tally.broken += 1;
            return;
        }
    };
    if outcome.node_hung {
        tally.node_hung.push(number);
        let _ = clear(&outcome.dir);
        return;
    }
    tally.started += u64::from(outcome.started);
    let end = outcome.last.map_or("killed".to_owned(), |code| format!("exit {code}"));
    *tally.ends.entry(end).or_default() += 1;
    if args.verbose || !outcome.findings.is_empty() {
        print!("{}", outcome.log);
    }
    let mut keep = args.keep;
    for finding in &outcome.findings {
        let (count, cases) = tally.findings.entry(finding.class).or_default();
        *count += 1;
        keep |= *count <= KEPT_PER_CLASS;
        if cases.last() != Some(&number) {
            cases.push(number);
        }
    }
    if keep {
        let _ = fs::write(outcome.dir.join("log"), &outcome.log);
    } else {
        let _ = clear(&outcome.dir);
    }
}

fn report(context: &Context, tally: &Tally, begun: Instant) -> bool {
    let seed = context.seed;
    println!("\n{} cases of seed {seed} in {:.0?}", tally.cases, begun.elapsed());
    println!("bitcoind started before the runs in {}", tally.started);
    if !tally.node_hung.is_empty() {
        println!("bitcoind itself hung before any run, so these cases were left out: {:?}", tally.node_hung);
    }
    let ends: Vec<String> = tally.ends.iter().map(|(end, count)| format!("{end}: {count}")).collect();
    println!("the last reindex: {}", ends.join(", "));
    for (class, (count, cases)) in &tally.findings {
        let shown: Vec<String> = cases.iter().take(12).map(u64::to_string).collect();
        println!("FINDING {class}: {count} times, in {} cases: {}", cases.len(), shown.join(" "));
    }
    if !tally.findings.is_empty() {
        println!("to repeat one case: hostile --seed {seed} --first NUMBER --runs 1 --keep --verbose");
    }
    if tally.broken > 0 {
        println!("the loop itself failed in {} cases", tally.broken);
    }
    if tally.findings.is_empty() && tally.broken == 0 {
        println!("no findings");
    }
    tally.findings.is_empty() && tally.broken == 0
}
