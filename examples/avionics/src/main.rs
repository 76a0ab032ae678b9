//! The demo of Corelane: a mission computer and its clients, modelled on avionics.
//!
//! [`stage`] starts a process for each client, shows their progress, and writes the report.
#![forbid(unsafe_code)]

mod admission;
mod clients;
mod computer;
mod meter;
mod priority;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clients::CLIENTS;
use stage::DemoOptions;

corelane::include_idl!("avionics");

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str = "\
usage: avionics [--seconds N] [--out FOLDER]

  --seconds N    time in seconds for which the clients call, 1 to 3600; default 15
  --out FOLDER   folder for report.html; default target/demo

Exit status: 0 if every call succeeded, 1 if a call or a process failed, 2 for invalid options. A missed deadline is not a failure.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["server", recorder] => computer::run(recorder).map(|()| true),
        ["client", name, target, tasks, recorder, seconds] => {
            client(name, target, tasks, recorder, seconds).map(|()| true)
        }
        ["--help" | "help"] => {
            print!("{USAGE}");
            Ok(true)
        }
        arguments => match parse_options(arguments) {
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

fn client(name: &str, target: &str, tasks: &str, recorder: &str, seconds: &str) -> Result<()> {
    let client = CLIENTS.iter().find(|client| client.name == name).ok_or("there is no such client")?;
    clients::run(client, target, tasks, recorder, Duration::from_secs(seconds.parse()?))
}

fn parse_options(arguments: &[&str]) -> Option<DemoOptions> {
    let mut options = DemoOptions { seconds: 15, folder: PathBuf::from("target/demo") };
    let (pairs, rest) = arguments.as_chunks::<2>();
    for [option, value] in pairs {
        match *option {
            "--seconds" => options.seconds = value.parse().ok().filter(|seconds| (1..=3600).contains(seconds))?,
            "--out" => options.folder = PathBuf::from(value),
            _ => return None,
        }
    }
    rest.is_empty().then_some(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        assert_eq!(parse_options(&[]).unwrap().seconds, 15);
        assert_eq!(parse_options(&["--seconds", "2", "--out", "x"]).unwrap().folder, PathBuf::from("x"));
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["--fast", "1"]] {
            assert!(parse_options(wrong).is_none(), "{wrong:?}");
        }
    }
}
