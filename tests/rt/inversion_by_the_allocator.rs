//! An allocator that all priorities share causes priority inversion: a low servant holds its lock,
//! which the thread of the high lane takes whenever it allocates.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use corelane::poa::PoaPolicies;
use corelane::rt::{LaneConfig, LanesConfig, PriorityModel, RtPolicies};
use corelane::{ObjectRef, Orb, Servant, ServerCall, Skeleton, SystemException};
use corelane_sys::alloc::CountingAllocator;
use corelane_tests::real_time::{RawClient, decode_reference, fair_orb, wait_until};

const LOW: i16 = 10;
const HIGH: i16 = 20;

#[derive(Default)]
struct State {
    holding: AtomicBool,
    release: AtomicBool,
    begun: AtomicUsize,
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
            CountingAllocator::with_lock_held(|| {
                state.holding.store(true, SeqCst);
                let end = corelane_sys::clock::now() + std::time::Duration::from_secs(10);
                while !state.release.load(SeqCst) && !end.is_past() {
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                state.before.store(state.run.load(SeqCst), SeqCst);
            });
            return Ok(());
        }
        CountingAllocator::lock_each_allocation();
        let argument = call.arguments().read_u32()?;
        state.begun.fetch_add(1, SeqCst);
        if operation == b"text" {
            let text = format!("the text for {argument}, which needs an allocation");
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
    let lanes = [LOW, HIGH].map(|priority| LaneConfig::default().priority(priority));
    let pool = orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap();
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

/// Lets a low servant hold the allocator's lock, and calls `operation` at high priority. Returns 1
/// if the high operation ended before the low servant released the lock, otherwise 0.
fn beside_a_holder(operation: &str) -> usize {
    let (_orb, object, state) = server();
    let ports = decode_reference(&object).lanes;
    let [mut low, mut high] = [ports[0].0, ports[1].0].map(|port| RawClient::connect(&object, port));
    // The first requests enlarge the buffers to their final size.
    for _ in 0..3 {
        high.send_at_priority(operation, HIGH, Some(1));
        assert_eq!(high.receive_void_reply(), None);
    }
    state.run.store(0, SeqCst);
    low.send_at_priority("hold", LOW, None);
    wait_until(|| state.holding.load(SeqCst));
    let begun = state.begun.load(SeqCst);
    high.send_at_priority(operation, HIGH, Some(1));
    if operation == "plain" {
        // Neither the request nor the reply needs the allocator.
        assert_eq!(high.receive_void_reply(), None);
    } else {
        wait_until(|| state.begun.load(SeqCst) > begun);
    }
    state.release.store(true, SeqCst);
    if operation != "plain" {
        assert_eq!(high.receive_void_reply(), None);
    }
    assert_eq!(low.receive_void_reply(), None);
    state.before.load(SeqCst)
}

#[test]
fn allocated_result_waits_for_the_low_thread_and_plain_result_does_not() {
    assert_eq!(beside_a_holder("text"), 0, "inversion");
    assert_eq!(beside_a_holder("plain"), 1, "none");
}
