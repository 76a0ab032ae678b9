//! The benchmark `os`, which measures the effect of the operating system on calls through Corelane
//! and on bare sockets.

use std::collections::VecDeque;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::SystemExceptionKind;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{self, Scheduling, ThreadBuilder};
use corelane_sys::{clock, signal};

use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::{BaselineClient, BaselineTransport, TwoWayExchange, WaitStrategy, parse_address};
use crate::harness::{ComparedQuantity, FigureLabel, Group, MeasuredSubject, Progress, RunLength, Variant};
use crate::idle::{BusyCores, IdleStateLock};
use crate::launch::{start_baseline, start_echo};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, target};
use crate::orb::{ServerArchitecture, client_orb};
use crate::placement::{CoreChoice, Placement, Side};
use crate::report::Report;
use crate::sample::Samples;
use crate::service::RunningProgram;
use crate::workload::message_sizes;

const PRIORITY: u8 = 10;

const REST: Duration = Duration::from_millis(5);

const NAP: Duration = Duration::from_millis(1);

/// Default timer slack of the kernel.
const USUAL_SLACK: Duration = Duration::from_micros(50);

/// The file with the kernel's preemption mode. Writing a mode to it switches to this mode.
const PREEMPTION: &str = "/sys/kernel/debug/sched/preempt";

pub(crate) fn os(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    classes(options, report, progress)?;
    idle_states(options, report, progress)?;
    slack(options, report, progress)?;
    deadlines(options, report, progress)?;
    if options.may_switch_preemption {
        preemption(Path::new(PREEMPTION), options, report, progress)
    } else {
        let reason =
            "preemption modes: only with --preemption, which switches the mode of the whole machine during the run";
        report.add_missing("os", "Corelane", reason)
    }
}

struct OsServerPair {
    floor: (RunningProgram, String),
    corelane: (RunningProgram, String),
}

impl OsServerPair {
    fn start(placement: &Placement) -> Result<Self, Failure> {
        Ok(OsServerPair {
            floor: start_baseline(BaselineTransport::Tcp, WaitStrategy::Blocking, placement)?,
            corelane: start_echo(ServerArchitecture::PerConnection, LOOPBACK, placement)?,
        })
    }
}

type BoxedSubject = Box<dyn MeasuredSubject + Send>;

struct OsVariants<'o> {
    options: &'o BenchOptions,
    orb: corelane::Orb,
    variants: Vec<Variant>,
    /// The servers must outlive the calls of their variants.
    pairs: Vec<OsServerPair>,
}

impl<'o> OsVariants<'o> {
    fn new(options: &'o BenchOptions) -> Result<Self, Failure> {
        Ok(OsVariants { options, orb: client_orb(0)?, variants: Vec::new(), pairs: Vec::new() })
    }

    /// Adds the variants "bare sockets" and "Corelane" in one setting; `set` puts a subject into
    /// the setting. Corelane is compared with the bare sockets in this setting. In later settings,
    /// both variants are also compared with their results in the first setting.
    fn add(
        &mut self,
        name: &str,
        placement: &Placement,
        set: impl Fn(BoxedSubject) -> BoxedSubject,
    ) -> Result<(), Failure> {
        let pair = OsServerPair::start(placement)?;
        let sizes = message_sizes(&self.orb, MeasuredOperation::Octet, self.options)?;
        let client = BaselineClient::connect(&parse_address(&pair.floor.1)?, sizes)?;
        let exchange = TwoWayExchange { client, server: Some(pair.floor.0.pid()) };
        let target = target(&self.orb, &pair.corelane.1)?;
        let calls = StubCalls { target, operation: MeasuredOperation::Octet, server: pair.corelane.0.pid() };
        let at = self.variants.len();
        let (floors, ours) = if at == 0 { (vec![], vec![0]) } else { (vec![0], vec![1, at]) };
        self.variants.push(Variant { label: label("floor", name), subject: set(Box::new(exchange)), against: floors });
        self.variants.push(Variant { label: label("Corelane", name), subject: set(Box::new(calls)), against: ours });
        self.pairs.push(pair);
        Ok(())
    }

    fn measure(
        self,
        title: &str,
        run_length: &RunLength,
        report: &mut Report<'_>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let group = Group { title: title.to_owned(), compare: ComparedQuantity::Median, variants: self.variants };
        report.measure(group, run_length, &Placement::default(), progress).map(drop)
    }
}

