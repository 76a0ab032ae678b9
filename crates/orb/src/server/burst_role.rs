//! The role of a thread in its lane's burst mode.

use corelane_sys::burst::NO_BURST;

/// The role of a thread in its lane's burst mode.
#[derive(Debug)]
pub(crate) struct BurstRole {
    /// Token of the connection whose burst the thread runs.
    pub(super) runs_for: u64,
    /// Number of messages that the thread has read outside a burst while another message was behind
    /// them.
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

    /// Ends the thread's role: it runs no burst.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.runs_for = NO_BURST;
    }
}
