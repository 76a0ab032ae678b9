//! The cores that the kernel lets this process use.
//!
//! If a core goes offline or leaves the process's cpuset, the kernel moves the threads that are
//! pinned to it to other cores. The loss shows in the affinity mask of a thread that may run on all
//! cores.

use corelane_sched::task::CoreId;
use corelane_sys::thread::{self, CpuSet};

#[derive(Debug)]
pub(super) struct CoreWatch {
    cores: Vec<CoreId>,
}

fn usable() -> Option<CpuSet> {
    thread::affinity(None).ok()
}

fn contains(set: &CpuSet, core: CoreId) -> bool {
    usize::try_from(core.core).is_ok_and(|core| set.contains(core))
}

impl CoreWatch {
    /// Adds the cores to the calling thread's affinity mask, as far as the kernel permits, and
    /// watches the cores that the mask then contains.
    pub(super) fn start(cores: impl IntoIterator<Item = CoreId>) -> Self {
        let cores: Vec<CoreId> = cores.into_iter().collect();
        let own = usable().unwrap_or_default();
        let numbers = cores.iter().filter_map(|core| usize::try_from(core.core).ok());
        let wanted: CpuSet = own.iter().chain(numbers.filter(|core| *core < CpuSet::CAPACITY)).collect();
        let _ = thread::set_affinity(None, &wanted);
        let usable = usable().unwrap_or_default();
        CoreWatch { cores: cores.into_iter().filter(|core| contains(&usable, *core)).collect() }
    }

    /// Returns the watched cores that are not usable now. Must be called by the thread that made
    /// the watch.
    pub(super) fn lost(&self) -> Vec<CoreId> {
        // If the mask cannot be read, no core counts as lost.
        let Some(usable) = usable() else { return Vec::new() };
        self.cores.iter().filter(|core| !contains(&usable, **core)).copied().collect()
    }
}
