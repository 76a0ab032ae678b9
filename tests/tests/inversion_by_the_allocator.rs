//! An allocator that all priorities share is a source of priority inversion: here with one lock, which a thread passes
//! that says so.
//!
//! A low servant is made to hold that lock, as one that is preempted in the allocator. The high lane passes the lock whenever it allocates, from
//! reading the request to sending the reply. What happens in which order decides, not how long it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtPolicies};
use corelane::{ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException};
use corelane_sys::alloc::Counting;
use corelane_tests::real_time::{RawClient, fair_orb, said, until};

const LOW: i16 = 10;
const HIGH: i16 = 20;

/// What the servants have done.
#[derive(Default)]
struct State {
    holding: AtomicBool,
    release: AtomicBool,
    begun: AtomicUsize,
    /// Requests of high priority that had run when the low one let go.
    run: AtomicUsize,
    before: AtomicUsize,
}

struct Allocating(Arc<State>);

impl Skeleton for Allocating {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Allocating:1.0"]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let state = &self.0;
        if operation == b"hold" {
            Counting::hold_lock(|| {
                state.holding.store(true, SeqCst);
                let end = corelane_sys::clock::now() + std::time::Duration::from_secs(10);
                while !state.release.load(SeqCst) && !end.is_past() {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                state.before.store(state.run.load(SeqCst), SeqCst);
            });
            return Ok(());
        }
        // The high lane's thread, from its first request on.
        Counting::pass_lock();
        let argument = call.arguments().read_u32()?;
        state.begun.fetch_add(1, SeqCst);
        if operation == b"text" {
            let text = format!("{argument}, and where to put it has to be asked for");
            call.reply().write_latin1_str(&text)?;
        } else {
            call.reply().write_u32(argument);
        }
        state.run.fetch_add(1, SeqCst);
        Ok(())
    }
}

fn server() -> (Orb, ObjectRef, Arc<State>) {
    let orb = fair_orb();
    let lanes = [LOW, HIGH].map(|priority| LaneConfig { priority, ..LaneConfig::default() }).into();
    let pool = orb.real_time().create_threadpool_with_lanes(&LanesConfig { lanes, ..LanesConfig::default() }).unwrap();
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, LOW)),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let (root, state) = (orb.root_poa(), Arc::new(State::default()));
    let poa = root.create_rt_poa("lanes", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let object = poa.activate(&Servant::new(Allocating(Arc::clone(&state)))).unwrap();
    (orb, object, state)
}

/// A high request comes while the low servant holds the allocator; how many high ones had run before that let go.
fn beside_a_holder(operation: &str) -> usize {
    let (_orb, object, state) = server();
    let ports = said(&object).lanes;
    let [mut low, mut high] = [ports[0].0, ports[1].0].map(|port| RawClient::connect(&object, port));
    // The buffers of lane and connection have their size after the first ones.
    for _ in 0..3 {
        high.begin(operation, HIGH, Some(1));
        assert_eq!(high.receive_void(), None);
    }
    state.run.store(0, SeqCst);
    low.begin("hold", LOW, None);
    until(|| state.holding.load(SeqCst));
    let begun = state.begun.load(SeqCst);
    high.begin(operation, HIGH, Some(1));
    if operation == "plain" {
        // It is answered: nothing of the way there and back asks the allocator.
        assert_eq!(high.receive_void(), None);
    } else {
        until(|| state.begun.load(SeqCst) > begun);
    }
    state.release.store(true, SeqCst);
    if operation != "plain" {
        assert_eq!(high.receive_void(), None);
    }
    assert_eq!(low.receive_void(), None);
    state.before.load(SeqCst)
}

/// One after the other: the lock is the program's.
#[test]
fn a_result_that_is_allocated_waits_for_the_low_thread_in_the_allocator_and_a_plain_one_does_not() {
    assert_eq!(beside_a_holder("text"), 0, "inversion");
    assert_eq!(beside_a_holder("plain"), 1, "none");
}
