//! The real-time configuration of an ORB and of its thread pools.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::{IoClass, SpinPolicy};
use corelane_sched::overload::BufferBounds;
use corelane_sched::{
    LinearMapping, NativePriorityRange, NetworkPriorityMapping, Priority, PriorityMapping, PriorityTransform,
};
use corelane_sys::thread::{Reservation, Scheduling};
use corelane_wire::exception::minor;

use super::client_policies::RtClientPolicies;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::server::config::{ConnectionLimits, NestedWait};

/// The kernel's scheduling class for threads with a CORBA priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SchedulingClass {
    /// SCHED_FIFO: a thread runs until it waits, or until a thread with a higher priority is ready.
    #[default]
    Fifo,
    /// SCHED_RR: like SCHED_FIFO, but threads of equal priority take turns.
    RoundRobin,
    /// SCHED_OTHER, the ordinary class. CORBA priorities select lanes, and requests carry them, but
    /// the kernel does not see them.
    Fair,
}

/// The treatment of a request whose deadline passes before its upcall. The ORB counts and reports
/// each such request ([`Event::DeadlinePassed`](crate::Event::DeadlinePassed)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExpiredRequestAction {
    /// The request runs as if it had no deadline.
    #[default]
    Run,
    /// The request does not run. The client gets TIMEOUT, COMPLETED_NO.
    Reject,
    /// The request runs in its lane, at this CORBA priority if its priority is higher.
    LowerPriority(i16),
}

/// The treatment of an operation that exceeds its declared processor time (`@wcet`). The ORB counts
/// and reports each such operation
/// ([`Event::ExecutionTimeOverrun`](crate::Event::ExecutionTimeOverrun)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OverrunAction {
    /// The operation runs to its end, and the client gets the results.
    #[default]
    Run,
    /// The operation runs to its end. If it succeeds, the client does not get its results, but
    /// TIMEOUT with [`minor::OVERRUN`](crate::minor::OVERRUN), COMPLETED_YES. If the servant raises
    /// an exception, the client gets this exception.
    Reject,
    /// When the declared time is used up, the thread runs at this CORBA priority, if it is lower,
    /// until the operation ends. The client gets the results. Threads without a fixed priority keep
    /// their priority.
    LowerPriority(i16),
}

/// The real-time configuration of an ORB.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RtConfig {
    /// Mapping between CORBA priorities and native priorities. Default: linear over the native
    /// priorities 1 to 99.
    pub priority_mapping: Arc<dyn PriorityMapping>,
    /// Transform of the CORBA priorities in received requests, and in the requests that servants
    /// send during an upcall. Default: `None`.
    pub priority_transform: Option<Arc<dyn PriorityTransform>>,
    /// Mapping from a CORBA priority to the code point (DSCP) of packets that carry its requests
    /// and replies. With `None`, the ORB sets no code points. Default: `None`.
    pub network_mapping: Option<Arc<dyn NetworkPriorityMapping>>,
    /// Scheduling class of threads with a CORBA priority. Default: SCHED_FIFO.
    pub scheduling: SchedulingClass,
    /// Treatment of requests whose deadline passes before their upcall. Default: the requests run.
    pub expired_request_action: ExpiredRequestAction,
    /// Treatment of operations that use more processor time than they declare. Default: the client
    /// gets the results.
    pub overrun_action: OverrunAction,
    /// Client policies of the ORB, which apply where neither the reference nor the thread sets a
    /// policy. If they have priority bands, calls to objects without a priority model raise
    /// INV_POLICY. Default: [`RtClientPolicies::default`].
    pub client_policies: RtClientPolicies,
}

impl Default for RtConfig {
    fn default() -> Self {
        RtConfig {
            priority_mapping: Arc::new(LinearMapping(NativePriorityRange::FIXED_PRIORITIES)),
            priority_transform: None,
            network_mapping: None,
            scheduling: SchedulingClass::Fifo,
            expired_request_action: ExpiredRequestAction::Run,
            overrun_action: OverrunAction::Run,
            client_policies: RtClientPolicies::default(),
        }
    }
}

setters!(RtConfig {
    priority_mapping: Arc<dyn PriorityMapping>,
    priority_transform: Option<Arc<dyn PriorityTransform>>,
    network_mapping: Option<Arc<dyn NetworkPriorityMapping>>,
    scheduling: SchedulingClass,
    expired_request_action: ExpiredRequestAction,
    overrun_action: OverrunAction,
    client_policies: RtClientPolicies,
});

