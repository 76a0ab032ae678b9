//! The benchmark `naming`, which compares Corelane's name server with a plain call, with the disk's
//! syncs, and with omniNames.
//!
//! omniNames searches a linked list for each component of a name, so its contexts are small here.
//! omniNames never syncs its log.

mod beside;

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::{Dispatch, ObjectRef, Orb, PoolConfig};
use corelane_services::naming::corelane_naming::NewBinding;
use corelane_services::naming::cos_naming::{NameComponent, NamingContextExtRef};
use corelane_services::naming::{NamingConfig, NamingService};
use corelane_services::store::Durability;

use self::beside::{Beside, Crowd};
use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::{BaselineTransport, MessageSizes, WaitStrategy};
use crate::client_group::{ClientGroup, GroupClient};
use crate::cost::resident_memory_kib;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Group, MeasuredSubject, Progress, RunLength, Variant};
use crate::launch::{start_echo, start_name_server};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, object, target};
use crate::orb::{ServerArchitecture, client_orb};
use crate::placement::{CoreChoice, Placement, Side};
use crate::report::Report;
use crate::sample::{Samples, time_calls};
use crate::service::{RunningProgram, serve_lines};
use crate::targets::naming as goals;
use crate::testbed::Baseline;
use crate::value::SingleValue;

/// Equal to the number of threads of `corelane naming serve`.
const THREADS: usize = 40;
const SIZES: [usize; 3] = [10, 1_000, 1_000_000];
/// Number of bindings of the largest context if the options request fewer than 1,000 calls.
const SMALL: usize = 5_000;
const FILL: usize = 10_000;
const NAMES: usize = 1_000;
const CLIENTS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(300);
const BATCH: u32 = 1_000;
/// Size in bytes of a request that resolves one component.
const RESOLVE_REQUEST: usize = 120;
/// Size in bytes of a reply's header.
const REPLY_HEADER: usize = 24;

/// Serves names until the input ends. `place` is `memory` or the path of a store, and `durability`
/// is `synced` or `relaxed`. An input line `fill CONTEXT COUNT` binds COUNT names in CONTEXT, which
/// it creates if it is absent.
///
/// # Errors
/// The server cannot start.
pub(crate) fn serve(place: &str, durability: &str) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    let pool = PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: THREADS });
    let orb = Orb::builder().pool(pool).listen(LOOPBACK).build().map_err(|error| failed(&error))?;
    let mut naming = NamingConfig::new().max_waiting_changes(32).max_forwarding_threads(THREADS / 4);
    naming = match durability {
        "synced" => naming,
        "relaxed" => naming.durability(Durability::Relaxed),
        _ => return Err(Failure::new(format!("there is no durability `{durability}`"))),
    };
    if place != "memory" {
        naming = naming.store_file(place);
    }
    let naming = naming.serve(&orb).map_err(|error| failed(&error))?;
    println!("ready {}", naming.reference().as_object());
    serve_lines(|line| {
        Some(match fill(&naming, line) {
            Ok(()) => "filled".to_owned(),
            Err(failure) => format!("error {failure}"),
        })
    })
    .map_err(|error| failed(&error))
}

/// Executes a line `fill CONTEXT COUNT`. CONTEXT is a list of ids separated by `/`.
fn fill(naming: &NamingService, line: &str) -> Result<(), Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    let (path, count) = match *words {
        ["fill", path, count] => (path, count.parse::<usize>().map_err(|error| Failure::new(error.to_string()))?),
        _ => return Err(Failure::new(format!("`{line}` is not a line of the form `fill CONTEXT COUNT`"))),
    };
    let root = naming.reference();
    let parent: Vec<NameComponent> = path.split('/').map(component).collect();
    for depth in 1..=parent.len() {
        if root.resolve(&parent[..depth]).is_err() {
            root.bind_new_context(&parent[..depth]).map_err(|error| Failure::new(format!("{error:?}")))?;
        }
    }
    let target = Some(root.as_object().clone());
    for first in (0..count).step_by(FILL) {
        let numbers = first..count.min(first + FILL);
        let bindings: Vec<NewBinding> =
            numbers.map(|number| NewBinding { name: numbered(number), target: target.clone() }).collect();
        naming.bind_all(&parent, &bindings, false).map_err(|error| Failure::new(format!("{error:?}")))?;
    }
    Ok(())
}

