//! A server with a core pool, whose objects belong to tasks.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::mapping::Operation;
use corelane::poa::{IdAssignment, ObjectId, Poa, PoaPolicies};
use corelane::rt::{
    CorePool, CorePoolConfig, PriorityModel, RtPolicies, TaskBinder, TaskBinding, is_job_over_budget, served_by,
};
use corelane::{ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{Scheduling, scheduling};
use corelane_sys::usage::thread_time;

use crate::real_time::wait_until;

/// Binds each object with an id like `task-7` to the task with this number.
#[derive(Debug)]
pub struct ByName;

impl TaskBinder for ByName {
    fn task_of(&self, object_key: &[u8]) -> Option<u64> {
        let at = object_key.windows(5).rposition(|octets| octets == b"task-")?;
        std::str::from_utf8(&object_key[at + 5..]).ok()?.parse().ok()
    }
}

/// The thread that served a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The core on which the operation ended.
    pub core: usize,
    /// The thread's fixed priority, or 0 in the ordinary scheduling class.
    pub native: u8,
    /// The priority that RTCurrent shows, or -1 if it is unset.
    pub priority: i16,
    /// The thread's name.
    pub thread: String,
    /// True if the request arrived at another lane than the lane that served it.
    pub handed_over: bool,
}

impl Served {
    /// Returns true if the thread is a bound thread of a core pool, by its name.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.thread.contains("/b")
    }
}

/// The state that the servants of a [`Scene`] share.
#[derive(Debug, Default)]
pub struct State {
    orb: OnceLock<corelane::rt::RtOrb>,
    /// Arguments of finished operations.
    pub steps: Steps,
    /// Number of operations that bound threads have run.
    pub bound: AtomicU32,
    /// Number of operations that have begun to wait for the gate.
    pub held: AtomicU32,
    /// True if waiting operations may return.
    pub open: AtomicBool,
    /// Target of `pass`.
    pub other: OnceLock<ObjectRef>,
}

/// The arguments of operations, in the order in which the operations ended.
#[derive(Debug)]
pub struct Steps(pub Mutex<Vec<u32>>);

impl Default for Steps {
    fn default() -> Self {
        Steps(Mutex::new("steps", LockScope::Orb, Vec::new()))
    }
}

struct Stepper(Arc<State>);

/// An operation that returns at once.
pub static STEP: Operation = Operation::new("step");
/// An operation that waits until [`State::open`] is true.
pub static HOLD: Operation = Operation::new("hold");
/// An operation that returns at once, and that tests call as a oneway.
pub static NOTE: Operation = Operation::new("note");
/// An operation that spins until its thread runs in the ordinary scheduling class, for at most 2 s.
pub static DEMOTED: Operation = Operation::new("demoted");
/// An operation that spins until its thread runs in the ordinary scheduling class, for at most 2 s,
/// and then waits until [`State::open`] is true.
pub static LOW: Operation = Operation::new("low");
/// An operation that spins until its job is over its budget, for at most 2 s.
pub static OVER: Operation = Operation::new("over");
/// An operation that sleeps for as many milliseconds as its argument says.
pub static REST: Operation = Operation::new("rest");

/// Size in bytes of the result of `fill`: more than the sockets of a connection can buffer.
const LARGE: usize = 16 << 20;

impl Skeleton for Stepper {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Stepper:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let state = &self.0;
        if !matches!(
            operation,
            b"step" | b"note" | b"hold" | b"pass" | b"demoted" | b"low" | b"over" | b"rest" | b"fill"
        ) {
            return Err(SystemException::bad_operation());
        }
        let number = call.arguments().read_u32()?;
        match operation {
            b"hold" | b"fill" => {
                state.held.fetch_add(1, Ordering::SeqCst);
                wait_until(|| state.open.load(Ordering::SeqCst));
            }
            b"pass" => {
                let other = state.other.get().expect("the test has set the other object");
                step(other, &STEP, number)?;
            }
            b"demoted" => spin_until(|| scheduling(None).unwrap() == Scheduling::Other),
            b"low" => {
                spin_until(|| scheduling(None).unwrap() == Scheduling::Other);
                state.held.fetch_add(1, Ordering::SeqCst);
                wait_until(|| state.open.load(Ordering::SeqCst));
            }
            b"over" => spin_until(is_job_over_budget),
            b"rest" => std::thread::sleep(Duration::from_millis(number.into())),
            _ => {}
        }
        state.steps.0.lock().push(number);
        let by = served_by();
        if by.thread.contains("/b") {
            state.bound.fetch_add(1, Ordering::SeqCst);
        }
        let native = match by.scheduling {
            Some(Scheduling::Fifo(native) | Scheduling::RoundRobin(native)) => native,
            _ => 0,
        };
        let current = state.orb.get().and_then(|orb| orb.current().ok()?.the_priority().ok());
        let reply = call.reply();
        reply.write_u32(by.core.unwrap_or(usize::MAX) as u32);
        reply.write_u8(native);
        reply.write_i16(current.unwrap_or(-1));
        reply.write_bool(by.was_handed_over);
        reply.write_latin1_str(&by.thread)?;
        if operation == b"fill" {
            reply.write_octet_sequence_copied(&vec![0; LARGE])?;
        }
        Ok(())
    }
}

