//! The order of the running jobs of each core by their deadlines (EDF).
//!
//! A job gets a priority level between the jobs with the nearest deadlines. If no level is left
//! between them, all jobs of the core get new levels with equal distances.
//!
//! Invariant: of two jobs of a core, the job with the earlier deadline has the higher level. If
//! their deadlines are equal, the job that began on this core, or moved to it, before the other has
//! the higher level. If a core has more jobs than levels, the jobs with the latest deadlines share
//! the lowest level.

use super::roster::ThreadNumber;

/// The lowest level of a job. Sleeping threads have the level below it.
const LEAST_LEVEL: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OrderedJob {
    core: usize,
    deadline: u64,
    thread: ThreadNumber,
    level: u8,
}

#[derive(Clone, Debug)]
pub(super) struct DeadlineOrder {
    /// Sorted by core, and then by deadline.
    jobs: Vec<OrderedJob>,
    most_level: u8,
}

impl DeadlineOrder {
    /// Jobs get the levels [`LEAST_LEVEL`] to `most_level`.
    pub(super) fn new(most_level: u8) -> Self {
        DeadlineOrder { jobs: Vec::new(), most_level: most_level.max(LEAST_LEVEL) }
    }

    /// Adds a job of `thread` on `core`, in place of the job that the thread has. Appends the
    /// threads whose levels have changed, including `thread`, to `changed`.
    pub(super) fn begin(&mut self, core: usize, deadline: u64, thread: ThreadNumber, changed: &mut Vec<ThreadNumber>) {
        self.end(thread, changed);
        let at = self.jobs.partition_point(|job| (job.core, job.deadline) <= (core, deadline));
        let of_core = |job: &&OrderedJob| job.core == core;
        let above = at.checked_sub(1).and_then(|before| self.jobs.get(before)).filter(of_core);
        let below = self.jobs.get(at).filter(of_core);
        let high = above.map_or(self.most_level + 1, |job| job.level);
        let low = below.map_or(LEAST_LEVEL - 1, |job| job.level);
        let level = low + high.saturating_sub(low) / 2;
        self.jobs.insert(at, OrderedJob { core, deadline, thread, level });
        changed.push(thread);
        if level <= low || level >= high {
            self.spread(core, changed);
        }
    }

    fn spread(&mut self, core: usize, changed: &mut Vec<ThreadNumber>) {
        let levels = self.levels();
        let count = self.jobs.iter().filter(|job| job.core == core).count();
        for (rank, job) in self.jobs.iter_mut().filter(|job| job.core == core).enumerate() {
            // Rank 0 has the earliest deadline.
            let below =
                if count > levels { (levels - 1).saturating_sub(rank) } else { (count - rank) * levels / (count + 1) };
            let level = LEAST_LEVEL + u8::try_from(below).unwrap_or(0);
            if job.level != level {
                job.level = level;
                if !changed.contains(&job.thread) {
                    changed.push(job.thread);
                }
            }
        }
    }

    /// Removes the job of a thread, and returns its core and its deadline. Appends the threads
    /// whose levels have changed to `changed`.
    pub(super) fn end(&mut self, thread: ThreadNumber, changed: &mut Vec<ThreadNumber>) -> Option<(usize, u64)> {
        let at = self.jobs.iter().position(|job| job.thread == thread)?;
        let OrderedJob { core, deadline, .. } = self.jobs.remove(at);
        // Jobs that had to share a level may have levels of their own now, so the levels are
        // assigned again.
        if self.jobs.iter().filter(|job| job.core == core).count() >= self.levels() {
            self.spread(core, changed);
        }
        Some((core, deadline))
    }

    fn levels(&self) -> usize {
        usize::from(self.most_level - LEAST_LEVEL) + 1
    }

    /// Moves the job of a thread to another core. Does nothing if the thread runs no job. Appends
    /// the threads whose levels have changed to `changed`.
    pub(super) fn move_to(&mut self, core: usize, thread: ThreadNumber, changed: &mut Vec<ThreadNumber>) {
        if self.jobs.iter().any(|job| job.thread == thread && job.core != core)
            && let Some((_, deadline)) = self.end(thread, changed)
        {
            self.begin(core, deadline, thread, changed);
        }
    }

