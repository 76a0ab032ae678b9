//! The role of a thread in its lane's burst mode.

use corelane_sys::burst::NO_BURST;

#[derive(Debug)]
pub(crate) struct BurstRole {
    /// Token of the connection whose burst the thread runs, or [`NO_BURST`].
    pub(super) runs_for: u64,
    /// Number of messages that the thread read outside bursts, and after which more input may have
    /// waited. Set to 0 at each request for a burst.
    pub(super) backlogged_reads: u32,
}

impl Default for BurstRole {
    fn default() -> Self {
        BurstRole { runs_for: NO_BURST, backlogged_reads: 0 }
    }
}

impl BurstRole {
    #[inline]
    pub(super) fn is_runner(&self) -> bool {
        self.runs_for != NO_BURST
    }

    #[inline]
    pub(super) fn reset(&mut self) {
        self.runs_for = NO_BURST;
    }
}
