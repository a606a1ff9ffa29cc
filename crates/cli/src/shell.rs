//! Command lines for a shell, also those of other users.

/// Returns the command line that runs `words` as the user with that number.
pub fn as_user(user: u32, words: impl IntoIterator<Item = String>) -> String {
    command_line(["sudo".to_owned(), "-u".to_owned(), user_name(user)].into_iter().chain(words))
}

/// Returns the command line that runs this process's command as the user with that number.
pub fn this_as_user(user: u32) -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let words = for_another_user(std::env::var("HOME").ok(), words.collect());
    as_user(user, words)
}

/// Returns the words of a command line that has the same effect for another user: without a datadir, that of
/// this user's home directory is meant.
fn for_another_user(home: Option<String>, words: Vec<String>) -> Vec<String> {
    let is_datadir = |word: &String| word.trim_start_matches('-').starts_with("datadir");
    let home = home.filter(|_| !words.iter().any(is_datadir));
    let set = home.into_iter().flat_map(|home| ["env".to_owned(), format!("HOME={home}")]);
    set.chain(words).collect()
}

/// Returns the name of the user with that number, or `#` and the number, as `sudo` accepts both.
pub fn user_name(user: u32) -> String {
    let found = uzers::get_user_by_uid(user);
    found.map_or_else(|| format!("#{user}"), |user| user.name().to_string_lossy().into_owned())
}

/// Returns `words` as a line for a shell.
pub fn command_line(words: impl IntoIterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    let quote = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_for_another_user_can_be_pasted_into_a_shell() {
        let words = ["peregrine", "reindex", "--datadir", "my node"].map(str::to_owned);
        let line = as_user(4_000_000_000, words);
        assert_eq!(line, "sudo -u '#4000000000' peregrine reindex --datadir 'my node'");
        let named = ["peregrine", "doctor", "-datadir=d"].map(str::to_owned).to_vec();
        assert_eq!(for_another_user(Some("h".to_owned()), named.clone()), named);
        let unnamed = for_another_user(Some("h".to_owned()), named[..2].to_vec());
        assert_eq!(unnamed, ["env", "HOME=h", "peregrine", "doctor"]);
        assert!(as_user(0, ["x".to_owned()]).starts_with("sudo -u root x"));
    }
}
