//! Events of an ORB, the program's callback for them, and their counters.

use std::collections::HashMap;
use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::net::{IpAddr, Ipv6Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelane_net::{Endpoint, Peer};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::process;
use corelane_wire::giop::MessageKind;

use crate::exception::SystemException;
use crate::fault::PeerFault;
use crate::text;

/// An event of an ORB. The program's callback runs on the thread in which the event happened, so it
/// must be quick.
///
/// Control characters in operation names, which peers sent, are escaped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client or server broke the protocol, and its connection is closed.
    ProtocolFault {
        /// The peer of the connection.
        peer: Peer,
        /// The violation of the protocol.
        fault: PeerFault,
    },
    /// An incomplete message did not continue within the pool's `read_stall_timeout`, and its
    /// connection is closed.
    ReadStalled {
        /// The peer of the connection.
        peer: Peer,
    },
    /// A peer read none of its replies for the pool's `write_timeout`, so its connection is closed.
    /// Also reported if a peer had not read all of its replies when the ORB or the pool ended.
    WriteTimedOut {
        /// The peer of the connection.
        peer: Peer,
    },
    /// A connection was closed because the connections of its lane together held more than the
    /// pool's `max_buffered_bytes`.
    MemoryBudgetExceeded {
        /// The peer of the connection.
        peer: Peer,
        /// Bytes that the connection held.
        bytes: usize,
    },
    /// An idle connection was closed to make room for a new one, or because no byte of a first
    /// message arrived within the pool's `first_request_timeout`.
    IdleConnectionClosed {
        /// The peer of the connection.
        peer: Peer,
        /// Time since the last complete message, rounded down to seconds. If none has arrived, the
        /// exact time since the connection was accepted.
        idle: Duration,
        /// True if the connection was closed to make room for a new connection.
        is_evicted: bool,
    },
    /// A draining connection was closed early, to make room for a new connection, because the pool
    /// was full or the process had no descriptors left.
    DrainingConnectionEvicted {
        /// The peer of the connection.
        peer: Peer,
        /// Bytes that the connection held.
        bytes: usize,
        /// Time for which the connection had been draining.
        draining: Duration,
    },
    /// A new connection was closed at once, because the pool has its maximum number of connections
    /// or is closing.
    ConnectionRefused {
        /// The peer of the connection.
        peer: Peer,
        /// The pool's maximum number of connections.
        max_connections: usize,
    },
    /// A connection could not be accepted.
    AcceptFailed {
        /// The endpoint that listens.
        listener: Endpoint,
        /// The reason that the kernel gives.
        error: String,
    },
    /// A servant, servant manager or adapter activator panicked in a call or in its `Drop`. If a
    /// servant panicked in a request, the client got UNKNOWN, COMPLETED_MAYBE.
    ServantPanicked {
        /// The servant's repository id, or a name such as `ServantActivator`.
        interface: &'static str,
        /// The operation or method; `drop` for a panic in `Drop`.
        operation: String,
        /// The panic's message.
        message: String,
    },
    /// The kernel refused the priority or the cores of a thread of the ORB. A thread of a pool then
    /// has neither, and runs in the ordinary class. A thread that reads replies has the priority of
    /// the thread that started it.
    ThreadSchedulingRefused {
        /// The thread's name.
        thread: String,
        /// The reason that the kernel gives.
        error: String,
    },
    /// A reference to an object of this ORB was converted to text although the ORB does not listen,
    /// so no other process can call the object. Reported once for each ORB.
    ReferenceWithoutAddress {
        /// The repository id of the object's interface.
        type_id: String,
    },
    /// [`Orb::run`](crate::Orb::run) began although a POA manager was never activated and its POAs
    /// have servants. Requests for the objects of these POAs wait. Printed on standard error if the
    /// ORB has no callback.
    PoaManagerNeverActivated {
        /// The manager's id.
        manager: String,
    },
    /// A POA manager has held requests for more than a second. Reported at most once in ten seconds
    /// for each manager.
    PoaManagerHoldsRequests {
        /// The manager's id.
        manager: String,
        /// Number of requests that wait.
        requests: usize,
        /// Time for which the oldest of these requests has waited.
        oldest: Duration,
        /// True if the manager has been in a state other than holding before.
        was_active: bool,
    },
    /// Other machines can reach a lane, directly or through a pool that passes requests on to
    /// lanes.
    LaneReachableByOtherMachines {
        /// The name of the pool. In a pool with lanes the lane's priority follows it, as in thread
        /// names: `rt/p1000`.
        pool: String,
        /// The endpoint of the lane that other machines can reach.
        endpoint: Endpoint,
        /// The highest priority that peers may ask for at this endpoint. `None` if no ceiling is
        /// set. Peers on other machines then get at most the priority of a request without a
        /// priority.
        ceiling: Option<i16>,
    },
    /// A request was refused. For example:
    /// - Its priority is above the endpoint's ceiling (NO_PERMISSION).
    /// - No lane or band has its priority (TRANSIENT, INV_POLICY).
    /// - It needs more memory than
    ///   [`max_buffered_bytes`](field@crate::ConnectionLimits::max_buffered_bytes) leaves
    ///   (IMP_LIMIT).
    /// - Its arguments cannot be decoded (MARSHAL or another exception). The exception in this
    ///   event then has the path of the member and its position, which are not sent to the client.
    RequestRefused {
        /// The client that sent the request.
        peer: Peer,
        /// The name of the operation.
        operation: String,
        /// The exception that the client gets.
        exception: SystemException,
    },
    /// The deadline of a request passed before its upcall began, so the client no longer waits for
    /// the reply.
    DeadlinePassed {
        /// The name of the operation.
        operation: String,
        /// Time for which the request had waited in this process.
        waited: Duration,
        /// Time that remained until the deadline when the client sent the request.
        remaining: Duration,
    },
    /// An operation used more processor time than it declares (`@wcet`).
    ExecutionTimeOverrun {
        /// The name of the operation.
        operation: &'static str,
        /// The declared maximum processor time.
        declared: Duration,
        /// The processor time that the operation used.
        used: Duration,
    },
    /// Buffered oneways ([`SyncScope::None`](crate::SyncScope::None)) could not be sent.
    OnewaysLost {
        /// The server of the connection.
        peer: Peer,
        /// Number of buffered bytes that were not sent.
        bytes: usize,
    },
    /// The kernel refused to set the code point of a priority on the packets of a connection.
    DscpRefused {
        /// The peer of the connection.
        peer: Peer,
        /// The code point (DSCP).
        dscp: u8,
        /// The reason that the kernel gives.
        error: String,
    },
    /// The kernel refused a core or a priority to a thread of a core pool, the ORB's threads are in
    /// the ordinary class, or the pool's threads have no affinity. The pool serves its tasks
    /// without guaranteed response times. Reported once for each pool, and again if the refused
    /// core is lost and the kernel then refuses something else.
    #[cfg(feature = "core-pool")]
    TaskTimingNotGuaranteed {
        /// The pool's name.
        pool: String,
        /// The refusal of the kernel, or another reason.
        error: String,
    },
    /// The kernel refused a core or a priority to a task of a core pool, and had permitted such a
    /// request to the pool before. The task has left the pool's set, and its requests are best
    /// effort. The other tasks keep their cores and priorities. The kernel also refuses a core that
    /// is lost: an admission object then reports [`CoreLost`](Self::CoreLost), and the task may get
    /// another core.
    #[cfg(feature = "core-pool")]
    TaskRefused {
        /// The pool's name.
        pool: String,
        /// The number of the task, as the pool's [`TaskBinder`](crate::rt::TaskBinder) returns it.
        task: u64,
        /// The request and the error of the kernel.
        error: String,
    },
    /// A core pool had no free thread for a request of a task. A [best-effort
    /// thread](field@crate::rt::CorePoolConfig::best_effort_threads) ran the request, without the
    /// task's core and priority, or the request's client got TRANSIENT
    /// ([`CorePoolConfig::refuses_without_thread`](field@crate::rt::CorePoolConfig::refuses_without_thread)).
    #[cfg(feature = "core-pool")]
    TaskNotBound {
        /// The client that sent the request.
        peer: Peer,
        /// The number of the task, as the pool's [`TaskBinder`](crate::rt::TaskBinder) returns it.
        task: u64,
    },
    /// A request of a task used more processor time than the budget of the task
    /// ([`TaskRules::budget`](field@crate::rt::TaskRules::budget)). Reported when the request has
    /// ended.
    #[cfg(feature = "core-pool")]
    JobOverBudget {
        /// The number of the task, as the pool's [`TaskBinder`](crate::rt::TaskBinder) returns it.
        task: u64,
        /// The budget of the task.
        budget: Duration,
        /// The processor time that the request used.
        used: Duration,
        /// The fate of the request after its budget was used up.
        action: crate::rt::JobOverrunAction,
    },
    /// A request was refused because it arrived above the rate of its task
    /// ([`TaskRules::min_interarrival`](field@crate::rt::TaskRules::min_interarrival)), and could
    /// not wait for its time.
    #[cfg(feature = "core-pool")]
    TaskRateExceeded {
        /// The client that sent the request.
        peer: Peer,
        /// The number of the task, as the pool's [`TaskBinder`](crate::rt::TaskBinder) returns it.
        task: u64,
        /// True for a oneway, which was dropped. Otherwise the client got TRANSIENT.
        is_oneway: bool,
    },
    /// The kernel lets no thread of the process run on a core any more, because a cpuset lost the
    /// core or it went offline.
    #[cfg(feature = "core-pool")]
    CoreLost {
        /// The name of the core pool.
        pool: String,
        /// The core, as the kernel counts cores.
        core: usize,
        /// Number of the core's tasks that other cores run now.
        moved: usize,
        /// Number of the core's tasks for which no other core has room. Their requests are best
        /// effort.
        demoted: usize,
    },
    /// Threads of the process can run on a lost core again.
    #[cfg(feature = "core-pool")]
    CoreReturned {
        /// The name of the core pool.
        pool: String,
        /// The core, as the kernel counts cores.
        core: usize,
        /// Number of tasks that the core runs again.
        restored: usize,
    },
    /// A thread of the ORB ended early, or a job or the overrun function of a
    /// [`PeriodicTask`](crate::rt::PeriodicTask) panicked.
    ThreadFailed {
        /// The thread's name and the reason.
        message: String,
    },
}

