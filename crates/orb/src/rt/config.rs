//! The real-time configuration of an ORB and of its thread pools.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::SpinPolicy;
use corelane_sched::overload::BufferBounds;
use corelane_sched::{
    LinearMapping, NativeRange, NetworkPriorityMapping, Priority, PriorityMapping, PriorityTransform,
};
use corelane_sys::thread::{Reservation, Scheduling};
use corelane_wire::exception::minor;

use super::client_policies::RtClientPolicies;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::server::config::{ConnectionLimits, NestedWait};

/// The scheduling class of threads that have a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SchedulingClass {
    /// SCHED_FIFO.
    #[default]
    Fifo,
    /// SCHED_RR: threads of equal priority take turns.
    RoundRobin,
    /// SCHED_OTHER, the ordinary class. Priorities select lanes and are sent with requests, but the
    /// kernel ignores them. For tests, and for machines that permit no other class.
    Fair,
}

/// The treatment of a request whose deadline passes before the upcall. The ORB counts and reports
/// each such request ([`Event::DeadlinePassed`](crate::Event::DeadlinePassed)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExpiredRequestAction {
    /// The request runs.
    #[default]
    Run,
    /// The request does not run. The client gets TIMEOUT, COMPLETED_NO.
    Reject,
    /// The request runs in its lane, at most at this CORBA priority.
    LowerPriority(i16),
}

/// The treatment of an operation that exceeds its declared processor time (`@wcet`). The ORB counts
/// and reports each such operation ([`Event::ExecutionTimeOverrun`](crate::Event::ExecutionTimeOverrun)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OverrunAction {
    /// The operation runs to its end, and the client gets the results.
    #[default]
    Run,
    /// The operation runs to its end, and the client gets TIMEOUT with
    /// [`minor::OVERRUN`](crate::minor::OVERRUN), COMPLETED_YES, instead of the results. If the
    /// servant raises an exception, the client gets this exception.
    Reject,
    /// The thread gets this CORBA priority until the operation ends, and the client gets the
    /// results.
    ///
    /// The priority changes only on threads whose fixed priority is higher. The change happens at
    /// the first tick of the kernel's clock after the declared time is used up. The thread gets its
    /// former priority back at the end of the upcall. Each operation that declares a time costs two
    /// additional system calls.
    LowerPriority(i16),
}

/// The real-time configuration of an ORB.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RtConfig {
    /// Mapping between CORBA priorities and native priorities. Default: linear over the native
    /// priorities 1 to 99.
    pub priority_mapping: Arc<dyn PriorityMapping>,
    /// Transform of the priorities that requests carry: of received requests, and of requests that
    /// servants send. Default: `None`.
    pub priority_transform: Option<Arc<dyn PriorityTransform>>,
    /// Mapping from a priority to the code point (DSCP) of its packets. With `None` the ORB sets no
    /// code points. Default: `None`.
    pub network_mapping: Option<Arc<dyn NetworkPriorityMapping>>,
    /// Scheduling class of threads with a priority.
    /// Default: SCHED_FIFO.
    pub scheduling: SchedulingClass,
    /// Treatment of requests whose deadline passed before their upcall. Default: the requests run.
    pub expired_requests: ExpiredRequestAction,
    /// Treatment of operations that use more processor time than they declare. Default: the client
    /// gets the results.
    pub overruns: OverrunAction,
    /// Client policies, for references and threads that do not set their own. With priority bands,
    /// calls to objects without a priority model raise INV_POLICY. Default:
    /// [`RtClientPolicies::default`].
    pub client_policies: RtClientPolicies,
}

impl Default for RtConfig {
    fn default() -> Self {
        RtConfig {
            priority_mapping: Arc::new(LinearMapping(NativeRange::FIXED_PRIORITIES)),
            priority_transform: None,
            network_mapping: None,
            scheduling: SchedulingClass::Fifo,
            expired_requests: ExpiredRequestAction::Run,
            overruns: OverrunAction::Run,
            client_policies: RtClientPolicies::default(),
        }
    }
}

