//! Tests of admission: each bound separately, and properties of all bounds together.

use std::num::NonZeroU32;

use corelane_sched::simulation::{ArrivalPattern, CoreAssignment, SchedulingRule, SimulatedSystem, simulate};
use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;

fn resources() -> StreamResources {
    StreamResources {
        link_bits_per_second: 1_000_000_000,
        vlan_tags: 0,
        processing_cost: ProcessingCost { per_period: 10_000, per_packet: 5_000, per_kibibyte: 1_000 },
        max_total_memory: 10 << 20,
        best_effort_minimum: BestEffortMinimum { link_thousandths: 200, processor_thousandths: 100 },
        dispatch_tasks: BTreeMap::new(),
    }
}

fn polling(budget: Budget, deadline: Nanos) -> StreamLoad {
    StreamLoad::Periodic { budget, deadline, service: BudgetServerKind::Polling }
}

fn periodic(stream: u32, packets: u32, period: Nanos) -> StreamRequest {
    StreamRequest {
        stream,
        core: 0,
        priority: 50,
        load: polling(Budget::of_packets(packets, period), period),
        max_packet_size: 1_500,
        max_blocking: 0,
        max_memory: 1 << 20,
    }
}

fn assert_offer_is_tight(admission: &StreamAdmissionState, request: &StreamRequest, refusal: &StreamRefusal) {
    let offered = refusal.admissible_packets.expect("an offer");
    let with = |packets| admission.check(&request.with_packets(packets).unwrap());
    assert_eq!(with(offered), Ok(()), "{refusal}");
    assert!(with(offered + 1).is_err(), "{refusal}");
}

#[test]
fn a_stream_that_would_miss_its_deadline_is_refused() {
    let mut admission = StreamAdmissionState::new(resources());
    admission.admit(periodic(1, 100, 10 * MS)).unwrap();
    // The cost is 10 us, and 400 packets of 5 us and 1,500 bytes each.
    let mut late = periodic(2, 400, 10 * MS);
    if let StreamLoad::Periodic { deadline, .. } = &mut late.load {
        *deadline = 3 * MS;
    }
    let refusal = admission.admit(late).unwrap_err();
    let own = 10_000 + 400 * 5_000 + (400_u64 * 1_500).div_ceil(1024) * 1_000;
    let other = 10_000 + 100 * 5_000 + (100_u64 * 1_500).div_ceil(1024) * 1_000;
    let bound =
        ViolatedBound::ResponseTime { task: AdmissionTask::Stream(2), response: Some(own + other), deadline: 3 * MS };
    assert_eq!(refusal.violated_bound, bound);
    assert!(refusal.to_string().contains("253000 ns after its deadline"), "{refusal}");
    assert_offer_is_tight(&admission, &late, &refusal);
}

#[test]
fn a_stream_that_would_delay_dispatch_is_refused() {
    let dispatch = Timing::new(4 * MS, 10 * MS).with_deadline(5 * MS);
    let mut admission = StreamAdmissionState::new(StreamResources {
        dispatch_tasks: [(0, vec![(40, dispatch)])].into(),
        ..resources()
    });
    let request = periodic(1, 200, 10 * MS);
    let refusal = admission.admit(request).unwrap_err();
    let bound_is_of_dispatch = matches!(refusal.violated_bound, ViolatedBound::ResponseTime { task: AdmissionTask::Dispatch(0), deadline, .. } if deadline == 5 * MS);
    assert!(bound_is_of_dispatch, "{refusal}");
    assert_offer_is_tight(&admission, &request, &refusal);
    // A stream with a lower priority than dispatch, or on another core, delays no dispatch task.
    admission.admit(StreamRequest { priority: 30, ..request }).unwrap();
    admission.admit(StreamRequest { stream: 2, core: 1, ..request }).unwrap();
}

#[test]
fn best_effort_keeps_its_minimum_of_the_processor() {
    let mut admission = StreamAdmissionState::new(StreamResources {
        best_effort_minimum: BestEffortMinimum { link_thousandths: 0, processor_thousandths: 500 },
        ..resources()
    });
    let request = periodic(1, 900, 10 * MS);
    let refusal = admission.admit(request).unwrap_err();
    let ViolatedBound::Processor { core: 0, needed, available } = refusal.violated_bound else { panic!("{refusal}") };
    assert_eq!(available, Utilization(500_000_000));
    assert!(needed > available, "{refusal}");
    assert_offer_is_tight(&admission, &request, &refusal);
}

