//! Calls at a steady rate, measures, and reports once a second from a thread of its own, so that reporting delays no call.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use corelane::{SystemException, SystemExceptionKind};
use corelane_sys::clock::now;
use corelane_sys::mpsc::Mailbox;
use corelane_sys::thread::Builder;

use crate::avionics::{RecorderRef, Report};
use crate::clients::Client;
use crate::{Result, priority};

/// How often a client reports.
const REPORT: Duration = Duration::from_secs(1);

/// What came of a call.
enum Sample {
    /// It has a result, or none before its deadline.
    Done { latency: Duration, missed: bool },
    /// It was not made: the one before still ran.
    Skipped,
    /// It failed.
    Failed(SystemException),
    /// There are no more calls.
    End,
}

/// Makes `call` as often as the client's rate says, for `length`, and reports to `recorder`. The argument of `call` counts.
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
        Builder::new().name("reporter").spawn(move || {
            priority::lower();
            report(&name, &scheduling, &samples, &recorder)
        })?
    };
    // Without a reporter, or with one that is stuck for minutes, there is nobody to call for.
    call_steadily(client, length, call, &|sample| !reporter.is_finished() && samples.send(sample).is_ok());
    let _ = samples.send(Sample::End);
    reporter.join().map_err(|_| "the reporter panicked")?
}

/// Calls until `length` has passed or `heard` says that nobody listens any more.
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
        // The caller's lateness counts too: what matters is when the result is there.
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
