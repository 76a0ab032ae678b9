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

/// The class of the kernel's scheduler that runs threads with a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SchedulingClass {
    /// SCHED_FIFO.
    #[default]
    Fifo,
    /// SCHED_RR: threads of equal priority take turns.
    RoundRobin,
    /// The ordinary class. Priorities order lanes and travel with requests, but the kernel ignores
    /// them. For tests, and for machines that grant nothing better.
    Fair,
}

/// Treatment of a request whose client stopped waiting before the upcall. The ORB counts and
/// reports it in any case ([`Event::DeadlinePassed`](crate::Event::DeadlinePassed)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExpiredRequestAction {
    /// The request runs.
    #[default]
    Run,
    /// The request does not run: TIMEOUT, COMPLETED_NO.
    Reject,
    /// The request runs in its lane, at this CORBA priority at most.
    LowerPriority(i16),
}

/// Treatment of an operation that exceeded its declared processor time (`@wcet`), and of its
/// results. The ORB counts and reports it in any case ([`Event::Overrun`](crate::Event::Overrun)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OverrunAction {
    /// The client gets the results.
    #[default]
    Run,
    /// The client gets TIMEOUT with [`minor::OVERRUN`](crate::minor::OVERRUN), COMPLETED_YES.
    /// Exceptions of the servant stay.
    Reject,
    /// The client gets the results, and the rest of the operation runs at this CORBA priority.
    ///
    /// Applies to threads whose fixed priority is higher. The thread is lowered while the servant
    /// runs, at the first tick of the kernel's clock after the declared time is used. It gets its
    /// priority back at the end of the upcall. Each operation that declares a time costs two more
    /// system calls.
    LowerPriority(i16),
}

/// Real-time settings that hold for all priorities of an ORB.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RtConfig {
    /// Mapping between CORBA priorities and native ones.
    /// Default: linear over the native priorities 1 to 99.
    pub mapping: Arc<dyn PriorityMapping>,
    /// Transform of request priorities on the way in and out.
    /// Default: `None`.
    pub transform: Option<Arc<dyn PriorityTransform>>,
    /// Mapping from a priority to the code point of its packets; `None` leaves sockets as they are.
    /// Default: `None`.
    pub network: Option<Arc<dyn NetworkPriorityMapping>>,
    /// Scheduling class of threads with a priority.
    /// Default: SCHED_FIFO.
    pub scheduling: SchedulingClass,
    /// Treatment of requests whose deadline passed before their upcall.
    /// Default: they run.
    pub expired_requests: ExpiredRequestAction,
    /// Treatment of operations that take longer than they declare.
    /// Default: the client gets the results.
    pub overruns: OverrunAction,
    /// Policies of references that have none of their own. With bands, calls on objects without a
    /// priority model are INV_POLICY.
    /// Default: [`RtClientPolicies::default`].
    pub client: RtClientPolicies,
}

impl Default for RtConfig {
    fn default() -> Self {
        RtConfig {
            mapping: Arc::new(LinearMapping(NativeRange::FIXED)),
            transform: None,
            network: None,
            scheduling: SchedulingClass::Fifo,
            expired_requests: ExpiredRequestAction::Run,
            overruns: OverrunAction::Run,
            client: RtClientPolicies::default(),
        }
    }
}

setters!(RtConfig {
    mapping: Arc<dyn PriorityMapping>,
    transform: Option<Arc<dyn PriorityTransform>>,
    network: Option<Arc<dyn NetworkPriorityMapping>>,
    scheduling: SchedulingClass,
    expired_requests: ExpiredRequestAction,
    overruns: OverrunAction,
    client: RtClientPolicies,
});

impl RtConfig {
    /// Returns the kernel scheduling of a thread at this priority; `None` in the ordinary class.
    ///
    /// # Errors
    /// DATA_CONVERSION 2 for a priority that cannot be mapped.
    pub(crate) fn scheduling_for(&self, priority: Priority) -> Result<Option<Scheduling>, SystemException> {
        let class: fn(u8) -> Scheduling = match self.scheduling {
            SchedulingClass::Fair => return Ok(None),
            SchedulingClass::Fifo => Scheduling::Fifo,
            SchedulingClass::RoundRobin => Scheduling::RoundRobin,
        };
        let native = self.mapping.to_native(priority).and_then(|native| u8::try_from(native).ok());
        match native.filter(|native| Scheduling::PRIORITIES.contains(native)) {
            Some(native) => Ok(Some(class(native))),
            None => Err(unmappable().because(format!("CORBA priority {priority} has no native priority here"))),
        }
    }

    /// Returns the CORBA priority of a thread scheduled like this; `None` without a fixed priority.
    pub(crate) fn corba_priority(&self, native: Scheduling) -> Option<Priority> {
        match native {
            Scheduling::Fifo(native) | Scheduling::RoundRobin(native) => self.mapping.to_corba(native.into()),
            Scheduling::Other | Scheduling::Idle | Scheduling::Deadline(_) => None,
        }
    }
}

/// DATA_CONVERSION 2: the mapping or the kernel refused the priority.
#[cold]
pub(crate) fn unmappable() -> SystemException {
    SystemException::new(Kind::DataConversion, minor::data_conversion::PRIORITY_MAPPING_FAILED, Completion::No)
}

