//! Division of the bytes of a period among the connections of a stream.
//!
//! A connection that finds no free bytes joins a list. When bytes become free, the connections at
//! the front of the list leave it, and each gets a turn: a reserved share of the free bytes. A turn
//! ends with the period, or when its connection leaves or gives bytes back.
//!
//! Invariant: while a connection is in the list, no bytes of the period are free.

use std::collections::VecDeque;

use corelane_sched::task::Nanos;

use crate::budget::BudgetState;

/// Minimum number of bytes of a turn; for a smaller budget, all its bytes are the minimum. The last
/// turn of a period may be shorter.
const MIN_TURN: usize = 1_024;

/// Index of a connection in a [`SharedBudget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat(usize);

/// A budget of bytes that connections share. `C` identifies a connection.
#[derive(Debug)]
pub(crate) struct SharedBudget<C> {
    budget: BudgetState,
    bytes: usize,
    period: u64,
    places: Vec<Place<C>>,
    vacant: Vec<usize>,
    /// First and last place of the list of waiting connections.
    ends: Option<(usize, usize)>,
    waiting: usize,
    /// Places whose turns have begun, but which [`next_report`](Self::next_report) has not
    /// returned.
    begun: VecDeque<usize>,
    counts: BudgetCounts,
}

/// Use of a stream's budget, for diagnostics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetCounts {
    /// Number of bytes that the connections have taken from the budget since the stream was opened.
    pub received_bytes: u64,
    /// Number of bytes that the connections took in the current period.
    pub period_bytes: u64,
    /// Number of connections that wait for bytes of the budget.
    pub waiting_connections: u32,
    /// Number of times that a connection had to wait.
    pub wait_count: u64,
}

#[derive(Debug)]
struct Place<C> {
    /// `None` while the place is vacant.
    connection: Option<C>,
    is_waiting: bool,
    previous: Option<usize>,
    next: Option<usize>,
    /// Bytes left of the turn in the period `turn_period`.
    turn: usize,
    turn_period: u64,
    /// Bytes reserved in turns since the connection was last put at the end of the list or gave
    /// bytes back.
    served: usize,
}

impl<C> Place<C> {
    fn new(connection: C) -> Self {
        Self {
            connection: Some(connection),
            is_waiting: false,
            previous: None,
            next: None,
            turn: 0,
            turn_period: 0,
            served: 0,
        }
    }
}