fn component(id: &str) -> NameComponent {
    NameComponent { id: id.to_owned(), kind: String::new() }
}

fn numbered(number: usize) -> NameComponent {
    NameComponent { id: format!("object{number}"), kind: "o".to_owned() }
}

/// Returns [`NAMES`] names of bindings that are spread evenly over the `count` bindings of a
/// context. In a context with fewer bindings, names occur several times, so that the client reads
/// as much memory for any count.
fn names(path: &str, count: usize) -> Vec<Vec<NameComponent>> {
    let name = |index: usize| {
        let mut name: Vec<NameComponent> = path.split('/').map(component).collect();
        name.push(numbered(index * (count / NAMES).max(1) % count));
        name
    };
    // Steps by a prime visit all names in an order that differs from the order of binding.
    (0..NAMES).map(|index| name(index * 7_919 % NAMES)).collect()
}

struct Resolves {
    context: NamingContextExtRef,
    names: Vec<Vec<NameComponent>>,
    next: usize,
    server: u32,
}

impl Resolves {
    /// Creates calls of `resolve` that begin at the initial context if `from_root`, else at the
    /// context `path`, where a name has one component.
    fn new(
        root: &NamingContextExtRef,
        path: &str,
        count: usize,
        from_root: bool,
        server: u32,
    ) -> Result<Self, Failure> {
        if from_root {
            return Ok(Resolves { context: root.clone(), names: names(path, count), next: 0, server });
        }
        let parent: Vec<NameComponent> = path.split('/').map(component).collect();
        let found = root.resolve(&parent).map_err(|error| Failure::new(format!("{error:?}")))?;
        let found = found.ok_or_else(|| Failure::new("the context is nil"))?;
        let last = |mut name: Vec<NameComponent>| name.split_off(name.len() - 1);
        let names = names(path, count).into_iter().map(last).collect();
        Ok(Resolves { context: NamingContextExtRef::unchecked_narrow(&found), names, next: 0, server })
    }

    fn resolve(&mut self) -> Result<(), Failure> {
        let name = &self.names[self.next % self.names.len()];
        self.next += 1;
        match self.context.resolve(name) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(Failure::new("a name is bound to nil")),
            Err(error) => Err(Failure::new(format!("{error:?}"))),
        }
    }
}

impl MeasuredSubject for Resolves {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.resolve()?;
        }
        time_calls(count, into, || self.resolve())
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

struct Changes {
    root: NamingContextExtRef,
    name: Vec<NameComponent>,
    target: ObjectRef,
    is_bound: bool,
}

impl Changes {
    fn new(root: &NamingContextExtRef, client: usize) -> Self {
        let name = vec![component(&format!("client{client}"))];
        Changes { root: root.clone(), name, target: root.as_object().clone(), is_bound: false }
    }

    fn change(&mut self) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Debug| Failure::new(format!("{error:?}"));
        if self.is_bound {
            self.root.unbind(&self.name).map_err(|error| failed(&error))?;
        } else {
            self.root.bind(&self.name, Some(&self.target)).map_err(|error| failed(&error))?;
        }
        self.is_bound = !self.is_bound;
        Ok(())
    }
}

impl GroupClient for Changes {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        time_calls(count, into, || self.change()).map(drop)
    }
}

/// Writes and syncs one page per call, which bounds the rate of sequential commits on the disk.
pub(super) struct Syncs {
    file: File,
    next: u64,
}

