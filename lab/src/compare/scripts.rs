//! Which scripts a run has checked: runs that checked different ones did not do the same work.

use serde_json::Value;
use std::path::Path;

/// Returns what Peregrine's report says of it.
pub fn of_answer(answer: &Value) -> Option<String> {
    let scripts = &answer["scripts"];
    match scripts["checked"].as_str()? {
        "some" => Some(format!("above {}", scripts["assumed_valid_to"].as_u64()?)),
        checked => Some(checked.to_owned()),
    }
}

/// Returns what the log of a `bitcoind` says of it; `None` if there is no log, or it does not say.
pub fn of_log(log: &Path) -> Option<String> {
    of_lines(&String::from_utf8_lossy(&std::fs::read(log).ok()?))
}

fn of_lines(log: &str) -> Option<String> {
    let mut scripts = None;
    for line in log.lines() {
        if line.contains("Disabling script verification at block #") {
            scripts = Some("none".to_owned());
        } else if let Some((_, rest)) = line.split_once("Enabling script verification at block #") {
            let height: u32 = rest.split(' ').next()?.parse().ok()?;
            scripts = match scripts {
                None => Some("all".to_owned()),
                Some(_) => Some(format!("above {}", height.saturating_sub(1))),
            };
        }
    }
    scripts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_programs_say_it_in_the_same_words() {
        let off = "2026-01-01T00:00:00Z Disabling script verification at block #1 (00).\n";
        let on = |height: u32| {
            format!("2026-01-01T00:00:09Z Enabling script verification at block #{height} (00): recent.\n")
        };
        assert_eq!(of_lines(off).as_deref(), Some("none"));
        assert_eq!(of_lines(&on(0)).as_deref(), Some("all"));
        assert_eq!(of_lines(&(off.to_owned() + &on(12))).as_deref(), Some("above 11"));
        assert_eq!(of_lines("2026-01-01T00:00:00Z Bitcoin Core version v30\n"), None);
        let answer =
            |checked: &str| of_answer(&json!({ "scripts": { "checked": checked, "assumed_valid_to": 11 } }));
        assert_eq!(answer("some").as_deref(), Some("above 11"));
        assert_eq!(answer("all").as_deref(), Some("all"));
        assert_eq!(of_answer(&json!({})), None);
    }
}
