//! Deliveries by CORBA's Event Service, compared with omniEvents.
//!
//! An omniEvents channel has a thread that delivers events in cycles. It sleeps between two cycles,
//! for 0.1 s by default. The client that creates a channel chooses the time.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use corelane::{Any, Orb};
use corelane_services::events::cos_event_channel_admin as cos_admin;
use corelane_services::events::lifecycle::cos_life_cycle::NameValuePair;
use corelane_services::events::lifecycle::cos_naming::NameComponent;
use corelane_services::events::lifecycle::omni_events::EventChannelFactoryRef;
use corelane_sys::clock;
use corelane_sys::thread::Scheduling;

use super::figures::{BENCH, found, judged, label};
use super::processes::{Channel, Consumers, Deliveries, cos_supplier};
use super::programs::{Service, USUAL};
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{ComparedQuantity, Figure, Group, MeasuredSubject, Progress, RunLength, Variant};
use crate::options::BenchOptions;
use crate::orb::client::object;
use crate::orb::client_orb;
use crate::placement::{Placement, Side};
use crate::report::Report;
use crate::sample::Samples;
use crate::service::RunningProgram;
use crate::targets::events as goals;

/// Cycles in nanoseconds with which omniEvents may be at its best. The shortest cycle passes an
/// event on soonest; the longer cycle takes less of the core from the supplier and the consumer.
const CYCLES: [(u32, &str); 2] = [(1, "omniEvents, cycle of 1 ns"), LONG_CYCLE];
/// The cycles at a fixed priority. A cycle of 1 ns never sleeps, and at the priority of all other
/// processes it would keep the core for ever.
const FIXED_PRIORITY_CYCLES: [(u32, &str); 2] = [(10_000, "omniEvents, cycle of 10 us"), LONG_CYCLE];
const LONG_CYCLE: (u32, &str) = (100_000, "omniEvents, cycle of 0.1 ms");
/// Maximum number of deliveries in one turn of the measurement ([`harness`](crate::harness)) if
/// each takes up to a cycle of 0.1 s.
const MAX_SLOW_DELIVERIES: usize = 20;
const START: Duration = Duration::from_secs(30);

/// A shell script that starts omniEvents with the arguments of the script, prints its process id,
/// and kills it at the end of the standard input. So the server does not outlive a benchmark that
/// is killed.
const WRAPPER: &str =
    "omniEvents \"$@\" </dev/null >/dev/null 2>&1 & echo \"ready $!\"; read -r end; kill -KILL $!; wait 2>/dev/null";

struct OmniEvents {
    /// The shell that runs [`WRAPPER`]; `None` once it has ended.
    shell: Option<RunningProgram>,
    process: u32,
    folder: PathBuf,
    orb: Arc<Orb>,
    factory: EventChannelFactoryRef,
}

impl OmniEvents {
    fn start(placement: &Placement) -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("corelane-bench-omnievents-{}-{number}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
        let started = Self::start_in(folder.clone(), placement);
        if started.is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
        started
    }

