//! The `corelane` command. Each subcommand takes arguments and an output and returns an exit
//! status. The statuses are 0 done, 1 not done, 2 wrong usage.
#![forbid(unsafe_code)]

mod arguments;
mod call;
mod candidates;
mod config;
mod cores;
mod doctor;
mod dump;
mod events;
mod idl_types;
mod input;
mod ior;
mod json;
mod manual;
mod naming;
mod operations;
mod ping;
mod policies;
mod rio;
mod serving;
mod sniff;
mod status;
mod text;
mod trace;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::vec;

use clap::Command;
use corelane_bench::server;

use crate::status::{DONE, NOT_DONE, WRONG_USAGE};
use crate::text::excerpt;

/// Counts allocations, because the servers of benchmarks are processes of this program.
#[global_allocator]
static ALLOCATOR: corelane_sys::alloc::CountingAllocator = corelane_sys::alloc::CountingAllocator;

const USAGE: &str = "\
usage: corelane COMMAND [ARGUMENT]...

  idl FILE...       compile IDL to Rust
  idl dump FILE     print what an IDL file declares, as JSON
  call ...          call an operation of an object, or list its operations, from its IDL
  ior TEXT          show the content of a reference: IOR:, corbaloc: or corbaname:
  ior make ...      make a reference from its parts
  ping REFERENCE    ask an object whether it is there, and how long its answers take
  sniff FILE        show the GIOP messages in captured traffic
  naming ...        serve names, and work on any CORBA name server
  events ...        serve event channels, push events, and print events as they come
  cores ...         analyse and simulate periodic tasks on cores, and admit them to a server
  bench ...         measure this ORB, its peers and bare sockets
  trace             write one request's path through client and server as a trace
  doctor            show which real-time guarantees hold on this machine, and what to change
  doctor REFERENCE  show why an object cannot be called, and what to change
  rio ...           show the live state of real-time I/O on a network interface
  config show       show options from the configuration file and the environment
  config import ... convert options of omniORB and TAO to a configuration file
  completions SHELL print completions for bash, zsh and other shells
  man DIR           write manual pages
  version           print the version
  help [COMMAND]    print this text, or the help of a command

Exit status: 0 done, 1 not done, 2 wrong usage.
";

struct Tool {
    name: &'static str,
    command: fn() -> Command,
    run: fn(vec::IntoIter<OsString>, &mut dyn Write) -> u8,
    help: fn() -> String,
}

const TOOLS: &[Tool] = &[
    Tool { name: "idl", command: idl_command, run: run_idl, help: idl_help },
    Tool { name: "call", command: call::command, run: call::run, help: || call::USAGE.to_owned() },
    Tool { name: "ior", command: ior::command, run: ior::run, help: ior::help },
    Tool { name: "ping", command: ping::command, run: ping::run, help: || ping::USAGE.to_owned() },
    Tool { name: "sniff", command: sniff::command, run: sniff::run, help: || sniff::USAGE.to_owned() },
    Tool { name: "naming", command: naming::command, run: naming::run, help: || naming::USAGE.to_owned() },
    Tool { name: "events", command: events::command, run: events::run, help: || events::USAGE.to_owned() },
    Tool { name: "cores", command: cores::command, run: cores::run, help: || cores::USAGE.to_owned() },
    Tool {
        name: "bench",
        command: bench_command,
        run: |words, out| corelane_bench::command::run(words, out),
        help: || corelane_bench::command::USAGE.to_owned(),
    },
    Tool { name: "trace", command: trace::command, run: trace::run, help: || trace::USAGE.to_owned() },
    Tool { name: "doctor", command: doctor::command, run: doctor::run, help: || doctor::USAGE.to_owned() },
    Tool { name: "rio", command: rio::command, run: rio::run, help: || rio::USAGE.to_owned() },
    Tool { name: "config", command: config::command, run: config::run, help: || config::USAGE.to_owned() },
    Tool {
        name: "completions",
        command: manual::completions_command,
        run: manual::completions,
        help: || manual::COMPLETIONS_USAGE.to_owned(),
    },
    Tool { name: "man", command: manual::man_command, run: manual::man, help: || manual::MAN_USAGE.to_owned() },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    ExitCode::from(dispatch(&command, arguments.collect()))
}

fn dispatch(command: &str, arguments: Vec<OsString>) -> u8 {
    let mut arguments = match config::with_configured_options(command, arguments) {
        Ok(arguments) => arguments.into_iter(),
        Err(reason) => {
            print(&format!("error: {reason}\n"));
            return NOT_DONE;
        }
    };
    match command {
        "version" | "--version" | "-V" => print(&format!("corelane {}\n", env!("CARGO_PKG_VERSION"))),
        "help" | "--help" | "-h" => match arguments.next() {
            None => print(USAGE),
            Some(command) => help(&command.to_string_lossy()),
        },
        server::HIDDEN_MODE => server::run(arguments),
        "" => wrong_usage("no command is given"),
        _ => match TOOLS.iter().find(|tool| tool.name == command) {
            Some(tool) => (tool.run)(arguments, &mut io::stdout()),
            None => wrong_usage(&format!("there is no command `{}`", excerpt(command))),
        },
    }
}

fn help(command: &str) -> u8 {
    match TOOLS.iter().find(|tool| tool.name == command) {
        Some(tool) => print(&(tool.help)()),
        None if ["help", "version"].contains(&command) => print(USAGE),
        None => wrong_usage(&format!("there is no command `{}`", excerpt(command))),
    }
}

fn idl_command() -> Command {
    let compile = arguments::from_help("idl", corelane_idl::command::USAGE);
    let about = arguments::summary(USAGE, "idl dump");
    compile.arg(arguments::positionals("FILE")).subcommand(dump::command().about(about))
}

fn idl_help() -> String {
    format!("{}\n{}", corelane_idl::command::USAGE, dump::USAGE)
}

fn run_idl(mut words: vec::IntoIter<OsString>, out: &mut dyn Write) -> u8 {
    if words.as_slice().first().is_some_and(|word| word == "dump") {
        words.next();
        return dump::run(words, out);
    }
    corelane_idl::command::run(words, &mut io::stderr())
}

fn bench_command() -> Command {
    let verb = arguments::positional("COMMAND").value_parser(["list", "run", "all", "plan", "report"]);
    arguments::from_help("bench", corelane_bench::command::USAGE).args([verb, arguments::positionals("NAME")])
}

/// Prints a text and returns the exit status of success. Ignores errors, because the reader may
/// have closed the pipe.
fn print(text: &str) -> u8 {
    let _ = io::stdout().write_all(text.as_bytes());
    DONE
}

fn wrong_usage(reason: &str) -> u8 {
    let _ = write!(io::stderr(), "error: {reason}\n\n{USAGE}");
    WRONG_USAGE
}
