//! What a request path uses costs no allocation once warm, and exactly the locks and system calls it should.
#![cfg(not(loom))]

use std::io::IoSlice;
use std::os::fd::AsFd;

use corelane_sys::buffer::Buffer;
use corelane_sys::counters::{self, Counters};
use corelane_sys::epoll::{Epoll, Event, Interest};
use corelane_sys::index::Writer;
use corelane_sys::lock::{Exclusive, Mutex, PiMutex, Scope};
use corelane_sys::mpsc::Mailbox;
use corelane_sys::published::Published;
use corelane_sys::slots::SlotTable;
use corelane_sys::socket::{self, Wait};
use corelane_sys::{clock, poll, process, thread};

#[global_allocator]
static ALLOCATOR: corelane_sys::alloc::Counting = corelane_sys::alloc::Counting;

/// What the second of two runs did.
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
    futex: 0,
    handoffs: 0,
    rushes: 0,
    allocations: 0,
    allocated_bytes: 0,
    freed_bytes: 0,
};

#[test]
fn look_ups_do_nothing_that_is_counted() {
    let table = SlotTable::new("test", Scope::Orb, 100);
    let (index, generation) = table.insert("servant".to_owned()).unwrap();
    assert_eq!(warm(|| assert_eq!(*table.get(index, generation).unwrap(), "servant")), NOTHING);
    assert_eq!(warm(|| assert!(table.get(index, generation + 1).is_none())), NOTHING);

    let published = Published::new("test", Scope::Orb, vec![1, 2, 3]);
    assert_eq!(warm(|| assert_eq!(published.load().len(), 3)), NOTHING);

    let mut writer = Writer::new("test", Scope::Orb);
    writer.insert(b"key", 7);
    assert_eq!(warm(|| assert_eq!(writer.index().find(b"key", |slot| slot == 7), Some(7))), NOTHING);

    assert_eq!(warm(|| assert!(clock::now() < clock::Monotonic::FAR_FUTURE)), NOTHING);
    assert_eq!(warm(|| assert!(thread::current_tid().as_raw() > 0)), NOTHING);
    assert_eq!(warm(|| assert!(process::id() > 0)), NOTHING);
}

#[test]
fn uncontended_locks_are_one_lock_each() {
    let one = Counters { locks: 1, ..NOTHING };
    let exclusive = Exclusive::new("test", Scope::Connection, 1);
    assert_eq!(warm(|| assert_eq!(*exclusive.try_lock().unwrap(), 1)), one);
    let mutex = Mutex::new("test", Scope::Connection, 1);
    assert_eq!(warm(|| assert_eq!(*mutex.lock(), 1)), one);
    let mutex = PiMutex::new("test", Scope::Orb, 1);
    assert_eq!(warm(|| assert_eq!(*mutex.lock(), 1)), Counters { orb_locks: 1, ..one });
}

#[test]
fn a_request_and_its_reply_are_the_system_calls_of_the_budget() {
    let (client, server) = socket::pair().unwrap();
    let epoll = Epoll::new().unwrap();
    epoll.add(server.as_fd(), 1, Interest::READABLE | Interest::EDGE).unwrap();
    let mut buffer = Buffer::with_capacity(1000).unwrap();
    let mut reply = [0; 64];
    let mut events = [Event::EMPTY; 8];
    let call = || {
        let slices = [IoSlice::new(b"GIOP"), IoSlice::new(b"request")];
        assert_eq!(socket::send_vectored(client.as_fd(), &slices, Wait::Block).unwrap(), 11);
        assert_eq!(epoll.wait(&mut events, None).unwrap(), 1);
        buffer.reserve(100).unwrap();
        assert_eq!(buffer.receive(server.as_fd(), Wait::Now).unwrap(), 11);
        assert_eq!(socket::send(server.as_fd(), &buffer, Wait::Now).unwrap(), 11);
        buffer.consume(11);
        assert!(poll::wait_readable(client.as_fd(), Some(clock::Monotonic::FAR_FUTURE)).unwrap());
        assert_eq!(socket::recv(client.as_fd(), &mut reply, Wait::Block).unwrap(), 11);
    };
    assert_eq!(warm(call), Counters { syscalls: 6, ..NOTHING });
}

#[test]
fn a_hand_over_to_one_who_is_awake_is_only_counted() {
    let mailbox = Mailbox::new(8).unwrap();
    let pass = || {
        mailbox.send([1u64; 4]).unwrap();
        assert!(mailbox.receive().is_some());
    };
    assert_eq!(warm(pass), Counters { handoffs: 1, ..NOTHING });
}
