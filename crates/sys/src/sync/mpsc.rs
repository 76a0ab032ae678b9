//! A bounded queue with a descriptor that wakes a sleeping receiver, for example a lane.
//!
//! [`Mailbox::send`] allocates nothing, takes no lock and does not wait for room.
//!
//! The queue is an array of cells, each with a sequence number that shows if a sender or a receiver
//! may use the cell next (Dmitry Vyukov's bounded queue).
//!
//! Comments in the code refer to two rules of memory ordering:
//!
//! * `cell`: a thread stores a cell's number with release after it has written the value or moved
//!   it out, and loads the number with acquire before it uses the cell. One compare-and-swap takes
//!   a position, so one thread at a time uses a cell.
//! * `sleep`: a receiver announces that it will sleep, then checks the queue. A sender fills the
//!   queue, then checks for the announcement. A sequentially consistent fence between the two steps
//!   on both sides makes at least one of them see the other.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use crate::clock::Monotonic;
use crate::counters;
use crate::eventfd::EventFd;
use crate::poll;
use crate::shim::{AtomicBool, AtomicUsize, Ordering, UnsafeCell, fence};

/// Error of a full queue, with the value that was not sent.
#[derive(Debug, PartialEq, Eq)]
pub struct MailboxFull<T>(pub T);

impl<T> fmt::Display for MailboxFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is full")
    }
}

impl<T: fmt::Debug> std::error::Error for MailboxFull<T> {}

struct QueueCell<T> {
    number: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A position on a cache line of its own, so that senders and receivers do not delay each other.
#[repr(align(64))]
struct PaddedPosition(AtomicUsize);

struct Queue<T> {
    cells: Box<[QueueCell<T>]>,
    send: PaddedPosition,
    receive: PaddedPosition,
}

// SAFETY: one thread moves a value in and another moves it out, and no two threads share it (`T:
// Send`). The protocol of the module gives one thread at a time access to a cell.
unsafe impl<T: Send> Sync for Queue<T> {}
// SAFETY: moving the queue moves its values.
unsafe impl<T: Send> Send for Queue<T> {}

impl<T> Queue<T> {
    fn new(capacity: usize) -> Self {
        // With one cell, one number would mean both "filled" and "free for the next round".
        let length = capacity.max(2).next_power_of_two();
        let cell =
            |number| QueueCell { number: AtomicUsize::new(number), value: UnsafeCell::new(MaybeUninit::uninit()) };
        Self {
            cells: (0..length).map(cell).collect(),
            send: PaddedPosition(AtomicUsize::new(0)),
            receive: PaddedPosition(AtomicUsize::new(0)),
        }
    }

    fn cell(&self, position: usize) -> &QueueCell<T> {
        &self.cells[position & (self.cells.len() - 1)]
    }

