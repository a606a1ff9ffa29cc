//! The files that a package contains beside the program: man pages and completions for shells, both derived
//! from the definition of the command line.

use crate::args::Args;
use clap::{Args as ClapArgs, CommandFactory, builder::Resettable};
use clap_complete::Shell;
use engine::{Error, ErrorKind};
use peregrine::{exit::Exit, output::Done};
use std::{fs, path::PathBuf};

#[derive(ClapArgs, Debug)]
pub struct CompletionsArgs {
    /// Shell that is to read the script
    pub shell: Shell,
}

#[derive(ClapArgs, Debug)]
pub struct ManArgs {
    /// Folder for the pages; it is made if it is missing, and pages in it are replaced
    pub dir: PathBuf,
}

/// Returns the script that completes the command line in a shell.
pub fn completions(args: &CompletionsArgs) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "peregrine", &mut script);
    Ok((String::from_utf8_lossy(&script).trim_end().to_owned(), Exit::Done))
}

/// Writes a man page for the program and one for each command.
///
/// # Errors
/// [`ErrorKind::Environment`] if the folder or a page cannot be written.
pub fn man(args: &ManArgs) -> Done {
    // As one paragraph, the lines of `--version` would be hard to read.
    let command = Args::command().long_version(Resettable::Reset);
    let written = fs::create_dir_all(&args.dir).and_then(|()| clap_mangen::generate_to(command, &args.dir));
    written.map_err(|error| {
        let what = format!("the man pages cannot be written: {error}; choose another folder");
        Error::new(ErrorKind::Environment, what).in_file(&args.dir, None)
    })?;
    Ok((format!("man pages are in {}", args.dir.display()), Exit::Done))
}
