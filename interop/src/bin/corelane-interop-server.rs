//! `corelane-interop-server --ior FILE [--life SECONDS] [--until-eof]` and the options of
//! `corelane_interop::suite::options::OrbOptions`.
//!
//! Serves an object of Interop::Suite under the plain key "Interop" and writes its reference to
//! FILE. The server ends at the shutdown operation, after SECONDS (300), or, with `--until-eof`, at
//! the end of standard input.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Read;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use std::{env, fs, io};

use corelane_interop::suite::options::ServerOptions;
use corelane_interop::suite::servants::{self, SuiteServant};

fn main() -> ExitCode {
    let options = match ServerOptions::parse(env::args().skip(1)) {
        Ok(options) => options,
        Err(trouble) => {
            eprintln!("{trouble}");
            return ExitCode::from(2);
        }
    };
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &ServerOptions) -> Result<(), Box<dyn Error>> {
    let orb = options.orb_options.orb()?;
    let poa = orb.root_poa();
    let reference = poa.activate(&servants::suite_servant(SuiteServant::new(&poa, orb.shutdown_handle())?))?;
    orb.bind_key("Interop", &reference)?;
    poa.manager().activate()?;
    let part = format!("{}.part", options.ior);
    fs::write(&part, format!("{reference}\n"))?;
    fs::rename(&part, &options.ior)?;
    println!("ready");

    let (life, end_of_life) = (Duration::from_secs(options.life_seconds), orb.shutdown_handle());
    thread::spawn(move || {
        thread::sleep(life);
        end_of_life.shutdown();
    });
    if options.until_eof {
        let end_of_input = orb.shutdown_handle();
        thread::spawn(move || {
            let mut octet = [0];
            // An error of reading ends the server too.
            while io::stdin().read(&mut octet).is_ok_and(|count| count > 0) {}
            end_of_input.shutdown();
        });
    }
    orb.run();
    let counts = orb.event_counts();
    orb.shutdown(true)?;
    println!("ended; events: {counts:?}");
    Ok(())
}
