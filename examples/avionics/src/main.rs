//! The demo of Corelane: a mission computer and its clients, modelled on avionics.
//!
//! In one form of the demo, the computer and its clients are joined by an event channel
//! ([`mission`]); in the other form, the clients call the computer. [`stage`] starts a process for
//! each client, shows their progress, and writes the report.
#![forbid(unsafe_code)]

mod admission;
mod clients;
mod computer;
mod link;
mod meter;
mod mission;
mod priority;
mod sensor;
mod server;
mod stage;
mod streams;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use stage::{DemoOptions, LinkMode};

corelane::include_idl!("avionics");

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The two forms of the demo, which do the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Sensors push events to a channel, which starts the work.
    Events,
    /// Sensors call the mission computer.
    Direct,
}

impl Form {
    fn word(self) -> &'static str {
        match self {
            Form::Events => "events",
            Form::Direct => "direct",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Form::Events, Form::Direct].into_iter().find(|form| form.word() == word)
    }
}

const USAGE: &str = "\
usage: avionics [--direct] [--seconds N] [--out FOLDER] [--link]

  --direct       the clients call the mission computer directly, without an event channel
  --seconds N    time in seconds for which the clients call, 1 to 3600; default 15
  --out FOLDER   folder for report.html; default target/demo
  --link         the clients call over a link between two network namespaces, where the commands are a stream of real-time I/O
                 with a guaranteed budget, and the bulk transfer is best effort; needs root

Exit status: 0 if every call and push succeeded, 1 if a call, a push or a process failed, 2 for invalid options. A missed
deadline, and an event that is dropped at a full queue, are no failures.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["server", recorder, form, link @ ..] => server(recorder, form, !link.is_empty()).map(|()| true),
        ["sensor", name, computer, address] => sensor(name, computer, address).map(|()| true),
        ["client", name, target, tasks, recorder, seconds] => {
            client(name, target, tasks, recorder, seconds).map(|()| true)
        }
        ["--help" | "help"] => {
            print!("{USAGE}");
            Ok(true)
        }
        arguments => match parse_options(arguments) {
            Some(DemoOptions { link: LinkMode::Wanted, .. }) => link::start_in_namespace(arguments),
            Some(options) => stage::run(&options),
            None => {
                eprint!("{USAGE}");
                return ExitCode::from(2);
            }
        },
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("avionics: {error}");
            ExitCode::FAILURE
        }
    }
}

fn server(recorder: &str, form: &str, is_linked: bool) -> Result<()> {
    server::run(recorder, Form::of(form).ok_or("there is no such form")?, is_linked)
}

fn client(name: &str, target: &str, tasks: &str, recorder: &str, seconds: &str) -> Result<()> {
    clients::run(clients::client(name)?, target, tasks, recorder, Duration::from_secs(seconds.parse()?))
}

fn sensor(name: &str, computer: &str, address: &str) -> Result<()> {
    sensor::run(clients::client(name)?, computer, address)
}

fn parse_options(arguments: &[&str]) -> Option<DemoOptions> {
    let folder = PathBuf::from("target/demo");
    let mut options = DemoOptions { seconds: 15, folder, link: LinkMode::None, form: Form::Events };
    let is_in_namespace = arguments.first() == Some(&"linked");
    let mut words = arguments.iter().skip(usize::from(is_in_namespace));
    while let Some(option) = words.next() {
        match *option {
            "--link" if is_in_namespace => options.link = LinkMode::InNamespace,
            "--link" => options.link = LinkMode::Wanted,
            "--seconds" => {
                options.seconds = words.next()?.parse().ok().filter(|seconds| (1..=3600).contains(seconds))?;
            }
            "--direct" => options.form = Form::Direct,
            "--out" => options.folder = PathBuf::from(words.next()?),
            _ => return None,
        }
    }
    Some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        assert_eq!(parse_options(&[]).unwrap().seconds, 15);
        assert_eq!(parse_options(&["--seconds", "2", "--out", "x"]).unwrap().folder, PathBuf::from("x"));
        assert_eq!(parse_options(&["--direct"]).unwrap().form, Form::Direct);
        assert_eq!(parse_options(&["--link", "--seconds", "2"]).unwrap().link, LinkMode::Wanted);
        assert_eq!(parse_options(&["linked", "--seconds", "2", "--link"]).unwrap().link, LinkMode::InNamespace);
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["--fast", "1"]] {
            assert!(parse_options(wrong).is_none(), "{wrong:?}");
        }
    }
}