fn label(peer: &'static str, config: &str) -> FigureLabel {
    FigureLabel {
        bench: "os",
        peer,
        transport: "tcp",
        op: "octet".to_owned(),
        config: config.to_owned(),
        axis_point: None,
    }
}

fn classes(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let cores: Vec<usize> = thread::affinity(None).map(|set| set.iter().collect()).unwrap_or_default();
    let last = cores.last().copied().unwrap_or(0);
    let mut places = vec![("one core", CoreChoice::Shared(last))];
    match cores.first() {
        Some(&first) if first != last => places.push(("two cores", CoreChoice::Separate(first, last))),
        _ => report.add_missing("os", "floor", "two cores: the process may use only one")?,
    }
    places.push(("not pinned", CoreChoice::Any));
    let mut settings = OsVariants::new(options)?;
    let mut refused = Vec::new();
    for (place, cores) in places {
        for (class, scheduling) in [
            ("SCHED_OTHER", Scheduling::Other),
            ("SCHED_RR", Scheduling::RoundRobin(PRIORITY)),
            ("SCHED_FIFO", Scheduling::Fifo(PRIORITY)),
        ] {
            let placement = Placement { cores, scheduling: Some(scheduling) };
            let name = format!("{class}, {place}");
            if let Err(error) = placement.run(Side::Client, || ()) {
                refused.push(format!("{name}: {error}"));
                continue;
            }
            settings.add(&name, &placement, |inner| Box::new(PlacedSubject { placement, inner }))?;
        }
    }
    for reason in refused {
        report.add_missing("os", "Corelane", &reason)?;
    }
    settings.measure("os: scheduling class and cores", &options.run_length, report, progress)
}

fn idle_states(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let mut settings = OsVariants::new(options)?;
    let placement = options.placement;
    for (name, keep) in [
        ("no rest", None),
        ("idle states as the system has them", Some(Keep::Nothing)),
        ("held off by /dev/cpu_dma_latency", Some(Keep::Device)),
        ("held off by a thread of SCHED_IDLE", Some(Keep::Busy)),
    ] {
        if keep == Some(Keep::Device) && IdleStateLock::hold().is_none() {
            report.add_missing("os", "Corelane", "idle states held off: /dev/cpu_dma_latency may not be written")?;
            continue;
        }
        settings.add(name, &placement, |inner| {
            let inner = Box::new(PlacedSubject { placement, inner });
            match keep {
                None => inner,
                Some(keep) => Box::new(RestedClient { keep, placement, inner }),
            }
        })?;
    }
    let run_length = RunLength {
        warm_up: options.run_length.warm_up.min(20),
        count: options.run_length.count.min(100),
        ..options.run_length
    };
    settings.measure("os: idle states, a call every 5 ms", &run_length, report, progress)
}

const SLACKS: [(&str, Duration, Scheduling); 3] = [
    ("SCHED_OTHER, slack 50 us", USUAL_SLACK, Scheduling::Other),
    ("SCHED_OTHER, slack 1 ns", Duration::from_nanos(1), Scheduling::Other),
    ("SCHED_FIFO, slack 50 us", USUAL_SLACK, Scheduling::Fifo(PRIORITY)),
];

fn slack(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let mut variants = Vec::new();
    for (config, slack, scheduling) in SLACKS {
        let placement = Placement { scheduling: Some(scheduling), ..options.placement };
        if let Err(error) = placement.run(Side::Client, || ()) {
            report.add_missing("os", "floor", &format!("{config}: {error}"))?;
            continue;
        }
        let label = FigureLabel { transport: "none", op: "sleep".to_owned(), ..label("floor", config) };
        let against = if variants.is_empty() { Vec::new() } else { vec![0] };
        variants.push(Variant { label, subject: Box::new(Sleeper { slack, placement }), against });
    }
    let title = "os: timer slack, how late a thread wakes that sleeps for 1 ms, idle states held off".to_owned();
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let run_length = RunLength { warm_up: 5, count: options.run_length.count.min(300), ..options.run_length };
    let busy = BusyCores::start(&options.placement)?;
    let measured = report.measure(group, &run_length, &options.placement, progress).map(drop);
    drop(busy);
    measured
}