#[test]
fn best_effort_keeps_its_minimum_of_the_link() {
    let mut admission =
        StreamAdmissionState::new(StreamResources { link_bits_per_second: 10_000_000, vlan_tags: 1, ..resources() });
    let request = periodic(1, 7, 10 * MS);
    let refusal = admission.admit(request).unwrap_err();
    // Seven packets of 1,500 bytes with 42 bytes of framing, in 10 ms.
    assert_eq!(refusal.violated_bound, ViolatedBound::Link { needed: 7 * 1_542 * 8 * 100, available: 8_000_000 });
    assert_eq!(refusal.admissible_packets, Some(6));
    assert_eq!(
        refusal.to_string(),
        "the link would carry 8635200 bit/s of streams, 635200 over 8000000; 6 packets would fit"
    );
}

#[test]
fn short_packets_are_padded_on_the_link() {
    let request = StreamRequest { max_packet_size: 40, ..periodic(1, 1, MS) };
    assert_eq!(resources().bits_per_second(&request), (46 + 38) * 8 * 1_000);
    let load = polling(Budget::of_bytes(4_000, MS), MS);
    assert_eq!(resources().bits_per_second(&StreamRequest { load, ..request }), 100 * (46 + 38) * 8 * 1_000);
}

#[test]
fn short_packets_beside_long_ones_are_padded_on_the_link() {
    // 99 packets of 40 bytes and one packet of 1,040 bytes are 5,000 bytes. Each short packet has 6
    // bytes of padding.
    let budget = Budget { period: MS, packets: Some(100), bytes: Some(5_000) };
    let request = StreamRequest { load: polling(budget, MS), ..periodic(1, 1, MS) };
    let on_link = 99 * (46 + 38) + 1_040 + 38;
    let found = resources().bits_per_second(&request);
    assert!(found >= on_link * 8 * 1_000, "{found}");
    assert!(found <= (on_link + 6) * 8 * 1_000, "{found}");
}

#[test]
fn packet_size_includes_headers_for_every_request() {
    let of_bytes = polling(Budget::of_bytes(40_000, MS), MS);
    let capped = StreamLoad::Capped(PacketRate::new(NonZeroU32::MIN, NonZeroU32::MIN));
    for load in [periodic(1, 100, MS).load, of_bytes, capped] {
        let [none, shortest] =
            [0, 40].map(|max_packet| StreamRequest { max_packet_size: max_packet, load, ..periodic(1, 1, MS) });
        assert_eq!(resources().timing(&none), resources().timing(&shortest), "{load:?}");
        assert_eq!(resources().bits_per_second(&none), resources().bits_per_second(&shortest), "{load:?}");
    }
}

#[test]
fn insufficient_memory_is_reported() {
    let mut admission = StreamAdmissionState::new(resources());
    admission.admit(periodic(1, 1, 10 * MS)).unwrap();
    let refusal = admission.admit(StreamRequest { max_memory: 10 << 20, ..periodic(2, 1, 10 * MS) }).unwrap_err();
    assert_eq!(
        refusal,
        StreamRefusal {
            violated_bound: ViolatedBound::Memory { needed: 11 << 20, available: 10 << 20 },
            admissible_packets: None
        }
    );
    assert!(refusal.to_string().contains("1048576 over 10485760"), "{refusal}");
}

#[test]
fn stream_is_admitted_once_and_can_be_removed() {
    let mut admission = StreamAdmissionState::new(resources());
    admission.admit(periodic(1, 1, 10 * MS)).unwrap();
    assert_eq!(admission.admit(periodic(1, 1, 10 * MS)).unwrap_err().violated_bound, ViolatedBound::DuplicateStream);
    assert!(admission.remove(1) && !admission.remove(1));
    assert!(admission.admitted().is_empty());
}

#[test]
fn a_cap_in_the_receive_context_delays_every_thread() {
    let rate = |pps| PacketRate::new(NonZeroU32::new(pps).unwrap(), NonZeroU32::new(16).unwrap());
    let capped = |pps| StreamRequest { load: StreamLoad::Capped(rate(pps)), ..periodic(1, 1, MS) };
    let mut admission = StreamAdmissionState::new(resources());
    admission.admit(StreamRequest { priority: 99, ..periodic(2, 20, MS) }).unwrap();
    let refusal = admission.admit(capped(120_000)).unwrap_err();
    assert!(
        matches!(refusal.violated_bound, ViolatedBound::ResponseTime { task: AdmissionTask::Stream(2), .. }),
        "{refusal}"
    );
    assert_offer_is_tight(&admission, &capped(120_000), &refusal);
}

