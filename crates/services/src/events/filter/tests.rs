//! Tests of filters with tables of dependency sets: each designator, both builders, nesting, and
//! sets that are refused.

use proptest::prelude::*;

use super::FilterBuilder::{Basic, Prefix};
use super::*;

const BOTH: &[FilterBuilder] = &[Basic, Prefix];

const A: EventType = EventType(16);
const B: EventType = EventType(17);
const C: EventType = EventType(18);
const ANY: EventSource = EventSource::ANY;

fn set() -> DependencySet {
    DependencySet::new()
}

fn build(builder: FilterBuilder, set: &DependencySet) -> Result<EventFilter, FilterError> {
    EventFilter::build(builder, set.headers(), &FilterLimits::default())
}

/// A set, the pairs of type and source that its filter accepts, and pairs that it rejects.
type Case = (&'static [FilterBuilder], DependencySet, &'static [(i32, i32)], &'static [(i32, i32)]);

fn cases() -> Vec<Case> {
    use TimeoutKind::{Deadline, Interval, Once};
    const MS: u64 = 10_000;
    vec![
        // Types and sources. 0 on either side is a wildcard, in the filter and in the event.
        (
            BOTH,
            set().event(A, EventSource(1)),
            &[(16, 1), (0, 1), (16, 0), (0, 0)],
            &[(16, 2), (17, 1), (0, 2), (17, 0)],
        ),
        (BOTH, set().event(A, ANY), &[(16, 1), (16, -1), (16, 0), (0, 5)], &[(17, 1), (17, 0)]),
        (BOTH, set().event(EventType::ANY, EventSource(1)), &[(16, 1), (1, 1), (16, 0)], &[(16, 2), (0, 2)]),
        (BOTH, set().event(EventType::ANY, ANY), &[(16, 1), (0, 0), (4, 0), (-1, -1)], &[]),
        (BOTH, set().event(EventType::SHUTDOWN, ANY), &[(1, 3)], &[(2, 3), (3, 3)]),
        (BOTH, set().event(EventType::ACT, ANY), &[(2, 3)], &[(1, 3), (3, 3)]),
        (BOTH, set().event(EventType::GAP, ANY), &[(3, 3)], &[(1, 3), (2, 3)]),
        (BOTH, set().event(EventType(-7), ANY), &[(-7, 3)], &[(7, 3)]),
        (BOTH, set().every_event(), &[(16, 1), (0, 0), (14, 0)], &[]),
        (BOTH, set(), &[], &[(16, 1), (0, 0)]),
        // A timeout filter accepts no event of a supplier, whatever the event's type.
        (BOTH, set().timeout(Once, 0), &[], &[(4, 0), (0, 0)]),
        (BOTH, set().timeout(Interval, MS), &[], &[(5, 0), (0, 0)]),
        (BOTH, set().timeout(Deadline, MS), &[], &[(6, 0), (0, 0)]),
        // Groups. The basic builder ignores the count.
        (BOTH, set().disjunction(2).event(A, ANY).event(B, ANY), &[(16, 1), (17, 1)], &[(18, 1)]),
        (&[Basic], set().disjunction(-9).event(A, ANY).event(B, ANY), &[(16, 1), (17, 1)], &[(18, 1)]),
        (BOTH, set().disjunction(0), &[], &[(16, 1), (0, 0)]),
        (BOTH, set().conjunction(2).event(A, ANY).event(B, ANY), &[(16, 1), (17, 1)], &[(18, 1)]),
        (
            BOTH,
            set().logical_and(2).event(A, ANY).event(EventType::ANY, EventSource(1)),
            &[(16, 1)],
            &[(16, 2), (17, 1)],
        ),
        (BOTH, set().logical_and(1).every_event(), &[(16, 1)], &[]),
        (BOTH, set().global(), &[], &[(16, 1), (7, 0)]),
        (BOTH, set().global().event(A, ANY), &[(16, 1)], &[(17, 1)]),
        (BOTH, set().global().event(A, ANY).event(B, ANY), &[(16, 1), (17, 1)], &[(18, 1)]),
        (BOTH, set().event(A, ANY).event(B, ANY), &[(16, 1), (17, 1)], &[(18, 1)]),
        (BOTH, set().negation().event(A, ANY), &[(17, 1), (17, 0)], &[(16, 1), (16, 0), (0, 0)]),
        (BOTH, set().negation().negation().event(A, ANY), &[(16, 1)], &[(17, 1)]),
        (BOTH, set().negation().every_event(), &[], &[(16, 1), (0, 0)]),
        (BOTH, set().negation().timeout(Once, 1), &[(16, 1), (0, 0)], &[]),
        (BOTH, set().negation().disjunction(2).event(A, ANY).event(B, ANY), &[(18, 1)], &[(16, 1), (17, 1)]),
        (BOTH, set().disjunction(2).negation().event(A, ANY).event(A, EventSource(1)), &[(17, 1), (16, 1)], &[(16, 2)]),
        (BOTH, set().negation().conjunction(2).event(A, ANY).event(B, ANY), &[(18, 1)], &[(16, 1), (17, 1)]),
        // Bit masks: the event shares a bit with both masks.
        (BOTH, set().bitmask(1, 16).every_event(), &[(16, 1), (17, 3)], &[(16, 2), (32, 1), (0, 1), (16, 0)]),
        (BOTH, set().bitmask(-1, -1).event(A, ANY), &[(16, 1)], &[(17, 1), (16, 0)]),
        (BOTH, set().bitmask(0, -1).every_event(), &[], &[(16, 1)]),
        (BOTH, set().disjunction(2).bitmask(1, -1).event(A, ANY).event(B, ANY), &[(16, 1), (17, 2)], &[(16, 2)]),
        (BOTH, set().negation().bitmask(1, -1).event(A, ANY), &[(16, 2), (17, 1)], &[(16, 1)]),
        (BOTH, set().bitmask(8, 8).every_event(), &[(8, 8), (24, 9)], &[(16, 8)]),
        (BOTH, set().masked_type(0, -1, 0, 16), &[(16, 1), (16, 0)], &[(17, 1), (0, 1)]),
        (BOTH, set().masked_type(1, 3, 1, 2), &[(18, 1), (2, 3)], &[(16, 1), (18, 2)]),
        (BOTH, set().masked_type(0, 0, 0, 0), &[(16, 1), (0, 0)], &[]),
        (BOTH, set().masked_type(0, 1, 0, 2), &[], &[(2, 0), (3, 0), (0, 0)]),
        (BOTH, set().disjunction(2).masked_type(0, -1, 0, 9).event(B, ANY), &[(9, 1), (17, 1)], &[(16, 1)]),
        // Several groups of the basic builder, and the filters before them, are alternatives.
        (
            &[Basic],
            set()
                .event(C, ANY)
                .logical_and(9)
                .event(A, ANY)
                .event(EventType::ANY, EventSource(1))
                .disjunction(0)
                .event(B, ANY),
            &[(18, 5), (16, 1), (17, 5)],
            &[(16, 5), (19, 1)],
        ),
        (
            &[Prefix],
            set()
                .logical_and(2)
                .disjunction(2)
                .event(A, ANY)
                .negation()
                .logical_and(2)
                .every_event()
                .event(B, ANY)
                .event(EventType::ANY, EventSource(1)),
            &[(16, 1), (18, 1)],
            &[(17, 1), (16, 2), (18, 2)],
        ),
        (
            &[Prefix],
            set().event(A, ANY).disjunction(1).event(B, ANY).event(C, ANY),
            &[(16, 1), (17, 1), (18, 1)],
            &[(19, 1)],
        ),
        (&[Prefix], set().global().event(A, ANY).disjunction(1).event(B, ANY), &[(16, 1), (17, 1)], &[(18, 1)]),
    ]
}

#[test]
fn filters_accept_what_their_designators_say() {
    for (number, (builders, set, accepted, rejected)) in cases().into_iter().enumerate() {
        for builder in builders {
            let filter = build(*builder, &set).unwrap();
            for (events, is_accepted) in [(accepted, true), (rejected, false)] {
                for (event_type, source) in events {
                    let header = EventHeader::new(EventType(*event_type), EventSource(*source));
                    let context = format!("case {number}, {builder:?}, type {event_type}, source {source}");
                    assert_eq!(filter.accepts(&header), is_accepted, "{context}");
                }
            }
            assert_eq!(build(Prefix, &filter.dependencies()).as_ref(), Ok(&filter), "case {number}");
        }
    }
}

#[test]
fn sets_that_are_no_filters_are_refused() {
    use TimeoutKind::{Deadline, Interval, Once};
    let FilterLimits { min_period: min, max_timeout_delay, .. } = FilterLimits::default();
    let day = 24 * 3_600 * 10_000_000;
    let cases: Vec<(&[FilterBuilder], DependencySet, FilterError)> = vec![
        (BOTH, set().negation(), FilterError::Truncated { at: 0 }),
        (BOTH, set().disjunction(2).event(A, ANY).negation(), FilterError::Truncated { at: 2 }),
        (BOTH, set().bitmask(1, 1), FilterError::Truncated { at: 0 }),
        (BOTH, set().event(EventType(12), ANY), FilterError::Truncated { at: 0 }),
        (BOTH, set().event(EventType(13), ANY), FilterError::Truncated { at: 0 }),
        (BOTH, set().event(EventType(13), ANY).event(A, ANY), FilterError::Truncated { at: 0 }),
        (&[Prefix], set().disjunction(2).negation().event(A, ANY), FilterError::Truncated { at: 0 }),
        (&[Prefix], set().disjunction(2).event(A, ANY), FilterError::WrongCount { at: 0, count: 2 }),
        (&[Prefix], set().conjunction(-1).event(A, ANY), FilterError::WrongCount { at: 0, count: -1 }),
        (&[Prefix], set().conjunction(i32::MAX).event(A, ANY), FilterError::WrongCount { at: 0, count: i32::MAX }),
        (&[Prefix], set().conjunction(1).event(A, ANY).event(B, ANY), FilterError::TrailingDependencies { at: 2 }),
        (&[Prefix], set().disjunction(0).event(A, ANY), FilterError::TrailingDependencies { at: 1 }),
        (BOTH, set().conjunction(0), FilterError::EmptyGroup { at: 0 }),
        (BOTH, set().logical_and(0), FilterError::EmptyGroup { at: 0 }),
        (&[Basic], set().conjunction(2).disjunction(1).event(A, ANY), FilterError::EmptyGroup { at: 0 }),
        (&[Basic], set().disjunction(1).negation().disjunction(1).event(A, ANY), FilterError::NestedGroup { at: 2 }),
        (&[Basic], set().disjunction(1).bitmask(1, 1).global().event(A, ANY), FilterError::NestedGroup { at: 3 }),
        (&[Prefix], set().event(A, ANY).global().event(A, ANY), FilterError::MisplacedGlobal { at: 1 }),
        (BOTH, set().event(EventType(15), ANY), FilterError::UnknownDesignator { at: 0, value: 15 }),
        (BOTH, set().timeout(Interval, 0), FilterError::PeriodTooShort { at: 0, min }),
        (BOTH, set().timeout(Deadline, 0), FilterError::PeriodTooShort { at: 0, min }),
        (BOTH, set().timeout(Interval, 999), FilterError::PeriodTooShort { at: 0, min }),
        (BOTH, set().timeout(Interval, 300 * 365 * day), FilterError::DelayTooLong { at: 0, max: max_timeout_delay }),
        (BOTH, set().timeout(Once, u64::MAX), FilterError::DelayTooLong { at: 0, max: max_timeout_delay }),
        (BOTH, set().timeout(Once, u64::MAX / 100 + 1), FilterError::DelayTooLong { at: 0, max: max_timeout_delay }),
    ];
    for (number, (builders, set, error)) in cases.into_iter().enumerate() {
        for builder in builders {
            assert_eq!(build(*builder, &set), Err(error), "case {number}, {builder:?}");
        }
    }
}

#[test]
fn every_set_of_the_tables_is_cut_without_a_panic() {
    for (_, set, ..) in cases() {
        for length in 0..set.headers().len() {
            for builder in BOTH {
                let _ = EventFilter::build(*builder, &set.headers()[..length], &FilterLimits::default());
            }
        }
    }
}

#[test]
fn limits_are_kept_to_the_last_dependency() {
    let limits = FilterLimits { max_dependencies: 4, max_depth: 3, max_timeouts: 2, ..FilterLimits::default() };
    let build = |set: DependencySet| EventFilter::build(Basic, set.headers(), &limits).err();
    assert_eq!(build(set().every_event().every_event().every_event().every_event()), None);
    assert_eq!(
        build(set().every_event().every_event().every_event().every_event().every_event()),
        Some(FilterError::TooLong { length: 5, max: 4 })
    );
    assert_eq!(build(set().negation().negation().every_event()), None);
    assert_eq!(
        build(set().negation().negation().negation().every_event()),
        Some(FilterError::TooDeep { at: 3, max: 3 })
    );
    let timeouts = set().timeout(TimeoutKind::Once, 1).timeout(TimeoutKind::Interval, 1_000);
    assert_eq!(build(timeouts.clone()), None);
    let error = FilterError::TooManyTimeouts { at: 2, max: 2 };
    assert_eq!(build(timeouts.timeout(TimeoutKind::Once, 1)), Some(error));
}

#[test]
fn a_million_negations_are_too_deep_and_not_a_stack_overflow() {
    let headers = vec![EventHeader::new(EventType(10), ANY); 1_000_000];
    let limits = FilterLimits { max_dependencies: usize::MAX, max_depth: usize::MAX, ..FilterLimits::default() };
    let max = FilterLimits::MAX_SUPPORTED_DEPTH;
    for builder in BOTH {
        let error = EventFilter::build(*builder, &headers, &limits).unwrap_err();
        assert_eq!(error, FilterError::TooDeep { at: max, max });
    }
    let error = EventFilter::build(Basic, &headers, &FilterLimits::default()).unwrap_err();
    assert_eq!(error, FilterError::TooLong { length: 1_000_000, max: 1_024 });
}

proptest! {
    /// A filter that is written as dependencies and read again must be the same filter. A set of n
    /// dependencies must give at most n + 1 nodes.
    #[test]
    fn filters_read_from_arbitrary_sets_can_be_written_and_read_again(
        headers in prop::collection::vec((prop_oneof![0..20, any::<i32>()], -1..4_i32, 0..5_000_u64), 0..40),
    ) {
        let headers: Vec<EventHeader> = headers
            .into_iter()
            .map(|(event_type, source, creation_time)| EventHeader {
                creation_time,
                ..EventHeader::new(EventType(event_type), EventSource(source))
            })
            .collect();
        for builder in BOTH {
            if let Ok(filter) = EventFilter::build(*builder, &headers, &FilterLimits::default()) {
                prop_assert!(filter.nodes().len() <= headers.len() + 1);
                prop_assert_eq!(build(Prefix, &filter.dependencies()), Ok(filter));
            }
        }
    }
}

#[test]
fn gap_events_are_asked_for_by_a_filter_that_names_their_type_and_would_deliver_them_alone() {
    const GAP: EventType = EventType::GAP;
    let asks = |builder, set: &DependencySet| build(builder, set).unwrap().asks_for_gaps();
    let yes = [
        (BOTH, set().event(GAP, ANY)),
        (BOTH, set().event(A, ANY).event(GAP, ANY)),
        (BOTH, set().disjunction(2).event(A, ANY).event(GAP, ANY)),
        (BOTH, set().global().event(A, ANY).event(GAP, ANY)),
        (BOTH, set().conjunction(1).event(GAP, ANY)),
        (BOTH, set().logical_and(2).event(GAP, ANY).every_event()),
        (BOTH, set().masked_type(0, -1, 0, GAP.0)),
        (&[Basic], set().conjunction(2).event(A, ANY).event(B, ANY).disjunction(1).event(GAP, ANY)),
        (&[Prefix], set().disjunction(2).conjunction(2).event(A, ANY).event(B, ANY).disjunction(1).event(GAP, ANY)),
    ];
    let no = [
        (BOTH, set()),
        // A filter of every type, or of a source alone, does not ask for gap events.
        (BOTH, set().event(EventType::ANY, ANY)),
        (BOTH, set().event(EventType::ANY, EventSource(7))),
        (BOTH, set().every_event()),
        (BOTH, set().masked_type(0, 0, 0, 0)),
        (BOTH, set().masked_type(0, 0xf, 0, GAP.0)),
        (BOTH, set().event(GAP, EventSource(7))),
        (BOTH, set().masked_type(-1, -1, 7, GAP.0)),
        (BOTH, set().bitmask(-1, -1).event(GAP, ANY)),
        (BOTH, set().negation().event(GAP, ANY)),
        (BOTH, set().negation().event(A, ANY)),
        // A conjunction would hold the gap event until the event of type A.
        (BOTH, set().conjunction(2).event(A, ANY).event(GAP, ANY)),
        (&[Prefix], set().conjunction(2).event(A, ANY).disjunction(2).event(B, ANY).event(GAP, ANY)),
        (BOTH, set().logical_and(2).event(GAP, ANY).event(A, ANY)),
        (BOTH, set().logical_and(2).event(GAP, ANY).negation().event(GAP, ANY)),
        (BOTH, set().logical_and(2).every_event().negation().event(GAP, ANY)),
    ];
    for (cases, expected) in [(&yes[..], true), (&no[..], false)] {
        for (builders, set) in cases {
            for builder in *builders {
                assert_eq!(asks(*builder, set), expected, "{builder:?} {set:?}");
            }
        }
    }
}
