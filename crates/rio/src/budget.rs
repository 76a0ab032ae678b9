//! Budgets: bounds on the packets and bytes of a stream that are processed in each period.
//!
//! Period n begins n periods after the origin, even if the thread wakes late. The last packet of a
//! period may exceed the remaining bytes; later periods then have fewer bytes.

use std::fmt;

use corelane_sched::task::{MAX_PERIOD, MIN_PERIOD, Nanos};

use crate::rate::PacketRate;

/// Packets and bytes that a stream may process in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Length of a period in nanoseconds.
    pub period: Nanos,
    /// Number of packets in each period; `None` if packets are unbounded.
    pub packets: Option<u32>,
    /// Number of bytes in each period; `None` if bytes are unbounded.
    pub bytes: Option<u64>,
}

impl Budget {
    /// Creates a budget of `packets` packets in each period, with unbounded bytes.
    #[must_use]
    pub const fn of_packets(packets: u32, period: Nanos) -> Self {
        Self { period, packets: Some(packets), bytes: None }
    }

    /// Creates a budget of `bytes` bytes in each period, with unbounded packets.
    #[must_use]
    pub const fn of_bytes(bytes: u64, period: Nanos) -> Self {
        Self { period, packets: None, bytes: Some(bytes) }
    }

    /// Creates a budget of bytes: `thousandths` of the bytes that a link of `bits_per_second`
    /// transfers in a period.
    #[must_use]
    pub fn of_link_share(thousandths: u32, bits_per_second: u64, period: Nanos) -> Self {
        let bits = u128::from(bits_per_second) * u128::from(thousandths) / 1_000;
        let bytes = bits.saturating_mul(period.into()) / (8 * 1_000_000_000);
        Self::of_bytes(u64::try_from(bytes).unwrap_or(u64::MAX), period)
    }

    /// Checks the range of the period and of the bounds, and that packets or bytes are bounded.
    ///
    /// # Errors
    /// [`BudgetError`], whose variant tells what is invalid.
    pub fn check(&self) -> Result<(), BudgetError> {
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.period) {
            return Err(BudgetError::PeriodOutOfRange(self.period));
        }
        let is_bounded = self.packets.is_some() || self.bytes.is_some();
        let is_empty = self.packets == Some(0) || self.bytes == Some(0);
        if !is_bounded || is_empty || self.bytes.is_some_and(|bytes| bytes > MAX_PERIOD_BYTES) {
            return Err(BudgetError::AmountOutOfRange { packets: self.packets, bytes: self.bytes });
        }
        Ok(())
    }
}

/// Maximum number of bytes in a period: the bytes of a 1 Tbit/s link in an hour.
pub const MAX_PERIOD_BYTES: u64 = 450_000_000_000_000;

/// The reason why a budget is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetError {
    /// The period in nanoseconds is not between [`MIN_PERIOD`] and [`MAX_PERIOD`].
    PeriodOutOfRange(Nanos),
    /// Neither packets nor bytes are bounded, a bound is 0, or the bound in bytes is larger than
    /// [`MAX_PERIOD_BYTES`].
    AmountOutOfRange {
        /// The bound in packets.
        packets: Option<u32>,
        /// The bound in bytes.
        bytes: Option<u64>,
    },
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeriodOutOfRange(period) => {
                write!(f, "the period is {period} ns; it must be {MIN_PERIOD} to {MAX_PERIOD} ns")
            }
            Self::AmountOutOfRange { packets, bytes } => write!(
                f,
                "the budget is {packets:?} packets and {bytes:?} bytes in a period; one of them must be given, packets \
                 from 1, bytes from 1 to {MAX_PERIOD_BYTES}"
            ),
        }
    }
}

impl std::error::Error for BudgetError {}

/// Rule that determines when the unused budget of a period expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetServerKind {
    /// The budget expires when no packet waits. The thread then sleeps until the next period.
    Polling,
    /// The budget expires at the end of the period. A packet that arrives in the period is
    /// processed at once while budget is left.
    Deferrable,
}

