//! Measures calls and events: the time from the instant at which each is due to its result. A
//! separate thread reports once a second, so that reporting delays nothing.

use std::sync::{Arc, Once};
use std::thread::sleep;
use std::time::Duration;

use corelane::{SystemException, SystemExceptionKind};
use corelane_sys::clock::{Monotonic, now};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::mpsc::Mailbox;
use corelane_sys::thread::{JoinHandle, ThreadBuilder};

use crate::avionics::{RecorderRef, Report};
use crate::clients::Client;
use crate::{Result, priority};

const REPORT: Duration = Duration::from_secs(1);

enum Sample {
    /// The scheduling class of the measured thread.
    Class(String),
    /// There is a result, or a call has ended at its deadline without a result.
    Done {
        latency: Duration,
        missed: bool,
    },
    Skipped,
    Failed(SystemException),
    End,
}

/// The measurements of a client, or of a consumer of the event channel.
pub(crate) struct Meter {
    deadline: Option<Duration>,
    samples: Arc<Mailbox<Sample>>,
    class_known: Once,
    reporter: Mutex<Option<JoinHandle<Result<()>>>>,
}

impl Meter {
    /// Starts the thread that reports to the recorder under this name.
    pub(crate) fn start(name: &str, deadline: Option<Duration>, recorder: RecorderRef) -> Result<Self> {
        let samples = Arc::new(Mailbox::new(4096)?);
        let (received, name) = (Arc::clone(&samples), name.to_owned());
        let reporter = ThreadBuilder::new().name("reporter").spawn(move || {
            priority::lower();
            report(&name, &received, &recorder)
        })?;
        let reporter = Mutex::new("reporter", LockScope::Orb, Some(reporter));
        Ok(Meter { deadline, samples, class_known: Once::new(), reporter })
    }

    /// Measures work that the calling thread has just ended. Returns false if the measurement
    /// cannot be reported.
    pub(crate) fn note(&self, due: Monotonic, outcome: Result<(), SystemException>) -> bool {
        // The latency includes a late start, because the deadline counts from the instant at which
        // the work is due.
        let latency = due.elapsed();
        self.class_known.call_once(|| drop(self.samples.send(Sample::Class(priority::granted()))));
        let late = self.deadline.is_some_and(|deadline| latency > deadline);
        self.send(match outcome {
            Ok(()) => Sample::Done { latency, missed: late },
            Err(failure) if late && failure.kind() == SystemExceptionKind::Timeout => {
                Sample::Done { latency, missed: true }
            }
            Err(failure) => Sample::Failed(failure),
        })
    }

    /// Sends the last report.
    pub(crate) fn finish(&self) -> Result<()> {
        self.send(Sample::End);
        let reporter = self.reporter.lock().take();
        reporter.map_or(Ok(()), |reporter| reporter.join().map_err(|_| "the reporter panicked")?)
    }

    fn send(&self, sample: Sample) -> bool {
        self.samples.send(sample).is_ok()
    }

    fn has_failed(&self) -> bool {
        self.reporter.lock().as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// Makes the calls of a client for the time `length`, and reports them to the recorder. `call` gets
/// the number of the call, from 0.
pub(crate) fn run(
    client: &Client,
    length: Duration,
    recorder: RecorderRef,
    call: &mut dyn FnMut(u32) -> Result<(), SystemException>,
) -> Result<()> {
    let meter = Meter::start(client.name, client.deadline, recorder)?;
    priority::raise(client.priority);
    call_steadily(client, length, call, &meter);
    meter.finish()
}

/// Makes the calls at the client's rate. Stops early if a report fails.
fn call_steadily(
    client: &Client,
    length: Duration,
    call: &mut dyn FnMut(u32) -> Result<(), SystemException>,
    meter: &Meter,
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
        let mut go_on = meter.note(due, outcome) && !meter.has_failed();
        due += period;
        while due.is_past() {
            go_on &= meter.send(Sample::Skipped);
            due += period;
        }
        if !go_on {
            return;
        }
    }
}

fn report(name: &str, samples: &Mailbox<Sample>, recorder: &RecorderRef) -> Result<()> {
    let mut scheduling = String::new();
    // The first report begins with the first sample, and the last report ends with the last sample.
    let mut first = samples.receive_until(None)?;
    let mut ended = false;
    while !ended {
        let begun = now();
        let mut last = begun;
        let mut report = Report {
            client: name.into(),
            scheduling: String::new(),
            period: 0.0,
            latencies: Vec::new(),
            misses: 0,
            failures: 0,
            trouble: String::new(),
        };
        loop {
            let next = if first.is_some() { first.take() } else { samples.receive_until(Some(begun + REPORT))? };
            let Some(sample) = next else { break };
            match sample {
                Sample::Class(class) => scheduling = class,
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
            last = now();
        }
        report.scheduling.clone_from(&scheduling);
        let end = if ended { last } else { now() };
        report.period = end.since(begun).as_secs_f64();
        recorder.take(&report)?;
    }
    Ok(())
}
