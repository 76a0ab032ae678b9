//! The `corelane` command: the IDL compiler, the benchmarks, a look into references, a look at the machine.
//!
//! Each subcommand is a function from arguments to an exit status that writes to what it is given. The statuses mean the same
//! everywhere: 0 it is done, 1 it could not be done, 2 the arguments make no sense.
#![forbid(unsafe_code)]

mod call;
mod doctor;
mod dump;
mod idl_types;
mod ior;
mod json;
mod trace;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use corelane_bench::server;

/// The benchmarks count allocations, and with this their servers do.
#[global_allocator]
static ALLOCATOR: corelane_sys::alloc::Counting = corelane_sys::alloc::Counting;

const USAGE: &str = "\
usage: corelane COMMAND [ARGUMENT]...

  idl FILE...       compile IDL to Rust
  idl dump FILE     print what an IDL file declares, as JSON
  call ...          call an operation of an object, from its IDL
  ior TEXT          show what is in a reference: IOR:, corbaloc: or corbaname:
  bench ...         measure this ORB, its peers and bare sockets
  trace             write one request's way through client and server as a trace
  doctor            say which real-time guarantees hold on this machine, and what to change
  version           print the version
  help [COMMAND]    this text, or that of a command

Exit status: 0 done, 1 not done, 2 wrong usage.
";

/// Exit status: done.
const DONE: u8 = 0;
/// Exit status: it could not be done.
const NOT_DONE: u8 = 1;
/// Exit status: the arguments make no sense.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    ExitCode::from(dispatch(&command, arguments))
}

fn dispatch(command: &str, arguments: impl Iterator<Item = OsString>) -> u8 {
    let mut out = io::stdout();
    let mut arguments = arguments.peekable();
    match command {
        "idl" if arguments.next_if(|word| word == "dump").is_some() => dump::run(arguments, &mut out),
        // The compiler's messages are about its input, so they go where programs expect errors.
        "idl" => corelane_idl::command::run(arguments, &mut io::stderr()),
        "call" => call::run(arguments, &mut out),
        "ior" => ior::run(arguments, &mut out),
        "bench" => corelane_bench::command::run(arguments, &mut out),
        "trace" => trace::run(arguments, &mut out),
        "doctor" => doctor::run(arguments, &mut out),
        "version" | "--version" | "-V" => print(&format!("corelane {}\n", env!("CARGO_PKG_VERSION"))),
        "help" | "--help" | "-h" => match arguments.next() {
            None => print(USAGE),
            Some(command) => help(&command.to_string_lossy()),
        },
        server::MODE => server::run(arguments),
        "" => wrong_usage("no command is given"),
        _ => wrong_usage(&format!("there is no command `{command}`")),
    }
}

fn help(command: &str) -> u8 {
    match command {
        "idl" => print(&format!("{}\n{}", corelane_idl::command::USAGE, dump::USAGE)),
        "call" => print(call::USAGE),
        "ior" => print(ior::USAGE),
        "bench" => print(corelane_bench::command::USAGE),
        "trace" => print(trace::USAGE),
        "doctor" => print(doctor::USAGE),
        "help" | "version" => print(USAGE),
        _ => wrong_usage(&format!("there is no command `{command}`")),
    }
}

/// A closed pipe is the reader's choice, not a failure of ours.
fn print(text: &str) -> u8 {
    let _ = io::stdout().write_all(text.as_bytes());
    DONE
}

fn wrong_usage(reason: &str) -> u8 {
    let _ = write!(io::stderr(), "error: {reason}\n\n{USAGE}");
    WRONG_USAGE
}
