//! `corelane doctor`: shows which real-time guarantees hold on this machine, and what to change.

use std::ffi::OsString;
use std::io::Write;

use clap::{ArgAction, Command};
use corelane_sys::guarantees::{self, GuaranteeReport, Holds};

use crate::arguments::{self, Refusal, option};
use crate::text::excerpt;
use crate::{DONE, NOT_DONE};

/// Help text of the command.
pub(crate) const USAGE: &str = "\
usage: corelane doctor [--require NAME]...

Examines and tests the machine, and lists the real-time guarantees that hold for programs started like this one. Without them
everything still works, at best effort.

  --require NAME        exit status 1 unless this guarantee holds; may be given several times; `all` stands for all

Exit status: 0 examined, 1 a required guarantee does not hold, 2 wrong usage.
";

/// Returns what the command takes.
pub(crate) fn command() -> Command {
    let command = arguments::command("doctor", USAGE).arg(option("require", "NAME").action(ArgAction::Append));
    arguments::described(command, USAGE)
}

/// Runs the command with the arguments after `corelane doctor`.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let report = guarantees::report();
    let required = match parse(arguments, &report) {
        Ok(required) => required,
        Err(reason) => return arguments::refused(reason, USAGE, out),
    };
    // Ignore errors: the reader may have closed the pipe.
    let _ = out.write_all(render(&report).as_bytes());
    let broken: Vec<&str> = report
        .iter()
        .filter(|one| one.holds != Holds::Yes && required.contains(&one.name))
        .map(|one| one.name)
        .collect();
    if broken.is_empty() {
        return DONE;
    }
    let _ = writeln!(out, "\nerror: required, but not in force: {}", broken.join(", "));
    NOT_DONE
}

/// Returns the names of the required guarantees. The error is the reason, or `None` if help is
/// requested.
fn parse(
    arguments: impl Iterator<Item = OsString>,
    report: &[GuaranteeReport],
) -> Result<Vec<&'static str>, Option<String>> {
    let parsed = arguments::parse(command(), arguments).map_err(|refusal| match refusal {
        Refusal::Unknown(word) => Some(format!("there is no argument `{}`", excerpt(&word))),
        Refusal::Other(_) => Some("`--require` needs the name of a guarantee".to_owned()),
        Refusal::Help => None,
    })?;
    let mut required = Vec::new();
    for name in arguments::texts(&parsed, "require") {
        let before = required.len();
        required.extend(report.iter().map(|one| one.name).filter(|&known| name == "all" || name == known));
        if required.len() == before {
            let known: Vec<&str> = report.iter().map(|one| one.name).collect();
            return Err(Some(format!("there is no guarantee `{}`; there are {}", excerpt(&name), known.join(", "))));
        }
    }
    Ok(required)
}

/// Text about reachable lanes, which only the server process itself can report.
const REACHABLE: &str = "\
Each server reports at its start which lanes other machines can reach, and up to which priority: Event::ReachableLane
(`OrbBuilder::log_events` prints it). A lane without a ceiling gives other machines no priority.
";

fn render(report: &[GuaranteeReport]) -> String {
    let mut text = String::new();
    for guarantee in report {
        let word = match guarantee.holds {
            Holds::Yes => "yes",
            Holds::No => "NO",
            Holds::Unknown => "?",
        };
        text.push_str(&format!("{word:<4} {:<24} {}\n", guarantee.name, guarantee.found));
        if guarantee.holds != Holds::Yes {
            for (label, words) in [("wanted:", guarantee.wanted), ("remedy:", guarantee.remedy)] {
                text.push_str(&wrapped(&format!("{label} {words}"), 5, 110));
            }
        }
    }
    let hold = report.iter().filter(|guarantee| guarantee.holds == Holds::Yes).count();
    text.push_str(&format!("\n{hold} of {} guarantees hold.\n", report.len()));
    text.push_str(REACHABLE);
    text
}

/// Breaks a text into indented lines of at most `width` characters.
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

    fn guarantee(name: &'static str, holds: Holds) -> GuaranteeReport {
        GuaranteeReport {
            name,
            holds,
            found: format!("found {name}"),
            wanted: "What holds.",
            remedy: "What to change.",
        }
    }

    #[test]
    fn what_is_wanted_and_the_remedy_stand_apart_and_where_they_are_needed() {
        let text = render(&[
            guarantee("first", Holds::Yes),
            guarantee("second", Holds::No),
            guarantee("third", Holds::Unknown),
        ]);
        assert_eq!(text.matches("     wanted: What holds.\n     remedy: What to change.\n").count(), 2, "{text}");
        assert!(text.contains("Event::ReachableLane"), "{text}");
        assert!(text.contains("NO   second") && text.contains("?    third") && text.contains("1 of 3"), "{text}");
    }

    #[test]
    fn required_guarantees_are_known_ones() {
        let report = [guarantee("first", Holds::Yes), guarantee("second", Holds::No)];
        let parse = |words: &[&str]| parse(words.iter().map(OsString::from), &report);
        assert_eq!(parse(&["--require", "second"]), Ok(vec!["second"]));
        assert_eq!(parse(&["--require=all"]), Ok(vec!["first", "second"]));
        assert_eq!(parse(&["--help"]), Err(None));
        assert!(parse(&["--require", "third"]).unwrap_err().unwrap().contains("first, second"));
        assert!(parse(&["--require"]).is_err() && parse(&["more"]).is_err());
    }

    #[test]
    fn long_advice_is_wrapped() {
        assert_eq!(wrapped("one two three", 2, 9), "  one two\n  three\n");
        assert_eq!(wrapped("", 2, 9), "  \n");
    }
}