impl Syncs {
    pub(super) fn new(folder: &Path) -> Result<Self, Failure> {
        let made = File::create(folder.join("syncs")).and_then(|file| file.set_len(4 << 20).map(|()| file));
        Ok(Syncs { file: made.map_err(|error| Failure::new(error.to_string()))?, next: 0 })
    }

    fn sync(&mut self) -> Result<(), Failure> {
        self.next += 1;
        let place = SeekFrom::Start(self.next % 1_024 * 4_096);
        let page = [self.next as u8; 4_096];
        let written =
            self.file.seek(place).and_then(|_| self.file.write_all(&page)).and_then(|()| self.file.sync_data());
        written.map_err(|error| Failure::new(error.to_string()))
    }
}

impl MeasuredSubject for Syncs {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        for _ in 0..warm_up {
            self.sync()?;
        }
        time_calls(count, into, || self.sync())
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

struct OmniNames {
    child: Child,
    root: NamingContextExtRef,
}

impl OmniNames {
    fn start(folder: &Path, orb: &Orb, placement: &Placement) -> Result<Self, Failure> {
        fs::create_dir_all(folder).map_err(|error| Failure::new(error.to_string()))?;
        // omniNames does not report its port, so the benchmark chooses a free port.
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| Failure::new(error.to_string()))?.port();
        let mut command = Command::new("omniNames");
        command.args(["-start", &port.to_string(), "-logdir"]).arg(folder);
        command.args(["-ORBendPoint", &format!("giop:tcp:127.0.0.1:{port}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = placement.start(Side::Server, command).map_err(|error| {
            Failure::new(format!("omniNames cannot be started: {error} (Debian's package omniorb-nameserver)"))
        })?;
        let found = object(orb, &format!("corbaloc::1.2@127.0.0.1:{port}/NameService"))?;
        let names = OmniNames { child, root: NamingContextExtRef::unchecked_narrow(&found) };
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(exception) = names.root.list(1) {
            if Instant::now() > deadline {
                return Err(Failure::new(format!("omniNames does not answer: {exception}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(names)
    }

    fn fill(&self, path: &str, count: usize, target: &ObjectRef) -> Result<(), Failure> {
        let context =
            self.root.bind_new_context(&[component(path)]).map_err(|error| Failure::new(format!("{error:?}")))?;
        let context = context.ok_or_else(|| Failure::new("omniNames made a nil context"))?;
        (0..count).try_for_each(|number| {
            context.bind(&[numbered(number)], Some(target)).map_err(|error| Failure::new(format!("{error:?}")))
        })
    }
}

impl Drop for OmniNames {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder on the disk, because the system's folder for temporary files may be in memory.
pub(super) struct DiskFolder(pub(super) PathBuf);

impl DiskFolder {
    pub(super) fn new(benchmark: &str) -> Result<Self, Failure> {
        let path = PathBuf::from(format!("/var/tmp/corelane-bench-{benchmark}-{}", std::process::id()));
        Self::at(path)
    }

    /// Creates the folder. Fails if it exists, because another user may have created it.
    fn at(path: PathBuf) -> Result<Self, Failure> {
        fs::create_dir(&path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        Ok(DiskFolder(path))
    }

    pub(super) fn store(&self, name: &str) -> Result<String, Failure> {
        let path = self.0.join(name).into_os_string().into_string();
        path.map_err(|_| Failure::new("the path of the store is not UTF-8"))
    }
}

impl Drop for DiskFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Scene<'o> {
    options: &'o BenchOptions,
    orb: Orb,
    folder: DiskFolder,
    most: usize,
}

pub(crate) fn naming(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let is_small = options.requested.count.is_some_and(|count| count < 1_000);
    let most = if is_small { SMALL } else { SIZES[2] };
    let scene = Scene { options, orb: client_orb(2 * CLIENTS)?, folder: DiskFolder::new("naming")?, most };
    report.add_text(
        "naming: omniNames searches a linked list for each component and never syncs its log; its contexts have at most \
         1,000 bindings here, and its changes are compared with relaxed ones\n",
    )?;
    scene.resolving(report, progress)?;
    scene.resolving_beside_changes(report, progress)?;
    scene.changes(report, progress)?;
    scene.largest(report, progress)
}

fn label(peer: &'static str, transport: &'static str, op: &str, config: String) -> FigureLabel {
    FigureLabel { bench: "naming", peer, transport, op: op.to_owned(), config, axis_point: None }
}

fn found<'f>(figures: &'f [Figure], config: &str) -> Option<&'f Figure> {
    figures.iter().find(|figure| figure.label.config == config)
}

fn judged(figure: &Figure, quantity: &str, value: f64, unit: &'static str, bound: f64) -> SingleValue {
    SingleValue { label: figure.label.clone(), quantity: quantity.to_owned(), value, unit, bound: Some(bound) }
}

impl Scene<'_> {
    fn server(
        &self,
        place: &str,
        durability: &str,
        placement: &Placement,
    ) -> Result<(RunningProgram, NamingContextExtRef), Failure> {
        let (server, reference) = start_name_server(place, durability, placement)?;
        Ok((server, NamingContextExtRef::unchecked_narrow(&object(&self.orb, &reference)?)))
    }

    fn omninames(&self, name: &str) -> Result<OmniNames, Failure> {
        if self.options.without_peers {
            return Err(Failure::new("left out by --without-peers"));
        }
        OmniNames::start(&self.folder.0.join(name), &self.orb, &self.options.placement)
    }

    /// Returns the number of octets of a sequence that makes a reply as long as the reply with
    /// `root`.
    fn octets_of_reply(&self, root: &NamingContextExtRef) -> usize {
        // Besides the reference, the text has one octet for the byte order and three for alignment.
        // A sequence has four octets for its length.
        (root.as_object().to_string().len() - "IOR:".len()) / 2 - 8
    }

    /// Starts an echo server in a process of its own, and returns it with calls that echo `octets`
    /// octets.
    fn plain_calls(&self, octets: usize, placement: &Placement) -> Result<(RunningProgram, StubCalls), Failure> {
        let (echo, reference) = start_echo(ServerArchitecture::LeaderFollowers(THREADS), LOOPBACK, placement)?;
        let calls = StubCalls {
            target: target(&self.orb, &reference)?,
            operation: MeasuredOperation::Octets(octets),
            server: echo.pid(),
        };
        Ok((echo, calls))
    }

    fn resolving(&self, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
        let options = self.options;
        progress.show("naming: filling contexts");
        let (mut server, root) = self.server("memory", "synced", &options.placement)?;
        let sizes = [SIZES[0], SIZES[1], self.most];
        for size in sizes {
            server.ask(&format!("fill context{size} {size}"), PATIENCE)?;
        }
        server.ask("fill a/b/c 10", PATIENCE)?;
        let octets = self.octets_of_reply(&root);
        let (_echo, calls) = self.plain_calls(octets, &options.placement)?;
        let plain = format!("a call that returns {octets} octets");
        let mut variants = vec![Variant {
            label: label("Corelane", "tcp", "call", plain.clone()),
            subject: Box::new(calls),
            against: Vec::new(),
        }];
        let config = |size: usize| format!("{size} bindings");
        for size in sizes {
            let subject = Resolves::new(&root, &format!("context{size}"), size, false, server.pid())?;
            let against = if size == sizes[0] { vec![0] } else { vec![1] };
            variants.push(Variant {
                label: label("Corelane", "tcp", "resolve", config(size)),
                subject: Box::new(subject),
                against,
            });
        }
        let subject = Resolves::new(&root, "a/b/c", 10, true, server.pid())?;
        let deep = "4 components".to_owned();
        variants.push(Variant {
            label: label("Corelane", "tcp", "resolve", deep.clone()),
            subject: Box::new(subject),
            against: vec![1],
        });
        let theirs = |size: usize| format!("omniNames, {size} bindings");
        let names = report.or_report_missing("naming", "omniORB", self.omninames("resolve"))?;
        if let Some(names) = &names {
            for size in [SIZES[0], SIZES[1]] {
                let path = format!("context{size}");
                names.fill(&path, size, root.as_object())?;
                let subject = Resolves::new(&names.root, &path, size, false, names.child.id())?;
                variants.push(Variant {
                    label: label("omniORB", "tcp", "resolve", theirs(size)),
                    subject: Box::new(subject),
                    against: vec![1],
                });
            }
        }
        let sockets = Baseline::start(BaselineTransport::Tcp, WaitStrategy::Blocking, options)?;
        let sizes_of_messages = MessageSizes { request: RESOLVE_REQUEST, reply: REPLY_HEADER + octets };
        let bare = "bare sockets, as many octets".to_owned();
        if let Some(exchange) = sockets.variant("naming", MeasuredOperation::Octets(octets), sizes_of_messages)? {
            variants.push(Variant { label: label("floor", "tcp", "resolve", bare.clone()), ..exchange });
        }
        let group = Group { title: "naming: resolve".to_owned(), compare: ComparedQuantity::Median, variants };
        let figures = report.measure(group, &options.run_length, &options.placement, progress)?;
        let Some(base) = found(&figures, &config(sizes[0])) else { return Ok(()) };
        let mut values = Vec::new();
        if let Some(call) = found(&figures, &plain) {
            let ratio = base.summary.p50_us / call.summary.p50_us;
            values.push(judged(base, "median against the call", ratio, "x", goals::MAX_RESOLVE_TO_CALL_RATIO));
        }
        if let Some(theirs) = found(&figures, &theirs(sizes[0])) {
            let ratio = theirs.summary.per_s / base.summary.per_s;
            values.push(judged(
                base,
                "time per call against omniNames",
                ratio,
                "x",
                1.0 / goals::MIN_RESOLVE_TO_OMNINAMES_RATIO,
            ));
            if let Some(figure) = found(&figures, &bare) {
                let ratio = theirs.summary.per_s / figure.summary.per_s;
                values.push(SingleValue {
                    bound: None,
                    ..judged(figure, "time per exchange against omniNames", ratio, "x", 0.0)
                });
            }
        }
        for size in &sizes[1..] {
            let Some(figure) = found(&figures, &config(*size)) else { continue };
            let (p50, p99) = (figure.summary.p50_us / base.summary.p50_us, figure.summary.p99_us / base.summary.p99_us);
            values.push(judged(figure, "median against 10 bindings", p50, "x", goals::MAX_MEDIAN_RATIO));
            values.push(judged(figure, "p99 against 10 bindings", p99, "x", goals::MAX_P99_RATIO));
        }
        if let Some(figure) = found(&figures, &deep) {
            let each = (figure.summary.p50_us - base.summary.p50_us) / 3.0;
            values.push(judged(figure, "median of each further component", each, "us", goals::MAX_COMPONENT_US));
        }
        report.add_values("naming: goals of resolve", &values)
    }

    fn resolving_beside_changes(&self, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
        // On one core, the figures would include the processor time of the changes.
        let placement = Placement { cores: CoreChoice::Any, ..self.options.placement };
        let (mut server, root) = self.server(&self.folder.store("beside.db")?, "synced", &placement)?;
        server.ask("fill context10 10", PATIENCE)?;
        let resolves = || Resolves::new(&root, "context10", 10, false, server.pid());
        let octets = self.octets_of_reply(&root);
        let (_echo, calls) = self.plain_calls(octets, &placement)?;
        let (_other_echo, calls_beside) = self.plain_calls(octets, &placement)?;
        let crowd = Crowd::start(&root)?;
        let (alone, beside) = ("no other client".to_owned(), format!("beside {CLIENTS} clients that bind"));
        let (plain, plain_beside) =
            ("a call of another server".to_owned(), format!("a call of another server, beside {CLIENTS} clients"));
        let variant = |op: &str, config: &str, subject: Box<dyn MeasuredSubject + Send>, against| Variant {
            label: label("Corelane", "tcp", op, config.to_owned()),
            subject,
            against,
        };
        let variants = vec![
            variant("resolve", &alone, Box::new(resolves()?), vec![]),
            variant("resolve", &beside, Box::new(Beside { calls: resolves()?, crowd: Arc::clone(&crowd) }), vec![0]),
            variant("call", &plain, Box::new(calls), vec![]),
            variant("call", &plain_beside, Box::new(Beside { calls: calls_beside, crowd }), vec![2]),
        ];
        let title = "naming: resolve beside clients that bind; not pinned".to_owned();
        let group = Group { title, compare: ComparedQuantity::Median, variants };
        let figures = report.measure(group, &self.options.run_length, &placement, progress)?;
        let p99 = |config: &str| found(&figures, config).map(|figure| (figure, figure.summary.p99_us));
        let [resolved, resolved_beside, called, called_beside] =
            [&alone, &beside, &plain, &plain_beside].map(|config| p99(config));
        let mut values = Vec::new();
        if let (Some((_, alone)), Some((figure, beside))) = (resolved, resolved_beside) {
            let bound = goals::MAX_P99_RATIO_BESIDE_CHANGES;
            values.push(judged(figure, "p99 against no other client", beside / alone, "x", bound));
        }
        let told =
            |figure, quantity: &str, value| SingleValue { bound: None, ..judged(figure, quantity, value, "x", 0.0) };
        if let (Some((_, alone)), Some((figure, beside))) = (called, called_beside) {
            values.push(told(figure, "p99 against no other client", beside / alone));
        }
        // Both calls wait for a core equally often, and only `resolve` can wait for the name
        // server. So the ratio shows the waits for the name server.
        if let (Some((figure, resolved)), Some((_, called))) = (resolved_beside, called_beside) {
            values.push(told(figure, "p99 against a call of another server", resolved / called));
        }
        report.add_values("naming: goal of resolve beside clients that bind", &values)
    }

    fn changes(&self, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
        let options = self.options;
        let count = options.run_length.count.min(1_000);
        let run_length = RunLength { warm_up: options.run_length.warm_up.min(50), count, ..options.run_length };
        let (server, root) = self.server(&self.folder.store("synced.db")?, "synced", &options.placement)?;
        let group_of = |root: &NamingContextExtRef, count: usize, server: u32| {
            ClientGroup::new((0..count).map(|client| Changes::new(root, 100 * count + client)).collect(), server)
        };
        let (one, many) = ("durable, 1 client".to_owned(), format!("durable, {CLIENTS} clients"));
        let variant = |peer, transport, config: &str, subject: Box<dyn MeasuredSubject + Send>, against| Variant {
            label: label(peer, transport, "bind", config.to_owned()),
            subject,
            against,
        };
        let variants = vec![
            variant("floor", "none", "sync of one page", Box::new(Syncs::new(&self.folder.0)?), Vec::new()),
            variant("Corelane", "tcp", &one, Box::new(group_of(&root, 1, server.pid())), vec![0]),
            variant("Corelane", "tcp", &many, Box::new(group_of(&root, CLIENTS, server.pid())), vec![0]),
        ];
        let title = format!("naming: bind and unbind in turn, store in {}", self.folder.0.display());
        let group = Group {
            title: "naming: durable bind and unbind in turn".to_owned(),
            compare: ComparedQuantity::Rate,
            variants,
        };
        report.add_text(&format!("\n{title}\n"))?;
        let figures = report.measure(group, &run_length, &options.placement, progress)?;
        let mut values = Vec::new();
        let sync = found(&figures, "sync of one page").map(|figure| figure.summary.per_s);
        for (config, rate) in
            [(&one, goals::MIN_DURABLE_TO_SYNC_RATIO_1_CLIENT), (&many, goals::MIN_DURABLE_TO_SYNC_RATIO_16_CLIENTS)]
        {
            let (Some(figure), Some(sync)) = (found(&figures, config), sync) else { continue };
            let ratio = sync / figure.summary.per_s;
            values.push(judged(figure, "time per bind against a sync", ratio, "x", 1.0 / rate));
        }
        drop((server, root));
        self.relaxed(&run_length, report, progress, &mut values)?;
        report.add_values("naming: goals of bind", &values)
    }

    fn relaxed(
        &self,
        run_length: &RunLength,
        report: &mut Report<'_>,
        progress: &mut Progress,
        values: &mut Vec<SingleValue>,
    ) -> Result<(), Failure> {
        let options = self.options;
        let (server, root) = self.server(&self.folder.store("relaxed.db")?, "relaxed", &options.placement)?;
        let subject =
            |root: &NamingContextExtRef, server| Box::new(ClientGroup::new(vec![Changes::new(root, 0)], server));
        let mut variants = vec![Variant {
            label: label("Corelane", "tcp", "bind", "relaxed, 1 client".to_owned()),
            subject: subject(&root, server.pid()),
            against: Vec::new(),
        }];
        let names = report.or_report_missing("naming", "omniORB", self.omninames("relaxed"))?;
        if let Some(names) = &names {
            variants.insert(
                0,
                Variant {
                    label: label("omniORB", "tcp", "bind", "omniNames, 1 client".to_owned()),
                    subject: subject(&names.root, names.child.id()),
                    against: Vec::new(),
                },
            );
            variants[1].against.push(0);
        }
        let title = "naming: relaxed bind and unbind in turn".to_owned();
        let figures = report.measure(
            Group { title, compare: ComparedQuantity::Rate, variants },
            run_length,
            &options.placement,
            progress,
        )?;
        let [ours, theirs] = ["relaxed, 1 client", "omniNames, 1 client"].map(|config| found(&figures, config));
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let ratio = theirs.summary.per_s / ours.summary.per_s;
            values.push(judged(
                ours,
                "time per bind against omniNames",
                ratio,
                "x",
                1.0 / goals::MIN_RELAXED_TO_OMNINAMES_RATIO,
            ));
        }
        Ok(())
    }

    fn largest(&self, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
        let (path, placement) = (self.folder.store("largest.db")?, &self.options.placement);
        progress.show("naming: filling the largest context");
        let (mut server, _) = self.server(&path, "synced", placement)?;
        let empty = resident_memory_kib(server.pid())[0];
        server.ask(&format!("fill largest {}", self.most), PATIENCE)?;
        drop(server);
        let label = label("Corelane", "tcp", "start", format!("{} bindings", self.most));
        let value = |quantity: &str, value, unit, bound| SingleValue {
            label: label.clone(),
            quantity: quantity.to_owned(),
            value,
            unit,
            bound,
        };
        let mut values = Vec::new();
        for (quantity, is_killed) in [("start after an orderly end", false), ("start after kill -9", true)] {
            let mut times = Vec::new();
            for _ in 0..3 {
                progress.show(&format!("naming: {quantity}"));
                let (mut server, root) = self.server(&path, "synced", placement)?;
                // A change makes the file that SIGKILL leaves differ from the file of an orderly
                // end.
                Changes::new(&root, 0).change()?;
                root.unbind(&[component("client0")]).map_err(|error| Failure::new(format!("{error:?}")))?;
                if is_killed {
                    server.kill();
                }
                drop(server);
                let began = Instant::now();
                let (server, root) = self.server(&path, "synced", placement)?;
                root.resolve(&[component("largest"), numbered(0)])
                    .map_err(|error| Failure::new(format!("{error:?}")))?;
                times.push(began.elapsed().as_secs_f64());
                drop(server);
            }
            times.sort_by(f64::total_cmp);
            values.push(value(&format!("{quantity}, to the first answer"), times[1], "s", Some(goals::MAX_START_S)));
        }
        let (server, root) = self.server(&path, "synced", placement)?;
        let filled = resident_memory_kib(server.pid())[0];
        let each = (filled - empty) * 1_024.0 / self.most as f64;
        values.push(value("resident memory of a binding", each, "octets", None));
        progress.show("naming: listing the largest context");
        let (count, seconds, grown) = self.list(&root, server.pid(), filled)?;
        if count != self.most {
            return Err(Failure::new(format!("the list has {count} of {} bindings", self.most)));
        }
        values.push(value("list by iterator", count as f64 / seconds, "bindings/s", None));
        values.push(value("most memory that the list takes", grown * 1_024.0, "octets", Some(goals::MAX_LIST_OCTETS)));
        report.add_values("naming: the largest context", &values)
    }

    /// Lists a context. Returns the number of bindings, the seconds spent in calls, and the maximum
    /// growth of the server's memory in KiB.
    fn list(&self, root: &NamingContextExtRef, server: u32, before: f64) -> Result<(usize, f64, f64), Failure> {
        let found = root.resolve(&[component("largest")]).map_err(|error| Failure::new(format!("{error:?}")))?;
        let found = found.ok_or_else(|| Failure::new("the context is nil"))?;
        let context = NamingContextExtRef::unchecked_narrow(&found);
        let began = Instant::now();
        let (bindings, iterator) = context.list(BATCH)?;
        let mut time = began.elapsed();
        let (mut count, mut grown) = (bindings.len(), 0.0_f64);
        let Some(iterator) = iterator else { return Ok((count, time.as_secs_f64(), grown)) };
        loop {
            let began = Instant::now();
            let (has_more, bindings) = iterator.next_n(BATCH)?;
            time += began.elapsed();
            count += bindings.len();
            grown = grown.max(resident_memory_kib(server)[0] - before);
            if !has_more {
                break;
            }
        }
        iterator.destroy()?;
        Ok((count, time.as_secs_f64(), grown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_exists_is_not_used() {
        let path = std::env::temp_dir().join(format!("corelane-bench-folder-{}", std::process::id()));
        let made = DiskFolder::at(path.clone()).unwrap();
        assert!(DiskFolder::at(path.clone()).is_err() && path.is_dir());
        drop(made);
        assert!(!path.exists());
    }

    #[test]
    fn names_cover_the_whole_context() {
        for count in [10, 1_000, 5_000] {
            let names = names("a/b", count);
            let mut last: Vec<&str> = names.iter().map(|name| name[2].id.as_str()).collect();
            last.sort_unstable();
            last.dedup();
            assert_eq!((names.len(), last.len(), names[0].len()), (NAMES, count.min(NAMES), 3));
            let bound: Vec<String> = (0..count).map(|number| numbered(number).id).collect();
            assert!(last.iter().all(|id| bound.iter().any(|bound| bound == id)));
        }
    }

    #[test]
    fn server_is_filled_by_valid_lines_only() {
        let orb = Orb::builder().listen(LOOPBACK).build().unwrap();
        let naming = NamingConfig::new().serve(&orb).unwrap();
        fill(&naming, "fill a/b 25").unwrap();
        fill(&naming, "fill a 3").unwrap();
        let root = naming.reference();
        for name in names("a/b", 25) {
            assert!(root.resolve(&name).unwrap().is_some());
        }
        for order in ["", "fill a", "fill a x", "empty a 3"] {
            assert!(fill(&naming, order).is_err(), "{order}");
        }
        assert!(serve("memory", "forgetful").is_err());
    }
}
