//! Calls at a steady rate, whose latencies are measured. A separate thread reports once a second,
//! so that reporting does not delay calls.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use corelane::{SystemException, SystemExceptionKind};
use corelane_sys::clock::now;
use corelane_sys::mpsc::Mailbox;
use corelane_sys::thread::ThreadBuilder;

use crate::avionics::{RecorderRef, Report};
use crate::clients::Client;
use crate::{Result, priority};

const REPORT: Duration = Duration::from_secs(1);

enum Sample {
    /// The call returned a result, or ended at its deadline without one.
    Done {
        latency: Duration,
        missed: bool,
    },
    Skipped,
    Failed(SystemException),
    End,
}

/// Makes the calls of a client for the time `length`, and reports them to the recorder. `call` gets
/// the number of the call, from 0.
pub(crate) fn run(
    client: &Client,
    length: Duration,
    recorder: RecorderRef,
    call: &mut dyn FnMut(u32) -> Result<(), SystemException>,
) -> Result<()> {
    let samples = Arc::new(Mailbox::new(4096)?);
    let scheduling = priority::raise(client.priority);
    let reporter = {
        let (samples, name) = (Arc::clone(&samples), client.name.to_owned());
        ThreadBuilder::new().name("reporter").spawn(move || {
            priority::lower();
            report(&name, &scheduling, &samples, &recorder)
        })?
    };
    // Stops if the reporter has ended, or if its mailbox is full.
    call_steadily(client, length, call, &|sample| !reporter.is_finished() && samples.send(sample).is_ok());
    let _ = samples.send(Sample::End);
    reporter.join().map_err(|_| "the reporter panicked")?
}

fn call_steadily(
    client: &Client,
    length: Duration,
    call: &mut dyn FnMut(u32) -> Result<(), SystemException>,
    heard: &dyn Fn(Sample) -> bool,
) {
    let period = Duration::from_secs(1) / client.rate;
    let start = now();
    let mut due = start + period;
    for count in 0.. {
        if due > start + length {
            return;
        }
        sleep(due.remaining());
        let outcome = call(count);
        // The latency includes a late start of the call, because the deadline counts from the
        // instant at which the call is due.
        let latency = due.elapsed();
        let late = client.deadline.is_some_and(|deadline| latency > deadline);
        let mut go_on = heard(match outcome {
            Ok(()) => Sample::Done { latency, missed: late },
            Err(failure) if late && failure.kind() == SystemExceptionKind::Timeout => {
                Sample::Done { latency, missed: true }
            }
            Err(failure) => Sample::Failed(failure),
        });
        due += period;
        while due.is_past() {
            go_on &= heard(Sample::Skipped);
            due += period;
        }
        if !go_on {
            return;
        }
    }
}

fn report(name: &str, scheduling: &str, samples: &Mailbox<Sample>, recorder: &RecorderRef) -> Result<()> {
    let mut ended = false;
    while !ended {
        let begun = now();
        let mut report = Report {
            client: name.into(),
            scheduling: scheduling.into(),
            period: 0.0,
            latencies: Vec::new(),
            misses: 0,
            failures: 0,
            trouble: String::new(),
        };
        while let Some(sample) = samples.receive_until(Some(begun + REPORT))? {
            match sample {
                Sample::Done { latency, missed } => {
                    report.latencies.push(u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX));
                    report.misses += u32::from(missed);
                }
                Sample::Skipped => report.misses += 1,
                Sample::Failed(failure) => {
                    report.failures += 1;
                    report.trouble = failure.to_string();
                }
                Sample::End => {
                    ended = true;
                    break;
                }
            }
        }
        report.period = begun.elapsed().as_secs_f64();
        recorder.take(&report)?;
    }
    Ok(())
}
