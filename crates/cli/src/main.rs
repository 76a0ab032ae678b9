//! The `corelane` command: IDL compiler, benchmarks, and tools for references, names, calls and the
//! machine.
//!
//! Each subcommand is a function that takes arguments and an output and returns an exit status. All
//! use the same statuses: 0 done, 1 not done, 2 wrong usage.
#![forbid(unsafe_code)]

mod call;
mod cores;
mod doctor;
mod dump;
mod idl_types;
mod ior;
mod json;
mod naming;
mod operations;
mod policies;
mod text;
mod trace;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use corelane_bench::server;

/// Counts allocations for the benchmarks, whose servers run this program too.
#[global_allocator]
static ALLOCATOR: corelane_sys::alloc::CountingAllocator = corelane_sys::alloc::CountingAllocator;

const USAGE: &str = "\
usage: corelane COMMAND [ARGUMENT]...

  idl FILE...       compile IDL to Rust
  idl dump FILE     print what an IDL file declares, as JSON
  call ...          call an operation of an object, or list its operations, from its IDL
  ior TEXT          show the content of a reference: IOR:, corbaloc: or corbaname:
  naming ...        serve names, and work on any CORBA name server
  cores ...         analyse and simulate periodic tasks on cores
  bench ...         measure this ORB, its peers and bare sockets
  trace             write one request's path through client and server as a trace
  doctor            show which real-time guarantees hold on this machine, and what to change
  version           print the version
  help [COMMAND]    print this text, or the help of a command

Exit status: 0 done, 1 not done, 2 wrong usage.
";

const DONE: u8 = 0;
const NOT_DONE: u8 = 1;
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
        // The compiler's messages concern its input, so they go to the standard error.
        "idl" => corelane_idl::command::run(arguments, &mut io::stderr()),
        "call" => call::run(arguments, &mut out),
        "ior" => ior::run(arguments, &mut out),
        "naming" => naming::run(arguments, &mut out),
        "cores" => cores::run(arguments, &mut out),
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
        "naming" => print(naming::USAGE),
        "cores" => print(cores::USAGE),
        "bench" => print(corelane_bench::command::USAGE),
        "trace" => print(trace::USAGE),
        "doctor" => print(doctor::USAGE),
        "help" | "version" => print(USAGE),
        _ => wrong_usage(&format!("there is no command `{command}`")),
    }
}

/// Prints a text. Errors are ignored: the reader may have closed the pipe.
fn print(text: &str) -> u8 {
    let _ = io::stdout().write_all(text.as_bytes());
    DONE
}

fn wrong_usage(reason: &str) -> u8 {
    let _ = write!(io::stderr(), "error: {reason}\n\n{USAGE}");
    WRONG_USAGE
}