/// Spins until `done` returns true, for at most 2 s of processor time.
fn spin_until(done: impl Fn() -> bool) {
    let end = thread_time() + Duration::from_secs(2);
    while !done() && thread_time() < end {}
}

/// Calls `operation` with the argument `number`. Returns the thread that served the request.
///
/// # Errors
/// The exceptions of the call.
pub fn step(object: &ObjectRef, operation: &Operation<'_>, number: u32) -> Result<Served, SystemException> {
    let mut reply = object.invoke(operation, &|encoder| {
        encoder.write_u32(number);
        Ok(())
    })?;
    reply.read(|decoder| {
        Ok(Served {
            core: decoder.read_u32()? as usize,
            native: decoder.read_u8()?,
            priority: decoder.read_i16()?,
            handed_over: decoder.read_bool()?,
            thread: decoder.read_string()?,
        })
    })
}

/// A server with a core pool and the objects `task-1`, `task-2` and `plain`.
#[derive(Debug)]
pub struct Scene {
    /// The server's ORB.
    pub orb: Orb,
    /// The core pool.
    pub pool: CorePool,
    /// The objects' POA.
    pub poa: Poa,
    /// The servants' state.
    pub state: Arc<State>,
}

impl Scene {
    /// Creates the core pool, a POA that uses it, and the three objects.
    ///
    /// # Panics
    /// Panics if the ORB refuses a step.
    #[must_use]
    pub fn new(orb: Orb, config: CorePoolConfig) -> Self {
        Self::with_binder(orb, config, Arc::new(ByName))
    }

    /// Creates the scene of [`new`](Self::new) with another binder of tasks.
    ///
    /// # Panics
    /// Panics if the ORB refuses a step.
    #[must_use]
    pub fn with_binder(orb: Orb, config: CorePoolConfig, binder: Arc<dyn TaskBinder>) -> Self {
        let pool = orb.real_time().create_core_pool(&config, binder).unwrap();
        let root = orb.root_poa();
        let policies = RtPolicies {
            priority_model: Some((PriorityModel::ClientPropagated, 0)),
            threadpool: Some(pool.id()),
            ..RtPolicies::default()
        };
        let ids = PoaPolicies { id_assignment: IdAssignment::User, ..PoaPolicies::default() };
        let poa = root.create_rt_poa("tasks", Some(root.manager()), ids, &policies).unwrap();
        let state = Arc::new(State::default());
        assert!(state.orb.set(orb.real_time()).is_ok());
        for id in ["task-1", "task-2", "plain"] {
            let servant = Servant::new(Stepper(Arc::clone(&state)));
            poa.activate_object_with_id(&ObjectId::from(id.as_bytes()), &servant).unwrap();
        }
        Scene { orb, pool, poa, state }
    }

    /// Returns a reference of the ORB `client` to the object with this id.
    ///
    /// # Panics
    /// Panics if the reference cannot be used.
    #[must_use]
    pub fn object(&self, client: &Orb, id: &str) -> ObjectRef {
        let object = self.poa.id_to_reference(&ObjectId::from(id.as_bytes())).unwrap();
        client.string_to_object(&object.to_string()).unwrap().unwrap()
    }

    /// Replaces the tasks of the pool.
    ///
    /// # Panics
    /// Panics if the pool refuses them.
    pub fn set(&self, tasks: &[TaskBinding]) {
        self.pool.set_tasks(tasks).unwrap();
    }
}

/// Makes a binding without rules of `task` to a core and a native priority.
#[must_use]
pub fn task(task: u64, core: usize, priority: u8) -> TaskBinding {
    TaskBinding::new(task, core, priority)
}
