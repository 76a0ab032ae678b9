//! One reader at a time, and no arrival lost: the state of a connection that several threads may be told is readable.
//!
//! A [`Turn`] is idle, taken, or taken with a note that something happened meanwhile. Whoever is told of an arrival
//! [enters](Turn::enter); if another thread is in, the note is left and that thread finds it when it
//! [leaves](TurnGuard::leave). So an edge-triggered report is never lost although only one thread reads.
//!
//! `turn`: the compare-and-swap that takes the turn acquires what the one that gave it back released. `note`: leaving a
//! note is a read-modify-write with release even where a note is there already, and the holder takes notes with
//! acquire, so that the holder sees what every one of those who left notes had seen.

use crate::shim::{AtomicU32, Ordering, UnsafeCell};

const IDLE: u32 = 0;
const TAKEN: u32 = 1;
const AGAIN: u32 = 2;

/// A value that one thread at a time works on, told by whoever finds it taken.
#[derive(Debug)]
pub struct Turn<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the one guard that the state admits, so threads never share it, they pass it on.
unsafe impl<T: Send> Sync for Turn<T> {}
// SAFETY: moving the cell moves the value.
unsafe impl<T: Send> Send for Turn<T> {}

/// The turn is the holder's until [`leave`](Self::leave) says so, or the guard is dropped. Dropping it forgets notes that were left
/// meanwhile: it is for holders after whom nobody reads any more, or who list what is to be read in any case.
#[must_use = "the turn is given back at once"]
#[derive(Debug)]
pub struct TurnGuard<'a, T> {
    turn: &'a Turn<T>,
}

impl<T> Turn<T> {
    /// An idle one.
    #[must_use]
    pub fn new(value: T) -> Self {
        Turn { state: AtomicU32::new(IDLE), value: UnsafeCell::new(value) }
    }

    /// Takes the turn, or leaves a note for the thread that has it.
    #[inline]
    pub fn enter(&self) -> Option<TurnGuard<'_, T>> {
        loop {
            // Acquire on success: pairs with the release in `leave` and `drop` (turn).
            match self.state.compare_exchange(IDLE, TAKEN, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(TurnGuard { turn: self }),
                // Release: pairs with `leave` (note), also when the note is another thread's: a mere look at it would
                // not make what this thread did before visible to the thread that finds the note.
                Err(taken) => {
                    if self.state.compare_exchange(taken, AGAIN, Ordering::Release, Ordering::Relaxed).is_ok() {
                        return None;
                    }
                }
            }
        }
    }
}

impl<'a, T> TurnGuard<'a, T> {
    /// The value.
    #[inline]
    pub fn with<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: this guard is the only one, and `&mut self` makes this the only borrow through it.
        self.turn.value.with_mut(|value| work(unsafe { &mut *value }))
    }

    /// Gives the turn back; if somebody came meanwhile, the guard is returned and the holder looks again.
    ///
    /// # Errors
    /// The guard, when a note was left.
    #[inline]
    pub fn leave(self) -> Result<(), Self> {
        // Release: pairs with the acquire in `enter` (turn).
        match self.turn.state.compare_exchange(TAKEN, IDLE, Ordering::Release, Ordering::Acquire) {
            Ok(_) => {
                std::mem::forget(self);
                Ok(())
            }
            Err(_) => {
                // Acquire: pairs with `enter` (note); notes left since the line above are taken too.
                self.turn.state.swap(TAKEN, Ordering::Acquire);
                Err(self)
            }
        }
    }
}

impl<T> Drop for TurnGuard<'_, T> {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `enter` (turn).
        self.turn.state.store(IDLE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_note_left_is_found_by_the_holder() {
        let turn = Turn::new(0);
        let mut first = turn.enter().unwrap();
        first.with(|value| *value += 1);
        assert!(turn.enter().is_none());
        assert!(turn.enter().is_none());
        let mut first = first.leave().unwrap_err();
        assert_eq!(first.with(|value| *value), 1);
        first.leave().unwrap();
        drop(turn.enter().unwrap());
        assert!(turn.enter().is_some());
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::shim::explore;

    /// Each of three threads makes one arrival and reports it; every arrival is seen by a turn that began after it.
    #[test]
    fn no_arrival_is_lost() {
        explore(|| {
            let shared = Arc::new((Turn::new(0usize), AtomicUsize::new(0)));
            let arrive = |shared: &(Turn<usize>, AtomicUsize)| {
                shared.1.fetch_add(1, Ordering::Relaxed);
                let mut next = shared.0.enter();
                while let Some(mut guard) = next {
                    let arrived = shared.1.load(Ordering::Relaxed);
                    guard.with(|seen| *seen = arrived);
                    next = guard.leave().err();
                }
            };
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || arrive(&shared))
                })
                .collect();
            arrive(&shared);
            for other in others {
                other.join().unwrap();
            }
            let mut last = shared.0.enter().unwrap();
            assert_eq!(last.with(|seen| *seen), 3);
        });
    }
}
