//! The command `corelane doctor`, which shows the real-time guarantees of this machine, the state
//! of a network interface, or why an object cannot be called.

mod finding;
mod interface;
mod reference;

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use clap::{ArgAction, Command};
use corelane_sys::guarantees::{self, Guarantee, GuaranteeReport, GuaranteeStatus};
use serde_json::{Value as Json, json};

use self::finding::Finding;
use crate::arguments::{self, ArgumentRefusal, INVALID_TIMEOUT, MIN_TIMEOUT_S, flag, option, positional};
use crate::text::{excerpt, json_text};
use crate::{DONE, NOT_DONE, input};

pub(crate) const USAGE: &str = "\
usage: corelane doctor [--require NAME]... [--json]
       corelane doctor [--timeout SECONDS] [--json] REFERENCE
       corelane doctor --interface IF [--json]

Examines and tests the machine, and lists the real-time guarantees that hold for programs started like this one. Without them
all functions still work, at best effort.

With REFERENCE (IOR:, corbaloc:, corbaname:, @FILE or -) it examines why the object cannot be called: the name, each address with
its host name, its route and its server, GIOP version, code sets and limits. Each line has one cause and one remedy.

With --interface it says which features real-time I/O has on a network interface, why not more, and what to change.

  --require NAME        exit status 1 unless this guarantee holds; may be given several times; `all` stands for all
  --timeout SECONDS     give up a step after this time (3)
  --interface IF        examine the interface IF for real-time I/O
  --json                print one JSON object

Exit status: 0 examined, 1 a required guarantee does not hold, or the object cannot be called, 2 wrong usage.
";

pub(crate) fn command() -> Command {
    let command = arguments::command("doctor", USAGE)
        .args([
            option("require", "NAME").action(ArgAction::Append),
            option("timeout", "SECONDS"),
            option("interface", "IF"),
            flag("json"),
        ])
        .arg(positional("REFERENCE"));
    arguments::with_descriptions(command, USAGE)
}

pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    run_with(arguments, guarantees::report, out)
}

