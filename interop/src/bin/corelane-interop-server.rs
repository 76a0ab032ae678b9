//! `corelane-interop-server --ior FILE [--life SECONDS] [--until-eof] [--task]` with the options of
//! `corelane_interop::suite::options::OrbOptions`: serves an object of `Interop::Suite` with the
//! plain key `Interop`.
//!
//! With `--task`, the server fails at its end if no connection was bound to a task, if the second
//! task ran no request, or if a request of the second task did not run on its bound thread.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use std::{env, fs, io};

use corelane::rt::{CorePoolConfig, served_by};
use corelane::{ObjectRef, Orb};
use corelane_interop::suite::options::ServerOptions;
use corelane_interop::suite::servants::{self, SuiteServant};
use corelane_sched::allocation::Machine;
use corelane_services::cores::protocol::{Criticality, JobOverrun, TaskSpec, TaskTiming};
use corelane_services::cores::{AdmissionConfig, AdmissionService};

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
    let suite = SuiteServant::new(&poa, orb.shutdown_handle())?;
    let second = Arc::new(SecondTask::default());
    let admission = if options.task { Some(admission(&orb)?) } else { None };
    poa.manager().activate()?;
    let suite = match &admission {
        Some(service) => {
            let seen = Arc::clone(&second);
            suite.with_bench(move || seen.count(), |bench| admit(service, "bench", 1, bench))?
        }
        None => suite,
    };
    let reference = poa.activate(&servants::suite_servant(suite))?;
    orb.bind_corbaloc_key("Interop", &reference)?;
    let reference = match &admission {
        Some(service) => admit(service, "suite", 0, &reference)?,
        None => reference,
    };
    let pool = admission.as_ref().and_then(AdmissionService::core_pool).cloned();
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
    println!("ended; events: {counts:?}; core pool: {tasks:?}; {second:?}");
    match tasks {
        Some(tasks) if tasks.connections_bound == 0 => Err("no connection was bound to the task".into()),
        Some(_) if second.elsewhere.load(Ordering::SeqCst) > 0 => Err("a request left the core of its task".into()),
        Some(_) if second.bound.load(Ordering::SeqCst) == 0 => Err("no request of the second task ran".into()),
        _ => Ok(()),
    }
}

/// The numbers of calls of the second task's operation `nothing`, on its bound thread and
/// elsewhere.
#[derive(Debug, Default)]
struct SecondTask {
    bound: AtomicU32,
    /// Any other thread.
    elsewhere: AtomicU32,
}

impl SecondTask {
    fn count(&self) {
        let by = served_by();
        let is_bound = by.thread.contains("/b") && by.core == Some(1) && !by.was_handed_over;
        if is_bound { &self.bound } else { &self.elsewhere }.fetch_add(1, Ordering::SeqCst);
    }
}

fn admission(orb: &Orb) -> Result<AdmissionService, Box<dyn Error>> {
    // A nested callback occupies a best-effort thread in each nested upcall.
    let pool = CorePoolConfig::default().cores([0, 1]).best_effort_threads(40);
    Ok(AdmissionConfig::new(Machine::with_cores(2)).core_pool(pool).serve(orb)?)
}

fn admit(service: &AdmissionService, name: &str, core: i32, target: &ObjectRef) -> Result<ObjectRef, Box<dyn Error>> {
    let timing =
        TaskTiming { execution: 1_000_000, period: 100_000_000, deadline: 0, jitter: 0, blocking: 0, min_distance: 0 };
    let task = TaskSpec {
        name: name.into(),
        target: Some(target.clone()),
        operation: String::new(),
        timing,
        importance: Criticality::Normal,
        core,
        lease: 3_600_000_000_000,
        overrun: JobOverrun::Report,
    };
    let promise = service.reference().admit(&task).map_err(|error| format!("{error:?}"))?;
    Ok(promise.target.ok_or("the task has no reference")?)
}
