//! The budget of a core's best-effort threads ([`super`]): a deferrable server.
//!
//! ```text
//!       work            budget used up
//! idle ------> running ---------------> exhausted
//!   ^           |   ^                       |
//!   +-----------+   +-----------------------+
//!    period ends       period ends
//! ```
//!
//! Times are in nanoseconds since an instant that the caller chooses. The processor time is the sum
//! over all threads of the core, at whichever priority they ran.
//!
//! Invariant: periods begin at least one period apart. In each of them the threads run above all
//! tasks until a check finds that they have used the budget.

use corelane_sched::task::Nanos;

use crate::rt::core_config::BestEffortShare;

/// The priority of a core's best-effort threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareLevel {
    AboveTasks,
    Background,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerCheck {
    /// The level that the threads get now; `None` if their level does not change.
    pub(super) change: Option<ShareLevel>,
    /// The time of the next check; `None` if no check is needed before a thread begins to work.
    pub(super) next_at: Option<Nanos>,
    /// A thread that begins to work before this time could exceed the budget by more than
    /// [`BestEffortShare::MAX_BUDGET_OVERRUN`] before the check at `next_at`, so it must ask for an
    /// earlier check. Threads that begin later need not ask.
    pub(super) ask_before: Nanos,
}

#[derive(Clone, Debug)]
pub(super) struct DeferrableServer {
    budget: Nanos,
    period: Nanos,
    /// The shortest time to the next check, unless the period ends earlier.
    check_interval: Nanos,
    /// The start of the running period; `None` if no period runs.
    begun_at: Option<Nanos>,
    /// The processor time of the threads at the start of the period.
    used_before: Nanos,
    is_exhausted: bool,
    /// The processor time that the threads have used above all tasks, in periods that have ended or
    /// are exhausted.
    guaranteed: Nanos,
    exhaustions: u64,
}

impl DeferrableServer {
    pub(super) fn new(share: BestEffortShare) -> Self {
        let nanoseconds = |time: std::time::Duration| Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
        DeferrableServer {
            budget: nanoseconds(share.budget),
            period: nanoseconds(share.period),
            check_interval: nanoseconds(BestEffortShare::MAX_BUDGET_OVERRUN),
            begun_at: None,
            used_before: 0,
            is_exhausted: false,
            guaranteed: 0,
            exhaustions: 0,
        }
    }

    /// Returns the level of the threads after the last check.
    pub(super) fn level(&self) -> ShareLevel {
        if self.is_exhausted { ShareLevel::Background } else { ShareLevel::AboveTasks }
    }

    /// Returns the processor time that the threads have used above all tasks, and the number of
    /// exhausted periods. `used` is their processor time in all.
    pub(super) fn use_of(&self, used: Nanos) -> (Nanos, u64) {
        let running = if self.is_exhausted { 0 } else { used.saturating_sub(self.used_before) };
        (self.guaranteed.saturating_add(running), self.exhaustions)
    }

