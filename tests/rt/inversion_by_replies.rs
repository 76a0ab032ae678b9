//! Priority inversion when replies are written.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::Thread;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtPolicies, served_by};
use corelane::{ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException, Transports};
use corelane_net::{Peer, ShutdownDirection, Stream, TcpTransport, WaitLimit};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder, affinity};
use corelane_tests::real_time::{RawClient, Reporter, decode_reference, fifo_orb, require_fifo, wait_until};
use corelane_tests::stream_wrapper::wrap_streams;

const LOW: i16 = 335;
const HIGH: i16 = 16384;
const NATIVE_LOW: u8 = 2;
const NATIVE_MIDDLE: u8 = 25;
const NATIVE_HIGH: u8 = 50;

fn last_core() -> usize {
    affinity(None).unwrap().iter().last().unwrap()
}

fn in_lanes<const N: usize>(orb: &Orb, servants: [Servant; N]) -> [ObjectRef; N] {
    let lane = |priority| LaneConfig::default().priority(priority).cores([last_core()]);
    let config = LanesConfig::default().lanes([lane(LOW), lane(HIGH)]);
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, LOW)),
        threadpool: Some(orb.real_time().create_threadpool_with_lanes(&config).unwrap()),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("lanes", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    servants.map(|servant| poa.activate(&servant).unwrap())
}

/// A servant whose reply exceeds the buffers, so that a peer that does not read blocks the
/// servant's thread.
struct Large;

impl Skeleton for Large {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Large:1.0"]
    }

    fn dispatch(&self, _: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        call.reply().write_bytes(&vec![0; 32 << 20]);
        Ok(())
    }
}

#[test]
fn on_a_connection_of_two_priorities_the_high_reply_is_behind_the_low_one() {
    let orb = fifo_orb();
    let [large, object] = in_lanes(&orb, [Servant::new(Large), Reporter::new(&orb).servant()]);
    let ports = decode_reference(&object).lanes;
    let mut both = RawClient::connect(&large, ports[0].0);
    let low = both.send_at_priority("fetch", LOW, None);
    both.wait_for_data();
    both.set_target(&object);
    let high = both.send_at_priority("who", HIGH, None);
    assert_eq!(RawClient::connect(&object, ports[1].0).who(Some(HIGH)).who().native, NATIVE_HIGH);
    assert_eq!([both.receive_reply_id(), both.receive_reply_id()], [low, high]);
}

#[test]
fn with_a_connection_for_each_priority_an_unread_low_reply_delays_no_other() {
    let orb = fifo_orb();
    let [large, object] = in_lanes(&orb, [Servant::new(Large), Reporter::new(&orb).servant()]);
    let ports = decode_reference(&object).lanes;
    let mut low = RawClient::connect(&large, ports[0].0);
    let sent = low.send_at_priority("fetch", LOW, None);
    low.wait_for_data();
    let mut high = RawClient::connect(&object, ports[1].0);
    assert_eq!(high.who(Some(HIGH)).who().native, NATIVE_HIGH);
    assert_eq!(RawClient::connect(&object, ports[0].0).who(Some(LOW)).who().native, NATIVE_LOW);
    assert_eq!(low.receive_reply_id(), sent);
}

#[derive(Debug)]
struct Stage {
    armed: AtomicBool,
    writing: Mutex<Option<Thread>>,
    high_has_run: AtomicBool,
    order: Mutex<Vec<u8>>,
    largest: Mutex<BTreeMap<u8, usize>>,
}

impl Stage {
    fn new() -> Arc<Self> {
        Arc::new(Stage {
            armed: AtomicBool::new(false),
            writing: Mutex::new("who writes", LockScope::Orb, None),
            high_has_run: AtomicBool::new(false),
            order: Mutex::new("order", LockScope::Orb, Vec::new()),
            largest: Mutex::new("largest", LockScope::Orb, BTreeMap::new()),
        })
    }

    /// Sends a reply and records its size. If the test is armed, also records the priority of the
    /// sending thread, and delays the reply of a low thread until the high operation has run, as a
    /// preemption of this thread would.
    fn send(&self, octets: usize, send: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        let Some(Scheduling::Fifo(native)) = served_by().scheduling else { return send() };
        {
            let mut largest = self.largest.lock();
            let most = largest.entry(native).or_default();
            *most = octets.max(*most);
        }
        if !self.armed.load(SeqCst) {
            return send();
        }
        if native == NATIVE_LOW {
            *self.writing.lock() = Some(std::thread::current());
            while !self.high_has_run.load(SeqCst) {
                std::thread::park();
            }
        }
        let sent = send();
        self.order.lock().push(native);
        sent
    }
}