fn never_activated(manager: &str) -> String {
    let parts = [
        "the POA manager ",
        manager,
        " has never been activated, so requests for its objects wait: call `activate` on it",
    ];
    parts.concat()
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::ProtocolFault { peer, fault } => write!(f, "{peer} broke the protocol: {fault}"),
            Event::ReadStalled { peer } => write!(f, "{peer} stopped in the middle of a message"),
            Event::WriteTimedOut { peer } => write!(f, "{peer} has not read its replies for too long"),
            Event::MemoryBudgetExceeded { peer, bytes: octets } => {
                write!(f, "{peer} was closed: its lane held too many octets, and {octets} of them were its own")
            }
            Event::IdleConnectionClosed { peer, idle: silent, is_evicted: true } => {
                write!(f, "{peer} was closed for a new connection: it had sent nothing for {silent:?}")
            }
            Event::IdleConnectionClosed { peer, idle: silent, is_evicted: false } => {
                write!(f, "{peer} sent no request within {silent:?}")
            }
            Event::DrainingConnectionEvicted { peer, bytes: octets, draining: after } => {
                write!(
                    f,
                    "{peer} was closed for a new connection: it had been draining for {after:?} and held {octets} octets"
                )
            }
            Event::ConnectionRefused { peer, max_connections: most } => {
                write!(f, "{peer} was refused: {most} connections are open")
            }
            Event::AcceptFailed { listener, error } => {
                write!(f, "a connection at {listener} could not be accepted: {}", text::message(error))
            }
            Event::ServantPanicked { interface, operation, message } => {
                let (operation, message) = (text::message(operation), text::message(message));
                write!(f, "the servant of {interface} panicked in {operation}: {message}")
            }
            Event::ThreadSchedulingRefused { thread, error } => {
                write!(f, "the thread {thread} runs without its priority or cores: {}", text::message(error))
            }
            Event::ReferenceWithoutAddress { type_id } => {
                write!(
                    f,
                    "a reference to an object of {type_id} has no address, because its ORB does not listen: call `OrbBuilder::listen`"
                )
            }
            Event::PoaManagerNeverActivated { manager } => f.write_str(&never_activated(manager)),
            Event::PoaManagerHoldsRequests { manager, requests, oldest: held, was_active } => {
                let never = if *was_active { "" } else { ", which has never been activated" };
                write!(
                    f,
                    "{requests} requests wait for the POA manager {manager}{never}, the first for {held:?}: call `activate` on it"
                )
            }
            Event::LaneReachableByOtherMachines { pool, endpoint, ceiling: Some(ceiling) } => {
                write!(
                    f,
                    "other machines can reach {pool} at {endpoint}: their clients may ask for priorities up to {ceiling}"
                )
            }
            Event::LaneReachableByOtherMachines { pool, endpoint, ceiling: None } => {
                write!(
                    f,
                    "other machines can reach {pool} at {endpoint}, which has no ceiling: their clients may not ask for a priority"
                )
            }
            Event::RequestRefused { peer, operation, exception } => {
                write!(f, "{peer} was refused {}: {exception}", text::message(operation))
            }
            Event::DeadlinePassed { operation, waited, remaining } => {
                let operation = text::message(operation);
                write!(
                    f,
                    "{operation} missed its deadline: it had {remaining:?} left when it was sent, and waited {waited:?}"
                )
            }
            Event::ExecutionTimeOverrun { operation, declared, used } => {
                write!(f, "{operation} used {used:?} of processor time, and declares {declared:?}")
            }
            Event::OnewaysLost { peer, bytes: octets } => {
                write!(f, "{octets} octets of oneways did not reach {peer}: the connection is broken")
            }
            Event::DscpRefused { peer, dscp, error } => {
                write!(f, "packets to {peer} do not carry code point {dscp}: {}", text::message(error))
            }
            #[cfg(feature = "core-pool")]
            Event::TaskTimingNotGuaranteed { pool, error } => {
                write!(f, "the promises of the core pool {pool} are advisory: {}", text::message(error))
            }
            #[cfg(feature = "core-pool")]
            Event::TaskRefused { pool, task, error } => {
                let why = text::message(error);
                write!(f, "the core pool {pool} has withdrawn the promise of task {task}: the kernel refused {why}")
            }
            #[cfg(feature = "core-pool")]
            Event::TaskNotBound { peer, task } => {
                write!(f, "the core pool has no free thread for a request of {peer} to task {task}")
            }
            #[cfg(feature = "core-pool")]
            Event::JobOverBudget { task, budget, used, action } => {
                write!(
                    f,
                    "a request of task {task} used {used:?} of processor time, and its budget is {budget:?}: {action:?}"
                )
            }
            #[cfg(feature = "core-pool")]
            Event::TaskRateExceeded { peer, task, is_oneway } => {
                let what = if *is_oneway { "a oneway" } else { "a call" };
                write!(f, "{what} of {peer} was refused: task {task} has requests above its rate")
            }
            #[cfg(feature = "core-pool")]
            Event::CoreLost { pool, core, moved, demoted } => {
                write!(f, "the core pool {pool} has lost core {core}: {moved} tasks moved, {demoted} are best effort")
            }
            #[cfg(feature = "core-pool")]
            Event::CoreReturned { pool, core, restored } => {
                write!(f, "the core pool {pool} has core {core} again: {restored} tasks are restored")
            }
            Event::ThreadFailed { message } => write!(f, "a thread ended: {}", text::message(message)),
        }
    }
}

