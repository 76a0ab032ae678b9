//! `corelane-interop-client REFERENCE` with the options of
//! `corelane_interop::suite::options::ClientOptions`: checks the results of the operations of
//! interop.idl.
//!
//! Prints `ok NAME` or `FAIL NAME ...` for each check, and finally `N passed, M failed`.
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;

use corelane_interop::suite::checks;
use corelane_interop::suite::options::ClientOptions;

fn main() -> ExitCode {
    match ClientOptions::parse(env::args().skip(1)).map(checks::run_all) {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(trouble)) => {
            println!("FAIL setup {trouble}");
            ExitCode::FAILURE
        }
        Err(trouble) => {
            eprintln!("{trouble}");
            ExitCode::from(2)
        }
    }
}