    fn push(&self, value: T) -> Result<(), T> {
        let mut position = self.send.0.load(Ordering::Relaxed);
        let cell = loop {
            let cell = self.cell(position);
            // Acquire: pairs with `pop` (rule `cell`).
            let ahead = cell.number.load(Ordering::Acquire).wrapping_sub(position) as isize;
            if ahead < 0 {
                return Err(value);
            }
            if ahead > 0 {
                position = self.send.0.load(Ordering::Relaxed);
                continue;
            }
            match self.send.0.compare_exchange_weak(
                position,
                position.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break cell,
                Err(now) => position = now,
            }
        };
        // SAFETY: the cell's number showed that it is free for this position, and this thread alone
        // has taken the position.
        cell.value.with_mut(|place| unsafe { (*place).write(value) });
        // Release: pairs with `pop` (rule `cell`).
        cell.number.store(position.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    fn pop(&self) -> Option<T> {
        let mut position = self.receive.0.load(Ordering::Relaxed);
        let cell = loop {
            let cell = self.cell(position);
            // Acquire: pairs with `push` (rule `cell`).
            let ahead = cell.number.load(Ordering::Acquire).wrapping_sub(position.wrapping_add(1)) as isize;
            if ahead < 0 {
                return None;
            }
            if ahead > 0 {
                position = self.receive.0.load(Ordering::Relaxed);
                continue;
            }
            match self.receive.0.compare_exchange_weak(
                position,
                position.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break cell,
                Err(now) => position = now,
            }
        };
        // SAFETY: the cell's number shows that it holds the value of this position, and this
        // thread alone has taken the position, so the value is moved out once.
        let value = cell.value.with_mut(|place| unsafe { (*place).assume_init_read() });
        // Release: pairs with `push` (rule `cell`).
        cell.number.store(position.wrapping_add(self.cells.len()), Ordering::Release);
        Some(value)
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// A queue with a descriptor that becomes readable when a value is sent to a sleeping receiver.
pub struct Mailbox<T> {
    queue: Queue<T>,
    sleeping: AtomicBool,
    wake: EventFd,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox. The capacity is rounded up to a power of two and is at least 2.
    ///
    /// # Errors
    /// When the kernel cannot create the descriptor, as in eventfd(2).
    pub fn new(capacity: usize) -> io::Result<Self> {
        Ok(Self { queue: Queue::new(capacity), sleeping: AtomicBool::new(false), wake: EventFd::new()? })
    }

    /// Returns the maximum number of values in the queue.
    pub fn capacity(&self) -> usize {
        self.queue.cells.len()
    }

    /// Sends a value. Makes the descriptor readable if a receiver has announced that it sleeps.
    ///
    /// # Errors
    /// [`MailboxFull`], with the value, if the queue is full. The queue also counts as full while a
    /// receiver moves a value out of the cell that the next send uses.
    pub fn send(&self, value: T) -> Result<(), MailboxFull<T>> {
        self.queue.push(value).map_err(MailboxFull)?;
        counters::count_handoff();
        if self.needs_wake() {
            self.wake.notify();
        }
        Ok(())
    }

    /// Takes the oldest value. Returns `None` if the queue is empty or a sender is writing the
    /// oldest value.
    pub fn receive(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Takes the oldest value. If there is none, announces that the caller is about to block on the
    /// descriptor, and checks the queue again. After a result of `None`, the next
    /// [`send`](Self::send) makes the descriptor readable.
    pub fn receive_or_announce_sleep(&self) -> Option<T> {
        if let Some(value) = self.queue.pop() {
            return Some(value);
        }
        self.sleeping.store(true, Ordering::Relaxed);
        // Pairs with `needs_wake` (rule `sleep`).
        fence(Ordering::SeqCst);
        self.queue.pop()
    }

    /// Makes the descriptor unreadable. A receiver calls this function after the descriptor has
    /// become readable.
    pub fn clear_readiness(&self) {
        self.wake.take_notifications();
    }

    /// Takes the oldest value, or waits for a value until `deadline` (`None`: for ever). Returns
    /// `None` after the deadline.
    ///
    /// # Errors
    /// When the kernel is out of memory.
    pub fn receive_until(&self, deadline: Option<Monotonic>) -> io::Result<Option<T>> {
        loop {
            if let Some(value) = self.receive_or_announce_sleep() {
                return Ok(Some(value));
            }
            if !poll::wait_readable(self.wake.as_fd(), deadline)? {
                return Ok(None);
            }
            self.wake.take_notifications();
        }
    }

    fn needs_wake(&self) -> bool {
        // Pairs with `receive_or_announce_sleep` (rule `sleep`).
        fence(Ordering::SeqCst);
        // The load spares most senders a write.
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed)
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn first_in_first_out_until_full() {
        let mailbox = Mailbox::new(3).unwrap();
        assert_eq!(mailbox.capacity(), 4);
        for round in 0..10 {
            for n in 0..4 {
                mailbox.send(round * 4 + n).unwrap();
            }
            assert_eq!(mailbox.send(0), Err(MailboxFull(0)));
            for n in 0..4 {
                assert_eq!(mailbox.receive(), Some(round * 4 + n));
            }
            assert_eq!(mailbox.receive(), None);
        }
    }

    #[test]
    fn send_to_awake_receiver_makes_no_system_call() {
        let mailbox = Mailbox::new(4).unwrap();
        let before = counters::snapshot();
        mailbox.send(1).unwrap();
        let counted = counters::snapshot() - before;
        assert_eq!((counted.syscalls, counted.handoffs, counted.locks), (0, 1, 0));
        assert_eq!(mailbox.receive_or_announce_sleep(), Some(1));
        assert_eq!(mailbox.receive_or_announce_sleep(), None);
        mailbox.send(2).unwrap();
        mailbox.send(3).unwrap();
        assert_eq!((counters::snapshot() - before).syscalls, 1);
        assert!(poll::wait_readable(mailbox.as_fd(), None).unwrap());
        mailbox.clear_readiness();
        let soon = clock::now() + Duration::from_millis(1);
        assert_eq!(mailbox.receive_until(Some(soon)).unwrap(), Some(2));
        assert_eq!(mailbox.receive_until(Some(soon)).unwrap(), Some(3));
        assert_eq!(mailbox.receive_until(Some(soon)).unwrap(), None);
    }

    #[test]
    fn remaining_messages_are_dropped() {
        let value = Arc::new(());
        let mailbox = Mailbox::new(4).unwrap();
        for _ in 0..3 {
            mailbox.send(Arc::clone(&value)).unwrap();
        }
        drop(mailbox);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn every_message_arrives_once_and_sleepers_wake() {
        let each: usize = if cfg!(miri) { 20 } else { 20_000 };
        let mailbox = Mailbox::new(8).unwrap();
        thread::scope(|scope| {
            for sender in 0..3 {
                let mailbox = &mailbox;
                scope.spawn(move || {
                    for n in 0..each {
                        let mut value = (sender, n);
                        while let Err(MailboxFull(back)) = mailbox.send(value) {
                            value = back;
                            thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0; 3];
            for _ in 0..3 * each {
                let deadline = clock::now() + Duration::from_secs(30);
                let (sender, n) = mailbox.receive_until(Some(deadline)).unwrap().expect("a value before the deadline");
                assert_eq!(n, next[sender]);
                next[sender] += 1;
            }
            assert_eq!((next, mailbox.receive()), ([each; 3], None));
        });
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::shim::explore;

    #[test]
    fn two_senders_and_a_receiver() {
        explore(|| {
            let queue = Arc::new(Queue::new(2));
            let senders: Vec<_> = [1, 2]
                .into_iter()
                .map(|value| {
                    let queue = Arc::clone(&queue);
                    thread::spawn(move || queue.push(Box::new(value)).unwrap())
                })
                .collect();
            let early = queue.pop();
            for sender in senders {
                sender.join().unwrap();
            }
            let mut all: Vec<_> = early.into_iter().chain(std::iter::from_fn(|| queue.pop())).collect();
            all.sort();
            assert_eq!(all, [Box::new(1), Box::new(2)]);
        });
    }

    #[test]
    fn cells_are_reused() {
        explore(|| {
            let queue = Arc::new(Queue::new(2));
            queue.push(Box::new(0)).unwrap();
            queue.push(Box::new(1)).unwrap();
            let other = {
                let queue = Arc::clone(&queue);
                thread::spawn(move || (queue.pop(), queue.push(Box::new(2)).is_ok()))
            };
            let here = queue.pop();
            let (there, pushed) = other.join().unwrap();
            assert!(here.is_some() && there.is_some());
            assert_eq!((queue.pop(), queue.pop()), (pushed.then(|| Box::new(2)), None));
        });
    }

    #[test]
    fn sleeping_receiver_is_woken() {
        explore(|| {
            let mailbox = Arc::new(Mailbox::new(2).unwrap());
            let sender = {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || mailbox.send(Box::new(1)).unwrap())
            };
            let early = mailbox.receive_or_announce_sleep();
            sender.join().unwrap();
            if early.is_none() {
                assert!(mailbox.wake.take_notifications(), "expected that the sender made the descriptor readable");
                assert!(mailbox.receive().is_some());
            }
        });
    }
}