impl Event {
    fn peer(&self) -> Option<&Peer> {
        match self {
            Event::ProtocolFault { peer, .. }
            | Event::ReadStalled { peer }
            | Event::WriteTimedOut { peer }
            | Event::MemoryBudgetExceeded { peer, .. }
            | Event::IdleConnectionClosed { peer, .. }
            | Event::DrainingConnectionEvicted { peer, .. }
            | Event::ConnectionRefused { peer, .. }
            | Event::RequestRefused { peer, .. }
            | Event::OnewaysLost { peer, .. }
            | Event::DscpRefused { peer, .. } => Some(peer),
            #[cfg(feature = "core-pool")]
            Event::TaskNotBound { peer, .. } | Event::TaskRateExceeded { peer, .. } => Some(peer),
            Event::AcceptFailed { .. }
            | Event::ReferenceWithoutAddress { .. }
            | Event::PoaManagerNeverActivated { .. }
            | Event::PoaManagerHoldsRequests { .. }
            | Event::LaneReachableByOtherMachines { .. }
            | Event::ServantPanicked { .. }
            | Event::ThreadSchedulingRefused { .. }
            | Event::DeadlinePassed { .. }
            | Event::ExecutionTimeOverrun { .. }
            | Event::ThreadFailed { .. } => None,
            #[cfg(feature = "core-pool")]
            Event::TaskTimingNotGuaranteed { .. }
            | Event::TaskRefused { .. }
            | Event::JobOverBudget { .. }
            | Event::CoreLost { .. }
            | Event::CoreReturned { .. } => None,
        }
    }
}

