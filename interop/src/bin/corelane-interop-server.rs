//! `corelane-interop-server --ior FILE [--life SECONDS] [--until-eof] [--task]` and the options of
//! `corelane_interop::suite::options::OrbOptions`.
//!
//! Serves an object of Interop::Suite under the plain key "Interop" and writes its reference to
//! FILE. With `--task` it writes the reference of a task that calls the object, and fails at its end
//! if no connection was bound to the task. The server ends at the shutdown operation, after SECONDS (300), or, with `--until-eof`, at
//! the end of standard input.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Read;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use std::{env, fs, io};

use corelane::rt::{CorePool, CorePoolConfig};
use corelane::{ObjectRef, Orb};
use corelane_interop::suite::options::ServerOptions;
use corelane_interop::suite::servants::{self, SuiteServant};
use corelane_sched::allocation::Machine;
use corelane_services::cores::AdmissionConfig;
use corelane_services::cores::protocol::{Criticality, TaskSpec, TaskTiming};

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
    let (reference, pool) = if options.task { admit(&orb, &reference)? } else { (reference, None) };
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
            // An error of reading ends the server.
            while io::stdin().read(&mut octet).is_ok_and(|count| count > 0) {}
            end_of_input.shutdown();
        });
    }
    orb.run();
    let (counts, tasks) = (orb.event_counts(), pool.map(|pool| pool.counts()));
    orb.shutdown(true)?;
    println!("ended; events: {counts:?}; core pool: {tasks:?}");
    match tasks {
        Some(tasks) if tasks.bound == 0 => Err("no connection was bound to the task".into()),
        _ => Ok(()),
    }
}

/// Returns the reference of a task that calls `target`, and the core pool.
fn admit(orb: &Orb, target: &ObjectRef) -> Result<(ObjectRef, Option<CorePool>), Box<dyn Error>> {
    // Nested callbacks use a thread without a task for each nested upcall.
    let pool = CorePoolConfig::default().cores([0]).best_effort_threads(40);
    let service = AdmissionConfig::new(Machine::with_cores(1)).core_pool(pool).serve(orb)?;
    let timing =
        TaskTiming { execution: 1_000_000, period: 100_000_000, deadline: 0, jitter: 0, blocking: 0, min_distance: 0 };
    let task = TaskSpec {
        name: "interop".into(),
        target: Some(target.clone()),
        operation: String::new(),
        timing,
        importance: Criticality::Normal,
        core: 0,
        lease: 3_600_000_000_000,
    };
    let promise = service.reference().admit(&task).map_err(|error| format!("{error:?}"))?;
    Ok((promise.target.ok_or("the task has no reference")?, service.core_pool().cloned()))
}