    /// Checks the budget at the time `now`. `used` is the processor time of the threads so far.
    /// `is_busy` is true if a thread is not waiting for work.
    pub(super) fn check(&mut self, now: Nanos, used: Nanos, is_busy: bool) -> ServerCheck {
        let mut change = None;
        if self.begun_at.is_some_and(|begun_at| now.saturating_sub(begun_at) >= self.period) {
            self.begun_at = None;
            if self.is_exhausted {
                self.is_exhausted = false;
                change = Some(ShareLevel::AboveTasks);
            } else {
                self.guaranteed = self.guaranteed.saturating_add(used.saturating_sub(self.used_before));
            }
            self.used_before = used;
        }
        let spent = used.saturating_sub(self.used_before);
        let begun_at = match self.begun_at {
            Some(begun_at) => begun_at,
            None if is_busy || spent > 0 => *self.begun_at.insert(now),
            None => return ServerCheck { change, next_at: None, ask_before: Nanos::MAX },
        };
        let ends_at = begun_at.saturating_add(self.period);
        let left = self.budget.saturating_sub(spent);
        if left == 0 && !self.is_exhausted {
            self.is_exhausted = true;
            self.exhaustions += 1;
            self.guaranteed = self.guaranteed.saturating_add(spent);
            change = Some(ShareLevel::Background);
        }
        if self.is_exhausted {
            return ServerCheck { change, next_at: Some(ends_at), ask_before: 0 };
        }
        let after = left.max(self.check_interval);
        let next_at = if is_busy { ends_at.min(now.saturating_add(after)) } else { ends_at };
        ServerCheck { change, next_at: Some(next_at), ask_before: next_at.saturating_sub(after) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corelane_sched::random::Random;

    use super::*;

    const US: Nanos = 1_000;
    const BUDGET: Nanos = 1_000 * US;
    const PERIOD: Nanos = 10_000 * US;
    const STEP: Nanos = 20 * US;

    fn server() -> DeferrableServer {
        let time = Duration::from_nanos;
        DeferrableServer::new(BestEffortShare::new(time(BUDGET), time(PERIOD)))
    }

    /// A core in simulated time, whose threads work by a pattern. Tasks keep the core busy, so the
    /// threads get processor time only while they are above all tasks.
    struct SimulatedCore {
        server: DeferrableServer,
        now: Nanos,
        used: Nanos,
        next: ServerCheck,
        is_above: bool,
        was_busy: bool,
        checks: u64,
        /// For each step: the processor time that the threads got.
        got: Vec<Nanos>,
    }

    impl SimulatedCore {
        fn new() -> Self {
            let mut server = server();
            let next = server.check(0, 0, false);
            let (was_busy, got) = (false, Vec::new());
            SimulatedCore { server, now: 0, used: 0, next, is_above: true, was_busy, checks: 0, got }
        }

        fn step(&mut self, works: bool) {
            let asks = works && !self.was_busy && self.now < self.next.ask_before;
            if asks || self.next.next_at.is_some_and(|at| at <= self.now) {
                self.next = self.server.check(self.now, self.used, works);
                self.checks += 1;
                self.is_above = self.next.change.map_or(self.is_above, |level| level == ShareLevel::AboveTasks);
                assert_eq!(self.is_above, self.server.level() == ShareLevel::AboveTasks);
                assert!(self.next.next_at.is_none_or(|at| at > self.now), "{:?}", self.next);
            }
            let got = if works && self.is_above { STEP } else { 0 };
            (self.used, self.now, self.was_busy) = (self.used + got, self.now + STEP, works);
            self.got.push(got);
        }
    }

    #[test]
    fn threads_that_always_have_work_get_their_budget_in_each_period_and_no_more() {
        let mut core = SimulatedCore::new();
        for _ in 0..10 * PERIOD / STEP {
            core.step(true);
        }
        for period in core.got.chunks((PERIOD / STEP) as usize) {
            let got: Nanos = period.iter().sum();
            assert!((BUDGET..=BUDGET + 100 * US).contains(&got), "{got}");
        }
        assert!(core.checks <= 40, "{}", core.checks);
        assert_eq!(core.server.use_of(core.used), (core.used, 10));
    }

    #[test]
    fn no_pattern_of_work_gets_more_than_the_analysis_counts() {
        let mut random = Random::new(7);
        for _ in 0..200 {
            let mut core = SimulatedCore::new();
            let (busy, idle) = (random.in_range(1, 60), random.in_range(1, 600));
            while core.now < 8 * PERIOD {
                let (works, rests) = (random.in_range(1, busy), random.in_range(0, idle));
                (0..works).for_each(|_| core.step(true));
                (0..rests).for_each(|_| core.step(false));
            }
            let late = Duration::from_nanos(BUDGET) + BestEffortShare::MAX_BUDGET_OVERRUN;
            let counted = Nanos::try_from(late.as_nanos()).unwrap() + STEP;
            // The threads may use two budgets without a pause between them. So the bound is that of
            // a periodic task with a release jitter.
            let bound = |span: Nanos| (span + PERIOD - counted).div_ceil(PERIOD) * counted;
            let sums: Vec<Nanos> = core
                .got
                .iter()
                .scan(0, |sum, got| {
                    *sum += got;
                    Some(*sum)
                })
                .collect();
            for steps in [10, 60, 110, 400, 500, 560, 1_000, 1_600] {
                let most = sums.windows(steps + 1).map(|window| window[steps] - window[0]).max().unwrap_or(0);
                assert!(most <= bound(steps as Nanos * STEP), "{most} in {steps} steps");
            }
            // After a check that a thread asked for, no thread asks for another check within the
            // check interval.
            assert!(core.checks <= 2 * core.now / (100 * US), "{} checks", core.checks);
        }
    }

    #[test]
    fn idle_threads_need_no_checks_and_keep_their_budget() {
        let mut core = SimulatedCore::new();
        (0..5).for_each(|_| core.step(true));
        (0..3 * PERIOD / STEP).for_each(|_| core.step(false));
        assert_eq!(core.next.next_at, None);
        let checks = core.checks;
        assert!(checks <= 4, "{checks}");
        (0..100 * PERIOD / STEP).for_each(|_| core.step(false));
        assert_eq!(core.checks, checks);
        let before = core.used;
        (0..PERIOD / STEP).for_each(|_| core.step(true));
        assert!(core.used - before >= BUDGET);
    }

    #[test]
    fn work_in_the_background_counts_for_no_later_period() {
        let mut server = server();
        server.check(0, 0, true);
        assert_eq!(server.check(BUDGET, BUDGET, true).change, Some(ShareLevel::Background));
        // The core was free, so the threads continued in the background. This time does not count
        // in the next period.
        let restored = server.check(PERIOD, PERIOD, true);
        assert_eq!(restored.change, Some(ShareLevel::AboveTasks));
        assert_eq!(restored.next_at, Some(PERIOD + BUDGET));
        assert_eq!(server.use_of(PERIOD), (BUDGET, 1));
    }
}