/// Counts of events since the ORB was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCounts {
    /// Connections that were accepted.
    pub connections_opened: u64,
    /// Accepted connections that have ended.
    pub connections_closed: u64,
    /// Connections closed because the peer broke the protocol ([`Event::ProtocolFault`]).
    pub protocol_faults: u64,
    /// Connections closed because a message did not continue ([`Event::ReadStalled`]).
    pub reads_stalled: u64,
    /// Connections closed because replies were not read ([`Event::WriteTimedOut`]).
    pub writes_timed_out: u64,
    /// Connections closed because the connections of their lane held too much memory.
    pub memory_budget_exceeded: u64,
    /// Connections closed because they were idle ([`Event::IdleConnectionClosed`]).
    pub idle_connections_closed: u64,
    /// Draining connections closed early to make room ([`Event::DrainingConnectionEvicted`]).
    pub draining_connections_evicted: u64,
    /// Connections that were refused ([`Event::ConnectionRefused`]).
    pub connections_refused: u64,
    /// Panics of servants, servant managers and adapter activators ([`Event::ServantPanicked`]).
    pub servants_panicked: u64,
    /// Requests that arrived at one lane and were handed over to another lane.
    pub requests_handed_over: u64,
    /// Refusals of a thread's priority or cores by the kernel ([`Event::ThreadSchedulingRefused`]).
    pub thread_schedulings_refused: u64,
    /// Requests that were refused ([`Event::RequestRefused`]).
    pub requests_refused: u64,
    /// Requests whose deadline passed before their upcall began.
    pub deadlines_passed: u64,
    /// Runs of operations that used more processor time than the operation declares.
    pub execution_time_overruns: u64,
}

