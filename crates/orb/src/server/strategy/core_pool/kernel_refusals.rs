//! The requests for cores and priorities that the kernel has permitted to the threads of a core
//! pool, and the tasks for which it later refuses such a request.
//!
//! If the kernel refuses a request that it has never permitted, the pool guarantees the timing of
//! no task any more. If it has permitted such a request before, only the task that needs the
//! request loses its guarantee.

use std::collections::{BTreeMap, BTreeSet};

use crate::rt::core_config::RefusedTask;

/// The maximum number of kept refusals, which bounds the memory of programs that never take them.
const MAX_KEPT: usize = 10_000;

/// A core or a priority that the pool requests from the kernel for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Core(usize),
    FixedPriority(u8),
}

struct Refusal {
    request: Request,
    reason: String,
    is_reported: bool,
    /// True if [`KernelRefusals::take`] has returned the refusal.
    is_taken: bool,
    /// True if the kernel has permitted all requests of the task since the refusal.
    is_over: bool,
}

#[derive(Default)]
pub(super) struct KernelRefusals {
    cores: BTreeSet<usize>,
    highest_priority: Option<u8>,
    tasks: BTreeMap<u64, Refusal>,
}

impl KernelRefusals {
    pub(super) fn permit(&mut self, request: Request) {
        match request {
            Request::Core(core) => {
                self.cores.insert(core);
            }
            Request::FixedPriority(priority) => self.highest_priority = self.highest_priority.max(Some(priority)),
        }
    }

    /// Returns true if the kernel has permitted such a request before. The permission of a priority
    /// includes all lower priorities.
    pub(super) fn was_permitted(&self, request: Request) -> bool {
        match request {
            Request::Core(core) => self.cores.contains(&core),
            Request::FixedPriority(priority) => self.highest_priority.is_some_and(|highest| priority <= highest),
        }
    }

    /// Records that the kernel refuses a request for a task, in place of an earlier refusal.
    /// Returns false if the earlier refusal was for the same request and is not over; the refusal
    /// is then not reported again. If [`MAX_KEPT`] refusals are kept, forgets the refusal of the
    /// task with the lowest number.
    pub(super) fn refuse(&mut self, task: u64, request: Request, reason: String) -> bool {
        let earlier = self.tasks.get(&task).filter(|earlier| earlier.request == request && !earlier.is_over);
        let (is_new, is_reported) = (earlier.is_none(), earlier.is_some_and(|earlier| earlier.is_reported));
        if self.tasks.len() >= MAX_KEPT && !self.tasks.contains_key(&task) {
            self.tasks.pop_first();
        }
        self.tasks.insert(task, Refusal { request, reason, is_reported, is_taken: false, is_over: false });
        is_new
    }

    /// Ends the refusal of a task for which the kernel now permits all requests, and forgets it if
    /// it is reported and taken.
    pub(super) fn forget(&mut self, task: u64) {
        let Some(refusal) = self.tasks.get_mut(&task) else { return };
        refusal.is_over = true;
        if refusal.is_reported && refusal.is_taken {
            self.tasks.remove(&task);
        }
    }

    /// Forgets the refusals of a lost core, because its tasks get other cores.
    pub(super) fn mark_core_lost(&mut self, core: usize) {
        self.tasks.retain(|_, refusal| refusal.request != Request::Core(core));
    }

    /// Forgets the refusals of tasks that are not in the set any more, if the refusals have been
    /// reported and taken.
    pub(super) fn keep_tasks(&mut self, is_in_set: impl Fn(u64) -> bool) {
        self.tasks.retain(|task, refusal| is_in_set(*task) || !refusal.is_reported || !refusal.is_taken);
    }

    pub(super) fn take(&mut self) -> Vec<RefusedTask> {
        self.new_refusals(|refusal| &mut refusal.is_taken)
    }

    pub(super) fn take_unreported(&mut self) -> Vec<RefusedTask> {
        self.new_refusals(|refusal| &mut refusal.is_reported)
    }

    pub(super) fn has_unreported(&self) -> bool {
        self.tasks.values().any(|refusal| !refusal.is_reported)
    }