fn deadlines(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let silent = SilentServer::start()?;
    let mut variants = Vec::new();
    for (config, slack, scheduling) in SLACKS {
        let placement = Placement { scheduling: Some(scheduling), ..options.placement };
        if let Err(error) = placement.run(Side::Client, || ()) {
            report.add_missing("os", "Corelane", &format!("a precise deadline, {config}: {error}"))?;
            continue;
        }
        let labels = ["floor", "Corelane"].map(|peer| FigureLabel { op: "deadline".to_owned(), ..label(peer, config) });
        let [floor, ours] = labels;
        let at = variants.len();
        let (floors, against) = if at == 0 { (vec![], vec![0]) } else { (vec![0], vec![1, at]) };
        let sleeper = Box::new(Sleeper { slack, placement });
        variants.push(Variant { label: floor, subject: sleeper, against: floors });
        let overdue = Box::new(DeadlineCall { slack, placement, reference: silent.reference() });
        variants.push(Variant { label: ours, subject: overdue, against });
    }
    let title =
        "os: timer slack, how late a call's precise deadline of 1 ms is reported, beside a thread that sleeps for 1 ms"
            .to_owned();
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let run_length = RunLength { warm_up: 5, count: options.run_length.count.min(300), ..options.run_length };
    let busy = BusyCores::start(&options.placement)?;
    let measured = report.measure(group, &run_length, &options.placement, progress).map(drop);
    drop(busy);
    measured
}

fn preemption(
    file: &Path,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let modes = match fs::read_to_string(file) {
        Ok(text) => modes(&text),
        Err(error) => {
            let reason = format!(
                "preemption modes: {}: {error}; root can read it on a kernel with PREEMPT_DYNAMIC if debugfs is mounted",
                file.display()
            );
            return report.add_missing("os", "Corelane", &reason);
        }
    };
    let Some(current) = modes.iter().find(|(_, current)| *current).map(|(name, _)| name.clone()) else {
        return report.add_missing("os", "Corelane", "preemption modes: the kernel does not report the current one");
    };
    let _restore = PreemptionRestore::new(file, current)?;
    let mut settings = OsVariants::new(options)?;
    let placement = options.placement;
    for (name, _) in modes {
        let file = file.to_path_buf();
        settings.add(&format!("preemption {name}"), &placement, |inner| {
            let inner = Box::new(PlacedSubject { placement, inner });
            Box::new(PreemptionSubject { file: file.clone(), mode: name.clone(), inner })
        })?;
    }
    settings.measure("os: kernel preemption", &options.run_length, report, progress)
}

fn modes(text: &str) -> Vec<(String, bool)> {
    let bare = |word: &str| word.trim_matches(['(', ')']).to_owned();
    text.split_whitespace().map(|word| (bare(word), word.starts_with('('))).collect()
}

/// Restores the kernel's preemption mode when it is dropped, and on a termination signal, which
/// then ends the process.
struct PreemptionRestore;

type PreemptionMode = Option<(PathBuf, String)>;

fn switched() -> &'static Mutex<PreemptionMode> {
    static SWITCHED: OnceLock<Mutex<PreemptionMode>> = OnceLock::new();
    SWITCHED.get_or_init(|| Mutex::new("kernel preemption", LockScope::Orb, None))
}

impl PreemptionRestore {
    fn new(file: &Path, mode: String) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(format!(
                "kernel preemption: not switched, since it could not be restored after a signal: {error}"
            ))
        };
        let termination = signal::termination().map_err(failed)?;
        *switched().lock() = Some((file.to_path_buf(), mode));
        // A process that takes over these signals must handle them until its end, so the thread is
        // never joined.
        ThreadBuilder::new()
            .name("bench/signals")
            .spawn(move || {
                while !matches!(termination.wait(None), Ok(true)) {}
                put_back();
                std::process::exit(ASKED_TO_END);
            })
            .map_err(failed)?;
        Ok(PreemptionRestore)
    }
}

/// Exit status that shells report for a program that SIGINT has ended.
const ASKED_TO_END: i32 = 130;

fn put_back() {
    let Some((file, mode)) = switched().lock().take() else { return };
    if let Err(error) = fs::write(&file, &mode) {
        eprintln!("bench: the kernel's preemption mode could not be restored to `{mode}`: {error}");
    }
}

impl Drop for PreemptionRestore {
    fn drop(&mut self) {
        put_back();
    }
}

struct PreemptionSubject {
    file: PathBuf,
    mode: String,
    inner: BoxedSubject,
}

