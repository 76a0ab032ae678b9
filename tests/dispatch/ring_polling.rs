//! Threads of lanes that poll connections in shared memory. They poll no connection while they read
//! or run a request, and other threads get the requests that arrive in this time.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelane::mapping::Operation;
use corelane::poa::PoaPolicies;
use corelane::rt::{RtPolicies, ThreadpoolConfig};
use corelane::{
    CallPolicies, ConnectionPoolExhaustedAction, Dispatch, ObjectRef, Orb, OrbBuilder, PoolConfig, Servant, ServerCall,
    Skeleton, SpinPolicy, SyncScope, SystemException, Transports,
};
use corelane_net::{
    Peer, PolledInput, SharedMemoryTransport, ShutdownDirection, SpinWait, Stream, WaitLimit, spinning_thread_count,
};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{self, CpuSet};
use corelane_tests::real_time::require_fifo;
use corelane_tests::stream_wrapper::wrap_streams;
use corelane_tests::{Probe, ProbeRef, Server, TestProbe, serve_with};

const POOLS: [Dispatch; 2] = [Dispatch::Reactive, Dispatch::LeaderFollowers { threads: 4 }];
const ALWAYS: SpinPolicy = SpinPolicy::Always { max_spin: SpinPolicy::MAX_SPIN };
const PATIENCE: Duration = Duration::from_secs(60);

/// The tests run one after the other, because a process has few permits to poll.
static ALONE: Mutex<()> = Mutex::new("tests of polling", LockScope::Orb, ());

/// Runs `test` on two cores. The argument of `test` moves the calling thread to the core for
/// servers (true) or to the core for clients (false), because a thread polls only if its peer runs
/// on another core.
fn with_two_cores(test: impl FnOnce(&dyn Fn(bool))) {
    let _alone = ALONE.lock();
    let permitted = thread::affinity(None).unwrap();
    let cores: Vec<usize> = permitted.iter().take(2).collect();
    let [for_servers, for_clients] = cores[..] else { return };
    test(&|is_server| {
        let core = if is_server { for_servers } else { for_clients };
        thread::set_affinity(None, &CpuSet::one(core)).unwrap();
    });
    thread::set_affinity(None, &permitted).unwrap();
}

fn address(name: &str) -> String {
    format!("shm:{}", std::env::temp_dir().join(format!("corelane-rings-{}-{name}", std::process::id())).display())
}

fn pool(dispatch: Dispatch) -> PoolConfig {
    PoolConfig::default().dispatch(dispatch).spin_policy(Some(ALWAYS))
}

fn client() -> OrbBuilder {
    Orb::builder().spin_policy(SpinPolicy::Never)
}

fn probe_of(orb: &Orb, server: &Server) -> ProbeRef {
    orb.string_to_reference(&server.ior).unwrap()
}