/// Limits the lines per second about events: for each peer, for all peers together, and for each
/// kind of event that is not about a peer.
pub(crate) struct Log(PiMutex<Lines>);

struct Lines {
    began: Monotonic,
    printed: u32,
    sources: HashMap<Source, Count>,
    left_out: u64,
    most: Option<(Source, u64)>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    printed: u32,
    left_out: u64,
}

/// The peer of an event or, if the event is not about a peer, its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    Address(IpAddr),
    /// Peers with the same first 64 bits of their IPv6 addresses. One host may have all these
    /// addresses.
    Network(Ipv6Addr),
    User(u32),
    Unknown,
    Own(Discriminant<Event>),
    Others,
}

impl Source {
    fn of(event: &Event) -> Self {
        match event.peer() {
            Some(Peer::Ip(address)) => match address.ip().to_canonical() {
                IpAddr::V6(address) if !address.is_loopback() => {
                    Source::Network(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
                }
                address => Source::Address(address),
            },
            Some(Peer::Process { uid, .. }) => Source::User(*uid),
            Some(_) => Source::Unknown,
            None => Source::Own(discriminant(event)),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Address(address) => write!(f, "{address}"),
            Source::Network(network) => write!(f, "{network}/64"),
            Source::User(user) => write!(f, "processes of user {user}"),
            Source::Unknown => f.write_str("peers without a name"),
            Source::Own(_) => f.write_str("this process"),
            Source::Others => f.write_str("several peers"),
        }
    }
}

impl Lines {
    fn begin(&mut self, now: Monotonic) {
        for (source, count) in self.sources.drain().filter(|(_, count)| count.left_out > 0) {
            self.left_out += count.left_out;
            if self.most.is_none_or(|(_, most)| most < count.left_out) {
                self.most = Some((source, count.left_out));
            }
        }
        (self.began, self.printed) = (now, 0);
    }
}

impl Log {
    const MAX_LINES_PER_SOURCE: u32 = 10;
    const MAX_LINES: u32 = 100;
    const MAX_SOURCES: usize = 64;

