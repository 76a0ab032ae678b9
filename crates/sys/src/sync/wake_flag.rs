//! A flag that prevents needless wake-ups of threads that share a list of work. While a woken
//! thread has not checked the list, no second thread is woken.
//!
//! After a thread has put work on the list, it calls [`WakeFlag::try_raise`], and wakes another thread
//! if the result is true. A woken thread calls [`WakeFlag::clear`] before it checks the list. A
//! thread that leaves work on the list raises the flag again.
//!
//! Memory order: `try_raise` and `clear` are sequentially consistent swaps. If `try_raise` returns
//! false, the thread that clears the flag next sees the work.

use crate::shim::{AtomicBool, Ordering, const_unless_loom};

/// A flag that is set from the wake-up of a thread until this thread checks the list.
#[derive(Debug)]
pub struct WakeFlag(AtomicBool);

impl WakeFlag {
    const_unless_loom! {
        /// Creates a cleared flag.
        pub fn new() -> WakeFlag {
            WakeFlag(AtomicBool::new(false))
        }
    }

    /// Raises the flag. Before the call the caller must have put work on the list. Returns true if
    /// the caller must wake a thread.
    #[inline]
    pub fn try_raise(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    /// Clears the flag. The caller is a woken thread that is about to check the list.
    #[inline]
    pub fn clear(&self) {
        self.0.swap(false, Ordering::SeqCst);
    }
}

impl Default for WakeFlag {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn raise_wakes_once_until_cleared() {
        let flag = WakeFlag::new();
        assert!(flag.try_raise() && !flag.try_raise());
        flag.clear();
        assert!(flag.try_raise());
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::collections::VecDeque;

    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;
    use crate::shim::explore;

    struct Lane {
        list: Mutex<VecDeque<u32>>,
        count: AtomicUsize,
        flag: WakeFlag,
        stop: AtomicBool,
        edge: Mutex<bool>,
        reported: Condvar,
    }

    impl Lane {
        fn new() -> Arc<Self> {
            Arc::new(Lane {
                list: Mutex::new(VecDeque::new()),
                count: AtomicUsize::new(0),
                flag: WakeFlag::new(),
                stop: AtomicBool::new(false),
                edge: Mutex::new(false),
                reported: Condvar::new(),
            })
        }

        fn notify(&self) {
            *self.edge.lock().unwrap() = true;
            self.reported.notify_one();
        }

        fn wait(&self) {
            let mut edge = self.edge.lock().unwrap();
            while !*edge {
                edge = self.reported.wait(edge).unwrap();
            }
            *edge = false;
        }

        fn push(&self, work: u32) {
            let mut list = self.list.lock().unwrap();
            list.push_back(work);
            self.count.store(list.len(), Ordering::SeqCst);
            drop(list);
            self.wake_one();
        }

        fn wake_one(&self) {
            if self.flag.try_raise() {
                self.notify();
            }
        }

        fn next(&self) -> Option<u32> {
            let mut list = self.list.lock().unwrap();
            let work = list.pop_front();
            let more = !list.is_empty();
            self.count.store(list.len(), Ordering::SeqCst);
            drop(list);
            if more {
                self.wake_one();
            }
            work
        }

        fn run(&self, wanted: usize) -> usize {
            let mut done = 0;
            while done < wanted && !self.stop.load(Ordering::Acquire) {
                if self.count.load(Ordering::Acquire) > 0 {
                    done += usize::from(self.next().is_some());
                } else {
                    self.wait();
                    self.flag.clear();
                }
            }
            // Another sleeping thread must find the stop flag too, so this thread wakes one.
            self.notify();
            done
        }
    }

    #[test]
    fn work_listed_by_two_threads_is_done() {
        explore(|| {
            let lane = Lane::new();
            let other = Arc::clone(&lane);
            let other = thread::spawn(move || other.push(1));
            let third = Arc::clone(&lane);
            let third = thread::spawn(move || third.push(2));
            assert_eq!(lane.run(2), 2);
            other.join().unwrap();
            third.join().unwrap();
        });
    }

    #[test]
    fn every_thread_sees_the_stop() {
        explore(|| {
            let lane = Lane::new();
            let threads = [(); 2].map(|()| {
                let lane = Arc::clone(&lane);
                thread::spawn(move || lane.run(2))
            });
            lane.push(1);
            lane.stop.store(true, Ordering::Release);
            lane.notify();
            let done: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert!(done <= 1);
        });
    }
}