impl MeasuredSubject for PreemptionSubject {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let switched = fs::write(&self.file, &self.mode);
        switched.map_err(|error| {
            Failure::new(format!("the kernel refuses the preemption mode `{}`: {error}", self.mode))
        })?;
        self.inner.run(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.inner.server_pid()
    }
}

struct PlacedSubject {
    placement: Placement,
    inner: BoxedSubject,
}

impl MeasuredSubject for PlacedSubject {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let entered = self.placement.enter(Side::Client);
        let _entered = entered.map_err(|error| Failure::new(error.to_string()))?;
        self.inner.run(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.inner.server_pid()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Nothing,
    Device,
    Busy,
}

struct RestedClient {
    keep: Keep,
    placement: Placement,
    inner: BoxedSubject,
}

impl MeasuredSubject for RestedClient {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let _awake = (self.keep == Keep::Device).then(IdleStateLock::hold).flatten();
        let _busy = if self.keep == Keep::Busy { Some(BusyCores::start(&self.placement)?) } else { None };
        let mut whole = self.inner.run(warm_up, 0, into)?;
        for _ in 0..count {
            std::thread::sleep(REST);
            whole += self.inner.run(0, 1, into)?;
        }
        Ok(whole)
    }

    fn server_pid(&self) -> Option<u32> {
        self.inner.server_pid()
    }
}

struct Sleeper {
    slack: Duration,
    placement: Placement,
}

impl MeasuredSubject for Sleeper {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let (slack, mut late) = (self.slack, Vec::with_capacity(warm_up + count));
        // The timer slack belongs to a thread, so each setting has a new thread.
        let slept = self.placement.run(Side::Client, move || {
            thread::set_timer_slack(slack)?;
            let began = clock::now();
            for _ in 0..warm_up + count {
                let due = clock::now() + NAP;
                std::thread::sleep(due.remaining());
                late.push(due.elapsed().as_nanos() as u64);
            }
            Ok::<_, std::io::Error>((began.elapsed(), late))
        });
        let (whole, late) = slept
            .and_then(|slept| slept)
            .map_err(|error| Failure::new(format!("the sleeping thread failed: {error}")))?;
        late.iter().skip(warm_up).for_each(|&time| into.push(time));
        Ok(whole)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

struct SilentServer {
    port: u16,
    over: Arc<AtomicBool>,
}

const KEPT: usize = 16;

impl SilentServer {
    fn start() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("the silent server cannot be started: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let (port, over) = (listener.local_addr().map_err(failed)?.port(), Arc::new(AtomicBool::new(false)));
        let silent = SilentServer { port, over: over.clone() };
        let body = move || {
            let mut kept = VecDeque::with_capacity(KEPT);
            for stream in listener.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                kept.truncate(KEPT - 1);
                kept.push_front(stream);
            }
        };
        ThreadBuilder::new().name("bench/silent").spawn(body).map_err(failed)?;
        Ok(silent)
    }

    fn reference(&self) -> String {
        format!("corbaloc:iiop:1.2@127.0.0.1:{}/nobody", self.port)
    }
}

impl Drop for SilentServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // If the connection fails, the accepting thread continues until the process ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Calls that end at their deadline. The measured times are from the deadline to the end of the
/// call.
struct DeadlineCall {
    slack: Duration,
    placement: Placement,
    reference: String,
}

impl MeasuredSubject for DeadlineCall {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let (slack, reference) = (self.slack, self.reference.clone());
        let called = self.placement.run(Side::Client, move || {
            let failed = |error: std::io::Error| Failure::new(format!("the calling thread failed: {error}"));
            thread::set_timer_slack(slack).map_err(failed)?;
            let orb = client_orb(0)?;
            let target = target(&orb, &reference)?.with_timeout(NAP);
            let mut late = Vec::with_capacity(warm_up + count);
            let began = clock::now();
            for _ in 0..warm_up + count {
                let due = clock::now() + NAP;
                let answer = target.echo_nothing();
                late.push(due.elapsed().as_nanos() as u64);
                match answer {
                    Err(error) if error.kind() == SystemExceptionKind::Timeout => {}
                    Err(error) => return Err(error.into()),
                    Ok(()) => return Err(Failure::new("the silent server has answered")),
                }
            }
            Ok((began.elapsed(), late))
        });
        let (whole, late) = called.map_err(|error| Failure::new(error.to_string()))??;
        late.iter().skip(warm_up).for_each(|&time| into.push(time));
        Ok(whole)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn call_of_a_silent_server_ends_at_its_deadline() {
        let silent = SilentServer::start().unwrap();
        let placement = Placement::default();
        let mut overdue = DeadlineCall { slack: USUAL_SLACK, placement, reference: silent.reference() };
        let mut samples = Samples::with_capacity(20);
        assert!(overdue.run(2, 20, &mut samples).unwrap() >= NAP * 22);
        assert_eq!(samples.len(), 20);
    }