#[derive(Debug)]
struct Staged(Box<dyn Stream>, Arc<Stage>);

impl Stream for Staged {
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        self.0.recv(buffer, wait)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        let octets = slices.iter().map(|slice| slice.len()).sum();
        self.1.send(octets, || self.0.send_vectored(slices, wait))
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.readiness_descriptor()
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        self.0.set_coarse_timeouts(receive, send)
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        self.0.shutdown(direction);
    }

    fn peer(&self) -> &Peer {
        self.0.peer()
    }
}

fn staged(stage: &Arc<Stage>) -> Orb {
    require_fifo();
    let own = Arc::clone(stage);
    let tcp = wrap_streams(Arc::new(TcpTransport::new()), move |stream, made_to| match made_to {
        None => Box::new(Staged(stream, Arc::clone(&own))),
        Some(_) => stream,
    });
    let transports = Transports::new(vec![tcp]);
    let orb = Orb::builder().transports(transports).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

struct Releasing(Arc<Stage>, Thread, Arc<AtomicBool>);

impl Skeleton for Releasing {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Releasing:1.0"]
    }

    fn dispatch(&self, operation: &[u8], _: &mut ServerCall<'_>) -> Result<(), SystemException> {
        if operation == b"high" {
            self.0.high_has_run.store(true, SeqCst);
            if let Some(low) = &*self.0.writing.lock() {
                low.unpark();
            }
            self.2.store(true, SeqCst);
            self.1.unpark();
        }
        Ok(())
    }
}

/// Lets a low and a high thread reply on one connection, beside a middle thread. The low thread
/// holds the connection's output when the high reply must be written.
///
/// Returns the native priorities in the order in which the replies are sent and the middle thread
/// runs. If `older`, the connection is older than the pool, and its output lock has no priority
/// inheritance.
fn order_of_replies(older: bool) -> Vec<u8> {
    let (stage, ready) = (Stage::new(), Arc::new(AtomicBool::new(false)));
    let middle = {
        let (stage, ready) = (Arc::clone(&stage), Arc::clone(&ready));
        let builder = ThreadBuilder::new().name("middle").affinity(CpuSet::one(last_core()));
        let body = move || {
            while !ready.load(SeqCst) {
                std::thread::park();
            }
            stage.order.lock().push(NATIVE_MIDDLE);
        };
        builder.scheduling(Scheduling::Fifo(NATIVE_MIDDLE)).spawn(body).unwrap()
    };
    let orb = staged(&stage);
    let plain = orb.root_poa().activate(&Reporter::new(&orb).servant()).unwrap();
    let connect = || {
        let mut client = RawClient::for_object(&plain);
        // The reply shows that the server has accepted the connection.
        let _ = client.who(None).who();
        client
    };
    let before = older.then(connect);
    let servant = Servant::new(Releasing(Arc::clone(&stage), middle.thread().clone(), ready));
    let [object] = in_lanes(&orb, [servant]);
    let mut client = before.unwrap_or_else(connect);
    stage.armed.store(true, SeqCst);
    client.set_target(&object);
    let low = client.send_at_priority("low", LOW, None);
    wait_until(|| stage.writing.lock().is_some());
    let high = client.send_at_priority("high", HIGH, None);
    assert_eq!([client.receive_reply_id(), client.receive_reply_id()], [low, high]);
    middle.join().unwrap();
    stage.order.lock().clone()
}

#[test]
fn without_priority_inheritance_the_middle_thread_runs_before_both_replies() {
    assert_eq!(order_of_replies(true), [NATIVE_MIDDLE, NATIVE_LOW, NATIVE_HIGH]);
}

#[test]
fn thread_that_waits_to_reply_lends_its_priority_to_the_writer() {
    assert_eq!(order_of_replies(false), [NATIVE_LOW, NATIVE_HIGH, NATIVE_MIDDLE]);
}

/// A long write would delay urgent threads, because it returns after the kernel has copied all
/// bytes.
#[test]
fn replies_below_the_highest_priority_are_written_in_slices() {
    let stage = Stage::new();
    let orb = staged(&stage);
    let [large] = in_lanes(&orb, [Servant::new(Large)]);
    for (port, priority) in decode_reference(&large).lanes {
        let mut client = RawClient::connect(&large, port);
        let sent = client.send_at_priority("fetch", priority, None);
        assert_eq!(client.receive_reply_id(), sent);
    }
    let largest = stage.largest.lock().clone();
    assert_eq!(largest[&NATIVE_LOW], 64 << 10);
    assert!(largest[&NATIVE_HIGH] > 32 << 20, "{largest:?}");
}