thread_local! {
    /// The streams that this thread polls.
    static POLLED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Records how the threads of a server use the interface for polling.
struct Log {
    faults: Mutex<BTreeSet<&'static str>>,
    polls: AtomicU64,
    /// Greatest number of streams that one thread has polled at the same time.
    most: AtomicUsize,
    streams: AtomicUsize,
    has_one_thread: bool,
}

impl Log {
    fn new(has_one_thread: bool) -> Arc<Self> {
        Arc::new(Log {
            faults: Mutex::new("faults", LockScope::Orb, BTreeSet::new()),
            polls: AtomicU64::new(0),
            most: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            has_one_thread,
        })
    }

    /// Returns shared memory whose accepted streams write this log.
    fn transports(self: &Arc<Self>) -> Transports {
        let log = Arc::clone(self);
        let logged = wrap_streams(Arc::new(SharedMemoryTransport::default()), move |inner, connected_to| {
            if connected_to.is_some() {
                return inner;
            }
            let id = log.streams.fetch_add(1, Ordering::Relaxed);
            Box::new(Logged { inner, id, is_polled: AtomicBool::new(false), log: Arc::clone(&log) })
        });
        Transports::new(vec![logged])
    }

    fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    fn require(&self, holds: bool, fault: &'static str) {
        if !holds {
            self.faults.lock().insert(fault);
        }
    }

    fn assert_no_faults(&self) {
        assert_eq!(*self.faults.lock(), BTreeSet::new());
    }
}

struct Logged {
    inner: Box<dyn Stream>,
    id: usize,
    is_polled: AtomicBool,
    log: Arc<Log>,
}

impl Logged {
    fn input(&self) -> &dyn PolledInput {
        self.inner.polled_input().unwrap()
    }

    fn is_polled_here(&self) -> bool {
        POLLED.with_borrow(|polled| polled.contains(&self.id))
    }

    fn end(&self) {
        self.log.require(self.is_polled_here(), "a thread ends polling of a stream that it does not poll");
        POLLED.with_borrow_mut(|polled| polled.retain(|id| *id != self.id));
        self.is_polled.store(false, Ordering::Relaxed);
    }
}

impl fmt::Debug for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PolledInput for Logged {
    fn begin_polling(&self) -> bool {
        let begins = self.input().begin_polling();
        if begins {
            self.log.require(!self.is_polled.swap(true, Ordering::Relaxed), "two threads poll a stream");
            let count = POLLED.with_borrow_mut(|polled| {
                polled.push(self.id);
                polled.len()
            });
            self.log.most.fetch_max(count, Ordering::Relaxed);
        }
        begins
    }

    fn poll(&self) -> bool {
        self.log.require(self.is_polled_here(), "a thread polls a stream that it has not claimed");
        self.log.polls.fetch_add(1, Ordering::Relaxed);
        self.input().poll()
    }

    fn stop_polling(&self) -> bool {
        self.end();
        self.input().stop_polling()
    }

    fn end_polling(&self) {
        self.end();
        self.input().end_polling();
    }

    fn position(&self) -> u32 {
        self.input().position()
    }
}

impl Stream for Logged {
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        let polls_others = POLLED.with_borrow(|polled| polled.iter().any(|id| *id != self.id));
        self.log.require(!polls_others, "a thread reads a stream while it polls another");
        let holds_permit = self.log.has_one_thread && spinning_thread_count() > 0;
        self.log.require(!holds_permit, "a thread reads while it holds a permit to poll");
        self.inner.recv(buffer, wait)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        self.log.require(POLLED.with_borrow(Vec::is_empty), "a thread sends while it polls");
        self.inner.send_vectored(slices, wait)
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness_descriptor()
    }

    fn reports_every_arrival(&self) -> bool {
        self.inner.reports_every_arrival()
    }

    fn arm_readiness(&self) -> io::Result<Option<bool>> {
        self.inner.arm_readiness()
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        self.inner.set_coarse_timeouts(receive, send)
    }

    fn set_spin_policy(&self, policy: SpinPolicy) {
        self.inner.set_spin_policy(policy);
    }

    fn begin_spin(&self) -> Option<SpinWait<'_>> {
        self.inner.begin_spin()
    }

    fn polled_input(&self) -> Option<&dyn PolledInput> {
        Some(self)
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        self.inner.shutdown(direction);
    }

    fn peer(&self) -> &Peer {
        self.inner.peer()
    }
}

/// A servant whose operations have neither arguments nor results.
struct Plain<F>(F);

impl<F: Fn(&[u8]) + Send + Sync + 'static> Skeleton for Plain<F> {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Plain:1.0"]
    }

    fn dispatch(&self, operation: &[u8], _: &mut ServerCall<'_>) -> Result<(), SystemException> {
        (self.0)(operation);
        Ok(())
    }
}

fn plain(run: impl Fn(&[u8]) + Send + Sync + 'static) -> Servant {
    Servant::new(Plain(run))
}