/// Consumption of a budget over time, by packets ([`try_take_packet`](Self::try_take_packet)) or by
/// bytes of a stream ([`reserve_bytes`](Self::reserve_bytes)).
#[derive(Clone, Debug)]
pub struct BudgetState {
    budget: Budget,
    service: BudgetServerKind,
    origin: Nanos,
    /// Number of the current period, from 0.
    period: u64,
    packets_left: u32,
    /// Bytes left in the current period; a negative number is a debt from earlier periods.
    bytes_left: i64,
    skipped_period_count: u64,
}

impl BudgetState {
    /// Starts the first period at `origin`.
    ///
    /// # Errors
    /// As for [`Budget::check`].
    pub fn new(budget: Budget, service: BudgetServerKind, origin: Nanos) -> Result<Self, BudgetError> {
        budget.check()?;
        let mut state =
            Self { budget, service, origin, period: 0, packets_left: 0, bytes_left: 0, skipped_period_count: 0 };
        state.refill(1);
        Ok(state)
    }

    /// Returns the budget with which the state was created.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Takes a packet of `bytes` bytes from the budget. Returns false, and takes nothing, if the
    /// budget is exhausted or the first period has not begun.
    pub fn try_take_packet(&mut self, bytes: u32, now: Nanos) -> bool {
        self.advance(now);
        if !self.has_budget() || now < self.origin {
            return false;
        }
        if self.budget.packets.is_some() {
            self.packets_left -= 1;
        }
        if self.budget.bytes.is_some() {
            self.bytes_left -= i64::from(bytes);
        }
        true
    }

    /// Takes up to `wanted` bytes, at most the bytes that are left. Returns their number and the
    /// number of the period; `None` if the number is 0, for example before the first period. The
    /// budget must bound bytes; its bound in packets has no effect.
    pub fn reserve_bytes(&mut self, wanted: usize, now: Nanos) -> Option<(usize, u64)> {
        self.advance(now);
        let bytes = if now >= self.origin { self.take_bytes(wanted) } else { 0 };
        (bytes > 0).then_some((bytes, self.period))
    }

    /// Takes up to `wanted` bytes of the current period, without regard to the time. Returns their
    /// number.
    pub(crate) fn take_bytes(&mut self, wanted: usize) -> usize {
        let bytes = usize::try_from(self.bytes_left).unwrap_or(0).min(wanted);
        self.bytes_left -= i64::try_from(bytes).unwrap_or(i64::MAX);
        bytes
    }

    /// Returns the number of the period that contains `now`, and starts it if it is new.
    pub fn period_at(&mut self, now: Nanos) -> u64 {
        self.advance(now);
        self.period
    }