setters!(RtConfig {
    priority_mapping: Arc<dyn PriorityMapping>,
    priority_transform: Option<Arc<dyn PriorityTransform>>,
    network_mapping: Option<Arc<dyn NetworkPriorityMapping>>,
    scheduling: SchedulingClass,
    expired_requests: ExpiredRequestAction,
    overruns: OverrunAction,
    client_policies: RtClientPolicies,
});

impl RtConfig {
    /// Returns the kernel scheduling for a thread at this priority; `None` for the ordinary class.
    ///
    /// # Errors
    /// DATA_CONVERSION 2 for a priority that cannot be mapped.
    pub(crate) fn scheduling_for(&self, priority: Priority) -> Result<Option<Scheduling>, SystemException> {
        let class: fn(u8) -> Scheduling = match self.scheduling {
            SchedulingClass::Fair => return Ok(None),
            SchedulingClass::Fifo => Scheduling::Fifo,
            SchedulingClass::RoundRobin => Scheduling::RoundRobin,
        };
        let native = self.priority_mapping.to_native(priority).and_then(|native| u8::try_from(native).ok());
        match native.filter(|native| Scheduling::FIXED_PRIORITIES.contains(native)) {
            Some(native) => Ok(Some(class(native))),
            None => Err(unmappable().because(format!("CORBA priority {priority} has no native priority here"))),
        }
    }

    /// Returns the CORBA priority of a thread with the scheduling `native`. Returns `None` without
    /// a fixed priority.
    pub(crate) fn corba_priority(&self, native: Scheduling) -> Option<Priority> {
        match native {
            Scheduling::Fifo(native) | Scheduling::RoundRobin(native) => self.priority_mapping.to_corba(native.into()),
            Scheduling::Other | Scheduling::Idle | Scheduling::Deadline(_) => None,
        }
    }
}

/// Makes DATA_CONVERSION 2, for a priority that the mapping or the kernel refuses.
#[cold]
pub(crate) fn unmappable() -> SystemException {
    SystemException::new(Kind::DataConversion, minor::data_conversion::PRIORITY_MAPPING_FAILED, Completion::No)
}

/// The configuration of a thread pool without lanes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadpoolConfig {
    /// The pool's name, which is part of its threads' names. Default: `rt`.
    pub name: String,
    /// Stack size of each thread in bytes.
    /// Default: 1 MiB.
    pub thread_stack_size: usize,
    /// Number of threads that are created with the pool. Static and dynamic threads together may be
    /// at most 4,096. Default: 1.
    pub static_threads: u32,
    /// Maximum number of dynamic threads, which are added while all threads are busy. A dynamic
    /// thread ends after [`idle_thread_timeout`](field@Self::idle_thread_timeout) without work.
    /// Default: 0.
    pub dynamic_threads: u32,
    /// CORBA priority of idle threads, and of requests without a priority: 0 to 32767. Default: 0.
    pub default_priority: i16,
    /// Limits on the requests that the ORB reads and buffers while all threads are busy. Further
    /// requests are refused with TRANSIENT 1. With `None`, waiting requests stay in the transport.
    /// Default: `None`.
    pub buffering: Option<BufferBounds>,
    /// Addresses at which the pool listens, as for
    /// [`OrbBuilder::listen`](crate::OrbBuilder::listen). If the list is empty, the pool listens on
    /// the host of each address of the ORB, at a free port. Default: empty.
    pub listen: Vec<String>,
    /// Highest CORBA priority that a request may ask for at these addresses. A request with a
    /// higher priority is refused with NO_PERMISSION. With `None`, peers on this machine may ask
    /// for any priority, and peers on other machines get at most the priority of a request without
    /// a priority. [`i16::MAX`] permits every priority to all peers. Default: `None`.
    pub ceiling: Option<i16>,
    /// Cores on which the threads may run; empty for all cores. Default: empty.
    pub cores: Vec<usize>,
    /// Time for which a dynamic thread waits for work before it ends.
    /// Default: 5 s.
    pub idle_thread_timeout: Duration,
    /// The activity of a thread while a servant that the thread runs waits for the reply to a call.
    /// `None` means [`NestedWait::Block`]. Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// How long the pool's threads poll for the next request before they sleep. Threads with a
    /// fixed priority poll only with [`SpinPolicy::Always`]. Threads of a pool with dynamic
    /// threads, borrowing or buffering never poll. `None` means the policy of the ORB. Default:
    /// `None`.
    pub spin_policy: Option<SpinPolicy>,
    /// Limits on connections. Default: [`ConnectionLimits::default`].
    pub connection_limits: ConnectionLimits,
}