impl<C: Clone> SharedBudget<C> {
    /// Creates a budget without connections. `budget` must bound bytes.
    pub(crate) fn new(budget: BudgetState) -> Self {
        let bytes = usize::try_from(budget.budget().bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        Self {
            budget,
            bytes,
            period: 0,
            places: Vec::new(),
            vacant: Vec::new(),
            ends: None,
            waiting: 0,
            begun: VecDeque::new(),
            counts: BudgetCounts::default(),
        }
    }

    pub(crate) fn join(&mut self, connection: C) -> Seat {
        let place = Place::new(connection);
        let index = self.vacant.pop().unwrap_or(self.places.len());
        match self.places.get_mut(index) {
            Some(vacant) => *vacant = place,
            None => self.places.push(place),
        }
        // Reserves memory for all places, so that later calls on real-time threads allocate none.
        self.vacant.reserve(self.places.len());
        self.begun.reserve(self.places.len());
        Seat(index)
    }

    pub(crate) fn leave(&mut self, seat: Seat, now: Nanos) {
        self.begin_period(now);
        self.remove_from_list(seat.0);
        self.end_turn(seat.0);
        if let Some(place) = self.places.get_mut(seat.0)
            && place.connection.take().is_some()
        {
            self.vacant.push(seat.0);
        }
        self.begin_turns();
    }

    /// Reserves up to `wanted` bytes of the current period. Returns their number, at least 1, with
    /// the number of the period; `None` if the connection gets no bytes now.
    pub(crate) fn reserve(&mut self, seat: Seat, wanted: usize, now: Nanos) -> Option<(usize, u64)> {
        self.begin_period(now);
        let (period, is_shared) = (self.period, self.waiting > 0);
        let place = self.places.get_mut(seat.0).filter(|place| !place.is_waiting)?;
        let of_turn = if place.turn_period == period { place.turn.min(wanted) } else { 0 };
        place.turn -= of_turn;
        place.served += of_turn;
        let bytes = of_turn + if is_shared { 0 } else { self.budget.take_bytes(wanted - of_turn) };
        self.counts.received_bytes += bytes as u64;
        self.counts.period_bytes += bytes as u64;
        (bytes > 0).then_some((bytes, period))
    }

    /// Returns to the budget the bytes that were reserved in `period` and have not arrived, and
    /// ends the connection's turn. If the period has passed, the bytes are lost, and a turn in a
    /// later period continues.
    pub(crate) fn give_back(&mut self, seat: Seat, bytes: usize, period: u64, now: Nanos) {
        self.counts.received_bytes = self.counts.received_bytes.saturating_sub(bytes as u64);
        self.begin_period(now);
        if period == self.period {
            self.counts.period_bytes = self.counts.period_bytes.saturating_sub(bytes as u64);
            self.budget.return_bytes(bytes, period);
            self.end_turn(seat.0);
            self.begin_turns();
        }
    }

    /// Puts a connection that may have unread bytes into the list. Returns false, without doing so,
    /// if the connection can reserve bytes now.
    pub(crate) fn wait(&mut self, seat: Seat, now: Nanos) -> bool {
        self.begin_period(now);
        let is_free = self.waiting == 0 && self.free_bytes() > 0;
        let (period, least) = (self.period, self.least_turn());
        let Some(place) = self.places.get_mut(seat.0) else { return false };
        let is_in_turn = place.turn_period == period;
        if place.is_waiting {
            return true;
        }
        if is_free || is_in_turn && place.turn > 0 {
            return false;
        }
        // The last turn of a period can be shorter than `least`. Its connection then returns to the
        // front of the list.
        let keeps_place = is_in_turn && (1..least).contains(&place.served);
        if !keeps_place {
            place.served = 0;
        }
        self.add_to_list(seat.0, keeps_place);
        self.counts.wait_count += 1;
        true
    }

    /// Starts the period that contains `now`, if it is new, and begins turns in it.
    pub(crate) fn begin_period(&mut self, now: Nanos) {
        let period = self.budget.period_at(now);
        if period != self.period {
            self.period = period;
            self.counts.period_bytes = 0;
            self.begin_turns();
        }
    }

    /// Returns the next connection whose turn has begun; the caller then makes this connection
    /// read.
    pub(crate) fn next_report(&mut self) -> Option<C> {
        while let Some(index) = self.begun.pop_front() {
            if let Some(connection) = self.places.get(index).and_then(|place| place.connection.clone()) {
                return Some(connection);
            }
        }
        None
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    pub(crate) fn next_period_at(&self) -> Nanos {
        self.budget.next_period_at()
    }

    pub(crate) fn budget(&self) -> crate::budget::Budget {
        self.budget.budget()
    }

    /// Returns the use of the budget. Unlike the other methods, it begins neither a period nor
    /// turns, so `period_bytes` is 0 after the end of the current period.
    pub(crate) fn counts(&self, now: Nanos) -> BudgetCounts {
        let period_bytes = if now < self.next_period_at() { self.counts.period_bytes } else { 0 };
        BudgetCounts {
            period_bytes,
            waiting_connections: u32::try_from(self.waiting).unwrap_or(u32::MAX),
            ..self.counts
        }
    }

    /// Returns the number of bytes of the period that are neither taken nor part of a turn.
    fn free_bytes(&self) -> usize {
        let (_, bytes) = self.budget.remaining();
        usize::try_from(bytes.unwrap_or(0)).unwrap_or(usize::MAX)
    }

    fn least_turn(&self) -> usize {
        MIN_TURN.min(self.bytes)
    }

    fn begin_turns(&mut self) {
        while let Some((first, _)) = self.ends {
            let free = self.free_bytes();
            let share = (free / self.waiting.max(1)).max(self.least_turn());
            let share = self.budget.take_bytes(share);
            if share == 0 {
                return;
            }
            self.remove_from_list(first);
            if let Some(place) = self.places.get_mut(first) {
                (place.turn, place.turn_period) = (share, self.period);
            }
            self.begun.push_back(first);
        }
    }

    fn end_turn(&mut self, index: usize) {
        let Some(place) = self.places.get_mut(index) else { return };
        let rest = std::mem::take(&mut place.turn);
        place.served = 0;
        self.budget.return_bytes(rest, place.turn_period);
    }

    fn add_to_list(&mut self, index: usize, is_first: bool) {
        let (previous, next) = match self.ends {
            Some((first, _)) if is_first => (None, Some(first)),
            Some((_, last)) => (Some(last), None),
            None => (None, None),
        };
        self.link(previous, Some(index));
        self.link(Some(index), next);
        if let Some(place) = self.places.get_mut(index) {
            place.is_waiting = true;
        }
        let (first, last) = self.ends.unwrap_or((index, index));
        self.ends = Some((if previous.is_none() { index } else { first }, if next.is_none() { index } else { last }));
        self.waiting += 1;
    }

    fn remove_from_list(&mut self, index: usize) {
        let Some(place) = self.places.get_mut(index).filter(|place| place.is_waiting) else { return };
        place.is_waiting = false;
        let (previous, next) = (place.previous.take(), place.next.take());
        self.link(previous, next);
        self.ends = self.ends.and_then(|(first, last)| {
            let first = if first == index { next } else { Some(first) };
            let last = if last == index { previous } else { Some(last) };
            first.zip(last)
        });
        self.waiting -= 1;
    }

    /// Makes two places neighbours in the list. `None` is an end of the list.
    fn link(&mut self, previous: Option<usize>, next: Option<usize>) {
        if let Some(place) = previous.and_then(|index| self.places.get_mut(index)) {
            place.next = next;
        }
        if let Some(place) = next.and_then(|index| self.places.get_mut(index)) {
            place.previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::{Budget, BudgetServerKind};

    const PERIOD: Nanos = 10_000_000;

    fn shared(bytes: u64) -> SharedBudget<usize> {
        let budget = BudgetState::new(Budget::of_bytes(bytes, PERIOD), BudgetServerKind::Deferrable, 0).unwrap();
        SharedBudget::new(budget)
    }

    /// Reads as a connection with `unread` unread bytes. Returns the number of received bytes.
    fn read(budget: &mut SharedBudget<usize>, seat: Seat, unread: usize, now: Nanos) -> usize {
        let wanted = 4_000;
        let mut received = 0;
        while let Some((bytes, period)) = budget.reserve(seat, wanted, now) {
            let count = bytes.min(unread - received);
            received += count;
            if count < bytes {
                budget.give_back(seat, bytes - count, period, now);
                return received;
            }
        }
        budget.wait(seat, now);
        received
    }

    fn reports(budget: &mut SharedBudget<usize>) -> Vec<usize> {
        std::iter::from_fn(|| budget.next_report()).collect()
    }

    #[test]
    fn flooding_connection_leaves_the_others_their_shares() {
        let mut budget = shared(6_000);
        let [flood, other] = [0, 1].map(|number| budget.join(number));
        assert_eq!(read(&mut budget, flood, usize::MAX, 0), 6_000);
        for period in 1..100 {
            let now = period * PERIOD;
            assert_eq!(read(&mut budget, other, 500, now - 1), 0);
            assert_eq!(read(&mut budget, flood, usize::MAX, now), 3_000);
            assert_eq!(read(&mut budget, other, 500, now), 500);
            // The flood gets the bytes that `other` gave back, so no bytes are lost.
            assert_eq!(read(&mut budget, flood, usize::MAX, now), 2_500);
        }
    }

    #[test]
    fn given_back_bytes_begin_a_turn_within_the_period() {
        let mut budget = shared(5_000);
        let [first, second, third] = [0, 1, 2].map(|number| budget.join(number));
        let (bytes, period) = budget.reserve(first, 9_000, 5).unwrap();
        assert!(budget.wait(second, 5) && budget.wait(third, 5) && reports(&mut budget).is_empty());
        assert_eq!((bytes, budget.reserve(second, 1, 5)), (5_000, None));
        budget.give_back(first, 3_000, period, 6);
        assert_eq!(reports(&mut budget), [1, 2]);
        assert_eq!(budget.reserve(second, 9_000, 6), Some((1_500, 0)));
        assert_eq!(budget.reserve(second, 1, 6), None);
        assert_eq!(budget.reserve(first, 1, 6), None);
        assert!(budget.wait(first, 6));
        budget.leave(third, 7);
        assert_eq!((reports(&mut budget), budget.reserve(first, 9_000, 7)), (vec![0], Some((1_500, 0))));
        let counts = budget.counts(8);
        assert_eq!((counts.received_bytes, counts.period_bytes, counts.wait_count), (5_000, 5_000, 3));
    }

    #[test]
    fn unused_turn_ends_with_the_period() {
        let mut budget = shared(4_000);
        let [first, second] = [0, 1].map(|number| budget.join(number));
        assert_eq!(budget.reserve(first, 9_000, 0), Some((4_000, 0)));
        assert!(budget.wait(first, 0) && budget.wait(second, 0));
        let counts = [PERIOD - 1, PERIOD].map(|now| budget.counts(now));
        assert_eq!(counts.map(|counts| (counts.period_bytes, counts.waiting_connections)), [(4_000, 2), (0, 2)]);
        assert!(reports(&mut budget).is_empty());
        budget.begin_period(PERIOD);
        assert_eq!(reports(&mut budget), [0, 1]);
        assert_eq!(budget.reserve(first, 9_000, PERIOD), Some((2_000, 1)));
        assert!(budget.wait(first, PERIOD));
        // The second connection has not used its turn of period 1.
        budget.begin_period(2 * PERIOD);
        assert_eq!(reports(&mut budget), [0]);
        assert_eq!(budget.reserve(first, 9_000, 2 * PERIOD), Some((4_000, 2)));
    }

    #[test]
    fn many_connections_are_served_in_the_order_of_the_list() {
        let mut budget = shared(2_500);
        let seats: Vec<Seat> = (0..7).map(|number| budget.join(number)).collect();
        for seat in &seats {
            read(&mut budget, *seat, usize::MAX, 0);
        }
        let mut received = [0; 7];
        for period in 1..=280 {
            budget.begin_period(period * PERIOD);
            for number in reports(&mut budget) {
                received[number] += read(&mut budget, seats[number], usize::MAX, period * PERIOD);
            }
        }
        let (least, most) = (received.iter().min().unwrap(), received.iter().max().unwrap());
        assert_eq!(received.iter().sum::<usize>(), 280 * 2_500);
        assert!(most - least <= 2 * MIN_TURN, "{received:?}");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Read { number: usize, unread: usize },
        Join,
        Leave(usize),
        Pass(Nanos),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0_usize..6, prop_oneof![Just(usize::MAX), 0_usize..6_000])
                .prop_map(|(number, unread)| Step::Read { number, unread }),
            1 => Just(Step::Join),
            1 => (0_usize..6).prop_map(Step::Leave),
            2 => (0..2 * PERIOD).prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// Fails if a period gives more than its bytes, if bytes stay free while a connection
        /// waits, or if the list loses or repeats a connection.
        #[test]
        fn any_order_of_calls_keeps_the_budget(
            bytes in 1_u64..8_000,
            steps in prop::collection::vec(step(), 1..120),
        ) {
            let mut budget = shared(bytes);
            let mut seats: Vec<Seat> = (0..3).map(|number| budget.join(number)).collect();
            let (mut now, mut in_period, mut period) = (0, 0, 0);
            for step in steps {
                match step {
                    Step::Read { number, unread } => {
                        if let Some(seat) = seats.get(number) {
                            in_period += read(&mut budget, *seat, unread, now);
                        }
                    }
                    Step::Join if seats.len() < 6 => seats.push(budget.join(seats.len())),
                    Step::Leave(number) if number < seats.len() => budget.leave(seats.swap_remove(number), now),
                    Step::Pass(time) => {
                        now += time;
                        if now / PERIOD != period {
                            (period, in_period) = (now / PERIOD, 0);
                            budget.begin_period(now);
                        }
                    }
                    _ => {}
                }
                prop_assert!(in_period as u64 <= bytes, "{in_period} of {bytes}");
                prop_assert!(!budget.has_waiting() || budget.free_bytes() == 0);
                let mut listed = Vec::new();
                let mut next = budget.ends.map(|(first, _)| first);
                while let Some(index) = next {
                    prop_assert!(listed.len() < 6 && budget.places[index].is_waiting);
                    listed.push(index);
                    next = budget.places[index].next;
                }
                prop_assert_eq!(listed.last().copied(), budget.ends.map(|(_, last)| last));
                prop_assert_eq!(listed.len(), budget.places.iter().filter(|place| place.is_waiting).count());
                prop_assert_eq!(budget.counts(now).waiting_connections as usize, listed.len());
            }
        }
    }
}
