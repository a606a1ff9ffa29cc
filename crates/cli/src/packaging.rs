//! The files that a package contains beside the program: man pages and completions for shells, both derived
//! from the definition of the command line.

use crate::prelude::*;
use clap::{Arg, Command, builder::Resettable};
use clap_complete::Shell;
use clap_mangen::Man;
use std::{fs, io};

/// What the help and the man pages say about exit codes.
pub const EXIT_CODES: &str = "\
    Exit codes: 0 success; 1 internal error (a bug: please report it); 2 usage; 3 the chain breaks a \
    consensus rule; 4 damaged or missing files; 5 environment (files in use, no space, no permission, I/O \
    error); 6 wrong hints; 7 not unspent; 130 interrupted.";

/// Command lines for the man pages: at least one for each command.
const EXAMPLES: &str = include_str!("examples.txt");

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Shell that is to read the script
    pub shell: Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Folder for the pages; it is made if it is missing, and pages in it are replaced
    pub dir: PathBuf,
}

/// Returns the script that completes the command line `command` in a shell.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "peregrine", &mut script);
    Ok((String::from_utf8_lossy(&script).trim_end().to_owned(), Exit::Done))
}

/// Gives each option a long help text: a page leaves out the short one of options that `-h` does not show.
fn with_long_help(command: Command) -> Command {
    let with_text = |option: Arg| match option.get_help().cloned() {
        Some(help) if option.get_long_help().is_none() => option.long_help(help),
        _ => option,
    };
    command.mut_args(with_text).mut_subcommands(with_long_help)
}

/// Returns the sections about examples, exit codes and files of the page of a command, in roff.
fn sections(command: &str) -> String {
    let examples = EXAMPLES.lines().filter(|line| line.starts_with(command));
    let shown = |line: &str| format!("{}\n", line.replace('-', "\\-"));
    let examples: String = examples.take(if command == "peregrine" { 0 } else { 2 }).map(shown).collect();
    let examples = match &*examples {
        "" => String::new(),
        lines => format!(".SH EXAMPLES\n.nf\n{lines}.fi\n"),
    };
    let codes = EXIT_CODES.trim_start_matches("Exit codes: ").replace("; ", ";\n.br\n");
    let others = if command == "peregrine" { "" } else { "peregrine(1), " };
    format!(
        "{examples}.SH EXIT STATUS\n{codes}\n.SH FILES\n\
         .TP\n~/.bitcoin/bitcoin.conf\n\
         The datadir, the chain and assumevalid are taken from it unless the command line gives them.\n\
         .SH SEE ALSO\n{others}bitcoind(1)\n"
    )
}

/// Writes the man page of a command, and those of the commands below it.
fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, dir)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).replace('-', " ");
    let page = Man::new(command.clone().after_help(None::<&str>));
    let mut bytes = Vec::new();
    page.render(&mut bytes)?;
    bytes.extend_from_slice(sections(&name).as_bytes());
    fs::write(dir.join(page.get_filename()), bytes)
}

/// Writes a man page for the program and one for each command.
///
/// # Errors
/// [`ErrorKind::Environment`] if the folder or a page cannot be written.
pub fn man(args: &ManArgs, command: Command) -> Done {
    // As one paragraph, the lines of `--version` would be hard to read.
    let mut command = with_long_help(command.long_version(Resettable::Reset)).disable_help_subcommand(true);
    command.build();
    let written = fs::create_dir_all(&args.dir).and_then(|()| write_pages(&command, &args.dir));
    written.map_err(|error| {
        let what = format!("the man pages cannot be written: {error}; choose another folder");
        Error::environment(what).in_file(&args.dir, None)
    })?;
    Ok((format!("man pages are in {}", args.dir.display()), Exit::Done))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Args, command_options::command_names};
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn each_command_has_an_example_that_is_accepted() {
        for name in command_names(&Args::command()) {
            let begins = |line: &str| line.starts_with(&format!("peregrine {name}"));
            assert!(EXAMPLES.lines().any(begins), "{name}");
        }
        let exists = |line: &&str| cfg!(feature = "export") || !line.contains(" export ");
        for line in EXAMPLES.lines().filter(exists) {
            assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}