    pub(crate) fn new() -> Self {
        let (began, sources) = (Monotonic::now(), HashMap::new());
        let lines = Lines { began, printed: 0, sources, left_out: 0, most: None };
        Log(PiMutex::new("log of events", LockScope::Orb, lines))
    }

    pub(crate) fn line(&self, event: &Event, now: Monotonic) -> Option<String> {
        let mut lines = self.0.lock();
        let lines = &mut *lines;
        if now.since(lines.began) >= Duration::from_secs(1) {
            lines.begin(now);
        }
        let mut source = Source::of(event);
        let is_peer = !matches!(source, Source::Own(_));
        if is_peer && lines.sources.len() >= Self::MAX_SOURCES && !lines.sources.contains_key(&source) {
            source = Source::Others;
        }
        let count = lines.sources.entry(source).or_default();
        if count.printed >= Self::MAX_LINES_PER_SOURCE || (is_peer && lines.printed >= Self::MAX_LINES) {
            count.left_out += 1;
            return None;
        }
        count.printed += 1;
        lines.printed += u32::from(is_peer);
        let left_out = std::mem::take(&mut lines.left_out);
        match (left_out, lines.most.take()) {
            (0, _) => Some(format!("corelane: {event}")),
            (_, None) => Some(format!("corelane: {event} ({left_out} others were not printed)")),
            (_, Some((source, most))) => {
                Some(format!("corelane: {event} ({left_out} others were not printed, {most} of them about {source})"))
            }
        }
    }

    #[cold]
    pub(crate) fn note_lost(&self) {
        self.0.lock().left_out += 1;
    }
}

pub(crate) type Callback = Box<dyn Fn(&Event) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Events {
    callback: Option<Callback>,
    opened: AtomicU64,
    closed: AtomicU64,
    faults: AtomicU64,
    stalled: AtomicU64,
    unread: AtomicU64,
    held_too_much: AtomicU64,
    silent_closed: AtomicU64,
    ends_cut: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
    requests_handed_over: AtomicU64,
    thread_schedulings_refused: AtomicU64,
    requests_refused: AtomicU64,
    deadlines_passed: AtomicU64,
    execution_time_overruns: AtomicU64,
}

impl Events {
    pub(crate) fn new(callback: Option<Callback>) -> Self {
        Events { callback, ..Events::default() }
    }

