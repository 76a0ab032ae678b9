//! The command `corelane ping`, which asks an object whether it exists and measures the response
//! times.

mod latency;

use std::ffi::OsString;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};
use std::vec;

use clap::{ArgMatches, Command};
use corelane::mapping::Operation;
use corelane::{ObjectRef, Orb, SystemException, SystemExceptionKind};
use serde_json::{Value as Json, json};

use self::latency::Latencies;
use crate::arguments::{self, ArgumentRefusal, MIN_TIMEOUT_S, flag, option, positional};
use crate::candidates::{CANDIDATE_LIMITS, Candidate, candidates};
use crate::text::{excerpt, json_text, printable};
use crate::{DONE, NOT_DONE, input, naming};

pub(crate) const USAGE: &str = "\
usage: corelane ping [--count N] [--interval SECONDS] [--timeout SECONDS] [--deadline SECONDS] [--type ID] [--json] REFERENCE

Asks the object that REFERENCE names (IOR:, corbaloc:, corbaname:, @FILE or -) whether it is there. The addresses of the
reference are tried in its order, and the first one that answers is used. Then each round sends a LocateRequest, `_is_a` and
`_non_existent`. The command prints which profile, address and lane answered, the answers, and a histogram of the times.

  --count N         rounds (10)
  --interval SECONDS
                    time between the beginnings of two rounds (0.1)
  --timeout SECONDS give up a question after this time (3)
  --deadline SECONDS
                    end after this time, even before N rounds (60)
  --type ID         the repository id that `_is_a` asks for (the one in the reference)
  --json            print one JSON object

Exit status: 0 the object is there, 1 it is not, or it does not answer, 2 wrong usage.
";

/// Maximum number of rounds. Each round records up to three response times.
const MAX_ROUNDS: u64 = 1_000_000;
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
const OBJECT: &str = "IDL:omg.org/CORBA/Object:1.0";

pub(crate) fn command() -> Command {
    let options = [option("count", "N"), option("interval", "SECONDS"), option("timeout", "SECONDS")];
    let command = arguments::command("ping", USAGE).args(options).args([
        option("deadline", "SECONDS"),
        option("type", "ID"),
        flag("json"),
        positional("REFERENCE"),
    ]);
    arguments::with_descriptions(command, USAGE)
}

#[derive(Debug)]
struct PingArguments {
    reference: String,
    rounds: u64,
    interval: Duration,
    timeout: Duration,
    deadline: Duration,
    type_id: Option<String>,
    is_json: bool,
}

impl PingArguments {
    fn of(parsed: &ArgMatches) -> Result<PingArguments, String> {
        let seconds = |id: &str, least: f64, default: f64| match arguments::text(parsed, id) {
            None => Ok(Duration::from_secs_f64(default)),
            Some(text) => {
                let refusal = format!("`--{id}` needs a number of seconds, not `{}`", excerpt(&text));
                arguments::seconds(&text, least, &refusal)
            }
        };
        let rounds = arguments::text(parsed, "count").map(|text| {
            let rounds = text.parse().ok().filter(|rounds| (1..=MAX_ROUNDS).contains(rounds));
            rounds.ok_or_else(|| format!("`--count` needs a number from 1 to {MAX_ROUNDS}, not `{}`", excerpt(&text)))
        });
        Ok(PingArguments {
            rounds: rounds.unwrap_or(Ok(10))?,
            interval: seconds("interval", 0.0, 0.1)?,
            timeout: seconds("timeout", MIN_TIMEOUT_S, 3.0)?,
            deadline: seconds("deadline", MIN_TIMEOUT_S, 60.0)?,
            type_id: arguments::text(parsed, "type"),
            is_json: parsed.get_flag("json"),
            reference: arguments::text(parsed, "REFERENCE").ok_or("no reference is given")?,
        })
    }
}

