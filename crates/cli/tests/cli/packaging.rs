//! The man pages and the completions that packages contain, from a real process.

#[allow(dead_code, reason = "the rest of the build script runs before this is compiled")]
#[path = "../../build.rs"]
mod build_script;

use build_script::{of_archive, of_checkout, of_packed_crate};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peregrine")).args(args).output().unwrap()
}

fn completions(shell: &str) -> String {
    let output = run(&["completions", shell]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the man pages in a folder.
fn man(dir: &Path) -> Output {
    run(&["man", dir.to_str().unwrap()])
}

/// Returns what git prints about this checkout; `None` if this is none.
fn git(args: &[&str]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("git").args(args).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn the_version_has_the_commit_and_that_of_core() {
    let printed = |flag| String::from_utf8(run(&[flag]).stdout).unwrap();
    assert_eq!(printed("-V"), concat!("peregrine ", env!("CARGO_PKG_VERSION"), "\n"));
    let long = printed("--version");
    assert!(long.starts_with(&printed("-V")), "{long}");
    let commit = long.lines().find_map(|line| line.strip_prefix("commit       ")).unwrap();
    let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown", "{commit}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if root.join(".git").exists() && std::env::var_os("PEREGRINE_COMMIT").is_none() {
        assert_eq!(Some(commit.to_owned()), git(&["rev-parse", "HEAD"]));
    }
    assert!(long.contains(&format!("rules        as of Bitcoin Core {}", engine::CORE_VERSION)), "{long}");
    assert!(
        long.contains("assumevalid  main 938343, test 4842348, testnet4 123613, signet 293175"),
        "{long}"
    );
    let can_run_scripts = cfg!(feature = "scripts");
    assert_eq!(long.contains("(libbitcoinkernel)"), can_run_scripts, "{long}");
    assert_eq!(long.contains("cannot be checked"), !can_run_scripts, "{long}");
}

#[test]
fn the_commit_is_that_of_a_packed_crate_or_an_archive_and_not_of_other_repositories() {
    let dir = TempDir::new().unwrap();
    let (commit, package) = ("0123456789abcdef0123456789abcdef01234567", dir.path());
    assert_eq!((of_packed_crate(package), of_archive(package), of_checkout(package)), (None, None, None));
    let info = format!(
        "{{\n  \"git\": {{\n    \"sha1\": \"{commit}\"\n  }},\n  \"path_in_vcs\": \"crates/cli\"\n}}"
    );
    fs::write(package.join(".cargo_vcs_info.json"), info).unwrap();
    assert_eq!(of_packed_crate(package).as_deref(), Some(commit));
    fs::create_dir(package.join("packaging")).unwrap();
    fs::write(package.join("packaging/commit"), "$Format:%H$\n").unwrap();
    assert_eq!(of_archive(package), None, "this is no archive");
    fs::write(package.join("packaging/commit"), format!("{commit}\n")).unwrap();
    assert_eq!(of_archive(package).as_deref(), Some(commit));
    let attributes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.gitattributes");
    assert!(fs::read_to_string(attributes).unwrap().contains("packaging/commit export-subst"));
}

#[test]
fn each_shell_gets_completions_of_all_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = completions(shell);
        for word in ["reindex", "doctor", "snapshot", "checkpoint-every"] {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
    }
    assert_eq!(run(&["completions", "dos"]).status.code(), Some(2));
}

#[test]
fn bash_completes_commands_and_options() {
    let dir = TempDir::new().unwrap();
    let script = dir.path().join("peregrine");
    fs::write(&script, completions("bash")).unwrap();
    let completed = |words: &str| {
        let ask = format!(
            "source '{}'; COMP_WORDS=(peregrine {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _peregrine peregrine \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(completed("rein").trim(), "reindex");
    assert_eq!(completed("reindex --stop").trim(), "--stop-at-height");
    assert_eq!(completed("reindex --on-hint-failure jo").trim(), "join");
}

#[test]
fn there_is_a_man_page_for_each_command() {
    let dir = TempDir::new().unwrap();
    let pages = dir.path().join("made/man1");
    for _ in 0..2 {
        assert!(man(&pages).status.success(), "pages that exist are replaced");
    }
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    for name in ["peregrine.1", "peregrine-reindex.1", "peregrine-hints-make.1"] {
        let has = |text: &str| assert!(page(name).contains(text), "{name}: {text}");
        [".SH EXIT STATUS\n0 success;", ".SH FILES", ".SH SEE ALSO", "bitcoind(1)"].into_iter().for_each(has);
    }
    assert!(page("peregrine-hints-make.1").contains(".SH EXAMPLES\n.nf\nperegrine hints make \\-\\-height"));
    assert!(page("peregrine-reindex.1").contains("stop\\-at\\-height"));
    // Options that `-h` does not show have a text too.
    for text in
        ["Read no configuration file", "Challenge of a custom signet", "On regtest, activation height"]
    {
        assert!(page("peregrine-reindex.1").contains(text), "{text}");
    }
    for name in ["peregrine-hints-make.1", "peregrine-utxo-stats.1", "peregrine-man.1"] {
        assert!(page(name).starts_with(".ie"), "{name} is a page in roff");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_with_its_name() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let output = man(&file);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains(file.to_str().unwrap()) && stderr.contains("another folder"), "{stderr}");
}