fn call(object: &ObjectRef, operation: &'static str) {
    object.invoke(&Operation::new(operation), &|_| Ok(())).unwrap();
}

fn send_oneway(object: &ObjectRef, operation: &'static str) {
    object.send_oneway(&Operation::new(operation), &|_| Ok(())).unwrap();
}

/// Makes calls over three connections until `is_enough` returns true.
fn call_until(probes: &[ProbeRef], is_enough: impl Fn() -> bool) {
    let large = vec![7; 200_000];
    let begun = Instant::now();
    for round in 0.. {
        if round >= 300 && is_enough() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "no thread polls");
        for probe in probes {
            assert_eq!(probe.cube_long(3).unwrap(), 27);
            if round % 10 == 0 {
                assert_eq!(probe.mirror(&large).unwrap().as_slice(), large);
            }
        }
    }
}

#[test]
fn thread_that_reads_or_runs_a_request_polls_nothing() {
    with_two_cores(|run_on| {
        for dispatch in POOLS {
            let log = Log::new(dispatch == Dispatch::Reactive);
            run_on(true);
            let builder = Orb::builder().transports(log.transports()).pool(pool(dispatch));
            let server = serve_with(builder.listen(address("invariant")));
            run_on(false);
            let orbs: Vec<Orb> = (0..3).map(|_| client().build().unwrap()).collect();
            let probes: Vec<ProbeRef> = orbs.iter().map(|orb| probe_of(orb, &server)).collect();
            call_until(&probes, || log.most.load(Ordering::Relaxed) == 3);
            log.assert_no_faults();
        }
    });
}