impl Default for ThreadpoolConfig {
    fn default() -> Self {
        ThreadpoolConfig {
            name: "rt".into(),
            thread_stack_size: THREAD_STACK_SIZE,
            static_threads: 1,
            dynamic_threads: 0,
            default_priority: 0,
            buffering: None,
            listen: Vec::new(),
            ceiling: None,
            cores: Vec::new(),
            idle_thread_timeout: IDLE_THREAD_TIMEOUT,
            nested_wait: None,
            spin_policy: None,
            connection_limits: ConnectionLimits::default(),
        }
    }
}

setters!(ThreadpoolConfig {
    name: impl Into<String>,
    thread_stack_size: usize,
    static_threads: u32,
    dynamic_threads: u32,
    default_priority: i16,
    buffering: Option<BufferBounds>,
    ceiling: Option<i16>,
    idle_thread_timeout: Duration,
    nested_wait: Option<NestedWait>,
    spin_policy: Option<SpinPolicy>,
    connection_limits: ConnectionLimits,
});

impl ThreadpoolConfig {
    /// Adds an address to [`listen`](field@Self::listen).
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Sets [`cores`](field@Self::cores).
    #[must_use]
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.cores = cores.into_iter().collect();
        self
    }
}

const IDLE_THREAD_TIMEOUT: Duration = Duration::from_secs(5);
const THREAD_STACK_SIZE: usize = 1 << 20;

/// The configuration of one lane of a thread pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LaneConfig {
    /// CORBA priority of the lane, from 0 to 32767. Default: 0.
    pub priority: i16,
    /// Number of threads that are created with the lane. Static and dynamic threads together may be
    /// at most 4,096. Default: 1.
    pub static_threads: u32,
    /// Maximum number of dynamic threads, which are added while all threads are busy. A dynamic
    /// thread ends after the pool's [`idle_thread_timeout`](field@LanesConfig::idle_thread_timeout)
    /// without work. Default: 0.
    pub dynamic_threads: u32,
    /// Addresses at which the lane listens. If the list is empty, the lane listens on the host of
    /// each address of the ORB, at a free port. Default: empty.
    pub listen: Vec<String>,
    /// Highest CORBA priority that a request may ask for at these addresses. A request with a
    /// higher priority is refused with NO_PERMISSION. With `None`, peers on this machine may ask
    /// for any priority. Peers on other machines then get at most the priority of a request without
    /// a priority, and the pool's lowest lane reads their connections. [`i16::MAX`] permits every
    /// priority to all peers. Default: `None`.
    pub ceiling: Option<i16>,
    /// Cores on which the threads may run; empty for all cores. Default: empty.
    pub cores: Vec<usize>,
    /// Reservation of processor time for each thread in SCHED_DEADLINE, instead of a fixed
    /// priority. A thread with a reservation runs before threads of every fixed priority, but never
    /// uses more than its reservation. Cannot be combined with `cores` or borrowing. Default:
    /// `None`.
    pub reservation: Option<Reservation>,
    /// How long the lane's threads poll for the next request before they sleep. Threads with a
    /// fixed priority poll only with [`SpinPolicy::Always`]. Threads of a pool with dynamic
    /// threads, borrowing or buffering never poll. `None` means the policy of the pool. Default:
    /// `None`.
    pub spin_policy: Option<SpinPolicy>,
}

impl Default for LaneConfig {
    fn default() -> Self {
        LaneConfig {
            priority: 0,
            static_threads: 1,
            dynamic_threads: 0,
            listen: Vec::new(),
            ceiling: None,
            cores: Vec::new(),
            reservation: None,
            spin_policy: None,
        }
    }
}