impl RtConfig {
    pub(crate) fn scheduling_for(&self, priority: Priority) -> Result<Option<Scheduling>, SystemException> {
        let class: fn(u8) -> Scheduling = match self.scheduling {
            SchedulingClass::Fair => return Ok(None),
            SchedulingClass::Fifo => Scheduling::Fifo,
            SchedulingClass::RoundRobin => Scheduling::RoundRobin,
        };
        let native = self.priority_mapping.to_native(priority).and_then(|native| u8::try_from(native).ok());
        match native.filter(|native| Scheduling::FIXED_PRIORITIES.contains(native)) {
            Some(native) => Ok(Some(class(native))),
            None => Err(unmappable().with_message(format!("CORBA priority {priority} has no native priority here"))),
        }
    }

    /// Returns the CORBA priority of a native priority; `None` if `native` is not a fixed priority,
    /// or the mapping has no value for it.
    pub(crate) fn corba_priority(&self, native: Scheduling) -> Option<Priority> {
        match native {
            Scheduling::Fifo(native) | Scheduling::RoundRobin(native) => self.priority_mapping.to_corba(native.into()),
            Scheduling::Other | Scheduling::Idle | Scheduling::Deadline(_) => None,
        }
    }
}

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
    /// Number of static threads, which are created with the pool. A pool can have at most 4,096
    /// static and dynamic threads together. Default: 1.
    pub static_threads: u32,
    /// Maximum number of dynamic threads. The pool creates one when a request arrives while all
    /// threads are busy. A dynamic thread ends after
    /// [`idle_thread_timeout`](field@Self::idle_thread_timeout) without work. Default: 0.
    pub dynamic_threads: u32,
    /// CORBA priority, from 0 to 32767, of threads that wait for requests, and of requests that
    /// carry no priority. Default: 0.
    pub default_priority: i16,
    /// Limits on the requests that the ORB reads into memory while all threads are busy. Requests
    /// beyond the limits are refused with TRANSIENT 1. With `None`, the ORB leaves requests in the
    /// transport until a thread is free. Default: `None`.
    pub buffering: Option<BufferBounds>,
    /// Addresses at which the pool listens, in the syntax of
    /// [`OrbBuilder::listen`](crate::OrbBuilder::listen). If the list is empty, the pool derives
    /// one address from each address of the ORB: the host with a free port, or the path with a
    /// suffix. Default: empty.
    pub listen: Vec<String>,
    /// Highest CORBA priority that a request may carry at the addresses of the pool, at least
    /// [`default_priority`](field@Self::default_priority). A request with a higher priority is
    /// refused with NO_PERMISSION. With `None`, requests of peers on this machine may carry any
    /// priority. Requests of peers on other machines may carry at most the priority that a request
    /// without a priority gets. [`i16::MAX`] permits every priority to all peers. Default: `None`.
    pub max_request_priority: Option<i16>,
    /// Cores on which the threads may run. If the list is empty, they may run on all cores.
    /// Default: empty.
    pub cores: Vec<usize>,
    /// Time without work after which a dynamic thread ends.
    /// Default: 5 s.
    pub idle_thread_timeout: Duration,
    /// The action of a thread while the servant that it runs waits for the reply to a call. `None`
    /// means [`NestedWait::Block`]. Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// How long the pool's threads poll for the next request before they sleep. Threads with a
    /// fixed priority poll only with [`SpinPolicy::Always`]. Threads of a pool with dynamic threads
    /// or buffering never poll. `None` means the policy of the ORB. Default: `None`.
    pub spin_policy: Option<SpinPolicy>,
    /// Limits on the pool's connections. Default: [`ConnectionLimits::default`].
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
            max_request_priority: None,
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
    max_request_priority: Option<i16>,
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
    /// CORBA priority of the lane and its threads, from 0 to 32767. Default: 0.
    pub priority: i16,
    /// Number of static threads, which are created with the lane. A lane can have at most 4,096
    /// static and dynamic threads together. Default: 1.
    pub static_threads: u32,
    /// Maximum number of dynamic threads. The lane creates one when a request arrives while all its
    /// threads are busy. A dynamic thread ends after the pool's
    /// [`idle_thread_timeout`](field@LanesConfig::idle_thread_timeout) without work. Default: 0.
    pub dynamic_threads: u32,
    /// Addresses at which the lane listens, in the syntax of
    /// [`OrbBuilder::listen`](crate::OrbBuilder::listen). If the list is empty, the lane derives
    /// one address from each address of the ORB: the host with a free port, or the path with a
    /// suffix. Default: empty.
    pub listen: Vec<String>,
    /// Highest CORBA priority that a request may carry at the addresses of the lane, at least
    /// [`priority`](field@Self::priority). A request with a higher priority is refused with
    /// NO_PERMISSION. With `None`, requests of peers on this machine may carry any priority.
    /// Requests of peers on other machines may carry at most the priority that a request without a
    /// priority gets, and the pool's lowest lane reads the connections of these peers. [`i16::MAX`]
    /// permits every priority to all peers. Default: `None`.
    pub max_request_priority: Option<i16>,
    /// Cores on which the threads may run. If the list is empty, they may run on all cores.
    /// Default: empty.
    pub cores: Vec<usize>,
    /// Reservation of processor time for each thread of the lane. With a reservation, the threads
    /// have the class SCHED_DEADLINE and no fixed priority. They run before all threads with a
    /// fixed priority, but never longer than the reservation permits. Has no effect with
    /// [`SchedulingClass::Fair`]. Cannot be combined with `cores` or
    /// [`LanesConfig::allow_borrowing`](field@LanesConfig::allow_borrowing). Default: `None`.
    pub reservation: Option<Reservation>,
    /// Service class of the packets that the lane receives. Transports without real-time I/O ignore
    /// the class. Default: [`IoClass::BestEffort`].
    pub io_class: IoClass,
    /// How long the lane's threads poll for the next request before they sleep. Threads with a
    /// fixed priority or a reservation poll only with [`SpinPolicy::Always`]. Threads of a pool
    /// with dynamic threads, borrowing or buffering never poll. `None` means the policy of the
    /// pool. Default: `None`.
    pub spin_policy: Option<SpinPolicy>,
}