    #[test]
    fn preemption_modes_are_parsed() {
        let read = modes("none voluntary (full) lazy \n");
        assert_eq!(read.len(), 4);
        assert_eq!(read.iter().find(|(_, current)| *current).unwrap().0, "full");
        assert!(modes("").is_empty());
    }

    /// Environment variable with the path of a preemption file; the test program then switches the
    /// mode, prints `switched`, and waits.
    const SWITCHES: &str = "CORELANE_TEST_SWITCHES";

    #[test]
    fn switches_and_stays() {
        let Some(file) = std::env::var_os(SWITCHES) else { return };
        let file = PathBuf::from(file);
        let restore = PreemptionRestore::new(&file, "full".to_owned()).unwrap();
        fs::write(&file, "lazy").unwrap();
        println!("switched");
        let _ = std::io::stdin().lines().next();
        drop(restore);
    }

    #[test]
    fn signal_restores_the_preemption_mode() {
        // A shell makes background jobs ignore SIGINT, so the test uses SIGTERM.
        for signal in [None, Some("TERM")] {
            let name = format!("corelane-preempt-{}-{}", std::process::id(), signal.unwrap_or("none"));
            let file = std::env::temp_dir().join(name);
            let mut program = std::process::Command::new(std::env::current_exe().unwrap());
            program.args(["--exact", "papers::os::tests::switches_and_stays", "--nocapture"]).env(SWITCHES, &file);
            let pipes = (std::process::Stdio::piped(), std::process::Stdio::piped());
            let mut child = program.stdin(pipes.0).stdout(pipes.1).spawn().unwrap();
            let input = child.stdin.take();
            let mut said = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(said.any(|line| line.unwrap().contains("switched")));
            assert_eq!(fs::read_to_string(&file).unwrap(), "lazy");
            match signal {
                Some(signal) => {
                    let kill = ["-s", signal, &child.id().to_string()].map(str::to_owned);
                    assert!(std::process::Command::new("kill").args(kill).status().unwrap().success());
                    let status = child.wait().unwrap();
                    assert_eq!(status.code(), Some(ASKED_TO_END), "{signal}");
                    drop(input);
                }
                None => {
                    drop(input);
                    assert!(child.wait().unwrap().success());
                }
            }
            assert_eq!(fs::read_to_string(&file).unwrap(), "full", "{signal:?}");
            fs::remove_file(&file).unwrap();
        }
    }

    struct Counting(Arc<AtomicUsize>);

    impl MeasuredSubject for Counting {
        fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
            self.0.fetch_add(warm_up + count, Ordering::Relaxed);
            (0..count).for_each(|_| into.push(1));
            Ok(Duration::from_nanos(count as u64))
        }

        fn server_pid(&self) -> Option<u32> {
            Some(7)
        }
    }

    #[test]
    fn pausing_client_makes_the_requested_calls() {
        let calls = Arc::default();
        let inner = Box::new(Counting(Arc::clone(&calls)));
        let placement = Placement::default();
        let mut rested =
            RestedClient { keep: Keep::Nothing, placement, inner: Box::new(PlacedSubject { placement, inner }) };
        let mut samples = Samples::with_capacity(3);
        assert_eq!(rested.run(2, 3, &mut samples).unwrap(), Duration::from_nanos(3));
        assert_eq!((samples.len(), calls.load(Ordering::Relaxed)), (3, 5));
        assert_eq!(rested.server_pid(), Some(7));
    }

    #[test]
    fn sleeping_thread_is_never_early() {
        let mut samples = Samples::with_capacity(3);
        let mut sleeper = Sleeper { slack: Duration::from_nanos(1), placement: Placement::default() };
        let whole = sleeper.run(1, 3, &mut samples).unwrap();
        assert_eq!(samples.len(), 3);
        assert!(whole >= NAP * 4);
    }
}