    pub(crate) fn connection_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn request_handed_over(&self) {
        self.requests_handed_over.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn replies_unread(&self, peers: impl IntoIterator<Item = Peer>) {
        peers.into_iter().for_each(|peer| self.report(&Event::WriteTimedOut { peer }));
    }

    /// Reports a protocol fault of a server. CloseConnection and MessageError are not faults of a
    /// server.
    #[cold]
    pub(crate) fn fault_of_server(&self, peer: &Peer, fault: PeerFault) {
        if !matches!(fault, PeerFault::UnexpectedMessage(MessageKind::CloseConnection | MessageKind::MessageError)) {
            self.report(&Event::ProtocolFault { peer: peer.clone(), fault });
        }
    }

    #[cold]
    pub(crate) fn report(&self, event: &Event) {
        let counter = match event {
            Event::ProtocolFault { .. } => Some(&self.faults),
            Event::ReadStalled { .. } => Some(&self.stalled),
            Event::WriteTimedOut { .. } => Some(&self.unread),
            Event::MemoryBudgetExceeded { .. } => Some(&self.held_too_much),
            Event::IdleConnectionClosed { .. } => Some(&self.silent_closed),
            Event::DrainingConnectionEvicted { .. } => Some(&self.ends_cut),
            Event::ConnectionRefused { .. } => Some(&self.refused),
            Event::ServantPanicked { .. } => Some(&self.panics),
            Event::ThreadSchedulingRefused { .. } => Some(&self.thread_schedulings_refused),
            Event::RequestRefused { .. } => Some(&self.requests_refused),
            Event::DeadlinePassed { .. } => Some(&self.deadlines_passed),
            Event::ExecutionTimeOverrun { .. } => Some(&self.execution_time_overruns),
            Event::AcceptFailed { .. }
            | Event::DscpRefused { .. }
            | Event::PoaManagerNeverActivated { .. }
            | Event::ReferenceWithoutAddress { .. }
            | Event::OnewaysLost { .. }
            | Event::PoaManagerHoldsRequests { .. }
            | Event::LaneReachableByOtherMachines { .. }
            | Event::ThreadFailed { .. } => None,
            #[cfg(feature = "core-pool")]
            Event::TaskTimingNotGuaranteed { .. }
            | Event::TaskRefused { .. }
            | Event::TaskNotBound { .. }
            | Event::JobOverBudget { .. }
            | Event::TaskRateExceeded { .. }
            | Event::CoreLost { .. }
            | Event::CoreReturned { .. } => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(callback) = &self.callback {
            let _ = catch_unwind(AssertUnwindSafe(|| callback(event)));
        }
    }

    /// Reports that the manager was never activated. Without a callback, also prints a line on
    /// standard error, because the error is in the program.
    #[cold]
    pub(crate) fn never_activated(&self, manager: &str) {
        if self.callback.is_none() {
            // The code of `Display` is not used here, so that the linker can drop it from programs
            // without events.
            process::try_print_error(&["corelane: ", &never_activated(manager)].concat());
        }
        self.report(&Event::PoaManagerNeverActivated { manager: manager.to_owned() });
    }

    pub(crate) fn counts(&self) -> EventCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EventCounts {
            connections_opened: read(&self.opened),
            connections_closed: read(&self.closed),
            protocol_faults: read(&self.faults),
            reads_stalled: read(&self.stalled),
            writes_timed_out: read(&self.unread),
            memory_budget_exceeded: read(&self.held_too_much),
            idle_connections_closed: read(&self.silent_closed),
            draining_connections_evicted: read(&self.ends_cut),
            connections_refused: read(&self.refused),
            servants_panicked: read(&self.panics),
            requests_handed_over: read(&self.requests_handed_over),
            thread_schedulings_refused: read(&self.thread_schedulings_refused),
            requests_refused: read(&self.requests_refused),
            deadlines_passed: read(&self.deadlines_passed),
            execution_time_overruns: read(&self.execution_time_overruns),
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_of_events_prints_ten_lines_per_second_and_counts_omitted_lines() {
        let (log, event) = (Log::new(), Event::ThreadFailed { message: "pool/l0: gone".into() });
        let now = Monotonic::now();
        let lines: Vec<String> = (0..500).filter_map(|_| log.line(&event, now)).collect();
        assert_eq!(lines.len(), 10);
        assert!(lines[0].starts_with("corelane: ") && lines[0].contains("pool/l0"), "{}", lines[0]);
        let later = log.line(&event, now + Duration::from_secs(2)).unwrap();
        assert!(later.ends_with("(490 others were not printed, 490 of them about this process)"), "{later}");
    }

    fn stalled(address: [u8; 4], port: u16) -> Event {
        Event::ReadStalled { peer: Peer::Ip((address, port).into()) }
    }

    #[test]
    fn a_peer_that_floods_the_log_does_not_hide_others() {
        let (log, now) = (Log::new(), Monotonic::now());
        let floods = (0..500).filter_map(|port| log.line(&stalled([10, 0, 0, 1], port), now)).count();
        assert_eq!(floods, 10);
        assert!(log.line(&stalled([10, 0, 0, 2], 1), now).is_some_and(|line| line.contains("10.0.0.2")));
        let later = log.line(&stalled([10, 0, 0, 3], 1), now + Duration::from_secs(1)).unwrap();
        assert!(later.ends_with("(490 others were not printed, 490 of them about 10.0.0.1)"), "{later}");
        let next = log.line(&stalled([10, 0, 0, 1], 1), now + Duration::from_secs(1)).unwrap();
        assert!(!next.contains("not printed"), "{next}");
    }

    #[test]
    fn many_peers_are_bounded_in_lines_and_in_memory() {
        let (log, now) = (Log::new(), Monotonic::now());
        let many = (0..5000_u16).map(|peer| [10, 1, peer.to_be_bytes()[0], peer.to_be_bytes()[1]]);
        let printed = many.filter_map(|address| log.line(&stalled(address, 1), now)).count();
        assert_eq!(printed, 64 + 10);
        assert_eq!(log.0.lock().sources.len(), 65);
        let later = log.line(&stalled([10, 0, 0, 1], 1), now + Duration::from_secs(1)).unwrap();
        assert!(later.ends_with("(4926 others were not printed, 4926 of them about several peers)"), "{later}");
    }

    #[test]
    fn events_of_peers_do_not_hide_events_of_the_process() {
        let (log, now) = (Log::new(), Monotonic::now());
        let printed = (0..1000_u16).filter_map(|flood| {
            let address = [10, 2, flood.to_be_bytes()[0], flood.to_be_bytes()[1] / 16];
            log.line(&stalled(address, flood), now)
        });
        assert_eq!(printed.count(), 100);
        let passed = || {
            let (waited, remaining) = (Duration::ZERO, Duration::ZERO);
            Event::DeadlinePassed { operation: "op".into(), waited, remaining }
        };
        assert_eq!((0..500).filter_map(|_| log.line(&passed(), now)).count(), 10);
        let panicked =
            Event::ServantPanicked { interface: "I", operation: "op".into(), message: "it divided by zero".into() };
        assert!(log.line(&panicked, now).is_some_and(|line| line.contains("it divided by zero")));
    }

    #[test]
    fn a_host_with_many_addresses_is_one_peer() {
        let (log, now) = (Log::new(), Monotonic::now());
        let stalled =
            |address: String| Event::ReadStalled { peer: Peer::Ip((address.parse::<IpAddr>().unwrap(), 1).into()) };
        let floods = (0..500).filter_map(|host| log.line(&stalled(format!("2001:db8::{host:x}")), now)).count();
        assert_eq!(floods, 10);
        for other in ["2001:db8:0:1::1", "::1", "10.0.0.1"] {
            assert!(log.line(&stalled(other.to_owned()), now).is_some(), "{other}");
        }
        let mapped = (0..500).filter_map(|_| log.line(&stalled("::ffff:10.0.0.1".to_owned()), now)).count();
        assert_eq!(mapped, 9);
        let later = log.line(&stalled("10.0.0.2".to_owned()), now + Duration::from_secs(1)).unwrap();
        assert!(later.ends_with("(981 others were not printed, 491 of them about 10.0.0.1)"), "{later}");
    }

    #[test]
    fn event_is_one_line_for_any_text_of_a_peer() {
        let operation = "op\n\x1b[2J".repeat(1 << 20);
        let exception = SystemException::bad_operation().with_message(operation.clone());
        let peer = || Peer::Unknown;
        let events = [
            Event::RequestRefused { peer: peer(), operation: operation.clone(), exception },
            Event::DeadlinePassed { operation: operation.clone(), waited: Duration::ZERO, remaining: Duration::ZERO },
            Event::ServantPanicked { interface: "I", operation: operation.clone(), message: operation },
        ];
        for event in events {
            let line = event.to_string();
            assert!(line.chars().all(|c| !c.is_control()) && line.len() < 3000, "{line:?}");
            assert!(line.contains("(7340032 octets)"), "{line}");
        }
    }
}