    /// Returns the refusals whose `mark` (reported or taken) is false, and sets the mark.
    fn new_refusals(&mut self, mark: impl Fn(&mut Refusal) -> &mut bool) -> Vec<RefusedTask> {
        let new = |(task, refusal): (&u64, &mut Refusal)| {
            let is_new = !std::mem::replace(mark(refusal), true);
            let core = if let Request::Core(core) = refusal.request { Some(core) } else { None };
            is_new.then(|| RefusedTask { task: *task, core, reason: refusal.reason.clone() })
        };
        self.tasks.iter_mut().filter_map(new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_permitted_before_can_be_refused_later() {
        let mut refusals = KernelRefusals::default();
        let requests = [Request::Core(1), Request::FixedPriority(1)];
        assert_eq!(requests.map(|request| refusals.was_permitted(request)), [false, false]);
        requests.into_iter().for_each(|request| refusals.permit(request));
        assert_eq!(requests.map(|request| refusals.was_permitted(request)), [true, true]);
        assert!(!refusals.was_permitted(Request::Core(0)));
        // `RLIMIT_RTPRIO` may permit the priority of sleeping threads, but no priority of a task.
        let priorities = [1, 97, 98].map(Request::FixedPriority);
        assert_eq!(priorities.map(|request| refusals.was_permitted(request)), [true, false, false]);
        refusals.permit(Request::FixedPriority(97));
        refusals.permit(Request::FixedPriority(1));
        assert_eq!(priorities.map(|request| refusals.was_permitted(request)), [true, true, false]);
    }

    #[test]
    fn refusals_are_taken_and_reported_once_and_those_of_a_lost_core_not_at_all() {
        let mut refusals = KernelRefusals::default();
        refusals.refuse(1, Request::Core(1), "one".to_owned());
        assert!(refusals.refuse(2, Request::FixedPriority(2), "earlier".to_owned()));
        assert!(!refusals.refuse(2, Request::FixedPriority(2), "two".to_owned()));
        refusals.mark_core_lost(1);
        let two = [RefusedTask { task: 2, core: None, reason: "two".to_owned() }];
        assert_eq!(refusals.take(), two);
        assert_eq!(refusals.take(), []);
        refusals.keep_tasks(|_| false);
        assert_eq!(refusals.take_unreported(), two);
        assert_eq!(refusals.take_unreported(), []);
        refusals.keep_tasks(|_| false);
        assert!(refusals.tasks.is_empty());
        // A refusal that is reported first is kept until it is taken.
        refusals.refuse(3, Request::Core(1), "three".to_owned());
        let three = [RefusedTask { task: 3, core: Some(1), reason: "three".to_owned() }];
        assert_eq!(refusals.take_unreported(), three);
        refusals.keep_tasks(|_| false);
        assert_eq!(refusals.take(), three);
        refusals.keep_tasks(|_| false);
        assert!(refusals.tasks.is_empty());
    }

    #[test]
    fn refusal_of_the_same_request_is_reported_again_only_after_a_success() {
        let mut refusals = KernelRefusals::default();
        let refuse = |refusals: &mut KernelRefusals, core| refusals.refuse(1, Request::Core(core), String::new());
        assert!(refuse(&mut refusals, 1));
        assert_eq!((refusals.take().len(), refusals.take_unreported().len()), (1, 1));
        // The second refusal is taken again, but not reported again.
        assert!(!refuse(&mut refusals, 1));
        assert_eq!((refusals.take().len(), refusals.take_unreported().len()), (1, 0));
        assert!(refuse(&mut refusals, 2));
        refusals.forget(1);
        assert_eq!((refusals.take_unreported().len(), refusals.take().len()), (1, 1));
        refusals.forget(1);
        assert!(refuse(&mut refusals, 2));
        assert_eq!(refusals.take_unreported().len(), 1);
        // From here on the program takes no refusal.
        refusals.forget(1);
        assert!(refuse(&mut refusals, 2));
        assert_eq!(refusals.take_unreported().len(), 1);
    }

    #[test]
    fn refusals_that_no_program_takes_are_bounded() {
        let mut refusals = KernelRefusals::default();
        let most = u64::try_from(MAX_KEPT).unwrap();
        for task in (0..=most).chain([most]) {
            refusals.refuse(task, Request::FixedPriority(1), String::new());
        }
        assert_eq!((refusals.tasks.len(), refusals.take()[0].task), (MAX_KEPT, 1));
    }
}
