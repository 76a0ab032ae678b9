//! How an ORB and its thread pools are set up for real time.

use std::sync::Arc;
use std::time::Duration;

use corelane_sched::admission::Bound;
use corelane_sched::{Linear, NativeRange, NetworkPriorityMapping, Priority, PriorityMapping, PriorityTransform};
use corelane_sys::thread::{Reservation, Scheduling};
use corelane_wire::exception::minor;

use super::RtClientPolicies;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::server::config::PoolConfig;

/// Which class of the kernel's scheduler threads with a priority are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SchedulingClass {
    /// SCHED_FIFO.
    #[default]
    Fifo,
    /// SCHED_RR: equals take turns.
    RoundRobin,
    /// The ordinary class: priorities order lanes and travel with requests, but the kernel knows nothing of them. For tests and
    /// for machines that grant no better.
    Fair,
}

/// What becomes of a request whose client does not wait for it any more when its upcall would begin. It is counted and told in any
/// case ([`Event::DeadlinePassed`](crate::Event::DeadlinePassed)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Late {
    /// It runs.
    #[default]
    Run,
    /// It does not run: TIMEOUT, COMPLETED_NO.
    Drop,
    /// It runs where it belongs, at this CORBA priority at most.
    Lower(i16),
}

/// What becomes of an operation, and of its results, that took more processor time than it declares (`@wcet`). It is counted and told in any
/// case ([`Event::Overrun`](crate::Event::Overrun)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Overrun {
    /// The client gets them.
    #[default]
    Run,
    /// The client gets TIMEOUT with [`minor::OVERRUN`](crate::minor::OVERRUN), COMPLETED_YES. Exceptions that the servant raises stay.
    Drop,
    /// The client gets them, and the rest of the operation runs at this CORBA priority, if its thread has a fixed priority that is higher: it
    /// goes down while the servant runs, at the tick of the kernel's clock after it has used what it declares, and comes back with the
    /// end of the upcall. Costs two more system calls for each operation that declares something.
    Lower(i16),
}

/// What holds for all priorities of an ORB.
#[derive(Clone, Debug)]
pub struct RtConfig {
    /// Between CORBA priorities and native ones; by default linear over 1 to 99.
    pub mapping: Arc<dyn PriorityMapping>,
    /// Changes priorities of requests on the way in and out.
    pub transform: Option<Arc<dyn PriorityTransform>>,
    /// The code point of packets of a priority; by default sockets are left as they are.
    pub network: Option<Arc<dyn NetworkPriorityMapping>>,
    /// The class of threads with a priority.
    pub scheduling: SchedulingClass,
    /// What becomes of requests whose deadline passed before their upcall.
    pub late: Late,
    /// What becomes of operations that take longer than they declare.
    pub overrun: Overrun,
    /// Policies of references that say nothing themselves. With bands, calls on objects without a priority model are INV_POLICY.
    pub client: RtClientPolicies,
}

impl Default for RtConfig {
    fn default() -> Self {
        RtConfig {
            mapping: Arc::new(Linear(NativeRange::FIXED)),
            transform: None,
            network: None,
            scheduling: SchedulingClass::Fifo,
            late: Late::Run,
            overrun: Overrun::Run,
            client: RtClientPolicies::default(),
        }
    }
}

