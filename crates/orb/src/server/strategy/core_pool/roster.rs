//! The decisions of a core pool: which thread serves which connection on which core.
//!
//! ```text
//!              bind                     finish
//! sleeping -----------> bound(task) ------------> sleeping
//!                       |      ^
//!   task leaves the set v      | task is in the set again
//!                       ending -
//! ```
//!
//! A thread may also serve a single message: one that another thread has read (`lend`), or in
//! leader/followers the message that the thread itself has read (`lead`).
//!
//! Invariants: a connection is bound to at most one thread, and a thread to at most one connection.
//! There are never more threads than the maximum. Only a thread itself ends its binding
//! ([`finish`](Roster::finish)): a change of the set of tasks only asks the thread to do so.

use crate::job_budget::JobOverrun;
use crate::rt::core_config::{CorePoolCounts, TaskBinding};

pub(super) type ThreadNumber = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    Sleep,
    /// The thread serves a connection or a message, at the core and priority of this task.
    Serve(TaskBinding),
    /// The task of the thread's connection or message has ended. The thread must return the
    /// connection to the lane, or must not run the message.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BindDecision {
    /// The caller wakes this sleeping thread, which may belong to another core.
    Wake(ThreadNumber),
    /// A new thread with this number serves. The caller starts the thread, or calls
    /// [`start_failed`](Roster::start_failed).
    Start(ThreadNumber),
    /// The connection has a thread already, so the message needs a thread of its own
    /// ([`lend`](Roster::lend)).
    Occupied,
    /// All threads for tasks are in use, or the free threads are reserved for tasks that have no
    /// thread yet. A best-effort thread runs the request.
    Exhausted,
    /// The task is not in the set of tasks, or the roster is closed. A best-effort thread runs the
    /// request.
    NoTask,
}

/// The decision about a request that a sleeping thread has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeadDecision {
    /// The thread runs the request. Another thread sleeps, and reads the next request.
    Run,
    /// No other thread sleeps. The caller starts one ([`add_follower`](Roster::add_follower)) and
    /// asks again.
    Alone,
    /// The free threads are reserved for tasks that have no thread yet, so a best-effort thread
    /// runs the request.
    Exhausted,
    /// The task is not in the set of tasks, or the roster is closed. A best-effort thread runs the
    /// request.
    NoTask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The number is free.
    Vacant,
    Sleeping,
    /// The thread serves this connection, or a single message if `connection` is `None`, for this
    /// task. `ends` is true if the task has left the set.
    Bound {
        connection: Option<u64>,
        binding: TaskBinding,
        ends: bool,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    home: usize,
    place: Place,
}

