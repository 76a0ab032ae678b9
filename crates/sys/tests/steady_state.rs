//! The primitives of the request path allocate nothing once warm, and use exactly the expected
//! locks and system calls.
#![cfg(not(loom))]

use std::io::IoSlice;
use std::os::fd::AsFd;

use corelane_sys::buffer::Buffer;
use corelane_sys::counters::{self, Counters};
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::hash_index::HashIndexWriter;
use corelane_sys::lock::{CheckoutCell, LockScope, Mutex, PiMutex};
use corelane_sys::mpsc::Mailbox;
use corelane_sys::rcu_cell::RcuCell;
use corelane_sys::slab::GenerationalSlab;
use corelane_sys::socket::{self, WaitMode};
use corelane_sys::{clock, poll, process, thread};

#[global_allocator]
static ALLOCATOR: corelane_sys::alloc::CountingAllocator = corelane_sys::alloc::CountingAllocator;

fn warm(mut run: impl FnMut()) -> Counters {
    run();
    let before = counters::snapshot();
    run();
    counters::snapshot() - before
}

const NOTHING: Counters = Counters {
    syscalls: 0,
    locks: 0,
    lane_locks: 0,
    orb_locks: 0,
    futex_calls: 0,
    handoffs: 0,
    bursts: 0,
    allocations: 0,
    allocated_bytes: 0,
    freed_bytes: 0,
};

#[test]
fn lookups_make_no_counted_operation() {
    let table = GenerationalSlab::new("test", LockScope::Orb, 100);
    let (index, generation) = table.insert("servant".to_owned()).unwrap();
    assert_eq!(warm(|| assert_eq!(*table.get(index, generation).unwrap(), "servant")), NOTHING);
    assert_eq!(warm(|| assert!(table.get(index, generation + 1).is_none())), NOTHING);

    let published = RcuCell::new("test", LockScope::Orb, vec![1, 2, 3]);
    assert_eq!(warm(|| assert_eq!(published.load().len(), 3)), NOTHING);

    let mut writer = HashIndexWriter::new("test", LockScope::Orb);
    writer.insert(b"key", 7);
    assert_eq!(warm(|| assert_eq!(writer.index().find(b"key", |slot| slot == 7), Some(7))), NOTHING);

    assert_eq!(warm(|| assert!(clock::now() < clock::Monotonic::FAR_FUTURE)), NOTHING);
    assert_eq!(warm(|| assert!(thread::current_tid().as_raw() > 0)), NOTHING);
    assert_eq!(warm(|| assert!(process::id() > 0)), NOTHING);
}

#[test]
fn uncontended_lock_counts_as_one_lock() {
    let one = Counters { locks: 1, ..NOTHING };
    let exclusive = CheckoutCell::new("test", LockScope::Connection, 1);
    assert_eq!(warm(|| assert_eq!(*exclusive.try_checkout().unwrap(), 1)), one);
    let mutex = Mutex::new("test", LockScope::Connection, 1);
    assert_eq!(warm(|| assert_eq!(*mutex.lock(), 1)), one);
    let mutex = PiMutex::new("test", LockScope::Orb, 1);
    assert_eq!(warm(|| assert_eq!(*mutex.lock(), 1)), Counters { orb_locks: 1, ..one });
}

#[test]
fn a_request_and_its_reply_are_the_system_calls_of_the_budget() {
    let (client, server) = socket::pair().unwrap();
    let epoll = Epoll::new().unwrap();
    epoll.add(server.as_fd(), 1, Interest::READABLE | Interest::EDGE).unwrap();
    let mut buffer = Buffer::with_capacity(1000).unwrap();
    let mut reply = [0; 64];
    let mut events = [EpollEvent::EMPTY; 8];
    let call = || {
        let slices = [IoSlice::new(b"GIOP"), IoSlice::new(b"request")];
        assert_eq!(socket::send_vectored(client.as_fd(), &slices, WaitMode::Block).unwrap(), 11);
        assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
        buffer.reserve(100).unwrap();
        assert_eq!(buffer.receive(server.as_fd(), WaitMode::Now).unwrap(), 11);
        assert_eq!(socket::send(server.as_fd(), &buffer, WaitMode::Now).unwrap(), 11);
        buffer.consume(11);
        assert!(poll::wait_readable(client.as_fd(), Some(clock::Monotonic::FAR_FUTURE)).unwrap());
        assert_eq!(socket::recv(client.as_fd(), &mut reply, WaitMode::Block).unwrap(), 11);
    };
    assert_eq!(warm(call), Counters { syscalls: 6, ..NOTHING });
}

#[test]
fn handoff_to_an_awake_thread_makes_no_system_call() {
    let mailbox = Mailbox::new(8).unwrap();
    let pass = || {
        mailbox.send([1u64; 4]).unwrap();
        assert!(mailbox.receive().is_some());
    };
    assert_eq!(warm(pass), Counters { handoffs: 1, ..NOTHING });
}