    /// Takes back all changes since the copy `before`. Appends the threads whose levels have
    /// changed to `changed`.
    pub(super) fn restore(&mut self, before: Self, changed: &mut Vec<ThreadNumber>) {
        let differs = |job: &&OrderedJob| self.level_of(job.thread) != Some(job.level);
        changed.extend(before.jobs.iter().filter(differs).map(|job| job.thread));
        *self = before;
    }

    pub(super) fn level_of(&self, thread: ThreadNumber) -> Option<u8> {
        self.jobs.iter().find(|job| job.thread == thread).map(|job| job.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl DeadlineOrder {
        fn job_of(&self, thread: ThreadNumber) -> Option<(usize, u8)> {
            self.jobs.iter().find(|job| job.thread == thread).map(|job| (job.core, job.level))
        }
    }

    /// Checks the invariant for each pair of jobs of one core. `begun` has the jobs in the order in
    /// which they began.
    fn check(order: &DeadlineOrder, begun: &[(usize, u64, ThreadNumber)], levels: usize) {
        for (first, &(core, deadline, thread)) in begun.iter().enumerate() {
            let (of, level) = order.job_of(thread).expect("a running job");
            assert!(of == core && (LEAST_LEVEL..=order.most_level).contains(&level), "{order:?}");
            let on_core = begun.iter().filter(|job| job.0 == core).count();
            for &(_, other_deadline, other) in begun[first + 1..].iter().filter(|job| job.0 == core) {
                let other_level = order.job_of(other).expect("a running job").1;
                if other_deadline < deadline {
                    assert!(other_level > level || (on_core > levels && other_level == level), "{order:?}");
                } else {
                    assert!(level > other_level || (on_core > levels && other_level == level), "{order:?}");
                }
            }
        }
        assert_eq!(order.jobs.len(), begun.len());
    }

    /// Tries orders of up to seven begins, moves and ends of jobs on two cores, with fewer levels
    /// than jobs.
    #[test]
    fn levels_follow_the_deadlines_in_all_orders() {
        const LEVELS: u8 = 3;
        fn explore(order: &DeadlineOrder, begun: &[(usize, u64, ThreadNumber)], depth: usize, orders: &mut u64) {
            check(order, begun, usize::from(LEVELS));
            *orders += 1;
            if depth == 0 {
                return;
            }
            let free = (0..).find(|thread| begun.iter().all(|job| job.2 != *thread)).expect("a number");
            for (core, deadline) in [(0, 10), (0, 20), (0, 30), (1, 20)] {
                let mut next = order.clone();
                let mut changed = Vec::new();
                next.begin(core, deadline, free, &mut changed);
                for thread in 0..=begun.len() {
                    let is_changed = next.job_of(thread) != order.job_of(thread);
                    assert!(!is_changed || changed.contains(&thread), "{thread}: {order:?} {next:?}");
                }
                explore(&next, &[begun, &[(core, deadline, free)]].concat(), depth - 1, orders);
            }
            if let Some(&(core, deadline, thread)) = begun.first() {
                let (mut next, mut moved) = (order.clone(), begun[1..].to_vec());
                next.move_to(1 - core, thread, &mut Vec::new());
                moved.push((1 - core, deadline, thread));
                explore(&next, &moved, depth - 1, orders);
            }
            for ended in 0..begun.len() {
                let mut next = order.clone();
                let mut left = begun.to_vec();
                let (core, deadline, thread) = left.remove(ended);
                let mut changed = Vec::new();
                assert_eq!(next.end(thread, &mut changed), Some((core, deadline)));
                assert!(left.iter().all(|job| next.job_of(job.2) == order.job_of(job.2) || changed.contains(&job.2)));
                explore(&next, &left, depth - 1, orders);
            }
        }
        let mut orders = 0;
        explore(&DeadlineOrder::new(LEAST_LEVEL + LEVELS - 1), &[], 7, &mut orders);
        assert!(orders > 20_000, "{orders}");
    }

    #[test]
    fn jobs_that_begin_one_after_another_change_few_levels() {
        let mut order = DeadlineOrder::new(97);
        let mut all = 0;
        for job in 0..90 {
            let mut changed = Vec::new();
            order.begin(0, 1_000 - job, usize::try_from(job).unwrap(), &mut changed);
            all += changed.len();
        }
        let begun: Vec<_> = (0..90).map(|job| (0, 1_000 - job, usize::try_from(job).unwrap())).collect();
        check(&order, &begun, 96);
        assert!(all < 90 * 45, "{all} changes");
        assert_eq!(order.end(200, &mut Vec::new()), None);
    }
}