#[test]
fn stream_without_a_bound_is_never_admitted() {
    let none = BestEffortMinimum { link_thousandths: 0, processor_thousandths: 0 };
    let mut admission = StreamAdmissionState::new(StreamResources {
        best_effort_minimum: none,
        max_total_memory: u64::MAX,
        ..resources()
    });
    let refusal = admission.admit(StreamRequest { load: StreamLoad::Unbounded, ..periodic(1, 1, MS) }).unwrap_err();
    assert_eq!(refusal, StreamRefusal { violated_bound: ViolatedBound::UnboundedLoad, admissible_packets: None });
}

#[test]
fn deferrable_budget_delays_a_lower_thread_twice() {
    let request = |service| {
        let budget = Budget::of_packets(200, 10 * MS);
        StreamRequest { load: StreamLoad::Periodic { budget, deadline: 10 * MS, service }, ..periodic(1, 1, MS) }
    };
    let execution = resources().timing(&request(BudgetServerKind::Polling)).execution;
    let dispatch = Timing::new(MS, 10 * MS).with_deadline(MS + execution + execution / 2);
    let with_dispatch = StreamResources { dispatch_tasks: [(0, vec![(40, dispatch)])].into(), ..resources() };
    assert_eq!(StreamAdmissionState::new(with_dispatch.clone()).admit(request(BudgetServerKind::Polling)), Ok(()));
    let refusal = StreamAdmissionState::new(with_dispatch).admit(request(BudgetServerKind::Deferrable)).unwrap_err();
    let bound = ViolatedBound::ResponseTime {
        task: AdmissionTask::Dispatch(0),
        response: Some(MS + 2 * execution),
        deadline: dispatch.deadline,
    };
    assert_eq!(refusal.violated_bound, bound);
}

#[test]
fn budgets_and_times_out_of_range_are_refused_by_their_field() {
    let mut admission = StreamAdmissionState::new(resources());
    let refusal = admission.admit(periodic(1, 0, MS)).unwrap_err();
    assert!(matches!(refusal.violated_bound, ViolatedBound::Budget(BudgetError::AmountOutOfRange { .. })), "{refusal}");
    let refusal = admission.admit(periodic(1, 1, 1)).unwrap_err();
    assert_eq!(
        (refusal.violated_bound, refusal.admissible_packets),
        (ViolatedBound::Budget(BudgetError::PeriodOutOfRange(1)), None)
    );
    let refusal = admission.admit(periodic(1, u32::MAX, MS)).unwrap_err();
    assert!(
        matches!(refusal.violated_bound, ViolatedBound::Timing(_)) && refusal.admissible_packets.is_some(),
        "{refusal}"
    );
}

prop_compose! {
    fn any_request()(
        stream in 1_u32..12,
        core in 0_u32..2,
        priority in 1_u8..99,
        packets in 1_u32..300,
        period in prop::sample::select(vec![MS, 2 * MS, 5 * MS, 10 * MS, 40 * MS]),
        bytes in prop::option::of(1_500_u64..400_000),
        cap in prop::option::weighted(0.2, 1_u32..100_000),
        max_packet in 40_u32..9_000,
        memory in 0_u64..3 << 20,
        is_deferrable in any::<bool>(),
    ) -> StreamRequest {
        let budget = Budget { period, packets: Some(packets), bytes };
        let burst = NonZeroU32::new(8).unwrap();
        let cap = cap.and_then(NonZeroU32::new).map(|pps| StreamLoad::Capped(PacketRate::new(pps, burst)));
        let service = if is_deferrable { BudgetServerKind::Deferrable } else { BudgetServerKind::Polling };
        let load = cap.unwrap_or(StreamLoad::Periodic { budget, deadline: period, service });
        StreamRequest { stream, core, priority, load, max_packet_size: max_packet, max_blocking: 0, max_memory: memory }
    }
}