impl RtConfig {
    /// How the kernel schedules a thread of this priority; `None` where it is not told.
    ///
    /// # Errors
    /// DATA_CONVERSION 2 for a priority that cannot be mapped.
    pub(crate) fn native(&self, priority: Priority) -> Result<Option<Scheduling>, SystemException> {
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

    /// The CORBA priority of a thread scheduled like this; `None` for one without a fixed priority.
    pub(crate) fn corba(&self, native: Scheduling) -> Option<Priority> {
        match native {
            Scheduling::Fifo(native) | Scheduling::RoundRobin(native) => self.mapping.to_corba(native.into()),
            Scheduling::Other | Scheduling::Idle | Scheduling::Deadline(_) => None,
        }
    }
}

/// DATA_CONVERSION 2: the mapping, or the system, does not do it.
#[cold]
pub(crate) fn unmappable() -> SystemException {
    SystemException::new(Kind::DataConversion, minor::data_conversion::PRIORITY_MAPPING_FAILED, Completion::No)
}

/// A pool without lanes.
#[derive(Clone, Debug)]
pub struct ThreadpoolConfig {
    /// Shown in thread names.
    pub name: String,
    /// Stack of each thread in octets; 0: as other threads of the ORB.
    pub stack: usize,
    /// Threads made at once; with the dynamic ones at most 4,096.
    pub static_threads: u32,
    /// Threads made when all are busy, and given back after [`idle_time`](Self::idle_time).
    pub dynamic_threads: u32,
    /// The priority of threads that wait, and of requests without one; 0 to 32767.
    pub default_priority: i16,
    /// Requests that may wait while all threads are busy; further ones are refused with TRANSIENT 1. `None`: they stay in the
    /// transport.
    pub buffering: Option<Bound>,
    /// Addresses to listen at, as for [`OrbBuilder::listen`](crate::OrbBuilder::listen); empty: a free port beside each of the ORB's.
    pub listen: Vec<String>,
    /// The highest priority that a request coming in here may ask for; `None`: any. NO_PERMISSION beyond it.
    pub ceiling: Option<i16>,
    /// The cores that its threads may run on; empty: any.
    pub cores: Vec<usize>,
    /// How long a dynamic thread waits for work before it ends.
    pub idle_time: Duration,
    /// Bounds of connections and replies.
    pub bounds: PoolConfig,
}

impl Default for ThreadpoolConfig {
    fn default() -> Self {
        ThreadpoolConfig {
            name: "rt".into(),
            stack: 0,
            static_threads: 1,
            dynamic_threads: 0,
            default_priority: 0,
            buffering: None,
            listen: Vec::new(),
            ceiling: None,
            cores: Vec::new(),
            idle_time: IDLE,
            bounds: PoolConfig::default(),
        }
    }
}

const IDLE: Duration = Duration::from_secs(5);

/// One lane.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// Its priority, 0 to 32767.
    pub priority: i16,
    /// Threads made at once; with the dynamic ones at most 4,096.
    pub static_threads: u32,
    /// Threads made when all are busy, and given back after the pool's idle time.
    pub dynamic_threads: u32,
    /// Addresses to listen at; empty: a free port beside each of the ORB's.
    pub listen: Vec<String>,
    /// The highest priority that a request coming in here may ask for; `None`: any. NO_PERMISSION beyond it.
    pub ceiling: Option<i16>,
    /// The cores that its threads may run on; empty: any.
    pub cores: Vec<usize>,
    /// Each of its threads is in the deadline class with this much processor time, instead of at a fixed priority: it goes before every
    /// fixed priority, and never takes more. Not together with `cores` or with borrowing.
    pub reservation: Option<Reservation>,
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
        }
    }
}

/// A pool with lanes.
#[derive(Clone, Debug)]
pub struct LanesConfig {
    /// Shown in thread names.
    pub name: String,
    /// Stack of each thread in octets; 0: as other threads of the ORB.
    pub stack: usize,
    /// Its lanes, in any order.
    pub lanes: Vec<LaneConfig>,
    /// A lane whose threads are all busy may borrow an idle one of a lower lane, which runs at the lane's priority meanwhile.
    pub allow_borrowing: bool,
    /// Requests that may wait in each lane while all its threads are busy; further ones are refused with TRANSIENT 1. `None`: they
    /// stay in the transport.
    pub buffering: Option<Bound>,
    /// How long a dynamic thread waits for work before it ends.
    pub idle_time: Duration,
    /// Bounds of connections and replies, for each lane.
    pub bounds: PoolConfig,
}

impl Default for LanesConfig {
    fn default() -> Self {
        LanesConfig {
            name: "rt".into(),
            stack: 0,
            lanes: Vec::new(),
            allow_borrowing: false,
            buffering: None,
            idle_time: IDLE,
            bounds: PoolConfig::default(),
        }
    }
}