pub(crate) fn run(words: vec::IntoIter<OsString>, out: &mut dyn Write) -> u8 {
    let parsed = arguments::parse(command(), words).map_err(ArgumentRefusal::reason);
    let arguments = match parsed.and_then(|parsed| PingArguments::of(&parsed).map_err(Some)) {
        Ok(arguments) => arguments,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    let (status, text) = match ping(&arguments) {
        Ok(report) => {
            let status = if report.is_there() { DONE } else { NOT_DONE };
            (status, if arguments.is_json { json_text(&report.to_json()) } else { report.to_text() })
        }
        Err(error) if arguments.is_json => (NOT_DONE, json_text(&json!({ "schema": 1, "error": error }))),
        Err(error) => (NOT_DONE, format!("error: {error}\n")),
    };
    let _ = out.write_all(text.as_bytes());
    status
}

struct Question {
    name: &'static str,
    wanted: &'static str,
    other: &'static str,
    sent: u64,
    wanted_answers: u64,
    other_answers: u64,
    failures: u64,
    failure: Option<String>,
    latencies: Latencies,
}

impl Question {
    fn new(name: &'static str, wanted: &'static str, other: &'static str) -> Self {
        let latencies = Latencies::default();
        Question {
            name,
            wanted,
            other,
            sent: 0,
            wanted_answers: 0,
            other_answers: 0,
            failures: 0,
            failure: None,
            latencies,
        }
    }

    /// Asks the question once. Returns false if the deadline has passed or ends the wait for the
    /// answer. The question is then not counted.
    fn ask(&mut self, arguments: &PingArguments, clock: &impl Clock, question: Ask<'_>) -> bool {
        let (began, timeout) = (clock.elapsed(), arguments.timeout);
        let left = arguments.deadline.saturating_sub(began);
        if left.is_zero() {
            return false;
        }
        let answer = question(timeout.min(left).max(MIN_TIMEOUT));
        let is_cut = left < timeout && answer.as_ref().is_err_and(|error| error.kind() == SystemExceptionKind::Timeout);
        if is_cut {
            return false;
        }
        self.sent += 1;
        match answer {
            Ok(is_wanted) => {
                self.latencies.add(clock.elapsed().saturating_sub(began));
                *(if is_wanted { &mut self.wanted_answers } else { &mut self.other_answers }) += 1;
            }
            Err(exception) => {
                self.failures += 1;
                self.failure = Some(printable(&exception.to_string()));
            }
        }
        true
    }
}

/// A function that asks the server a question, with a time-out. Returns true if the answer is that
/// of a working object.
type Ask<'a> = &'a dyn Fn(Duration) -> Result<bool, SystemException>;

trait Clock {
    fn elapsed(&self) -> Duration;
    fn sleep(&self, time: Duration);
}

impl Clock for Instant {
    fn elapsed(&self) -> Duration {
        Instant::elapsed(self)
    }

    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
}

struct PingReport {
    type_id: String,
    asked_type: String,
    silent: Vec<(Candidate, String)>,
    answered: Option<Candidate>,
    questions: Vec<Question>,
    is_cut: bool,
}

fn ping(arguments: &PingArguments) -> Result<PingReport, String> {
    let began = Instant::now();
    let left = || arguments.deadline.saturating_sub(Clock::elapsed(&began));
    let orb = Orb::builder().call_timeout(arguments.timeout.min(arguments.deadline)).limits(CANDIDATE_LIMITS).build();
    let orb = orb.map_err(|error| error.to_string())?;
    let object = naming::object_of_reference(&orb, &input::reference(&arguments.reference)?)?;
    let object = object.ok_or("the reference is nil")?;
    let type_id = object.type_id().to_owned();
    let asked_type = arguments.type_id.clone().unwrap_or_else(|| type_id.clone());
    let asked_type = if asked_type.is_empty() { OBJECT.to_owned() } else { asked_type };
    let mut report =
        PingReport { type_id, asked_type, silent: Vec::new(), answered: None, questions: Vec::new(), is_cut: false };
    let all = candidates(object.ior());
    if all.is_empty() {
        return Err("the reference has no address that this ORB can call".to_owned());
    }
    let mut answering = None;
    for candidate in all {
        match first_answer(&orb, &candidate, arguments.timeout.min(left())) {
            Ok(object) => {
                report.answered = Some(candidate);
                answering = Some(object);
                break;
            }
            Err(error) => report.silent.push((candidate, error)),
        }
        if left().is_zero() {
            report.is_cut = true;
            break;
        }
    }
    if let Some(object) = answering {
        question(&object, arguments, &mut report, &began);
    }
    Ok(report)
}

/// Returns the object if its server answers, even if the object does not exist there. The error is
/// a message for the user.
fn first_answer(orb: &Orb, candidate: &Candidate, timeout: Duration) -> Result<ObjectRef, String> {
    let text = candidate.ior.to_text().map_err(|error| error.to_string())?;
    let object = orb.string_to_object(&text).map_err(|error| printable(&error.to_string()))?;
    let object = object.ok_or("the reference is nil")?.with_timeout(timeout.max(MIN_TIMEOUT));
    match object.validate_connection() {
        // An exception without a detail is an answer of the server, so the server is reached.
        Err(exception) if exception.kind() != SystemExceptionKind::ObjectNotExist && exception.detail().is_some() => {
            Err(printable(&exception.to_string()))
        }
        _ => Ok(object),
    }
}

fn question(object: &ObjectRef, arguments: &PingArguments, report: &mut PingReport, clock: &impl Clock) {
    static IS_A: Operation = Operation::new("_is_a");
    static NON_EXISTENT: Operation = Operation::new("_non_existent");
    let asked_type = &report.asked_type;
    let locate = |timeout| object.with_timeout(timeout).validate_connection().map(|()| true);
    let is_a = |timeout| {
        let object = object.with_timeout(timeout);
        let mut reply = object.invoke(&IS_A, &|encoder| encoder.write_latin1_str(asked_type))?;
        reply.read(|decoder| decoder.read_bool())
    };
    let non_existent = |timeout| {
        let object = object.with_timeout(timeout);
        let mut reply = object.invoke(&NON_EXISTENT, &|_| Ok(()))?;
        reply.read(|decoder| decoder.read_bool()).map(|no| !no)
    };
    let mut questions = [
        (Question::new("locate", "here", "not here"), &locate as Ask<'_>),
        (Question::new("is_a", "yes", "no"), &is_a),
        (Question::new("non_existent", "exists", "does not exist"), &non_existent),
    ];
    let is_cut = !rounds(arguments, clock, &mut questions);
    report.questions = questions.into_iter().map(|(question, _)| question).collect();
    report.is_cut = is_cut;
}

/// Asks all questions in each round. Returns false if the deadline passed before the last round
/// ended.
fn rounds(arguments: &PingArguments, clock: &impl Clock, questions: &mut [(Question, Ask<'_>)]) -> bool {
    for round in 0..arguments.rounds {
        let due = clock.elapsed();
        for (question, ask) in &mut *questions {
            if !question.ask(arguments, clock, *ask) {
                return false;
            }
        }
        if round + 1 < arguments.rounds {
            let next = (due + arguments.interval).min(arguments.deadline);
            clock.sleep(next.saturating_sub(clock.elapsed()));
        }
    }
    true
}

impl PingReport {
    fn is_there(&self) -> bool {
        let is_answered =
            |question: &Question| question.wanted_answers > 0 && question.failures + question.other_answers == 0;
        !self.questions.is_empty() && self.questions.iter().all(is_answered)
    }

    fn to_text(&self) -> String {
        let type_id = if self.type_id.is_empty() { "(none)".to_owned() } else { printable(&self.type_id) };
        let mut text = format!("type          {type_id}\n");
        for (candidate, reason) in &self.silent {
            text +=
                &format!("no answer     profile {}, {}: {reason}\n", candidate.profile, candidate.address_and_lane());
        }
        if let Some(candidate) = &self.answered {
            let (profile, place, version) = (candidate.profile, candidate.address_and_lane(), candidate.version);
            text += &format!("answer        profile {profile}, {place}, IIOP {version}\n");
        }
        for question in &self.questions {
            let mut parts = Vec::new();
            for (count, words) in [(question.wanted_answers, question.wanted), (question.other_answers, question.other)]
            {
                if count > 0 {
                    parts.push(format!("{words} ({count})"));
                }
            }
            if let Some(failure) = &question.failure {
                parts.push(format!("failed ({}): {failure}", question.failures));
            }
            let about =
                if question.name == "is_a" { format!(" {}", printable(&self.asked_type)) } else { String::new() };
            text += &format!("{:<13} {} asked{about}: {}\n", question.name, question.sent, parts.join(", "));
        }
        for question in self.questions.iter().filter(|question| !question.latencies.is_empty()) {
            text += &format!("\n{}: {}", question.name, question.latencies.to_text());
        }
        if self.is_cut {
            text += "\nthe deadline passed before the last round ended\n";
        }
        text
    }

    fn to_json(&self) -> Json {
        let silent = |(candidate, reason): &(Candidate, String)| {
            let mut shown = candidate.to_json();
            shown["error"] = json!(reason);
            shown
        };
        let question = |question: &Question| {
            json!({
                "name": question.name,
                "sent": question.sent,
                "answers": { question.wanted: question.wanted_answers, question.other: question.other_answers },
                "failures": question.failures,
                "last_failure": question.failure,
                "latency": question.latencies.to_json(),
            })
        };
        json!({
            "schema": 1,
            "type_id": self.type_id,
            "asked_type": self.asked_type,
            "answered": self.answered.as_ref().map(Candidate::to_json),
            "unanswered": self.silent.iter().map(silent).collect::<Vec<_>>(),
            "questions": self.questions.iter().map(question).collect::<Vec<_>>(),
            "is_cut": self.is_cut,
            "is_there": self.is_there(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::WRONG_USAGE;

    #[derive(Default)]
    struct ManualClock(Cell<Duration>);

    impl ManualClock {
        fn answer_in_a_second(&self, timeout: Duration) -> Result<bool, SystemException> {
            let time = Duration::from_secs(1);
            self.sleep(time.min(timeout));
            if time <= timeout { Ok(true) } else { Err(timed_out()) }
        }
    }

    impl Clock for ManualClock {
        fn elapsed(&self) -> Duration {
            self.0.get()
        }

        fn sleep(&self, time: Duration) {
            self.0.set(self.0.get() + time);
        }
    }

    fn timed_out() -> SystemException {
        SystemException::new(SystemExceptionKind::Timeout, 0, corelane::Completion::Maybe)
    }

    fn arguments(rounds: u64, [interval, timeout, deadline]: [f64; 3]) -> PingArguments {
        let [interval, timeout, deadline] = [interval, timeout, deadline].map(Duration::from_secs_f64);
        let (reference, type_id, is_json) = (String::new(), None, false);
        PingArguments { reference, rounds, interval, timeout, deadline, type_id, is_json }
    }

    #[test]
    fn deadline_ends_the_rounds_without_a_failure() {
        for (count, times, is_whole, sent, ended) in [
            // The deadline passes before the first, the second or the third question of a round.
            (1_000_000, [0.0, 3.0, 9.0], false, [3, 3, 3], 9.0),
            (1_000_000, [0.0, 3.0, 10.0], false, [4, 3, 3], 10.0),
            (1_000_000, [0.0, 3.0, 11.0], false, [4, 4, 3], 11.0),
            // The deadline passes while a question waits for its answer.
            (1_000_000, [0.0, 3.0, 9.5], false, [3, 3, 3], 9.5),
            (1_000_000, [0.0, 3.0, 10.5], false, [4, 3, 3], 10.5),
            // The deadline passes in the pause after a round.
            (1_000_000, [5.0, 3.0, 9.0], false, [2, 2, 2], 9.0),
            (1_000_000, [1000.0, 3.0, 60.0], false, [1, 1, 1], 60.0),
            (3, [5.0, 3.0, 60.0], true, [3, 3, 3], 13.0),
        ] {
            let clock = ManualClock::default();
            let ask = |timeout| clock.answer_in_a_second(timeout);
            let mut questions = ["a", "b", "c"].map(|name| (Question::new(name, "yes", "no"), &ask as Ask<'_>));
            assert_eq!(rounds(&arguments(count, times), &clock, &mut questions), is_whole, "{times:?}");
            assert_eq!(questions.each_ref().map(|(question, _)| question.sent), sent, "{times:?}");
            assert_eq!(questions.each_ref().map(|(question, _)| question.wanted_answers), sent, "{times:?}");
            assert!(questions.iter().all(|(question, _)| question.failures == 0), "{times:?}");
            assert_eq!(clock.elapsed(), Duration::from_secs_f64(ended), "{times:?}");
        }
    }

    #[test]
    fn time_out_before_the_deadline_is_a_failure() {
        let clock = ManualClock::default();
        let ask = |timeout| clock.answer_in_a_second(timeout);
        let mut questions = [(Question::new("a", "yes", "no"), &ask as Ask<'_>)];
        assert!(rounds(&arguments(4, [0.0, 0.5, 60.0]), &clock, &mut questions));
        let [(question, _)] = questions;
        assert_eq!((question.sent, question.wanted_answers, question.failures), (4, 0, 4));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for (words, reason) in [
            (&[][..], "error: no reference is given"),
            (&["--count", "0", "r"], "error: `--count` needs a number from 1 to 1000000, not `0`"),
            (&["--interval", "-1", "r"], "error: `--interval` needs a number of seconds, not `-1`"),
            (&["--timeout", "0", "r"], "error: `--timeout` needs a number of seconds, not `0`"),
            (&["--deadline", "NaN", "r"], "error: `--deadline` needs a number of seconds, not `NaN`"),
            (&["r", "s"], "error: there is no argument `s`"),
            (&["--what"], "error: there is no option `--what`"),
        ] {
            let mut out = Vec::new();
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(run(words.into_iter(), &mut out), WRONG_USAGE);
            assert_eq!(String::from_utf8(out).unwrap().lines().next(), Some(reason));
        }
    }
}