/// Returns the tasks of a core for the simulator, with their levels of priority. The deadline of a
/// deferrable budget counts from the moment at which packets arrive, which can be late in a period.
fn simulated(tasks: &[CoreTask]) -> (Vec<Timing>, Vec<u32>) {
    let timing = |task: &CoreTask| match (task.priority, task.task) {
        // Packets in the receive context have no deadline, so the simulator gets a long one.
        (RECEIVE_CONTEXT, _) => task.for_others.with_deadline(1_000 * MS),
        (_, AdmissionTask::Stream(_)) => {
            task.for_others.with_deadline(task.own.deadline.saturating_add(task.for_others.jitter))
        }
        (_, AdmissionTask::Dispatch(_)) => task.own,
    };
    (tasks.iter().map(timing).collect(), tasks.iter().map(|task| u32::from(RECEIVE_CONTEXT - task.priority)).collect())
}

fn has_simulated_misses(tasks: &[CoreTask], seed: u64) -> bool {
    let (timings, levels) = simulated(tasks);
    let cores = CoreAssignment::Partitioned(vec![0; timings.len()]);
    let arrivals = (0..timings.len()).map(|place| ArrivalPattern {
        offset: 0,
        seed: Some(seed.wrapping_add(u64::try_from(place).unwrap())),
        max_delay: 0,
    });
    let system = SimulatedSystem {
        levels,
        arrivals: arrivals.collect(),
        ..SimulatedSystem::new(timings, cores, SchedulingRule::FixedPriority)
    };
    simulate(&system, 160 * MS).has_misses()
}

/// The property below could not fail if the simulator met every deadline.
#[test]
fn simulator_finds_the_misses_of_a_core_that_admission_refuses() {
    let admission = StreamAdmissionState::new(resources());
    let late = StreamRequest { load: polling(Budget::of_packets(1_000, 5 * MS), 5 * MS), ..periodic(1, 1, MS) };
    assert!(admission.check(&late).is_err());
    assert!(has_simulated_misses(&admission.tasks(&late), 1));
}

proptest! {
    #[test]
    fn admitted_streams_and_dispatch_never_miss_in_the_simulator(
        requests in prop::collection::vec((any_request(), 1_u8..6), 1..8),
        dispatch in prop::collection::vec((1_u8..6, 1_u64..2_000, prop::sample::select(vec![5, 10, 20])), 0..3),
        seed in any::<u64>(),
    ) {
        let dispatch: Vec<(u8, Timing)> =
            dispatch.into_iter().map(|(priority, us, ms)| (priority, Timing::new(us * 1_000, ms * MS))).collect();
        let resources = StreamResources {
            link_bits_per_second: u64::MAX,
            max_total_memory: u64::MAX,
            best_effort_minimum: BestEffortMinimum { link_thousandths: 0, processor_thousandths: 0 },
            dispatch_tasks: [(0, dispatch)].into(),
            ..resources()
        };
        let mut admission = StreamAdmissionState::new(resources);
        for (request, priority) in requests {
            let request = StreamRequest { core: 0, priority, ..request };
            // The largest number of packets that fits uses the core up to a bound. An error of the
            // analysis then causes a missed deadline in the simulation.
            if let Err(StreamRefusal { admissible_packets: Some(packets), .. }) = admission.admit(request) {
                admission.admit(request.with_packets(packets).unwrap()).unwrap();
            }
        }
        let Some(last) = admission.admitted().last().copied() else { return Ok(()) };
        admission.remove(last.stream);
        prop_assert!(!has_simulated_misses(&admission.tasks(&last), seed));
    }

    #[test]
    fn promises_hold_and_offers_are_tight(requests in prop::collection::vec(any_request(), 1..20)) {
        let mut admission = StreamAdmissionState::new(resources());
        for request in requests {
            if let Err(refusal) = admission.admit(request)
                && refusal.admissible_packets.is_some()
            {
                assert_offer_is_tight(&admission, &request, &refusal);
            }
            for admitted in admission.admitted().to_vec() {
                let mut others = admission.clone();
                others.remove(admitted.stream);
                prop_assert_eq!(others.check(&admitted), Ok(()));
            }
        }
    }

    #[test]
    fn another_stream_never_makes_room(one in any_request(), other in any_request(), third in any_request()) {
        let mut few = StreamAdmissionState::new(resources());
        let _ = few.admit(one);
        let mut more = few.clone();
        let _ = more.admit(other);
        prop_assert!(few.check(&third).is_ok() || more.check(&third).is_err());
    }
}