setters!(LaneConfig {
    priority: i16,
    static_threads: u32,
    dynamic_threads: u32,
    ceiling: Option<i16>,
    reservation: Option<Reservation>,
    spin_policy: Option<SpinPolicy>,
});

impl LaneConfig {
    /// Adds an address to [`listen`](field@Self::listen).
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Sets [`cores`](field@Self::cores).
    #[must_use]
    pub fn cores(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.cores = cores.into_iter().collect();
        self
    }
}

/// The treatment of a request whose priority no lane of the pool has. It applies only if neither a
/// band of the POA nor the band of the connection selects a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnmatchedPriority {
    /// The request is refused with TRANSIENT 2. Real-time CORBA 1.2 requires that a request's
    /// priority equals the priority of a lane.
    #[default]
    Refuse,
    /// A request that arrived at a lane's own endpoint is served by this lane, at the lane's
    /// priority and under the endpoint's ceiling. This serves clients such as TAO's, which choose a
    /// lane's endpoint by their own bands without declaring the bands to the server. A request that
    /// arrived at an endpoint of the builder's pools is refused.
    ServeInArrivalLane,
}

/// The configuration of a thread pool with lanes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LanesConfig {
    /// The pool's name, which is part of its threads' names. Default: `rt`.
    pub name: String,
    /// Stack size of each thread in bytes.
    /// Default: 1 MiB.
    pub thread_stack_size: usize,
    /// The lanes, in any order.
    /// Default: empty.
    pub lanes: Vec<LaneConfig>,
    /// Treatment of requests whose priority no lane has. Default: the requests are refused with
    /// TRANSIENT 2.
    pub unmatched_priority: UnmatchedPriority,
    /// Permits a lane whose threads are all busy to borrow an idle thread of a lower lane. The
    /// thread runs one request at the borrowing lane's priority. Default: `false`.
    pub allow_borrowing: bool,
    /// Limits on the requests that the ORB reads and buffers for a lane while all its threads are
    /// busy. Further requests are refused with TRANSIENT 1. With `None`, waiting requests stay in
    /// the transport. Default: `None`.
    pub buffering: Option<BufferBounds>,
    /// Time for which a dynamic thread waits for work before it ends.
    /// Default: 5 s.
    pub idle_thread_timeout: Duration,
    /// The activity of a thread while a servant that the thread runs waits for the reply to a call.
    /// `None` means [`NestedWait::Block`]. Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// How long the pool's threads poll for the next request before they sleep. Threads with a
    /// fixed priority poll only with [`SpinPolicy::Always`]. Threads of a pool with dynamic
    /// threads, borrowing or buffering never poll. `None` means the policy of the ORB. Default:
    /// `None`.
    pub spin_policy: Option<SpinPolicy>,
    /// Limits on the connections of each lane. Default: [`ConnectionLimits::default`].
    pub connection_limits: ConnectionLimits,
}

impl Default for LanesConfig {
    fn default() -> Self {
        LanesConfig {
            name: "rt".into(),
            thread_stack_size: THREAD_STACK_SIZE,
            lanes: Vec::new(),
            unmatched_priority: UnmatchedPriority::Refuse,
            allow_borrowing: false,
            buffering: None,
            idle_thread_timeout: IDLE_THREAD_TIMEOUT,
            nested_wait: None,
            spin_policy: None,
            connection_limits: ConnectionLimits::default(),
        }
    }
}

setters!(LanesConfig {
    name: impl Into<String>,
    thread_stack_size: usize,
    unmatched_priority: UnmatchedPriority,
    allow_borrowing: bool,
    buffering: Option<BufferBounds>,
    idle_thread_timeout: Duration,
    nested_wait: Option<NestedWait>,
    spin_policy: Option<SpinPolicy>,
    connection_limits: ConnectionLimits,
});

impl LanesConfig {
    /// Sets [`lanes`](field@Self::lanes).
    #[must_use]
    pub fn lanes(mut self, lanes: impl IntoIterator<Item = LaneConfig>) -> Self {
        self.lanes = lanes.into_iter().collect();
        self
    }
}