    fn start_in(folder: PathBuf, placement: &Placement) -> Result<Self, Failure> {
        // omniEvents cannot report its port, and listens on each address of the machine. The
        // transport rule restricts clients to 127.0.0.1.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| Failure::new(error.to_string()))?.port();
        let missing = || Failure::new("omniEvents cannot be started (Debian's package omnievents)");
        let mut command = Command::new("sh");
        command
            .args(["-c", WRAPPER, "omniEvents", "-f", "-p", &port.to_string(), "-l"])
            .arg(&folder)
            .arg("-t")
            .arg(folder.join("trace"));
        command.args(["-ORBendPointPublish", &format!("giop:tcp:127.0.0.1:{port}")]);
        command.args(["-ORBserverTransportRule", "127.0.0.1 tcp"]);
        let orb = Arc::new(client_orb(0)?);
        let factory = object(&orb, &format!("corbaloc::1.2@127.0.0.1:{port}/omniEvents"))?;
        let factory = EventChannelFactoryRef::unchecked_narrow(&factory);
        let (shell, process) = RunningProgram::start("the shell", command, placement, Side::Server)?;
        let process = process.parse().map_err(|_| missing())?;
        let server = OmniEvents { shell: Some(shell), process, folder, orb, factory };
        let deadline = clock::now() + START;
        while let Err(exception) = server.factory.as_object().non_existent() {
            // The shell reaps the process only at its own end, so a process that has ended remains
            // as a zombie.
            if is_zombie(process) {
                return Err(missing());
            }
            if deadline.is_past() {
                return Err(Failure::new(format!("omniEvents does not answer: {exception}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn channel(&self, cycle: Option<u32>) -> Result<cos_admin::EventChannelRef, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("omniEvents creates no channel: {error}"));
        let mut criteria = Vec::new();
        if let Some(cycle) = cycle {
            let value = Any::new(&cycle).map_err(|error| failed(&error))?;
            criteria.push(NameValuePair { name: "CyclePeriod_ns".to_owned(), value });
        }
        let key = [NameComponent { id: "EventChannel".to_owned(), kind: "object interface".to_owned() }];
        let created = self.factory.create_object(&key, &criteria).map_err(|error| failed(&error))?;
        let created = created.ok_or_else(|| failed(&"the reference is nil"))?;
        Ok(cos_admin::EventChannelRef::unchecked_narrow(&created))
    }
}

/// Returns true if the process has ended.
fn is_zombie(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, precedes the state.
    status.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
}

impl Drop for OmniEvents {
    fn drop(&mut self) {
        drop(self.shell.take());
        let _ = fs::remove_dir_all(&self.folder);
    }
}

struct Theirs {
    deliveries: Deliveries,
    _server: OmniEvents,
}

impl Theirs {
    fn start(cycle: Option<u32>, options: &BenchOptions) -> Result<Self, Failure> {
        if options.without_peers {
            return Err(Failure::new("left out by --without-peers"));
        }
        let server = OmniEvents::start(&options.placement)?;
        let channel = server.channel(cycle)?;
        let consumers = Consumers::reporting(BaselineTransport::Tcp, Service::Cos, 1, &options.placement)?;
        let orb = Arc::clone(&server.orb);
        let deliveries = cos_supplier(&channel, orb, server.process, consumers, Vec::new())?;
        Ok(Theirs { deliveries, _server: server })
    }
}

impl MeasuredSubject for Theirs {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.deliveries.run(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.deliveries.server_pid()
    }
}

fn ours(options: &BenchOptions) -> Result<Deliveries, Failure> {
    let channel = Channel::start(BaselineTransport::Tcp, USUAL, &options.placement)?;
    let consumers = Consumers::reporting(BaselineTransport::Tcp, Service::Cos, 1, &options.placement)?;
    let (server, Channel { program, orb, cos, .. }) = (channel.program.pid(), channel);
    cos_supplier(&cos, Arc::new(orb), server, consumers, vec![program])
}

/// Measures deliveries by CORBA's Event Service beside omniEvents with short cycles, and with its
/// default cycle.
pub(super) fn cos_push(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let is_fixed = options.placement.scheduling.is_some_and(|class| class != Scheduling::Other);
    let best = if is_fixed { FIXED_PRIORITY_CYCLES } else { CYCLES }.map(|(cycle, name)| (Some(cycle), name));
    compare("at its best", ComparedQuantity::Median, &best, options, &options.run_length, report, progress)?;
    if options.without_peers {
        return Ok(());
    }
    let slow = RunLength {
        warm_up: options.run_length.warm_up.min(2),
        count: options.run_length.count.min(MAX_SLOW_DELIVERIES),
        ..options.run_length
    };
    // An event waits for a whole cycle or not at all, so a median would be one of two extremes. The
    // comparison is therefore of rates.
    let usual = [(None, "omniEvents, cycle of 0.1 s")];
    compare("as it comes", ComparedQuantity::Rate, &usual, options, &slow, report, progress)
}

fn compare(
    form: &str,
    quantity: ComparedQuantity,
    cycles: &[(Option<u32>, &str)],
    options: &BenchOptions,
    run_length: &RunLength,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut variants = Vec::new();
    for (cycle, name) in cycles {
        progress.show(&format!("events: starting {name}"));
        // Without omniEvents the report has one reason, not one for each cycle.
        let theirs = report.or_report_missing(BENCH, "omniEvents", Theirs::start(*cycle, options))?;
        let Some(theirs) = theirs else { break };
        let label = label("omniORB", "tcp", "COS push", *name);
        variants.push(Variant { label, subject: Box::new(theirs), against: Vec::new() });
    }
    let ours_label = label("Corelane", "tcp", "COS push", "channel");
    let against = (0..variants.len()).collect();
    variants.push(Variant { label: ours_label.clone(), subject: Box::new(ours(options)?), against });
    let title = format!("events: three processes by CORBA's Event Service, omniEvents {form}");
    let group = Group { title, compare: quantity, variants };
    let figures = report.measure(group, run_length, &options.placement, progress)?;
    let time = |figure: &Figure| match quantity {
        ComparedQuantity::Median => figure.summary.p50_us,
        ComparedQuantity::Rate => figure.summary.mean_us,
    };
    let theirs = figures.iter().filter(|figure| figure.label.peer == "omniORB").map(time).min_by(f64::total_cmp);
    let (Some(theirs), Some(ours)) = (theirs, found(&figures, &ours_label)) else { return Ok(()) };
    let word = if quantity == ComparedQuantity::Rate { "mean" } else { "median" };
    let quantity = format!("{word} against omniEvents {form}");
    let values = [judged(ours, &quantity, time(ours) / theirs, "x", goals::MAX_DELIVERY_TO_OMNIEVENTS_RATIO)];
    report.add_values(&format!("events: goal beside omniEvents {form}"), &values)
}