    /// Returns to the budget bytes that [`reserve_bytes`](Self::reserve_bytes) took in `period`. If
    /// a later period has begun, the bytes are lost.
    pub fn return_bytes(&mut self, bytes: usize, period: u64) {
        if period == self.period {
            self.bytes_left = self.bytes_left.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Records that no packet waits. Under [`BudgetServerKind::Polling`] the remaining budget of
    /// the period expires.
    pub fn record_empty_queue(&mut self, now: Nanos) {
        self.advance(now);
        if self.service == BudgetServerKind::Polling && now >= self.origin {
            self.packets_left = 0;
            self.bytes_left = self.bytes_left.min(0);
        }
    }

    /// Returns the number of the current period, from 0.
    #[must_use]
    pub fn period(&self) -> u64 {
        self.period
    }

    /// Returns the start of the next period.
    #[must_use]
    pub fn next_period_at(&self) -> Nanos {
        self.origin.saturating_add((self.period + 1).saturating_mul(self.budget.period))
    }

    /// Returns the number of past periods in which no method with the parameter `now` was called,
    /// not counting the first period.
    #[must_use]
    pub fn skipped_period_count(&self) -> u64 {
        self.skipped_period_count
    }

    /// Returns the packets and bytes left in the current period; `None` for an unbounded amount.
    #[must_use]
    pub fn remaining(&self) -> (Option<u32>, Option<u64>) {
        let bytes = self.budget.bytes.map(|_| u64::try_from(self.bytes_left).unwrap_or(0));
        (self.budget.packets.map(|_| self.packets_left), bytes)
    }

    fn has_budget(&self) -> bool {
        let has_packets = self.budget.packets.is_none() || self.packets_left > 0;
        let has_bytes = self.budget.bytes.is_none() || self.bytes_left > 0;
        has_packets && has_bytes
    }

    fn advance(&mut self, now: Nanos) {
        let period = now.saturating_sub(self.origin) / self.budget.period;
        let begun = period.saturating_sub(self.period);
        if begun > 0 {
            self.skipped_period_count = self.skipped_period_count.saturating_add(begun - 1);
            self.period = period;
            self.refill(begun);
        }
    }

    /// Starts the last of `periods` new periods. Each new period pays for a part of the debt. The
    /// unused budget of earlier periods does not accumulate.
    fn refill(&mut self, periods: u64) {
        self.packets_left = self.budget.packets.unwrap_or(0);
        let bytes = i64::try_from(self.budget.bytes.unwrap_or(0)).unwrap_or(i64::MAX);
        let periods = i64::try_from(periods).unwrap_or(i64::MAX);
        let paid = self.bytes_left.min(0).saturating_add(bytes.saturating_mul(periods));
        self.bytes_left = paid.min(bytes);
    }
}

/// Service class of a stream, which determines when its packets are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceClass {
    /// The receive context processes packets up to this rate. Packets above the rate are processed
    /// as for [`Priority`](Self::Priority).
    LowLatency(PacketRate),
    /// In each period, packets are processed from its start until the budget or the queue is empty.
    Guaranteed(Budget),
    /// Packets are processed as soon as they arrive, at the priority of the stream's thread.
    Priority,
    /// Packets are processed as soon as they arrive, in the ordinary scheduling class, until the
    /// budget, if any, is exhausted.
    BestEffort(Option<Budget>),
}

/// Next step of a stream's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadStep {
    /// Process the packet at the head of the queue.
    Process,
    /// Sleep until this time, even if packets arrive.
    SleepUntil(Nanos),
    /// Sleep until a packet arrives.
    Wait,
}

/// Scheduler of a stream's thread, which decides the thread's next step.
#[derive(Clone, Debug)]
pub struct StreamScheduler {
    budget: Option<BudgetState>,
    sleeps_by_period: bool,
}

impl StreamScheduler {
    /// Starts the first period of the service class's budget, if any, at `origin`.
    ///
    /// # Errors
    /// As for [`Budget::check`].
    pub fn new(class: ServiceClass, origin: Nanos) -> Result<Self, BudgetError> {
        let (budget, service) = match class {
            ServiceClass::Guaranteed(budget) => (Some(budget), BudgetServerKind::Polling),
            ServiceClass::BestEffort(ceiling) => (ceiling, BudgetServerKind::Deferrable),
            ServiceClass::LowLatency(_) | ServiceClass::Priority => (None, BudgetServerKind::Deferrable),
        };
        let budget = budget.map(|budget| BudgetState::new(budget, service, origin)).transpose()?;
        Ok(Self { sleeps_by_period: service == BudgetServerKind::Polling, budget })
    }

    /// Starts the first period of `budget` at `origin`. With a deferrable budget, the thread
    /// processes a packet as soon as it arrives, while budget is left.
    ///
    /// # Errors
    /// As for [`Budget::check`].
    pub fn of_budget(budget: Budget, service: BudgetServerKind, origin: Nanos) -> Result<Self, BudgetError> {
        let budget = Some(BudgetState::new(budget, service, origin)?);
        Ok(Self { sleeps_by_period: service == BudgetServerKind::Polling, budget })
    }

    /// Decides the next step. `head` is the size in bytes of the packet at the head of the queue;
    /// `None` if the queue is empty.
    pub fn next_step(&mut self, head: Option<u32>, now: Nanos) -> ThreadStep {
        let Some(budget) = &mut self.budget else {
            return if head.is_some() { ThreadStep::Process } else { ThreadStep::Wait };
        };
        match head {
            Some(bytes) if budget.try_take_packet(bytes, now) => ThreadStep::Process,
            None if !self.sleeps_by_period => ThreadStep::Wait,
            None => {
                budget.record_empty_queue(now);
                ThreadStep::SleepUntil(budget.next_period_at())
            }
            Some(_) if now < budget.origin => ThreadStep::SleepUntil(budget.origin),
            Some(_) => ThreadStep::SleepUntil(budget.next_period_at()),
        }
    }

