//! The arena for what cannot be borrowed in place.

use bumpalo::Bump;

/// A reusable arena, one per thread: text and numbers that have to be converted, and fixed-size structs, live here while a
/// request runs. It keeps its largest block over [`reset`](Scratch::reset), so that steady traffic allocates nothing.
#[derive(Default)]
pub struct Scratch {
    bump: Bump,
}

impl Scratch {
    /// An arena that allocates nothing until it is used.
    #[must_use]
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Frees all that was converted, and keeps the memory. The exclusive borrow proves that nobody looks at it any more.
    #[inline]
    pub fn reset(&mut self) {
        #[inline(never)]
        fn reset(bump: &mut Bump) {
            bump.reset();
        }
        if self.allocated() > 0 {
            reset(&mut self.bump);
        }
    }

    /// Octets that the arena holds from the allocator.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.bump.allocated_bytes()
    }

    pub(crate) fn bump(&self) -> &Bump {
        &self.bump
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("allocated", &self.allocated()).finish()
    }
}
