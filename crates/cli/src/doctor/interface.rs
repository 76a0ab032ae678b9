//! The report on a network interface for real-time I/O.

use corelane_rio::examination::{InterfaceExamination, examine};
use serde_json::{Value as Json, json};

use crate::text::json_text;

pub(super) fn report(name: &str, is_json: bool) -> String {
    let examination = examine(name);
    if is_json { json_text(&to_json(name, &examination)) } else { to_text(name, &examination) }
}

fn to_json(name: &str, examination: &InterfaceExamination) -> Json {
    let findings = examination.findings.iter().map(|one| {
        let remedy = if one.remedy.is_empty() { Json::Null } else { json!(one.remedy) };
        json!({
            "level": one.level.to_string(),
            "feature": one.feature,
            "available": one.is_available,
            "found": one.found,
            "remedy": remedy,
        })
    });
    let findings: Vec<Json> = findings.collect();
    json!({
        "schema": 1,
        "interface": name,
        "level": examination.level.to_string(),
        "limit": if examination.level_limit_reason.is_empty() { Json::Null } else { json!(examination.level_limit_reason) },
        "findings": findings,
    })
}

fn to_text(name: &str, examination: &InterfaceExamination) -> String {
    let mut text = String::new();
    let mut level = None;
    for one in &examination.findings {
        if level != Some(one.level) {
            text += &format!("{}\n", one.level);
            level = Some(one.level);
        }
        let word = if one.is_available { "yes" } else { "NO" };
        text += &format!("  {word:<4} {:<18} {}\n", one.feature, one.found);
        if !one.remedy.is_empty() {
            text += &format!("       remedy: {}\n", one.remedy);
        }
    }
    if !examination.level_limit_reason.is_empty() {
        text += &format!("\nNot higher, because {}.\n", examination.level_limit_reason);
    }
    text + &format!("\nReal-time I/O on {name} has the level \"{}\".\n", examination.level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_interface_has_socket_options_only() {
        let text = report("no-such-if", false);
        assert!(text.contains("  NO   interface          there is no interface no-such-if\n       remedy: "), "{text}");
        assert!(text.contains("  yes  budgets"), "{text}");
        assert!(text.ends_with("has the level \"socket options\".\n"), "{text}");
        let report: Json = serde_json::from_str(&report("no-such-if", true)).unwrap();
        assert_eq!((&report["level"], &report["interface"]), (&json!("socket options"), &json!("no-such-if")));
        let levels: Vec<&Json> = report["findings"].as_array().unwrap().iter().map(|one| &one["level"]).collect();
        assert!(levels.contains(&&json!("stream steering")), "{levels:?}");
    }
}