/// The configuration of a thread pool without lanes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadpoolConfig {
    /// The pool's name in thread names.
    /// Default: `rt`.
    pub name: String,
    /// Stack size of each thread in bytes.
    /// Default: 1 MiB.
    pub thread_stack_size: usize,
    /// Number of threads created at once; with the dynamic ones at most 4,096.
    /// Default: 1.
    pub static_threads: u32,
    /// Number of threads created when all are busy, which end after
    /// [`idle_thread_timeout`](field@Self::idle_thread_timeout).
    /// Default: 0.
    pub dynamic_threads: u32,
    /// CORBA priority of idle threads, and of requests without one; 0 to 32767.
    /// Default: 0.
    pub default_priority: i16,
    /// Bound on requests that wait while all threads are busy; further ones are refused with
    /// TRANSIENT 1. With `None` they stay in the transport.
    /// Default: `None`.
    pub buffering: Option<BufferBounds>,
    /// Addresses at which the pool listens, as for
    /// [`OrbBuilder::listen`](crate::OrbBuilder::listen). Without any, it listens at a free port
    /// beside each address of the ORB.
    /// Default: empty.
    pub listen: Vec<String>,
    /// Highest CORBA priority that a request may ask for at these addresses; above it
    /// NO_PERMISSION. With `None`, local peers may ask for any priority. Remote peers may ask for
    /// none above that of a client which sends no priority. [`i16::MAX`] opens the pool to them.
    /// Default: `None`.
    pub ceiling: Option<i16>,
    /// Cores on which the threads may run; empty: any.
    /// Default: empty.
    pub cores: Vec<usize>,
    /// Time for which a dynamic thread waits for work before it ends.
    /// Default: 5 s.
    pub idle_thread_timeout: Duration,
    /// Behaviour of a thread while a call made by its servant waits for the reply; `None` means
    /// [`NestedWait::Block`].
    /// Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// Polling of the pool's threads for the next request, before they sleep. Threads of fixed priority
    /// poll only with [`SpinPolicy::Always`], and those of a pool with dynamic threads, borrowing or
    /// buffering never. `None` means the policy of the ORB.
    /// Default: `None`.
    pub spin_policy: Option<SpinPolicy>,
    /// Bounds on connections.
    /// Default: [`ConnectionLimits::default`].
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
    /// CORBA priority of the lane, 0 to 32767.
    /// Default: 0.
    pub priority: i16,
    /// Number of threads created at once; with the dynamic ones at most 4,096.
    /// Default: 1.
    pub static_threads: u32,
    /// Number of threads created when all are busy, which end after the pool's
    /// [`idle_thread_timeout`](field@LanesConfig::idle_thread_timeout).
    /// Default: 0.
    pub dynamic_threads: u32,
    /// Addresses at which the lane listens. Without any, the lane listens at a free port beside
    /// each address of the ORB.
    /// Default: empty.
    pub listen: Vec<String>,
    /// Highest CORBA priority that a request may ask for at these addresses; above it
    /// NO_PERMISSION. With `None`, local peers may ask for any priority. Remote peers may ask for
    /// none above that of a client which sends no priority; the pool's lowest lane reads their
    /// connections. [`i16::MAX`] opens the lane to them.
    /// Default: `None`.
    pub ceiling: Option<i16>,
    /// Cores on which the threads may run; empty: any.
    /// Default: empty.
    pub cores: Vec<usize>,
    /// Processor time of each thread in the deadline class (SCHED_DEADLINE), instead of a fixed
    /// priority. Such a thread runs before every fixed priority and never takes more. Excludes
    /// `cores` and borrowing.
    /// Default: `None`.
    pub reservation: Option<Reservation>,
    /// Polling of the lane's threads for the next request, before they sleep. Threads of fixed priority
    /// poll only with [`SpinPolicy::Always`], and those of a pool with dynamic threads, borrowing or
    /// buffering never. `None` means the policy of the pool.
    /// Default: `None`.
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

/// Treatment of a request with a priority that no lane of the pool has. Applies if neither the
/// POA's policies nor the connection name a band that leads to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnmatchedPriority {
    /// TRANSIENT 2 (Real-time CORBA 1.2: the priority of the request equals that of a lane).
    #[default]
    Refuse,
    /// The lane at whose own endpoint the request arrived serves it, at the lane's priority and
    /// under the endpoint's ceiling. For clients such as TAO's, which choose a lane's endpoint by
    /// their own bands without telling the server. Refused at the endpoints of the builder's pools.
    ServeInReachedLane,
}

/// The configuration of a thread pool with lanes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LanesConfig {
    /// The pool's name in thread names.
    /// Default: `rt`.
    pub name: String,
    /// Stack size of each thread in bytes.
    /// Default: 1 MiB.
    pub thread_stack_size: usize,
    /// The lanes, in any order.
    /// Default: empty.
    pub lanes: Vec<LaneConfig>,
    /// Treatment of requests whose priority no lane has.
    /// Default: they are refused with TRANSIENT 2.
    pub unmatched_priority: UnmatchedPriority,
    /// Allows a lane whose threads are all busy to borrow an idle one of a lower lane. The thread
    /// runs at the lane's priority until it goes back.
    /// Default: `false`.
    pub allow_borrowing: bool,
    /// Bound on requests that wait in each lane while all its threads are busy. Further ones are
    /// refused with TRANSIENT 1. With `None` they stay in the transport.
    /// Default: `None`.
    pub buffering: Option<BufferBounds>,
    /// Time for which a dynamic thread waits for work before it ends.
    /// Default: 5 s.
    pub idle_thread_timeout: Duration,
    /// Behaviour of a thread while a call made by its servant waits for the reply; `None` means
    /// [`NestedWait::Block`].
    /// Default: `None`.
    pub nested_wait: Option<NestedWait>,
    /// Polling of the pool's threads for the next request, before they sleep. Threads of fixed priority
    /// poll only with [`SpinPolicy::Always`], and those of a pool with dynamic threads, borrowing or
    /// buffering never. `None` means the policy of the ORB.
    /// Default: `None`.
    pub spin_policy: Option<SpinPolicy>,
    /// Bounds on the connections of each lane.
    /// Default: [`ConnectionLimits::default`].
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
