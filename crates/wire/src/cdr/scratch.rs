//! The arena for data that cannot be borrowed from the message.

use bumpalo::Bump;

/// A reusable arena. [`reset`](Scratch::reset) keeps the newest block of memory for later use.
#[derive(Default)]
pub struct Scratch {
    bump: Bump,
}

impl Scratch {
    /// Creates an arena that allocates nothing until it is used.
    #[must_use]
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Drops the contents. Keeps the newest block of memory and frees the others.
    #[inline]
    pub fn reset(&mut self) {
        #[inline(never)]
        fn reset(bump: &mut Bump) {
            bump.reset();
        }
        if self.allocated_bytes() > 0 {
            reset(&mut self.bump);
        }
    }

    /// Returns the memory in bytes that the arena has allocated.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.bump.allocated_bytes()
    }

    pub(crate) fn bump(&self) -> &Bump {
        &self.bump
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("allocated", &self.allocated_bytes()).finish()
    }
}