impl Default for LaneConfig {
    fn default() -> Self {
        LaneConfig {
            priority: 0,
            static_threads: 1,
            dynamic_threads: 0,
            listen: Vec::new(),
            max_request_priority: None,
            cores: Vec::new(),
            reservation: None,
            io_class: IoClass::BestEffort,
            spin_policy: None,
        }
    }
}

setters!(LaneConfig {
    priority: i16,
    static_threads: u32,
    dynamic_threads: u32,
    max_request_priority: Option<i16>,
    reservation: Option<Reservation>,
    io_class: IoClass,
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

/// The treatment of a request whose priority no lane of the pool has. The treatment applies to
/// requests for which neither a priority band of the POA nor the band of the connection selects a
/// lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnmatchedPriority {
    /// The request is refused with TRANSIENT 2. Real-time CORBA 1.2 requires that the priority of a
    /// request equals the priority of a lane.
    #[default]
    Refuse,
    /// The lane at whose address the request arrived runs it at the lane's priority. Clients such
    /// as TAO's need this: they choose the address of a lane by their priority bands, but do not
    /// declare the bands to the server. The request is refused if its priority is above the ceiling
    /// of the address, if it arrived at an address of another pool, or if the POA's bands do not
    /// contain the lane's priority.
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
    /// The lanes of the pool, at least one, in any order. Default: empty.
    pub lanes: Vec<LaneConfig>,
    /// Treatment of requests whose priority no lane has. Default: the requests are refused with
    /// TRANSIENT 2.
    pub unmatched_priority: UnmatchedPriority,
    /// True to permit a lane whose threads are all busy to borrow an idle thread of a lane with a
    /// lower priority. The thread runs one request at the priority of the borrowing lane. Default:
    /// `false`.
    pub allow_borrowing: bool,
    /// Limits, for each lane, on the requests that the ORB reads into memory while all threads of
    /// the lane are busy. Requests beyond the limits are refused with TRANSIENT 1. With `None`, the
    /// ORB leaves requests in the transport until a thread is free. Default: `None`.
    pub buffering: Option<BufferBounds>,
    /// Time without work after which a dynamic thread ends.
    /// Default: 5 s.
    pub idle_thread_timeout: Duration,
    /// The action of a thread while the servant that it runs waits for the reply to a call. `None`
    /// means [`NestedWait::Block`]. Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// How long the pool's threads poll for the next request before they sleep. Threads with a
    /// fixed priority or a reservation poll only with [`SpinPolicy::Always`]. Threads of a pool
    /// with dynamic threads, borrowing or buffering never poll. `None` means the policy of the ORB.
    /// Default: `None`.
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