/// Runs the command and returns its exit status. `examine_machine` disturbs the machine, so it is
/// only called if neither a reference nor an interface is given.
fn run_with(
    arguments: impl Iterator<Item = OsString>,
    examine_machine: impl FnOnce() -> Vec<GuaranteeReport>,
    out: &mut dyn Write,
) -> u8 {
    let request = match parse(arguments) {
        Ok(request) => request,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    let (status, text) = match (request.interface, request.reference) {
        (Some(name), _) => (DONE, interface::report(&name, request.is_json)),
        (None, Some(word)) => of_reference(&word, request.timeout, request.is_json),
        (None, None) => of_machine(&examine_machine(), &request.required, request.is_json),
    };
    let _ = out.write_all(text.as_bytes());
    status
}

fn of_machine(report: &[GuaranteeReport], required: &[&str], is_json: bool) -> (u8, String) {
    let is_broken = |one: &&GuaranteeReport| one.status != GuaranteeStatus::Met && required.contains(&one.name);
    let broken: Vec<&str> = report.iter().filter(is_broken).map(|one| one.name).collect();
    let status = if broken.is_empty() { DONE } else { NOT_DONE };
    if is_json {
        let guarantee = |one: &GuaranteeReport| {
            let holds = match one.status {
                GuaranteeStatus::Met => "yes",
                GuaranteeStatus::NotMet => "no",
                GuaranteeStatus::Unknown => "unknown",
            };
            json!({ "name": one.name, "holds": holds, "found": one.finding, "wanted": one.property, "remedy": one.remedy })
        };
        let guarantees: Vec<Json> = report.iter().map(guarantee).collect();
        let shown = json!({ "schema": 1, "guarantees": guarantees, "required_but_not_in_force": broken });
        return (status, json_text(&shown));
    }
    let mut text = render(report);
    if !broken.is_empty() {
        text += &format!("\nerror: required, but not in force: {}\n", broken.join(", "));
    }
    (status, text)
}

fn of_reference(word: &str, timeout: Duration, is_json: bool) -> (u8, String) {
    let text = match input::reference(word) {
        Ok(text) => text,
        Err(error) if is_json => return (NOT_DONE, json_text(&json!({ "schema": 1, "error": error }))),
        Err(error) => return (NOT_DONE, format!("error: {error}\n")),
    };
    let examination = reference::examine(&text, timeout);
    let status = if examination.works { DONE } else { NOT_DONE };
    if is_json {
        let findings: Vec<Json> = examination.findings.iter().map(Finding::to_json).collect();
        return (status, json_text(&json!({ "schema": 1, "works": examination.works, "findings": findings })));
    }
    let mut text: String = examination.findings.iter().map(Finding::to_text).collect();
    text += if examination.works { "\nThe object can be called.\n" } else { "\nThe object cannot be called.\n" };
    (status, text)
}

#[derive(Debug, PartialEq, Eq)]
struct DoctorRequest {
    required: Vec<&'static str>,
    reference: Option<String>,
    interface: Option<String>,
    timeout: Duration,
    is_json: bool,
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<DoctorRequest, Option<String>> {
    let parsed = arguments::parse(command(), arguments).map_err(|refusal| match refusal {
        ArgumentRefusal::Unknown(word) => Some(format!("there is no argument `{}`", excerpt(&word))),
        ArgumentRefusal::Other(reason) if reason.starts_with("`--require` needs") => {
            Some("`--require` needs the name of a guarantee".to_owned())
        }
        other => other.reason(),
    })?;
    let mut required = Vec::new();
    let known = Guarantee::ALL.map(|guarantee| guarantee.name());
    for name in arguments::texts(&parsed, "require") {
        let before = required.len();
        required.extend(known.into_iter().filter(|&known| name == "all" || name == known));
        if required.len() == before {
            return Err(Some(format!("there is no guarantee `{}`; there are {}", excerpt(&name), known.join(", "))));
        }
    }
    let reference = arguments::text(&parsed, "REFERENCE");
    if reference.is_some() && !required.is_empty() {
        return Err(Some("`--require` is about the machine, not about a reference".to_owned()));
    }
    let interface = arguments::text(&parsed, "interface");
    if interface.is_some() && (reference.is_some() || !required.is_empty()) {
        return Err(Some(
            "`--interface` is about an interface, so it has neither a reference nor `--require`".to_owned(),
        ));
    }
    let timeout = match arguments::text(&parsed, "timeout") {
        None => Duration::from_secs(3),
        Some(text) => arguments::seconds(&text, MIN_TIMEOUT_S, INVALID_TIMEOUT).map_err(Some)?,
    };
    Ok(DoctorRequest { required, reference, interface, timeout, is_json: parsed.get_flag("json") })
}

/// The end of the machine's report. Only the process of a server can report its reachable lanes.
const REACHABLE: &str = "\
Each server reports at its start which lanes other machines can reach, and up to which priority: Event::LaneReachableByOtherMachines
(`OrbBuilder::log_events` prints it). A lane without a ceiling gives other machines no priority.
";

fn render(report: &[GuaranteeReport]) -> String {
    let mut text = String::new();
    for guarantee in report {
        let word = match guarantee.status {
            GuaranteeStatus::Met => "yes",
            GuaranteeStatus::NotMet => "NO",
            GuaranteeStatus::Unknown => "?",
        };
        text.push_str(&format!("{word:<4} {:<24} {}\n", guarantee.name, guarantee.finding));
        if guarantee.status != GuaranteeStatus::Met {
            for (label, words) in [("wanted:", guarantee.property), ("remedy:", guarantee.remedy)] {
                text.push_str(&wrapped(&format!("{label} {words}"), 5, 110));
            }
        }
    }
    let hold = report.iter().filter(|guarantee| guarantee.status == GuaranteeStatus::Met).count();
    text.push_str(&format!("\n{hold} of {} guarantees hold.\n", report.len()));
    text.push_str(REACHABLE);
    text
}

fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.len() + 1 + word.len() > width {
            lines.push_str(&format!("{:indent$}{line}\n", ""));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &format!("{:indent$}{line}\n", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarantee(name: &'static str, holds: GuaranteeStatus) -> GuaranteeReport {
        GuaranteeReport {
            name,
            status: holds,
            finding: format!("found {name}"),
            property: "What holds.",
            remedy: "What to change.",
        }
    }

    #[test]
    fn wanted_state_and_remedy_have_lines_unless_the_guarantee_holds() {
        let text = render(&[
            guarantee("first", GuaranteeStatus::Met),
            guarantee("second", GuaranteeStatus::NotMet),
            guarantee("third", GuaranteeStatus::Unknown),
        ]);
        assert_eq!(text.matches("     wanted: What holds.\n     remedy: What to change.\n").count(), 2, "{text}");
        assert!(text.contains("Event::LaneReachableByOtherMachines"), "{text}");
        assert!(text.contains("NO   second") && text.contains("?    third") && text.contains("1 of 3"), "{text}");
    }

    #[test]
    fn unknown_required_guarantee_is_refused() {
        let parse = |words: &[&str]| parse(words.iter().map(OsString::from));
        let required = |words: &[&str]| parse(words).map(|request| request.required);
        assert_eq!(required(&["--require", "timer-slack"]), Ok(vec!["timer-slack"]));
        assert_eq!(required(&["--require=all"]).unwrap().len(), Guarantee::ALL.len());
        assert_eq!(required(&["--help"]), Err(None));
        assert!(required(&["--require", "third"]).unwrap_err().unwrap().contains("timer-slack, idle-states"));
        assert!(required(&["--require"]).is_err() && required(&["one", "more"]).is_err());
        assert!(required(&["--require", "timer-slack", "corbaloc::h/k"]).is_err());
        assert!(required(&["--interface", "lo", "corbaloc::h/k"]).is_err());
        assert!(required(&["--interface", "lo", "--require", "timer-slack"]).is_err());
        assert_eq!(parse(&["--interface", "lo"]).unwrap().interface.as_deref(), Some("lo"));
        let request = parse(&["--json", "--timeout", "0.5", "corbaloc::h/k"]).unwrap();
        assert_eq!((request.reference.as_deref(), request.is_json), (Some("corbaloc::h/k"), true));
        assert_eq!(request.timeout, Duration::from_millis(500));
    }

    #[test]
    fn machine_is_examined_only_without_a_reference() {
        let tested = |words: &[&str]| {
            let mut is_tested = false;
            let examine_machine = || {
                is_tested = true;
                Vec::new()
            };
            run_with(words.iter().map(OsString::from), examine_machine, &mut Vec::new());
            is_tested
        };
        assert!(tested(&[]) && tested(&["--json"]) && tested(&["--require", "timer-slack"]));
        assert!(
            !tested(&["--help"])
                && !tested(&["--what"])
                && !tested(&["nonsense"])
                && !tested(&["--interface", "no-such-if"])
        );
    }

    #[test]
    fn long_text_is_wrapped() {
        assert_eq!(wrapped("one two three", 2, 9), "  one two\n  three\n");
        assert_eq!(wrapped("", 2, 9), "  \n");
    }
}