    /// Returns the state of the budget, if the stream has one.
    #[must_use]
    pub fn budget(&self) -> Option<&BudgetState> {
        self.budget.as_ref()
    }
}

/// Returns the indices of `streams` in the order in which they are processed. Each element has the
/// priority of a stream's lane, and the stream's service class. The sort keys are: best effort
/// last, lane priority (highest first), period (shortest first; streams without a period before all
/// others), index.
#[must_use]
pub fn processing_order(streams: &[(u8, ServiceClass)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..streams.len()).collect();
    order.sort_by_key(|&place| {
        let (priority, class) = streams[place];
        let (is_best_effort, period) = match class {
            ServiceClass::LowLatency(_) | ServiceClass::Priority => (false, 0),
            ServiceClass::Guaranteed(budget) => (false, budget.period),
            ServiceClass::BestEffort(_) => (true, 0),
        };
        (is_best_effort, u8::MAX - priority, period)
    });
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn reserved_bytes_never_exceed_the_budget_of_a_period() {
        let budget = Budget::of_bytes(1_000, 10 * MS);
        let mut state = BudgetState::new(budget, BudgetServerKind::Deferrable, 5).unwrap();
        assert_eq!(state.reserve_bytes(10, 4), None);
        assert_eq!(state.reserve_bytes(600, 5), Some((600, 0)));
        assert_eq!(state.reserve_bytes(600, 6), Some((400, 0)));
        assert_eq!(state.reserve_bytes(600, 7), None);
        state.return_bytes(100, 0);
        assert_eq!(state.reserve_bytes(600, 8), Some((100, 0)));
        assert_eq!(state.reserve_bytes(1_500, 10 * MS + 5), Some((1_000, 1)));
        state.return_bytes(400, 0);
        assert_eq!(state.reserve_bytes(1, 10 * MS + 6), None);
        assert_eq!(state.next_period_at(), 20 * MS + 5);
    }

    #[test]
    fn polling_budget_expires_when_no_packet_waits() {
        let mut turn = StreamScheduler::new(ServiceClass::Guaranteed(Budget::of_packets(2, 10 * MS)), 0).unwrap();
        assert_eq!(turn.next_step(Some(100), 0), ThreadStep::Process);
        assert_eq!(turn.next_step(None, 1), ThreadStep::SleepUntil(10 * MS));
        assert_eq!(turn.next_step(Some(100), 2), ThreadStep::SleepUntil(10 * MS));
        assert_eq!(turn.next_step(Some(100), 13 * MS), ThreadStep::Process);
        assert_eq!(turn.next_step(Some(100), 13 * MS), ThreadStep::Process);
        assert_eq!(turn.next_step(Some(100), 13 * MS), ThreadStep::SleepUntil(20 * MS));
    }

    #[test]
    fn polling_budget_of_bytes_expires_when_no_packet_waits() {
        let mut turn = StreamScheduler::new(ServiceClass::Guaranteed(Budget::of_bytes(500, 10 * MS)), 0).unwrap();
        assert_eq!(turn.next_step(None, 1), ThreadStep::SleepUntil(10 * MS));
        assert_eq!(turn.next_step(Some(100), 2), ThreadStep::SleepUntil(10 * MS));
    }

    #[test]
    fn best_effort_waits_for_packets_and_sleeps_at_its_ceiling() {
        let mut turn =
            StreamScheduler::new(ServiceClass::BestEffort(Some(Budget::of_bytes(1_000, MS))), 5 * MS).unwrap();
        assert_eq!(turn.next_step(Some(900), 4 * MS), ThreadStep::SleepUntil(5 * MS));
        assert_eq!(turn.next_step(None, 5 * MS), ThreadStep::Wait);
        assert_eq!(turn.next_step(Some(900), 5 * MS + 1), ThreadStep::Process);
        assert_eq!(turn.next_step(Some(900), 5 * MS + 1), ThreadStep::Process);
        assert_eq!(turn.next_step(Some(900), 5 * MS + 2), ThreadStep::SleepUntil(6 * MS));
        // The debt of 800 bytes is paid, and 200 bytes are left.
        assert_eq!(turn.next_step(Some(900), 6 * MS), ThreadStep::Process);
        assert_eq!(turn.next_step(Some(900), 6 * MS), ThreadStep::SleepUntil(7 * MS));
    }

    #[test]
    fn streams_without_budget_never_sleep_while_packets_wait() {
        for class in [ServiceClass::Priority, ServiceClass::BestEffort(None)] {
            let mut turn = StreamScheduler::new(class, u64::MAX).unwrap();
            assert_eq!((turn.next_step(Some(1), 0), turn.next_step(None, 0)), (ThreadStep::Process, ThreadStep::Wait));
        }
    }

    #[test]
    fn a_share_of_the_link_is_a_budget_of_bytes() {
        assert_eq!(Budget::of_link_share(400, 155_000_000, 10 * MS), Budget::of_bytes(77_500, 10 * MS));
        assert_eq!(
            Budget::of_link_share(u32::MAX, u64::MAX, u64::MAX).check(),
            Err(BudgetError::PeriodOutOfRange(u64::MAX))
        );
    }

    #[test]
    fn budgets_that_no_thread_can_keep_are_refused() {
        let packets = |packets, period| Budget::of_packets(packets, period).check().is_ok();
        assert!(packets(1, MIN_PERIOD) && packets(u32::MAX, MAX_PERIOD));
        assert!(!packets(1, MIN_PERIOD - 1) && !packets(1, MAX_PERIOD + 1) && !packets(0, MS));
        assert!(Budget { period: MS, packets: None, bytes: None }.check().is_err());
        assert!(Budget::of_bytes(MAX_PERIOD_BYTES + 1, MS).check().is_err());
    }

    #[test]
    fn streams_are_ordered_by_lane_and_then_by_rate() {
        let guaranteed = |period| ServiceClass::Guaranteed(Budget::of_packets(1, period));
        let streams = [
            (1, ServiceClass::BestEffort(None)),
            (50, guaranteed(20 * MS)),
            (50, guaranteed(10 * MS)),
            (60, guaranteed(40 * MS)),
            (50, ServiceClass::Priority),
        ];
        assert_eq!(processing_order(&streams), [3, 4, 2, 1, 0]);
    }

    prop_compose! {
        fn any_budget()(
            period in MIN_PERIOD..20 * MS,
            packets in prop::option::of(1_u32..20),
            bytes in 1_u64..30_000,
            has_bytes: bool,
        ) -> Budget {
            Budget { period, packets, bytes: (has_bytes || packets.is_none()).then_some(bytes) }
        }
    }

    proptest! {
        #[test]
        fn no_run_of_periods_exceeds_its_budget(
            budget in any_budget(),
            asks in prop::collection::vec((0_u64..3 * MS, 1_u32..9_000), 1..300),
        ) {
            let mut state = BudgetState::new(budget, BudgetServerKind::Deferrable, 0).unwrap();
            let (mut now, mut grants) = (0, Vec::new());
            for (gap, bytes) in asks {
                now += gap;
                if state.try_take_packet(bytes, now) {
                    grants.push((now / budget.period, bytes));
                }
            }
            for (first, &(from, _)) in grants.iter().enumerate() {
                let (mut packets, mut sum, mut largest) = (0_u64, 0, 0);
                for &(period, bytes) in &grants[first..] {
                    let periods = period - from + 1;
                    (packets, sum, largest) = (packets + 1, sum + u64::from(bytes), largest.max(bytes));
                    if let Some(most) = budget.packets {
                        prop_assert!(packets <= u64::from(most) * periods);
                    }
                    if let Some(most) = budget.bytes {
                        prop_assert!(sum < most * periods + u64::from(largest));
                    }
                }
            }
        }

        /// The thread wakes late, and packets arrive at any time.
        #[test]
        fn thread_of_a_deferrable_budget_sleeps_only_until_the_next_period_and_only_without_budget(
            packets in 1_u32..9,
            gaps in prop::collection::vec(0_u64..2 * MS, 1..100),
            late in prop::collection::vec(0_u64..MS, 1..20),
        ) {
            let budget = Budget::of_packets(packets, MS);
            let mut turn = StreamScheduler::of_budget(budget, BudgetServerKind::Deferrable, 0).unwrap();
            let mut last = 0;
            // Packets arrive in groups of four.
            let arrivals = gaps.iter().enumerate().map(|(place, gap)| {
                last += if place % 4 == 0 { *gap } else { 0 };
                last
            });
            let (mut arrivals, mut late) = (arrivals.peekable(), late.iter().cycle());
            let (mut now, mut processed) = (0, std::collections::BTreeMap::new());
            loop {
                let head = arrivals.peek().filter(|at| **at <= now).map(|_| 100);
                match turn.next_step(head, now) {
                    ThreadStep::Process => {
                        arrivals.next();
                        *processed.entry(now / MS).or_insert(0) += 1;
                        now += 1_000;
                    }
                    ThreadStep::SleepUntil(due) => {
                        prop_assert_eq!((due, processed.get(&(now / MS))), ((now / MS + 1) * MS, Some(&packets)));
                        now = due + late.next().unwrap();
                    }
                    ThreadStep::Wait => match arrivals.peek() {
                        Some(at) => now = at + late.next().unwrap(),
                        None => break,
                    },
                }
            }
            prop_assert!(processed.values().all(|count| *count <= packets));
            prop_assert_eq!(processed.values().sum::<u32>() as usize, gaps.len());
        }

        #[test]
        fn a_stream_with_packets_gets_its_whole_budget(
            budget in any_budget(),
            late in prop::collection::vec(0_u64..1_000, 5..60),
            sizes in prop::collection::vec(1_u32..9_000, 1..20),
        ) {
            let mut turn = StreamScheduler::new(ServiceClass::Guaranteed(budget), 0).unwrap();
            let (mut packets, mut bytes) = (0_u64, 0_u64);
            let mut sizes = sizes.iter().cycle();
            let mut head = *sizes.next().unwrap();
            let periods = late.len() as u64;
            for (period, late) in late.iter().enumerate() {
                let now = period as u64 * budget.period + late * budget.period / 1_000;
                while turn.next_step(Some(head), now) == ThreadStep::Process {
                    (packets, bytes) = (packets + 1, bytes + u64::from(head));
                    head = *sizes.next().unwrap();
                }
                prop_assert_eq!(turn.budget().unwrap().next_period_at(), (period as u64 + 1) * budget.period);
            }
            prop_assert_eq!(turn.budget().unwrap().skipped_period_count(), 0);
            let is_full = |got: u64, each: u64| got >= each * periods;
            let has_packets = budget.packets.is_some_and(|each| is_full(packets, each.into()));
            let has_bytes = budget.bytes.is_some_and(|each| is_full(bytes, each));
            if budget.packets.is_none() || budget.bytes.is_none() {
                prop_assert!(has_packets || has_bytes, "{} packets, {} bytes in {} periods", packets, bytes, periods);
            }
        }

        #[test]
        fn missed_periods_are_counted_and_not_made_up(budget in any_budget(), missed in 1_u64..1_000) {
            let mut state = BudgetState::new(budget, BudgetServerKind::Deferrable, 0).unwrap();
            let now = (missed + 1) * budget.period;
            let mut bytes = 0;
            let mut packets = 0;
            while state.try_take_packet(1, now) {
                (bytes, packets) = (bytes + 1, packets + 1);
            }
            prop_assert_eq!(state.skipped_period_count(), missed);
            prop_assert!(budget.packets.is_none_or(|most| packets <= most));
            prop_assert!(budget.bytes.is_none_or(|most| bytes <= most));
        }
    }
}