impl Entry {
    fn task(&self) -> Option<u64> {
        match self.place {
            Place::Bound { binding, .. } => Some(binding.task),
            Place::Sleeping | Place::Vacant => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Roster {
    threads: Vec<Entry>,
    max_threads: usize,
    /// Number of threads that must remain free to read: 1 in leader/followers, and 0 in the other
    /// modes.
    readers: usize,
    /// The tasks in the order of their numbers.
    tasks: Vec<TaskBinding>,
    is_closed: bool,
    counts: CorePoolCounts,
}

impl Roster {
    pub(super) fn new(max_threads: usize, readers: usize) -> Self {
        Roster {
            threads: Vec::new(),
            max_threads,
            readers,
            tasks: Vec::new(),
            is_closed: false,
            counts: CorePoolCounts::default(),
        }
    }

    pub(super) fn add(&mut self, home: usize) -> Option<ThreadNumber> {
        let number = self.vacant()?;
        self.set(number, Entry { home, place: Place::Sleeping });
        Some(number)
    }

    fn vacant(&self) -> Option<ThreadNumber> {
        let vacant = self.threads.iter().position(|entry| entry.place == Place::Vacant);
        vacant.or((self.threads.len() < self.max_threads).then_some(self.threads.len()))
    }

    fn set(&mut self, number: ThreadNumber, entry: Entry) {
        match self.threads.get_mut(number) {
            Some(slot) => *slot = entry,
            None => self.threads.push(entry),
        }
    }

    pub(super) fn bind(&mut self, task: u64, connection: u64) -> BindDecision {
        let of_connection =
            |entry: &Entry| matches!(entry.place, Place::Bound { connection: Some(of), .. } if of == connection);
        if self.threads.iter().any(of_connection) {
            return BindDecision::Occupied;
        }
        let decision = self.take_thread(task, Some(connection));
        self.counts.connections_bound += u64::from(matches!(decision, BindDecision::Wake(_) | BindDecision::Start(_)));
        decision
    }

    /// Chooses a thread for a single message of a task, on a connection that another thread reads.
    pub(super) fn lend(&mut self, task: u64) -> BindDecision {
        let decision = self.take_thread(task, None);
        self.counts.requests_handed_over +=
            u64::from(matches!(decision, BindDecision::Wake(_) | BindDecision::Start(_)));
        decision
    }

    /// Decides whether the sleeping thread `number` runs the request that it has read.
    pub(super) fn lead(&mut self, number: ThreadNumber, task: u64) -> LeadDecision {
        let Some(binding) = self.binding(task) else { return LeadDecision::NoTask };
        if self.is_reserved_from(task) {
            return LeadDecision::Exhausted;
        }
        let mut others = self.threads.iter().enumerate().filter(|(at, _)| *at != number);
        if !others.any(|(_, entry)| entry.place == Place::Sleeping) {
            return LeadDecision::Alone;
        }
        let Some(entry) = self.threads.get_mut(number) else { return LeadDecision::NoTask };
        self.counts.led += 1;
        self.counts.threads_borrowed += u64::from(entry.home != binding.core);
        entry.place = Place::Bound { connection: None, binding, ends: false };
        LeadDecision::Run
    }

    /// Adds a sleeping thread that reads the next request. Returns `None` if the pool has its
    /// maximum of threads. The caller starts the thread, or reports
    /// [`start_failed`](Self::start_failed).
    pub(super) fn add_follower(&mut self, home: usize) -> Option<ThreadNumber> {
        let number = self.add(home)?;
        self.counts.threads_started += 1;
        Some(number)
    }

    fn binding(&self, task: u64) -> Option<TaskBinding> {
        let found = self.tasks.binary_search_by_key(&task, |binding| binding.task);
        found.ok().and_then(|at| self.tasks.get(at)).filter(|_| !self.is_closed).copied()
    }

    fn take_thread(&mut self, task: u64, connection: Option<u64>) -> BindDecision {
        let Some(binding) = self.binding(task) else { return BindDecision::NoTask };
        if self.is_reserved_from(task) {
            return BindDecision::Exhausted;
        }
        let place = Place::Bound { connection, binding, ends: false };
        if let Some(number) = self.sleeper_for(binding.core)
            && let Some(entry) = self.threads.get_mut(number)
        {
            self.counts.threads_borrowed += u64::from(entry.home != binding.core);
            entry.place = place;
            return BindDecision::Wake(number);
        }
        match self.vacant() {
            Some(number) => {
                self.set(number, Entry { home: binding.core, place });
                self.counts.threads_started += 1;
                BindDecision::Start(number)
            }
            None => BindDecision::Exhausted,
        }
    }

    /// Returns true if a task must not get a further thread: the task has a thread, and each free
    /// thread is needed for a task that has none. So a client that opens many connections takes no
    /// thread from other tasks.
    fn is_reserved_from(&self, task: u64) -> bool {
        let mut served: Vec<u64> = self.threads.iter().filter_map(Entry::task).collect();
        if !served.contains(&task) {
            return false;
        }
        let free = self.max_threads.saturating_sub(served.len() + self.readers);
        served.sort_unstable();
        served.dedup();
        served.retain(|served| self.tasks.binary_search_by_key(served, |binding| binding.task).is_ok());
        free <= self.tasks.len() - served.len()
    }

    /// Returns a sleeping thread of a core. If none sleeps there, returns a thread of the core with
    /// the most sleeping threads, so that no core loses its last sleeping thread without need.
    /// `None` if no thread sleeps.
    fn sleeper_for(&self, core: usize) -> Option<ThreadNumber> {
        let sleeping = || self.threads.iter().enumerate().filter(|(_, entry)| entry.place == Place::Sleeping);
        let own = sleeping().find(|(_, entry)| entry.home == core);
        let most = || sleeping().max_by_key(|(_, entry)| sleeping().filter(|other| other.1.home == entry.home).count());
        own.or_else(most).map(|(number, _)| number)
    }

    /// Takes back the binding of a thread that was woken, because the kernel refuses its core or
    /// its priority.
    pub(super) fn wake_failed(&mut self, number: ThreadNumber) {
        let Some(entry) = self.threads.get_mut(number) else { return };
        if let Place::Bound { connection, binding, .. } = std::mem::replace(&mut entry.place, Place::Sleeping) {
            let counted = match connection {
                Some(_) => &mut self.counts.connections_bound,
                None if self.readers > 0 => &mut self.counts.led,
                None => &mut self.counts.requests_handed_over,
            };
            *counted -= 1;
            self.counts.threads_borrowed -= u64::from(entry.home != binding.core);
        }
    }

    /// Returns true if the task is in the set.
    pub(super) fn contains(&self, task: u64) -> bool {
        self.tasks.binary_search_by_key(&task, |binding| binding.task).is_ok()
    }

    /// Removes a task from the set, because the kernel refuses a request for it. Returns the
    /// threads whose duty changes.
    pub(super) fn remove_task(&mut self, task: u64) -> Vec<ThreadNumber> {
        self.tasks.retain(|binding| binding.task != task);
        let mut changed = Vec::new();
        for (number, entry) in self.threads.iter_mut().enumerate() {
            if let Place::Bound { binding, ends, .. } = &mut entry.place
                && binding.task == task
                && !std::mem::replace(ends, true)
            {
                changed.push(number);
            }
        }
        changed
    }

    pub(super) fn start_failed(&mut self, number: ThreadNumber) {
        let Some(entry) = self.threads.get_mut(number) else { return };
        self.counts.threads_started -= 1;
        if let Place::Bound { connection, .. } = std::mem::replace(&mut entry.place, Place::Vacant) {
            let counted = if connection.is_some() {
                &mut self.counts.connections_bound
            } else {
                &mut self.counts.requests_handed_over
            };
            *counted -= 1;
        }
    }

    pub(super) fn finish(&mut self, number: ThreadNumber) {
        let Some(entry) = self.threads.get_mut(number) else { return };
        if let Place::Bound { connection: Some(_), ends, .. } = entry.place {
            self.counts.connections_unbound_by_task_end += u64::from(ends);
        }
        if let Place::Bound { binding, .. } = entry.place
            && self.readers > 0
        {
            // In leader/followers, a thread that reads stays on the core of its last request.
            entry.home = binding.core;
        }
        entry.place = Place::Sleeping;
    }

    pub(super) fn set_tasks(&mut self, tasks: &[TaskBinding]) -> Vec<ThreadNumber> {
        self.tasks = tasks.to_vec();
        self.tasks.sort_unstable();
        self.tasks.dedup_by_key(|binding| binding.task);
        let mut changed = Vec::new();
        for (number, entry) in self.threads.iter_mut().enumerate() {
            let Place::Bound { connection, binding, ends } = entry.place else { continue };
            let found = self.tasks.binary_search_by_key(&binding.task, |other| other.task);
            let now = match found {
                Ok(at) => Place::Bound { connection, binding: self.tasks[at], ends: false },
                Err(_) => Place::Bound { connection, binding, ends: true },
            };
            if now != entry.place {
                let Place::Bound { binding: next, .. } = now else { continue };
                let is_moved = (next.core, next.priority) != (binding.core, binding.priority);
                self.counts.threads_moved += u64::from(is_moved && !ends);
                entry.place = now;
                changed.push(number);
            }
        }
        changed
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) fn duty(&self, number: ThreadNumber) -> Duty {
        match self.threads.get(number).map(|entry| entry.place) {
            Some(Place::Bound { binding, ends: false, .. }) => Duty::Serve(binding),
            Some(Place::Bound { .. }) => Duty::GiveUp,
            Some(Place::Sleeping | Place::Vacant) | None => Duty::Sleep,
        }
    }

    pub(super) fn home(&self, number: ThreadNumber) -> usize {
        self.threads.get(number).map_or(0, |entry| entry.home)
    }

    pub(super) fn count_not_bound(&mut self, is_refused: bool) {
        let count = if is_refused { &mut self.counts.without_thread } else { &mut self.counts.requests_not_bound };
        *count += 1;
    }

    pub(super) fn count_refused_by_kernel(&mut self) {
        self.counts.tasks_refused_by_kernel += 1;
    }

    pub(super) fn count_foreign(&mut self) {
        self.counts.requests_without_task += 1;
    }

    pub(super) fn count_delayed(&mut self) {
        self.counts.requests_delayed_by_rate += 1;
    }

    pub(super) fn count_refused(&mut self, is_oneway: bool) {
        let count =
            if is_oneway { &mut self.counts.oneways_dropped_by_rate } else { &mut self.counts.calls_refused_by_rate };
        *count += 1;
    }

    pub(super) fn count_overrun(&mut self, overrun: JobOverrun) {
        self.counts.jobs_over_budget += 1;
        self.counts.jobs_demoted += u64::from(overrun.is_demoted);
        self.counts.jobs_stopped += u64::from(overrun.is_stopped);
    }

    pub(super) fn counts(&self) -> CorePoolCounts {
        let is_bound = |entry: &&Entry| matches!(entry.place, Place::Bound { connection: Some(_), .. });
        let bound = self.threads.iter().filter(is_bound).count();
        CorePoolCounts { currently_bound_connections: bound as u64, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_THREADS: usize = 3;
    const DEPTH: usize = 6;

    fn binding(task: u64, core: usize) -> TaskBinding {
        TaskBinding::new(task, core, 10)
    }

    fn sets() -> [Vec<TaskBinding>; 3] {
        [vec![], vec![binding(1, 1), binding(2, 1)], vec![binding(2, 0), binding(1, 1)]]
    }

    #[derive(Clone)]
    struct Observed {
        roster: Roster,
        tasks: Vec<TaskBinding>,
        /// By thread number: the connection and the task that the thread serves, or `None` if the
        /// thread sleeps. The connection is 0 if the thread serves a single message.
        serving: Vec<Option<(u64, u64)>>,
    }

    impl Observed {
        fn new() -> Self {
            let mut roster = Roster::new(MAX_THREADS, 0);
            assert_eq!((roster.add(0), roster.add(1)), (Some(0), Some(1)));
            Observed { roster, tasks: Vec::new(), serving: vec![None, None] }
        }

        /// Binds a connection, or lends a thread to a single message if `connection` is 0.
        fn bind(&mut self, task: u64, connection: u64, starts: bool) {
            let admitted = self.tasks.iter().find(|known| known.task == task).copied();
            let is_served = connection != 0 && self.serving.iter().flatten().any(|served| served.0 == connection);
            let home = |roster: &Roster, number| roster.home(number);
            let is_served_task = |task: u64| self.serving.iter().flatten().any(|served| served.1 == task);
            let has_thread = is_served_task(task);
            let free = MAX_THREADS - self.serving.iter().flatten().count();
            let without = self.tasks.iter().filter(|known| !is_served_task(known.task)).count();
            let sleeping: Vec<usize> = (0..self.serving.len()).filter(|&at| self.serving[at].is_none()).collect();
            let decision = if connection == 0 { self.roster.lend(task) } else { self.roster.bind(task, connection) };
            if matches!(decision, BindDecision::Wake(_) | BindDecision::Start(_)) {
                assert!(!has_thread || free > without, "a thread is taken from a task that has none");
            }
            match decision {
                BindDecision::NoTask => assert!(admitted.is_none() && !is_served),
                BindDecision::Occupied => assert!(is_served),
                BindDecision::Exhausted => {
                    assert!(admitted.is_some() && !is_served);
                    assert!(free == 0 || (has_thread && free <= without));
                }
                BindDecision::Wake(number) => {
                    let wanted = admitted.expect("a task that is not admitted is bound");
                    assert!(!is_served && self.serving[number].is_none());
                    let has_own = sleeping.iter().any(|&at| home(&self.roster, at) == wanted.core);
                    assert_eq!(home(&self.roster, number) == wanted.core, has_own, "borrowed without need");
                    self.serving[number] = Some((connection, task));
                }
                BindDecision::Start(number) => {
                    assert!(admitted.is_some() && !is_served && sleeping.is_empty());
                    assert!(number < MAX_THREADS && number == self.serving.len());
                    if starts {
                        self.serving.push(Some((connection, task)));
                    } else {
                        self.roster.start_failed(number);
                    }
                }
            }
        }

        fn set_tasks(&mut self, tasks: &[TaskBinding]) {
            let before: Vec<Duty> = (0..self.serving.len()).map(|number| self.roster.duty(number)).collect();
            self.tasks = tasks.to_vec();
            let changed = self.roster.set_tasks(tasks);
            let differs = |number: &usize| self.roster.duty(*number) != before[*number];
            assert_eq!(changed, (0..before.len()).filter(differs).collect::<Vec<_>>());
        }

        fn check(&self) {
            for (number, serving) in self.serving.iter().enumerate() {
                let expected = match serving {
                    None => Duty::Sleep,
                    Some((_, task)) => {
                        self.tasks.iter().find(|known| known.task == *task).map_or(Duty::GiveUp, |t| Duty::Serve(*t))
                    }
                };
                assert_eq!(self.roster.duty(number), expected, "thread {number}");
            }
            let bound = self.serving.iter().flatten().filter(|served| served.0 != 0).count() as u64;
            assert_eq!(self.roster.counts().currently_bound_connections, bound);
        }
    }

    /// Tries all orders of events up to a depth: bindings, single messages, threads that cannot be
    /// started, ends of bindings, and changes of the tasks.
    #[test]
    fn duties_follow_connections_and_tasks_in_all_orders() {
        fn explore(seen: &Observed, depth: usize, orders: &mut u64) {
            seen.check();
            *orders += 1;
            if depth == 0 {
                return;
            }
            for set in &sets() {
                let mut next = seen.clone();
                next.set_tasks(set);
                explore(&next, depth - 1, orders);
            }
            for number in 0..seen.serving.len() {
                if seen.serving[number].is_some() {
                    let mut next = seen.clone();
                    next.roster.finish(number);
                    next.serving[number] = None;
                    explore(&next, depth - 1, orders);
                }
            }
            let bindings = [(1, 10, true), (1, 11, true), (2, 11, true), (2, 0, true), (1, 12, false)];
            for (task, connection, starts) in bindings {
                let mut next = seen.clone();
                next.bind(task, connection, starts);
                explore(&next, depth - 1, orders);
            }
        }
        let mut orders = 0;
        explore(&Observed::new(), DEPTH, &mut orders);
        assert!(orders > 200_000, "{orders}");
    }

    #[test]
    fn counts_tell_how_connections_were_bound() {
        let mut roster = Roster::new(3, 0);
        roster.add(0).unwrap();
        roster.add(1).unwrap();
        roster.set_tasks(&[binding(1, 0)]);
        assert_eq!(roster.bind(1, 10), BindDecision::Wake(0));
        assert_eq!(roster.bind(1, 11), BindDecision::Wake(1));
        assert_eq!(roster.bind(1, 12), BindDecision::Start(2));
        assert_eq!(roster.bind(1, 13), BindDecision::Exhausted);
        assert_eq!(roster.set_tasks(&[binding(1, 1)]), [0, 1, 2]);
        assert_eq!(roster.set_tasks(&[]), [0, 1, 2]);
        roster.finish(0);
        let counts = roster.counts();
        assert_eq!((counts.connections_bound, counts.threads_borrowed, counts.threads_started), (3, 1, 1));
        assert_eq!(
            (counts.threads_moved, counts.connections_unbound_by_task_end, counts.currently_bound_connections),
            (3, 1, 2)
        );
        roster.set_tasks(&[binding(1, 0)]);
        assert_eq!(roster.bind(1, 11), BindDecision::Occupied);
        assert_eq!(roster.lend(1), BindDecision::Wake(0));
        assert_eq!(roster.lend(1), BindDecision::Exhausted);
        let counts = roster.counts();
        assert_eq!(
            (counts.connections_bound, counts.requests_handed_over, counts.currently_bound_connections),
            (3, 1, 2)
        );
        roster.close();
        assert_eq!(roster.bind(1, 14), BindDecision::NoTask);
    }

    /// Tries all orders of requests of two tasks, their ends, and the loss of a task, in a pool
    /// whose threads read their requests themselves.
    #[test]
    fn a_thread_remains_to_read_in_all_orders() {
        fn explore(roster: &Roster, depth: usize, orders: &mut u64) {
            *orders += 1;
            let sleeping: Vec<usize> =
                (0..roster.threads.len()).filter(|&at| roster.threads[at].place == Place::Sleeping).collect();
            assert!(!sleeping.is_empty(), "no thread reads");
            if depth == 0 {
                return;
            }
            for &number in &sleeping {
                for task in [1, 2] {
                    let mut next = roster.clone();
                    let has_thread = roster.threads.iter().any(|entry| entry.task() == Some(task));
                    let mut decision = next.lead(number, task);
                    if decision == LeadDecision::Alone {
                        assert_eq!((sleeping.len(), next.counts()), (1, roster.counts()));
                        let mut failed = next.clone();
                        let follower = next.add_follower(0).expect("there is room for a thread of each task");
                        assert_eq!(failed.add_follower(0), Some(follower));
                        failed.start_failed(follower);
                        assert_eq!(failed.counts(), roster.counts());
                        decision = next.lead(number, task);
                    }
                    match decision {
                        LeadDecision::Run => {}
                        LeadDecision::Exhausted => {
                            assert!(has_thread, "a task without a thread gets none");
                            continue;
                        }
                        LeadDecision::NoTask => {
                            assert!(!roster.contains(task));
                            continue;
                        }
                        LeadDecision::Alone => panic!("a follower sleeps"),
                    }
                    assert!(matches!(next.duty(number), Duty::Serve(served) if served.task == task));
                    let mut refused = next.clone();
                    refused.wake_failed(number);
                    assert_eq!(
                        (refused.counts().led, refused.counts().threads_borrowed),
                        (roster.counts.led, roster.counts.threads_borrowed)
                    );
                    explore(&next, depth - 1, orders);
                }
            }
            for number in 0..roster.threads.len() {
                if roster.threads[number].task().is_some() {
                    let mut next = roster.clone();
                    next.finish(number);
                    assert_eq!(next.home(number), 1);
                    explore(&next, depth - 1, orders);
                }
            }
            for set in [vec![], vec![binding(1, 1), binding(2, 1)]] {
                let mut next = roster.clone();
                next.set_tasks(&set);
                explore(&next, depth - 1, orders);
            }
        }
        // Each of two tasks can get a thread, and one remains to read.
        let mut roster = Roster::new(3, 1);
        roster.add(0).unwrap();
        roster.set_tasks(&[binding(1, 1), binding(2, 1)]);
        let mut orders = 0;
        explore(&roster, 8, &mut orders);
        assert!(orders > 50_000, "{orders}");
    }

    #[test]
    fn binding_that_the_kernel_refuses_leaves_no_trace_and_its_task_leaves_the_set() {
        let mut roster = Roster::new(3, 0);
        roster.add(0).unwrap();
        roster.add(0).unwrap();
        roster.set_tasks(&[binding(1, 1), binding(2, 0)]);
        assert_eq!(roster.bind(2, 9), BindDecision::Wake(0));
        let before = roster.counts();
        for woken in [roster.clone().bind(1, 10), roster.clone().lend(1)] {
            assert_eq!(woken, BindDecision::Wake(1));
        }
        for connection in [Some(10), None] {
            match connection {
                Some(connection) => roster.bind(1, connection),
                None => roster.lend(1),
            };
            assert_eq!(roster.duty(1), Duty::Serve(binding(1, 1)));
            roster.wake_failed(1);
            assert_eq!((roster.counts(), roster.duty(1)), (before, Duty::Sleep));
        }
        assert_eq!(roster.bind(1, 10), BindDecision::Wake(1));
        assert_eq!(roster.remove_task(1), [1]);
        assert!(roster.remove_task(1).is_empty());
        assert_eq!((roster.duty(0), roster.duty(1)), (Duty::Serve(binding(2, 0)), Duty::GiveUp));
        assert_eq!(roster.bind(1, 11), BindDecision::NoTask);
        assert_eq!(roster.set_tasks(&[binding(1, 1), binding(2, 0)]), [1]);
        assert_eq!(roster.duty(1), Duty::Serve(binding(1, 1)));
    }
}
