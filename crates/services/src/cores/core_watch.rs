//! The cores that the kernel lets this process use.
//!
//! A core can be taken from a process while it runs: a cpuset loses it, or it goes offline. The
//! kernel then moves the threads that are pinned to it to other cores, and reports nothing. The loss
//! shows in the affinity mask of a thread that may run on all cores.

use corelane_sched::task::CoreId;
use corelane_sys::thread::{self, CpuSet};

/// A watch over the cores of a machine, by the affinity mask of the thread that made it.
#[derive(Debug)]
pub(super) struct CoreWatch {
    /// The cores that were usable at the start.
    cores: Vec<CoreId>,
}

fn usable() -> Option<CpuSet> {
    thread::affinity(None).ok()
}

fn contains(set: &CpuSet, core: CoreId) -> bool {
    usize::try_from(core.core).is_ok_and(|core| set.contains(core))
}

impl CoreWatch {
    /// Makes the calling thread's mask contain the cores, as far as the kernel permits, and watches
    /// those that it then contains. The others were never usable.
    pub(super) fn start(cores: impl IntoIterator<Item = CoreId>) -> Self {
        let cores: Vec<CoreId> = cores.into_iter().collect();
        let own = usable().unwrap_or_default();
        let numbers = cores.iter().filter_map(|core| usize::try_from(core.core).ok());
        let wanted: CpuSet = own.iter().chain(numbers.filter(|core| *core < CpuSet::CAPACITY)).collect();
        // If the kernel refuses, the mask stays as it is.
        let _ = thread::set_affinity(None, &wanted);
        let usable = usable().unwrap_or_default();
        CoreWatch { cores: cores.into_iter().filter(|core| contains(&usable, *core)).collect() }
    }

    /// Returns the watched cores that are not usable now. Called by the thread that made the watch.
    pub(super) fn lost(&self) -> Vec<CoreId> {
        // A mask that cannot be read shows no loss.
        let Some(usable) = usable() else { return Vec::new() };
        self.cores.iter().filter(|core| !contains(&usable, **core)).copied().collect()
    }
}
