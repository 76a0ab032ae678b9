//! Waking one of several threads for work that is listed, and none while one is on its way.
//!
//! Whoever lists work says so with [`Notice::give`], and wakes a thread if the answer is yes. Whoever was woken calls [`Notice::take`] before it
//! looks at the list, and gives again if it leaves work there. `notice`: both swaps are sequentially consistent, so whoever finds a
//! notice given has listed its work before the thread that takes it looks.

use crate::shim::{AtomicBool, Ordering, const_unless_loom};

/// That a thread has been woken and has not looked yet.
#[derive(Debug)]
pub struct Notice(AtomicBool);

impl Notice {
    const_unless_loom! {
        /// Nobody is on its way.
        pub fn new() -> Notice {
            Notice(AtomicBool::new(false))
        }
    }

    /// Something has been listed. True: a thread is to be woken for it.
    #[inline]
    pub fn give(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    /// The calling thread was woken and is about to look.
    #[inline]
    pub fn take(&self) {
        self.0.swap(false, Ordering::SeqCst);
    }
}

impl Default for Notice {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_woken_until_it_has_looked() {
        let notice = Notice::new();
        assert!(notice.give() && !notice.give());
        notice.take();
        assert!(notice.give());
    }
}

/// How a lane's threads use it: the list has a count, the wake-up is an edge that one of those who wait takes.
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
        notice: Notice,
        stop: AtomicBool,
        /// The edge that has not been taken.
        edge: Mutex<bool>,
        reported: Condvar,
    }

    impl Lane {
        fn new() -> Arc<Self> {
            Arc::new(Lane {
                list: Mutex::new(VecDeque::new()),
                count: AtomicUsize::new(0),
                notice: Notice::new(),
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
            if self.notice.give() {
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

        /// What a thread does until it has done `wanted` pieces of work, or the lane stops: how many it has done.
        fn run(&self, wanted: usize) -> usize {
            let mut done = 0;
            while done < wanted && !self.stop.load(Ordering::Acquire) {
                if self.count.load(Ordering::Acquire) > 0 {
                    done += usize::from(self.next().is_some());
                } else {
                    self.wait();
                    self.notice.take();
                }
            }
            // The next thread finds the flag too.
            self.notify();
            done
        }
    }

    /// A wake-up that is lost would leave the thread waiting for ever.
    #[test]
    fn work_that_two_threads_list_is_done() {
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

    /// Two threads wait, one piece of work comes, and the lane stops: both end.
    #[test]
    fn every_thread_learns_that_the_lane_stops() {
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