#[test]
fn thread_of_fixed_priority_polls_one_connection() {
    require_fifo();
    with_two_cores(|run_on| {
        let log = Log::new(false);
        run_on(true);
        let builder = Orb::builder().transports(log.transports()).listen(address("fixed"));
        let server = serve_with(builder);
        let max_spin = Duration::from_millis(1);
        let config = ThreadpoolConfig::default().static_threads(2).spin_policy(Some(SpinPolicy::Always { max_spin }));
        let threads = server.orb.real_time().create_threadpool(&config).unwrap();
        let policies = RtPolicies { threadpool: Some(threads), ..RtPolicies::default() };
        let root = server.orb.root_poa();
        let poa = root.create_rt_poa("fixed", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
        let object = poa.activate(&Probe::servant(TestProbe::default())).unwrap().to_string();
        run_on(false);
        let orbs: Vec<Orb> = (0..3).map(|_| client().build().unwrap()).collect();
        let probes: Vec<ProbeRef> = orbs.iter().map(|orb| orb.string_to_reference(&object).unwrap()).collect();
        call_until(&probes, || log.polls() > 0);
        assert_eq!(log.most.load(Ordering::Relaxed), 1);
        log.assert_no_faults();
    });
}

#[test]
fn thread_polls_again_after_a_task() {
    with_two_cores(|run_on| {
        let log = Log::new(true);
        run_on(true);
        let builder = Orb::builder().transports(log.transports()).pool(pool(Dispatch::Reactive));
        let server = serve_with(builder.listen(address("task")));
        let held_poa = server.orb.root_poa().create_poa("held", None, PoaPolicies::default()).unwrap();
        let polls_at_task = Arc::new(AtomicU64::new(0));
        let (at_task, polled) = (Arc::clone(&polls_at_task), Arc::clone(&log));
        let servant = plain(move |_| at_task.store(polled.polls() + 1, Ordering::SeqCst));
        let held = held_poa.activate(&servant).unwrap().to_string();
        run_on(false);
        let orb = client().max_connections_per_server(1).build().unwrap();
        let held = orb.string_to_object(&held).unwrap().unwrap();
        let probe = probe_of(&orb, &server);
        let begun = Instant::now();
        let await_polls = |count| {
            let time = Instant::now();
            while log.polls() < count && time.elapsed() < SpinPolicy::MAX_SPIN {
                std::thread::yield_now();
            }
            log.polls() >= count
        };
        let is_polling_again = || {
            held_poa.manager().hold_requests(false).unwrap();
            polls_at_task.store(0, Ordering::SeqCst);
            send_oneway(&held, "note");
            // The reply shows that the server has read the oneway, which precedes the request.
            assert_eq!(probe.cube_long(3).unwrap(), 27);
            let is_polling = await_polls(log.polls() + 100);
            // The activation hands the held oneway to the lane as a task.
            held_poa.manager().activate().unwrap();
            while polls_at_task.load(Ordering::SeqCst) == 0 {
                assert!(begun.elapsed() < PATIENCE, "the held request does not run");
                std::thread::yield_now();
            }
            is_polling && await_polls(polls_at_task.load(Ordering::SeqCst) + 1000)
        };
        // A thread that polls too late gets the task without polling, and its round does not count
        // as a success. So the test needs ten successful rounds, in any number of rounds.
        let mut successes = 0;
        while successes < 10 {
            assert!(begun.elapsed() < PATIENCE, "the thread does not poll after the task");
            successes += u32::from(is_polling_again());
        }
    });
}

/// The reply to a oneway with `SyncScope::Server` precedes the upcall. The upcall waits for a later
/// request of its connection.
#[test]
fn later_request_arrives_during_an_upcall_that_has_been_answered() {
    with_two_cores(|run_on| {
        let opened = Arc::new(AtomicU64::new(0));
        let has_missed = Arc::new(AtomicBool::new(false));
        let (waits, missed) = (AtomicU64::new(0), Arc::clone(&has_missed));
        let servant = plain(move |operation| match operation {
            b"wait" => {
                let (number, begun) = (waits.fetch_add(1, Ordering::SeqCst), Instant::now());
                while opened.load(Ordering::SeqCst) <= number {
                    if begun.elapsed() >= PATIENCE {
                        missed.store(true, Ordering::SeqCst);
                        return;
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            b"open" => _ = opened.fetch_add(1, Ordering::SeqCst),
            _ => {}
        });
        run_on(true);
        let builder = Orb::builder().pool(pool(Dispatch::LeaderFollowers { threads: 4 }));
        let orb = builder.listen(address("early")).build().unwrap();
        let object = orb.root_poa().activate(&servant).unwrap().to_string();
        orb.root_poa().manager().activate().unwrap();
        run_on(false);
        let shared = client()
            .max_connections_per_server(1)
            .on_connection_pool_exhausted(ConnectionPoolExhaustedAction::Multiplex);
        let shared = shared.build().unwrap();
        let object = shared.string_to_object(&object).unwrap().unwrap();
        let answered_first =
            object.with_policies(CallPolicies { sync_scope: Some(SyncScope::Server), ..CallPolicies::NONE });
        for _ in 0..200 {
            call(&object, "nothing");
            send_oneway(&answered_first, "wait");
            call(&object, "open");
            assert!(!has_missed.load(Ordering::SeqCst), "a request waited for the upcall that precedes it");
        }
        drop(orb);
    });
}

/// While a thread waits in an upcall for the reply of its caller's ORB, the nested request arrives
/// on another connection, which the thread has polled.
#[test]
fn nested_requests_arrive_on_connections_that_the_waiting_thread_polled() {
    with_two_cores(|run_on| {
        for dispatch in POOLS {
            let serve = |name| serve_with(Orb::builder().pool(pool(dispatch)).listen(address(name)));
            run_on(true);
            let server = serve("nested");
            run_on(false);
            let caller = serve("caller");
            let probe = probe_of(&caller.orb, &server);
            for _ in 0..200 {
                assert_eq!(probe.call_back(Some(&caller.probe), 5).unwrap(), 5);
                assert_eq!(probe.cube_long(3).unwrap(), 27);
            }
        }
    });
}
